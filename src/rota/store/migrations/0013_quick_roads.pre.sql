-- One job without a key is what is submitted most, and needs none of what makes many of them, with keys,
-- one statement: a few small statements cost the database a third. Only additions: code that knows
-- nothing of it calls rota.submit_jobs() as before.

-- A tenth of the work: the engine of regular expressions is slow at counting.
create or replace function rota.is_name(name text) returns boolean language sql immutable parallel safe as
    $$ select length(name) <= 100 and name ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]*$' $$;

create function rota.are_names(names text[]) returns boolean language sql immutable parallel safe as
    $$ select not exists (select from unnest(names) as n where n is null or not rota.is_name(n)) $$;

-- The same as before, but without a query inside: what is only an expression is evaluated as one.
create or replace function rota.check_job(
    namespace text, task text, queue text, needs text[], key text, payload json, headers json,
    max_attempts int, guarantee int, timeout real, due_at timestamptz, payload_limit bigint
) returns boolean language plpgsql immutable as $$
declare
    problem text := case
        when task is null or not rota.is_name(task) then format('task %L is not a usable name', task)
        when not rota.is_name(namespace) then format('namespace %L is not a usable name', namespace)
        when not rota.is_name(queue) then format('queue %L is not a usable name', queue)
        when needs <> '{}' and not rota.are_names(needs)
            then format('needs %L holds something that is not a usable name', needs)
        when length(key) not between 1 and 255 then 'key must be 1 to 255 characters long'
        when json_typeof(payload) <> 'object' then 'payload must be a JSON object: argument names and values'
        when octet_length(payload::text) > payload_limit
             -- An envelope is longer than what is in it.
             and not (rota.is_sealed(payload) and octet_length(payload::text) <= payload_limit * 4 / 3 + 300)
            then format('payload has %s bytes, the limit is %s: store large data elsewhere and pass a reference',
                        octet_length(payload::text), payload_limit)
        when json_typeof(headers) <> 'object' then 'headers must be a JSON object'
        when octet_length(headers::text) > 16384 then 'headers are over 16384 bytes'
        when max_attempts not between 1 and 32000 then 'max_attempts must be from 1 to 32000'
        when guarantee not between 1 and 3 then 'guarantee must be 1 (at_least_once), 2 (at_most_once) or 3 (exactly_once)'
        when timeout <= 0 then 'timeout must be above 0 seconds'
        when not isfinite(due_at) then 'the due time must be finite'
    end;
begin
    if problem is not null then
        raise exception using errcode = 'RT001', message = 'rota: ' || problem,
            hint = 'Nothing was submitted.';
    end if;
    return true;
end $$;

alter function rota.submit_jobs(json, boolean) rename to submit_together;

-- Checked by the same function, with the same defaults, into the same tables as in rota.submit_together().
create function rota.submit_alone(job json) returns uuid
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
    its_due timestamptz;
    its_priority smallint;
    its_guarantee smallint;
    its_attempts smallint;
    its_timeout real;
    its_rank bigint;
begin
    select * into j from json_to_record(job) as r(
        id uuid, namespace text, task text, payload json, headers json, queue text, needs text[],
        priority smallint, guarantee smallint, max_attempts smallint, timeout real, at timestamptz,
        delay double precision, share text, workflow_id uuid, step text);
    its_id := coalesce(j.id, rota.new_id());
    its_space := coalesce(j.namespace, 'default');
    select * into t from rota.task as k where k.namespace = its_space and k.name = j.task;
    its_queue := coalesce(j.queue, t.queue, 'default');
    its_needs := coalesce(j.needs, t.needs, '{}');
    its_priority := coalesce(j.priority, t.priority, 0);
    its_guarantee := coalesce(j.guarantee, t.guarantee, 1);
    its_attempts := coalesce(j.max_attempts, t.max_attempts, 5);
    its_timeout := coalesce(j.timeout, t.timeout);
    its_due := coalesce(j.at, rota.now() + make_interval(secs => coalesce(j.delay, 0)));
    set_limit := (select value from rota.setting where name = 'max_payload_bytes');
    perform rota.check_job(its_space, j.task, its_queue, its_needs, null, j.payload, j.headers,
                           its_attempts, its_guarantee, its_timeout, its_due, set_limit);
    its_lane := its_space || '/' || its_queue;
    if its_needs <> '{}' then
        its_lane := rota.lane(its_space, its_queue, its_needs);
    end if;
    if not exists (select from rota.lane as l where l.lane = its_lane) then
        insert into rota.lane (lane, namespace, queue, needs)
        values (its_lane, its_space, its_queue, rota.needs_of(its_lane)) on conflict do nothing;
    end if;
    if not exists (select from rota.queue as q where q.namespace = its_space and q.name = its_queue) then
        insert into rota.queue (namespace, name) values (its_space, its_queue) on conflict do nothing;
    end if;
    set_horizon := (select value from rota.setting where name = 'horizon_ms');
    if its_due <= rota.now() + make_interval(secs => set_horizon / 1000.0) then
        its_rank := rota.rank(its_due, its_priority);
        insert into rota.present (id, rank, due_at, workflow_id, timeout, priority, guarantee,
            max_attempts, namespace, lane, task, step, share, payload, headers)
        values (its_id, its_rank, its_due, j.workflow_id, its_timeout, its_priority, its_guarantee,
            its_attempts, its_space, its_lane, j.task, j.step, j.share, coalesce(j.payload, '{}'), j.headers)
        on conflict (id) do nothing;
        if found then
            perform rota.hint(its_space, its_lane, its_rank, 1);
        end if;
    else
        set_shards := (select value from rota.setting where name = 'shards');
        insert into rota.future (id, shard, due_at, workflow_id, timeout, priority, guarantee,
            max_attempts, namespace, lane, task, step, share, payload, headers)
        values (its_id, rota.shard_of(its_id, set_shards), its_due, j.workflow_id, its_timeout, its_priority,
            its_guarantee, its_attempts, its_space, its_lane, j.task, j.step, j.share,
            coalesce(j.payload, '{}'), j.headers)
        on conflict (id) do nothing;
    end if;
    return its_id;
end $$;

create function rota.submit_jobs(jobs json, repeated boolean default false)
    returns table (job_id uuid, existed boolean, conflict boolean)
    language plpgsql volatile
as $$
begin
    if not repeated and json_typeof(jobs) = 'array' and json_array_length(jobs) = 1
       and json_typeof(jobs -> 0) = 'object' and jobs -> 0 ->> 'key' is null
    then
        return query select rota.submit_alone(jobs -> 0), false, false;
    else
        return query select * from rota.submit_together(jobs, repeated);
    end if;
end $$;

-- Made anew, because of indexes that seem equally good the planner takes the newest. To whoever takes the
-- table for empty they all are, and a finish that went by another would read the whole of it.
alter table rota.present drop constraint present_pkey, add constraint present_pkey primary key (id);
