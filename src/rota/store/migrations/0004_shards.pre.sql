-- Shards: which scheduler looks after which slice of the future and of the schedules.
--
-- Owning a shard is an optimisation, which keeps schedulers out of each other's way: two owners waste
-- work, and are never wrong. What an owner writes is fenced nevertheless, by (shard, epoch): it locks
-- its shards' rows FOR KEY SHARE in the transaction of the write. `epoch` is part of a unique key, so that
-- a takeover, which changes it, can't commit while such a transaction is under way; a renewal, which
-- changes only the expiry, isn't held up by it.

create table rota.shard (
    shard      smallint primary key,
    epoch      bigint not null default 0,  -- rises with every takeover
    owner      uuid,                       -- null: given up
    expires_at timestamptz,                -- until then it is the owner's; the past: anybody's
    unique (shard, epoch)
) with (fillfactor = 25, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

insert into rota.shard (shard)
select number from generate_series(0, (select value - 1 from rota.setting where name = 'shards')) as number;

-- Who took what when, and until when it had been another's. Kept for a week.
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

-- Until when a node counts as a scheduler, among whom the shards are shared. Shorter than its lease.
alter table rota.node add column schedules_until timestamptz;

-- Only what is scheduled is ever released: jobs that wait for another one (in a backfill, many) are not in the way.
drop index rota.future_due;
create index future_due on rota.future (shard, due_at) where state = 2;
create index future_waiting on rota.future (schedule_id, due_at) where state = 1;
