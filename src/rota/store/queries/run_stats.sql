-- Statistics of runs: adding up what triggers have tallied, and reading it.

-- name: fold_tallies
-- Takes up to $1 tallies and adds them up by minute and hour, for their task and queue, their queue, and their
-- namespace; returns how many it took. One statement: what it took is added, or nothing happened. Whoever does the same
-- at the same time takes others.
with taken as materialized (
    delete from rota.tally where ctid = any(array(select ctid from rota.tally limit $1 for update skip locked))
    returning *
), pair as materialized (
    select t.minute, t.namespace, t.queue, t.task, t.failed, n.duration, n.lag, sum(coalesce(n.count, 1)) as count
    from taken as t cross join lateral unnest(t.durations, t.lags, t.counts) as n(duration, lag, count)
    group by 1, 2, 3, 4, 5, 6, 7
), sums as (
    select minute, namespace, queue, task, failed, duration, lag, count, 0::float8 as seconds from pair
    union all
    select minute, namespace, queue, task, failed, null, null, 0, sum(seconds) from taken group by 1, 2, 3, 4, 5
), spread as materialized (
    select t.namespace, s.span, g.task, g.queue, date_bin(make_interval(secs => s.span), t.minute, '2000-01-01 00:00:00+00') as at,
           t.failed, t.duration, t.lag, t.count, t.seconds
    from sums as t cross join (values (60), (3600)) as s(span)
    cross join lateral (values (t.task, t.queue), ('', t.queue), ('', '')) as g(task, queue)
    where g.task <> '' or not rota.is_internal_task(t.task)
), total as (
    select namespace, span, task, queue, at, sum(count) as runs, coalesce(sum(count) filter (where failed), 0) as failed,
           sum(seconds) as seconds
    from spread group by 1, 2, 3, 4, 5
), counted as (
    select namespace, span, task, queue, at, k.kind, k.place, sum(s.count)::bigint as count
    from spread as s cross join lateral (values (1, s.duration), (2, s.lag)) as k(kind, place)
    where s.duration is not null
    group by 1, 2, 3, 4, 5, 6, 7
), listed as (
    select namespace, span, task, queue, at, kind, rota.from_places(array_agg(place), array_agg(count)) as counts
    from counted group by 1, 2, 3, 4, 5, 6
), added as (
    insert into rota.run_stats as s (namespace, span, task, queue, at, runs, failed, seconds, durations, lags)
    select t.namespace, t.span, t.task, t.queue, t.at, t.runs, t.failed, t.seconds,
           max(l.counts) filter (where l.kind = 1), max(l.counts) filter (where l.kind = 2)
    from total as t join listed as l using (namespace, span, task, queue, at)
    group by 1, 2, 3, 4, 5, 6, 7, 8
    order by 1, 2, 3, 4, 5
    on conflict (namespace, span, task, queue, at) do update
        set runs = s.runs + excluded.runs, failed = s.failed + excluded.failed, seconds = s.seconds + excluded.seconds,
            durations = rota.add_counts(s.durations, excluded.durations), lags = rota.add_counts(s.lags, excluded.lags)
)
select count(*) from taken;

-- name: sample_queues
-- How many jobs of each queue are ready, $1 of a lane at most, and for how long the first has been due.
insert into rota.run_stats as s (namespace, span, task, queue, at, ready, ready_lag)
select q.namespace, p.span, '', q.queue, date_bin(make_interval(secs => p.span), rota.now(), '2000-01-01 00:00:00+00'),
       q.ready, greatest(extract(epoch from rota.now() - q.oldest_at)::float8, 0)
from (
    select l.namespace, rota.queue_of(l.lane) as queue, sum(h.ready) as ready, min(h.oldest_at) as oldest_at
    from rota.lane as l
    cross join lateral (
        select count(*) as ready, min(p.due_at) as oldest_at
        from (
            (select p.due_at, p.state from rota.present as p where p.lane = l.lane order by p.rank, p.id limit $1)
            union all
            (select p.due_at, p.state from rota.present as p
             where right(l.lane, 1) = '#' and p.lane > l.lane and p.lane < left(l.lane, -1) || '$'
             order by p.lane, p.rank, p.id limit $1)) as p
        where p.state = {state.ready} and p.due_at <= rota.now()) as h
    group by 1, 2) as q
cross join (values (60), (3600)) as p(span)
where q.ready > 0 or p.span = 60 and exists (
    select from rota.run_stats as b where b.namespace = q.namespace and b.span = 60 and b.task = '' and b.queue = q.queue
      and b.at = date_trunc('minute', rota.now()) - interval '1 minute' and b.ready > 0)
on conflict (namespace, span, task, queue, at) do update
    set ready = greatest(s.ready, excluded.ready), ready_lag = greatest(s.ready_lag, excluded.ready_lag);

-- name: forget_run_stats
-- Minutes after two days, hours after $1 days, $2 rows at most.
with gone as (delete from rota.run_stats where ctid = any(array(
    (select ctid from rota.run_stats where span = 60 and at < rota.now() - interval '2 days' limit $2)
    union all
    (select ctid from rota.run_stats where span = 3600 and at < rota.now() - make_interval(days => $1::int) limit $2))) returning 1)
select count(*) from gone;

-- name: run_series
-- Of a task (all queues), a queue or a namespace, by periods of $7 seconds. '' for $3: all tasks; for $4: all queues, or
-- those of the task.
select date_bin(make_interval(secs => $7::int), s.at, '2000-01-01 00:00:00+00') as at, s.runs, s.failed, s.seconds,
       s.durations, s.lags, s.ready, s.ready_lag
from rota.run_stats as s
where s.namespace = $1 and s.span = $2 and s.task = $3 and (s.queue = $4 or ($3 <> '' and $4 = '')) and s.at >= $5 and s.at < $6
order by s.at;

-- name: queue_series
-- Of all queues, 500 at most.
select s.queue, s.at, s.runs, s.failed, s.ready, s.ready_lag
from (select q.name from rota.queue as q where q.namespace = $1 and ($5::text[] is null or q.name = any($5))
      order by q.name limit 500) as q
cross join lateral (
    select * from rota.run_stats as s
    where s.namespace = $1 and s.span = $2 and s.task = '' and s.queue = q.name and s.at >= $3 and s.at < $4) as s
order by s.queue, s.at;

-- name: task_totals
-- Of the tasks that nodes have registered, 500 at most.
-- Each task's rows are added up by themselves: all of them together would be joined to all rows of the time.
select t.name as task, s.runs, s.failed, s.seconds, s.last_at
from (select t.name, t.queue from rota.task as t where t.namespace = $1 and ($5::text[] is null or t.name = any($5))
      order by t.name limit 500) as t
cross join lateral (
    select coalesce(sum(s.runs), 0)::bigint as runs, coalesce(sum(s.failed), 0)::bigint as failed,
           coalesce(sum(s.seconds), 0)::float8 as seconds, max(s.at) as last_at
    from rota.run_stats as s
    where s.namespace = $1 and s.span = $2 and s.task = t.name and s.at >= $3 and s.at < $4) as s
order by t.name;
