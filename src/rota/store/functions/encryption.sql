-- Of a table that tenants and callers may not read.
create or replace function rota.is_encrypted(space text) returns boolean
    language sql stable security definer set search_path = pg_catalog as
    $$ select coalesce((select n.encrypted from rota.namespace as n where n.name = space), false) $$;

-- An envelope, as rota.encryption writes it: to the letter, so that nothing jsonb prints is taken for one.
create or replace function rota.is_encrypted(value json) returns boolean language sql immutable parallel safe as
    $$ select starts_with(value::text, '{"$rota-encrypted":"') $$;
