-- Places of limits that nodes hold for as long as they live, and two more policies of queues.
-- docs/architecture.md describes the protocol ("Allotments", "Policies").

-- How many jobs a node may run at a time under a limit of a whole queue or task. It counts while its node is alive, and
-- is changed under the lock of the limit's meter. The node of zeros stands for all claims that take single places.
create table rota.allotment (
    namespace text collate "C" not null,
    meter     text collate "C" not null,
    node      uuid not null,
    places    int not null check (places >= 0),
    wish      int not null default 0,           -- it could run so many
    wished_at timestamptz not null default rota.now(),
    since     timestamptz not null default rota.now(),  -- it has places, or has none, since then
    turn      bigint not null default 0,        -- of the node's last change: an older one that comes late changes nothing
    primary key (namespace, meter, node)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
insert into rota.row_security (table_name, privileges) values ('allotment', 'select, insert, update, delete');

-- The limits whose allotments these jobs run under: they have no places of their own.
alter table rota.batch add column gates text[];

-- About the lowest rank of a sublane's ready jobs: claims begin to read there.
alter table rota.sublane add column low bigint not null default -9223372036854775808;

-- `fifo` and `edf` (earliest deadline first) give jobs another rank, in sublanes of their own. `sorting`: there may be some.
alter table rota.queue drop constraint queue_policy_check;
alter table rota.queue
    add constraint queue_policy_check check (policy in ('priority', 'fair', 'fifo', 'edf')),
    add column sorting boolean not null default false;

-- The claim has one more parameter.
drop function if exists rota.claim_shared(uuid, text[], int[], int, text[], text[], int[], float8[], text, bigint);
drop function if exists rota.shared_pause(text[]);
