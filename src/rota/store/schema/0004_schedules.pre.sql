-- Schedules, and the ledger of their occurrences.
--
-- A schedule row says how far its occurrences are accounted for (`cursor`) and when the next is due. Firing writes,
-- in one transaction under the row's lock: ledger rows, jobs, the new cursor. The ledger's primary key makes it
-- idempotent: one (schedule, due time) is one row and at most one job.

create table rota.schedule (
    id           uuid primary key,
    namespace    text collate "C" not null,
    name         text collate "C" not null,
    version      int not null default 1,
    undecided_version int,                 -- the oldest version with undecided occurrences; null: the current one
    shard        smallint not null,
    next_due     timestamptz,              -- null: no occurrence is to come
    cursor       timestamptz not null,     -- every occurrence up to here has its row
    paused_at    timestamptz,
    paused_until timestamptz,
    -- A schedule that is deleted with many undecided occurrences is removed once these are written, in steps. It has
    -- no next_due and no gate rows meanwhile, so that it doesn't fire.
    deleted_at   timestamptz,
    fired        bigint not null default 0,
    overlap      smallint not null default {overlap.allow} check (overlap between {overlap.allow} and {overlap.kill}),
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
    source       text not null default 'api',  -- where it is declared: code, file, api
    app          text collate "C",             -- the application that declares it in code
    created_at   timestamptz not null default rota.now(),
    updated_at   timestamptz not null default rota.now(),
    unique (namespace, name)
) with (fillfactor = 80);
create index schedule_due on rota.schedule (shard, next_due) where next_due is not null;
create index schedule_resume on rota.schedule (paused_until) where paused_until is not null;
create index schedule_deleted on rota.schedule (id) where deleted_at is not null;
insert into rota.row_security (table_name, privileges) values ('schedule', 'select, insert, update, delete');

-- The definition of each version, and the moment from which it applies: the audit recomputes occurrences with these.
create table rota.schedule_version (
    schedule_id    uuid not null references rota.schedule on delete cascade,
    version        int not null,
    valid_from     timestamptz not null,
    spec           json not null,
    changed_at     timestamptz not null default rota.now(),
    -- An update that could not read the version before it leaves a stretch of time without rows, and the reason.
    unsettled_from timestamptz,
    unsettled      text,
    primary key (schedule_id, version)
);
-- The condition reads a table that has row security itself. So for the tables below.
insert into rota.row_security (table_name, condition, privileges) values
    ('schedule_version', 'exists (select from rota.schedule as s where s.id = schedule_id)', 'select, insert, update, delete');

-- Every expected occurrence, fired or skipped. `due_at` is the rule's own moment; a job may start a little
-- later (spread, jitter).
create table rota.occurrence (
    schedule_id uuid not null,
    due_at      timestamptz not null,
    run_at      timestamptz not null,
    decided_at  timestamptz not null default rota.now(),
    job_id      uuid,
    version     int not null,
    state       smallint not null check (state in ({occurrence.fired}, {occurrence.skipped})),
    caught_up   boolean not null default false,
    reason      text,
    primary key (schedule_id, due_at)
) partition by range (due_at);
create table rota.occurrence_other partition of rota.occurrence default;
create index occurrence_job on rota.occurrence (job_id) where job_id is not null;
-- Statistics are continued from the last occurrence that was counted.
create index occurrence_decided on rota.occurrence (decided_at);
create trigger note_left_out after insert on rota.occurrence referencing new table as decided
    for each statement execute function rota.note_left_out();
create trigger note_left_out_later after update on rota.occurrence referencing new table as decided
    for each statement execute function rota.note_left_out();
insert into rota.row_security (table_name, condition, privileges) values
    ('occurrence', 'exists (select from rota.schedule as s where s.id = schedule_id)', 'select, insert, update, delete');
select rota.make_occurrence_day((rota.now() at time zone 'UTC')::date + ahead) from generate_series(0, 7) as ahead;

-- The jobs that may run now, of schedules that limit their overlap. A job enters under the schedule's row lock before
-- it starts, and counts for as long as it is in the future or the present: what ends a job needn't update this.
create table rota.gate (
    schedule_id uuid not null,
    job_id      uuid not null,
    entered_at  timestamptz not null default rota.now(),
    primary key (schedule_id, job_id)
);
insert into rota.row_security (table_name, condition, privileges) values
    ('gate', 'exists (select from rota.schedule as s where s.id = schedule_id)', 'select, insert, update, delete');

-- Schedules that a node can't plan. A row counts for as long as its node keeps trying (`seen_at`) and the schedule's
-- version is the one that the node tried.
create table rota.schedule_problem (
    schedule_id uuid not null references rota.schedule on delete cascade,
    node        text not null,
    version     int not null,
    since       timestamptz not null default rota.now(),
    seen_at     timestamptz not null default rota.now(),
    reason      text not null,
    primary key (schedule_id, node)
);
insert into rota.row_security (table_name, condition, privileges) values
    ('schedule_problem', 'exists (select from rota.schedule as s where s.id = schedule_id)', 'select');

-- The sets of schedules that an application has declared, each by the digest of its contents. The one with the latest
-- `declared_at` is in force; the others were superseded.
create table rota.declaration (
    namespace   text collate "C" not null,
    app         text collate "C" not null,
    digest      text not null,
    release     text not null default '',
    declared_at timestamptz not null default rota.now(),
    primary key (namespace, app, digest)
);
insert into rota.row_security (table_name, privileges) values ('declaration', 'select');

create table rota.calendar (
    namespace  text collate "C" not null,
    name       text collate "C" not null,
    days       json not null,
    updated_at timestamptz not null default rota.now(),
    primary key (namespace, name)
);
insert into rota.row_security (table_name, privileges) values ('calendar', 'select, insert, update, delete');
