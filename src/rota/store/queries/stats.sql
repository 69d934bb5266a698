-- Stats for monitoring. Of the present, the future and the dead letters up to a limit, never of the history.

-- name: present_by_lane
-- The first $3 jobs of each lane, by its index, which has them in the order of claims: what runs comes first. With fewer
-- than $3 that is all of them. The entry of a lane's sublanes stands for all of these. $1, $2: null for all.
select l.namespace, l.queue, l.lane, h.held, h.running,
       case when h.oldest_at is not null then greatest(extract(epoch from rota.now() - h.oldest_at)::float8, 0) end as lag
from (select lane, namespace, queue from rota.lane union select lane, namespace, queue from rota.new_lane) as l
cross join lateral (
    select count(*) as held, count(*) filter (where p.state = {state.running}) as running,
           min(p.due_at) filter (where p.state = {state.ready}) as oldest_at
    from (
        (select p.state, p.due_at from rota.present as p where p.lane = l.lane order by p.rank, p.id limit $3)
        union all
        (select p.state, p.due_at from rota.present as p
         where right(l.lane, 1) = '#' and p.lane > l.lane and p.lane < left(l.lane, -1) || '$'
         order by p.lane, p.rank, p.id limit $3)) as p) as h
where ($1::text is null or l.namespace = $1) and ($2::text[] is null or l.queue = any($2))
order by l.lane;

-- name: future_by_queue
-- Only of a future that is small.
select f.namespace, rota.queue_of(f.lane) as queue, count(*) filter (where f.state = {state.scheduled}) as scheduled,
       count(*) filter (where f.state = {state.waiting}) as waiting
from rota.future as f
where ($1::text is null or f.namespace = $1) and ($2::text[] is null or rota.queue_of(f.lane) = any($2))
group by 1, 2;

-- Never run, but planned: how many rows the planner expects is the answer (store/estimates.py).

-- name: all_future
select from rota.future as f;

-- name: all_dead
select from rota.dead as d;

-- name: ready_of_namespace
-- With an empty name, of all.
select from rota.present as p where $1 = '' or p.namespace = $1;

-- name: ready_of_lane
select from rota.present as p where p.lane = $1;

-- name: ready_of_sublanes
select from rota.present as p where p.lane > $1 and p.lane < left($1, -1) || '$';

-- name: scheduled_of_lane
select from rota.future as f where f.lane = $1 and f.state = {state.scheduled};

-- name: scheduled_of_sublanes
select from rota.future as f where f.lane > $1 and f.lane < left($1, -1) || '$' and f.state = {state.scheduled};

-- name: waiting_of_lane
select from rota.future as f where f.lane = $1 and f.state = {state.waiting};

-- name: waiting_of_sublanes
select from rota.future as f where f.lane > $1 and f.lane < left($1, -1) || '$' and f.state = {state.waiting};

-- name: dead_of_task
select from rota.dead as d where d.task = $1;

-- name: newest_dead_by_task
select d.namespace, d.task, count(*) as jobs
from (select d.namespace, d.task from rota.dead as d order by d.finished_at desc limit $1) as d
group by 1, 2
order by 1, 2;

-- name: count_limits
-- Limits that are in use; those of the keys of a task or queue together, since there may be millions. `most`: of each key.
-- Of a rate nothing runs.
with held as (
    select l.namespace, regexp_replace(l.meter, '/key:.*', '/key') as name, count(distinct p.id) as running
    from rota.place as l cross join lateral unnest(l.ids) as i(id)
    join rota.present as p on p.id = i.id and p.state = {state.running}
    group by 1, 2
), allotted as (
    select a.namespace, a.meter as name, sum(a.places) as running from rota.allotment as a
    where a.places > 0 and exists (select from rota.node as n where n.id = a.node and n.state in ('live', 'draining'))
    group by 1, 2
), blocked as (
    select s.namespace, regexp_replace(s.blocked_on, '/key:.*', '/key') as name, count(*) as waiting from rota.sublane as s
    where s.state = 3 and s.blocked_on is not null group by 1, 2
), asked as (
    select r.namespace, 'limit:' || r.name as name, count(*) filter (where r.granted_at is not null) as running,
           count(*) filter (where r.granted_at is null) as waiting
    from rota.permit as r where rota.runs_under(r.job_id, r.token) group by 1, 2
), used as (
    select m.namespace, regexp_replace(m.name, '/key:.*', '/key') as name, max(m.most) as most, bool_or(m.spacing is not null) as is_rate
    from rota.meter as m group by 1, 2
)
select u.namespace, u.name as limit, u.most, u.is_rate,
       coalesce(h.running, 0) + coalesce(a.running, 0) + coalesce(k.running, 0) as running,
       coalesce(b.waiting, 0) + coalesce(k.waiting, 0) as waiting
from used as u
left join held as h on h.namespace = u.namespace and h.name = u.name
left join allotted as a on a.namespace = u.namespace and a.name = u.name
left join blocked as b on b.namespace = u.namespace and b.name = u.name
left join asked as k on k.namespace = u.namespace and k.name = u.name;

-- name: count_dead_by_task
-- Only where they are few.
select namespace, task, count(*) as jobs from rota.dead group by 1, 2;

-- name: count_set_aside
select s.namespace, count(distinct s.id) as schedules
from rota.schedule_problem as t join rota.schedule as s on s.id = t.schedule_id and s.version = t.version
where t.seen_at > rota.now() - interval '5 minutes'
group by 1;

-- name: count_runs
-- Those that are under way, found by the index on namespace and state: the history isn't read.
with recursive spaces as (
    select min(r.namespace) as namespace from rota.run as r
    union all
    select (select min(r.namespace) from rota.run as r where r.namespace > s.namespace)
    from spaces as s where s.namespace is not null
)
select r.namespace, r.name as workflow,
       case when r.cancel_at is not null then 'cancelling' when r.problem is not null and r.paused_at is not null then 'parked'
            when r.paused_at is not null then 'paused' when r.suspended then 'suspended' else 'running' end as state,
       count(*) as runs
from spaces as s cross join lateral (
    select * from rota.run as r where r.namespace = s.namespace and r.state = {run.running} offset 0) as r
group by 1, 2, 3;

-- name: count_ended_runs
select r.namespace, r.name as workflow, case r.state when {run.succeeded} then 'succeeded' when {run.failed} then 'failed' else 'cancelled' end as outcome, count(*) as runs
from rota.run as r where r.ended_at > $1 and r.ended_at <= $2
group by 1, 2, 3;

-- name: count_nodes
select namespace, case when state in ('live', 'draining') and expires_at < rota.now() then 'silent' else state end as state,
       count(*) as nodes, sum(slots)::bigint as slots, sum(running)::bigint as running,
       max(extract(epoch from rota.now() - heartbeat_at))::float8 as heartbeat_age
from rota.node where state in ('live', 'draining') or ended_at > rota.now() - interval '1 hour'
group by 1, 2;

-- name: count_shards
select count(*) filter (where expires_at > rota.now()) as held, count(*) as shards,
       count(distinct owner) filter (where expires_at > rota.now()) as owners,
       (select count(*) from rota.shard_move where at > rota.now() - interval '1 hour') as moves,
       array(select n.coordinator || case when n.coordinator_fault is null then ' up' else ' away' end from rota.node as n
             where n.coordinator is not null and n.state in ('live', 'draining')) as coordinators,
       array(select json_build_array(t.namespace, t.name, coalesce(t.lag, 0), t.jobs, t.skipped, t.dead)::text
             from rota.trigger as t order by t.namespace, t.name limit 200) as triggers,
       -- For how long the first event that was not sent has waited. Filters aren't looked at: it is passed over soon.
       array(select json_build_array(s.namespace, s.name, coalesce((
                 select greatest(extract(epoch from rota.now() - min(e.at)), 0)::float8 from (
                     (select e.at from rota.event as e
                      where e.namespace = s.namespace and (e.xid, e.id) > (s.xid, s.id) and e.id <> all(s.ahead)
                      order by e.xid, e.id limit 1)
                     union all
                     (select o.at from rota.outbox as o
                      where s.wants <> '{}' and o.namespace = s.namespace and (o.xid, o.id) > (s.xid, s.id)
                        and o.id <> all(s.ahead)
                      order by o.xid, o.id limit 1)) as e), 0), s.sent, s.skipped)::text
             from (select k.*, split_part(k.position, '.', 1)::xid8 as xid, split_part(k.position, '.', 2)::bigint as id,
                          coalesce(string_to_array(nullif(split_part(k.position, '.', 3), ''), '-'), '{}')::bigint[] as ahead
                   from rota.sink as k where k.position is not null order by k.namespace, k.name limit 200) as s) as sinks
from rota.shard;

-- name: count_occurrences
-- Decided since $1, and long enough ago that all of it is committed. Found by the index on decided_at.
select s.namespace, case o.state when {occurrence.fired} then case when o.caught_up then 'caught_up' else 'fired' end
           else coalesce(o.reason, 'skipped') end as outcome, count(*) as occurrences
from rota.occurrence as o join rota.schedule as s on s.id = o.schedule_id
where o.decided_at > $1 and o.decided_at <= $2
group by 1, 2;

-- name: count_events
select namespace, kind, count(*) as events from rota.event where at > $1 and at <= $2 group by 1, 2;

-- name: settled_moment
-- Until here everything has been committed: the engine's transactions are shorter than this.
select rota.now() - interval '15 seconds';

-- name: end_of_log
-- Where the primary's write-ahead log ends, in bytes from its start.
select (pg_current_wal_lsn() - '0/0')::bigint;

-- name: replayed_log
-- How much of it a replica shows; all of it, if it is the primary itself.
select (case when pg_is_in_recovery() then pg_last_wal_replay_lsn() else pg_current_wal_lsn() end - '0/0')::bigint;

-- name: cluster_id
-- The same on the primary and on its replicas.
select system_identifier from pg_control_system();
