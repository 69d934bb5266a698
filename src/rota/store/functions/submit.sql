-- Submission in SQL: one implementation for Python's small batches, for callers' own transactions
-- through any driver, and for plain SQL.

-- Whether Rota alone submits jobs of this task. The same as is_internal_task() in Python. Not written in one
-- word: these are tasks' names, and stay what they are in a schema of another name.
create or replace function rota.is_internal_task(task text) returns boolean language sql immutable parallel safe as
    $$ select starts_with(task, 'rota' || '.') and task <> 'rota' || '.command' $$;

-- Whether the current role may store a job of this task. Those that may write events may hand them over, too.
create or replace function rota.may_store(task text) returns boolean language sql stable parallel safe as
    $$ select not rota.is_internal_task(task) or has_table_privilege('rota.event', 'insert') $$;

create or replace function rota.internal_task_problem(task text) returns text language sql stable as
    $$ select format('task %L is internal: Rota submits its jobs itself. Choose a task of your own', task) $$;

-- Refuses a job that can't be stored, naming the field. There is no query inside, because PostgreSQL evaluates
-- what is only an expression without starting its executor.
create or replace function rota.check_job(
    namespace text, task text, queue text, needs text[], key text, payload json, headers json,
    max_attempts int, guarantee int, timeout real, due_at timestamptz, payload_limit bigint
) returns boolean language plpgsql stable as $$
declare
    problem text := case
        when task is null or not rota.is_name(task) then format('task %L is not a usable name', task)
        when rota.is_internal_task(task) and not rota.may_store(task)
            then rota.internal_task_problem(task)
        when not rota.is_name(namespace) then format('namespace %L is not a usable name', namespace)
        when not rota.is_name(queue) then format('queue %L is not a usable name', queue)
        when needs <> '{}' and not rota.are_needs(needs)
            then format('needs %L holds something that is not a usable name', needs)
        when length(key) not between 1 and 255 then 'key must be 1 to 255 characters long'
        when json_typeof(payload) <> 'object' then 'payload must be a JSON object: argument names and values'
        when octet_length(payload::text) > payload_limit
             -- An envelope is longer than what is in it.
             and not (rota.is_encrypted(payload) and octet_length(payload::text) <= payload_limit * 4 / 3 + 300)
            then format('payload has %s bytes, the limit is %s: store large data elsewhere and pass a reference',
                        octet_length(payload::text), payload_limit)
        when json_typeof(headers) <> 'object' then 'headers must be a JSON object'
        when headers -> 'heartbeat_timeout' is not null and rota.own_heartbeat_timeout(headers) is null
            then 'heartbeat_timeout in headers must be above 0 seconds'
        when octet_length(headers::text) > 16384 then 'headers are over 16384 bytes'
        when max_attempts not between 1 and 32000 then 'max_attempts must be from 1 to 32000'
        when guarantee not between {guarantee.at_least_once} and {guarantee.exactly_once}
            then 'guarantee must be 1 (at_least_once), 2 (at_most_once) or 3 (exactly_once)'
        when timeout <= 0 then 'timeout must be above 0 seconds'
        when not isfinite(due_at) then 'the due time must be finite'
        -- The same as YEARS in core/years.py: others can't be read again.
        when due_at < timestamptz '1970-01-01 00:00:00+00' or due_at >= timestamptz '9999-01-01 00:00:00+00'
            then format('the due time %s is not in the years 1970 to 9998', due_at at time zone 'UTC')
    end;
begin
    if problem is not null then
        raise exception using errcode = 'RT001', message = 'rota: ' || problem,
            hint = 'Nothing was submitted.';
    end if;
    return true;
end $$;

-- Stores one job without a key: a few small statements, which cost a third of rota.submit_together(). It is
-- checked by the same function, with the same defaults, and goes into the same tables. functions/quotas.sql says what
-- `how` is.
create or replace function rota.submit_alone(job json, how text default 'caller', out job_id uuid, out warning text)
    language plpgsql volatile
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    j record;
    t record;
    set_horizon bigint;
    set_limit bigint;
    set_shards bigint;
    its_id uuid;
    its_space text;
    its_queue text;
    its_needs text[];
    its_lane text;
    its_base text;
    its_share text;
    its_due timestamptz;
    its_priority smallint;
    its_guarantee smallint;
    its_attempts smallint;
    its_timeout real;
    its_rank bigint;
    its_intake smallint;
begin
    select * into j from json_to_record(job) as r(
        id uuid, namespace text, task text, payload json, headers json, queue text, needs text[],
        priority smallint, guarantee smallint, max_attempts smallint, timeout real, at timestamptz,
        delay double precision, concurrency_key text, fairness_key text, order_key text, order_failure text,
        punctual text);
    its_id := coalesce(j.id, rota.new_id());
    its_space := coalesce(j.namespace, 'default');
    select * into t from rota.task as k where k.namespace = its_space and k.name = j.task;
    its_queue := coalesce(j.queue, t.queue, 'default');
    its_needs := case when j.needs is null then coalesce(t.needs, '{}') else rota.needs_with(j.needs, t.needs) end;
    its_priority := coalesce(j.priority, t.priority, {default.priority});
    its_guarantee := coalesce(j.guarantee, t.guarantee, {default.guarantee});
    its_attempts := coalesce(j.max_attempts, t.max_attempts, {default.max_attempts});
    its_timeout := coalesce(j.timeout, t.timeout);
    its_due := coalesce(j.at, rota.now() + make_interval(secs => coalesce(j.delay, 0)));
    set_limit := (select value from rota.setting where name = 'max_payload_bytes');
    perform rota.check_job(its_space, j.task, its_queue, its_needs, null, j.payload, j.headers,
                           its_attempts, its_guarantee, its_timeout, its_due, set_limit);
    its_lane := its_space || '/' || its_queue;
    if its_needs <> '{}' then
        its_lane := rota.lane(its_space, its_queue, its_needs);
    end if;
    its_base := its_lane;
    if t.limited
       or coalesce(j.concurrency_key, j.fairness_key, j.order_key, j.order_failure, j.punctual) is not null
    then
        perform rota.check_keys(j.concurrency_key, j.fairness_key, j.order_key, j.order_failure);
        its_share := rota.punctual_share(rota.share_of(
            j.concurrency_key, j.fairness_key, j.order_key, j.order_failure, case when t.limited then j.task end),
            j.punctual);
        its_lane := rota.sublane_of(its_base, its_share);
        if how = 'caller' and not exists (select from rota.lane as l where l.lane = its_base || '#') then
            perform rota.note_new_lane(its_base || '#');
        end if;
        if j.order_key is not null then
            its_priority := 0;  -- the order counts
        end if;
    end if;
    if not exists (select from rota.lane as l where l.lane = its_base) then
        if how = 'caller' then
            perform rota.note_new_lane(its_base);
        else
            insert into rota.lane (lane, namespace, queue, needs)
            values (its_base, its_space, its_queue, rota.needs_of(its_base)) on conflict do nothing;
        end if;
    end if;
    select q.intake into its_intake from rota.queue as q where q.namespace = its_space and q.name = its_queue;
    if not found and how <> 'caller' then
        insert into rota.queue as q (namespace, name) values (its_space, its_queue) on conflict do nothing
        returning q.intake into its_intake;
    end if;
    if its_intake is not null and not rota.is_internal_task(j.task) then
        warning := rota.check_intake(its_space, its_queue, 1, how);
    end if;
    {{let its: id = its_id; due_at = its_due; run_id = null; schedule_id = null; timeout = its_timeout;
        priority = its_priority; guarantee = its_guarantee; max_attempts = its_attempts; namespace = its_space;
        lane = its_lane; task = j.task; key = null; step = null; share = its_share;
        payload = coalesce(j.payload, '{}'); headers = j.headers}}
    set_horizon := (select value from rota.setting where name = 'horizon_ms');
    if its_due <= rota.now() + make_interval(secs => set_horizon / 1000.0) then
        its_rank := rota.rank(its_due, its_priority);
        {{insert rota.present, submitted its: rank = its_rank}}
        on conflict (id) do nothing;
        if found then
            if its_intake is not null then
                perform rota.add_flow(its_space, its_queue, 1);
            end if;
            perform rota.hint(its_space, its_lane, its_rank, 1);
        end if;
    else
        set_shards := (select value from rota.setting where name = 'shards');
        {{insert rota.future, submitted its: shard = rota.shard_of(its_id, set_shards)}}
        on conflict (id) do nothing;
        if found and its_intake is not null then
            perform rota.add_flow(its_space, its_queue, 1);
        end if;
    end if;
    job_id := its_id;
end $$;

-- Stores many jobs, with their idempotency keys, in one statement. A caller may bring the fingerprints of what
-- the database can't read: one per encryption key that it has, the first of which is stored.
create or replace function rota.submit_together(jobs json, repeated boolean default false, how text default 'caller')
    returns table (job_id uuid, existed boolean, conflict boolean, warning text)
    language plpgsql volatile
    -- Joins below are between a few rows and keyed tables; a planner without statistics would
    -- sort and hash tables that it has never looked at.
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
    set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    horizon interval := (select make_interval(secs => value / 1000.0) from rota.setting where name = 'horizon_ms');
    payload_limit bigint := (select value from rota.setting where name = 'max_payload_bytes');
    shards bigint := (select value from rota.setting where name = 'shards');
    stored uuid[];
    known uuid[] := '{}';
    undone bigint;
begin
    if repeated then
        -- What an earlier attempt has stored is not refused. (Not in the statement below: a role that only submits may
        -- not read all jobs.)
        stored := array(select id from json_to_recordset(jobs) as i(id uuid));
        known := array(select o.id from rota.job as o where o.id = any(stored)
                       union all select t.job_id from rota.traces_of(stored) as t);
    end if;
    return query
    with job as (
        select i.position, i.key, i.fingerprints, i.task, i.payload, i.headers,
               i.concurrency_key, i.fairness_key, i.order_key, i.order_failure, i.punctual, t.limited,
               coalesce(i.id, rota.new_id()) as id,
               coalesce(i.namespace, 'default') as namespace,
               coalesce(i.queue, t.queue, 'default') as queue,
               case when i.needs is null then coalesce(t.needs, '{}') else rota.needs_with(i.needs, t.needs) end as needs,
               -- Among jobs of an order_key the order counts.
               case when i.order_key is null then coalesce(i.priority, t.priority, {default.priority}::smallint)
                    else 0::smallint end as priority,
               coalesce(i.guarantee, t.guarantee, {default.guarantee}::smallint) as guarantee,
               coalesce(i.max_attempts, t.max_attempts, {default.max_attempts}::smallint) as max_attempts,
               coalesce(i.timeout, t.timeout) as timeout,
               coalesce(i.at, rota.now() + make_interval(secs => coalesce(i.delay, 0))) as due_at
        from rows from (json_to_recordset(jobs) as (
                id uuid, namespace text, task text, key text, payload json, headers json, queue text,
                needs text[], priority smallint, guarantee smallint, max_attempts smallint, timeout real,
                at timestamptz, delay double precision, concurrency_key text, fairness_key text, order_key text,
                order_failure text, punctual text, fingerprints text[]
            )) with ordinality as i(id, namespace, task, key, payload, headers, queue, needs, priority,
                guarantee, max_attempts, timeout, at, delay, concurrency_key, fairness_key, order_key, order_failure,
                punctual,
                fingerprints, position)
        left join rota.task as t on t.namespace = coalesce(i.namespace, 'default') and t.name = i.task
    ), fine as materialized (
        select j.*, s.share, rota.lane(namespace, queue, needs) as base,
               rota.sublane_of(rota.lane(namespace, queue, needs), s.share) as lane, coalesce(payload, '{}'::json) as args,
               case when key is not null
                    then coalesce(fingerprints[1], md5(task || ' ' || coalesce(payload::jsonb, '{}')::text)) end as fingerprint
        from job as j
        cross join lateral (
            select case when limited
                             or coalesce(concurrency_key, fairness_key, order_key, order_failure, punctual) is not null
                        then rota.punctual_share(
                            rota.share_of(concurrency_key, fairness_key, order_key, order_failure,
                                          case when limited then task end), punctual)
                   end as share) as s
        where (coalesce(concurrency_key, fairness_key, order_key, order_failure) is null
               or rota.check_keys(concurrency_key, fairness_key, order_key, order_failure))
          and rota.check_job(namespace, task, queue, needs, key, payload, headers,
                             max_attempts, guarantee, timeout, due_at, payload_limit)
    ), keyed as (
        -- The first submit of a key makes its row. Another one waits for the first to commit, then
        -- reads it by an update that changes nothing: one statement, and no gap between look and act.
        insert into rota.submit_key as k (namespace, key, job_id, fingerprint)
        select distinct on (namespace, key) namespace, key, id, fingerprint
        from fine where key is not null
        order by namespace, key, position
        on conflict (namespace, key) do update set job_id = k.job_id
        returning k.namespace, k.key, k.job_id, k.fingerprint
    ), decided as (
        select f.*, coalesce(k.job_id, f.id) as answer,
               coalesce(k.job_id <> f.id, false) as existed,
               coalesce(k.fingerprint <> f.fingerprint and k.fingerprint <> all(coalesce(f.fingerprints, '{}')), false)
                   as conflict
        from fine as f
        left join keyed as k on k.namespace = f.namespace and k.key = f.key
    ), fresh as (
        select * from decided where not existed and not conflict
    ), lanes as (
        insert into rota.lane (lane, namespace, queue, needs)
        select f.base, f.namespace, f.queue, rota.needs_of(f.base)
        from (select distinct base, namespace, queue from fresh) as f
        where how <> 'caller' and not exists (select from rota.lane as l where l.lane = f.base)
        on conflict do nothing
    ), noted as (
        select rota.note_new_lane(n.lane) from (
            select f.base as lane from fresh as f where how = 'caller'
            union select f.base || '#' from fresh as f where how = 'caller' and f.share is not null) as n
        where not exists (select from rota.lane as l where l.lane = n.lane)
    ), bound as materialized (
        select f.namespace, f.queue, q.name is not null as known, q.intake
        from (select distinct namespace, queue from fresh) as f
        left join rota.queue as q on q.namespace = f.namespace and q.name = f.queue
    ), queues as (
        insert into rota.queue as q (namespace, name)
        select b.namespace, b.queue from bound as b where how <> 'caller' and not b.known
        on conflict do nothing
        returning q.namespace, q.name, q.intake
    ), counted as materialized (
        select b.namespace, b.queue, f.jobs
        from (select namespace, queue from bound where intake is not null
              union all select namespace, name from queues where intake is not null) as b
        cross join lateral (
            select count(*) as jobs from fresh as f
            where f.namespace = b.namespace and f.queue = b.queue and f.id <> all(known) and not rota.is_internal_task(f.task)
        ) as f
    ), checked as materialized (
        select rota.check_intake(namespace, queue, jobs, how) as warning from counted
    ), readied as (
        {{insert rota.present as p, submitted: run_id = null; step = null; schedule_id = null; payload = args}}
        from fresh where due_at <= rota.now() + horizon and (select count(*) from checked) >= 0
        on conflict (id) do nothing
        returning p.id, p.namespace, p.lane, p.rank
    ), postponed as (
        {{insert rota.future as p, submitted: run_id = null; step = null; schedule_id = null; payload = args; shard = rota.shard_of(id, shards)}}
        from fresh where due_at > rota.now() + horizon and (select count(*) from checked) >= 0
        on conflict (id) do nothing
        returning p.namespace, p.lane
    ), hinted as (
        select rota.hint(namespace, lane, min(rank), count(*)) from readied
        where (select count(*) from noted) >= 0 group by namespace, lane
    ), flowed as (
        select rota.add_flow(s.namespace, rota.queue_of(s.lane), s.jobs)
        from (select namespace, lane, count(*) as jobs
              from (select namespace, lane from readied union all select namespace, lane from postponed) as e
              where exists (select from counted)
              group by 1, 2) as s
    )
    select answer, existed, conflict, (select max(c.warning) from checked as c) from decided
    where (select count(*) from noted) + (select count(*) from hinted) + (select count(*) from flowed) >= 0
    order by position;

    if repeated then
        -- A statement of its own sees what was committed before our inserts were let through: a
        -- job that meanwhile moved on. A unique index alone guards one table, not the move.
        with gone as (
            delete from rota.present as p where p.id = any(stored) and p.state = {state.ready} and p.attempt = 0
                and (exists (select from rota.past as o where o.id = p.id)
                     or exists (select from rota.dead as o where o.id = p.id)
                     or exists (select from rota.future as o where o.id = p.id)
                     or rota.left_trace(p.id))
            returning p.namespace, p.lane
        )
        select count(rota.add_flow_of_lane(g.namespace, g.lane, -1)::text) into undone from gone as g;
        with gone as (
            delete from rota.future as p where p.id = any(stored) and p.attempt = 0
                and (exists (select from rota.past as o where o.id = p.id)
                     or exists (select from rota.dead as o where o.id = p.id)
                     or exists (select from rota.present as o where o.id = p.id)
                     or rota.left_trace(p.id))
            returning p.namespace, p.lane
        )
        select count(rota.add_flow_of_lane(g.namespace, g.lane, -1)::text) into undone from gone as g;
    end if;
end $$;

-- Stores jobs. `repeated` false: the caller has just made the ids, so that they are new.
-- Otherwise a job with an id of the caller's is stored only if there is none of that id anywhere. `how`: see
-- functions/quotas.sql.
create or replace function rota.submit_jobs(jobs json, repeated boolean default null, how text default 'caller')
    returns table (job_id uuid, existed boolean, conflict boolean, warning text)
    language plpgsql volatile
as $$
begin
    if repeated is null then
        repeated := exists (select from json_to_recordset(jobs) as j(id uuid) where j.id is not null);
    end if;
    if not repeated and json_typeof(jobs) = 'array' and json_array_length(jobs) = 1
       and json_typeof(jobs -> 0) = 'object' and jobs -> 0 ->> 'key' is null
    then
        return query select a.job_id, false, false, a.warning from rota.submit_alone(jobs -> 0, how) as a;
    else
        return query select * from rota.submit_together(jobs, repeated, how);
    end if;
end $$;

-- The same of one job that an application has just made, with its task's defaults filled in, due now and without keys or needs. As
-- most are plain, it takes what they take: a look at what could make them more than that, and an insert. For any other job
-- rota.submit_jobs() does what is to be done. Returns whether it was plain. A plain one needs few checks: the names of
-- registered tasks, and of known queues and lanes, are fit. A task may not be registered yet.
create or replace function rota.submit_made(
    its_id uuid, its_space text, its_task text, its_queue text, its_payload json, its_headers json, its_priority smallint,
    its_guarantee smallint, its_attempts smallint, its_timeout real
) returns boolean language plpgsql volatile
    set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
declare
    its_lane text := its_space || '/' || its_queue;
    its_rank bigint := rota.rank(rota.now(), its_priority);
    known boolean;
    task_limited boolean;
    its_intake smallint;
    payload_limit bigint;
begin
    select true, (select t.limited from rota.task as t where t.namespace = its_space and t.name = its_task), q.intake,
           (select s.value from rota.setting as s where s.name = 'max_payload_bytes')
    into known, task_limited, its_intake, payload_limit
    from rota.queue as q
    where q.namespace = its_space and q.name = its_queue and exists (select from rota.lane as l where l.lane = its_lane);
    if known and its_intake is null and not coalesce(task_limited, not rota.is_name(its_task))
       and starts_with(its_payload::text, '{') and octet_length(its_payload::text) <= payload_limit
       and (its_headers is null or starts_with(its_headers::text, '{') and octet_length(its_headers::text) <= 16384
                                   and strpos(its_headers::text, 'heartbeat_timeout') = 0)
       and its_attempts between 1 and 32000 and (its_timeout is null or its_timeout > 0)
       and its_guarantee between {guarantee.at_least_once} and {guarantee.exactly_once}
       and not rota.is_internal_task(its_task)
    then
        {{let its: id = its_id; due_at = rota.now(); run_id = null; schedule_id = null; timeout = its_timeout;
            priority = its_priority; guarantee = its_guarantee; max_attempts = its_attempts; namespace = its_space;
            lane = its_lane; task = its_task; key = null; step = null; share = null; payload = its_payload;
            headers = its_headers}}
        {{insert rota.present, submitted its: rank = its_rank}}
        on conflict (id) do nothing;
        if found then
            perform rota.hint(its_space, its_lane, its_rank, 1);
        end if;
        return true;
    end if;
    perform rota.submit_jobs(json_build_array(json_build_object(
        'id', its_id, 'namespace', its_space, 'task', its_task, 'queue', its_queue, 'payload', its_payload, 'headers', its_headers,
        'priority', its_priority, 'guarantee', its_guarantee, 'max_attempts', its_attempts, 'timeout', its_timeout,
        'needs', array[]::text[])), false, 'own');
    return false;
end $$;

-- Submits one job from plain SQL. Plain SQL can't encrypt, so namespaces that ask for encryption refuse it.
create or replace function rota.submit(
    task text, payload jsonb default '{}', at timestamptz default null, delay interval default null,
    key text default null, priority int default null, queue text default null, needs text[] default null,
    max_attempts int default null, timeout interval default null, guarantee text default null,
    headers jsonb default null, namespace text default 'default',
    unique_while text default null, unique_for interval default null, unique_key text default null,
    unique_conflict text default null, debounce interval default null, debounce_max interval default null,
    throttle interval default null, throttle_keep text default null,
    resources jsonb default null, near text default null, near_patience interval default null
) returns uuid language plpgsql volatile as $$
declare
    answer record;
    signatures json;
    problem text;
    wish json := rota.unique_wish(unique_while, unique_for, unique_key, unique_conflict, debounce, debounce_max,
                                  throttle, throttle_keep);
    job json;
begin
    if rota.is_internal_task(task) then
        problem := rota.internal_task_problem(task);
    else
        -- The other tasks that come with Rota need no node that has registered them.
        signatures := case when starts_with(task, 'rota' || '.') then '[]' else rota.signatures_of(namespace, task) end;
        problem := rota.problem_with(signatures, task, payload);
    end if;
    if problem is not null then
        raise exception using errcode = 'RT001', message = 'rota: ' || problem, hint = 'Nothing was submitted.';
    end if;
    if at is not null and delay is not null then
        raise exception using errcode = 'RT001', message = 'rota: give at or delay, not both';
    end if;
    if rota.is_encrypted(namespace) then
        raise exception using errcode = 'RT001', message = format(
            'rota: namespace %L is encrypted, which plain SQL can''t do', namespace),
            hint = 'Submit from a process that has the keys, or through the server. Nothing was submitted.';
    end if;
    if guarantee not in ({guarantee.labels}) then
        raise exception using errcode = 'RT001', message =
            format('rota: guarantee %L is not one of %s', guarantee, concat_ws(', ', {guarantee.labels}));
    end if;
    if wish ->> 'per' in ('debounce', 'throttle') and coalesce(at::text, delay::text) is not null then
        raise exception using errcode = 'RT001', message =
            format('rota: %s sets the time: leave at and delay out', wish ->> 'per');
    end if;
    job := (json_strip_nulls(json_build_object(
        'task', task, 'at', at, 'delay', extract(epoch from delay), 'key', key,
        'priority', priority, 'queue', queue, 'needs', rota.asked_needs(needs, resources, near, near_patience), 'max_attempts', max_attempts,
        'timeout', extract(epoch from timeout), 'namespace', namespace, 'headers', headers,
        'guarantee', array_position(array[{guarantee.labels}], guarantee), 'unique', wish,
        'payload', null
    ))::jsonb || jsonb_build_object('payload', payload))::json;
    if wish is null then
        select s.job_id, s.existed, s.conflict, null::text as outcome into answer
        from rota.submit_jobs(json_build_array(job)) as s;
    else
        select s.* into answer from rota.submit_unique(json_build_array(job), false, true) as s;
    end if;
    if answer.outcome = 'refused' then
        raise exception using errcode = 'RT003',
            message = format('rota: job %s of task %L is unique, and stands for this one', answer.job_id, task),
            hint = 'Nothing was submitted. unique_conflict => ''return'' returns that job.';
    end if;
    if answer.conflict then
        raise exception using errcode = 'RT002',
            message = format('rota: key %L already names job %s, whose task or payload differs', key, answer.job_id),
            hint = 'Submit the same content to get that job back, or use another key.';
    end if;
    if signatures is null and not answer.existed then
        raise warning using message = format('rota: no node has registered a task named %L', task),
            hint = 'Its jobs wait until a worker does. Is the name right?';
        perform rota.note_unknown_task(namespace, task, answer.job_id);
    end if;
    return answer.job_id;
end $$;
