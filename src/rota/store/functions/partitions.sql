-- A day of the past, the ledger or the logs, as a table of its own that is then attached: that locks the parent in
-- a way that finishes, claims and reads don't wait for, and its default partition, which few touch, in one that they
-- do. So a long reader (pg_dump) delays nothing but this, which gives up soon and is tried again.
-- With the rights of the tables' owner: schedulers needn't own them. Who may call it is in `rota grants`.
create or replace function rota.attach_partition(parent text, name text, first timestamptz, next timestamptz) returns boolean
    language plpgsql
    security definer set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' set timezone = 'UTC'
as $$
declare
    moment name;
    strays boolean;
begin
    if to_regclass('rota.' || name) is not null then
        return false;
    end if;
    select a.attname into moment from pg_partitioned_table as t
    join pg_attribute as a on a.attrelid = t.partrelid and a.attnum = t.partattrs[0]
    where t.partrelid = ('rota.' || parent)::regclass;
    -- What the default partition already holds of that time stays there. Looked up without a lock.
    execute format('select exists (select from rota.%I where %I >= %L and %2$I < %L)', parent || '_other', moment, first, next)
        into strays;
    if strays then
        return false;
    end if;
    execute format('create table rota.%I (like rota.%I including all)', name, parent);
    execute format('alter table rota.%I attach partition rota.%I for values from (%L) to (%L)', parent, name, first, next);
    return true;
exception when check_violation or duplicate_table or unique_violation or invalid_object_definition then
    return false;  -- a row of that time came meanwhile; or another made it, or one of another size is still there
end $$;
revoke execute on function rota.attach_partition(text, text, timestamptz, timestamptz) from public;

create or replace function rota.make_partition(parent text, day date) returns boolean language plpgsql
    security definer set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' set timezone = 'UTC'
as $$
begin
    if parent not in ('past', 'occurrence', 'job_log', 'trace') or day not between '1970-01-01' and '9999-12-01' then
        raise invalid_parameter_value using message = format('%s has no day %s', parent, day);
    end if;
    return rota.attach_partition(parent, parent || '_' || to_char(day, 'YYYYMMDD'), day, day + 1);
end $$;
revoke execute on function rota.make_partition(text, date) from public;

-- An hour of the past, in a day that has no partition of its own.
create or replace function rota.make_hour(hour timestamptz) returns boolean language plpgsql
    security definer set search_path = pg_catalog, pg_temp set lock_timeout = '200ms' set timezone = 'UTC'
as $$
declare
    first timestamptz := date_trunc('hour', hour);
begin
    if hour not between '1970-01-01' and '9999-12-01' or to_regclass('rota.past_' || to_char(first, 'YYYYMMDD')) is not null then
        return false;
    end if;
    return rota.attach_partition('past', 'past_' || to_char(first, 'YYYYMMDD_HH24'), first, first + interval '1 hour');
end $$;
revoke execute on function rota.make_hour(timestamptz) from public;

-- Drops a day, or its rows alone. With the rights of the tables' owner, as above.
create or replace function rota.drop_day(day text, rows_only boolean, expected bigint) returns boolean language plpgsql
    security definer set search_path = pg_catalog, pg_temp
as $$
declare
    rows bigint;
begin
    if day like '%\_other' or not exists (
        select from pg_inherits where inhrelid = to_regclass('rota.' || quote_ident(day))
        and inhparent in ('rota.past'::regclass, 'rota.occurrence'::regclass, 'rota.job_log'::regclass, 'rota.trace'::regclass))
    then
        raise undefined_table using message = format('there is no day %s', day);
    end if;
    if expected is not null then
        execute format('lock table rota.%I in access exclusive mode', day);
        execute format('select count(*) from rota.%I', day) into rows;
        if rows <> expected then
            return false;
        end if;
    end if;
    execute format(case when rows_only then 'truncate table rota.%I' else 'drop table rota.%I' end, day);
    return true;
end $$;
revoke execute on function rota.drop_day(text, boolean, bigint) from public;

create or replace function rota.make_day(day date) returns boolean language sql volatile as $$
    select rota.make_partition('past', day)
$$;

-- The ledger's days are made and dropped with the past's.
create or replace function rota.make_occurrence_day(day date) returns boolean language sql volatile as $$
    select rota.make_partition('occurrence', day)
$$;

create or replace function rota.make_log_day(day date) returns boolean language sql volatile as $$
    select rota.make_partition('job_log', day)
$$;
