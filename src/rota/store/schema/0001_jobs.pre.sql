-- Settings, row security and jobs. `rota.` stands for the configured schema: it is replaced when this file is read.
--
-- A job's row moves: future -> present -> past, or dead (the dead-letter list, which outlives the retention of
-- the past and from which jobs return). A job is in exactly one of these tables at any time. The checks on
-- `state` also tell the planner which tables a query for one state needs.

create table rota.setting (
    name  text primary key,
    value bigint not null
);
insert into rota.setting (name, value) values
    ('shards', 128),
    ('horizon_ms', 1000),
    ('max_payload_bytes', 1000000),
    ('ledger_from', 0);  -- occurrences that were due before this moment have been removed by the retention

-- The objects of the schema, as the last `rota migrate` left them: a restore that lost some of them is noticed,
-- and repaired from the definitions kept here.
create table rota.schema_object (
    kind       text not null,
    name       text not null,
    definition text,             -- null: created by a file of functions/, or by enable_row_security()
    primary key (kind, name)
);

-- Row security between namespaces. The server runs queries about a namespace as the role rota_tenant, with the
-- namespace in a setting of the connection: a query without the right `where` finds no rows of other namespaces.
-- rota_tenant has no rights on tables that aren't listed here. Other roles are not affected. Each table's row
-- follows the table's definition.
create table rota.row_security (
    table_name text primary key,
    condition  text not null default 'namespace = current_setting(''rota.namespace'', true)',
    privileges text not null
);
insert into rota.row_security (table_name, condition, privileges) values
    ('setting', 'true', 'select'),
    ('migration', 'true', 'select');

-- Rises with every claimed batch; a write with an older token than the job's is refused.
create sequence rota.token as bigint;

create table rota.future (
    id           uuid primary key,
    due_at       timestamptz not null,
    created_at   timestamptz not null default rota.now(),
    run_id       uuid,
    schedule_id  uuid,
    timeout      real,
    shard        smallint not null,
    state        smallint not null default {state.scheduled} check (state in ({state.waiting}, {state.scheduled})),
    priority     smallint not null default 0,
    guarantee    smallint not null default {guarantee.at_least_once},
    attempt      smallint not null default 0,
    max_attempts smallint not null default 5,
    crashes      smallint not null default 0,
    namespace    text collate "C" not null,
    lane         text collate "C" not null,
    task         text collate "C" not null,
    key          text,
    step         int,
    share        text,
    payload      json not null,
    headers      json,
    attempts     jsonb
);
create index future_scheduled on rota.future (schedule_id, state, due_at) where schedule_id is not null;
-- Only scheduled jobs are released: waiting jobs, of which a backfill may have many, are not in this index.
create index future_due on rota.future (shard, due_at) where state = {state.scheduled};
create index future_waiting on rota.future (schedule_id, due_at) where state = {state.waiting};
insert into rota.row_security (table_name, privileges) values ('future', 'select, insert, update, delete');

-- Small and hot. No index contains a column that a claim changes (state, node, token, attempt, ...), and half of
-- each page is kept free, so that a claim is a heap-only update.
create table rota.present (
    id           uuid not null,
    rank         bigint not null,
    token        bigint not null default 0,
    due_at       timestamptz not null,
    created_at   timestamptz not null default rota.now(),
    claimed_at   timestamptz,
    started_at   timestamptz,
    cancel_at    timestamptz,
    alive_at     timestamptz,  -- the last sign of life of an attempt at an HTTP worker
    node         uuid,
    run_id       uuid,
    schedule_id  uuid,
    timeout      real,
    state        smallint not null default {state.ready} check (state in ({state.ready}, {state.running})),
    priority     smallint not null default 0,
    guarantee    smallint not null default {guarantee.at_least_once},
    attempt      smallint not null default 0,
    max_attempts smallint not null default 5,
    crashes      smallint not null default 0,
    namespace    text collate "C" not null,
    lane         text collate "C" not null,
    task         text collate "C" not null,
    key          text,
    step         int,
    share        text,
    payload      json not null,
    headers      json,
    progress     json,
    attempts     jsonb
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_threshold = -1,  -- rows that only wait need no vacuum
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0
);
create index present_claim on rota.present (lane, rank, id);
create index present_scheduled on rota.present (schedule_id) where schedule_id is not null;
-- The planner takes the newest of indexes that seem equally good, and on an empty table all of them do. The
-- primary key is created last, so that a finish that was planned on an empty table uses it.
alter table rota.present add primary key (id);
insert into rota.row_security (table_name, privileges) values ('present', 'select, insert, update, delete');

-- Append-only; the retention drops whole days.
create table rota.past (
    id           uuid not null,
    token        bigint,
    due_at       timestamptz not null,
    created_at   timestamptz not null,
    started_at   timestamptz,
    finished_at  timestamptz not null,
    node         uuid,
    run_id       uuid,
    schedule_id  uuid,
    timeout      real,
    state        smallint not null check (state in ({state.succeeded}, {state.cancelled}, {state.skipped})),
    priority     smallint not null,
    guarantee    smallint not null,
    attempt      smallint not null,
    max_attempts smallint not null,
    crashes      smallint not null,
    namespace    text collate "C" not null,
    lane         text collate "C" not null,
    task         text collate "C" not null,
    key          text,
    step         int,
    share        text,
    payload      json not null,
    headers      json,
    progress     json,
    attempts     jsonb,
    result       json,
    error        json
) partition by range (finished_at);
create index past_id on rota.past (id);
-- Takes rows of days that have no partition, so that a finish never fails for want of one.
create table rota.past_other partition of rota.past default;
insert into rota.row_security (table_name, privileges) values ('past', 'select, insert, update, delete');

-- The dead-letter list: failed jobs that wait for a person. Same columns as the past.
create table rota.dead (like rota.past including defaults, primary key (id), check (state = {state.failed}));
create index dead_finished on rota.dead (finished_at);
create trigger note_dead_letters after insert on rota.dead referencing new table as buried
    for each statement execute function rota.note_dead_letters();
insert into rota.row_security (table_name, privileges) values ('dead', 'select, insert, update, delete');
select rota.make_day((rota.now() at time zone 'UTC')::date + ahead) from generate_series(0, 7) as ahead;

create view rota.job as
    select id, namespace, task, lane, state, priority, due_at, created_at, payload, headers, key,
           guarantee, attempt, max_attempts, timeout, crashes, attempts, run_id, schedule_id, step, share,
           null::uuid as node, null::bigint as token, null::timestamptz as started_at,
           null::timestamptz as finished_at, null::timestamptz as cancel_at,
           null::json as progress, null::json as result, null::json as error
    from rota.future
    union all
    select id, namespace, task, lane, state, priority, due_at, created_at, payload, headers, key,
           guarantee, attempt, max_attempts, timeout, crashes, attempts, run_id, schedule_id, step, share,
           node, token, coalesce(started_at, claimed_at), null, cancel_at, progress, null, null
    from rota.present
    union all
    select id, namespace, task, lane, state, priority, due_at, created_at, payload, headers, key,
           guarantee, attempt, max_attempts, timeout, crashes, attempts, run_id, schedule_id, step, share,
           node, token, started_at, finished_at, null, progress, result, error
    from rota.past
    union all
    select id, namespace, task, lane, state, priority, due_at, created_at, payload, headers, key,
           guarantee, attempt, max_attempts, timeout, crashes, attempts, run_id, schedule_id, step, share,
           node, token, started_at, finished_at, null, progress, result, error
    from rota.dead;
comment on view rota.job is
    'Every job, wherever it is in its life. state: 1 waiting, 2 scheduled, 3 ready, 4 running, '
    '5 succeeded, 6 failed, 7 cancelled, 8 skipped.';

-- Idempotency keys and the jobs they were used for. Kept as long as the job is.
create table rota.submit_key (
    namespace   text collate "C" not null,
    key         text collate "C" not null,
    job_id      uuid not null,
    fingerprint text not null,
    created_at  timestamptz not null default rota.now(),
    primary key (namespace, key)
);
insert into rota.row_security (table_name, privileges) values ('submit_key', 'select, insert, update, delete');

-- Side effects guarded by ctx.once(): begun, then done with a result.
create table rota.effect (
    namespace  text collate "C" not null,
    key        text collate "C" not null,
    job_id     uuid not null,
    token      bigint not null,
    begun_at   timestamptz not null default rota.now(),
    done_at    timestamptz,
    result     json,
    primary key (namespace, key)
);
insert into rota.row_security (table_name, privileges) values ('effect', 'select, insert, update, delete');

-- What jobs print and log. Appended in batches; the retention drops whole days.
create table rota.job_log (
    job_id    uuid not null,
    token     bigint not null,
    seq       int not null,           -- from 1 in each attempt
    at        timestamptz not null,
    attempt   smallint not null,
    namespace text collate "C" not null,
    stream    text not null,          -- stdout, stderr, mark, or the level of a log record
    text      text not null,
    -- A batch that is written again because its answer was lost changes nothing.
    primary key (job_id, token, seq, at)
) partition by range (at);
create table rota.job_log_other partition of rota.job_log default;
select rota.make_log_day((rota.now() at time zone 'UTC')::date + ahead) from generate_series(0, 7) as ahead;
insert into rota.row_security (table_name, privileges) values ('job_log', 'select, insert');
