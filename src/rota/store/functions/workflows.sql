-- How runs of workflows advance from step to step. workflow_runs.sql: how they start, end and are resumed.
--
-- Plans: from what is given to its rows by their keys, never the other way. `offset 0` keeps a planner who takes a table for
-- empty from beginning with it.
--
-- Order of locks: jobs, then the run, then its maps, then its steps by (run, number). A finish waits for no run: it ends
-- those that it can lock at once, and leaves the others to an advancer. Whoever ends steps that never ran, which may end others in turn, locks
-- all steps that wait or run first.

-- Decides about a step from how its predecessors ended: running (start it), skipped, upstream_failed; null while it has
-- to wait.
create or replace function rota.step_verdict(rule int, predecessors int, waits int, failed int, skipped int, tolerated int)
    returns smallint language sql immutable parallel safe as $$
    select (case
        when rule = {rule.one_succeeded} and predecessors - waits - failed - skipped > 0 then {step.running}
        when rule = {rule.one_failed} and failed > 0 then {step.running}
        when waits > 0 then null
        when rule in ({rule.all_ended}, {rule.always}) then {step.running}
        when rule = {rule.all_succeeded} and failed <= tolerated and skipped = 0 then {step.running}
        when rule = {rule.one_failed} or failed <= tolerated then {step.skipped}
        else {step.upstream_failed}
    end)::smallint
$$;

-- Whether a step's rule is about one of its predecessors. Such a rule takes an optional step that failed for what it is, and
-- others for an end like any other.
create or replace function rota.asks_for_one(graph uuid, step int) returns boolean language sql stable as $$
    select w.rule in ({rule.one_succeeded}, {rule.one_failed}) from rota.workflow_step as w
    where w.workflow_id = graph and w.number = step
$$;

-- The jobs that steps of a run become, from number `first` to `last`: what the step, the run and the task say. Inlined
-- where it is called.
create or replace function rota.step_jobs(run uuid, first int, last int)
    returns table (run_id uuid, step int, namespace text, task text, headers json, priority smallint, guarantee smallint,
                   max_attempts smallint, timeout real, payload json, base text, share text, kind smallint, rule smallint,
                   condition text, predecessors int, tolerated int)
    language sql stable rows 1 as $$
    select r.id, w.number, r.namespace, w.task, r.headers,
           coalesce(w.priority, r.priority, t.priority, 0::smallint),
           coalesce(w.guarantee, t.guarantee, {guarantee.at_least_once}::smallint),
           coalesce(w.max_attempts, t.max_attempts, 5::smallint),
           coalesce(w.timeout, t.timeout), w.arguments,
           rota.lane(r.namespace, coalesce(w.queue, t.queue, 'default'), n.needs),
           case when t.limited then rota.share_of(null, null, null, null, w.task) end,
           w.kind, w.rule, w.condition, w.predecessors, w.tolerated
    from (select r.* from rota.run as r where r.id = run offset 0) as r
    cross join lateral (
        select w.* from rota.workflow_step as w
        where w.workflow_id = r.workflow_id and w.number between first and last offset 0) as w
    left join lateral (
        select t.* from rota.task as t where t.namespace = r.namespace and t.name = w.task offset 0) as t on true
    -- By itself, so that the simple cases of both functions are inlined.
    cross join lateral (
        select case when w.needs is null then coalesce(t.needs, '{}') else rota.needs_with(w.needs, t.needs) end as needs
        offset 0) as n
$$;

-- Notifies workers of jobs that were made ready in a lane, which may be new.
create or replace function rota.announce(namespace text, lane text, rank bigint, count bigint) returns void
    language plpgsql volatile as $$
#variable_conflict use_column
declare
    base text := split_part(announce.lane, '#', 1);
begin
    if not exists (select from rota.lane as l where l.lane = base) then
        insert into rota.lane (lane, namespace, queue, needs)
        values (base, announce.namespace, rota.queue_of(base), rota.needs_of(base)) on conflict do nothing;
    end if;
    if not exists (select from rota.queue as q where q.namespace = announce.namespace and q.name = rota.queue_of(base)) then
        insert into rota.queue (namespace, name) values (announce.namespace, rota.queue_of(base)) on conflict do nothing;
    end if;
    perform rota.hint(announce.namespace, announce.lane, announce.rank, announce.count);
    perform rota.add_flow_of_lane(announce.namespace, announce.lane, announce.count);
end $$;

-- Starts steps that wait: a job for each, ready at once. A step that no longer waits is left alone.
create or replace function rota.start_steps(runs uuid[], numbers int[]) returns void
    language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    announced bigint;
begin
    with chosen as (
        update rota.step as s
        set state = {step.running}, job_id = rota.new_id(), started_at = rota.now(), ended_at = null, result = null, error = null
        where s.ctid = any(array(
            select its.at from unnest(runs, numbers) as k(run_id, number)
            cross join lateral (
                select o.ctid as at from rota.step as o
                where o.run_id = k.run_id and o.number = k.number and o.state = {step.waiting} offset 0) as its))
          and s.state = {step.waiting}  -- asked again of a row that somebody else has changed meanwhile
        returning s.run_id as run, s.number, s.job_id as id
    ), readied as (
        {{insert rota.present as p, submitted: due_at = rota.now(); schedule_id = null; key = null;
            lane = case when share is null then base else rota.sublane_of(base, share) end}}
        from chosen as c cross join lateral rota.step_jobs(c.run, c.number, c.number)
        returning p.namespace, p.lane, p.rank
    )
    select count(*) into announced from (
        select rota.announce(namespace, lane, min(rank), count(*)) from readied group by namespace, lane) as each_lane;
end $$;

-- Makes the steps of runs that are new, and starts those that wait for nothing: in one pass, for there may be thousands.
create or replace function rota.begin_runs(runs uuid[]) returns void language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    announced bigint;
begin
    with plan as materialized (
        select j.*, v.verdict = {step.running} and j.kind not in ({kind.workflow}, {kind.map}, {kind.end})
                   and j.condition is null as simply,
               case when v.verdict is not null then rota.new_id() end as id
        from unnest(runs) as n(run)
        cross join lateral rota.step_jobs(n.run, 0, 2147483647) as j
        cross join lateral (
            select rota.step_verdict(j.rule, j.predecessors, j.predecessors, 0, 0, j.tolerated) as verdict) as v
    ), made as (
        insert into rota.step (run_id, number, waits, state, job_id, started_at)
        select run_id, step, predecessors, case when simply then {step.running} else {step.waiting} end,
               case when simply then id end, case when simply then rota.now() end
        from plan
    ), pended as (
        insert into rota.pending_step (run_id, step) select run_id, step from plan where id is not null and not simply
    ), readied as (
        {{insert rota.present as p, submitted: due_at = rota.now(); schedule_id = null; key = null;
            lane = case when share is null then base else rota.sublane_of(base, share) end}}
        from plan where simply
        returning p.namespace, p.lane, p.rank
    )
    select count(*) into announced from (
        select rota.announce(namespace, lane, min(rank), count(*)) from readied group by namespace, lane) as each_lane;
end $$;

-- Ends steps whose job, or run, has ended, and lets their successors know. Successors that can simply start do; the others
-- become pending. A step that was closed meanwhile, or given another job, stays as it is. Returns whether there is
-- something pending.
create or replace function rota.end_steps(runs uuid[], numbers int[], jobs uuid[], states smallint[], results json[], errors json[])
    returns boolean language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    ended_runs uuid[] := '{}';
    ended_numbers int[] := '{}';
    ended_states smallint[] := '{}';
    calls record;
    chunks record;
begin
    if 0 > any(numbers) then  -- calls of durable functions
        select array_agg(e.run_id) as runs, array_agg(e.number) as numbers, array_agg(e.job_id) as jobs,
               array_agg(e.state) as states, array_agg(e.result) as results, array_agg(e.error) as errors
        into calls from unnest(runs, numbers, jobs, states, results, errors) as e(run_id, number, job_id, state, result, error)
        where e.number < 0;
        perform rota.end_calls(calls.runs, calls.numbers, calls.jobs, calls.states, calls.results, calls.errors);
    end if;
    if {chunk.base} <= any(numbers) then  -- chunks of maps, which may end the steps of these
        select array_agg(e.run_id) as runs, array_agg(e.number - {chunk.base}) as numbers, array_agg(e.job_id) as jobs,
               array_agg(e.state) as states, array_agg(e.result) as results, array_agg(e.error) as errors
        into chunks from unnest(runs, numbers, jobs, states, results, errors) as e(run_id, number, job_id, state, result, error)
        where e.number >= {chunk.base};
        select array_agg(e.run_id), array_agg(e.number), array_agg(e.job_id), array_agg(e.state), array_agg(e.result), array_agg(e.error)
        into runs, numbers, jobs, states, results, errors from (
            select * from unnest(runs, numbers, jobs, states, results, errors) as s(run_id, number, job_id, state, result, error)
            where s.number < {chunk.base}
            union all
            select * from rota.end_chunks(chunks.runs, chunks.numbers, chunks.jobs, chunks.states, chunks.results, chunks.errors)) as e;
        if runs is null then
            return false;
        end if;
    end if;
    if exists (
        select from (select distinct unnest(runs) as run_id) as e
        cross join lateral (select r.workflow_id from rota.run as r where r.id = e.run_id offset 0) as r
        cross join lateral (
            select from rota.workflow_step as w
            where w.workflow_id = r.workflow_id and w.rule in ({rule.one_succeeded}, {rule.one_failed}) limit 1) as early)
    then
        -- Such a step may run while others before it do: then what one finish ends is what another counts. So all are
        -- locked in order. Elsewhere nobody but its own finish changes a step that runs.
        perform from (
            select e.run_id, e.number from unnest(runs, numbers) as e(run_id, number)
            union
            select e.run_id, unnest(w.successors) from unnest(runs, numbers) as e(run_id, number)
            cross join lateral (select r.workflow_id from rota.run as r where r.id = e.run_id offset 0) as r
            cross join lateral (
                select w.successors from rota.workflow_step as w
                where w.workflow_id = r.workflow_id and w.number = e.number offset 0) as w
            order by 1, 2
        ) as k
        cross join lateral (
            select from rota.step as s where s.run_id = k.run_id and s.number = k.number for update offset 0) as locked;
    end if;
    for round in 1 .. 2 loop
        with ended as (
            update rota.step as s
            set state = e.state, result = e.result, error = e.error, ended_at = rota.now()
            from (select * from unnest(runs, numbers, jobs, states, results, errors)
                      as g(run_id, number, job_id, state, result, error) order by g.run_id, g.number) as e
            cross join lateral (
                select o.ctid as at from rota.step as o
                where o.run_id = e.run_id and o.number = e.number and o.job_id = e.job_id and o.state = {step.running}
                offset 0) as its
            where s.ctid = its.at and s.state = {step.running}
            returning s.run_id, s.number, s.state
        )
        select ended_runs || array_agg(run_id), ended_numbers || array_agg(number), ended_states || array_agg(state)
        into ended_runs, ended_numbers, ended_states from ended;
        exit when cardinality(ended_runs) = cardinality(runs);
        -- A row that somebody has written since this statement began is passed over. It is looked at once more, locked.
        perform from (select * from unnest(runs, numbers) as e(run_id, number) order by 1, 2) as k
        cross join lateral (
            select from rota.step as s
            where s.run_id = k.run_id and s.number = k.number and s.state = {step.running} for update offset 0) as locked;
    end loop;
    return rota.count_down(ended_runs, ended_numbers, ended_states) and rota.end_runs(ended_runs);
end $$;

-- Ends runs of which nothing but the hidden last step is left, and about which nobody has to decide. The caller has ended
-- steps of them. Returns whether there is something pending still.
create or replace function rota.end_runs(runs uuid[]) returns boolean language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    ending uuid[] := (
        select array_agg(e.run_id) from (select distinct unnest(runs) as run_id) as e where rota.only_its_end_is_left(e.run_id));
    parents uuid[];
    others uuid[];
    succeeded uuid[];
    other uuid;
begin
    if ending is not null then
        select array_agg(r.id), array_agg(r.parent_id) into ending, parents from unnest(ending) as e(run_id)
        cross join lateral (
            select r.id, r.parent_id from rota.run as r
            where r.id = e.run_id and r.state = {run.running} and r.cancel_at is null
              and (r.deadline_at is null or r.deadline_at > rota.now())
            for update skip locked) as r;
    end if;
    if ending is not null then
        -- Looked at again: before the lock somebody may have resumed one.
        with over as materialized (
            select r.id, r.parent_id, r.parent_step, not exists (
                select from rota.step as s
                where s.run_id = r.id and s.state in ({step.failed}, {step.upstream_failed}, {step.cancelled})) as simply
            from unnest(ending) as e(run_id)
            cross join lateral (select r.* from rota.run as r where r.id = e.run_id offset 0) as r
            where rota.only_its_end_is_left(e.run_id)
        ), ended as (  -- as rota.finish_run() does, of all that have simply succeeded
            update rota.run as r set state = {run.succeeded}, ended_at = rota.now(), paused_at = null from over as o
            where r.id = o.id and o.simply
        ), closed as (
            update rota.step as s set state = {step.succeeded}, ended_at = rota.now() from over as o
            where o.simply and s.run_id = o.id and s.number = (select max(l.number) from rota.step as l where l.run_id = o.id)
        ), told as (
            insert into rota.pending_step (run_id, step)
            select o.parent_id, o.parent_step from over as o where o.simply and o.parent_id is not null
        ), forgotten as (
            delete from rota.pending_step as p using over as o where p.run_id = o.id and o.simply
        )
        select array_agg(o.id) filter (where not o.simply), array_agg(o.id) filter (where o.simply and o.parent_id is null)
        into others, succeeded from over as o;
        if succeeded is not null then
            perform rota.note_outcomes(succeeded, 'run_succeeded');
        end if;
        foreach other in array coalesce(others, '{}') loop
            perform rota.finish_run(other);
        end loop;
    end if;
    return exists (select from rota.pending_step as p where p.run_id = any(runs || parents));
end $$;

-- Whether all steps of a run have ended, but for the hidden last one, for which nobody has to decide anything.
create or replace function rota.only_its_end_is_left(run uuid) returns boolean language plpgsql stable
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
begin
    return exists (
        select from (
            select s.number, s.state, s.waits from rota.step as s where s.run_id = run order by s.number desc limit 1) as l
        where l.state = {step.waiting} and l.waits <= 0
          and not exists (
              select from rota.step as s where s.run_id = run and s.state <= {step.running} and s.number < l.number)
          and not exists (select from rota.pending_step as p where p.run_id = run and p.step is distinct from l.number));
end $$;

-- Lets successors know of steps that have ended, and starts those that can simply start. Locks the successors in order.
create or replace function rota.count_down(runs uuid[], numbers int[], states smallint[]) returns boolean
    language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    next record;
    start_runs uuid[];
    start_numbers int[];
    pending bigint;
begin
    with told as (
        select e.run_id, n.number,
               e.state in ({step.failed}, {step.upstream_failed}, {step.cancelled})
                   and (not w.optional or rota.asks_for_one(r.workflow_id, n.number)) as failed,
               e.state = {step.skipped} as skipped
        from unnest(runs, numbers, states) as e(run_id, number, state)
        cross join lateral (select r.workflow_id from rota.run as r where r.id = e.run_id offset 0) as r
        cross join lateral (
            select w.successors, w.optional from rota.workflow_step as w
            where w.workflow_id = r.workflow_id and w.number = e.number offset 0) as w
        cross join lateral unnest(w.successors) as n(number)
    ), change as (
        select run_id, number, count(*) as ended, count(*) filter (where failed) as failed,
               count(*) filter (where skipped) as skipped
        from told group by run_id, number order by run_id, number
    )
    select array_agg(run_id) as runs, array_agg(number) as numbers, array_agg(ended) as ended, array_agg(failed) as failed,
           array_agg(skipped) as skipped into next from change;
    perform from unnest(next.runs, next.numbers) as k(run_id, number)
    cross join lateral (
        select from rota.step as s where s.run_id = k.run_id and s.number = k.number for update offset 0) as locked;
    with changed as (
        update rota.step as s
        set waits = s.waits - c.ended, failed = s.failed + c.failed, skipped = s.skipped + c.skipped
        from unnest(next.runs, next.numbers, next.ended, next.failed, next.skipped) as c(run_id, number, ended, failed, skipped)
        cross join lateral (
            select o.ctid as at from rota.step as o where o.run_id = c.run_id and o.number = c.number offset 0) as its
        where s.ctid = its.at
        returning s.run_id, s.number, s.state, s.waits, s.failed, s.skipped
    ), decided as (
        select c.run_id, c.number, v.verdict = {step.running} and w.kind not in ({kind.workflow}, {kind.map}, {kind.end}) and w.condition is null
                   and r.paused_at is null and (r.cancel_at is null or w.rule = {rule.always}) as simply
        from changed as c
        cross join lateral (select r.* from rota.run as r where r.id = c.run_id offset 0) as r
        cross join lateral (
            select w.* from rota.workflow_step as w where w.workflow_id = r.workflow_id and w.number = c.number offset 0) as w
        cross join lateral (select rota.step_verdict(w.rule, w.predecessors, c.waits, c.failed, c.skipped, w.tolerated) as verdict) as v
        where c.state = {step.waiting} and v.verdict is not null
    ), ending as (
        -- Ends that only wait for what still runs: after a cancel, for one.
        select l.run_id, l.number from (select distinct unnest(runs) as run_id) as e
        cross join lateral (
            select s.run_id, s.number, s.state, s.waits from rota.step as s
            where s.run_id = e.run_id order by s.number desc limit 1) as l
        where l.state = {step.waiting} and l.waits <= 0
    ), pended as (
        insert into rota.pending_step (run_id, step)
        select run_id, number from decided where not simply union select run_id, number from ending
        returning 1
    )
    select array_agg(run_id) filter (where simply), array_agg(number) filter (where simply),
           (select count(*) from pended)
    into start_runs, start_numbers, pending from decided;
    if start_runs is not null then
        perform rota.start_steps(start_runs, start_numbers);
    end if;
    return pending > 0;
end $$;

-- A success whose result had to be dropped is a failure of its step: others would go on without the result.
create or replace function rota.job_of_step_ended() returns trigger language plpgsql volatile as $$
begin
    perform rota.end_steps(array[new.run_id], array[new.step], array[new.id],
        array[case when new.state = {state.succeeded} and new.error is null then {step.succeeded}
                   when new.state in ({state.succeeded}, {state.failed}) then {step.failed}
                   when new.state = {state.skipped} then {step.skipped} else {step.cancelled} end]::smallint[],
        array[new.result], array[new.error]);
    return null;
end $$;

-- Ends steps that wait, without a job, in the given states, and all that follows from that. Locks the run's waiting steps
-- in order first; the caller has locked the run.
create or replace function rota.settle_steps(run uuid, numbers int[], states smallint[]) returns void
    language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    next_numbers int[] := numbers;
    next_states smallint[] := states;
begin
    perform from rota.step as s where s.run_id = run and s.state = {step.waiting} order by s.number for update;
    while next_numbers is not null loop
        with ended as (
            update rota.step as s set state = e.state, ended_at = rota.now()
            from unnest(next_numbers, next_states) as e(number, state)
            cross join lateral (
                select o.ctid as at from rota.step as o
                where o.run_id = run and o.number = e.number and o.state = {step.waiting} offset 0) as its
            where s.ctid = its.at and s.state = {step.waiting}
            returning s.number, s.state
        )
        select array_agg(number), array_agg(state) into next_numbers, next_states from ended;
        exit when next_numbers is null;
        perform rota.count_down(array_fill(run, array[cardinality(next_numbers)]), next_numbers, next_states);
        -- What can't start any more ends as well.
        with pending as (
            select distinct p.step from rota.pending_step as p where p.run_id = run and p.step is not null
        ), verdict as (
            select s.number, rota.step_verdict(w.rule, w.predecessors, s.waits, s.failed, s.skipped, w.tolerated) as state
            from pending as p
            join rota.step as s on s.run_id = run and s.number = p.step and s.state = {step.waiting}
            join rota.run as r on r.id = run
            join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = s.number
        ), over as (
            select number, state from verdict where state in ({step.skipped}, {step.upstream_failed})
        ), removed as (
            delete from rota.pending_step as p using over as o where p.run_id = run and p.step = o.number
        )
        select array_agg(number), array_agg(state) into next_numbers, next_states from over;
    end loop;
end $$;
