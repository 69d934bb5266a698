-- Arguments checked where the task's code isn't at hand: in Python by rota.core.signature, for plain SQL here.

-- Gives the signatures that a submit has to fit one of: those of the live releases, or, when none is live, the
-- one that was registered last. Empty: nothing is known of the arguments. Null: no node has registered the task.
create or replace function rota.signatures_of(its_space text, its_task text) returns json
    language plpgsql stable as $$
declare
    found_signatures json;
begin
    if not exists (select from rota.task as t where t.namespace = its_space and t.name = its_task) then
        return null;
    end if;
    -- A role that may submit needn't be allowed to read them.
    if not has_table_privilege('rota.task_signature', 'select') or not has_table_privilege('rota.node', 'select') then
        return '[]';
    end if;
    if exists (select from rota.node as n where n.namespace = its_space and n.state = 'live' and n.release is null
               and n.expires_at >= rota.now() and its_task = any(n.tasks)) then
        return '[]';
    end if;
    select json_agg(s.signature order by s.registered_at desc) into found_signatures
    from rota.task_signature as s
    where s.namespace = its_space and s.name = its_task
      and exists (select from rota.node as n where n.namespace = its_space and n.state = 'live'
                  and n.expires_at >= rota.now() and n.release = s.release);
    if found_signatures is null then
        select json_build_array(s.signature) into found_signatures
        from rota.task_signature as s
        where s.namespace = its_space and s.name = its_task
        order by s.registered_at desc limit 1;
    end if;
    return coalesce(found_signatures, '[]');
end $$;

-- Says what is wrong with the arguments, or null. The same as Signature.problem() in Python.
create or replace function rota.argument_problem(signature json, task text, payload jsonb) returns text
    language sql immutable as $$
    with argument as (
        select a.name, a.said ->> 'required' as required, (a.said -> 'types')::jsonb as types,
               (a.said -> 'values')::jsonb as choice, a.place
        from json_each(signature -> 'arguments') with ordinality as a(name, said, place)
    ), given as (
        select p.key as name, p.value, a.types, a.choice, a.name is not null as known,
               case when jsonb_typeof(p.value) = 'number' and p.value::text !~ '[.]' then 'integer'
                    else jsonb_typeof(p.value) end as kind
        from jsonb_each(payload) as p left join argument as a on a.name = p.key
    ), problem as (
        select 0 as place, case
            when not known and coalesce((signature ->> 'open')::boolean, false) then null
            when not known then format('task ''%s'' takes no argument ''%s''; it takes: %s', task, name,
                coalesce((select string_agg(a.name, ', ' order by a.place) from argument as a), 'none'))
            when not (types ? kind or (kind = 'integer' and types ? 'number'))
                then format('task ''%s'': argument ''%s'': expected %s, got %s', task, name,
                    (select string_agg(t, ' or ') from jsonb_array_elements_text(types) as t), kind)
            when kind in ('array', 'object') and choice is not null or not choice @> value
                then format('task ''%s'': argument ''%s'': expected one of %s', task, name,
                    (select string_agg(c, ', ') from jsonb_array_elements_text(choice) as c))
            end as words
        from given
        union all
        select place, format('task ''%s'': argument ''%s'' is missing', task, name)
        from argument where required = 'true' and not payload ? name
    )
    select words from problem where words is not null order by place limit 1
$$;

-- Says what the first signature objects to if none of them accepts the arguments, or null.
create or replace function rota.problem_with(signatures json, task text, payload jsonb) returns text
    language sql immutable as $$
    select case when bool_and(s.words is not null) then (array_agg(s.words order by s.place))[1] end
    from (select rota.argument_problem(e.signature, task, payload) as words, e.place
          from json_array_elements(signatures) with ordinality as e(signature, place)
          where jsonb_typeof(payload) = 'object') as s
$$;

-- Records an event for a task that no node has registered, once. With its owner's rights: a role that only submits may not
-- write events of other kinds.
create or replace function rota.note_unknown_task(its_space text, its_task text, its_job uuid) returns void
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- If another transaction is recording it, this one doesn't wait.
    if not pg_try_advisory_xact_lock(hashtextextended(concat_ws('/', 'rota.unknown_task', its_space, its_task), 0)) then
        return;
    end if;
    insert into rota.unknown_task (namespace, name) values (its_space, its_task) on conflict do nothing;
    if found then
        insert into rota.event (namespace, kind, task, job_id, detail)
        values (its_space, 'task_unknown', its_task, its_job, '{}') on conflict do nothing;
    end if;
end $$;
