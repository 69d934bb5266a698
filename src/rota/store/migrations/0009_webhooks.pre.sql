-- Events to webhooks, through the engine itself; more kinds of events; an index for figures.
--
-- Events are recorded by triggers, in the transaction of what they tell; and handed over to deliveries, jobs
-- of the built-in task for webhooks, in the transaction that records them. So an event that was committed has
-- its deliveries, and one that wasn't has none.

create table rota.webhook (
    id              uuid primary key,
    namespace       text collate "C" not null,
    url             text not null,
    secret          text not null,          -- what deliveries are signed with
    kinds           text[] not null default '{}',  -- empty: all
    format          text not null default 'json' check (format in ('json', 'slack')),
    paused_at       timestamptz,
    failures        int not null default 0, -- deliveries in a row that came to nothing
    last_error      text,
    delivered_at    timestamptz,            -- the last that arrived
    created_at      timestamptz not null default rota.now(),
    unique (namespace, url)
);

-- Where webhooks (and push tasks) of a namespace may go besides public addresses: a host's name, an address
-- or a network.
create table rota.allowed_host (
    namespace  text collate "C" not null,
    entry      text not null,
    created_at timestamptz not null default rota.now(),
    primary key (namespace, entry)
);

-- A delivery's own failure is told to nobody: it would never end.
create function rota.hand_over_events() returns trigger language plpgsql as $$
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
    where e.task <> 'rota' || '.webhook';
    if jobs is not null then
        begin
            perform rota.submit_jobs(jobs);
        exception when others then
            -- What is told must not be undone by the telling.
            raise warning 'rota: events could not be handed over to webhooks: %', sqlerrm;
        end;
    end if;
    return null;
end $$;
create trigger hand_over after insert on rota.event referencing new table as added
    for each statement execute function rota.hand_over_events();

-- A job that failed for good. One that was retried by a person and failed again is told again.
create function rota.note_dead_letters() returns trigger language plpgsql as $$
begin
    delete from rota.event as e using buried as b where e.job_id = b.id and e.kind = 'dead_lettered';
    insert into rota.event (namespace, kind, task, job_id, detail)
    select b.namespace, 'dead_lettered', b.task, b.id, json_build_object('attempt', b.attempt,
        'queue', rota.queue_of(b.lane), 'error', b.error ->> 'type', 'message', left(b.error ->> 'message', 300))
    from buried as b
    on conflict (job_id, kind) do nothing;
    return null;
end $$;
create trigger note_dead_letters after insert on rota.dead referencing new table as buried
    for each statement execute function rota.note_dead_letters();

-- Occurrences that were left out: nobody fired while they were due, or the run before was not over. Those of
-- one decision together.
create function rota.note_left_out() returns trigger language plpgsql as $$
begin
    if exists (select from decided as d where d.state = 2 and d.reason in ('catch_up', 'overlap', 'overlap_queue_full')) then
        insert into rota.event (namespace, kind, task, detail)
        select s.namespace, case d.reason when 'catch_up' then 'missed' else 'overran' end, s.task, json_build_object(
            'schedule', s.name, 'occurrences', count(*), 'first', min(d.due_at), 'last', max(d.due_at), 'reason', d.reason)
        from decided as d join rota.schedule as s on s.id = d.schedule_id
        where d.state = 2 and d.reason in ('catch_up', 'overlap', 'overlap_queue_full')
        group by s.id, d.reason;
    end if;
    return null;
end $$;
create trigger note_left_out after insert on rota.occurrence referencing new table as decided
    for each statement execute function rota.note_left_out();
create trigger note_left_out_later after update on rota.occurrence referencing new table as decided
    for each statement execute function rota.note_left_out();

create function rota.note_dead_node() returns trigger language plpgsql as $$
begin
    insert into rota.event (namespace, kind, task, detail)
    values (new.namespace, 'node_dead', '', json_build_object('node', new.id, 'name', new.name, 'host', new.host,
        'pid', new.pid, 'silent', extract(epoch from rota.now() - new.heartbeat_at), 'running', new.running));
    return null;
end $$;
create trigger note_dead_node after update on rota.node for each row
    when (new.state = 'dead' and old.state is distinct from 'dead') execute function rota.note_dead_node();

-- Figures of occurrences are counted on from where one stopped.
create index occurrence_decided on rota.occurrence (decided_at);

insert into rota.wall (table_name, condition, privileges) values
    ('webhook', 'namespace = current_setting(''rota.namespace'', true)', 'select, insert, update, delete'),
    ('allowed_host', 'namespace = current_setting(''rota.namespace'', true)', 'select');
select rota.raise_walls();
