-- What nodes have of memory, CPU and named amounts, and their labels. docs/architecture.md describes the protocol
-- ("Resources"). What jobs need of it is among their needs, and so in their lane.
alter table rota.node add column resources jsonb;                      -- memory in MiB; null: it takes no job that asks for any
alter table rota.node add column labels text[] not null default '{}';
alter table rota.node add column used jsonb;                           -- of its resources, as it told last

-- A lane whose oldest job has not fitted anywhere for long, and the node that makes room for it.
create table rota.reservation (
    lane      text collate "C" primary key,
    namespace text collate "C" not null,
    node      uuid not null unique,
    since     timestamptz not null default rota.now()
);
insert into rota.row_security (table_name, privileges) values ('reservation', 'select, insert, update, delete');

-- What plain SQL may say of it: the function has more parameters now.
drop function if exists rota.submit(
    text, jsonb, timestamptz, interval, text, int, text, text[], int, interval, text, jsonb, text, text, interval, text, text,
    interval, interval, interval, text);
