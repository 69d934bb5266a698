-- Definitions of workflows, and runs. functions/workflows.sql says how runs advance.

-- name: lock_workflow
-- One declaration of a workflow at a time: its versions are numbered without gaps.
select pg_advisory_xact_lock(hashtextextended('rota.' || $1::text || '/' || $2::text, 7));

-- name: newest_workflow
select id, version, digest, definition, created_at, retired_at, source from rota.workflow
where namespace = $1 and name = $2 order by version desc limit 1;

-- name: find_digest
select version from rota.workflow where namespace = $1 and name = $2 and digest = $3 order by version desc limit 1;

-- name: workflow_version
select id, version, digest, definition, created_at, retired_at, source from rota.workflow
where namespace = $1 and name = $2 and version = $3;

-- name: list_workflows
select distinct on (w.name) w.id, w.name, w.version, w.definition, w.created_at, w.retired_at, w.source,
       (select count(*) from rota.run as r where r.namespace = w.namespace and r.name = w.name and r.state = {run.running})
           as running
from rota.workflow as w where w.namespace = $1 and w.name not like $2
order by w.name, w.version desc;

-- name: add_workflow
-- One that is retired stays so, whatever a new release of its application declares.
insert into rota.workflow (id, namespace, name, version, digest, definition, result_step, deadline, retention, source,
                           retired_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
        (select retired_at from rota.workflow where namespace = $2 and name = $3 order by version desc limit 1));

-- name: add_workflow_steps
insert into rota.workflow_step (workflow_id, number, name, kind, task, queue, needs, priority, max_attempts, timeout,
                                guarantee, rule, condition, tolerated, optional, arguments, predecessors, successors, map)
select $1, s.number, s.name, s.kind, s.task, s.queue, s.needs, s.priority, s.max_attempts, s.timeout, s.guarantee, s.rule, s.condition,
       s.tolerated, s.optional, s.arguments, s.predecessors, s.successors, s.map
from json_to_recordset($2::json) as s(number int, name text, kind smallint, task text, queue text, needs text[],
    priority smallint, max_attempts smallint, timeout real, guarantee smallint, rule smallint, condition text, tolerated int, optional boolean,
    arguments json, predecessors int, successors int[], map json);

-- name: retire_workflow
update rota.workflow set retired_at = case when $3 then coalesce(retired_at, rota.now()) end
where namespace = $1 and name = $2;

-- name: start_run
select run_id, existed, conflict from rota.start_run_of($1::json);

-- name: start_runs
select run_id, existed, conflict from rota.start_runs_of($1::json) order by place;

-- name: get_run
select r.*, w.version,
       (select count(*) from rota.step as s where s.run_id = r.id) - 1 as steps,
       -- The hidden end, which ends last, is no step that anybody counts.
       (select least(count(*) filter (where s.state > {step.running}), count(*) - 1)
        from rota.step as s where s.run_id = r.id) as ended
from rota.run as r join rota.workflow as w on w.id = r.workflow_id
where r.namespace = $1 and r.id = $2;

-- name: has_ended
select r.state <> {run.running} from rota.run as r where r.namespace = $1 and r.id = $2;

-- name: list_runs
select r.id, r.namespace, r.name, r.state, r.round, r.created_at, r.ended_at, r.deadline_at, r.paused_at, r.cancel_at, r.key,
       r.schedule_id, r.parent_id, r.parent_step, r.input, r.error, r.priority, r.restarts, w.version
-- The newest of each state, by the index that begins with it; then the newest of these.
from (values ({run.running}::smallint), ({run.succeeded}::smallint), ({run.failed}::smallint), ({run.cancelled}::smallint)) as s(state)
cross join lateral (
    select * from rota.run as r
    where r.namespace = $1 and r.state = s.state and ($2::text is null or r.name = $2) and ($3::smallint is null or s.state = $3)
      and ($4::timestamptz is null or (r.created_at, r.id) < ($4, $5::uuid))
    order by r.created_at desc, r.id desc limit $6) as r
join rota.workflow as w on w.id = r.workflow_id
order by r.created_at desc, r.id desc limit $6;

-- name: run_steps
-- The steps of a run after a number, without the hidden end.
select s.run_id, s.number, w.name, w.kind, w.task, s.state, s.waits, s.failed, s.skipped, s.job_id, s.started_at, s.ended_at, s.result,
       s.error, w.rule, w.condition, w.predecessors, w.successors, w.optional
from rota.run as r
join rota.step as s on s.run_id = r.id
join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = s.number
where r.id = $1 and s.number > $2 and w.kind <> {kind.end} and ($3::smallint is null or s.state = $3)
order by s.number limit $4;

-- name: predecessors
select s.number, array_agg(w.number order by w.number)
from rota.run as r
join rota.workflow_step as w on w.workflow_id = r.workflow_id
cross join lateral unnest(w.successors) as s(number)
where r.id = $1 and s.number = any($2::int[])
group by s.number;

-- name: step_states
select w.name, s.state, w.optional from rota.run as r
join rota.step as s on s.run_id = r.id
join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = s.number
where r.id = $1 and s.number = any($2::int[]) order by s.number;

-- name: explain_run
-- What the explanation of a run depends on, besides the run and its steps.
select rota.now() as now,
       (select count(*) from rota.step as s where s.run_id = $1 and s.state = {step.running}) as running,
       (select count(*) from rota.node as n
        where 'scheduler' = any(n.roles) and n.state in ('live', 'draining') and n.expires_at >= rota.now()) as schedulers;

-- name: open_waits
-- What a suspended function waits for: the first $2, and how many there are. None while it runs.
select c.number, c.kind, c.name, c.attempt, c.job_id, c.wake_at, c.signal, c.signal_key, count(*) over () as open
from rota.run as r join rota.checkpoint as c on c.run_id = r.id and c.state = {step.waiting}
where r.id = $1 and r.suspended order by c.number limit $2;

-- name: running_among
select w.name from rota.run as r
join rota.step as s on s.run_id = r.id
join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = s.number
where r.id = $1 and s.number = any($2::int[]) and s.state = {step.running} order by s.number;

-- name: step_numbers
select w.name, w.number from rota.run as r join rota.workflow_step as w on w.workflow_id = r.workflow_id
where r.id = $1 and w.name = any($2::text[]) and w.kind <> {kind.end};

-- name: step_values
-- What the arguments of steps refer to, in one look: the inputs of runs, which have no number, and the results of steps.
select r.id as run_id, null::int as number, null::text[] as part, r.id as job_id, r.input as result
from rota.run as r where r.id = any($1::uuid[])
union all
select k.run_id, k.number, v.part, v.job_id, v.result
from unnest($2::uuid[], $3::int[]) as k(run_id, number)
cross join lateral rota.step_result(k.run_id, k.number) as v;

-- name: step_results
select k.run_id, k.number, v.part, v.job_id, v.result
from unnest($1::uuid[], $2::int[]) as k(run_id, number)
cross join lateral rota.step_result(k.run_id, k.number) as v;

-- name: lock_run
select r.id, r.namespace, r.name, r.workflow_id, r.state, r.round, r.paused_at, r.cancel_at, r.input, r.parent_id,
       r.parent_step, r.deadline_at, r.deadline_at <= rota.now() as overdue
from rota.run as r where r.id = $1 and ($2::text is null or r.namespace = $2) for update;

-- name: take_run
select r.id, r.namespace, r.name, r.workflow_id, r.state, r.round, r.paused_at, r.cancel_at, r.input, r.parent_id,
       r.parent_step, r.deadline_at, r.deadline_at <= rota.now() as overdue
from rota.run as r where r.id = $1 for update skip locked;

-- name: pending_runs
-- Runs that need a decision, each once, but for some; and those whose deadline has passed.
(select p.run_id from rota.pending_step as p where p.run_id <> all($2::uuid[]) group by p.run_id order by min(p.id) limit $1)
union
(select r.id from rota.run as r where r.deadline_at <= rota.now() and r.state = {run.running} and r.cancel_at is null
   and r.id <> all($2::uuid[])
 order by r.deadline_at limit $1);

-- name: forget_runs
-- Runs whose retention is over, with their steps, in bounded steps. A run that is a step of another goes with it.
with old as materialized (
    select r.id from rota.run as r join rota.workflow as w on w.id = r.workflow_id
    where r.ended_at < rota.now() - coalesce(make_interval(secs => w.retention), make_interval(days => $1::int))
      and not exists (select from rota.run as p where p.id = r.parent_id)
    order by r.ended_at limit $2 for update of r skip locked
), steps as (
    delete from rota.step as s where s.run_id in (select id from old)
), pending as (
    delete from rota.pending_step as p where p.run_id in (select id from old)
), maps as (
    delete from rota.map as m where m.run_id in (select id from old)
), chunks as (
    delete from rota.map_chunk as m where m.run_id in (select id from old)
), results as (
    delete from rota.map_result as m where m.run_id in (select id from old)
), members as (
    delete from rota.map_member as m where m.run_id in (select id from old)
), history as (
    delete from rota.checkpoint as c where c.run_id in (select id from old)
), runs as (
    delete from rota.run as r where r.id in (select id from old) returning 1
)
select count(*) from runs;

-- name: lock_open_steps
-- Those that wait or run, and before them the maps: whoever is ending one of them is waited for.
select rota.lock_open_steps($1);

-- name: has_open_steps
select exists (
    select from rota.run as r
    join rota.step as s on s.run_id = r.id and s.state <= {step.running}
    join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = s.number and w.kind <> {kind.end}
    where r.id = $1);

-- name: take_pending
-- The steps about which to decide, each once. The caller has locked the run.
with taken as (
    delete from rota.pending_step where run_id = $1 and step >= 0 returning step
), chosen as (
    select distinct step from taken
)
select c.step as number, w.name, w.kind, w.task, w.condition, w.rule, w.arguments, w.map, s.state, s.job_id,
       coalesce(w.guarantee, t.guarantee) as guarantee, t.rate_count is not null as rated, coalesce(t.per_key, false) as per_key,
       rota.step_verdict(w.rule, w.predecessors, s.waits, s.failed, s.skipped, w.tolerated) as verdict
from chosen as c
join rota.run as r on r.id = $1
join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = c.step
join rota.step as s on s.run_id = $1 and s.number = c.step
left join rota.task as t on t.namespace = r.namespace and t.name = w.task
order by c.step;

-- name: run_graph
select w.number, w.name, w.kind, w.task, w.successors, s.state, s.started_at, s.ended_at, s.job_id
from rota.run as r
join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.kind <> {kind.end}
join rota.step as s on s.run_id = r.id and s.number = w.number
where r.id = $1 order by w.number;

-- name: step_names
select w.name from rota.run as r join rota.workflow_step as w on w.workflow_id = r.workflow_id
where r.id = $1 and w.kind <> {kind.end} order by w.number;

-- name: start_steps
select rota.start_steps(array_fill($1::uuid, array[cardinality($2::int[])]), $2::int[]);

-- name: settle_steps
select rota.settle_steps($1, $2::int[], $3::smallint[]);

-- name: fail_step
-- A step that can't start fails with an error of its own: before it is settled.
update rota.step set error = $3::json where run_id = $1 and number = $2 and state = {step.waiting};

-- name: lock_child
-- The run that a step which is a workflow had in an earlier round, if it may go on.
select c.id, c.namespace, c.input from rota.step as s join rota.run as c on c.id = s.job_id
where s.run_id = $1 and s.number = $2 for update of c;

-- name: start_child
select rota.start_child($1, $2, $3, $4::json);

-- name: child_outcome
select state, error from rota.run where id = $1;

-- name: end_child
select rota.end_steps(array[$1::uuid], array[$2::int], array[$3::uuid], array[$4::smallint], array[null::json], array[$5::json]);

-- name: finish_run
select rota.finish_run($1);

-- name: close_run
select rota.close_run($1, $2::json);

-- name: pause_run
with held as (select rota.hold_maps($1, true))
update rota.run set paused_at = coalesce(paused_at, rota.now()) where id = $1 and (select count(*) from held) > 0;

-- name: unpause_run
update rota.run set paused_at = null, problem = null where id = $1;

-- name: hold_maps
select rota.hold_maps($1, $2);

-- name: start_ready_steps
select rota.start_ready_steps(id, workflow_id) from rota.run where id = $1;

-- name: steps_to_resume
select rota.steps_to_resume($1);

-- name: steps_from
select rota.steps_from($1, $2::int[]);

-- name: resume_run
select rota.resume_run($1, $2::int[]);

-- name: supply_result
-- A step that a person settles: it counts as succeeded, with the result that was given.
update rota.step set state = {step.succeeded}, result = $3::json, error = $4::json, ended_at = rota.now()
where run_id = $1 and number = $2 and state <> {step.running};

-- name: stop_notes
-- The notes that ask to stop what runs in a run that is being cancelled.
select id from rota.pending_step where run_id = $1 and step is null;

-- name: lock_jobs
-- Before their steps, as whoever finishes them does.
select from rota.present where id = any($1::uuid[]) order by id for update;

-- name: drop_notes
delete from rota.pending_step where id = any($1::bigint[]);

-- name: stopping_jobs
-- Jobs and runs of steps that still run in a run that is being cancelled.
select s.job_id, w.kind from rota.run as r
join rota.step as s on s.run_id = r.id
join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = s.number
where r.id = $1 and r.cancel_at is not null and s.state = {step.running} and w.rule <> {rule.always}
  and w.kind <> {kind.map} and (w.kind <> {kind.function} or r.forced)
union all
select c.job_id, {kind.task}::smallint from rota.run as r
join rota.map as m on m.run_id = r.id and m.stopped
join rota.map_chunk as c on c.run_id = r.id and c.step = m.step and c.state = {step.running}
where r.id = $1 and r.cancel_at is not null;

-- name: drop_orphans
-- What is pending in a run that is gone.
delete from rota.pending_step as p where p.run_id = $1 and not exists (select from rota.run as r where r.id = $1);
