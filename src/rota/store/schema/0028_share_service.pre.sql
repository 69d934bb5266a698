-- Seconds in which the jobs of a fairness key had run by the end of a minute, since the key last had none for a while: what
-- a chart of the shares of a fair queue reads. Written by the janitor, for keys that were served since its last sample.
create table rota.share_service (
    namespace text collate "C" not null,
    queue     text collate "C" not null,
    key       text collate "C" not null,
    at        timestamptz not null,
    served    float8 not null,
    primary key (namespace, queue, at, key)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
create index share_service_at on rota.share_service (at);
insert into rota.row_security (table_name, privileges) values ('share_service', 'select');
