-- name: add_events
insert into rota.event (namespace, kind, task, job_id, detail)
select $1, e.kind, e.task, e.job_id, e.detail
from unnest($2::text[], $3::text[], $4::uuid[], $5::json[]) as e(kind, task, job_id, detail)
on conflict (job_id, kind) do nothing;

-- name: baselines
select task, usual, most from rota.duration_baseline where namespace = $1;

-- name: learn_baselines
-- The first stays, unless runs take less than half of it now.
insert into rota.duration_baseline as p (namespace, task, usual, most)
select $1, l.task, l.usual, l.most from unnest($2::text[], $3::float8[], $4::float8[]) as l(task, usual, most)
on conflict (namespace, task) do update
set usual = excluded.usual, most = excluded.most, learned_at = rota.now(), slower_since = null, reported_at = null
where excluded.usual < p.usual / 2;

-- name: tell_slower
-- Once a day for each task, by the first node that notices it.
with seen as (
    select * from unnest($2::text[], $3::float8[], $4::float8[], $5::int[]) as s(task, recent, expected, runs)
), reported as (
    insert into rota.duration_baseline as p (namespace, task, usual, most, slower_since, reported_at)
    select $1, s.task, s.expected, s.expected, rota.now(), rota.now() from seen as s
    on conflict (namespace, task) do update
    set slower_since = coalesce(p.slower_since, rota.now()), reported_at = rota.now()
    where p.reported_at is null or p.reported_at < rota.now() - interval '1 day'
    returning p.task, p.slower_since
)
insert into rota.event (namespace, kind, task, detail)
select $1, 'slower', s.task, json_build_object('recent', s.recent, 'expected', s.expected, 'runs', s.runs,
    'since', t.slower_since)
from reported as t join seen as s on s.task = t.task;

-- name: as_usual
update rota.duration_baseline set slower_since = null, reported_at = null
where namespace = $1 and task = any($2::text[]) and slower_since is not null;

-- name: accept_slower
-- After a week with an event every day, the slower time is the expected one.
update rota.duration_baseline as p
set usual = l.usual, most = l.most, learned_at = rota.now(), slower_since = null, reported_at = null
from unnest($2::text[], $3::float8[], $4::float8[]) as l(task, usual, most)
where p.namespace = $1 and p.task = l.task and p.slower_since < rota.now() - interval '7 days'
returning p.task;

-- name: note_queue_lag
-- Of each lane the first ready job, by the index that has them in the order of claims; what runs comes before it, and
-- is never more than there are slots. An event when it begins, and once an hour while it lasts.
with late as (
    select l.namespace, l.queue, max(extract(epoch from rota.now() - h.due_at))::float8 as lag
    from rota.lane as l
    cross join lateral (
        (select p.due_at from rota.present as p where p.lane = l.lane and p.state = {state.ready}
         order by p.rank, p.id limit 1)
        union all
        -- Of sublanes the first that nothing blocks: what waits for a limit is not late for want of workers.
        (select p.due_at from rota.sublane as s
         cross join lateral (
            select p.due_at from rota.present as p where p.lane = s.lane and p.state = {state.ready}
            order by p.rank, p.id limit 1) as p
         where right(l.lane, 1) = '#' and s.base = left(l.lane, -1) and s.state = 1
         order by s.head limit 1)) as h
    where h.due_at < rota.now() - make_interval(secs => $1)
    group by 1, 2
), over as (
    update rota.queue as q set lag_reported_at = null
    where q.lag_reported_at < rota.now() - interval '10 minutes'
      and not exists (select from late as l where l.namespace = q.namespace and l.queue = q.name)
), reported as (
    update rota.queue as q set lag_reported_at = rota.now() from late as l
    where q.namespace = l.namespace and q.name = l.queue
      and (q.lag_reported_at is null or q.lag_reported_at < rota.now() - interval '1 hour')
    returning q.namespace, q.name, l.lag, q.paused_at is not null as paused
)
insert into rota.event (namespace, kind, task, detail)
select t.namespace, 'queue_lag', '', json_build_object('queue', t.name, 'lag', t.lag, 'threshold', $1, 'paused', t.paused)
from reported as t;

-- name: note_missed_deadlines
-- Of jobs that haven't even started; those that run are watched by their workers.
insert into rota.event (namespace, kind, task, job_id, detail)
select p.namespace, 'deadline_missed', p.task, p.id,
       json_build_object('due_at', p.due_at, 'deadline', t.deadline, 'state', 'ready')
from rota.present as p
join rota.task as t on t.namespace = p.namespace and t.name = p.task
where t.deadline is not null and p.state = {state.ready} and p.due_at < rota.now() - make_interval(secs => t.deadline)
on conflict (job_id, kind) do nothing;

-- name: has_deadlines
select exists (select from rota.task where deadline is not null);

-- name: list_events
-- Newest first; $5 is the last id of the page before.
select id, at, kind, task, job_id, detail from rota.event
where namespace = $1 and ($2::text is null or kind = $2) and ($3::timestamptz is null or at >= $3)
  and ($5::bigint is null or id < $5)
order by id desc
limit $4;

-- name: forget_events
with forgotten as (
    delete from rota.unknown_task where noted_at < rota.now() - make_interval(days => $1::int)
)
delete from rota.event where at < rota.now() - make_interval(days => $1::int);

-- name: forget_outbox
-- At most $2 rows: after a day what all sinks have sent, and what was not sent when its time is over.
delete from rota.outbox as o where o.ctid = any(array(
    select o.ctid from rota.outbox as o
    where o.at < rota.now() - interval '1 day' and (
        o.at < rota.now() - make_interval(days => $1::int) or not exists (
            select from rota.sink as s where s.namespace = o.namespace and s.wants <> '{}'
              and coalesce(split_part(s.position, '.', 1)::bigint, 0) <= o.xid::text::bigint))
    limit $2))
returning 1;

-- name: events_after
-- Behind ($2, $3) in the order of the stream. `settled`: no event can appear before this one any more.
select id, at, kind, task, job_id, detail, xid::text::bigint as xid,
       xid < pg_snapshot_xmin(pg_current_snapshot()) as settled
from rota.event
where namespace = $1 and (xid, id) > ($2::bigint::text::xid8, $3::bigint)
  and ($4::text is null or kind = $4)
order by xid, id
limit $5;

-- name: all_events_after
-- The same with what went well, for sinks.
select *, xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint as settled from (
    (select id, at, kind, task, job_id, detail, xid::text::bigint as xid from rota.event
     where namespace = $1 and (xid, id) > ($2::bigint::text::xid8, $3::bigint)
     order by xid, id limit $4)
    union all
    (select id, at, kind, task, job_id, detail, xid::text::bigint as xid from rota.outbox
     where namespace = $1 and (xid, id) > ($2::bigint::text::xid8, $3::bigint)
     order by xid, id limit $4)) as e
order by xid, id
limit $4;

-- name: end_of_events
-- The position from which a reader gets only events that come from now on.
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint;
