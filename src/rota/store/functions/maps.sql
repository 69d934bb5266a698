-- Maps: steps that call a task for each item of a list, in chunks of members.
--
-- A chunk's job has the number of its map's step plus {chunk.base} as its step. Order of locks: jobs, the run, maps, steps.
-- Whoever ends chunks locks their map: what it counts there decides whether the step ends. Whoever pauses or cancels the run
-- locks it as well, so that no chunk starts afterwards.

-- Locks the maps of a run, and its steps that wait or run.
create or replace function rota.lock_open_steps(run uuid) returns void language plpgsql volatile as $$
begin
    perform from rota.map as m where m.run_id = run order by m.step for update;
    perform from rota.step as s where s.run_id = run and s.state <= {step.running} order by s.number for update;
end $$;

-- How a map ends, whose members have all ended, or which was stopped.
create or replace function rota.map_outcome(run uuid, map_step int, out state smallint, out result json, out error json)
    language plpgsql stable as $$
declare
    m rota.map;
    allowed bigint;
begin
    select k.* into m from rota.map as k where k.run_id = run and k.step = map_step;
    allowed := case when m.share is null then m.tolerated else floor(round((m.share * m.members)::numeric, 6)) end;
    result := json_build_object('count', m.members, 'succeeded', m.succeeded, 'failed', m.failed);
    state := case when m.stopped then {step.cancelled} when m.failed > allowed then {step.failed} else {step.succeeded} end;
    if state = {step.failed} then
        error := json_build_object('type', 'MembersFailed', 'message', format(
            '%s of %s members failed, and %s may; `rota runs members` lists them', m.failed, m.members, allowed));
    end if;
end $$;

-- Starts chunks that wait, as many as there is room for in the window. The caller has locked the map.
create or replace function rota.start_chunks(run uuid, map_step int) returns void
    language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    m rota.map;
    numbers int[];
    jobs uuid[];
    announced bigint;
begin
    select * into m from rota.map as k where k.run_id = run and k.step = map_step;
    if m.job_id is null or m.held or m.stopped or m.running >= m.at_once then
        return;
    end if;
    with chosen as (
        update rota.map_chunk as c
        set state = {step.running}, job_id = rota.new_id(), token = null, begun = null, started_at = rota.now(), ended_at = null
        where c.ctid = any(array(
            select o.ctid from rota.map_chunk as o
            where o.run_id = run and o.step = map_step and o.number >= m.next and o.state = {step.waiting}
            order by o.number limit m.at_once - m.running))
        returning c.number, c.job_id
    )
    select array_agg(number), array_agg(job_id) into numbers, jobs from chosen;
    if numbers is null then
        return;
    end if;
    update rota.map as k
    set running = k.running + cardinality(numbers), next = 1 + (select max(n) from unnest(numbers) as n)
    where k.run_id = run and k.step = map_step;
    with job as materialized (
        select j.id, run as run_id, map_step + {chunk.base} as step, r.namespace, w.task, r.headers,
               coalesce(w.priority, r.priority, t.priority, 0::smallint) as priority,
               coalesce(w.guarantee, t.guarantee, {guarantee.at_least_once}::smallint) as guarantee,
               -- A chunk counts the attempts of its members by itself.
               case when m.each_job then coalesce(w.max_attempts, t.max_attempts, 5::smallint) else 32000::smallint end as max_attempts,
               coalesce(w.timeout, t.timeout) as timeout, json_build_object('$chunk', j.number) as payload,
               -- Members of a chunk run one after the other: as many run at a time as jobs do, which the task's limit counts.
               case when t.limited then rota.share_of(null, null, null, null, w.task) end as share,
               rota.lane(r.namespace, coalesce(w.queue, t.queue, 'default'), case when w.needs is null then coalesce(t.needs, '{}') else rota.needs_with(w.needs, t.needs) end) as base
        from unnest(numbers, jobs) as j(number, id)
        cross join lateral (select r.* from rota.run as r where r.id = run offset 0) as r
        cross join lateral (
            select w.* from rota.workflow_step as w where w.workflow_id = r.workflow_id and w.number = map_step offset 0) as w
        left join lateral (
            select t.* from rota.task as t where t.namespace = r.namespace and t.name = w.task offset 0) as t on true
    ), readied as (
        {{insert rota.present as p, submitted: due_at = rota.now(); schedule_id = null; key = null;
            lane = case when share is null then base else rota.sublane_of(base, share) end}}
        from job
        returning p.namespace, p.lane, p.rank
    )
    select count(*) into announced from (
        select rota.announce(namespace, lane, min(rank), count(*)) from readied group by namespace, lane) as each_lane;
end $$;

-- Ends chunks whose jobs have ended, and starts the next ones. Returns the steps of maps that end with them. A chunk that was
-- given another job meanwhile stays as it is. Members that a failed job leaves undone have failed.
create or replace function rota.end_chunks(
    runs uuid[], steps int[], jobs uuid[], states smallint[], results json[], errors json[]
) returns table (run_id uuid, number int, job_id uuid, state smallint, result json, error json) language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    ended record;
    of_map record;
begin
    perform from (select distinct e.run_id, e.step from unnest(runs, steps) as e(run_id, step) order by 1, 2) as k
    cross join lateral (select from rota.map as m where m.run_id = k.run_id and m.step = k.step for update offset 0) as locked;
    -- A worker may be recording members of a chunk that somebody else ends: an update by ctid would pass over that row.
    perform from unnest(runs, steps, jobs) as e(run_id, step, job_id)
    cross join lateral (
        select from rota.map_chunk as o
        where o.run_id = e.run_id and o.step = e.step and o.job_id = e.job_id and o.state = {step.running}
        for update offset 0) as locked;
    with gone as (
        update rota.map_chunk as c
        set state = case when e.state = {step.cancelled} and not m.stopped then {step.failed} else e.state end,
            ended_at = rota.now(), result = case when m.each_job then e.result end, begun = null,
            failed = case when m.each_job and (e.state = {step.failed} or e.state = {step.cancelled} and not m.stopped) then 1 else 0 end
        from unnest(runs, steps, jobs, states, results, errors) as e(run_id, step, job_id, state, result, error)
        cross join lateral (
            select m.stopped, m.each_job from rota.map as m where m.run_id = e.run_id and m.step = e.step offset 0) as m
        cross join lateral (
            select o.ctid as at from rota.map_chunk as o
            where o.run_id = e.run_id and o.step = e.step and o.job_id = e.job_id and o.state = {step.running} offset 0) as its
        where c.ctid = its.at and c.state = {step.running}
        returning c.run_id, c.step, c.number, c.first, c.size, case when m.each_job then 0 else c.done end as done, c.state, m.each_job,
                  coalesce(e.error, '{"type": "JobCancelled", "message": "its job was cancelled"}'::json) as error
    )
    select array_agg(run_id) as runs, array_agg(step) as steps, array_agg(number) as numbers, array_agg(first) as firsts,
           array_agg(size) as sizes, array_agg(done) as dones, array_agg(state) as states, array_agg(each_job) as jobs,
           array_agg(error) as errors, bool_or(state = {step.failed}) as failed, bool_or(not each_job) as shared
    into ended from gone;
    if ended.runs is null then
        return;
    end if;
    if ended.failed then
        update rota.map_member as b set state = {step.failed}
        from unnest(ended.runs, ended.steps, ended.firsts, ended.sizes, ended.states) as e(run_id, step, first, size, state)
        where b.run_id = e.run_id and b.step = e.step and b.number between e.first and e.first + e.size - 1
          and b.state = {step.waiting} and e.state = {step.failed};
        insert into rota.map_member as b (run_id, step, number, state, attempt, error)
        select e.run_id, e.step, n, {step.failed}, 1, e.error
        from unnest(ended.runs, ended.steps, ended.firsts, ended.sizes, ended.dones, ended.states, ended.errors)
            as e(run_id, step, first, size, done, state, error)
        cross join lateral generate_series(e.first + e.done, e.first + e.size - 1) as n
        where e.state = {step.failed}
        on conflict on constraint map_member_pkey do update
            set state = excluded.state, error = excluded.error, attempt = b.attempt + 1, ended_at = rota.now();
    end if;
    delete from rota.map_member as b  -- it failed in an earlier round
    using unnest(ended.runs, ended.steps, ended.firsts, ended.states, ended.jobs) as e(run_id, step, first, state, each_job)
    where e.each_job and e.state = {step.succeeded} and b.run_id = e.run_id and b.step = e.step and b.number = e.first;
    if ended.shared then
        update rota.map_chunk as c set failed = f.count
        from unnest(ended.runs, ended.steps, ended.numbers, ended.firsts, ended.sizes, ended.jobs)
            as e(run_id, step, number, first, size, each_job)
        cross join lateral (
            select count(*) from rota.map_member as b where b.run_id = e.run_id and b.step = e.step
               and b.number between e.first and e.first + e.size - 1 and b.state = {step.failed}) as f
        where not e.each_job and f.count > 0 and c.run_id = e.run_id and c.step = e.step and c.number = e.number;
    end if;
    for of_map in
        select e.run_id, e.step, count(*) as jobs, count(*) filter (where e.state <> {step.cancelled}) as chunks,
               sum(c.failed) filter (where e.state <> {step.cancelled}) as failed,
               sum(c.size - c.failed) filter (where e.state <> {step.cancelled}) as succeeded
        from unnest(ended.runs, ended.steps, ended.numbers, ended.states) as e(run_id, step, number, state)
        cross join lateral (
            select c.size, c.failed from rota.map_chunk as c
            where c.run_id = e.run_id and c.step = e.step and c.number = e.number offset 0) as c
        group by 1, 2 order by 1, 2
    loop
        update rota.map as k
        set running = k.running - of_map.jobs, ended = k.ended + of_map.chunks,
            failed = k.failed + coalesce(of_map.failed, 0), succeeded = k.succeeded + coalesce(of_map.succeeded, 0)
        where k.run_id = of_map.run_id and k.step = of_map.step;
        perform rota.start_chunks(of_map.run_id, of_map.step);
        return query select * from rota.end_map(of_map.run_id, of_map.step);
    end loop;
end $$;

-- Closes the book on a map that is over: returns how its step ends. No row: it isn't over. The caller has locked it.
create or replace function rota.end_map(run uuid, map_step int)
    returns table (run_id uuid, number int, job_id uuid, state smallint, result json, error json) language plpgsql volatile as $$
#variable_conflict use_column
declare
    m rota.map;
begin
    -- Nothing of it runs, and nothing more will.
    select k.* into m from rota.map as k where k.run_id = run and k.step = map_step and k.job_id is not null
      and k.running = 0 and (k.stopped or k.closed and k.ended = k.chunks);
    if found then
        update rota.map as k set job_id = null where k.run_id = run and k.step = map_step;
        return query select m.run_id, m.step, m.job_id, o.state, o.result, o.error from rota.map_outcome(run, map_step) as o;
    end if;
end $$;

-- Ends the step of a map that is over, outside of a finish. Returns whether there is something pending.
create or replace function rota.end_step_of_map(run uuid, map_step int) returns boolean language plpgsql volatile as $$
declare
    e record;
begin
    select * into e from rota.end_map(run, map_step);
    return found and rota.end_steps(array[e.run_id], array[e.number], array[e.job_id], array[e.state], array[e.result], array[e.error]);
end $$;

-- Makes the map of a step, with its first chunks. False: it is there already, and stays as it is.
create or replace function rota.make_map(
    run uuid, map_step int, map_id uuid, each_job boolean, at_once int, tolerated int, share float8, closed boolean, chunks json
) returns boolean language plpgsql volatile as $$
begin
    insert into rota.map (run_id, step, id, each_job, at_once, tolerated, share)
    values (run, map_step, map_id, make_map.each_job, make_map.at_once, make_map.tolerated, make_map.share)
    on conflict on constraint map_pkey do nothing;
    if not found then
        return false;
    end if;
    perform rota.add_chunks(run, map_step, chunks, make_map.closed);
    return true;
end $$;

-- Adds chunks to a map that is open, and perhaps closes it. The same chunks again add nothing. False: it is closed, or gone.
create or replace function rota.add_chunks(run uuid, map_step int, chunks json, closes boolean) returns boolean
    language plpgsql volatile as $$
declare
    new_chunks int;
    new_members bigint;
begin
    perform from rota.map as m where m.run_id = run and m.step = map_step and not m.closed and not m.stopped
       and exists (select from rota.run as r where r.id = run and r.state = {run.running} and r.cancel_at is null) for update;
    if not found then
        return closes and exists (select from rota.map as m where m.run_id = run and m.step = map_step and m.closed);
    end if;
    with added as (
        insert into rota.map_chunk (run_id, step, number, first, size, items)
        select run, map_step, c.number, c.first, c.size, c.items
        from json_to_recordset(chunks) as c(number int, first bigint, size int, items json)
        on conflict on constraint map_chunk_pkey do nothing
        returning size
    )
    select count(*), sum(size) into new_chunks, new_members from added;
    update rota.map as m
    set chunks = m.chunks + new_chunks, members = m.members + coalesce(new_members, 0), closed = closes
    where m.run_id = run and m.step = map_step;
    perform rota.start_chunks(run, map_step);
    perform rota.end_step_of_map(run, map_step);
    return true;
end $$;

-- Starts the step of a map. Returns its state: one that has nothing to do ends at once. The caller has locked run and steps.
create or replace function rota.start_map(run uuid, map_step int) returns smallint language plpgsql volatile as $$
declare
    m rota.map;
    outcome record;
begin
    update rota.map as k set held = false, stopped = false where k.run_id = run and k.step = map_step returning k.* into m;
    if m.closed and m.ended = m.chunks then
        select * into outcome from rota.map_outcome(run, map_step);
        update rota.step as s set result = outcome.result, error = outcome.error, started_at = rota.now()
        where s.run_id = run and s.number = map_step and s.state = {step.waiting};
        return outcome.state;
    end if;
    update rota.step as s set state = {step.running}, job_id = rota.new_id(), started_at = rota.now(), ended_at = null,
        result = null, error = null
    where s.run_id = run and s.number = map_step and s.state = {step.waiting} returning s.job_id into m.job_id;
    if found then
        update rota.map as k set job_id = m.job_id where k.run_id = run and k.step = map_step;
        perform rota.start_chunks(run, map_step);
    end if;
    return {step.running};
end $$;

-- Lets no further chunk of a run start, which is being cancelled, but for maps that always run; ends maps of which nothing runs.
create or replace function rota.stop_maps(run uuid, graph uuid) returns void language plpgsql volatile as $$
declare
    its record;
begin
    if not exists (select from rota.map as m where m.run_id = run) then
        return;
    end if;
    perform rota.lock_open_steps(run);
    for its in
        select m.step, w.rule <> {rule.always} as stops from rota.map as m
        join rota.workflow_step as w on w.workflow_id = graph and w.number = m.step
        where m.run_id = run and m.job_id is not null order by m.step
    loop
        update rota.map as m set stopped = its.stops, held = false where m.run_id = run and m.step = its.step;
        perform rota.start_chunks(run, its.step);
        perform rota.end_step_of_map(run, its.step);
    end loop;
end $$;

-- Holds back further chunks of a paused run, or lets them start again.
create or replace function rota.hold_maps(run uuid, hold boolean) returns void language plpgsql volatile as $$
declare
    its record;
begin
    for its in select m.step from rota.map as m where m.run_id = run order by m.step for update loop
        update rota.map as m set held = hold where m.run_id = run and m.step = its.step;
        perform rota.start_chunks(run, its.step);
    end loop;
end $$;

-- Opens chunks for attempts of their jobs, and returns what is to be done. A row for each job that is still this node's.
-- `careful`: an attempt before ended without a word, so that each member is recorded by itself. The member that had begun
-- then is blamed for that: it has failed once, and for good the second time.
create or replace function rota.open_chunks(me uuid, ids uuid[], tokens bigint[], runs uuid[], steps int[], numbers int[])
    returns table (id uuid, map_id uuid, each_job boolean, first bigint, size int, done int, careful boolean, blamed boolean,
                   max_attempts int, items json, arguments json, definition json, again json)
    language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    k record;
    c record;
    its record;
begin
    for k in
        select j.* from unnest(ids, tokens, runs, steps, numbers) as j(id, token, run_id, step, number)
        where exists (select from rota.present as p where p.id = j.id and p.token = j.token and p.node = me and p.state = {state.running})
        order by j.run_id, j.step, j.number
    loop
        select m.id, m.each_job, w.arguments, w.map as definition, coalesce(w.max_attempts, t.max_attempts, 5) as max_attempts into its
        from rota.map as m
        join rota.run as r on r.id = m.run_id
        join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = m.step
        left join rota.task as t on t.namespace = r.namespace and t.name = w.task
        where m.run_id = k.run_id and m.step = k.step;
        select o.* into c from rota.map_chunk as o
        where o.run_id = k.run_id and o.step = k.step and o.number = k.number and o.job_id = k.id and o.state = {step.running}
          and (o.token is null or o.token <= k.token) for update;
        continue when not found or its.id is null;
        id := k.id;
        map_id := its.id;
        each_job := its.each_job;
        first := c.first;
        size := c.size;
        done := c.done;
        careful := c.token is not null and c.token < k.token;
        blamed := false;
        max_attempts := its.max_attempts;
        items := c.items;
        arguments := its.arguments;
        definition := its.definition;
        again := null;
        if not its.each_job then
            if c.begun is not null and careful then
                blamed := true;
                if c.begun = c.first + c.done then
                    done := c.done + 1;
                end if;
                insert into rota.map_member as b (run_id, step, number, state, attempt, error)
                values (k.run_id, k.step, c.begun, case when its.max_attempts < 2 then {step.failed} else {step.waiting} end, 1,
                    json_build_object('type', 'Interrupted', 'message',
                        'its attempt ended without a result: it ran into its timeout, or its worker died'))
                on conflict on constraint map_member_pkey do update set error = excluded.error, attempt = b.attempt + 1,
                    state = case when b.attempt + 1 >= least(its.max_attempts, 2) then {step.failed} else {step.waiting} end;
                update rota.present as p set crashes = 0 where p.id = k.id and p.token = k.token and p.crashes > 0;
            end if;
            update rota.map_chunk as o set token = k.token, done = open_chunks.done, begun = null
            where o.run_id = k.run_id and o.step = k.step and o.number = k.number;
            select json_agg(json_build_array(b.number, b.attempt) order by b.number) into again from rota.map_member as b
            where b.run_id = k.run_id and b.step = k.step and b.number between c.first and c.first + c.size - 1
              and b.state = {step.waiting};
        end if;
        return next;
    end loop;
end $$;

-- Records members of a chunk: `done` were tried from its beginning on, `begun` begins now. Those that have failed once are in
-- `members`, results of others in `results`. False: the chunk is no longer this attempt's.
create or replace function rota.record_members(
    me uuid, job uuid, job_token bigint, run uuid, map_step int, chunk int, done int, begun bigint, first bigint, size int,
    results json, members json
) returns boolean language plpgsql volatile as $$
begin
    perform from rota.present as p where p.id = job and p.token = job_token and p.node = me and p.state = {state.running};
    if not found then
        return false;
    end if;
    update rota.map_chunk as c set done = record_members.done, begun = record_members.begun
    where c.run_id = run and c.step = map_step and c.number = chunk and c.job_id = job and c.token = job_token;
    if not found then
        return false;
    end if;
    if results is not null then
        insert into rota.map_result (run_id, step, first, size, results)
        values (run, map_step, record_members.first, record_members.size, record_members.results)
        on conflict on constraint map_result_pkey do update set size = excluded.size, results = excluded.results;
    end if;
    if members is not null then
        insert into rota.map_member as b (run_id, step, number, state, attempt, result, error)
        select run, map_step, n.number, n.state, n.attempt, n.result, n.error
        from json_to_recordset(members) as n(number bigint, state smallint, attempt smallint, result json, error json)
        on conflict on constraint map_member_pkey do update
            set state = excluded.state, attempt = excluded.attempt, result = excluded.result, error = excluded.error, ended_at = rota.now();
    end if;
    update rota.present as p set crashes = 0 where p.id = job and p.token = job_token and p.crashes > 0;
    return true;
end $$;

-- Lets members that have failed run again, all or some, and chunks that are not done; recounts the map.
create or replace function rota.reopen_map(run uuid, map_step int, only_members bigint[] default null) returns bigint
    language plpgsql volatile as $$
declare
    opened bigint;
begin
    perform from rota.map as m where m.run_id = run and m.step = map_step for update;
    update rota.map_member as b set state = {step.waiting}, attempt = 0
    where b.run_id = run and b.step = map_step and b.state = {step.failed} and (only_members is null or b.number = any(only_members))
      and not exists (  -- its attempt doesn't know of it, and would end without it
          select from rota.map_chunk as c where c.run_id = run and c.step = map_step and c.state = {step.running}
             and b.number between c.first and c.first + c.size - 1);
    get diagnostics opened = row_count;
    update rota.map_chunk as c
    set state = {step.waiting}, job_id = null, token = null, begun = null, failed = 0, ended_at = null, result = null
    where c.run_id = run and c.step = map_step and c.state <> {step.running} and (
        c.state not in ({step.succeeded}, {step.failed}) or exists (
            select from rota.map_member as b where b.run_id = run and b.step = map_step
               and b.number between c.first and c.first + c.size - 1 and b.state = {step.waiting}));
    update rota.map as m
    set chunks = n.chunks, running = n.running, ended = n.ended, next = coalesce(n.next, n.chunks), succeeded = n.succeeded, failed = n.failed
    from (
        select count(*) as chunks, count(*) filter (where c.state = {step.running}) as running,
               count(*) filter (where c.state in ({step.succeeded}, {step.failed})) as ended,
               min(c.number) filter (where c.state = {step.waiting}) as next,
               coalesce(sum(c.failed) filter (where c.state in ({step.succeeded}, {step.failed})), 0) as failed,
               coalesce(sum(c.size - c.failed) filter (where c.state in ({step.succeeded}, {step.failed})), 0) as succeeded
        from rota.map_chunk as c where c.run_id = run and c.step = map_step) as n
    where m.run_id = run and m.step = map_step;
    return opened;
end $$;

create or replace function rota.forget_map(run uuid, map_step int) returns void language plpgsql volatile as $$
begin
    delete from rota.map as m where m.run_id = run and m.step = map_step;
    delete from rota.map_chunk as c where c.run_id = run and c.step = map_step;
    delete from rota.map_result as p where p.run_id = run and p.step = map_step;
    delete from rota.map_member as b where b.run_id = run and b.step = map_step;
end $$;

-- Lets all members of a map run anew. Its list stays: what a generator has yielded is nowhere else. Nothing of it runs.
create or replace function rota.renew_map(run uuid, map_step int) returns void language plpgsql volatile as $$
begin
    update rota.map as m set next = 0, running = 0, ended = 0, succeeded = 0, failed = 0 where m.run_id = run and m.step = map_step;
    update rota.map_chunk as c
    set state = {step.waiting}, job_id = null, token = null, begun = null, done = 0, failed = 0, started_at = null, ended_at = null,
        result = null
    where c.run_id = run and c.step = map_step;
    delete from rota.map_result as p where p.run_id = run and p.step = map_step;
    delete from rota.map_member as b where b.run_id = run and b.step = map_step;
end $$;

-- Begins the lists of the maps that are over a generator, for an attempt of its job; what an attempt before has stored is
-- forgotten. Maps that wait for nothing any more are left alone. Returns the maps; `lost`: the job is no longer this node's.
--
-- The lock keeps the job from moving on meanwhile. An attempt that doesn't know yet that it has lost its job knows another
-- map by its id: what it adds finds no map (`rota.feed_maps`).
create or replace function rota.open_feed(me uuid, job uuid, job_token bigint, run uuid, source int)
    returns table (step int, id uuid, name text, task text, map json, rated boolean, per_key boolean, guarantee smallint, lost boolean)
    language plpgsql volatile as $$
#variable_conflict use_column
declare
    its record;
begin
    perform from rota.present as p
    where p.id = job and p.token = job_token and p.node = me and p.state = {state.running} for share;
    lost := not found;
    if lost then
        return next;
        return;
    end if;
    for its in
        select w.number, w.name, w.task, w.map, coalesce(t.rate_count is not null, false) as rated,
               coalesce(t.per_key, false) as per_key, coalesce(w.guarantee, t.guarantee) as guarantee
        from rota.run as r
        join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.kind = {kind.map}
             and w.map -> 'over' ->> '$step' = source::text and w.map -> 'over' -> 'path' is null
        join rota.step as s on s.run_id = r.id and s.number = w.number and s.state = {step.waiting}
        left join rota.task as t on t.namespace = r.namespace and t.name = w.task
        where r.id = run order by w.number
    loop
        perform rota.forget_map(run, its.number);
        insert into rota.map as m (run_id, step, id, each_job, at_once, tolerated, share)
        values (run, its.number, rota.new_id(), its.map ->> 'each' = 'job', (its.map ->> 'at_once')::int,
                (its.map ->> 'tolerated')::int, (its.map ->> 'share')::float8)
        returning m.id into id;
        step := its.number;
        name := its.name;
        task := its.task;
        map := its.map;
        rated := its.rated;
        per_key := its.per_key;
        guarantee := its.guarantee;
        return next;
    end loop;
end $$;

-- Adds chunks to the lists of maps that an attempt of a generator's job has begun, and perhaps closes them. The same chunks
-- again add nothing. Returns the steps whose maps are still the attempt's; null: the job is no longer this node's.
create or replace function rota.feed_maps(me uuid, job uuid, job_token bigint, run uuid, feeds json, closes boolean)
    returns int[] language plpgsql volatile as $$
declare
    its record;
    added record;
    fed int[] := '{}';
begin
    perform from rota.present as p
    where p.id = job and p.token = job_token and p.node = me and p.state = {state.running} for share;
    if not found then
        return null;
    end if;
    for its in select f.* from json_to_recordset(feeds) as f(step int, id uuid, chunks json) order by f.step loop
        perform from rota.map as m where m.run_id = run and m.step = its.step and m.id = its.id and m.job_id is null for update;
        continue when not found;
        with stored as (
            insert into rota.map_chunk (run_id, step, number, first, size, items)
            select run, its.step, c.number, c.first, c.size, c.items
            from json_to_recordset(its.chunks) as c(number int, first bigint, size int, items json)
            on conflict on constraint map_chunk_pkey do nothing
            returning size
        )
        select count(*) as chunks, coalesce(sum(size), 0) as members into added from stored;
        update rota.map as m set chunks = m.chunks + added.chunks, members = m.members + added.members, closed = closes
        where m.run_id = run and m.step = its.step;
        fed := fed || its.step;
    end loop;
    return fed;
end $$;

-- Before steps of a run wait again: a map goes on with what failed or is left. One whose list comes from such a step may
-- get another list. One that comes after such a step, and has its list from elsewhere, calls all members anew. `but` is left
-- alone.
create or replace function rota.reopen_other_maps(run uuid, numbers int[], but int) returns void language plpgsql volatile as $$
declare
    its record;
begin
    for its in
        select m.step, coalesce((w.map -> 'over' ->> '$step')::int = any(numbers), true) as list_changes, exists (
            select from rota.workflow_step as p where p.workflow_id = r.workflow_id and p.number = any(numbers)
               and m.step = any(p.successors)) as changed
        from rota.map as m join rota.run as r on r.id = m.run_id
        join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.number = m.step
        where m.run_id = run and m.step = any(numbers) and m.step <> but order by m.step
    loop
        if its.changed and its.list_changes then
            perform rota.forget_map(run, its.step);
        elsif its.changed then
            perform rota.renew_map(run, its.step);
        else
            perform rota.reopen_map(run, its.step);
        end if;
    end loop;
end $$;

-- The same for all maps: for nodes of the release before.
create or replace function rota.reopen_maps(run uuid, numbers int[]) returns void language sql volatile as
    $$ select rota.reopen_other_maps(run, numbers, -1) $$;
