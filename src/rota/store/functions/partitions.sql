create or replace function rota.make_day(day date) returns boolean language plpgsql as $$
declare
    name text := 'past_' || to_char(day, 'YYYYMMDD');
begin
    if to_regclass('rota.' || name) is not null then
        return false;
    end if;
    execute format('create table if not exists rota.%I partition of rota.past for values from (%L) to (%L)', name,
        to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
    return true;
exception when check_violation then
    return false;  -- the default partition already holds rows of that day: it keeps them
end $$;

-- The ledger's days are made and dropped with the past's.
create or replace function rota.make_occurrence_day(day date) returns boolean language plpgsql as $$
declare
    name text := 'occurrence_' || to_char(day, 'YYYYMMDD');
begin
    if to_regclass('rota.' || name) is not null then
        return false;
    end if;
    execute format('create table if not exists rota.%I partition of rota.occurrence for values from (%L) to (%L)', name,
        to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00', to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00');
    return true;
exception when check_violation then
    return false;  -- the default partition already holds rows of that day: it keeps them
end $$;

create or replace function rota.make_log_day(day date) returns boolean language plpgsql as $$
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
