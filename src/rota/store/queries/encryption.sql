-- Values that are encrypted at rest: see rota.encryption.

-- name: is_encrypted
select rota.is_encrypted($1);

-- name: set_encrypted
insert into rota.namespace as n (name, encrypted) values ($1, $2)
on conflict (name) do update set encrypted = excluded.encrypted
returning n.encrypted;

-- name: encrypted_namespaces
select name from rota.namespace where encrypted order by name;

-- name: note_keys
update rota.node set keys = $2::text[] where id = $1;

-- name: renew_fingerprint
update rota.submit_key set fingerprint = $4 where namespace = $1 and key = $2 and job_id = $3;

-- name: encrypted_steps
-- Steps of a run that may hold something encrypted. Whoever ends steps locks them in this order.
select number, job_id, result, case when error ->> 'type' <> 'SkippedByHand' then error end as error from rota.step
where run_id = $1 and (result is not null or error is not null) order by number for update;

-- name: rewrite_step
update rota.step set result = coalesce($3::json, result), error = coalesce($4::json, error) where run_id = $1 and number = $2;

-- name: encrypted_checkpoints
-- What a durable function has done, and what of that may hold something encrypted.
select number, kind, job_id, digest, result, error from rota.checkpoint
where run_id = $1 and (result is not null or error is not null or digest is not null) order by number for update;

-- name: rewrite_checkpoint
update rota.checkpoint
set result = coalesce($3::json, result), error = coalesce($4::json, error), digest = coalesce($5, digest)
where run_id = $1 and number = $2;

-- name: encrypted_maps
select step, id, each_job from rota.map where run_id = $1 order by step;

-- name: encrypted_chunks
-- Chunks of a map after a number, a few at a time: they may be large.
select number, job_id, items, result from rota.map_chunk where run_id = $1 and step = $2 and number > $3
order by number limit 20 for update;

-- name: rewrite_chunk
update rota.map_chunk set items = coalesce($4::json, items), result = coalesce($5::json, result)
where run_id = $1 and step = $2 and number = $3;

-- name: encrypted_results
select first, results from rota.map_result where run_id = $1 and step = $2 and first > $3
order by first limit 20 for update;

-- name: rewrite_results
update rota.map_result set results = $4::json where run_id = $1 and step = $2 and first = $3;

-- name: encrypted_members
select b.number, b.result, b.error, (
    select c.job_id from rota.map_chunk as c where c.run_id = $1 and c.step = $2 and c.first = b.number) as job_id
from rota.map_member as b where b.run_id = $1 and b.step = $2 and b.number > $3
order by b.number limit 200 for update of b;

-- name: rewrite_member
update rota.map_member set result = coalesce($4::json, result), error = coalesce($5::json, error)
where run_id = $1 and step = $2 and number = $3;

-- name: specs_of_versions
select version, spec from rota.schedule_version where schedule_id = $1 order by version for update;

-- name: rewrite_version
update rota.schedule_version set spec = $3 where schedule_id = $1 and version = $2;
