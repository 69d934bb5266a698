-- Messages that come by HTTP, signed, and start jobs: a stream of our own, which a trigger reads as it reads a broker's.
create table rota.inbox (
    namespace   text collate "C" not null,
    name        text collate "C" not null,            -- the trigger's
    form        text not null,                        -- how messages are signed
    secrets     text[] not null,                      -- any of them may have signed
    last_number bigint not null default 0,
    primary key (namespace, name),
    foreign key (namespace, name) references rota.trigger (namespace, name) on delete cascade
);
insert into rota.row_security (table_name, privileges) values ('inbox', 'select');

-- A number is drawn under the lock of the inbox's row, which is kept until the commit: so messages become visible in
-- their order, and a reader that is past a number never misses a smaller one.
create table rota.inbox_message (
    namespace   text collate "C" not null,
    name        text collate "C" not null,
    number      bigint not null,
    id          uuid not null,                        -- what an encrypted body is bound to
    delivery    text collate "C" not null,            -- the sender's id of it: the same one again is the same message
    body        bytea not null,
    sealed      boolean not null,                     -- the body is encrypted
    headers     json not null,
    received_at timestamptz not null default rota.now(),
    primary key (namespace, name, number),
    unique (namespace, name, delivery),
    foreign key (namespace, name) references rota.inbox (namespace, name) on delete cascade
);
insert into rota.row_security (table_name, privileges) values ('inbox_message', 'select');
