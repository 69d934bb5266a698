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
create index occurrence_job on rota.occurrence (job_id) where job_id is not null;

create table rota.calendar (
    namespace  text collate "C" not null,
    name       text collate "C" not null,
    days       json not null,
    updated_at timestamptz not null default rota.now(),
    primary key (namespace, name)
);
select rota.make_occurrence_day((rota.now() at time zone 'UTC')::date + ahead) from generate_series(0, 7) as ahead;

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
