-- Tasks that are HTTP endpoints: those that people store, and the answers that come later.
--
-- A node of the release before knows none of these tasks, and leaves their jobs in the queue.

create table rota.endpoint (
    namespace        text collate "C" not null,
    name             text collate "C" not null,   -- the task's
    url              text not null,
    secret           text not null,               -- what pushes are signed with
    queue            text not null,
    needs            text[] not null,
    priority         smallint not null,
    guarantee        smallint not null check (guarantee in (1, 2)),  -- another's effects can't be in our transaction
    retry            json not null,
    timeout          real not null,               -- seconds for an answer
    callback_timeout real not null,               -- seconds for a callback, after 202
    version          uuid not null default gen_random_uuid(),  -- another with each change
    created_at       timestamptz not null default rota.now(),
    updated_at       timestamptz not null default rota.now(),
    primary key (namespace, name)
);

-- What was reported of attempts that were answered with 202. A success is written here and ends its job in
-- one statement; a failure is written here for the node that holds the job, which judges it. Kept for as
-- long as somebody may report the same again.
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

-- One row. The key that a push carries for its callback is an HMAC with it: so nothing has to be written
-- before a push, and any server can check any key.
create table rota.callback_secret (
    single boolean primary key default true check (single),
    secret text not null
);
insert into rota.callback_secret (secret)
values (replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));

insert into rota.wall (table_name, condition, privileges) values
    ('endpoint', 'namespace = current_setting(''rota.namespace'', true)', 'select, insert, update, delete'),
    ('callback', 'namespace = current_setting(''rota.namespace'', true)', 'select');
