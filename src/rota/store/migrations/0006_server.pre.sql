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
create trigger audit_is_kept before update or delete on rota.audit
    for each row execute function rota.refuse_change();
create trigger audit_is_not_emptied before truncate on rota.audit
    for each statement execute function rota.refuse_change();

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
