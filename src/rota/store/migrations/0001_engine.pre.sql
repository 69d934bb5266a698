-- The engine's tables. `rota.` stands for the configured schema: it is replaced when this file is read.
--
-- The checks on `state` also tell the planner which tables a question about one state needs.
-- A job's row moves: future -> present -> past, or dead (the dead-letter list, which outlives the
-- past's retention and from which jobs return). Wherever it is, it is in exactly one of them.

create table rota.setting (
    name  text primary key,
    value bigint not null
);
insert into rota.setting (name, value) values
    ('shards', 128),
    ('horizon_ms', 1000),
    ('max_payload_bytes', 1000000);

-- Rises with every claimed batch; a write that carries an older one is refused.
create sequence rota.token as bigint;

create table rota.future (
    id           uuid primary key,
    due_at       timestamptz not null,
    created_at   timestamptz not null default rota.now(),
    workflow_id  uuid,
    schedule_id  uuid,
    timeout      real,
    shard        smallint not null,
    state        smallint not null default 2 check (state in (1, 2)),
    priority     smallint not null default 0,
    guarantee    smallint not null default 1,
    attempt      smallint not null default 0,
    max_attempts smallint not null default 5,
    crashes      smallint not null default 0,
    namespace    text collate "C" not null,
    lane         text collate "C" not null,
    task         text collate "C" not null,
    key          text,
    step         text,
    share        text,
    payload      json not null,
    headers      json,
    attempts     jsonb
);
create index future_due on rota.future (shard, due_at);

-- Small and hot. No index mentions what a claim changes (state, node, token, attempt, ...), and
-- half of each page is kept free, so that a claim is a heap-only update.
create table rota.present (
    id           uuid primary key,
    rank         bigint not null,
    token        bigint not null default 0,
    due_at       timestamptz not null,
    created_at   timestamptz not null default rota.now(),
    claimed_at   timestamptz,
    started_at   timestamptz,
    cancel_at    timestamptz,
    node         uuid,
    workflow_id  uuid,
    schedule_id  uuid,
    timeout      real,
    state        smallint not null default 3 check (state in (3, 4)),
    priority     smallint not null default 0,
    guarantee    smallint not null default 1,
    attempt      smallint not null default 0,
    max_attempts smallint not null default 5,
    crashes      smallint not null default 0,
    namespace    text collate "C" not null,
    lane         text collate "C" not null,
    task         text collate "C" not null,
    key          text,
    step         text,
    share        text,
    payload      json not null,
    headers      json,
    progress     json,
    attempts     jsonb
) with (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_insert_threshold = -1,  -- rows that are only waiting need no vacuum
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0
);
create index present_claim on rota.present (lane, rank, id);

-- Append-only; retention drops whole days.
create table rota.past (
    id           uuid not null,
    token        bigint,
    due_at       timestamptz not null,
    created_at   timestamptz not null,
    started_at   timestamptz,
    finished_at  timestamptz not null,
    node         uuid,
    workflow_id  uuid,
    schedule_id  uuid,
    timeout      real,
    state        smallint not null check (state in (5, 7, 8)),
    priority     smallint not null,
    guarantee    smallint not null,
    attempt      smallint not null,
    max_attempts smallint not null,
    crashes      smallint not null,
    namespace    text collate "C" not null,
    lane         text collate "C" not null,
    task         text collate "C" not null,
    key          text,
    step         text,
    share        text,
    payload      json not null,
    headers      json,
    progress     json,
    attempts     jsonb,
    result       json,
    error        json
) partition by range (finished_at);
create index past_id on rota.past (id);
-- Catches what no day was made for, so that a finish never fails for want of a partition.
create table rota.past_other partition of rota.past default;

-- The dead-letter list: failed jobs that wait for a person. Same columns as the past.
create table rota.dead (like rota.past including defaults, primary key (id), check (state = 6));
create index dead_finished on rota.dead (finished_at);
select rota.make_day((rota.now() at time zone 'UTC')::date + ahead) from generate_series(0, 7) as ahead;

-- What idempotency keys were used for. Kept as long as their job is.
create table rota.submit_key (
    namespace   text collate "C" not null,
    key         text collate "C" not null,
    job_id      uuid not null,
    fingerprint text not null,
    created_at  timestamptz not null default rota.now(),
    primary key (namespace, key)
);

-- What each node holds, one row per claimed batch and lane: where in the lane the reaper finds what a
-- dead node leaves behind. Not the ids themselves: a few hundred of them cost more than the claim.
create table rota.batch (
    token      bigint not null,
    lane       text collate "C" not null,
    node       uuid not null,
    low        bigint not null,   -- ranks
    high       bigint not null,
    claimed_at timestamptz not null default rota.now(),
    primary key (token, lane)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index batch_node on rota.batch (node);

create table rota.node (
    id           uuid primary key,
    namespace    text not null,
    name         text not null,
    host         text not null,
    pid          int not null,
    version      text not null,
    roles        text[] not null,
    state        text not null default 'live' check (state in ('live', 'draining', 'stopped', 'dead')),
    started_at   timestamptz not null default rota.now(),
    heartbeat_at timestamptz not null default rota.now(),
    expires_at   timestamptz not null,
    ended_at     timestamptz,
    queues       text[] not null,   -- empty: all
    capabilities text[] not null,
    tasks        text[] not null,
    slots        int not null,
    running      int not null default 0
) with (fillfactor = 50);

-- What a node should be told about a job it runs. Read with each heartbeat, hinted by NOTIFY.
create table rota.signal (
    node       uuid not null,
    job_id     uuid not null,
    token      bigint not null,
    kind       text not null check (kind in ('cancel')),
    created_at timestamptz not null default rota.now(),
    primary key (node, job_id)
);

create table rota.queue (
    namespace  text collate "C" not null,
    name       text collate "C" not null,
    paused_at  timestamptz,
    created_at timestamptz not null default rota.now(),
    primary key (namespace, name)
);

create table rota.lane (
    lane      text collate "C" primary key,
    namespace text collate "C" not null,
    queue     text collate "C" not null,
    needs     text[] not null
);

-- What the nodes' code says of its tasks, so that submits from plain SQL get the same defaults.
create table rota.task (
    namespace    text collate "C" not null,
    name         text collate "C" not null,
    queue        text not null,
    needs        text[] not null,
    priority     smallint not null,
    guarantee    smallint not null,
    max_attempts smallint not null,
    timeout      real,
    updated_at   timestamptz not null default rota.now(),
    primary key (namespace, name)
);

-- Side effects guarded by ctx.once(): begun, then done with its result.
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

create view rota.job as
    select id, namespace, task, lane, state, priority, due_at, created_at, payload, headers, key,
           guarantee, attempt, max_attempts, timeout, crashes, attempts, workflow_id, schedule_id, step, share,
           null::uuid as node, null::bigint as token, null::timestamptz as started_at,
           null::timestamptz as finished_at, null::timestamptz as cancel_at,
           null::json as progress, null::json as result, null::json as error
    from rota.future
    union all
    select id, namespace, task, lane, state, priority, due_at, created_at, payload, headers, key,
           guarantee, attempt, max_attempts, timeout, crashes, attempts, workflow_id, schedule_id, step, share,
           node, token, coalesce(started_at, claimed_at), null, cancel_at, progress, null, null
    from rota.present
    union all
    select id, namespace, task, lane, state, priority, due_at, created_at, payload, headers, key,
           guarantee, attempt, max_attempts, timeout, crashes, attempts, workflow_id, schedule_id, step, share,
           node, token, started_at, finished_at, null, progress, result, error
    from rota.past
    union all
    select id, namespace, task, lane, state, priority, due_at, created_at, payload, headers, key,
           guarantee, attempt, max_attempts, timeout, crashes, attempts, workflow_id, schedule_id, step, share,
           node, token, started_at, finished_at, null, progress, result, error
    from rota.dead;
comment on view rota.job is
    'Every job, wherever it is in its life. state: 1 waiting, 2 scheduled, 3 ready, 4 running, '
    '5 succeeded, 6 failed, 7 cancelled, 8 skipped.';
