-- Events to webhooks, through the engine itself; more kinds of events; an index for figures.
--
-- Events are recorded by triggers, in the transaction of what they tell; and handed over to deliveries, jobs
-- of the built-in task for webhooks, in the transaction that records them. So an event that was committed has
-- its deliveries, and one that wasn't has none.

create table rota.webhook (
    id              uuid primary key,
    namespace       text collate "C" not null,
    url             text not null,
    secret          text not null,          -- what deliveries are signed with
    kinds           text[] not null default '{}',  -- empty: all
    format          text not null default 'json' check (format in ('json', 'slack')),
    paused_at       timestamptz,
    failures        int not null default 0, -- deliveries in a row that came to nothing
    last_error      text,
    delivered_at    timestamptz,            -- the last that arrived
    created_at      timestamptz not null default rota.now(),
    unique (namespace, url)
);

-- Where webhooks (and push tasks) of a namespace may go besides public addresses: a host's name, an address
-- or a network.
create table rota.allowed_host (
    namespace  text collate "C" not null,
    entry      text not null,
    created_at timestamptz not null default rota.now(),
    primary key (namespace, entry)
);
create trigger hand_over after insert on rota.event referencing new table as added
    for each statement execute function rota.hand_over_events();
create trigger note_dead_letters after insert on rota.dead referencing new table as buried
    for each statement execute function rota.note_dead_letters();
create trigger note_left_out after insert on rota.occurrence referencing new table as decided
    for each statement execute function rota.note_left_out();
create trigger note_left_out_later after update on rota.occurrence referencing new table as decided
    for each statement execute function rota.note_left_out();
create trigger note_dead_node after update on rota.node for each row
    when (new.state = 'dead' and old.state is distinct from 'dead') execute function rota.note_dead_node();

-- Figures of occurrences are counted on from where one stopped.
create index occurrence_decided on rota.occurrence (decided_at);

insert into rota.wall (table_name, condition, privileges) values
    ('webhook', 'namespace = current_setting(''rota.namespace'', true)', 'select, insert, update, delete'),
    ('allowed_host', 'namespace = current_setting(''rota.namespace'', true)', 'select');
