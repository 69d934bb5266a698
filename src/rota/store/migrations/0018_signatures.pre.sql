-- What nodes' code says of its tasks' arguments, so that submits and schedules from elsewhere can be checked.

-- The signatures that a node registered, taken together: nodes of one release have the same. Null: it said
-- nothing of them (a worker over HTTP, or a release that didn't know how).
alter table rota.node add column release text collate "C";

create table rota.task_signature (
    namespace     text collate "C" not null,
    name          text collate "C" not null,
    release       text collate "C" not null,
    signature     json not null,
    registered_at timestamptz not null default rota.now(),
    primary key (namespace, name, release)
);

-- Tasks that jobs were submitted for and that nobody had registered: each is told as one event.
create table rota.unknown_task (
    namespace text collate "C" not null,
    name      text collate "C" not null,
    noted_at  timestamptz not null default rota.now(),
    primary key (namespace, name)
);

insert into rota.wall (table_name, condition, privileges) values
    ('task_signature', 'namespace = current_setting(''rota.namespace'', true)', 'select'),
    ('unknown_task', 'namespace = current_setting(''rota.namespace'', true)', 'select, insert');
