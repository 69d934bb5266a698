-- Places that handlers ask for while they run: ctx.limit(). docs/architecture.md describes the protocol ("Permits").

-- One row for each ask. It counts while its job runs under its token; nothing that ends jobs has to know of it.
create table rota.permit (
    namespace  text collate "C" not null,
    name       text collate "C" not null,
    number     bigint generated always as identity,  -- who asks first is first
    job_id     uuid not null,
    token      bigint not null,
    ask        int not null,                         -- of this attempt
    node       uuid not null,
    asked_at   timestamptz not null default rota.now(),
    granted_at timestamptz,
    primary key (namespace, name, job_id, token, ask)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
create index permit_granted on rota.permit (namespace, name) where granted_at is not null;
create index permit_waiting on rota.permit (namespace, name, number) where granted_at is null;
create index permit_job on rota.permit (job_id);
insert into rota.row_security (table_name, privileges) values ('permit', 'select, insert, update, delete');
