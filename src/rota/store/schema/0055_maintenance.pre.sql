-- Times in which people are not told of events: planned, or begun now. `kinds`: of events; none named: all, and alerts.
create table rota.maintenance (
    namespace text collate "C" not null,
    name      text collate "C" not null check (length(name) between 1 and 100),
    starts_at timestamptz not null,
    ends_at   timestamptz not null check (ends_at > starts_at),
    kinds     text[] not null default '{}',
    note      text not null default '' check (length(note) <= 500),
    actor     text not null,
    primary key (namespace, name)
);
insert into rota.row_security (table_name, privileges) values ('maintenance', 'select, insert, update, delete');
