-- Depth limits of queues and namespaces. docs/architecture.md describes the protocol ("Quotas").

-- null: the queue's jobs are not counted. 0: it takes submits; 1: it is shut; 2: also to callers' own transactions.
alter table rota.queue add column intake smallint check (intake in (0, 1, 2));
create index queue_counted on rota.queue (namespace) where intake is not null;

-- Jobs came to a counted queue, or left it: a row for each queue of a statement. Only ever inserted and deleted, so that
-- nobody waits for a submit in a long transaction. `xid` tells what a fold may still find: not below the oldest
-- transaction in progress.
create table rota.flow (
    namespace text collate "C" not null,
    queue     text collate "C" not null,
    jobs      bigint not null,
    xid       xid8 not null default pg_current_xact_id()
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index flow_xid on rota.flow (namespace, xid);
insert into rota.row_security (table_name, privileges) values ('flow', 'select, insert, delete');

-- How many jobs of a counted queue have not ended, as of the last fold. An empty queue: the namespace's counted queues
-- together; its row's lock is what folds of the namespace wait for.
create table rota.depth (
    namespace  text collate "C" not null,
    queue      text collate "C" not null,
    max_depth  bigint check (max_depth > 0),         -- null: no limit of its own
    jobs       bigint not null default 0,
    shut       smallint not null default 0 check (shut in (0, 1, 2)),
    reported   boolean not null default false,       -- the last event said that it is shut
    arriving   float8 not null default 0,            -- jobs a second, the recent more than the older
    leaving    float8 not null default 0,
    settled    xid8 not null default '0',            -- of an empty queue: flows of older transactions have been folded
    folded_at  timestamptz not null default rota.now(),
    shut_at    timestamptz,                          -- since when it has been shut
    counted_at timestamptz,                          -- when its jobs were last counted one by one
    recount_at timestamptz default rota.now(),       -- when that is due again
    drift      bigint not null default 0,            -- what all counts have corrected, without the first
    primary key (namespace, queue)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
insert into rota.row_security (table_name, privileges) values ('depth', 'select, insert, update, delete');

-- A new queue of a namespace with a limit is counted from its first job on.
create trigger count_new_queue before insert on rota.queue
    for each row execute function rota.count_new_queue();

-- Lanes that a caller's own transaction used first. It has no unique index, on which others would wait for that
-- transaction; a scheduler moves its rows to rota.lane and rota.queue.
create table rota.new_lane (
    lane      text collate "C" not null,
    namespace text collate "C" not null,
    queue     text collate "C" not null,
    needs     text[] not null
);
create index new_lane_lane on rota.new_lane (lane);
insert into rota.row_security (table_name, privileges) values ('new_lane', 'select, insert, delete');

-- The rate at which the requests of a token may submit jobs, and what is left of it.
alter table rota.api_token
    add column submits_per_second double precision check (submits_per_second > 0),
    add column allowance          double precision not null default 0,
    add column refilled_at        timestamptz not null default '-infinity';

-- The new functions take the same arguments and one more. Two functions of a name would be ambiguous; the new ones
-- were created before this file, so that nobody finds none.
drop function if exists rota.submit_jobs(json, boolean);
drop function if exists rota.submit_together(json, boolean);
drop function if exists rota.submit_alone(json);
