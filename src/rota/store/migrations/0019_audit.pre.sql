-- From where a change was made: rest, dashboard, cli or python. Null: before this was recorded.
alter table rota.audit add column interface text;

-- What the schema consists of, as the last `rota migrate` left it: so that a restore which lost something is noticed,
-- and mended by the definition kept here.
create table rota.schema_object (
    kind       text not null,
    name       text not null,
    definition text,             -- null: made by the functions' files, or by raise_walls()
    primary key (kind, name)
);
