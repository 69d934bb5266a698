-- A day of the past, the ledger or the logs, as a table of its own that is then attached: that locks the parent in
-- a way that finishes, claims and reads don't wait for, and its default partition, which few touch, in one that they
-- do. So a long reader (pg_dump) delays nothing but this, which gives up soon and is tried again.
create or replace function rota.make_partition(parent text, day date) returns boolean language plpgsql
    set lock_timeout = '200ms'
as $$
declare
    name text := parent || '_' || to_char(day, 'YYYYMMDD');
    since text := to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00';
    until text := to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00';
    moment name;
    strays boolean;
begin
    if to_regclass('rota.' || name) is not null then
        return false;
    end if;
    select a.attname into moment from pg_partitioned_table as t
    join pg_attribute as a on a.attrelid = t.partrelid and a.attnum = t.partattrs[0]
    where t.partrelid = ('rota.' || parent)::regclass;
    -- What the default partition already holds of that day stays there. Looked up without a lock.
    execute format('select exists (select from rota.%I where %I >= %L and %2$I < %L)', parent || '_other', moment, since,
        until) into strays;
    if strays then
        return false;
    end if;
    execute format('create table rota.%I (like rota.%I including all)', name, parent);
    execute format('alter table rota.%I attach partition rota.%I for values from (%L) to (%L)', parent, name, since, until);
    return true;
exception when check_violation or duplicate_table or unique_violation then
    return false;  -- a row of that day came meanwhile; or another made it
end $$;

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
