-- What schedulers do: release what comes due, reap what the dead held, keep the tables in shape.

-- name: release
-- Moves what is due within the horizon to the present, where workers find it and wait for its moment.
-- $1, $2: shards with the epochs under which this scheduler owns them; the fence is this statement's lock on
-- their rows. Without an epoch it is a sweep of shards that somebody else should look after, or nobody does:
-- of these only what should have been released long ago, that is, what is due now.
with asked as materialized (
    select a.shard, a.epoch, rota.now() + case when a.epoch is null then interval '0' else make_interval(secs =>
        (select value from rota.setting where name = 'horizon_ms') / 1000.0) end as until
    from unnest($1::smallint[], $2::bigint[]) as a(shard, epoch)
), ripe as materialized (
    -- `limit` keeps the planner from turning the look into a join that reads everything.
    select a.* from asked as a cross join lateral (
        select from rota.future as f where f.shard = a.shard and f.due_at <= a.until and f.state = {state.scheduled} limit 1) as f
), held as materialized (
    select s.shard from ripe as r join rota.shard as s on s.shard = r.shard and s.epoch = r.epoch
    for key share of s
), due as (
    select f.at
    from ripe as r
    cross join lateral (
        select f.ctid as at from rota.future as f
        where f.shard = r.shard and f.due_at <= r.until and f.state = {state.scheduled}
        order by f.due_at
        limit $3
        for update skip locked
    ) as f
    where r.epoch is null or r.shard in (select shard from held)
    limit $3
), moved as (
    delete from rota.future as f where f.ctid = any(array(select at from due))
    returning f.*
), readied as (
    {{insert rota.present, moved}}
    from moved
    on conflict (id) do nothing  -- one that is there twice must not hold up the rest
    returning namespace, lane, rank
), hinted as (
    select rota.hint(namespace, lane, min(rank), count(*)) from readied group by namespace, lane
)
select (select count(*) from readied) + 0 * (select count(*) from hinted) as released,
       array(select a.shard from asked as a where a.epoch is not null and not exists (
           select from rota.shard as s where s.shard = a.shard and s.epoch = a.epoch)) as lost;

-- name: declare_dead
update rota.node as n set state = 'dead', ended_at = rota.now()
where n.id in (
    select id from rota.node where state in ('live', 'draining') and expires_at < rota.now()
    for update skip locked)
returning n.id, n.name, n.host, n.pid, extract(epoch from rota.now() - n.heartbeat_at)::float8 as silent;

-- name: take_abandoned
-- Batches whose node is dead, stopped or unknown. Locked until the reaper's transaction ends. $2: batches that
-- could not be written a moment ago, and must not be in the way of others.
select b.token, b.lane, b.node from rota.batch as b
where not exists (select from rota.node as n where n.id = b.node and n.state in ('live', 'draining'))
  and b.token <> all($2::bigint[])
order by b.node
limit $1
for update skip locked;

-- name: note_strays
-- What runs without a batch to find it by. There should be none; a batch is recorded for each, for the reaper. Reads
-- $2 rows after the id $1, and returns the last of them (none: there are no more).
with part as materialized (
    select p.id, p.rank, p.token, p.lane, p.node, p.state from rota.present as p where p.id > $1 order by p.id limit $2
), stray as (
    select p.* from part as p where p.state = {state.running} and not exists (
        select from rota.batch as b
        where b.token = p.token and b.lane = p.lane and b.node = p.node
          and (p.rank, p.id) >= (b.low, b.low_id) and (p.rank, p.id) <= (b.high, b.high_id)
          and (b.request is null or p.id = any(b.ids))
        offset 0)
), noted as (
    insert into rota.batch as b (token, lane, node, low, high, ids)
    select s.token, s.lane, s.node, min(s.rank), max(s.rank), array_agg(s.id) from stray as s
    group by s.token, s.lane, s.node
    on conflict (token, lane) do update
        set low = least(b.low, excluded.low), high = greatest(b.high, excluded.high), low_id = excluded.low_id,
            high_id = excluded.high_id, ids = coalesce(b.ids, '{}') || excluded.ids
        where b.node = excluded.node
    returning 1
)
select (select count(*) from noted) as noted,
       case when count(*) = $2 then (array_agg(id order by id desc))[1] end as until
from part;

-- name: missing_days
-- From today to $1 days ahead. The past has hours in place of days where that is set (the setting history_hours), beginning with
-- tomorrow; a day that has hours needs nothing else.
select k.parent, d.day
from unnest(array['past', 'occurrence', 'job_log', 'trace']) as k(parent)
cross join (select (rota.now() at time zone 'UTC')::date + ahead as day from generate_series(0, $1::int) as ahead) as d
where to_regclass('rota.' || k.parent || '_' || to_char(d.day, 'YYYYMMDD')) is null
  and not (k.parent = 'past' and (
      to_regclass('rota.past_' || to_char(d.day, 'YYYYMMDD') || '_23') is not null
      or exists (select from rota.setting as s where s.name = 'history_hours' and s.value > 0)))
order by d.day, k.parent;

-- name: missing_hours
-- From this hour to the end of the day after the next, if the past has hours.
select h.hour
from generate_series(date_trunc('hour', rota.now(), 'UTC'), date_trunc('day', rota.now(), 'UTC') + interval '71 hours',
                     interval '1 hour') as h(hour)
where exists (select from rota.setting as s where s.name = 'history_hours' and s.value > 0)
  and to_regclass('rota.past_' || to_char(h.hour at time zone 'UTC', 'YYYYMMDD')) is null
  and to_regclass('rota.past_' || to_char(h.hour at time zone 'UTC', 'YYYYMMDD_HH24')) is null
order by 1;

-- name: make_hour
select rota.make_hour($1);

-- name: days_of_another_size
-- Partitions of the past that begin in an hour or later, and are days where hours are wanted, or hours where days are.
select c.relname as name
from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
where i.inhparent = 'rota.past'::regclass and c.relname ~ '^past_[0-9]{8}(_[0-9]{2})?$'
  and (length(c.relname) > 13) <> exists (select from rota.setting as s where s.name = 'history_hours' and s.value > 0)
  and to_date(substr(c.relname, 6, 8), 'YYYYMMDD')::timestamp at time zone 'UTC' > rota.now() + interval '1 hour'
order by 1;

-- name: set_history_hours
insert into rota.setting (name, value) values ('history_hours', $1)
on conflict (name) do update set value = excluded.value;

-- name: list_history_partitions
-- What was never analyzed has -1 rows: nobody knows.
select c.relname as name, pg_total_relation_size(c.oid) as bytes,
       case when c.reltuples >= 0 then c.reltuples::bigint end as jobs
from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
where i.inhparent = 'rota.past'::regclass
order by 1;

-- name: history_hours
select coalesce((select s.value > 0 from rota.setting as s where s.name = 'history_hours'), false);

-- name: make_partition
select rota.make_partition($1, $2);

-- name: drop_day
select rota.drop_day($1, $2, $3);

-- name: old_days
-- Partitions of the past whose last moment is older than the retention.
select c.relname as name, pg_relation_size(c.oid) > 0 as filled
from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
where i.inhparent = 'rota.past'::regclass and c.relname ~ '^past_[0-9]{8}(_[0-9]{2})?$'
  and case when length(c.relname) > 13
           then to_date(substr(c.relname, 6, 8), 'YYYYMMDD')::timestamp + make_interval(hours => right(c.relname, 2)::int + 1)
           else to_date(substr(c.relname, 6, 8), 'YYYYMMDD')::timestamp + interval '1 day' end
      + make_interval(days => $1::int) <= rota.now() at time zone 'UTC'
order by 1;

-- name: old_occurrence_days
select c.relname as name, pg_relation_size(c.oid) > 0 as filled
from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
where i.inhparent = 'rota.occurrence'::regclass and c.relname ~ '^occurrence_[0-9]{8}$'
  and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 + $1::int <= (rota.now() at time zone 'UTC')::date
order by 1;

-- name: old_trace_days
select c.relname as name, pg_relation_size(c.oid) > 0 as filled
from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
where i.inhparent = 'rota.trace'::regclass and c.relname ~ '^trace_[0-9]{8}$'
  and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 + $1::int <= (rota.now() at time zone 'UTC')::date
order by 1;

-- name: forget_traces
delete from rota.trace_other where ctid = any(array(
    select ctid from rota.trace_other where ended_at < rota.now() - make_interval(days => $1::int) limit 10000));

-- name: forget_occurrences
-- And records since when the ledger is complete.
with floor as (
    update rota.setting as s set value = f.value
    from (select extract(epoch from date_trunc('day', rota.now() - make_interval(days => $1::int), 'UTC')
                         + interval '1 day')::bigint as value) as f
    where s.name = 'ledger_from' and s.value < f.value
)
delete from rota.occurrence_other where ctid = any(array(
    select ctid from rota.occurrence_other where due_at < rota.now() - make_interval(days => $1::int) limit 10000));

-- name: forget_ended
-- Ended jobs that retention by partitions doesn't reach, in bounded steps.
with other as (
    delete from rota.past_other where ctid = any(array(
        select ctid from rota.past_other where finished_at < rota.now() - make_interval(days => $1::int) limit $3))
    returning 1
), dead as (
    delete from rota.dead where id = any(array(
        select id from rota.dead where finished_at < rota.now() - make_interval(days => $2::int)
        order by finished_at limit $3))
    returning 1
)
select (select count(*) from other) + (select count(*) from dead);

-- name: forget_old
-- What belongs to jobs that are gone, in bounded steps.
with keys as (
    delete from rota.submit_key where ctid = any(array(
        select k.ctid from rota.submit_key as k
        where k.created_at < rota.now() - make_interval(days => $1::int)
          and not exists (select from rota.job as j where j.id = k.job_id)
          and not exists (select from rota.run as r where r.id = k.job_id)
          and not rota.left_trace(k.job_id) limit $2))
    returning 1
), effects as (
    delete from rota.effect where ctid = any(array(
        select e.ctid from rota.effect as e
        where e.begun_at < rota.now() - make_interval(days => $1::int)
          and not exists (select from rota.job as j where j.id = e.job_id)
          and not rota.left_trace(e.job_id) limit $2))
    returning 1
), nodes as (
    delete from rota.node as n where n.state in ('dead', 'stopped') and n.ended_at < rota.now() - interval '1 day'
        and not exists (select from rota.batch as b where b.node = n.id)
    returning 1
), signals as (
    delete from rota.signal as s
    where not exists (select from rota.present as p where p.id = s.job_id and p.token = s.token)
    returning 1
)
select (select count(*) from keys) + (select count(*) from effects) + (select count(*) from nodes)
     + (select count(*) from signals);

-- name: dead_rows
select coalesce(n_dead_tup, 0), coalesce(n_live_tup, 0) from pg_stat_user_tables where relid = 'rota.present'::regclass;
