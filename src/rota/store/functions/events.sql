-- Whether a sink has asked for events of this kind, which are not recorded otherwise.
create or replace function rota.is_wanted(space text, wanted text, queue text, task text) returns boolean language sql stable as $$
    select exists (select from rota.sink as s where s.namespace = space and is_wanted.wanted = any(s.wants)
        and (s.of_queues = '{}' or is_wanted.queue = any(s.of_queues))
        and (s.of_tasks = '{}' or is_wanted.task = any(s.of_tasks)))
$$;

-- A failed delivery makes no event for webhooks: that would never end.
create or replace function rota.hand_over_events() returns trigger language plpgsql as $$
declare
    jobs json;
begin
    if not exists (select from rota.webhook as w where w.paused_at is null) then
        return null;
    end if;
    select json_agg(json_build_object(
        'id', rota.new_id(), 'namespace', e.namespace, 'task', 'rota' || '.webhook', 'queue', 'webhooks',
        'payload', json_build_object('webhook', w.id, 'event', json_build_object(
            'id', e.id, 'at', e.at, 'namespace', e.namespace, 'kind', e.kind, 'task', e.task, 'job_id', e.job_id,
            'detail', e.detail)))) into jobs
    from added as e join rota.webhook as w
        on w.namespace = e.namespace and w.paused_at is null and (w.kinds = '{}' or e.kind = any(w.kinds))
    where e.task <> 'rota' || '.webhook'
      -- In a maintenance window people are told nothing; programs, which take JSON, go on.
      and (w.format = 'json' or not exists (select from rota.maintenance as m
          where m.namespace = e.namespace and m.starts_at <= e.at and e.at < m.ends_at
            and (m.kinds = '{}' or e.kind = any(m.kinds))));
    if jobs is not null then
        begin
            perform rota.submit_jobs(jobs, false, 'never');
        exception when others then
            -- A failed delivery must not undo the event.
            raise warning 'rota: events could not be handed over to webhooks: %', sqlerrm;
        end;
    end if;
    return null;
end $$;

-- An event for each dead letter. Encrypted messages are left out of it.
create or replace function rota.note_dead_letters() returns trigger language plpgsql as $$
begin
    if current_setting('rota.restoring', true) = 'on' then  -- an undo: these had failed before
        return null;
    end if;
    delete from rota.event as e using buried as b where e.job_id = b.id and e.kind = 'dead_lettered';
    insert into rota.event (namespace, kind, task, job_id, detail)
    select b.namespace, 'dead_lettered', b.task, b.id, json_build_object('attempt', b.attempt,
        'queue', rota.queue_of(b.lane), 'error', b.error ->> 'type', 'message',
        case when starts_with(b.error ->> 'message', '$rota-encrypted:') then '(encrypted)'
             else left(b.error ->> 'message', 300) end)
    from buried as b
    on conflict (job_id, kind) do nothing;
    return null;
end $$;

-- Occurrences that were left out: no scheduler ran while they were due, or the run before was not over. Those of
-- one decision together.
create or replace function rota.note_left_out() returns trigger language plpgsql as $$
begin
    if exists (select from decided as d where d.state = {occurrence.skipped} and d.reason in ('catch_up', 'overlap', 'overlap_queue_full')) then
        insert into rota.event (namespace, kind, task, detail)
        select s.namespace, case d.reason when 'catch_up' then 'missed' else 'overran' end, s.task, json_build_object(
            'schedule', s.name, 'occurrences', count(*), 'first', min(d.due_at), 'last', max(d.due_at), 'reason', d.reason)
        from decided as d join rota.schedule as s on s.id = d.schedule_id
        where d.state = {occurrence.skipped} and d.reason in ('catch_up', 'overlap', 'overlap_queue_full')
        group by s.id, d.reason;
    end if;
    if tg_op = 'INSERT' and exists (select from rota.sink as s where 'fired' = any(s.wants)) then
        insert into rota.outbox (id, namespace, kind, task, job_id, detail)
        select nextval('rota.event_id_seq'), s.namespace, 'fired', s.task, d.job_id, json_build_object('schedule', s.name,
            'queue', rota.queue_of(s.lane), 'due_at', d.due_at, 'run_at', d.run_at, 'caught_up', d.caught_up)
        from decided as d join rota.schedule as s on s.id = d.schedule_id
        where d.state = {occurrence.fired} and rota.is_wanted(s.namespace, 'fired', rota.queue_of(s.lane), s.task);
    end if;
    return null;
end $$;

create or replace function rota.note_dead_node() returns trigger language plpgsql as $$
begin
    insert into rota.event (namespace, kind, task, detail)
    values (new.namespace, 'node_dead', '', json_build_object('node', new.id, 'name', new.name, 'host', new.host,
        'pid', new.pid, 'silent', extract(epoch from rota.now() - new.heartbeat_at), 'running', new.running));
    return null;
end $$;
