-- Keys of persons: what was sealed for a person is read with their key, and by nobody once it is destroyed.
create table rota.person (
    id          uuid primary key,
    namespace   text collate "C" not null,
    fingerprint text collate "C",   -- of the name that the application has for the person, under an encryption key
    key         text,               -- encrypted, together with that name; null: destroyed
    rotated     boolean not null default false,   -- since it was made, the encryption key has changed
    created_at  timestamptz not null default rota.now(),
    erased_at   timestamptz,
    check ((key is null) = (erased_at is not null) and (key is null) = (fingerprint is null))
);
-- Two nodes with different encryption keys may each make one for a person, which then have one fingerprint when both are rotated.
create unique index person_made on rota.person (namespace, fingerprint) where not rotated;
create index person_fingerprint on rota.person (namespace, fingerprint);
-- The dead row of a destroyed key still has it: it is vacuumed away with the next look of autovacuum, not with the fifty-first.
alter table rota.person set (autovacuum_vacuum_threshold = 0, autovacuum_vacuum_scale_factor = 0);
insert into rota.row_security (table_name, privileges) values ('person', 'select, insert, update');
