-- Pools of workers.

-- name: put_pool
insert into rota.pool as p (namespace, name, queues, capabilities, min_slots, max_slots, slots_per_worker, drain_target, slots)
values ($1, $2, $3, $4, $5, $6, $7, $8, $5)
on conflict (namespace, name) do update
set queues = excluded.queues, capabilities = excluded.capabilities, min_slots = excluded.min_slots,
    max_slots = excluded.max_slots, slots_per_worker = excluded.slots_per_worker, drain_target = excluded.drain_target;

-- name: delete_pool
delete from rota.pool where namespace = $1 and name = $2 returning name;

-- name: list_pools
select namespace, name, queues, capabilities, min_slots, max_slots, slots_per_worker, drain_target, slots, needed,
       decided_at, loads::text, scaling::text, extract(epoch from rota.now())::float8 as now
from rota.pool where ($1::text is null or namespace = $1) and ($2::text is null or name = $2)
order by namespace, name;

-- name: pool_load
select queue, runnable, running, arrivals, run_time from rota.pool_load($1, $2, $3, $4) order by queue;

-- name: decide_pool
-- Only if nobody else has decided since it was read ($3).
update rota.pool
set slots = $4, needed = $5, loads = $6::json, scaling = $7::json, decided_at = rota.now()
where namespace = $1 and name = $2 and decided_at is not distinct from $3
returning name;
