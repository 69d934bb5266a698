-- Which database this is. A copy of it, restored elsewhere or from the past, is told from it, and runs no jobs until
-- `rota recover` has said so. See functions/installation.sql.
create table rota.installation (
    one          boolean primary key default true check (one),
    id           uuid not null default gen_random_uuid(),  -- new with every `rota recover`
    name         text,                                     -- the setting `installation` of its nodes; null: none was given
    system       text,                                     -- of the PostgreSQL cluster; null: its role may not read it
    database     oid not null,
    timeline     int,                                      -- it changes when a standby or a backup is promoted
    created_at   timestamptz not null default rota.now(),
    recovered_at timestamptz
);
