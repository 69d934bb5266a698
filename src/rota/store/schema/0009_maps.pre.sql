-- Maps: steps that call a task for each item of a list. docs/architecture.md describes the protocol.

-- What a step maps over, and how: null for other steps.
alter table rota.workflow_step add column map json;

-- The map of a step in a run. Its row is locked by whoever ends chunks of it, or stops it.
create table rota.map (
    run_id    uuid not null,
    step      int not null,
    id        uuid not null,                   -- under which its items and results are encrypted
    job_id    uuid,                            -- that of its step while the step runs
    each_job  boolean not null,                -- every member is a job of its own
    held      boolean not null default false,  -- the run is paused: no further chunk starts
    stopped   boolean not null default false,  -- the run is being cancelled: no further chunk starts
    closed    boolean not null default false,  -- all members are known
    at_once   int not null,
    tolerated int not null,                    -- how many members may fail; or, if not null, which share
    share     double precision,
    chunks    int not null default 0,
    next      int not null default 0,          -- no chunk before it waits
    running   int not null default 0,
    ended     int not null default 0,
    members   bigint not null default 0,
    succeeded bigint not null default 0,       -- members of chunks that have ended
    failed    bigint not null default 0,
    primary key (run_id, step)
) with (fillfactor = 50);
insert into rota.row_security (table_name, condition, privileges) values
    ('map', 'exists (select from rota.run as r where r.id = run_id)', 'select, insert, update, delete');

-- Members that one job calls the task for, one after the other; or one member, if every member is a job.
create table rota.map_chunk (
    run_id     uuid not null,
    step       int not null,
    number     int not null,
    first      bigint not null,              -- the number of its first member
    size       int not null,
    state      smallint not null default {step.waiting},
    done       int not null default 0,       -- so many from its beginning were tried
    failed     int not null default 0,       -- set at its end
    token      bigint,                       -- of the attempt that opened it
    begun      bigint,                       -- the member that began, where each is recorded by itself
    job_id     uuid,
    started_at timestamptz,
    ended_at   timestamptz,
    items      json not null,
    result     json,                         -- of a member that is a job
    primary key (run_id, step, number)
) with (fillfactor = 90);
create index map_chunk_running on rota.map_chunk (run_id, step) where state = {step.running};
create index map_chunk_first on rota.map_chunk (run_id, step, first);
insert into rota.row_security (table_name, condition, privileges) values
    ('map_chunk', 'exists (select from rota.run as r where r.id = run_id)', 'select, insert, update, delete');

-- Results of members, as they were recorded: of `size` members from `first` on. None: they returned nothing.
create table rota.map_result (
    run_id  uuid not null,
    step    int not null,
    first   bigint not null,
    size    int not null,
    results json not null,
    primary key (run_id, step, first)
);
insert into rota.row_security (table_name, condition, privileges) values
    ('map_result', 'exists (select from rota.run as r where r.id = run_id)', 'select, insert, update, delete');

-- Members that have failed at least once. `waiting`: to be tried again.
create table rota.map_member (
    run_id   uuid not null,
    step     int not null,
    number   bigint not null,
    state    smallint not null,
    attempt  smallint not null,
    ended_at timestamptz not null default rota.now(),
    result   json,
    error    json,
    primary key (run_id, step, number)
);
insert into rota.row_security (table_name, condition, privileges) values
    ('map_member', 'exists (select from rota.run as r where r.id = run_id)', 'select, insert, update, delete');
