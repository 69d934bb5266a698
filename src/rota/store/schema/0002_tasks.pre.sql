-- Queues, lanes and tasks.

create table rota.queue (
    namespace    text collate "C" not null,
    name         text collate "C" not null,
    paused_at    timestamptz,
    created_at   timestamptz not null default rota.now(),
    max_run_time real check (max_run_time > 0),
    lag_reported_at  timestamptz,  -- the last event about this queue's lag
    primary key (namespace, name)
);
insert into rota.row_security (table_name, privileges) values ('queue', 'select, insert, update, delete');

create table rota.lane (
    lane      text collate "C" primary key,
    namespace text collate "C" not null,
    queue     text collate "C" not null,
    needs     text[] not null
);
insert into rota.row_security (table_name, privileges) values ('lane', 'select, insert, update, delete');

-- The defaults that nodes' code gives its tasks, so that submits from plain SQL get the same.
create table rota.task (
    namespace    text collate "C" not null,
    name         text collate "C" not null,
    queue        text not null,
    needs        text[] not null,
    priority     smallint not null,
    guarantee    smallint not null,
    max_attempts smallint not null,
    timeout      real,
    expected     real,  -- seconds that a run usually takes
    deadline     real,  -- seconds after its due time by which a job should have ended
    retry        json,  -- how failures are retried, for tasks whose code no node has
    updated_at   timestamptz not null default rota.now(),
    primary key (namespace, name)
);
insert into rota.row_security (table_name, privileges) values ('task', 'select, insert, update, delete');

-- The arguments that nodes' code declares for its tasks, so that submits and schedules from elsewhere can be checked.
create table rota.task_signature (
    namespace     text collate "C" not null,
    name          text collate "C" not null,
    release       text collate "C" not null,
    signature     json not null,
    registered_at timestamptz not null default rota.now(),
    primary key (namespace, name, release)
);
insert into rota.row_security (table_name, privileges) values ('task_signature', 'select');

-- Tasks for which jobs were submitted though no node had registered them: each becomes one event.
create table rota.unknown_task (
    namespace text collate "C" not null,
    name      text collate "C" not null,
    noted_at  timestamptz not null default rota.now(),
    primary key (namespace, name)
);
insert into rota.row_security (table_name, privileges) values ('unknown_task', 'select, insert');

-- The baseline of a task's durations. It is learned once and kept until runs have been much shorter for long.
create table rota.duration_baseline (
    namespace    text collate "C" not null,
    task         text collate "C" not null,
    usual        float8 not null,   -- seconds: the median of the runs it was learned from
    most         float8 not null,   -- seconds that a single run should not exceed
    learned_at   timestamptz not null default rota.now(),
    slower_since timestamptz,       -- runs have consistently taken longer since
    reported_at      timestamptz,       -- the last event about it
    primary key (namespace, task)
);
insert into rota.row_security (table_name, privileges) values ('duration_baseline', 'select, delete');
