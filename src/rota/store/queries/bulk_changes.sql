-- Bulk actions on jobs: what they changed, what became of it, and how it is undone. See operations/bulk_changes.py.

-- name: remember_open
-- Jobs of $2 that a cancel would end before they start, and that can come back: not part of a run, a schedule or an order,
-- and without a unique key, whose place somebody else may take meanwhile. Locked, so that they are cancelled as they are.
with later as materialized (
    select f.id, f.task, f.run_id, f.schedule_id, f.share, f.namespace from rota.future as f
    where f.namespace = $1 and f.id = any($2::uuid[]) and f.state = {state.scheduled} order by f.id for update
), held as materialized (
    select p.id, p.task, p.run_id, p.schedule_id, p.share, p.namespace from rota.present as p
    where p.namespace = $1 and p.id = any($2::uuid[]) and p.state = {state.ready} order by p.id for update
)
select j.id, '{}'::jsonb as row
from (select * from later union all select * from held) as j
where j.run_id is null and j.schedule_id is null
  and rota.share_part(j.share, 'o') is null and rota.share_part(j.share, 'p') is null
  and not exists (select from rota.unique_key as u where u.namespace = j.namespace and u.task = j.task and u.job_id = j.id);

-- name: remember_dead
-- What a retry or a discard takes away of dead letters, under their locks.
select d.id, to_jsonb(r) as row
from (select * from rota.dead as d where d.namespace = $1 and d.id = any($2::uuid[]) order by d.id for update) as d
cross join lateral (
    select d.attempt, d.crashes, d.due_at, d.token, d.node, d.started_at, d.finished_at, d.progress::text as progress,
           d.result::text as result, d.error::text as error) as r  -- as texts: jsonb refuses what json may hold
where d.run_id is null and d.schedule_id is null
  and rota.share_part(d.share, 'o') is null and rota.share_part(d.share, 'p') is null;

-- name: add_bulk_change
-- Old ones are removed by the way: also what they remember of jobs is kept for a week only.
with old as (
    delete from rota.bulk_change where ctid = any(array(
        select ctid from rota.bulk_change where namespace = $2 and at < rota.now() - interval '7 days'
        limit 100 for update skip locked))
)
insert into rota.bulk_change (id, namespace, action, actor, ids, rows, at) values ($1, $2, $3, $4, $5::uuid[], $6::jsonb, $7);

-- name: get_bulk_change
select c.id, c.action, c.actor, c.at, cardinality(c.ids) as jobs,
       (select count(*) from jsonb_object_keys(coalesce(c.rows, '{}'))) as remembered, c.undone_at, c.undone
from rota.bulk_change as c where c.namespace = $1 and c.id = $2;

-- name: list_bulk_changes
select c.id, c.action, c.actor, c.at, cardinality(c.ids) as jobs,
       (select count(*) from jsonb_object_keys(coalesce(c.rows, '{}'))) as remembered, c.undone_at, c.undone
from rota.bulk_change as c where c.namespace = $1 order by c.at desc limit $2;

-- name: bulk_outcome
-- The states of the first $3 jobs of a bulk action. Those that ended did so after it: their days are all that is read.
with change as (select c.ids[1:$3] as ids, c.at from rota.bulk_change as c where c.namespace = $1 and c.id = $2),
chosen as (select i.id, c.at from change as c cross join lateral unnest(c.ids) as i(id))
select s.state, count(*) as jobs
from chosen as c cross join lateral (
    select f.state from rota.future as f where f.id = c.id and f.namespace = $1
    union all select p.state from rota.present as p where p.id = c.id and p.namespace = $1
    union all select d.state from rota.dead as d where d.id = c.id and d.namespace = $1
    union all select e.state from rota.past as e where e.id = c.id and e.namespace = $1 and e.finished_at >= c.at) as s
group by 1;

-- name: bulk_jobs
select c.ids[1:$3] from rota.bulk_change as c where c.namespace = $1 and c.id = $2;

-- name: begin_undo
-- Marks a bulk action as undone, once; returns what is remembered of its jobs.
update rota.bulk_change as c set undone_at = rota.now()
where c.namespace = $1 and c.id = $2 and c.undone_at is null
returning c.action, c.at, c.rows::text as rows;

-- name: end_undo
update rota.bulk_change as c set undone = $3 where c.namespace = $1 and c.id = $2;

-- name: undo_cancel
-- Back to where they waited, if they are still as the cancel left them. $3: when that was.
with gone as (
    delete from rota.past where namespace = $1 and id = any($2::uuid[]) and finished_at >= $3 and state = {state.cancelled}
      and started_at is null and run_id is null and schedule_id is null
    returning {{columns moved}}
), flowed as (
    select rota.add_flow_of_lane(namespace, lane, count(*)) from gone group by namespace, lane
), later as (
    {{insert rota.future, moved}} from gone where due_at > rota.now() returning id
), readied as (
    {{insert rota.present, moved}} from gone where due_at <= rota.now() returning id, namespace, lane, rank
), hinted as (
    select rota.hint(namespace, lane, min(rank), count(*)) from readied group by namespace, lane
)
select id from (select id from later union all select id from readied) as back
where (select count(*) from hinted) + (select count(*) from flowed) >= 0;

-- name: restoring
-- For this transaction: what comes back to the dead letters is neither a new failure nor a new event.
select set_config('rota.restoring', 'on', true);

-- name: undo_retry
-- Back to the dead letters, if no node has claimed them since. $3: what is remembered, by id.
with held as (
    delete from rota.present where namespace = $1 and id = any($2::uuid[]) and state = {state.ready}
      and token = 0 and attempt = 0 and run_id is null and schedule_id is null
    returning {{columns moved}}
), joined as (
    select {{columns submitted}}, h.created_at, h.attempts, r.*
    from held as h cross join lateral (
        select o.attempt, o.crashes, o.due_at as due_before, o.token, o.node, o.started_at, o.finished_at, o.progress::json, o.result::json, o.error::json
        from jsonb_to_record($3::jsonb -> h.id::text) as o(
            attempt smallint, crashes smallint, due_at timestamptz, token bigint, node uuid, started_at timestamptz,
            finished_at timestamptz, progress text, result text, error text)) as r
)
{{insert rota.dead, ended: state = {state.failed}; due_at = due_before; finished_at = finished_at; result = result; error = error}}
from joined returning id;

-- name: undo_discard
-- Back to the dead letters. $3: what is remembered, by id; $4: when they were discarded. What comes to the dead letters
-- counts as having left its queue (rota.tally_runs()); these had left it before.
with gone as (
    delete from rota.past where namespace = $1 and id = any($2::uuid[]) and finished_at >= $4 and state = {state.cancelled}
      and run_id is null and schedule_id is null
    returning {{columns moved}}
), flowed as (
    select rota.add_flow_of_lane(namespace, lane, count(*)) from gone group by namespace, lane
), joined as (
    select {{columns submitted}}, h.created_at, h.attempts, r.*
    from gone as h cross join lateral (
        select o.attempt, o.crashes, o.token, o.node, o.started_at, o.finished_at, o.progress::json, o.result::json, o.error::json
        from jsonb_to_record($3::jsonb -> h.id::text) as o(
            attempt smallint, crashes smallint, token bigint, node uuid, started_at timestamptz,
            finished_at timestamptz, progress text, result text, error text)) as r
)
{{insert rota.dead, ended: state = {state.failed}; finished_at = finished_at; result = result; error = error}}
from joined where (select count(*) from flowed) >= 0 returning id;
