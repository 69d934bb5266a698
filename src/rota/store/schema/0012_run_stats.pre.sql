-- Statistics of runs. docs/architecture.md describes the protocol ("Statistics of runs").

-- What a statement has ended, a row for each task: appended by triggers in the transaction that ends the jobs, and
-- taken by a scheduler, which adds it up. The arrays hold the number of a bucket for each run: see rota.bucket().
create table rota.tally (
    minute    timestamptz not null,
    namespace text collate "C" not null,
    queue     text collate "C" not null,
    task      text collate "C" not null,
    failed    boolean not null,
    seconds   double precision not null,  -- that the runs took together
    durations smallint[] not null,
    lags      smallint[] not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
insert into rota.row_security (table_name, privileges) values ('tally', 'insert');
create trigger tally_runs after insert on rota.past referencing new table as ended
    for each statement execute function rota.tally_runs();
create trigger tally_runs after insert on rota.dead referencing new table as ended
    for each statement execute function rota.tally_runs();

-- Runs that ended, by minute (span 60) and by hour (3600). `task` '': all tasks of the queue but Rota's own; `queue` '',
-- too: all of the namespace. `durations` and `lags` count the runs by bucket, from bucket 0 on. Rows of a queue and a
-- minute also have how many jobs were ready, and for how long the first of them had been due.
create table rota.run_stats (
    namespace text collate "C" not null,
    span      int not null check (span in (60, 3600)),
    task      text collate "C" not null,
    queue     text collate "C" not null,
    at        timestamptz not null,
    runs      bigint not null default 0,
    failed    bigint not null default 0,
    seconds   double precision not null default 0,
    durations bigint[] not null default '{}',
    lags      bigint[] not null default '{}',
    ready     bigint,
    ready_lag double precision,
    primary key (namespace, span, task, queue, at)
) with (fillfactor = 70);
create index run_stats_old on rota.run_stats (span, at);
insert into rota.row_security (table_name, privileges) values ('run_stats', 'select');
