-- What jobs print and log. Appended in batches; retention drops whole days.

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

insert into rota.wall (table_name, condition, privileges) values
    ('job_log', 'namespace = current_setting(''rota.namespace'', true)', 'select, insert');
