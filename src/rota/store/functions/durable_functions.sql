-- How durable functions are recorded, suspended and woken.
--
-- Order of locks: a signal's name and key (an advisory lock), jobs, runs by id, then checkpoints. Whoever ends what a
-- function waits for locks its job, if that is in the future, and its run; whoever suspends a function locks its job, in the
-- present, and its run. So either the one sees that the function has gone, or the other that the wait is over.

-- Locks functions that may be suspended, and their runs.
create or replace function rota.lock_functions(runs uuid[]) returns void language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
begin
    perform from (
        select s.job_id from (select distinct unnest(runs) as id) as e
        cross join lateral (select s.job_id from rota.step as s where s.run_id = e.id and s.number = 0 offset 0) as s
        order by s.job_id
    ) as k
    cross join lateral (select from rota.future as f where f.id = k.job_id for update offset 0) as locked;
    perform from (select distinct unnest(runs) as id order by 1) as k
    cross join lateral (select from rota.run as r where r.id = k.id for update offset 0) as locked;
end $$;

-- Lets functions that are suspended go on. The caller has locked them.
create or replace function rota.wake_functions(runs uuid[]) returns void language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    hinted bigint;
begin
    with woken as (
        update rota.run as r set suspended = false, waits_left = null
        where r.id = any(runs) and r.suspended and (r.paused_at is null or r.cancel_at is not null)
        returning r.id
    ), gone as (
        delete from rota.future as f where f.id = any(array(
            select s.job_id from woken as w
            cross join lateral (select s.job_id from rota.step as s where s.run_id = w.id and s.number = 0 offset 0) as s))
        returning f.*
    ), readied as (
        {{insert rota.present as p, moved: due_at = rota.now()}}
        from gone
        returning p.namespace, p.lane, p.rank
    )
    select count(*) into hinted from (
        select rota.hint(namespace, lane, min(rank), count(*)) from readied group by namespace, lane) as each_lane;
end $$;

-- Counts waits that have ended, each by its run, and lets those functions go on that have waited for them. The caller has
-- locked them.
create or replace function rota.count_ended_waits(runs uuid[]) returns void language plpgsql volatile as $$
declare
    ready uuid[];
begin
    with ended as (
        select e.id, count(*) as number from unnest(runs) as e(id) group by e.id
    ), counted as (
        update rota.run as r set waits_left = r.waits_left - e.number from ended as e
        where r.id = e.id and r.suspended and r.waits_left > e.number
        returning r.id
    )
    select array_agg(e.id) into ready from ended as e where e.id not in (select c.id from counted as c);
    if ready is not null then
        perform rota.wake_functions(ready);
    end if;
end $$;

-- Ends calls: their jobs, or runs, have ended. A call that was closed meanwhile stays as it is. Numbers are negative, as
-- those of the jobs are. A job that was cancelled is a call that failed: a cancelled checkpoint says that the function's own
-- run is being cancelled.
create or replace function rota.end_calls(runs uuid[], numbers int[], jobs uuid[], states smallint[], results json[], errors json[])
    returns void language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    ended uuid[];
begin
    perform rota.lock_functions(runs);
    with done as (
        update rota.checkpoint as c
        set state = case e.state when {step.cancelled} then {step.failed} else e.state end, result = e.result,
            error = case e.state when {step.cancelled} then coalesce(e.error, json_build_object(
                'type', 'Cancelled', 'message', 'what was called was cancelled')) else e.error end,
            ended_at = rota.now()
        from unnest(runs, numbers, jobs, states, results, errors) as e(run_id, number, job_id, state, result, error)
        cross join lateral (
            select o.ctid as at from rota.checkpoint as o
            where o.run_id = e.run_id and o.number = -e.number and o.job_id = e.job_id and o.state = {step.waiting}
            offset 0) as its
        where c.ctid = its.at and c.state = {step.waiting}
        returning c.run_id
    )
    select array_agg(run_id) into ended from done;
    if ended is not null then
        perform rota.count_ended_waits(ended);
    end if;
end $$;

-- Ends the calls of runs that have ended: a run says so by a pending step with the call's negative number. So does a signal
-- that nobody was offered yet.
create or replace function rota.end_called_runs(run uuid) returns void language plpgsql volatile as $$
declare
    its record;
begin
    select s.namespace, s.name, s.key into its from rota.run_signal as s where s.id = run;
    if found then
        perform rota.offer_signals(its.namespace, its.name, its.key);
        delete from rota.pending_step as p where p.run_id = run and p.step < 0;
        return;
    end if;
    perform rota.lock_functions(array[run]);
    with taken as (
        delete from rota.pending_step as p where p.run_id = run and p.step < 0 returning p.step
    )
    select array_agg(run) as runs, array_agg(-c.number) as numbers, array_agg(c.job_id) as jobs,
           array_agg((case r.state when {run.succeeded} then {step.succeeded} when {run.cancelled} then {step.cancelled}
                      else {step.failed} end)::smallint) as states,
           array_agg(v.result) as results, array_agg(r.error) as errors
    into its
    from (select distinct step from taken) as t
    join rota.checkpoint as c on c.run_id = run and c.number = -t.step and c.state = {step.waiting}
    join rota.run as r on r.id = c.job_id and r.state > {run.running}
    left join lateral rota.run_result(r.id) as v on r.state = {run.succeeded};
    if its.runs is not null then
        perform rota.end_calls(its.runs, its.numbers, its.jobs, its.states, its.results, its.errors);
    end if;
end $$;

-- The result of a run that has succeeded, with the job under whose name it may be encrypted, as a JSON object.
create or replace function rota.run_result(run uuid, out result json) language plpgsql stable as $$
begin
    select json_build_object('job', v.job_id, 'result', v.result) into result from rota.run as r
    join rota.workflow as w on w.id = r.workflow_id and w.result_step is not null
    cross join lateral rota.step_result(r.id, w.result_step) as v
    where r.id = run;
end $$;

-- What a function needs to begin: its run, and its history. Waits whose time has come are ended. No row: the job is no
-- longer this node's.
create or replace function rota.open_function(me uuid, job uuid, job_token bigint, run uuid)
    returns table (cancelled boolean, paused boolean, round int, code int, now timestamptz, number int, kind smallint,
                   state smallint, attempt smallint, name text, digest text, job_id uuid, wake_at timestamptz,
                   ended_at timestamptz, result json, error json)
    language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    perform from rota.present as p where p.id = job and p.token = job_token and p.node = me and p.state = {state.running};
    if not found then
        return;
    end if;
    update rota.checkpoint as c
    set state = case c.kind when {checkpoint.sleep} then {step.succeeded} else {step.failed} end, ended_at = rota.now(),
        error = case c.kind when {checkpoint.signal} then json_build_object('type', 'WaitTimedOut', 'message',
            format('no signal %s came in time', c.signal)) end
    where c.run_id = run and c.state = {step.waiting} and c.kind in ({checkpoint.sleep}, {checkpoint.signal})
      and c.wake_at <= rota.now();
    return query
    select r.cancel_at is not null, r.paused_at is not null and r.cancel_at is null, r.round,
           (w.definition ->> 'code_version')::int, rota.now(),
           c.number, c.kind, c.state, c.attempt, c.name, c.digest, c.job_id, c.wake_at, c.ended_at, c.result, c.error
    from rota.run as r
    cross join lateral (select w.definition from rota.workflow as w where w.id = r.workflow_id offset 0) as w
    left join lateral (select c.* from rota.checkpoint as c where c.run_id = r.id offset 0) as c on true
    where r.id = run
    order by c.number;
end $$;

-- Suspends a function until one of `waits` is over, or all of `joined` are: `suspended`; `ready`: that is so already;
-- `stopped`: its job was cancelled; `lost`: the job is no longer this node's. `problem` parks it: it is paused until somebody
-- resumes the run. `overdue`: the run's deadline has passed, and it is not parked for longer.
--
-- When the time of a joined wait has come, nobody counts it. So the function goes on at the last of these times, whatever is
-- left then, and is suspended again if it must.
create or replace function rota.suspend_function(
    me uuid, job uuid, job_token bigint, run uuid, waits int[], joined int[], knows_cancel boolean, problem json default null
) returns text language plpgsql volatile as $$
declare
    held record;
    its record;
    wakes timestamptz := rota.now() + interval '100 years';
    left_over int;
begin
    select p.cancel_at into held from rota.present as p
    where p.id = job and p.token = job_token and p.node = me and p.state = {state.running} for update;
    if not found then
        return 'lost';
    end if;
    if held.cancel_at is not null then
        return 'stopped';
    end if;
    select r.cancel_at, r.paused_at is not null and r.cancel_at is null as paused, r.error into its
    from rota.run as r where r.id = run for update;
    if problem is not null and its.cancel_at is not null and its.error is not null then
        update rota.run as r set problem = suspend_function.problem where r.id = run;
        return 'overdue';
    end if;
    if problem is null and not its.paused then
        select least(wakes, min(c.wake_at) filter (where c.number = any(waits)), max(c.wake_at)),
               count(*) filter (where c.number = any(joined))
        into wakes, left_over from rota.checkpoint as c
        where c.run_id = run and c.number = any(waits || joined)
          and c.state < {step.succeeded} and (c.wake_at is null or c.wake_at > rota.now());
        -- Without anything to wait for it has seen a pause, which is over meanwhile.
        if (its.cancel_at is not null and not knows_cancel)
            or (left_over = 0 and (joined <> '{}' or waits = '{}')) or exists (
            select from rota.checkpoint as c where c.run_id = run and c.number = any(waits)
               and (c.state >= {step.succeeded} or c.wake_at <= rota.now()))
        then
            return 'ready';
        end if;
    end if;
    update rota.run as r
    set suspended = true, waits_left = left_over, problem = coalesce(suspend_function.problem, r.problem),
        paused_at = case when suspend_function.problem is null then r.paused_at else coalesce(r.paused_at, rota.now()) end
    where r.id = run;
    if problem is not null then
        insert into rota.event (namespace, kind, task, detail)
        select r.namespace, 'run_parked', r.name, json_build_object('run', run, 'message', left(suspend_function.problem ->> 'message', 300))
        from rota.run as r where r.id = run;
    end if;
    with gone as (
        delete from rota.present as p where p.id = job returning p.*
    )
    {{insert rota.future, moved: due_at = wakes; attempt = 0; crashes = 0}}
    from gone;
    return 'suspended';
end $$;

-- Begins a function anew, with other arguments and without a history.
create or replace function rota.restart_function(me uuid, job uuid, job_token bigint, run uuid, given json)
    returns boolean language plpgsql volatile as $$
begin
    perform from rota.present as p
    where p.id = job and p.token = job_token and p.node = me and p.state = {state.running} and p.cancel_at is null for update;
    if not found then
        return false;
    end if;
    update rota.run as r set input = given, round = r.round + 1, restarts = r.restarts + 1 where r.id = run;
    delete from rota.checkpoint as c where c.run_id = run;
    update rota.present as p
    set state = {state.ready}, node = null, claimed_at = null, started_at = null, attempt = 0, crashes = 0
    where p.id = job;
    perform rota.hint(p.namespace, p.lane, p.rank, 1) from rota.present as p where p.id = job;
    return true;
end $$;

-- Whether a function may begin something outside of it: unless its run is being cancelled and it was not told yet. Keeps a
-- cancel from coming in between: it closes what was begun before it.
create or replace function rota.may_call(runs uuid[]) returns uuid[] language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
begin
    perform from (select distinct unnest(runs) as id order by 1) as k
    cross join lateral (select from rota.run as r where r.id = k.id for share offset 0) as locked;
    return array(
        select k.id from (select distinct unnest(runs) as id) as k
        cross join lateral (select r.cancel_at from rota.run as r where r.id = k.id offset 0) as r
        where r.cancel_at is null or exists (
            select from rota.checkpoint as c where c.run_id = k.id and c.state = {step.cancelled}));
end $$;

-- Makes calls: a checkpoint and a job for each. Those whose function is no longer this node's or has to be told of a cancel
-- first, or which were made by another attempt, are left out. Returns the numbers in `children` (from 0) of those that were made, now or before.
create or replace function rota.call_jobs(
    me uuid, jobs uuid[], tokens bigint[], runs uuid[], numbers int[], names text[], digests text[], children json[]
) returns int[] language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    made record;
    allowed uuid[] := rota.may_call(runs);
begin
    with given as (
        select g.*, (g.child ->> 'id')::uuid as child_id
        from unnest(jobs, tokens, runs, numbers, names, digests, children) with ordinality
            as g(job, token, run_id, number, name, digest, child, place)
        cross join lateral (
            select from rota.present as p
            where p.id = g.job and p.token = g.token and p.node = me and p.state = {state.running} offset 0) as held
        where g.run_id = any(allowed)
    ), noted as (
        insert into rota.checkpoint as c (run_id, number, kind, state, token, job_id, name, digest)
        select run_id, number, {checkpoint.call}, {step.waiting}, token, child_id, name, digest from given
        on conflict (run_id, number) do nothing
        returning c.run_id, c.number
    ), known as (
        select g.place, g.child, g.child_id, g.run_id, g.number, n.run_id is not null as new
        from given as g left join noted as n on n.run_id = g.run_id and n.number = g.number
        where n.run_id is not null or exists (
            select from rota.checkpoint as c where c.run_id = g.run_id and c.number = g.number and c.job_id = g.child_id)
    )
    select array_agg(place - 1) as places, json_agg(child) filter (where new) as children,
           array_agg(child_id) filter (where new) as ids, array_agg(run_id) filter (where new) as runs,
           array_agg(number) filter (where new) as numbers
    into made from known;
    if made.ids is not null then
        perform rota.submit_jobs(made.children, false, 'never');
        update rota.present as p set run_id = k.run_id, step = -k.number
        from unnest(made.ids, made.runs, made.numbers) as k(id, run_id, number)
        cross join lateral (select o.ctid as at from rota.present as o where o.id = k.id offset 0) as its
        where p.ctid = its.at;
        update rota.future as f set run_id = k.run_id, step = -k.number
        from unnest(made.ids, made.runs, made.numbers) as k(id, run_id, number)
        cross join lateral (select o.ctid as at from rota.future as o where o.id = k.id offset 0) as its
        where f.ctid = its.at;
    end if;
    return coalesce(made.places, '{}');
end $$;

-- Makes a call of a workflow or of another durable function: a checkpoint and a run. False: the function is no longer this
-- node's, or has to be told of a cancel first.
create or replace function rota.call_run(
    me uuid, job uuid, job_token bigint, run uuid, number int, name text, digest text, child json
) returns boolean language plpgsql volatile as $$
declare
    its record;
    child_id uuid := (child ->> 'id')::uuid;
begin
    perform from rota.present as p where p.id = job and p.token = job_token and p.node = me and p.state = {state.running};
    if not found or cardinality(rota.may_call(array[run])) = 0 then
        return false;
    end if;
    insert into rota.checkpoint as c (run_id, number, kind, state, token, job_id, name, digest)
    values (run, call_run.number, {checkpoint.run}, {step.waiting}, job_token, child_id, call_run.name, call_run.digest)
    on conflict on constraint checkpoint_pkey do nothing;
    if not found then
        return exists (
            select from rota.checkpoint as c where c.run_id = run and c.number = call_run.number and c.job_id = child_id);
    end if;
    select r.namespace, r.priority, r.headers, r.deadline_at into its from rota.run as r where r.id = run;
    perform rota.start_run(child ->> 'workflow', child -> 'input', child_id, its.namespace, (child ->> 'version')::int,
        coalesce((child ->> 'priority')::int, its.priority), (child ->> 'deadline')::float8, its.headers,
        parent => run, parent_step => -call_run.number);
    update rota.run as c set deadline_at = least(c.deadline_at, its.deadline_at) where c.id = child_id;
    return true;
end $$;

-- Tells a function that its run is being cancelled: closes what it waits for and wakes it. Only once, because the function
-- may still clean up; and again when the cancel is repeated, which stops the function itself. A function that has seen
-- the cancel by itself, meanwhile, cleans up already: what it has begun since then stays. A step that waits for its next
-- try is closed only while the function is suspended: else it may be tried at this moment. What is over by its time is left to
-- the next replay, which ends it so: the function may have passed it, and done something since then that it did not record.
create or replace function rota.cancel_function(run uuid) returns void language plpgsql volatile as $$
declare
    told int;
begin
    perform rota.lock_functions(array[run]);
    update rota.run as r set cancel_sent = true
    where r.id = run and r.cancel_at is not null and r.state = {run.running} and (r.forced or not r.cancel_sent);
    if found then
        select max(c.number) into told from rota.checkpoint as c join rota.run as r on r.id = run and not r.forced
        where c.run_id = run and c.state = {step.cancelled};
        update rota.checkpoint as c set state = {step.cancelled}, ended_at = rota.now()
        where c.run_id = run and c.state = {step.waiting} and (told is null or c.number < told)
          and (c.kind <> {checkpoint.step} or exists (select from rota.run as r where r.id = run and r.suspended))
          and (c.kind not in ({checkpoint.sleep}, {checkpoint.signal}) or c.wake_at is null or c.wake_at > rota.now());
        perform rota.wake_functions(array[run]);
    end if;
end $$;

-- Notes who won a race, and closes the waits of the losers, which nobody waits for any more. A signal that one of them has
-- taken is given back. Returns what is left to do: jobs and runs to stop, by their kind, and signals to offer to others. The
-- same again gives the same answer. Null: the function is no longer this node's.
create or replace function rota.close_waits(
    me uuid, job uuid, job_token bigint, run uuid, numbers int[], winner int, winner_name text, winner_result json
) returns json language plpgsql volatile as $$
begin
    -- Before anything else, as whoever sends them does.
    perform rota.lock_signal(k.namespace, k.signal, k.signal_key) from (
        select distinct c.namespace, c.signal, c.signal_key from rota.checkpoint as c
        where c.run_id = run and c.number = any(numbers) and c.kind = {checkpoint.signal} order by 1, 2, 3) as k;
    perform from rota.present as p where p.id = job and p.token = job_token and p.node = me and p.state = {state.running};
    if not found then
        return null;
    end if;
    perform from rota.run as r where r.id = run for update;
    insert into rota.checkpoint as c (run_id, number, kind, state, token, name, result, ended_at)
    values (run, winner, {checkpoint.note}, {step.succeeded}, job_token, winner_name, winner_result, rota.now())
    on conflict on constraint checkpoint_pkey do nothing;
    if not exists (select from rota.checkpoint as c where c.run_id = run and c.number = winner and c.name = winner_name) then
        return null;  -- of another attempt
    end if;
    with back as (
        select c.number, c.job_id from rota.checkpoint as c
        where c.run_id = run and c.number = any(numbers) and c.kind = {checkpoint.signal} and c.state = {step.succeeded}
    ), given as (
        update rota.run_signal as s set taken_at = null, run_id = null from back as b where s.id = b.job_id
    )
    update rota.checkpoint as c set state = {step.skipped}, ended_at = rota.now(), result = null, error = null,
        job_id = case c.kind when {checkpoint.signal} then null else c.job_id end
    where c.run_id = run and c.number = any(numbers)
      and (c.state = {step.waiting} or c.number in (select b.number from back as b));
    return (
        select coalesce(json_agg(json_build_object('job_id', c.job_id, 'kind', c.kind, 'signal', c.signal, 'key', c.signal_key)),
                        '[]')
        from rota.checkpoint as c
        where c.run_id = run and c.number = any(numbers) and c.state = {step.skipped}
          and c.kind in ({checkpoint.call}, {checkpoint.run}, {checkpoint.signal}));
end $$;

-- Forgets what a function did from where it failed, so that its run can go on from there: the last note says where that is,
-- and which numbers after it are kept (`5 6-9 12`): what other branches of a gather have done, which did not fail. A failure
-- that the function has dealt with stays in the history.
create or replace function rota.forget_failure(run uuid) returns void language sql volatile as $$
    with note as (
        select string_to_array(n.digest, ' ') as parts from rota.checkpoint as n
        where n.run_id = run and n.kind = {checkpoint.note} and n.state = {step.failed}
        order by n.number desc limit 1
    ), kept as materialized (
        select g.number from note as n
        cross join lateral unnest(n.parts[2:]) as p(part)
        cross join lateral generate_series(split_part(p.part, '-', 1)::int, split_part(p.part, '-', -1)::int) as g(number)
    )
    delete from rota.checkpoint as c
    where c.run_id = run and c.number >= (select n.parts[1]::int from note as n)
      and c.number not in (select k.number from kept as k)
$$;
