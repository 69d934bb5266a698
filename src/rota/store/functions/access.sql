create or replace function rota.refuse_change() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' and current_setting('rota.trimming', true) = 'on'
       and pg_has_role(current_user, (select relowner from pg_class where oid = tg_relid), 'usage') then
        return old;
    end if;
    raise exception using errcode = 'RT003', message = 'rota: the audit log is only ever added to',
        hint = 'rota.trim_audit(until) is how its owner ends its retention.';
end $$;

-- Takes what is older away; how many rows. For the tables' owner; other roles that may call it (see `rota grants`) can't
-- take away the last thirty days.
create or replace function rota.trim_audit(until timestamptz) returns bigint language plpgsql
    security definer set search_path = pg_catalog, pg_temp
as $$
declare
    trimmed bigint;
begin
    if until > rota.now() - interval '30 days' and not pg_has_role(session_user, current_user, 'member') then
        raise insufficient_privilege using message = 'only the owner of the tables may trim the last thirty days',
            hint = 'audit_days must be at least 30 for servers that log in as another role.';
    end if;
    perform set_config('rota.trimming', 'on', true);
    delete from rota.audit where at < until;
    get diagnostics trimmed = row_count;
    perform set_config('rota.trimming', 'off', true);
    return trimmed;
end $$;
revoke execute on function rota.trim_audit(timestamptz) from public;

-- Whether so many jobs with so many bytes may be submitted now. All servers ask here, under the row's
-- lock, so that a limit is one limit for all of them. `refused`: which one, else null. `allow_debt`: more than a
-- second's worth at once is admitted, too, as a debt that the others wait for; else nobody could ever
-- submit a large bulk.
create or replace function rota.admit(
    space text, jobs bigint, bytes bigint, allow_debt boolean, out refused text, out retry_after double precision
) language plpgsql volatile as $$
declare
    n rota.namespace%rowtype;
    now timestamptz;
    burst double precision;
    needed double precision;
begin
    select * into n from rota.namespace where name = space for update;
    if not found then
        return;
    end if;
    now := clock_timestamp() - statement_timestamp() + rota.now();  -- after waiting for the lock
    if n.submits_per_second is not null then
        burst := greatest(n.submits_per_second, 1);
        -- Before PostgreSQL 17 an infinite time can't be subtracted: a namespace's first refill is a full one.
        n.allowance := case when isfinite(n.refilled_at) then least(burst, n.allowance + n.submits_per_second
            * least(greatest(extract(epoch from now - n.refilled_at), 0), 86400)) else burst end;
        needed := case when allow_debt then least(jobs, burst) else jobs end;
        if n.allowance < needed then
            refused := 'submits_per_second';
            retry_after := (needed - n.allowance) / n.submits_per_second;
            return;
        end if;
        n.allowance := n.allowance - jobs;
        n.refilled_at := now;
    end if;
    if n.window_at < now - interval '1 second' then
        n.before_jobs := case when n.window_at < now - interval '2 seconds' then 0 else n.window_jobs end;
        n.before_bytes := case when n.window_at < now - interval '2 seconds' then 0 else n.window_bytes end;
        n.window_jobs := 0;
        n.window_bytes := 0;
        n.window_at := now;
    end if;
    if (n.stored_jobs + jobs > n.max_jobs or n.stored_bytes + bytes > n.max_payload_bytes)
       and n.counted_at < now - interval '1 second' then
        select count(*) + n.window_jobs + n.before_jobs,
               coalesce(sum(octet_length(payload::text)), 0) + n.window_bytes + n.before_bytes
        into n.stored_jobs, n.stored_bytes
        from (select payload from rota.future where namespace = space
              union all select payload from rota.present where namespace = space
              union all select payload from rota.dead where namespace = space) as stored;
        n.counted_at := now;
        update rota.namespace set stored_jobs = n.stored_jobs, stored_bytes = n.stored_bytes, counted_at = now
        where name = space;
    end if;
    refused := case when n.stored_jobs + jobs > n.max_jobs then 'max_jobs'
                    when n.stored_bytes + bytes > n.max_payload_bytes then 'max_payload_bytes' end;
    if refused is not null then
        retry_after := 2;
        return;
    end if;
    update rota.namespace set stored_jobs = n.stored_jobs + jobs, stored_bytes = n.stored_bytes + bytes,
        window_at = n.window_at, window_jobs = n.window_jobs + jobs, window_bytes = n.window_bytes + bytes,
        before_jobs = n.before_jobs, before_bytes = n.before_bytes,
        allowance = n.allowance, refilled_at = n.refilled_at
    where name = space;
end $$;

-- Enables what rota.row_security lists; safe to repeat. False: there is no role rota_tenant, and we may not create it.
create or replace function rota.enable_row_security() returns boolean language plpgsql as $$
declare
    w record;
    relation text;
begin
    begin
        if not exists (select from pg_roles where rolname = 'rota_tenant') then
            create role rota_tenant nologin;
        end if;
        if not (select rolsuper from pg_roles where rolname = current_user) then
            execute format('grant rota_tenant to %I', current_user);
        end if;
    exception
        when duplicate_object or unique_violation then null;  -- another migration was faster
        when insufficient_privilege then
            if not exists (select from pg_roles where rolname = 'rota_tenant') then
                return false;
            end if;
    end;
    for w in select *, format('rota.%I', table_name)::regclass as oid from rota.row_security loop
        execute format('grant %s on rota.%I to rota_tenant', w.privileges, w.table_name);
        continue when w.condition = 'true';
        -- Each of these locks out everybody else, so only where it is missing.
        if not (select relrowsecurity from pg_class where oid = w.oid) then
            execute format('alter table rota.%I enable row level security', w.table_name);
        end if;
        if not exists (select from pg_policy where polrelid = w.oid and polname = 'everybody') then
            execute format('create policy everybody on rota.%I using (true)', w.table_name);
        end if;
        if not exists (select from pg_policy where polrelid = w.oid and polname = 'tenant') then
            execute format('create policy tenant on rota.%I as restrictive to rota_tenant using (%s)', w.table_name,
                           w.condition);
        end if;
    end loop;
    foreach relation in array array['present', 'future'] loop
        -- Who may add jobs to a table needn't go through the functions that check them.
        if not exists (select from pg_policy where polname = 'internal_tasks'
                       and polrelid = format('rota.%I', relation)::regclass) then
            execute format('create policy internal_tasks on rota.%I as restrictive for insert '
                           'with check (rota.may_store(task))', relation);
        end if;
    end loop;
    execute format('grant usage on schema %s to rota_tenant',
        (select relnamespace::regnamespace from pg_class where oid = 'rota.row_security'::regclass));
    grant select on rota.job to rota_tenant;
    grant usage on rota.token to rota_tenant;
    grant usage on rota.event_id_seq to rota_tenant;
    if current_setting('server_version_num')::int >= 150000 and not coalesce(
        (select 'security_invoker=true' = any(reloptions) from pg_class where oid = 'rota.job'::regclass), false)
    then
        -- Otherwise the view would read with its owner's rights, without row security.
        alter view rota.job set (security_invoker = true);
    end if;
    if current_setting('server_version_num')::int < 150000 and not coalesce(
        (select 'security_barrier=true' = any(reloptions) from pg_class where oid = 'rota.job'::regclass), false)
    then
        -- PostgreSQL 14 has no security_invoker: there the view has the condition itself.
        execute format(
            'create or replace view rota.job with (security_barrier = true) as select * from (%s) as job '
            'where current_user <> ''rota_tenant'' or namespace = current_setting(''rota.namespace'', true)',
            rtrim(pg_get_viewdef('rota.job'::regclass), ';'));
    end if;
    return true;
end $$;
