-- Pools of workers: what they serve, how many slots they may have, and how many they should have now.
create table rota.pool (
    namespace        text collate "C" not null,
    name             text collate "C" not null,
    queues           text[] not null default '{}',     -- empty: all
    capabilities     text[] not null default '{}',     -- of its workers: jobs that need others are not counted
    min_slots        int not null default 0 check (min_slots >= 0),
    max_slots        int not null check (max_slots >= 1 and max_slots >= min_slots),
    slots_per_worker int not null default 1 check (slots_per_worker >= 1),
    drain_target     double precision not null default 60 check (drain_target > 0),  -- seconds
    created_at       timestamptz not null default rota.now(),
    -- What a scheduler has decided last (scheduler/pools.py).
    slots            int not null default 0,
    needed           double precision not null default 0,
    decided_at       timestamptz,
    loads            json not null default '[]',
    scaling          json,                             -- what the next decision depends on
    primary key (namespace, name)
) with (fillfactor = 50);
insert into rota.row_security (table_name, privileges) values ('pool', 'select, insert, update, delete');
