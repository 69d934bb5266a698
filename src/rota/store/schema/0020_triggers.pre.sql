-- Messages of a broker that start jobs. The position is written in the transaction that stores the jobs.
create table rota.trigger (
    namespace   text collate "C" not null,
    name        text collate "C" not null,
    task        text not null,
    source      text not null,                -- the broker's address, without credentials
    position    text collate "C",             -- of the last message that was read; null: nothing was read yet
    started     boolean not null default false,  -- the position is known, also where it is null
    paused_at   timestamptz,
    jobs        bigint not null default 0,    -- messages that became jobs
    skipped     bigint not null default 0,    -- messages that the filter left out
    dead        bigint not null default 0,    -- messages that could not become jobs, in the dead letters
    lag         bigint,                       -- messages that wait in the broker, as last seen
    fault       text,                         -- why nothing is read; null: all is well
    reader      uuid,                         -- the node that reads; others keep out of its way
    reads_until timestamptz,
    moved_at    timestamptz,                  -- when the position was written last
    created_at  timestamptz not null default rota.now(),
    primary key (namespace, name)
);
insert into rota.row_security (table_name, privileges) values ('trigger', 'select, insert, update, delete');
