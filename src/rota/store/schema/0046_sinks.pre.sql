-- Topics of brokers to which events go. The position is written after the broker has confirmed the events before it.
create table rota.sink (
    namespace   text collate "C" not null,
    name        text collate "C" not null,
    target      text not null,                -- the broker's address, without credentials
    position    text collate "C",             -- in the stream of events; null: not started yet
    paused_at   timestamptz,
    sent        bigint not null default 0,    -- events that the broker has confirmed
    skipped     bigint not null default 0,    -- events that the filters left out
    fault       text,                         -- why nothing is sent; null: all is well
    sender      uuid,                         -- the node that sends; others keep out of its way
    sends_until timestamptz,
    moved_at    timestamptz,                  -- when the position was written last
    created_at  timestamptz not null default rota.now(),
    primary key (namespace, name)
);
insert into rota.row_security (table_name, privileges) values ('sink', 'select, insert, update, delete');
