-- name: add_events
insert into rota.event (namespace, kind, task, job_id, detail)
select $1, e.kind, e.task, e.job_id, e.detail
from unnest($2::text[], $3::text[], $4::uuid[], $5::json[]) as e(kind, task, job_id, detail)
on conflict (job_id, kind) do nothing;

-- name: note_missed_deadlines
-- Of jobs that haven't even started; those that run are watched by their workers.
insert into rota.event (namespace, kind, task, job_id, detail)
select p.namespace, 'deadline_missed', p.task, p.id,
       json_build_object('due_at', p.due_at, 'deadline', t.deadline, 'state', 'ready')
from rota.present as p
join rota.task as t on t.namespace = p.namespace and t.name = p.task
where t.deadline is not null and p.state = 3 and p.due_at < rota.now() - make_interval(secs => t.deadline)
on conflict (job_id, kind) do nothing;

-- name: has_deadlines
select exists (select from rota.task where deadline is not null);

-- name: list_events
select id, at, kind, task, job_id, detail from rota.event
where namespace = $1 and ($2::text is null or kind = $2) and ($3::timestamptz is null or at >= $3)
order by id desc
limit $4;

-- name: forget_events
delete from rota.event where at < rota.now() - make_interval(days => $1::int);

-- name: events_after
-- Behind ($2, $3) in the order of the stream. `settled`: no event can appear before this one any more.
select id, at, kind, task, job_id, detail, xid::text::bigint as xid,
       xid < pg_snapshot_xmin(pg_current_snapshot()) as settled
from rota.event
where namespace = $1 and (xid, id) > ($2::bigint::text::xid8, $3::bigint)
  and ($4::text is null or kind = $4)
order by xid, id
limit $5;

-- name: end_of_events
-- Where a reader begins who wants only what comes from now on.
select pg_snapshot_xmin(pg_current_snapshot())::text::bigint;

-- name: events_page
select id, at, kind, task, job_id, detail from rota.event
where namespace = $1 and ($2::text is null or kind = $2) and ($3::timestamptz is null or at >= $3)
  and ($4::bigint is null or id < $4)
order by id desc
limit $5;
