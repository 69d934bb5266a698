-- What went well: events that nobody reads but sinks, of the kinds that one asks for. They are written in the transaction
-- that they tell of, only while a sink asks for them (rota.sink.wants), and are removed when all have sent them. Ids are
-- drawn with those of rota.event, so that both are one stream.
create table rota.outbox (
    id        bigint not null,
    at        timestamptz not null default rota.now(),
    namespace text collate "C" not null,
    kind      text not null,
    task      text not null,
    job_id    uuid,
    detail    json not null,
    xid       xid8 not null default pg_current_xact_id(),
    primary key (namespace, xid, id)
) with (autovacuum_vacuum_scale_factor = 0.05);
create index outbox_at on rota.outbox using brin (at) with (pages_per_range = 32, autosummarize = on);
insert into rota.row_security (table_name, privileges) values ('outbox', 'select, insert');

-- Kinds, and of which queues and tasks: empty for all. Written by the node that sends.
alter table rota.sink add column wants text[] not null default '{}', add column of_queues text[] not null default '{}',
    add column of_tasks text[] not null default '{}';
