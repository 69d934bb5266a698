-- What `rota doctor` reads. Each query works with whatever rights the role has: what it may not see is null.

-- name: doctor_server
select version() as version, current_setting('server_version_num')::int as number, pg_is_in_recovery() as standby,
       current_user::text as role, current_setting('fsync') as fsync, current_setting('full_page_writes') as full_page_writes,
       current_setting('synchronous_commit') as synchronous_commit, current_setting('autovacuum') as autovacuum,
       current_setting('synchronous_standby_names') as synchronous_standbys,
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int as max_connections,
       (select sum(numbackends)::int from pg_stat_database) as connections,
       (select rolconnlimit from pg_roles where rolname = current_user) as role_limit,
       (select count(*)::int from pg_stat_activity where usename = current_user) as role_connections,
       (select max(age(datfrozenxid)) from pg_database) as oldest_xid,
       coalesce(pg_has_role(current_user, 'pg_read_all_stats', 'member'), false) as sees_all,
       (select extract(epoch from max(clock_timestamp() - xact_start))::float8 from pg_stat_activity
        where state is distinct from 'idle' and pid <> pg_backend_pid()) as oldest_transaction,
       (select extract(epoch from max(clock_timestamp() - prepared))::float8 from pg_prepared_xacts) as oldest_prepared;

-- name: doctor_clock
select clock_timestamp();

-- name: doctor_replication
-- The standbys of a primary, as far as the role may see them.
select application_name as name, coalesce(state, 'unknown') as state, coalesce(sync_state, 'unknown') as sync_state,
       extract(epoch from replay_lag)::float8 as lag
from pg_stat_replication order by 1;

-- name: doctor_slots
-- Replication slots that nobody reads keep the log, until the disk is full.
select slot_name::text as name, active,
       case when pg_is_in_recovery() or restart_lsn is null then null
            else pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::bigint end as kept_bytes
from pg_replication_slots where not active order by 1;

-- name: doctor_rights
-- The tables that the role may not use as a node does.
select c.relname::text as name
from pg_class as c
where c.relnamespace = (select f.relnamespace from pg_class as f where f.oid = 'rota.future'::regclass) and c.relkind in ('r', 'p')
  and not (has_table_privilege(c.oid, 'select') and has_table_privilege(c.oid, 'insert')
           and has_table_privilege(c.oid, 'update') and has_table_privilege(c.oid, 'delete'))
order by 1;

-- name: doctor_tokens
select count(*)::int as live,
       count(*) filter (where expires_at is null)::int as endless,
       count(*) filter (where role = 'admin' and namespace = '*')::int as admins,
       count(*) filter (where expires_at < rota.now() + interval '14 days')::int as ending,
       count(*) filter (where coalesce(last_used_at, created_at) < rota.now() - interval '90 days')::int as unused
from rota.api_token
where revoked_at is null and (expires_at is null or expires_at > rota.now());

-- name: doctor_nodes
select count(*) filter (where 'scheduler' = any(roles))::int as schedulers,
       count(*) filter (where 'worker' = any(roles))::int as workers,
       array(select distinct n.version from rota.node as n
             where n.state in ('live', 'draining') and n.expires_at > rota.now() and not n.remote order by 1) as versions,
       array(select distinct coalesce(n.coordinator, '') from rota.node as n where 'scheduler' = any(n.roles)
             and n.state in ('live', 'draining') and n.expires_at > rota.now() order by 1) as coordinators,
       array(select distinct n.coordinator_fault from rota.node as n where n.coordinator_fault is not null
             and n.state in ('live', 'draining') and n.expires_at > rota.now() order by 1 limit 3) as coordinator_faults
from rota.node where state in ('live', 'draining') and expires_at > rota.now();
