-- What a queue keeps of its jobs that succeeded. null: all.
alter table rota.queue add column history text
    check (history in ('failures', 'none') or history ~ '^sample:[0-9.]{1,8}%$');
create index queue_sparing on rota.queue (namespace) where history is not null;

-- Jobs that succeeded and of which nothing else is kept: their ids, a row for each task of a statement. So a submit that is
-- repeated finds that its job was there, and whoever asks for one learns what became of it. `prefix`: the first eight digits
-- of the ids, which are about a minute of those that Rota makes.
create table rota.trace (
    ended_at  timestamptz not null,
    namespace text collate "C" not null,
    queue     text collate "C" not null,
    task      text collate "C" not null,
    prefix    text collate "C" not null,
    low       uuid not null,   -- the least of the ids, and the greatest
    high      uuid not null,
    ids       uuid[] not null
) partition by range (ended_at);
alter table rota.trace alter column ids set storage external;
create index trace_prefix on rota.trace (prefix);
create table rota.trace_other partition of rota.trace default;
insert into rota.row_security (table_name, privileges) values ('trace', 'select, insert');
select rota.make_partition('trace', (rota.now() at time zone 'UTC')::date + ahead) from generate_series(0, 7) as ahead;
