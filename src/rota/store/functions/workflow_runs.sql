-- How runs of workflows start, end and are resumed. workflows.sql: how they advance, and the order of locks.

-- Stores a run of the newest version of a workflow, whose steps the caller makes if it is new (`begun`). A key names one run, as
-- that of a submit names one job.
create or replace function rota.store_run(
    name text, input json, id uuid, namespace text, version int, priority int, deadline double precision, headers json,
    key text, fingerprints text[], schedule uuid, parent uuid, parent_step int
) returns table (run_id uuid, existed boolean, conflict boolean, begun boolean) language plpgsql volatile as $$
declare
    graph rota.workflow;
    named record;
    fingerprint text;
begin
    run_id := coalesce(store_run.id, rota.new_id());
    existed := false;
    conflict := false;
    begun := false;
    select w.* into graph from rota.workflow as w
    where w.namespace = store_run.namespace and w.name = store_run.name and w.retired_at is null
      and (store_run.version is null or w.version = store_run.version)
    order by w.version desc limit 1;
    if not found then
        if exists (select from rota.workflow as w where w.namespace = store_run.namespace and w.name = store_run.name
                   and (store_run.version is null or w.version = store_run.version))
        then
            raise exception using errcode = 'RT001', message = format('rota: workflow %L is retired', store_run.name),
                hint = '`rota workflows retire --undo` lets it start again.';
        end if;
        raise exception using errcode = 'RT001', message = format('rota: no workflow is named %L', store_run.name),
            hint = 'A node of its application declares it at its start; `rota workflows apply` stores one from a file.';
    end if;
    if json_typeof(store_run.input) <> 'object' then
        raise exception using errcode = 'RT001', message = 'rota: input must be a JSON object: names and values';
    end if;
    if store_run.key is not null then
        fingerprint := coalesce(fingerprints[1], md5('workflow ' || store_run.name || ' ' || store_run.input::jsonb::text));
        insert into rota.submit_key as k (namespace, key, job_id, fingerprint)
        values (store_run.namespace, store_run.key, run_id, fingerprint)
        on conflict on constraint submit_key_pkey do update set job_id = k.job_id
        returning k.job_id, k.fingerprint into named;
        existed := named.job_id <> run_id;
        conflict := named.fingerprint <> fingerprint and named.fingerprint <> all(coalesce(fingerprints, '{}'));
        run_id := named.job_id;
        if existed or conflict then
            return next;
            return;
        end if;
    end if;
    insert into rota.run (id, workflow_id, parent_id, parent_step, schedule_id, deadline, deadline_at, priority, namespace,
                          name, key, input, headers)
    values (run_id, graph.id, store_run.parent, store_run.parent_step, store_run.schedule,
            coalesce(store_run.deadline, graph.deadline), rota.now() + make_interval(secs => coalesce(store_run.deadline, graph.deadline)), store_run.priority,
            store_run.namespace, store_run.name, store_run.key, store_run.input, store_run.headers)
    on conflict on constraint run_pkey do nothing;
    begun := found;
    existed := not begun;
    return next;
end $$;

-- Starts a run of a workflow, in the caller's transaction. The first steps start with it.
create or replace function rota.start_run(
    name text, input json default '{}', id uuid default null, namespace text default 'default', version int default null,
    priority int default null, deadline double precision default null, headers json default null, key text default null,
    fingerprints text[] default null, schedule uuid default null, parent uuid default null, parent_step int default null
) returns table (run_id uuid, existed boolean, conflict boolean) language plpgsql volatile as $$
declare
    stored record;
begin
    select s.* into stored from rota.store_run(name, input, id, namespace, version, priority, deadline, headers, key,
        fingerprints, schedule, parent, parent_step) as s;
    if stored.begun then
        perform rota.begin_runs(array[stored.run_id]);
    end if;
    return query select stored.run_id, stored.existed, stored.conflict;
end $$;

-- Starts many runs, all or none, from a JSON array of what rota.start_run_of() takes. Keys are locked in one order, whatever
-- order the runs are given in. `place`: which of those given.
create or replace function rota.start_runs_of(runs json)
    returns table (place bigint, run_id uuid, existed boolean, conflict boolean) language plpgsql volatile as $$
declare
    new uuid[] := '{}';
    its record;
begin
    for its in
        select g.place, s.* from (
            select e.place, r.* from json_array_elements(runs) with ordinality as e(run, place)
            cross join lateral json_to_record(e.run) as r(id uuid, namespace text, workflow text, input json, version int,
                priority int, deadline double precision, headers json, key text, fingerprints text[], schedule uuid)
            order by r.namespace, r.key, e.place
        ) as g
        cross join lateral rota.store_run(g.workflow, g.input, g.id, g.namespace, g.version, g.priority, g.deadline, g.headers,
            g.key, g.fingerprints, g.schedule, null, null) as s
    loop
        if its.begun then
            new := new || its.run_id;
        end if;
        place := its.place;
        run_id := its.run_id;
        existed := its.existed;
        conflict := its.conflict;
        return next;
    end loop;
    perform rota.begin_runs(new);
end $$;

-- The same from one JSON object, for callers with one value to pass.
create or replace function rota.start_run_of(run json) returns table (run_id uuid, existed boolean, conflict boolean)
    language sql volatile as $$
    select s.run_id, s.existed, s.conflict
    from json_to_record(run) as r(id uuid, namespace text, workflow text, input json, version int, priority int,
        deadline double precision, headers json, key text, fingerprints text[], schedule uuid)
    cross join lateral rota.start_run(r.workflow, r.input, r.id, r.namespace, r.version, r.priority, r.deadline, r.headers,
        r.key, r.fingerprints, r.schedule) as s
$$;

-- Starts the steps of a run that wait for nothing, or makes them pending. Those of a paused run stay as they are.
create or replace function rota.start_ready_steps(run uuid, graph uuid) returns void language plpgsql volatile as $$
declare
    simple int[];
begin
    with decided as (
        select s.number, v.verdict = {step.running} and w.kind not in ({kind.workflow}, {kind.map}, {kind.end}) and w.condition is null as simply
        from rota.step as s
        join rota.workflow_step as w on w.workflow_id = graph and w.number = s.number
        cross join lateral (select rota.step_verdict(w.rule, w.predecessors, s.waits, s.failed, s.skipped, w.tolerated) as verdict) as v
        where s.run_id = run and s.state = {step.waiting} and v.verdict is not null
          and exists (select from rota.run as r where r.id = run and r.paused_at is null)
    ), pended as (
        insert into rota.pending_step (run_id, step) select run, number from decided where not simply
    )
    select array_agg(number) filter (where simply) into simple from decided;
    if simple is not null then
        perform rota.start_steps(array_fill(run, array[cardinality(simple)]), simple);
    end if;
end $$;

-- Finishes jobs of steps that have succeeded, as the query finish_succeeded does, and ends their steps, all in one
-- statement. `pending`: an advancer has something to decide.
create or replace function rota.finish_steps(
    me uuid, ids uuid[], tokens bigint[], results json[], errors json[], rans float8[], agos float8[], moment timestamptz
) returns table (accepted bigint, pending boolean) language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    runs uuid[];
    numbers int[];
    jobs uuid[];
    outcomes json[];
begin
    perform set_config('rota.ends_steps', 'on', true);  -- the trigger leaves these rows to us
    with gone as (
        delete from rota.present as p
        where p.id = any(ids) and p.token = tokens[width_bucket(p.id, ids)] and p.node = me and p.state = {state.running}
        returning p.*, width_bucket(p.id, ids) as place
    ), ended as (
        select *, coalesce(moment, rota.now()) - agos[place] * interval '1 second' as ended, rans[place] as ran from gone
    ), kept as (
        {{insert rota.past, ended: state = {state.succeeded}; finished_at = ended;
            started_at = greatest(ended - ran * interval '1 second',
                least(due_at, rota.now() - (ran + agos[place]) * interval '1 second'));
            result = results[place]; error = errors[place]}}
        from ended
        returning id, run_id, step, result
    )
    select count(*), array_agg(run_id), array_agg(step), array_agg(id), array_agg(result)
    into accepted, runs, numbers, jobs, outcomes from kept;
    perform set_config('rota.ends_steps', '', true);
    pending := accepted > 0 and rota.end_steps(
        runs, numbers, jobs, array_fill({step.succeeded}::smallint, array[accepted::int]), outcomes,
        array_fill(null::json, array[accepted::int]));
    return next;
end $$;

-- Starts a step that is a workflow: a run, under the earlier of both deadlines unless the step always runs. A run of an
-- earlier round goes on instead, if `child` is one: the caller has locked it.
create or replace function rota.start_child(parent uuid, number int, child uuid, input json) returns void
    language plpgsql volatile as $$
declare
    its record;
    earlier smallint := (select c.state from rota.run as c where c.id = child);
begin
    select w.task, w.rule, r.namespace, r.priority, r.headers, r.deadline_at into its
    from rota.step as s
    join rota.run as r on r.id = s.run_id
    join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = s.number
    where s.run_id = parent and s.number = start_child.number and s.state = {step.waiting};
    if not found then
        return;
    end if;
    if earlier is null then
        perform rota.start_run(its.task, start_child.input, child, its.namespace, null, its.priority, null, its.headers,
            parent => start_child.parent, parent_step => start_child.number);
    elsif earlier in ({run.failed}, {run.cancelled}) then
        perform rota.forget_failure(child);
        perform rota.reopen_maps(child, rota.steps_to_resume(child));
        perform rota.resume_run(child, rota.steps_to_resume(child));
    elsif earlier = {run.succeeded} then  -- somebody has resumed it meanwhile
        insert into rota.pending_step (run_id, step) values (parent, start_child.number);
    end if;
    if its.rule <> {rule.always} then
        update rota.run as c set deadline_at = least(c.deadline_at, its.deadline_at)
        where c.id = child and c.deadline_at is distinct from least(c.deadline_at, its.deadline_at);
    end if;
    update rota.step as s set state = {step.running}, job_id = child, started_at = rota.now()
    where s.run_id = parent and s.number = start_child.number;
end $$;

-- What an event says of a run that has failed. Encrypted messages are left out of it.
create or replace function rota.failed_run_detail(run uuid, round int, reason json) returns json language sql stable as $$
    select json_build_object('run', run, 'round', round, 'step', reason ->> 'step', 'error', cause.type, 'message',
        case when starts_with(cause.message, '$rota-encrypted:') then '(encrypted)' else left(cause.message, 300) end)
    from (select coalesce(reason -> 'cause' ->> 'type', reason ->> 'type') as type,
                 coalesce(reason -> 'cause' ->> 'message', reason ->> 'message') as message) as cause
$$;

-- Where a durable function is that went down with its process until it was quarantined: what it records begins the count anew,
-- so that it was after the same record each time.
create or replace function rota.where_it_went_down(run uuid) returns text language sql stable as $$
    select ': it went down ' || coalesce((
        select format('after %L (number %s), before it recorded what comes next', c.name, c.number)
        from rota.checkpoint as c where c.run_id = run and c.kind <> {checkpoint.note} order by c.number desc limit 1),
        'before it had recorded anything')
$$;

-- Records that runs have ended without a failure, for the sinks that ask for it.
create or replace function rota.note_outcomes(runs uuid[], what text) returns void language plpgsql volatile as $$
begin
    if not exists (select from rota.sink as s where what = any(s.wants)) then
        return;
    end if;
    insert into rota.outbox (id, namespace, kind, task, detail)
    select nextval('rota.event_id_seq'), r.namespace, what, r.name, json_build_object('run', r.id, 'round', r.round)
    from rota.run as r where r.id = any(runs) and rota.is_wanted(r.namespace, what, null, r.name);
end $$;

-- Ends a run whose steps have all ended. The caller has locked it.
create or replace function rota.finish_run(run uuid) returns void language plpgsql volatile as $$
declare
    its record;
    failed record;
    outcome smallint := {run.succeeded};
    reason json;
begin
    select r.* into its from rota.run as r where r.id = run;
    select w.name, w.kind, s.error, coalesce(s.job_id, run) as job_id into failed from (
        select s.* from rota.step as s
        where s.run_id = run and s.state in ({step.failed}, {step.upstream_failed}, {step.cancelled}) offset 0) as s
    cross join lateral (
        select w.name, w.kind, w.optional from rota.workflow_step as w
        where w.workflow_id = its.workflow_id and w.number = s.number offset 0) as w
    where not w.optional
    order by s.state, s.ended_at, s.number limit 1;
    if its.error is not null then
        outcome := {run.failed};
        reason := its.error;
    elsif its.cancel_at is not null then
        outcome := {run.cancelled};
    elsif failed.name is not null then
        outcome := {run.failed};
        reason := json_build_object('type', 'StepFailed', 'step', failed.name, 'job_id', failed.job_id, 'cause', failed.error,
                                    'message', format('step %s failed', failed.name) || case
            when failed.kind = {kind.function} and failed.error ->> 'type' = 'Quarantined' then rota.where_it_went_down(run)
            else '' end);
    end if;
    update rota.run as r set state = outcome, ended_at = rota.now(), paused_at = null, error = reason
    where r.id = run and r.state = {run.running};
    if not found then
        return;  -- it has ended already
    end if;
    update rota.step as s set state = {step.succeeded}, ended_at = rota.now()
    where s.run_id = run and s.number = (select max(number) from rota.step as l where l.run_id = run);
    if its.parent_id is not null then
        insert into rota.pending_step (run_id, step) values (its.parent_id, its.parent_step);
    elsif outcome = {run.failed} then
        insert into rota.event (namespace, kind, task, detail)
        values (its.namespace, 'run_failed', its.name, rota.failed_run_detail(run, its.round, reason));
    else
        perform rota.note_outcomes(array[run], case outcome when {run.succeeded} then 'run_succeeded' else 'run_cancelled' end);
    end if;
    delete from rota.pending_step as p where p.run_id = run;
end $$;

-- Closes what waits in a run, but for steps that always run, and leaves a note to stop what runs. `reason`: the run fails
-- with it, as at its deadline. The caller has locked the run.
create or replace function rota.close_run(run uuid, reason json default null) returns void language plpgsql volatile as $$
declare
    graph uuid;
    closed int[];
begin
    update rota.run as r set cancel_at = rota.now(), paused_at = null, error = reason where r.id = run
    returning r.workflow_id into graph;
    if reason is not null then
        insert into rota.event (namespace, kind, task, detail)
        select r.namespace, 'run_late', r.name, json_build_object('run', run, 'round', r.round, 'deadline', r.deadline)
        from rota.run as r where r.id = run and r.parent_id is null;
    end if;
    perform rota.stop_maps(run, graph);
    perform from rota.step as s where s.run_id = run and s.state = {step.waiting} order by s.number for update;
    select array_agg(s.number order by s.number) into closed from rota.step as s
    join rota.workflow_step as w on w.workflow_id = graph and w.number = s.number
    where s.run_id = run and s.state = {step.waiting} and w.rule <> {rule.always};
    if closed is not null then
        perform rota.settle_steps(run, closed, array_fill({step.cancelled}::smallint, array[cardinality(closed)]));
    end if;
    perform rota.start_ready_steps(run, graph);  -- those that always run, and were held back by a pause
    insert into rota.pending_step (run_id, step) values (run, null);
end $$;

-- The steps that come right after another.
create or replace function rota.steps_after(graph uuid, step int) returns setof int language sql stable rows 10 as $$
    select unnest(w.successors) from rota.workflow_step as w where w.workflow_id = graph and w.number = step
$$;

-- The steps that a resumed run repeats: those that failed or were cancelled, and those that would have had to wait for a
-- repeated one, because what stays of the steps before them does not let them start. So the run is again in a state that it
-- could have reached without the failure. A step that was skipped by hand waits for nothing.
--
-- One pass in the order of the numbers, which are topological. The counts are those that rota.resume_run() gives the steps.
create or replace function rota.steps_to_resume(run uuid) returns int[] language plpgsql stable as $$
declare
    its record;
    after int;
    again int[] := '{}';
    waits int[] := (select array_fill(0, array[max(s.number) + 1], array[0]) from rota.step as s where s.run_id = run);
    failed int[] := waits;
    skipped int[] := waits;
begin
    for its in
        select s.number, s.state, w.optional, w.successors, w.rule, w.predecessors, w.tolerated, r.workflow_id as graph,
               s.state = {step.succeeded} and s.error is not null as by_hand
        from rota.run as r
        join rota.step as s on s.run_id = r.id
        join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = s.number
        where r.id = run order by s.number
    loop
        if its.state = {step.cancelled} or its.state in ({step.failed}, {step.upstream_failed}) and not its.optional
            or not its.by_hand and rota.step_verdict(its.rule, its.predecessors, waits[its.number], failed[its.number],
                                                     skipped[its.number], its.tolerated) is null
        then
            again := again || its.number;
            foreach after in array its.successors loop
                waits[after] := waits[after] + 1;
            end loop;
        elsif its.state = {step.skipped} then
            foreach after in array its.successors loop
                skipped[after] := skipped[after] + 1;
            end loop;
        elsif its.state in ({step.failed}, {step.upstream_failed}) then
            foreach after in array its.successors loop
                failed[after] := failed[after] + rota.asks_for_one(its.graph, after)::int;
            end loop;
        end if;
    end loop;
    return again;
end $$;

-- All steps that come after some others, with those.
create or replace function rota.steps_from(run uuid, first int[]) returns int[] language sql stable as $$
    with recursive again as (
        select r.workflow_id as graph, f.number from rota.run as r cross join unnest(first) as f(number) where r.id = run
        union
        select a.graph, n.number from again as a cross join lateral rota.steps_after(a.graph, a.number) as n(number)
    )
    select array_agg(number order by number) from again
$$;

-- Lets steps of a run wait again, with counts that follow from the states of their predecessors, and starts those that
-- can start. The run is running again, if it had ended. The caller has locked it.
create or replace function rota.resume_run(run uuid, numbers int[]) returns void language plpgsql volatile as $$
declare
    graph uuid;
    last int := (select max(s.number) from rota.step as s where s.run_id = run);
begin
    perform from rota.step as s where s.run_id = run order by s.number for update;
    update rota.run as r
    set state = {run.running}, ended_at = null, cancel_at = null, error = null, round = r.round + 1,
        deadline_at = rota.now() + make_interval(secs => r.deadline), cancel_sent = false, forced = false, suspended = false
    where r.id = run returning r.workflow_id into graph;
    -- Nobody cancels it any more: what a function did after it was told of that is forgotten.
    delete from rota.checkpoint as c where c.run_id = run and c.number >= (
        select min(t.number) from rota.checkpoint as t where t.run_id = run and t.state = {step.cancelled});
    update rota.step as s
    set state = {step.waiting}, result = null, error = null, started_at = null, ended_at = null,
        -- The run of a sub-workflow goes on, unless it is to run again after a success.
        job_id = case when w.kind = {kind.workflow} and not (s.state = {step.succeeded} and exists (
            select from rota.run as c where c.id = s.job_id and c.state = {run.succeeded})) then s.job_id end
    from rota.workflow_step as w
    where s.run_id = run and (s.number = any(numbers) or s.number = last) and w.workflow_id = graph and w.number = s.number;
    with before as (
        select n.number, s.state, p.optional and not rota.asks_for_one(graph, n.number) as optional
        from rota.workflow_step as p join rota.step as s on s.run_id = run and s.number = p.number
        cross join lateral unnest(p.successors) as n(number)
        where p.workflow_id = graph
    ), counted as (
        select number, count(*) filter (where state <= {step.running}) as waits,
               count(*) filter (where state in ({step.failed}, {step.upstream_failed}, {step.cancelled}) and not optional) as failed,
               count(*) filter (where state = {step.skipped}) as skipped
        from before group by number
    )
    update rota.step as s set waits = c.waits, failed = c.failed, skipped = c.skipped
    from counted as c where s.run_id = run and s.number = c.number and s.state = {step.waiting};
    perform rota.start_ready_steps(run, graph);
end $$;

-- The result of a step, and the job, or run, under whose name it may be encrypted. That of a sub-workflow is its run's: of
-- several last steps it has as many parts, under their names.
create or replace function rota.step_result(run uuid, step int, path text[] default '{}')
    returns table (part text[], job_id uuid, result json) language plpgsql stable as $$
declare
    its record;
begin
    select s.job_id, s.result, s.state, w.kind into its from rota.step as s
    join rota.run as r on r.id = s.run_id
    join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = s.number
    where s.run_id = run and s.number = step;
    if its.kind = {kind.workflow} and its.state = {step.succeeded} and its.result is null then
        return query
        select v.part, v.job_id, v.result from rota.run as c
        join rota.workflow as w on w.id = c.workflow_id
        join rota.workflow_step as l on l.workflow_id = w.id and case when w.result_step is not null
            then l.number = w.result_step
            else l.successors = array[(select max(e.number) from rota.workflow_step as e where e.workflow_id = w.id)] end
        cross join lateral rota.step_result(
            c.id, l.number, case when w.result_step is not null then path else path || l.name end) as v
        where c.id = its.job_id;
    elsif its.state is not null then
        part := path;
        job_id := coalesce(its.job_id, run);
        result := its.result;
        return next;
    end if;
end $$;
