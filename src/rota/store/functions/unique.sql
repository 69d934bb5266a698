-- Unique jobs, debounce and throttle. docs/architecture.md, "Unique jobs", describes the protocol.

-- Refuses options that make no sense together, naming the field. The same as Unique.__post_init__() in Python.
create or replace function rota.check_unique(per text, key text, conflict text, seconds float8, latest float8,
        ordered boolean) returns boolean language plpgsql immutable as $$
declare
    problem text := case
        when per is null or per not in ('waiting', 'unfinished', 'window', 'debounce', 'throttle')
            then format('unique must be waiting, unfinished or a time, not %L', per)
        when length(key) not between 1 and 255 then 'unique_key must be 1 to 255 characters long'
        when conflict not in ('return', 'refuse', 'replace', 'last')
            then format('what a second submit does must be return, refuse or replace, not %L', conflict)
        when (conflict = 'last') and per <> 'throttle' or conflict = 'replace' and per not in ('waiting', 'debounce')
            then 'a second submit can replace the arguments only of a job that waits: use it with unique waiting'
        when per in ('window', 'debounce', 'throttle') and (seconds is null or not seconds between 0.001 and 3155760000)
            then format('%s must be a time above 0, up to 100 years', case per when 'window' then 'unique' else per end)
        when ordered and (per = 'debounce' or conflict = 'last')
            then 'order_key can''t be given with debounce or throttle_keep last, which change the order'
        when latest < seconds or latest > 3155760000 then 'debounce_max must be at least debounce'
    end;
begin
    if problem is not null then
        raise exception using errcode = 'RT001', message = 'rota: ' || problem, hint = 'Nothing was submitted.';
    end if;
    return true;
end $$;

-- The options of rota.submit() as one value; null: the job need not be unique.
create or replace function rota.unique_wish(unique_while text, unique_for interval, unique_key text, unique_conflict text,
        debounce interval, debounce_max interval, throttle interval, throttle_keep text) returns json
    language plpgsql immutable as $$
declare
    given int := num_nonnulls(unique_while, unique_for, debounce, throttle);
    problem text := case
        when given > 1 then 'give one of unique_while, unique_for, debounce and throttle'
        when given = 0 and unique_key is not null then 'unique_key needs unique_while, unique_for, debounce or throttle'
        when unique_conflict is not null and coalesce(unique_while, unique_for::text) is null
            then 'unique_conflict needs unique_while or unique_for'
        when debounce_max is not null and debounce is null then 'debounce_max needs debounce'
        when throttle_keep is not null and throttle is null then 'throttle_keep needs throttle'
        when throttle_keep not in ('first', 'last') then 'throttle_keep must be first or last'
        when unique_while not in ('waiting', 'unfinished') then 'unique_while must be waiting or unfinished'
    end;
begin
    if problem is not null then
        raise exception using errcode = 'RT001', message = 'rota: ' || problem, hint = 'Nothing was submitted.';
    end if;
    if given = 0 then
        return null;
    end if;
    return json_strip_nulls(json_build_object(
        'per', coalesce(unique_while, case when unique_for is not null then 'window'
                                           when debounce is not null then 'debounce' else 'throttle' end),
        'key', unique_key, 'conflict', case when throttle_keep = 'last' then 'last' else unique_conflict end,
        'seconds', extract(epoch from coalesce(unique_for, debounce, throttle)),
        'latest', extract(epoch from debounce_max)));
end $$;

-- Whether the job that was stored last under a key stands for another submit. `moment`: the time now.
create or replace function rota.stands_for(per text, seconds float8, its_job uuid, since timestamptz, moment timestamptz)
    returns boolean language sql volatile as $$
    select case
        when per in ('waiting', 'debounce') then
            exists (select from rota.future as f where f.id = its_job and f.attempt = 0)
            or exists (select from rota.present as p where p.id = its_job and p.state = {state.ready} and p.attempt = 0)
        when per = 'unfinished' then
            exists (select from rota.future as f where f.id = its_job)
            or exists (select from rota.present as p where p.id = its_job)
        else moment < since + make_interval(secs => seconds)
    end
$$;

-- Keeps a job that has not started from starting before this transaction has ended: what the transaction wrote would
-- not be seen by it. A claim passes over it meanwhile, and is told to look again. Returns whether it was there.
create or replace function rota.hold_back(its_job uuid, never_started boolean) returns boolean language plpgsql volatile
    set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    found_row record;
begin
    select p.namespace, p.lane, p.rank into found_row from rota.present as p
    where p.id = its_job and p.state = {state.ready} and (p.attempt = 0 or not never_started) for no key update;
    if found then
        perform rota.hint(found_row.namespace, found_row.lane, found_row.rank, 1);
        return true;
    end if;
    perform from rota.future as f where f.id = its_job and (f.attempt = 0 or not never_started) for no key update;
    return found;
end $$;

-- Gives a job that has not started other arguments and, if `due` is not null, another time. Returns whether it was there.
create or replace function rota.change_waiting(its_job uuid, new_payload json, new_headers json, due timestamptz)
    returns boolean language plpgsql volatile
    set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    changed record;
    horizon interval := (select make_interval(secs => value / 1000.0) from rota.setting where name = 'horizon_ms');
begin
    update rota.future as f set payload = new_payload, headers = new_headers, due_at = coalesce(due, f.due_at)
    where f.id = its_job and f.attempt = 0;
    if found then
        return true;
    end if;
    if due > rota.now() + horizon then
        -- Released already: back again.
        with gone as (
            delete from rota.present as p where p.id = its_job and p.state = {state.ready} and p.attempt = 0
            returning {{columns moved}}
        )
        {{insert rota.future, moved: due_at = due; payload = new_payload; headers = new_headers}}
        from gone;
        return found;
    end if;
    update rota.present as p
    set payload = new_payload, headers = new_headers, due_at = coalesce(due, p.due_at),
        rank = case when due is null then p.rank else rota.rank_in(p.share, p.namespace, p.task, due, p.priority) end
    where p.id = its_job and p.state = {state.ready} and p.attempt = 0
    returning p.namespace, p.lane, p.rank into changed;
    if found then
        perform rota.hint(changed.namespace, changed.lane, changed.rank, 1);
        return true;
    end if;
    return false;
end $$;

-- What an idempotency key answers; null: it is new. 'existed' for a submit that another job stands for. Only of jobs that
-- have not ended: a role that submits may not read the others.
create or replace function rota.key_answer(space text, its_key text, its_print text, prints text[],
        out job_id uuid, out outcome text) language sql stable as $$
    select k.job_id,
           case when k.fingerprint <> its_print and k.fingerprint <> all(coalesce(prints, '{}')) then 'conflict'
                when exists (select from rota.future as f where f.id = k.job_id and f.key is distinct from its_key)
                  or exists (select from rota.present as p where p.id = k.job_id and p.key is distinct from its_key)
                then 'existed'
                else 'replayed' end
    from rota.submit_key as k where k.namespace = space and k.key = its_key
$$;

-- Submits a job that is to be unique. `held`: this transaction has more in it than this submit, and may take long.
-- outcome: 'stored'; 'existed' (the first job stands for it); 'changed' (the first job was given its arguments, or another
-- time); 'refused'; 'encrypt' (nothing was done: its payload must be encrypted for the job `job_id`, and sent again);
-- and by the idempotency key 'replayed' or 'conflict'.
create or replace function rota.submit_unique_job(job json, repeated boolean, held boolean, out job_id uuid, out outcome text)
    language plpgsql volatile
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    j record;
    u record;
    k record;
    answer record;
    its_id uuid;
    its_space text;
    its_key text;
    its_print text;
    is_new boolean;
    moment timestamptz;
    due timestamptz;
    begins timestamptz;
    new_payload json;
begin
    select * into j from json_to_record(job) as r(
        id uuid, namespace text, task text, key text, payload json, headers json, fingerprints text[],
        "unique" json, replacement json, order_key text);
    select * into u from json_to_record(j.unique) as r(per text, key text, conflict text, seconds float8, latest float8,
        queue text);
    u.conflict := coalesce(u.conflict, 'return');
    perform rota.check_unique(u.per, u.key, u.conflict, u.seconds, u.latest, j.order_key is not null);
    perform rota.check_job(coalesce(j.namespace, 'default'), j.task, 'default', '{}', j.key, j.payload, j.headers, 1, 1, null,
                           rota.now(), (select value from rota.setting where name = 'max_payload_bytes'));
    its_id := coalesce(j.id, rota.new_id());
    its_space := coalesce(j.namespace, 'default');
    its_print := coalesce(j.fingerprints[1], md5(j.task || ' ' || coalesce(j.payload::jsonb, '{}')::text));
    its_key := coalesce(u.key, 'arguments ' || its_print);
    new_payload := coalesce(j.payload, '{}');
    if repeated then  -- not in one condition: a role that submits may not read all jobs
        if exists (select from rota.job as o where o.id = its_id) or rota.left_trace(its_id) then
            job_id := its_id;
            outcome := 'stored';
            return;
        end if;
    end if;
    if j.key is not null then
        select * into answer from rota.key_answer(its_space, j.key, its_print, j.fingerprints);
        if answer.job_id is not null then
            job_id := answer.job_id;
            outcome := answer.outcome;
            return;
        end if;
    elsif not held and u.per <> 'debounce' and u.conflict in ('return', 'refuse') then
        -- Without a lock, nor a write: a job that waited at any moment of this call stands for it.
        select * into k from rota.unique_key as o where o.namespace = its_space and o.task = j.task and o.key = its_key;
        if found and rota.stands_for(u.per, u.seconds, k.job_id, k.since, rota.now()) then
            job_id := k.job_id;
            outcome := case u.conflict when 'refuse' then 'refused' else 'existed' end;
            return;
        end if;
    end if;

    -- The first submit of a key makes its row; others wait here for the transaction that has it.
    insert into rota.unique_key as o (namespace, task, key, job_id, since, changed_at, keep_until)
    values (its_space, j.task, its_key, its_id, '-infinity', '-infinity', '-infinity')
    on conflict (namespace, task, key) do update set job_id = o.job_id
    returning * into k;
    is_new := k.job_id = its_id;
    -- Who waited for another submit comes after it. Each statement below sees what was committed before it.
    moment := greatest(rota.now(), k.changed_at);
    if j.key is not null then
        select * into answer from rota.key_answer(its_space, j.key, its_print, j.fingerprints);
        if answer.job_id is not null then
            job_id := answer.job_id;
            outcome := answer.outcome;
            return;
        end if;
    end if;

    -- A job that starts or is released between two of these statements is looked at again.
    for turn in 1 .. 101 loop
        if turn > 100 then
            raise exception using errcode = '40001', message = format('rota: job %s moved too often', k.job_id);
        end if;
        begins := moment;
        due := case u.per when 'debounce' then moment + make_interval(secs => u.seconds) end;
        exit when is_new or not rota.stands_for(u.per, u.seconds, k.job_id, k.since, moment);
        if u.conflict = 'refuse' then
            job_id := k.job_id;
            outcome := 'refused';
            return;
        elsif u.per = 'throttle' and u.conflict = 'last' and moment >= k.since then
            -- The first of this window has been submitted: ours is for its end, where the next one begins.
            begins := k.since + make_interval(secs => u.seconds);
            due := begins;
            exit;
        elsif u.per = 'debounce' or u.conflict in ('replace', 'last') then
            -- Who may only submit to some queues changes no job of another.
            if u.queue is not null and exists (
                select from rota.future as f where f.id = k.job_id and rota.queue_of(f.lane) <> u.queue
                union all
                select from rota.present as p where p.id = k.job_id and rota.queue_of(p.lane) <> u.queue)
            then
                job_id := k.job_id;
                outcome := 'refused';
                return;
            end if;
            if rota.is_encrypted(new_payload) then
                if (j.replacement ->> 'job')::uuid is distinct from k.job_id then
                    job_id := k.job_id;
                    outcome := 'encrypt';
                    return;
                end if;
                new_payload := j.replacement -> 'payload';
            end if;
            outcome := 'changed';
            exit when rota.change_waiting(k.job_id, new_payload, j.headers, least(due, k.since + make_interval(secs => u.latest)));
            outcome := null;
            if u.conflict = 'last' and not rota.stands_for('waiting', null, k.job_id, k.since, moment) then
                -- What was kept for the end of the window was cancelled.
                begins := k.since;
                due := begins;
                exit;
            end if;
        else
            outcome := 'existed';
            exit when not held or u.per in ('window', 'throttle') or rota.hold_back(k.job_id, u.per = 'waiting')
                or (u.per = 'unfinished' and exists (
                    select from rota.present as p where p.id = k.job_id and p.state = {state.running}));
            outcome := null;
        end if;
    end loop;

    if outcome is not null then
        job_id := k.job_id;
        if j.key is not null then
            -- The same submit again is answered with this job, whatever becomes of it.
            insert into rota.submit_key as o (namespace, key, job_id, fingerprint)
            values (its_space, j.key, k.job_id, its_print) on conflict do nothing;
        end if;
        return;
    end if;
    job := (select json_object_agg(e.key, e.value) from (
        select key, value from json_each(job) where key not in ('id', 'unique', 'replacement')
            and not (due is not null and key in ('at', 'delay'))
        union all select 'id', to_json(its_id)
        union all select 'at', to_json(due) where due is not null
        -- A worker that claimed it ahead of its time would keep later submits from changing it.
        union all select 'punctual', to_json(u.per) where due is not null) as e);
    job_id := its_id;
    outcome := 'stored';
    if j.key is null then
        perform rota.submit_alone(job, case when held then 'caller' else 'own' end);
    else
        select * into answer from rota.submit_together(json_build_array(job), false, case when held then 'caller' else 'own' end);
        job_id := answer.job_id;
        if answer.existed or answer.conflict then
            outcome := case when answer.conflict then 'conflict' else 'replayed' end;
            return;
        end if;
    end if;
    update rota.unique_key as o
    set job_id = its_id, since = begins, changed_at = moment,
        keep_until = begins + make_interval(secs => case when u.per in ('window', 'throttle') then u.seconds else 0 end)
    where o.namespace = its_space and o.task = j.task and o.key = its_key;
end $$;

-- Submits unique jobs, one after the other in the order of their keys: so that calls can't wait for each other in a circle.
create or replace function rota.submit_unique(jobs json, repeated boolean, held boolean)
    returns table (job_id uuid, existed boolean, conflict boolean, outcome text) language plpgsql volatile as $$
#variable_conflict use_column
declare
    each_one record;
    answer record;
    positions bigint[] := '{}';
    ids uuid[] := '{}';
    outcomes text[] := '{}';
begin
    for each_one in
        select a.job, a.position from json_array_elements(jobs) with ordinality as a(job, position)
        order by a.job ->> 'task', coalesce(a.job -> 'unique' ->> 'key', a.job -> 'fingerprints' ->> 0, (a.job -> 'payload')::jsonb::text), a.position
    loop
        select * into answer from rota.submit_unique_job(each_one.job, repeated, held);
        positions := positions || each_one.position;
        ids := ids || answer.job_id;
        outcomes := outcomes || answer.outcome;
    end loop;
    return query
        select a.id, a.outcome in ('existed', 'changed', 'replayed'), a.outcome = 'conflict', a.outcome
        from unnest(positions, ids, outcomes) as a(position, id, outcome) order by a.position;
end $$;

-- The same in a transaction of its own: waits for a key for a short time only. Then the caller tries again, without keeping a
-- connection.
create or replace function rota.submit_unique_alone(jobs json, repeated boolean)
    returns table (job_id uuid, existed boolean, conflict boolean, outcome text) language sql volatile
    set lock_timeout = '200ms' as $$
    select s.job_id, s.existed, s.conflict, s.outcome from rota.submit_unique(jobs, repeated, false) as s
$$;

-- Forgets keys that count no more. First the locks, then a new statement, which sees the jobs that their last holders have
-- committed. Returns how many.
create or replace function rota.forget_unique_keys(how_many int) returns bigint language plpgsql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    chosen tid[];
    gone bigint;
begin
    chosen := array(
        select k.ctid from rota.unique_key as k
        where k.keep_until < rota.now() - interval '1 minute'
          and not exists (select from rota.present as p where p.id = k.job_id)
          and not exists (select from rota.future as f where f.id = k.job_id)
        limit how_many for update skip locked);
    delete from rota.unique_key as k
    where k.ctid = any(chosen)
      and not exists (select from rota.present as p where p.id = k.job_id)
      and not exists (select from rota.future as f where f.id = k.job_id);
    get diagnostics gone = row_count;
    return gone;
end $$;
