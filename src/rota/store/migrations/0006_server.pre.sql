-- The server: who may do what, what a namespace may use, what was changed, and the walls between tenants.

-- A namespace that somebody set limits for. One without a row has none.
create table rota.namespace (
    name               text collate "C" primary key,
    created_at         timestamptz not null default rota.now(),
    max_jobs           bigint check (max_jobs >= 0),              -- that wait, run or have failed
    max_payload_bytes  bigint check (max_payload_bytes >= 0),     -- of those jobs, together
    submits_per_second double precision check (submits_per_second > 0),
    -- What has been used: never less than the truth, and counted anew when a limit is reached.
    stored_jobs        bigint not null default 0,
    stored_bytes       bigint not null default 0,
    counted_at         timestamptz not null default '-infinity',
    -- Admitted in this second and in the one before: some of it may not be committed yet.
    window_at          timestamptz not null default '-infinity',
    window_jobs        bigint not null default 0,
    window_bytes       bigint not null default 0,
    before_jobs        bigint not null default 0,
    before_bytes       bigint not null default 0,
    allowance          double precision not null default 0,       -- submits that may come at once
    refilled_at        timestamptz not null default '-infinity'
) with (fillfactor = 50);

-- Secrets are stored as SHA-256 of 256 random bits: there is nothing to guess, so that a slow hash
-- would only cost time, and the hash is what they are looked up by.
create table rota.api_token (
    id           uuid primary key,
    prefix       text collate "C" not null unique,   -- public: how people tell tokens apart
    hash         bytea not null unique,
    name         text not null,
    namespace    text collate "C" not null,          -- '*': all
    role         text not null check (role in ('viewer', 'operator', 'admin', 'worker')),
    scopes       text[] not null default '{}',       -- empty: all that the role may do
    created_at   timestamptz not null default rota.now(),
    created_by   text not null,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz                         -- written now and then, not with each use
);
create index api_token_namespace on rota.api_token (namespace, created_at);

create table rota.person (
    id            uuid primary key,
    name          text not null,                     -- an e-mail address, or a short name
    password_hash text,                              -- argon2id; null: other ways in only
    created_at    timestamptz not null default rota.now(),
    disabled_at   timestamptz,
    issuer        text,                              -- of OpenID Connect, from the first such log-in on
    subject       text,
    unique (issuer, subject)
);
create unique index person_name on rota.person (lower(name));

create table rota.membership (
    person_id uuid not null references rota.person on delete cascade,
    namespace text collate "C" not null,             -- '*': all
    role      text not null check (role in ('viewer', 'operator', 'admin')),
    primary key (person_id, namespace)
);

-- Made by `rota login`, used once.
create table rota.login_link (
    hash       bytea primary key,
    person_id  uuid references rota.person on delete cascade,
    namespace  text collate "C",                     -- of a link that is for nobody in particular
    role       text check (role in ('viewer', 'operator', 'admin')),
    created_at timestamptz not null default rota.now(),
    expires_at timestamptz not null,
    used_at    timestamptz,
    check ((person_id is null) = (namespace is not null and role is not null))
);

create table rota.session (
    hash       bytea primary key,
    id         uuid not null unique,                 -- public, for lists and the audit
    person_id  uuid references rota.person on delete cascade,
    namespace  text collate "C",
    role       text check (role in ('viewer', 'operator', 'admin')),
    created_at timestamptz not null default rota.now(),
    expires_at timestamptz not null,
    ended_at   timestamptz,
    check ((person_id is null) = (namespace is not null and role is not null))
);
create index session_person on rota.session (person_id);

-- Failed log-ins, by account and by address, in hashed form.
create table rota.login_failure (
    subject       bytea primary key,
    failures      int not null,
    failed_at     timestamptz not null,
    blocked_until timestamptz not null,
    wait          double precision not null default 0  -- that the last attempt was told, in seconds
) with (fillfactor = 50);

-- Log-ins by OpenID Connect that are under way at the provider.
create table rota.oidc_login (
    state      bytea primary key,
    nonce      text not null,
    verifier   text not null,
    target     text not null,
    expires_at timestamptz not null
);

-- What was changed by whom. Only ever added to.
create table rota.audit (
    id         bigint generated always as identity primary key,
    at         timestamptz not null default rota.now(),
    namespace  text collate "C" not null,
    actor      text not null,
    via        text not null,                        -- token rota_ab12cd34, session 0198..., cli
    action     text not null,
    subject    text not null,
    before     jsonb,
    after      jsonb,
    request_id text,
    address    text
);
create index audit_namespace on rota.audit (namespace, id desc);
create index audit_at on rota.audit (at);

create function rota.refuse_change() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' and current_setting('rota.trimming', true) = 'on'
       and pg_has_role(current_user, (select relowner from pg_class where oid = tg_relid), 'usage') then
        return old;
    end if;
    raise exception using errcode = 'RT003', message = 'rota: the audit log is only ever added to',
        hint = 'rota.trim_audit(until) is how its owner ends its retention.';
end $$;
create trigger audit_is_kept before update or delete on rota.audit
    for each row execute function rota.refuse_change();
create trigger audit_is_not_emptied before truncate on rota.audit
    for each statement execute function rota.refuse_change();

-- Takes what is older away; how many rows. For the tables' owner alone.
create function rota.trim_audit(until timestamptz) returns bigint language plpgsql as $$
declare
    trimmed bigint;
begin
    perform set_config('rota.trimming', 'on', true);
    delete from rota.audit where at < until;
    get diagnostics trimmed = row_count;
    perform set_config('rota.trimming', 'off', true);
    return trimmed;
end $$;

-- Whether so many jobs with so many bytes may be submitted now. All servers ask here, under the row's
-- lock, so that a limit is one limit for all of them. `refused`: which one, else null. `may_owe`: more than a
-- second's worth at once is admitted, too, as a debt that the others wait for; else nobody could ever
-- submit a large bulk.
create function rota.admit(
    space text, jobs bigint, bytes bigint, may_owe boolean, out refused text, out retry_after double precision
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
        n.allowance := least(burst, n.allowance + n.submits_per_second
            * least(greatest(extract(epoch from now - n.refilled_at), 0), 86400));
        needed := case when may_owe then least(jobs, burst) else jobs end;
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

-- The walls. The server's questions about a namespace run as the role rota_tenant, with the namespace
-- in a setting of the connection: a query that forgets its `where` sees nothing of others. What is not
-- listed here that role can't touch at all. Roles other than it are not concerned.
create table rota.wall (
    table_name text primary key,
    condition  text not null,
    privileges text not null
);
insert into rota.wall (table_name, condition, privileges)
select name, 'namespace = current_setting(''rota.namespace'', true)', 'select, insert, update, delete'
from unnest(array['future', 'present', 'past', 'dead', 'submit_key', 'queue', 'lane', 'task', 'effect', 'schedule',
                  'calendar', 'event']) as name;
insert into rota.wall (table_name, condition, privileges) values
    ('node', 'namespace = current_setting(''rota.namespace'', true)', 'select'),
    ('audit', 'namespace = current_setting(''rota.namespace'', true)', 'select, insert'),
    -- The tables asked here have walls of their own.
    ('schedule_version', 'exists (select from rota.schedule as s where s.id = schedule_id)', 'select, insert, update, delete'),
    ('occurrence', 'exists (select from rota.schedule as s where s.id = schedule_id)', 'select, insert, update, delete'),
    ('gate', 'exists (select from rota.schedule as s where s.id = schedule_id)', 'select, insert, update, delete'),
    ('signal', 'exists (select from rota.node as n where n.id = node)', 'select, insert, update, delete'),
    ('setting', 'true', 'select'), ('shard', 'true', 'select'), ('migration', 'true', 'select');

-- Builds what is listed, also again. False: there is no role rota_tenant, and it can't be made by us.
create function rota.raise_walls() returns boolean language plpgsql as $$
declare
    w record;
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
    for w in select * from rota.wall loop
        execute format('grant %s on rota.%I to rota_tenant', w.privileges, w.table_name);
        continue when w.condition = 'true';
        execute format('alter table rota.%I enable row level security', w.table_name);
        execute format('drop policy if exists everybody on rota.%I', w.table_name);
        execute format('create policy everybody on rota.%I using (true)', w.table_name);
        execute format('drop policy if exists wall on rota.%I', w.table_name);
        execute format('create policy wall on rota.%I as restrictive to rota_tenant using (%s)', w.table_name, w.condition);
    end loop;
    execute format('grant usage on schema %s to rota_tenant',
        (select relnamespace::regnamespace from pg_class where oid = 'rota.wall'::regclass));
    grant select on rota.job to rota_tenant;
    grant usage on rota.token to rota_tenant;
    if current_setting('server_version_num')::int >= 150000 then
        -- Else a view looks through the walls, with the eyes of its owner.
        alter view rota.job set (security_invoker = true);
    end if;
    return true;
end $$;
select rota.raise_walls();
