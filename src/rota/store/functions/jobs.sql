-- The only clock. STABLE and a single expression, so that it is inlined and usable in an index
-- condition; of the statement, not of the transaction, so that a caller's long transaction doesn't
-- submit into the past. Tests replace this one function to move time.
create or replace function rota.now() returns timestamptz
    language sql stable parallel safe as 'select statement_timestamp()';

-- A UUIDv7 for submits from plain SQL; PostgreSQL 18 has its own, 14 to 17 don't.
create or replace function rota.new_id() returns uuid language sql volatile parallel safe as $$
    select encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
        placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3)
        from 1 for 6), 52, 1), 53, 1), 'hex')::uuid
$$;

-- The order of claims in a lane. A point of priority is worth a minute of waiting, so that
-- priority goes first and nothing starves, without ever updating a row.
create or replace function rota.rank(due_at timestamptz, priority int) returns bigint
    language sql immutable parallel safe as $$
    select (extract(epoch from due_at - timestamptz '2000-01-01 00:00:00+00') * 1000000)::bigint
           - priority::bigint * 60000000
$$;

-- The common case, without needs, is inlined where it is called.
create or replace function rota.lane(namespace text, queue text, needs text[]) returns text
    language sql immutable parallel safe as $$
    select namespace || '/' || queue || case when needs = '{}' then '' else rota.needs_text(needs) end
$$;

create or replace function rota.needs_text(needs text[]) returns text language sql immutable parallel safe as $$
    select coalesce((select string_agg('+' || need, '' order by need collate "C")
                     from (select distinct unnest(needs) as need) as n), '')
$$;

create or replace function rota.queue_of(lane text) returns text
    language sql immutable parallel safe as
    $$ select split_part(split_part(split_part(lane, '/', 2), '#', 1), '+', 1) $$;

create or replace function rota.needs_of(lane text) returns text[]
    language sql immutable parallel safe as
    $$ select (string_to_array(split_part(split_part(lane, '/', 2), '#', 1), '+'))[2:] $$;

-- What must be decided together hashes to one shard. The last bytes of a UUIDv7 are random.
create or replace function rota.shard_of(id uuid, shards bigint) returns smallint
    language sql immutable parallel safe as
    $$ select ((('x' || right(id::text, 8))::bit(32)::bigint) % shards)::smallint $$;

-- Two objects as one; the second wins.
create or replace function rota.merged(one json, other json) returns json language sql immutable parallel safe as $$
    select case when one is null then other else (one::jsonb || other::jsonb)::json end
$$;

-- A job's list of attempts with one more entry, of which the last 20 are kept.
create or replace function rota.add_attempt(attempts jsonb, entry jsonb, started timestamptz, ended timestamptz)
    returns jsonb language sql stable parallel safe as $$
    select case when jsonb_array_length(list) > 20 then list - 0 else list end
    from (select coalesce(attempts, '[]') || case when entry is null then '[]'::jsonb else jsonb_build_array(
        entry || jsonb_build_object('started_at', started, 'ended_at', ended)) end as list) as l
$$;

create or replace function rota.state_label(state smallint) returns text
    language sql immutable parallel safe as $$
    select (array[{state.labels}])[state]
$$;

-- What failures are compared and shown by. Encrypted ones are alike if their task and class are.
create or replace function rota.error_words(error json) returns text language sql immutable parallel safe as $$
    select case when starts_with(error ->> 'message', '$rota-encrypted:') then '(encrypted)'
                else left(error ->> 'message', 500) end
$$;

-- Failures of one task and class whose messages differ in numbers and ids only are alike: the name of their group.
create or replace function rota.fingerprint(task text, error json) returns text language sql immutable parallel safe as $$
    select left(md5(concat_ws('|', task, error ->> 'type', regexp_replace(rota.error_words(error),
        '[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|0x[0-9a-fA-F]+|[0-9]+', '#', 'g'))), 16)
$$;

-- When a job failed for the first time with the class of its last error: a retry by hand doesn't make it a new failure.
create or replace function rota.failed_first(attempts jsonb, error json, finished timestamptz) returns timestamptz
    language sql stable parallel safe as $$
    select least(finished, (select min((a.entry ->> 'ended_at')::timestamptz) from jsonb_array_elements(attempts) as a(entry)
        where a.entry -> 'error' ->> 'type' = error ->> 'type'))
$$;

-- The length is compared apart: a bounded repetition in the pattern costs ten times as much.
create or replace function rota.is_name(name text) returns boolean language sql immutable parallel safe as
    $$ select length(name) <= 100 and name ~ '^[A-Za-z0-9_][A-Za-z0-9_.:-]*$' $$;
