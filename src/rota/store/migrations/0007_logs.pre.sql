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

create function rota.make_log_day(day date) returns boolean language plpgsql as $$
declare
    name text := 'job_log_' || to_char(day, 'YYYYMMDD');
begin
    if to_regclass('rota.' || name) is not null then
        return false;
    end if;
    execute format('create table if not exists rota.%I partition of rota.job_log for values from (%L) to (%L)', name,
        to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
    return true;
exception when check_violation then
    return false;  -- the default partition already holds rows of that day: it keeps them
end $$;
select rota.make_log_day((rota.now() at time zone 'UTC')::date + ahead) from generate_series(0, 7) as ahead;

-- Whether these are words of an attempt that this node really made: it holds the job under that token, or
-- it was the last to hold it and nobody has taken it since, or the job's record says that its attempt ended
-- there. Of an attempt that was lost (its node was declared dead) nothing more is believed.
create function rota.may_log(job uuid, its_token bigint, me uuid) returns boolean
    language plpgsql stable
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
declare
    made jsonb := jsonb_build_array(jsonb_build_object('token', its_token, 'node', me));
    lost jsonb := jsonb_build_array(jsonb_build_object('token', its_token, 'outcome', 'lost'));
    held record;
begin
    select p.token, p.node, p.attempts into held from rota.present as p where p.id = job;
    if found then
        return ((held.token = its_token and coalesce(held.node, me) = me)
                or coalesce(held.attempts @> made, false))
            and not coalesce(held.attempts @> lost, false);
    end if;
    select f.attempts into held from rota.future as f where f.id = job;
    if found then
        return coalesce(held.attempts @> made and not held.attempts @> lost, false);
    end if;
    return exists (
        select from (select p.token, p.node, p.attempts from rota.past as p where p.id = job
                     union all
                     select d.token, d.node, d.attempts from rota.dead as d where d.id = job) as e
        where ((e.token = its_token and e.node = me) or coalesce(e.attempts @> made, false))
          and not coalesce(e.attempts @> lost, false));
end $$;

insert into rota.wall (table_name, condition, privileges) values
    ('job_log', 'namespace = current_setting(''rota.namespace'', true)', 'select, insert');
select rota.raise_walls();
