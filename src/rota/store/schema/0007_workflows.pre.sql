-- Workflows: their definitions, their runs, and the steps of runs. docs/architecture.md describes the protocol.

-- A definition. Each version is kept: a run stays with the version that it was started with.
create table rota.workflow (
    id          uuid primary key,
    namespace   text collate "C" not null,
    name        text collate "C" not null,
    version     int not null,
    digest      text not null,     -- of the definition: the same one again makes no new version
    definition  json not null,
    result_step int,               -- the step whose result is the run's
    deadline    real,              -- seconds after the start of a run
    retention   real,              -- seconds for which ended runs are kept; null: as long as jobs
    created_at  timestamptz not null default rota.now(),
    retired_at  timestamptz,       -- not to be started any more
    source      text not null default 'code',  -- where this version is declared: code, file, api
    unique (namespace, name, version)
);
insert into rota.row_security (table_name, privileges) values ('workflow', 'select, insert, update, delete');

-- The steps of a definition, shared by its runs. Numbers are topological: a successor's is higher.
create table rota.workflow_step (
    workflow_id  uuid not null references rota.workflow (id) on delete cascade,
    number       int not null,
    name         text not null,
    kind         smallint not null,
    task         text collate "C",     -- of a sub-workflow: its name
    queue        text,                 -- this and what follows: null for the task's default
    needs        text[],
    priority     smallint,
    max_attempts smallint,
    timeout      real,
    guarantee    smallint,
    rule         smallint not null default {rule.all_succeeded},
    condition    text,
    tolerated    int not null default 0,             -- how many predecessors may fail
    optional     boolean not null default false,     -- its failure counts as an end without a result
    arguments    json not null,        -- with references to the input and to other steps
    predecessors int not null,
    successors   int[] not null,
    primary key (workflow_id, number)
);
insert into rota.row_security (table_name, condition, privileges) values
    ('workflow_step', 'exists (select from rota.workflow as w where w.id = workflow_id)', 'select, insert, update, delete');

-- A run. No ordinary end of a step writes its row.
create table rota.run (
    id           uuid primary key,
    workflow_id  uuid not null references rota.workflow (id),
    parent_id    uuid,                 -- the run whose step it is, and the number of that step
    parent_step  int,
    schedule_id  uuid,
    created_at   timestamptz not null default rota.now(),
    deadline     real,                 -- seconds after its start, and after each resume
    deadline_at  timestamptz,
    paused_at    timestamptz,
    cancel_at    timestamptz,
    ended_at     timestamptz,
    state        smallint not null default {run.running},
    round        int not null default 1,        -- rises when it is resumed
    priority     smallint,                      -- null: the tasks' own
    namespace    text collate "C" not null,
    name         text collate "C" not null,
    key          text,
    input        json not null,
    headers      json,
    error        json
);
create index run_by_name on rota.run (namespace, name, created_at);
create index run_state on rota.run (namespace, state, created_at);
create index run_parent on rota.run (parent_id) where parent_id is not null;
create index run_deadline on rota.run (deadline_at) where deadline_at is not null and state = {run.running};
create index run_ended on rota.run (ended_at) where ended_at is not null;
insert into rota.row_security (table_name, privileges) values ('run', 'select, insert, update, delete');

-- A step of a run. Only its key is an index, so that updates are heap-only. Without a foreign key, whose checks would take
-- most of the time of a large run's start: only rota.start_run() inserts here, after the run.
create table rota.step (
    run_id     uuid not null,
    number     int not null,
    state      smallint not null default {step.waiting},
    waits      int not null,              -- predecessors that have not ended
    failed     int not null default 0,    -- those that failed, or did not run because of a failure
    skipped    int not null default 0,
    job_id     uuid,                      -- of a sub-workflow: its run
    started_at timestamptz,
    ended_at   timestamptz,
    result     json,
    error      json,
    primary key (run_id, number)
) with (fillfactor = 70);
insert into rota.row_security (table_name, condition, privileges) values
    ('step', 'exists (select from rota.run as r where r.id = run_id)', 'select, insert, update, delete');

-- Steps about which an advancer has to decide: conditions, skips, ends of runs. Without a step: the run itself.
create table rota.pending_step (
    id     bigint generated always as identity primary key,
    run_id uuid not null,
    step   int
);
create index pending_step_run on rota.pending_step (run_id);
insert into rota.row_security (table_name, condition, privileges) values
    ('pending_step', 'exists (select from rota.run as r where r.id = run_id)', 'select, insert, update, delete');

-- However a job of a step ends, its step ends with it. The worker's finish does that for many steps at a time, and says so.
create trigger end_step after insert on rota.past for each row
    when (new.run_id is not null and coalesce(current_setting('rota.ends_steps', true), '') = '')
    execute function rota.job_of_step_ended();
create trigger end_step after insert or update of finished_at on rota.dead for each row
    when (new.run_id is not null)
    execute function rota.job_of_step_ended();
