-- Nodes, what they hold, and the shards that schedulers share among themselves.

-- A worker over HTTP is a row like any other (`remote`), with a lease by the database's clock: the reaper, the tokens,
-- the hints, explain and the lists don't distinguish it.
--
-- Directed wake-ups: a worker with free slots that finds nothing more to claim advertises them in `idle_slots`. A hint
-- draws among such workers that serve the lane, and notifies each on its own channel; when it finds none, it
-- notifies the whole namespace. Hints are not needed for correctness: a worker that gets none polls.
--
-- Workers of one `kind` can run the same jobs: they know the same tasks and serve the same lanes. A hint doesn't
-- name the task, so it goes to every kind that serves the lane. Null: no worker. Heartbeats change no column that
-- an index contains, so that they are heap-only updates.
create table rota.node (
    id                 uuid primary key,
    namespace          text not null,
    name               text not null,
    host               text not null,
    pid                int not null,
    version            text not null,
    roles              text[] not null,
    state              text not null default 'live' check (state in ('live', 'draining', 'stopped', 'dead')),
    started_at         timestamptz not null default rota.now(),
    heartbeat_at       timestamptz not null default rota.now(),
    expires_at         timestamptz not null,
    ended_at           timestamptz,
    queues             text[] not null,             -- empty: all
    capabilities       text[] not null,
    tasks              text[] not null,
    slots              int not null,
    running            int not null default 0,
    schedules_until    timestamptz,                 -- until when it counts as a scheduler; shorter than its lease
    kind               text collate "C",
    lot                int not null default 0,      -- its place in the draw of hints
    idle_slots         int,                         -- free slots of a worker that waits for hints, else null
    remote             boolean not null default false,
    keys               text[],                      -- encryption keys it has; null: unknown
    heartbeat_timeouts jsonb,                       -- task -> seconds, of tasks that have one
    release            text collate "C"             -- a digest of the signatures it registered; null: none
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create index node_idle on rota.node (namespace, kind, lot, id) where idle_slots is not null and state = 'live';
create index node_peers on rota.node (namespace, kind) where kind is not null and state = 'live';
create index node_remote on rota.node (id) where remote and ended_at is null;
create trigger note_dead_node after update on rota.node for each row
    when (new.state = 'dead' and old.state is distinct from 'dead') execute function rota.note_dead_node();
-- A tenant's HTTP worker is registered, and claims, as its tenant.
insert into rota.row_security (table_name, privileges) values ('node', 'select, insert, update');

-- Requests to a node about a job it runs. Read with each heartbeat, hinted by NOTIFY.
create table rota.signal (
    node       uuid not null,
    job_id     uuid not null,
    token      bigint not null,
    kind       text not null check (kind in ('cancel')),
    created_at timestamptz not null default rota.now(),
    primary key (node, job_id)
);
insert into rota.row_security (table_name, condition, privileges) values
    ('signal', 'exists (select from rota.node as n where n.id = node)', 'select, insert, update, delete');

-- What each node holds, one row per claimed batch and lane: the range of the lane in which the reaper finds what a
-- dead node left behind. Not the ids themselves: a few hundred of them cost more than the claim. Only HTTP workers,
-- which claim few jobs at a time, have their ids here.
create table rota.batch (
    token       bigint not null,
    lane        text collate "C" not null,
    node        uuid not null,
    low         bigint not null,   -- ranks
    high        bigint not null,
    claimed_at  timestamptz not null default rota.now(),
    -- Many jobs may have the same rank: the range is exact to the row.
    low_id      uuid not null default '00000000-0000-0000-0000-000000000000',
    high_id     uuid not null default 'ffffffff-ffff-ffff-ffff-ffffffffffff',
    ids         uuid[],
    -- The HTTP worker's request that this batch answers, and its number: a repeated request gets the batch of the
    -- answer that was lost.
    request     text collate "C",
    request_try bigint,
    primary key (token, lane)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index batch_node on rota.batch (node);
insert into rota.row_security (table_name, condition, privileges) values
    ('batch', 'split_part(lane, ''/'', 1) = current_setting(''rota.namespace'', true)', 'select, insert, update, delete');

-- Shards: which scheduler handles which slice of the future and of the schedules.
--
-- Owning a shard is an optimisation that keeps schedulers out of each other's way: two owners waste work, and are
-- never wrong. What an owner writes is fenced nevertheless, by (shard, epoch): it locks its shards' rows FOR KEY
-- SHARE in the transaction of the write. `epoch` is part of a unique key, so that a takeover, which changes it,
-- can't commit during such a transaction; a renewal, which changes only the expiry, doesn't wait for it.
create table rota.shard (
    shard      smallint primary key,
    epoch      bigint not null default 0,  -- rises with every takeover
    owner      uuid,                       -- null: given up
    expires_at timestamptz,                -- until then it is the owner's; in the past: anybody's
    unique (shard, epoch)
) with (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
insert into rota.row_security (table_name, condition, privileges) values ('shard', 'true', 'select');

insert into rota.shard (shard)
select number from generate_series(0, (select value - 1 from rota.setting where name = 'shards')) as number;

-- Takeovers, with the previous owner and the end of its lease. Kept for a week.
create table rota.shard_move (
    shard          smallint not null,
    epoch          bigint not null,
    owner          uuid not null,
    previous       uuid,
    previous_until timestamptz,
    at             timestamptz not null default rota.now(),
    primary key (shard, epoch)
);
create index shard_move_at on rota.shard_move (at);
