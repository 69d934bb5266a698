-- The server: limits of namespaces, tokens, users, log-ins and the audit log.

-- Namespaces with limits or encryption. One without a row has neither.
create table rota.namespace (
    name               text collate "C" primary key,
    created_at         timestamptz not null default rota.now(),
    encrypted          boolean not null default false,            -- payloads and results, at rest
    max_jobs           bigint check (max_jobs >= 0),              -- waiting, running or failed
    max_payload_bytes  bigint check (max_payload_bytes >= 0),     -- of those jobs, together
    submits_per_second double precision check (submits_per_second > 0),
    -- What is in use: never less than the truth, and counted again when a limit is reached.
    stored_jobs        bigint not null default 0,
    stored_bytes       bigint not null default 0,
    counted_at         timestamptz not null default '-infinity',
    -- Admitted in this second and in the one before: some of it may not be committed yet.
    window_at          timestamptz not null default '-infinity',
    window_jobs        bigint not null default 0,
    window_bytes       bigint not null default 0,
    before_jobs        bigint not null default 0,
    before_bytes       bigint not null default 0,
    allowance          double precision not null default 0,       -- submits that are admitted at once
    refilled_at        timestamptz not null default '-infinity'
) with (fillfactor = 50);

-- Secrets are stored as SHA-256 of 256 random bits: there is nothing to guess, so that a slow hash would only cost
-- time, and tokens are looked up by the hash.
create table rota.api_token (
    id           uuid primary key,
    prefix       text collate "C" not null unique,   -- public: how people tell tokens apart
    hash         bytea not null unique,
    name         text not null,
    namespace    text collate "C" not null,          -- '*': all
    role         text not null check (role in ('viewer', 'operator', 'admin', 'worker')),
    scopes       text[] not null default '{}',       -- empty: all that the role allows
    tasks        text[] not null default '{}',       -- empty: all; else names, or prefixes of names with a *
    made_with    uuid,                               -- another token's id; null: a session or the command line
    created_at   timestamptz not null default rota.now(),
    created_by   text not null,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz                         -- written now and then, not with each use
);
create index api_token_namespace on rota.api_token (namespace, created_at);
create index api_token_made_with on rota.api_token (made_with) where made_with is not null;

create table rota.user_account (
    id            uuid primary key,
    name          text not null,                     -- an e-mail address, or a short name
    password_hash text,                              -- argon2id; null: no log-in by password
    created_at    timestamptz not null default rota.now(),
    disabled_at   timestamptz,
    issuer        text,                              -- of OpenID Connect, from the first such log-in on
    subject       text,
    unique (issuer, subject)
);
create unique index user_account_name on rota.user_account (lower(name));

create table rota.membership (
    user_id   uuid not null references rota.user_account on delete cascade,
    namespace text collate "C" not null,             -- '*': all
    role      text not null check (role in ('viewer', 'operator', 'admin')),
    primary key (user_id, namespace)
);

-- Made by `rota login`, used once.
create table rota.login_link (
    hash       bytea primary key,
    user_id    uuid references rota.user_account on delete cascade,
    namespace  text collate "C",                     -- of a link that is for nobody in particular
    role       text check (role in ('viewer', 'operator', 'admin')),
    created_at timestamptz not null default rota.now(),
    expires_at timestamptz not null,
    used_at    timestamptz,
    check ((user_id is null) = (namespace is not null and role is not null))
);

create table rota.session (
    hash       bytea primary key,
    id         uuid not null unique,                 -- public, for lists and the audit
    user_id    uuid references rota.user_account on delete cascade,
    namespace  text collate "C",
    role       text check (role in ('viewer', 'operator', 'admin')),
    created_at timestamptz not null default rota.now(),
    expires_at timestamptz not null,
    ended_at   timestamptz,
    check ((user_id is null) = (namespace is not null and role is not null))
);
create index session_by_user on rota.session (user_id);

-- Failed log-ins, by account and by address, in hashed form.
create table rota.login_failure (
    subject       bytea primary key,
    failures      int not null,
    failed_at     timestamptz not null,
    blocked_until timestamptz not null,
    wait          double precision not null default 0  -- of the last attempt, in seconds
) with (fillfactor = 50);

-- Pairs of account and address that have logged in before, in hashed form: wrong passwords from other addresses don't
-- block a log-in from these.
create table rota.login_place (
    place   bytea primary key,
    seen_at timestamptz not null
);

-- Log-ins by OpenID Connect that are under way at the provider.
create table rota.oidc_login (
    state      bytea primary key,
    nonce      text not null,
    verifier   text not null,
    target     text not null,
    expires_at timestamptz not null
);

-- Changes, and who made them. Append-only.
create table rota.audit (
    id         bigint generated always as identity primary key,
    at         timestamptz not null default rota.now(),
    namespace  text collate "C" not null,
    actor      text not null,
    via        text not null,                        -- token rota_ab12cd34, session 0198..., cli
    interface  text,                                 -- rest, dashboard, cli or python
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
insert into rota.row_security (table_name, privileges) values ('audit', 'select, insert');
