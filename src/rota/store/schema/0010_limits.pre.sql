-- Limits and order by key. docs/architecture.md describes the protocol ("Limits").
--
-- Jobs with a key, and jobs of limited tasks, lie in a sublane of their own: the lane's text, a '#', and a digest of
-- `share`, which holds the keys. What a limit keeps from running is then a range of the claims' index that nobody visits.

alter table rota.queue
    add column concurrency         int check (concurrency > 0),          -- running jobs, in the whole cluster
    add column concurrency_per_key int check (concurrency_per_key > 0),  -- of those, with one concurrency_key
    -- Starts in a period of so many seconds, and how many of them may come at once.
    add column rate_count  int check (rate_count > 0),
    add column rate_period float8 check (rate_period > 0),
    add column rate_burst  int check (rate_burst > 0),
    add column governed boolean not null generated always as
        (concurrency is not null or concurrency_per_key is not null or rate_count is not null) stored;

-- `limited`: its jobs lie in sublanes of their own.
alter table rota.task
    add column concurrency int check (concurrency > 0),
    add column per_key     boolean not null default false,  -- the limit is for each concurrency_key
    add column rate_count  int check (rate_count > 0),
    add column rate_period float8 check (rate_period > 0),
    add column rate_burst  int check (rate_burst > 0),
    add column limited boolean not null generated always as (concurrency is not null or rate_count is not null) stored;

create trigger split_new_lane after insert on rota.lane
    for each row execute function rota.split_new_lane();

-- Jobs have become ready in a sublane. Written by rota.hint(), and read and removed by the next claim. Only ever
-- inserted and deleted, so that a submit in a long transaction makes nobody wait.
create table rota.arrival (
    base      text collate "C" not null,
    lane      text collate "C" not null,
    namespace text collate "C" not null,
    rank      bigint not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index arrival_base on rota.arrival (base);
insert into rota.row_security (table_name, privileges) values ('arrival', 'select, insert, update, delete');

-- The sublanes that have jobs, or had some a while ago. `head`: about the lowest rank of what is ready.
-- state: 1 ready; 2 idle, nothing is ready; 3 blocked, by the meter `blocked_on` or, if that is null, by the order.
create table rota.sublane (
    lane       text collate "C" primary key,
    base       text collate "C" not null,
    namespace  text collate "C" not null,
    queue      text collate "C" not null,
    share      text not null,                   -- its keys; empty: the lane itself, of a queue with limits
    state      smallint not null default 1,
    head       bigint not null,
    blocked_on text collate "C",
    recheck_at timestamptz,
    order_job  uuid,                            -- of an order_key: the job that goes first, until it has ended
    changed_at timestamptz not null default rota.now()
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index sublane_ready on rota.sublane (base, head) where state = 1;
create index sublane_blocked on rota.sublane (namespace, blocked_on, head) where state = 3 and blocked_on is not null;
create index sublane_recheck on rota.sublane (base, recheck_at) where recheck_at is not null;
create index sublane_idle on rota.sublane (changed_at) where state = 2;
insert into rota.row_security (table_name, privileges) values ('sublane', 'select, insert, update, delete');

-- One row per limit that is in use. It is locked while a claim counts: claims under one limit go one after the other.
-- `held` is an upper bound of what runs under it; the truth is in `present`.
create table rota.meter (
    namespace  text collate "C" not null,
    name       text collate "C" not null,
    most       int,                             -- null: a rate
    spacing    float8,                          -- of a rate: seconds from one start to the next
    burst      int,
    next_at    timestamptz,                     -- of a rate: when the next start would be due without a burst
    held       int not null default 0,
    created_at timestamptz not null default rota.now(),
    used_at    timestamptz not null default rota.now(),
    recheck_at timestamptz,                     -- sublanes are blocked by it: look again then
    primary key (namespace, name)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index meter_recheck on rota.meter (namespace, recheck_at) where recheck_at is not null;
insert into rota.row_security (table_name, privileges) values ('meter', 'select, insert, update, delete');

-- The jobs that a claim took under a limit. One counts for as long as its row in `present` is running: nothing that
-- ends jobs has to know of this table.
create table rota.place (
    namespace text collate "C" not null,
    meter     text collate "C" not null,
    token     bigint not null,
    ids       uuid[] not null,
    primary key (namespace, meter, token)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
insert into rota.row_security (table_name, privileges) values ('place', 'select, insert, update, delete');
