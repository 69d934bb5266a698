-- Schedules, and the ledger of their occurrences.
--
-- A schedule row says how far its occurrences are accounted for (`cursor`) and when the next is due.
-- Firing writes, in one transaction under the row's lock: ledger rows, jobs, the new cursor. The
-- ledger's primary key makes it idempotent: one (schedule, due time) is one row and at most one job.

create table rota.schedule (
    id           uuid primary key,
    namespace    text collate "C" not null,
    name         text collate "C" not null,
    version      int not null default 1,
    shard        smallint not null,
    next_due     timestamptz,              -- null: none is to come
    cursor       timestamptz not null,     -- every occurrence up to here has its row
    paused_at    timestamptz,
    paused_until timestamptz,
    fired        bigint not null default 0,
    overlap      smallint not null default 1 check (overlap between 1 and 4), -- allow, skip, queue, kill
    max_running  int,                      -- null: no limit
    max_queued   int not null default 1,
    drop_newest  boolean not null default true,
    priority     smallint not null,
    guarantee    smallint not null,
    max_attempts smallint not null,
    timeout      real,
    lane         text collate "C" not null,
    task         text collate "C" not null,
    payload      json not null,
    headers      json,
    spec         json not null,
    source       text not null default 'api',  -- who keeps it: code, file, api
    created_at   timestamptz not null default rota.now(),
    updated_at   timestamptz not null default rota.now(),
    unique (namespace, name)
) with (fillfactor = 80);
create index schedule_due on rota.schedule (shard, next_due) where next_due is not null;
create index schedule_resume on rota.schedule (paused_until) where paused_until is not null;

-- What each version said, and from which moment on: the audit recomputes with these.
create table rota.schedule_version (
    schedule_id uuid not null references rota.schedule on delete cascade,
    version     int not null,
    valid_from  timestamptz not null,
    spec        json not null,
    changed_at  timestamptz not null default rota.now(),
    primary key (schedule_id, version)
);

-- Every expected occurrence. state: 1 fired, 2 skipped. `due_at` is the rule's own moment; a job may
-- start a little later (spread, jitter).
create table rota.occurrence (
    schedule_id uuid not null,
    due_at      timestamptz not null,
    run_at      timestamptz not null,
    decided_at  timestamptz not null default rota.now(),
    job_id      uuid,
    version     int not null,
    state       smallint not null check (state in (1, 2)),
    caught_up   boolean not null default false,
    reason      text,
    primary key (schedule_id, due_at)
) partition by range (due_at);
create table rota.occurrence_other partition of rota.occurrence default;

-- Who may run now. A job of a schedule that limits its overlap enters here, under the schedule's row
-- lock, before it starts, and counts for as long as it is in the future or the present: what ends a job
-- needn't know of it.
create table rota.gate (
    schedule_id uuid not null,
    job_id      uuid not null,
    entered_at  timestamptz not null default rota.now(),
    primary key (schedule_id, job_id)
);
-- Only jobs of schedules are in these. A claim changes nothing that they mention: it stays heap-only.
create index future_scheduled on rota.future (schedule_id, state, due_at) where schedule_id is not null;
create index present_scheduled on rota.present (schedule_id) where schedule_id is not null;

-- Two objects as one; the second wins.
create function rota.merged(one json, other json) returns json language sql immutable parallel safe as $$
    select case when one is null then other else (one::jsonb || other::jsonb)::json end
$$;
create index occurrence_job on rota.occurrence (job_id) where job_id is not null;

create table rota.calendar (
    namespace  text collate "C" not null,
    name       text collate "C" not null,
    days       json not null,
    updated_at timestamptz not null default rota.now(),
    primary key (namespace, name)
);

-- The ledger's days are made and dropped with the past's.
create function rota.make_occurrence_day(day date) returns boolean language plpgsql as $$
declare
    name text := 'occurrence_' || to_char(day, 'YYYYMMDD');
begin
    if to_regclass('rota.' || name) is not null then
        return false;
    end if;
    execute format('create table if not exists rota.%I partition of rota.occurrence for values from (%L) to (%L)', name,
        to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
    return true;
exception when check_violation then
    return false;  -- the default partition already holds rows of that day: it keeps them
end $$;
select rota.make_occurrence_day((rota.now() at time zone 'UTC')::date + ahead) from generate_series(0, 7) as ahead;

-- A job that was not to run after all: to the past as skipped, and its occurrence says why.
create function rota.skip_job(job uuid, why text) returns void language sql volatile as $$
    with gone as (
        delete from rota.future where id = job
        returning id, due_at, created_at, workflow_id, schedule_id, timeout, priority, guarantee, attempt,
            max_attempts, crashes, namespace, lane, task, key, step, share, payload, headers, attempts
    ), held as (
        delete from rota.present where id = job
        returning id, due_at, created_at, workflow_id, schedule_id, timeout, priority, guarantee, attempt,
            max_attempts, crashes, namespace, lane, task, key, step, share, payload, headers, attempts
    ), kept as (
        insert into rota.past (id, due_at, created_at, workflow_id, schedule_id, timeout, priority, guarantee,
            attempt, max_attempts, crashes, namespace, lane, task, key, step, share, payload, headers, attempts,
            state, finished_at)
        select g.*, 8, rota.now() from (select * from gone union all select * from held) as g
    )
    update rota.occurrence set state = 2, reason = why, decided_at = rota.now() where job_id = job
$$;

-- Before a scheduled job starts: may it, beside what its schedule already runs? Decided under the
-- schedule's row lock, so that any number of workers agree. Answers start, skip or wait for each; what
-- isn't ours any more gets no answer.
create function rota.begin_scheduled(me uuid, ids uuid[], tokens bigint[])
    returns table (job_id uuid, verdict text) language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    mine record;
    plan record;
    waiting bigint;
begin
    for mine in
        select p.id, p.schedule_id from unnest(ids, tokens) as a(id, token)
        join rota.present as p on p.id = a.id and p.token = a.token
        where p.node = me and p.state = 4 and p.cancel_at is null
        order by p.schedule_id, p.rank, p.id
        for update of p
    loop
        job_id := mine.id;
        verdict := 'start';
        select s.id, s.overlap, s.max_running, s.max_queued, s.drop_newest into plan
        from rota.schedule as s where s.id = mine.schedule_id for update;
        if found and (plan.overlap <> 1 or plan.max_running is not null) then
            delete from rota.gate as g where g.schedule_id = plan.id
                and not exists (select from rota.present as p where p.id = g.job_id)
                and not exists (select from rota.future as f where f.id = g.job_id);
            if exists (select from rota.gate as g where g.schedule_id = plan.id and g.job_id = mine.id)
               or (select count(*) from rota.gate as g where g.schedule_id = plan.id) < coalesce(plan.max_running, 1)
            then
                insert into rota.gate (schedule_id, job_id) values (plan.id, mine.id) on conflict do nothing;
            elsif plan.overlap in (1, 2) then
                verdict := 'skip';
                perform rota.skip_job(mine.id, 'overlap');
            else
                verdict := 'wait';
                select count(*) into waiting from rota.future as f where f.schedule_id = plan.id and f.state = 1;
                if waiting >= plan.max_queued and (plan.drop_newest or plan.max_queued = 0) then
                    verdict := 'skip';
                    perform rota.skip_job(mine.id, 'overlap_queue_full');
                else
                    if waiting >= plan.max_queued then
                        perform rota.skip_job((select f.id from rota.future as f
                            where f.schedule_id = plan.id and f.state = 1 order by f.due_at limit 1), 'overlap_queue_full');
                    end if;
                    perform rota.make_wait(mine.id);
                end if;
                if plan.overlap = 4 then
                    perform rota.stop_running(plan.id);
                end if;
            end if;
        end if;
        if verdict = 'start' then
            update rota.present as p set started_at = rota.now() where p.id = mine.id;
        end if;
        return next;
    end loop;
end $$;

-- From the present to the future, waiting for the one that runs.
create function rota.make_wait(job uuid) returns void language sql volatile as $$
    with gone as (delete from rota.present where id = job returning *)
    insert into rota.future (id, due_at, created_at, workflow_id, schedule_id, timeout, shard, state, priority,
        guarantee, attempt, max_attempts, crashes, namespace, lane, task, key, step, share, payload, headers, attempts)
    select id, due_at, created_at, workflow_id, schedule_id, timeout,
        rota.shard_of(id, (select value from rota.setting where name = 'shards')), 1, priority,
        guarantee, attempt - 1, max_attempts, crashes, namespace, lane, task, key, step, share, payload, headers, attempts
    from gone
$$;

-- overlap = kill: whoever runs is asked to stop.
create function rota.stop_running(schedule uuid) returns void language sql volatile as $$
    with asked as (
        update rota.present as p set cancel_at = coalesce(p.cancel_at, rota.now())
        from rota.gate as g
        where g.schedule_id = schedule and p.id = g.job_id and p.state = 4
        returning p.id, p.node, p.token, p.namespace
    ), signalled as (
        insert into rota.signal as s (node, job_id, token, kind)
        select node, id, token, 'cancel' from asked
        on conflict (node, job_id) do update set token = excluded.token
    )
    select pg_notify('rota_' || md5('rota.' || namespace), 'signal ' || node) from asked
$$;

-- What people should hear of: slow runs, missed deadlines, late occurrences.
create table rota.event (
    id        bigint generated always as identity primary key,
    at        timestamptz not null default rota.now(),
    namespace text collate "C" not null,
    kind      text not null,
    task      text not null,
    job_id    uuid,
    detail    json not null
);
create index event_at on rota.event (at);
-- One event of a kind per job, whoever sees it first.
create unique index event_once on rota.event (job_id, kind);

alter table rota.task add column expected real;
alter table rota.task add column deadline real;
