-- Unique jobs, debounce and throttle. docs/architecture.md describes the protocol ("Unique jobs").
--
-- A row says which job was stored last under a key. Whether that job waits or runs is read from `future` and `present`:
-- nothing that starts, ends or removes jobs has to know of this table, and a row whose job is gone blocks nobody. Its
-- lock is what submits of one key wait for.

create table rota.unique_key (
    namespace  text collate "C" not null,
    task       text collate "C" not null,
    key        text collate "C" not null,
    job_id     uuid not null,
    since      timestamptz not null,  -- when its window began; of a throttled job that is kept for later: when it will
    changed_at timestamptz not null,
    keep_until timestamptz not null,  -- until then the row counts by itself, whatever has become of the job
    primary key (namespace, task, key)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index unique_key_keep on rota.unique_key (keep_until);
insert into rota.row_security (table_name, privileges) values ('unique_key', 'select, insert, update, delete');

-- The new rota.submit() takes the same arguments and more. Two functions of that name would be ambiguous; the new one
-- was created before this file, so that nobody finds none.
drop function if exists rota.submit(
    text, jsonb, timestamptz, interval, text, int, text, text[], int, interval, text, jsonb, text);
