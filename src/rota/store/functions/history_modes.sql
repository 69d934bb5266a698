-- Whether a queue with this setting keeps a job that succeeded. `troubled`: an attempt of it had failed, or its result was
-- dropped. `bound`: a schedule's ledger or a workflow refers to it.
create or replace function rota.keeps_success(history text, job uuid, troubled boolean, bound boolean) returns boolean
    language sql immutable parallel safe as $$
    select case when history is null or bound then true
                when history = 'none' then false
                when troubled then true
                when history = 'failures' then false
                else ('x' || right(job::text, 8))::bit(32)::bigint % 1000000
                     < substring(history from 8 for length(history) - 8)::float8 * 10000 end
$$;

-- Those of these jobs that succeeded in queues that did not keep them.
create or replace function rota.traces_of(wanted uuid[]) returns table (job_id uuid, namespace text, queue text, task text, ended_at timestamptz)
    language plpgsql stable
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select w.id, t.namespace, t.queue, t.task, t.ended_at
    from unnest(wanted) as w(id)
    cross join lateral (
        select t.* from rota.trace as t
        where t.prefix = left(w.id::text, 8) and t.low <= w.id and t.high >= w.id and w.id = any(t.ids)
        limit 1
    ) as t;
end $$;

create or replace function rota.left_trace(job uuid) returns boolean language plpgsql stable as $$
begin
    return exists (select from rota.traces_of(array[job]));
end $$;
