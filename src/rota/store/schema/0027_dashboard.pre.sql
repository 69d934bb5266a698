-- What people do with the dashboard and share with others: marks on alerts, saved views, and bulk actions with their
-- outcome.

-- An alert that somebody has acknowledged or silenced. An acknowledgement covers what had happened by then; a silence
-- covers whatever happens until its end. Alerts themselves are computed, and not stored.
create table rota.alert_mark (
    namespace       text collate "C" not null,
    alert           text collate "C" not null check (length(alert) between 1 and 300),
    acknowledged_at timestamptz,
    silenced_until  timestamptz,
    actor           text not null,
    note            text not null default '' check (length(note) <= 500),
    marked_at       timestamptz not null default rota.now(),
    primary key (namespace, alert)
);
insert into rota.row_security (table_name, privileges) values ('alert_mark', 'select, insert, update, delete');

-- Addresses of pages that somebody has saved under a name. `shared`: for everybody of the namespace.
create table rota.saved_view (
    namespace  text collate "C" not null,
    owner      text collate "C" not null,
    name       text collate "C" not null check (length(name) between 1 and 100),
    address    text not null check (length(address) between 1 and 2000),
    shared     boolean not null default false,
    created_at timestamptz not null default rota.now(),
    primary key (namespace, owner, name)
);
insert into rota.row_security (table_name, privileges) values ('saved_view', 'select, insert, update, delete');

-- The jobs of a bulk action, so that its outcome can be counted and it can be undone. `rows`: what their rows had that the
-- action takes away, if there are not too many. Kept for a week.
create table rota.bulk_change (
    id        uuid primary key,
    namespace text collate "C" not null,
    action    text collate "C" not null check (action in ('cancel', 'retry', 'discard')),
    actor     text not null,
    at        timestamptz not null default rota.now(),
    ids       uuid[] not null,
    rows      jsonb,
    undone_at timestamptz,
    undone    int
);
create index bulk_change_at on rota.bulk_change (at);
insert into rota.row_security (table_name, privileges) values ('bulk_change', 'select, insert, update, delete');
