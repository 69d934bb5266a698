-- Where this database is. Copies by pg_dump or `create database ... template` differ in the first two columns, backups
-- and standbys that were promoted in the third. What the role may not read is null, and not compared.
create or replace function rota.whereabouts(out system text, out database oid, out timeline int) language plpgsql stable as $$
begin
    select d.oid into database from pg_database as d where d.datname = current_database();
    begin
        select c.system_identifier::text into system from pg_control_system() as c;
    exception when insufficient_privilege or undefined_function or feature_not_supported then
        system := null;
    end;
    if not pg_is_in_recovery() then
        begin
            timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int;
        exception when insufficient_privilege or undefined_function or feature_not_supported then
            timeline := null;
        end;
    end if;
end
$$;

-- Whether a node may start on this database: `ok`, or why not. The first node writes down where it is.
--
-- A failover changes the timeline as well as a restored backup does. Nodes live through a failover: if one of them sent
-- a heartbeat within the last ten minutes, it was one, and the new timeline is written down.
create or replace function rota.identify(node_name text, out verdict text, out name text, out last_seen timestamptz)
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
declare
    here record;
    known rota.installation;
begin
    select w.* into here from rota.whereabouts() as w;
    insert into rota.installation (name, system, database, timeline)
    values (nullif(node_name, ''), here.system, here.database, here.timeline) on conflict do nothing;
    select i.* into known from rota.installation as i for update;
    select max(n.heartbeat_at) into last_seen from rota.node as n;
    name := known.name;
    verdict := case
        when known.name is not null and known.name <> coalesce(node_name, '') then 'other name'
        when known.system <> here.system or known.database <> here.database then 'copied'
        when known.timeline <> here.timeline and coalesce(last_seen < rota.now() - interval '10 minutes', true)
            then 'restored'
        else 'ok'
    end;
    if verdict = 'ok' then
        update rota.installation as i
        set name = coalesce(i.name, nullif(node_name, '')), timeline = coalesce(here.timeline, i.timeline)
        where i.name is null and node_name <> '' or i.timeline is distinct from coalesce(here.timeline, i.timeline);
    end if;
end
$$;
revoke execute on function rota.identify(text) from public;

-- This database is the one from now on. Tokens go on far above all that were given out after the backup was made:
-- what fences by them must not take a new one for an old one.
create or replace function rota.adopt(node_name text) returns bigint language plpgsql as $$
declare
    here record;
begin
    select w.* into here from rota.whereabouts() as w;
    insert into rota.installation as i (name, system, database, timeline, recovered_at)
    values (nullif(node_name, ''), here.system, here.database, here.timeline, rota.now())
    on conflict (one) do update
    set id = gen_random_uuid(), name = excluded.name, system = excluded.system, database = excluded.database,
        timeline = excluded.timeline, recovered_at = excluded.recovered_at;
    return setval('rota.token', (select t.last_value from rota.token as t) + 1000000000000);
end
$$;
