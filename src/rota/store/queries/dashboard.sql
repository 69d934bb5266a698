-- What the dashboard asks. Nothing here reads a table to its end: what can be large is read by an index up to a
-- limit, or in samples.

-- name: job_mark
-- Differs whenever there is something new to see of a job.
select concat_ws('|', j.state, j.attempt, j.token, j.started_at, j.due_at, j.cancel_at, md5(j.progress::text))
from rota.job as j where j.namespace = $1 and j.id = $2;

-- name: lanes_now
-- The first $2 jobs of each lane, by its index, which has them in the order of claims: what runs comes first. With
-- fewer than $2 that is all of them. The entry of a lane's sublanes stands for all of these.
select l.lane, rota.queue_of(l.lane) as queue, h.held, h.running, h.oldest_at,
       case when h.oldest_at is not null then greatest(extract(epoch from rota.now() - h.oldest_at)::float8, 0) end as lag
from rota.lane as l
cross join lateral (
    select count(*) as held, count(*) filter (where p.state = {state.running}) as running,
           min(p.due_at) filter (where p.state = {state.ready}) as oldest_at
    from (
        (select p.state, p.due_at from rota.present as p where p.lane = l.lane order by p.rank, p.id limit $2)
        union all
        (select p.state, p.due_at from rota.present as p
         where right(l.lane, 1) = '#' and p.lane > l.lane and p.lane < left(l.lane, -1) || '$'
         order by p.lane, p.rank, p.id limit $2)) as p) as h
where l.namespace = $1 and l.queue = any($3::text[])
order by l.lane
limit 500;

-- name: lags_now
-- For how long the first ready job of queues has been due: of the first 10 of each lane that are ready. Where there are
-- more than 100 lanes, of the first 100 and of the 100 queues that were latest when they were last sampled: the janitor
-- samples those with ready jobs every minute, so that this reads no more however many queues there are.
with last as (
    select max(s.at) as at from rota.run_stats as s
    where s.namespace = $1 and s.span = 60 and s.task = '' and s.ready > 0
), latest as (
    select s.queue
    from last cross join lateral (values (last.at), (last.at - interval '1 minute')) as m(at)
    cross join lateral (
        select s.queue from rota.run_stats as s
        where s.namespace = $1 and s.span = 60 and s.task = '' and s.ready > 0 and s.at = m.at
        order by s.ready_lag desc limit 50) as s
), looked as (
    (select l.lane from rota.lane as l where l.namespace = $1 order by l.queue, l.lane limit 100)
    union
    (select l.lane from latest as q cross join lateral (
         select l.lane from rota.lane as l where l.namespace = $1 and l.queue = q.queue order by l.lane limit 10) as l)
)
select rota.queue_of(l.lane) as queue, greatest(extract(epoch from rota.now() - min(h.oldest_at))::float8, 0) as lag
from looked as l
cross join lateral (
    select min(p.due_at) as oldest_at
    from (
        (select p.due_at from rota.present as p where p.lane = l.lane and p.state = {state.ready} order by p.rank, p.id limit 10)
        union all
        (select p.due_at from rota.present as p
         where right(l.lane, 1) = '#' and p.lane > l.lane and p.lane < left(l.lane, -1) || '$' and p.state = {state.ready}
         order by p.lane, p.rank, p.id limit 10)) as p) as h
where h.oldest_at is not null
group by 1;

-- name: some_ready
-- $2 at most, of all lanes of a namespace, by their index.
select count(*) from (
    select from rota.present as p
    where p.lane >= $1 || '/' and p.lane < $1 || '0' and p.namespace = $1 and p.state = {state.ready} limit $2) as p;

-- name: whole_ready
select from rota.present as p where p.namespace = $1 and p.state = {state.ready};

-- name: lane_in_present
select from rota.present as p where p.lane = $1;

-- name: lane_in_future
select from rota.future as f where f.lane = $1;

-- name: whole_future
select from rota.future as f;

-- name: future_by_lane
-- Only for a future that is small.
select case when strpos(f.lane, '#') > 0 then split_part(f.lane, '#', 1) || '#' else f.lane end as lane, count(*) as jobs
from rota.future as f where f.namespace = $1 group by 1;

-- name: queue_names
select q.name, q.paused_at, q.max_run_time, d.max_depth, d.jobs as depth, q.intake > 0 as is_full
from rota.queue as q left join rota.depth as d on q.intake is not null and d.namespace = q.namespace and d.queue = q.name
where q.namespace = $1 and q.name > $2 and ($4::text[] is null or q.name = any($4)) order by q.name limit $3;

-- name: paused_queues
select q.name, q.paused_at from rota.queue as q where q.namespace = $1 and q.paused_at is not null order by q.paused_at desc limit $2;

-- name: finished_tail
-- The last pages of a day's history, up to now: appended in the order of time. $2: from which page on.
select date_trunc('minute', p.finished_at) as minute, rota.queue_of(p.lane) as queue, count(*) as jobs,
       min(p.finished_at) as oldest,
       percentile_disc(0.95) within group (order by extract(epoch from p.started_at - p.due_at)::float8) as lag
from rota.past as p
where p.namespace = $1 and p.ctid >= $2::text::tid and p.finished_at >= $3 and p.finished_at < $4 and p.state = {state.succeeded}
group by 1, 2;

-- name: finished_sample
-- The same from random pages, $4 percent of them.
select date_trunc('minute', p.finished_at) as minute, rota.queue_of(p.lane) as queue, count(*) as jobs,
       percentile_disc(0.95) within group (order by extract(epoch from p.started_at - p.due_at)::float8) as lag
from rota.past as p tablesample system ($4)
where p.namespace = $1 and p.finished_at >= $2 and p.finished_at < $3 and p.state = {state.succeeded}
group by 1, 2;

-- name: slowest_runs
-- Of the last pages of a day's history. $4: from which page on.
select p.id, p.finished_at, extract(epoch from p.finished_at - p.started_at)::float8 as took
from rota.past as p
where p.namespace = $1 and p.ctid >= $4::text::tid and p.task = $2 and p.finished_at >= $3 and p.started_at is not null
order by p.finished_at - p.started_at desc
limit $5;

-- name: day_pages
-- How many pages the partition of a moment's day has; of hours, the largest. A day without a partition is in the default one.
select pg_relation_size(c.oid) / current_setting('block_size')::bigint as pages
from pg_class as c join pg_inherits as i on i.inhrelid = c.oid
where i.inhparent = 'rota.past'::regclass
  and (left(c.relname, 13) = 'past_' || to_char($1::timestamptz at time zone 'UTC', 'YYYYMMDD') or c.relname = 'past_other')
order by c.relname = 'past_other', pages desc
limit 1;

-- name: failures_since
-- 20,000 at most.
select count(*) as jobs, max(d.finished_at) as latest
from (select d.finished_at from rota.dead as d
      where d.namespace = $1 and d.finished_at >= $2 and not rota.is_internal_task(d.task)
      order by d.finished_at desc limit 20000) as d;

-- name: events_lately
-- How many of each kind there were since $2, and the latest; 2,000 are looked at.
select e.kind, count(*) as count, max(e.at) as last_at, (array_agg(e.job_id order by e.at desc))[1] as job_id,
       (array_agg(e.task order by e.at desc))[1] as task
from (select e.kind, e.at, e.job_id, e.task from rota.event as e
      where e.namespace = $1 and e.at >= $2 order by e.at desc limit 2000) as e
group by 1;

-- name: coming_schedules
-- Those that fire next.
select s.id, s.name, s.task, s.version, s.spec, s.next_due
from rota.schedule as s
where s.namespace = $1 and s.next_due < $2 and s.paused_at is null and s.source not in ('backfill', 'deleted')
order by s.next_due
limit $3;

-- name: coming_jobs
-- Jobs of the future by minute, of some of the shards: a job's shard is random, so that some tell of all.
-- `most`: how many the fullest shard gave.
select date_trunc('minute', f.due_at) as minute, count(*) as jobs, max(f.place) as most
from generate_series(0, $4::int - 1) as s(shard)
cross join lateral (
    select f.due_at, row_number() over (order by f.due_at) as place
    from (select f.due_at from rota.future as f
          where f.shard = s.shard and f.due_at >= $2 and f.due_at < $3 and f.namespace = $1 and f.state = {state.scheduled}
          order by f.due_at limit $5) as f) as f
group by 1;

-- name: newest_dead_groups
-- As dead_groups, of the newest $2 that failed.
select g.fingerprint, g.task, g.error, count(*) as count, min(g.first_at) as first_at, max(g.finished_at) as last_at,
       (array_agg(g.message order by g.finished_at desc))[1] as message,
       (array_agg(g.id order by g.finished_at desc))[1] as latest
from (
    select d.id, d.task, d.finished_at, d.error ->> 'type' as error, rota.error_words(d.error) as message,
           rota.failed_first(d.attempts, d.error, d.finished_at) as first_at, rota.fingerprint(d.task, d.error) as fingerprint
    from (select * from rota.dead as d where d.namespace = $1 order by d.finished_at desc limit $2) as d
    where ($3::text is null or d.task = $3)) as g
group by g.fingerprint, g.task, g.error
order by max(g.finished_at) desc
limit 200;

-- name: more_dead
-- Whether there are more than $2.
select exists (select from rota.dead as d where d.namespace = $1 order by d.finished_at desc offset $2 limit 1);

-- name: recent_dead
select d.id, d.task, d.finished_at, d.error ->> 'type' as error, left(d.error ->> 'message', 300) as message
from rota.dead as d where d.namespace = $1 and not rota.is_internal_task(d.task) order by d.finished_at desc limit $2;

-- name: strips
-- The newest $3 occurrences of some schedules, and how their jobs are.
select o.schedule_id, o.due_at, o.run_at, o.state, o.reason, o.caught_up, o.job_id, o.version,
       j.state as job_state, j.started_at, j.finished_at
from unnest($2::uuid[]) as s(id)
cross join lateral (
    select * from rota.occurrence as o where o.schedule_id = s.id order by o.due_at desc limit $3) as o
left join lateral (
    select j.state, j.started_at, j.finished_at from rota.job as j where j.namespace = $1 and j.id = o.job_id) as j on true
order by o.schedule_id, o.due_at;

-- name: ledger_counts
-- Of the newest $2 occurrences of a schedule, by its index.
select count(*) filter (where o.state = {occurrence.fired}) as fired,
       count(*) filter (where o.state = {occurrence.fired} and o.reason = 'backfilled') as backfilled,
       count(*) filter (where o.state = {occurrence.fired} and o.reason = 'triggered') as triggered,
       count(*) filter (where o.state = {occurrence.skipped}) as skipped
from (select o.state, o.reason from rota.occurrence as o where o.schedule_id = $1 order by o.due_at desc limit $2) as o;

-- name: ledger_between
-- How many occurrences of a stretch of time there were, by quarter of an hour, schedule and state: of those $4 that were
-- decided last, found by an index that every day has. Schedules are looked up one by one, as far as the limit goes: a join
-- to all of them would read the whole stretch first.
select o.name, date_bin('15 minutes', o.due_at, '2000-01-01 00:00:00+00') as part, o.state, count(*) as count
from (select s.name, o.due_at, o.state
      from rota.occurrence as o
      cross join lateral (select s.name from rota.schedule as s where s.id = o.schedule_id and s.namespace = $1 limit 1) as s
      where o.due_at >= $2 and o.due_at < $3
      order by o.decided_at desc limit $4) as o
group by 1, 2, 3;

-- name: ledger_of_day
-- The occurrences of some schedules, each by its index.
select s.name, o.due_at, o.state, o.reason, o.job_id
from rota.schedule as s
cross join lateral (select * from rota.occurrence as o where o.schedule_id = s.id and o.due_at >= $2 and o.due_at < $3 limit 50) as o
where s.namespace = $1 and s.name = any($4::text[])
order by o.due_at, s.name
limit $5;

-- name: failed_occurrences
-- When jobs of schedules were due that have failed since $2, $4 at most.
select d.due_at from rota.dead as d
where d.namespace = $1 and d.finished_at >= $2 and d.due_at < $3 and d.schedule_id is not null
order by d.finished_at desc limit $4;

-- name: job_states
select j.id, j.state from rota.job as j where j.namespace = $1 and j.id = any($2::uuid[]);

-- name: has_started
select p.started_at is not null from rota.present as p where p.namespace = $1 and p.id = $2;

-- name: schedule_of_job
select s.id, s.name, case when strpos(s.spec::text, '\u0000') = 0 then s.spec ->> 'tz' end as tz, o.due_at
from rota.occurrence as o join rota.schedule as s on s.id = o.schedule_id
where o.job_id = $2 and s.namespace = $1 and s.deleted_at is null;

-- name: node_totals
-- Of those that are alive, or seem to be.
select count(*) as nodes, coalesce(sum(running), 0)::bigint as running, coalesce(sum(slots), 0)::bigint as slots
from rota.node where namespace = $1 and state in ('live', 'draining') and expires_at >= rota.now();

-- name: troubled_nodes
-- Those that died or went silent in the last $2 seconds, the latest first; and a worker that is alive, if there is one.
(select id, name, roles, 'dead' as state, extract(epoch from rota.now() - heartbeat_at)::float8 as heartbeat_age
 from rota.node where namespace = $1 and state = 'dead' and heartbeat_at > rota.now() - make_interval(secs => $2)
 order by heartbeat_at desc limit 200)
union all
(select id, name, roles, 'silent', extract(epoch from rota.now() - heartbeat_at)::float8
 from rota.node where namespace = $1 and state in ('live', 'draining') and expires_at < rota.now()
   and heartbeat_at > rota.now() - make_interval(secs => $2)
 order by heartbeat_at desc limit 200)
union all
(select id, name, roles, 'live', 0 from rota.node
 where namespace = $1 and state in ('live', 'draining') and expires_at >= rota.now() and 'worker' = any(roles) limit 1);

-- name: node_names
select n.id, n.name from rota.node as n where n.namespace = $1 and n.id = any($2::uuid[]);

-- name: node_release
select n.name, n.release from rota.node as n where n.namespace = $1 and n.id::text = $2;

-- name: job_matches
-- Where the text of a search is found in some jobs: a piece around it, of the first place of each. $4: the same without
-- spaces between the parts of JSON.
select distinct on (j.id) j.id, w.place,
       substr(w.text, greatest(w.at - 50, 1), 200) as piece, least(w.at - 1, 50) as before, w.length
from rota.job as j
cross join lateral (values (1, 'key', j.key), (2, 'payload', j.payload::text), (3, 'error', j.error ->> 'message'),
                           (4, 'headers', j.headers::text)) as t(rank, place, text)
cross join lateral (
    select t.rank, t.place, t.text, strpos(lower(t.text), lower(n.needle)) as at, length(n.needle) as length
    from (values ($3::text), ($4::text)) as n(needle) where n.needle is not null) as w
where j.namespace = $1 and j.id = any($2::uuid[]) and w.at > 0
order by j.id, w.rank;

-- name: known_tasks
-- Some, to choose from: those that were registered or changed last.
select t.name from (select name from rota.task where namespace = $1 order by updated_at desc, name limit $2) as t order by t.name;

-- name: stored_spec
select s.spec from rota.schedule as s where s.namespace = $1 and s.id = $2;

-- name: set_aside
-- Schedules that some node can't plan.
select distinct s.name
from rota.schedule_problem as t join rota.schedule as s on s.id = t.schedule_id and s.version = t.version
where s.namespace = $1 and t.seen_at > rota.now() - interval '5 minutes'
order by s.name limit 1000;

-- name: schedule_count
select count(*) from (select from rota.schedule as s where s.namespace = $1 and s.source not in ('backfill', 'deleted') limit $2) as s;

-- name: calendar_schedules
-- Those that fire. (Paused ones don't.)
select s.id, s.name, s.task, s.version, s.spec,
       case when strpos(s.spec::text, '\u0000') = 0 then s.spec ->> 'tz' end as tz
from rota.schedule as s
where s.namespace = $1 and s.source not in ('backfill', 'deleted') and s.paused_at is null and s.next_due is not null
order by s.name
limit $2;

-- name: schedule_after
-- The name that is $3 places after the name $2, if it is not the last.
select min(s.name) from (
    select s.name from rota.schedule as s
    where s.namespace = $1 and s.source not in ('backfill', 'deleted') and ($2::text is null or s.name > $2)
    order by s.name offset $3 - 1 limit 2) as s
having count(*) = 2;

-- name: workers_by_queues
-- The workers that are alive, those that serve the same queues together.
select n.queues, count(*) as nodes, coalesce(sum(n.slots), 0)::bigint as slots
from rota.node as n
where n.namespace = $1 and n.state = 'live' and n.expires_at >= rota.now() and 'worker' = any(n.roles)
group by n.queues;

-- name: find_tasks
-- $3 of those whose names begin with $2, by their index; then of those with $2 in their names, among the $4 that were
-- registered or changed last.
select t.name from (
    (select t.name, 1 as place from rota.task as t
     where t.namespace = $1 and t.name >= $2 and t.name < $2 || chr(1114111) order by t.name limit $3)
    union all
    (select t.name, 2 from (select name from rota.task where namespace = $1 order by updated_at desc, name limit $4) as t
     where strpos(lower(t.name), lower($2)) > 0 limit 2 * $3)) as t
group by t.name order by min(t.place), t.name limit $3;

-- name: find_queues
-- As find_tasks, among the first $4 by name.
select q.name from (
    (select q.name, 1 as place from rota.queue as q
     where q.namespace = $1 and q.name >= $2 and q.name < $2 || chr(1114111) order by q.name limit $3)
    union all
    (select q.name, 2 from (select name from rota.queue where namespace = $1 order by name limit $4) as q
     where strpos(lower(q.name), lower($2)) > 0 limit 2 * $3)) as q
group by q.name order by min(q.place), q.name limit $3;

-- name: find_schedules
-- As find_tasks, among the first $4 by name.
select s.id, s.name from (
    (select s.id, s.name, 1 as place from rota.schedule as s
     where s.namespace = $1 and s.source not in ('backfill', 'deleted') and s.name >= $2 and s.name < $2 || chr(1114111)
     order by s.name limit $3)
    union all
    (select s.id, s.name, 2
     from (select s.id, s.name from rota.schedule as s where s.namespace = $1 and s.source not in ('backfill', 'deleted')
           order by s.name limit $4) as s
     where strpos(lower(s.name), lower($2)) > 0 limit 2 * $3)) as s
group by s.id, s.name order by min(s.place), s.name limit $3;

-- name: find_nodes
-- Among the $4 that were started last: ids are in the order of time.
select n.id, n.name, case when n.expires_at < rota.now() then 'silent' else n.state end as state
from (select n.id, n.name, n.state, n.expires_at from rota.node as n
      where n.namespace = $1 and n.state in ('live', 'draining') order by n.id desc limit $4) as n
where strpos(lower(n.name), lower($2)) > 0 order by n.name limit $3;
