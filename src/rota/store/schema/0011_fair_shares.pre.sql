-- Queues whose slots are shared fairly between keys. docs/architecture.md describes the protocol ("Fair shares").

alter table rota.queue
    add column policy text collate "C" not null default 'priority' check (policy in ('priority', 'fair')),
    drop column governed;
alter table rota.queue
    add column governed boolean not null generated always as
        (concurrency is not null or concurrency_per_key is not null or rate_count is not null or policy <> 'priority') stored;

-- The weights of fairness keys that have another one than 1. The empty key: jobs without one.
create table rota.fair_weight (
    namespace text collate "C" not null,
    queue     text collate "C" not null,
    key       text collate "C" not null,
    weight    float8 not null check (weight between 0.000001 and 1000000),
    primary key (namespace, queue, key)
);
insert into rota.row_security (table_name, privileges) values ('fair_weight', 'select, insert, update, delete');

-- Of a sublane in a fair queue, `head` is its virtual time in microseconds: the seconds that it was served, over its weight.
alter table rota.sublane
    add column fair        boolean not null default false,
    add column fair_key    text collate "C" not null default '',
    add column cost        float8 not null default 1,    -- seconds that one of its jobs is expected to run
    add column outstanding int not null default 0,       -- jobs that were claimed, and whose seconds are not known yet
    add column charged     float8 not null default 0,    -- the seconds that were charged for these
    add column served      float8 not null default 0;    -- seconds in which its jobs have run
create index sublane_siblings on rota.sublane (base, fair_key) where state = 1;
create index sublane_heads on rota.sublane (base, head);

-- Also says that jobs of a sublane have ended, and how many seconds they had run: then without a rank.
alter table rota.arrival
    alter column rank drop not null,
    add column jobs    int not null default 0,
    add column seconds float8 not null default 0;
