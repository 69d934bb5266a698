-- Hung and slow work: signs of life of attempts at workers over HTTP, a maximum run time per queue, what the runs
-- of a task usually take, and when people were last told that a queue lags.
alter table rota.present add column alive_at timestamptz;
alter table rota.node add column heartbeat_timeouts jsonb;  -- task -> seconds, of tasks that have one
alter table rota.queue add column max_run_time real check (max_run_time > 0);
alter table rota.queue add column lag_told_at timestamptz;

-- The baseline of a task's durations. It is learned once and then stays, until runs are much quicker for long.
create table rota.pace (
    namespace    text collate "C" not null,
    task         text collate "C" not null,
    usual        float8 not null,   -- seconds: the median of the runs it was learned from
    most         float8 not null,   -- seconds that a single run should not exceed
    learned_at   timestamptz not null default rota.now(),
    slower_since timestamptz,       -- runs have consistently taken longer since
    told_at      timestamptz,
    primary key (namespace, task)
);

insert into rota.wall (table_name, condition, privileges) values
    ('pace', 'namespace = current_setting(''rota.namespace'', true)', 'select, delete');
