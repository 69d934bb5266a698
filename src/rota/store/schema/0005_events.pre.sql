-- Events and webhooks; tasks that are HTTP endpoints.

-- Events for people: slow runs, missed deadlines, late occurrences. Triggers record them in the transaction of what
-- they report, and submit their deliveries, jobs of the built-in task for webhooks, in the transaction that records
-- them: an event that was committed has its deliveries, and one that wasn't has none.
--
-- Readers continue where they stopped. Ids are drawn before a commit, so that a smaller one may become visible after a
-- larger one was read. `xid` tells whether that can still happen: not below the oldest transaction in progress.
create table rota.event (
    id        bigint generated always as identity primary key,
    at        timestamptz not null default rota.now(),
    namespace text collate "C" not null,
    kind      text not null,
    task      text not null,
    job_id    uuid,
    detail    json not null,
    xid       xid8 not null default pg_current_xact_id()
);
create index event_at on rota.event (at);
-- One event of a kind per job, whoever records it first.
create unique index event_once on rota.event (job_id, kind);
create index event_stream on rota.event (namespace, xid, id);
create trigger hand_over after insert on rota.event referencing new table as added
    for each statement execute function rota.hand_over_events();
insert into rota.row_security (table_name, privileges) values ('event', 'select, insert, update, delete');

create table rota.webhook (
    id              uuid primary key,
    namespace       text collate "C" not null,
    url             text not null,
    secret          text not null,                 -- signs the deliveries
    kinds           text[] not null default '{}',  -- empty: all
    format          text not null default 'json' check (format in ('json', 'slack')),
    paused_at       timestamptz,
    failures        int not null default 0,        -- consecutive deliveries that failed
    last_error      text,
    delivered_at    timestamptz,                   -- the last that arrived
    created_at      timestamptz not null default rota.now(),
    unique (namespace, url)
);
insert into rota.row_security (table_name, privileges) values ('webhook', 'select, insert, update, delete');

-- Where webhooks and push tasks of a namespace may connect besides public addresses: a host's name, an address or a
-- network.
create table rota.allowed_host (
    namespace  text collate "C" not null,
    entry      text not null,
    created_at timestamptz not null default rota.now(),
    primary key (namespace, entry)
);
insert into rota.row_security (table_name, privileges) values ('allowed_host', 'select');

-- Tasks that are HTTP endpoints.
create table rota.endpoint (
    namespace        text collate "C" not null,
    name             text collate "C" not null,   -- the task's
    url              text not null,
    secret           text not null,               -- signs the pushes
    queue            text not null,
    needs            text[] not null,
    priority         smallint not null,
    -- Not exactly_once: its effects can't be in our transaction.
    guarantee        smallint not null check (guarantee in ({guarantee.at_least_once}, {guarantee.at_most_once})),
    retry            json not null,
    timeout          real not null,               -- seconds for an answer
    callback_timeout real not null,               -- seconds for a callback, after 202
    version          uuid not null default gen_random_uuid(),  -- another with each change
    created_at       timestamptz not null default rota.now(),
    updated_at       timestamptz not null default rota.now(),
    primary key (namespace, name)
);
insert into rota.row_security (table_name, privileges) values ('endpoint', 'select, insert, update, delete');

-- Reports about attempts that were answered with 202. A success is written here and ends its job in one statement; a
-- failure is written here for the node that holds the job, which decides about it. Kept for as long as the same report
-- may be repeated.
create table rota.callback (
    job_id     uuid not null,
    token      bigint not null,
    namespace  text collate "C" not null,
    node       uuid not null,
    succeeded  boolean not null,
    detail     json,                              -- of a failure: message, fatal, retry_after
    created_at timestamptz not null default rota.now(),
    primary key (job_id, token)
);
create index callback_created on rota.callback (created_at);
insert into rota.row_security (table_name, privileges) values ('callback', 'select');

-- One row. The key that a push carries for its callback is an HMAC with this secret: nothing has to be written before
-- a push, and any server can check any key.
create table rota.callback_secret (
    single boolean primary key default true check (single),
    secret text not null
);
insert into rota.callback_secret (secret)
values (replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));
