-- name: register_node
-- Repeated when its answer was lost: the row is there then, and the heartbeat that follows tells whether
-- it is still believed in.
insert into rota.node (id, namespace, name, host, pid, version, roles, expires_at, queues, capabilities, tasks,
    slots, kind, lot)
values ($1, $2, $3, $4, $5, $6, $7, rota.now() + make_interval(secs => $8), $9, $10, $11, $12,
    case when 'worker' = any($7) then md5(concat_ws('|', $9::text[]::text, $10::text[]::text, $11::text[]::text)) end,
    uuid_hash($1))
on conflict (id) do nothing;

-- name: heartbeat
-- No row back: this node was declared dead, and must stop what it does. One row for each of its signals,
-- or one without. Peers are counted only as far as the count matters.
with beat as (
    update rota.node set heartbeat_at = rota.now(), expires_at = rota.now() + make_interval(secs => $2),
        running = $3, state = case when $4 then 'draining' else 'live' end
    where id = $1 and state in ('live', 'draining')
    returning id, namespace, kind, wish
)
select extract(epoch from rota.now())::float8 as now, rota.is_listening(b.id) as listening,
       (select count(*) from (select from rota.node as n
            where n.namespace = b.namespace and n.kind = b.kind and n.state = 'live' limit 240) as p) as peers,
       s.job_id, s.token, s.kind as signal, b.wish,
       exists (select from rota.queue as q where q.namespace = b.namespace and q.history is not null) as sparing
from beat as b left join rota.signal as s on s.node = b.id;

-- name: signals_for
select job_id, token, kind from rota.signal where node = $1;

-- name: lock_listener
-- Held for as long as this connection lives: see rota.is_listening().
select pg_try_advisory_lock(rota.listener_lock($1));

-- name: echo
select rota.notify($1, 'echo');

-- name: advertise_idle
update rota.node set idle_slots = $2 where id = $1 and state = 'live' and idle_slots is distinct from $2;

-- name: withdraw_idle
-- No hints for a while: it's full, or its loop is blocked.
update rota.node set idle_slots = null where id = $1 and idle_slots is not null;

-- name: pass_on
-- Passes hints on to other workers, for jobs that this one has no slots for.
select rota.draw($2, h.lane, h.rank, h.count, $1)
from unnest($3::text[], $4::bigint[], $5::bigint[]) as h(lane, rank, count);

-- name: end_backend
-- Whether it is gone. Its name tells it from another's that has got the same number since.
select coalesce(bool_and(pg_terminate_backend(a.pid, 5000)), true)
from pg_stat_activity as a
where a.pid = $1 and a.application_name = $2 and a.usename = current_user;

-- name: deregister_node
update rota.node set state = 'stopped', ended_at = rota.now(), running = 0
where id = $1 and state in ('live', 'draining');

-- name: set_node_wish
-- No row back: it isn't alive any more. A node that is to stop can't be asked to go on: it may have begun.
update rota.node set wish = $3
where namespace = $1 and id = $2 and state in ('live', 'draining') and not remote and wish is distinct from 'stop'
returning id;

-- name: running_on
-- What a node runs, found by its batches: at most $3.
select p.id, p.task, p.lane, p.attempt, p.claimed_at, p.started_at, p.cancel_at is not null as stopping
from (select b.* from rota.batch as b where b.node = $2 order by b.token desc limit 200) as b
cross join lateral (
    select p.* from rota.present as p
    where p.lane = b.lane and (p.rank, p.id) >= (b.low, coalesce(b.low_id, '00000000-0000-0000-0000-000000000000'))
      and p.rank <= b.high and p.token = b.token and p.node = $2 and p.state = {state.running} and p.namespace = $1
    order by p.rank, p.id limit $3) as p
order by p.claimed_at
limit $3;

-- name: ended_on
-- What a node ended lately, of the last pages of today's history: $4 is from which page on.
select p.id, p.task, p.state, p.started_at, p.finished_at
from rota.past as p
where p.namespace = $1 and p.ctid >= $4::text::tid and p.finished_at >= $3 and p.node = $2 and p.started_at is not null
order by p.finished_at desc
limit $5;

-- name: failed_on
select d.id, d.task, d.state, d.started_at, d.finished_at
from (select * from rota.dead as d where d.namespace = $1 and d.finished_at >= $3 order by d.finished_at desc limit 2000) as d
where d.node = $2 and d.started_at is not null
order by d.finished_at desc
limit $4;

-- name: list_nodes
-- The newest first; with $3, only that one.
select id, namespace, name, host, pid, version, roles, started_at, queues, capabilities, labels,
       rota.public_amounts(resources) as resources,
       case when state in ('live', 'draining') then rota.public_amounts(used) else '{}' end as used,
       (select split_part(r.lane, '/', 2) from rota.reservation as r where r.node = n.id) as reserved, slots, remote, wish,
       coordinator, coordinator_fault,
       case when state in ('live', 'draining') then running else 0 end as running,
       case when state in ('live', 'draining') and expires_at < rota.now() then 'silent' else state end as state,
       extract(epoch from rota.now() - heartbeat_at)::float8 as heartbeat_age,
       case when state in ('live', 'draining') then running else 0 end::float8 / nullif(slots, 0) as load,
       case when state = 'live' and expires_at >= rota.now() then idle_slots end as idle_slots,
       case when 'scheduler' = any(roles) then
           (select count(*) from rota.shard as s where s.owner = n.id and s.expires_at > rota.now()) end as shards
from rota.node as n
where namespace = $1 and ($2 or state in ('live', 'draining')) and ($3::uuid is null or id = $3)
order by started_at desc, id
limit $4 offset $5;

-- name: workers_of_queue
-- Some of the workers that serve a queue, the newest first.
select id, namespace, name, host, pid, version, roles, started_at, queues, capabilities, labels,
       rota.public_amounts(resources) as resources,
       case when state in ('live', 'draining') then rota.public_amounts(used) else '{}' end as used,
       (select split_part(r.lane, '/', 2) from rota.reservation as r where r.node = n.id) as reserved, slots, remote, wish,
       coordinator, coordinator_fault,
       case when state in ('live', 'draining') then running else 0 end as running,
       case when state in ('live', 'draining') and expires_at < rota.now() then 'silent' else state end as state,
       extract(epoch from rota.now() - heartbeat_at)::float8 as heartbeat_age,
       case when state in ('live', 'draining') then running else 0 end::float8 / nullif(slots, 0) as load,
       case when state = 'live' and expires_at >= rota.now() then idle_slots end as idle_slots,
       case when 'scheduler' = any(roles) then
           (select count(*) from rota.shard as s where s.owner = n.id and s.expires_at > rota.now()) end as shards
from rota.node as n
where namespace = $1 and state in ('live', 'draining') and 'worker' = any(roles) and (queues = '{}' or $2 = any(queues))
order by started_at desc, id
limit $3;

-- name: register_tasks
insert into rota.task as t (namespace, name, queue, needs, priority, guarantee, max_attempts, timeout, expected, deadline,
    concurrency, per_key, rate_count, rate_period, rate_burst)
select $1, n, q, coalesce(string_to_array(nullif(needs, ''), '+'), '{}'), p, g, m, tm, ex, dl, co, pk, rc, rp, rb
from unnest($2::text[], $3::text[], $4::text[], $5::smallint[], $6::smallint[], $7::smallint[], $8::real[],
            $9::real[], $10::real[], $11::int[], $12::boolean[], $13::int[], $14::float8[], $15::int[])
    as r(n, q, needs, p, g, m, tm, ex, dl, co, pk, rc, rp, rb)
on conflict (namespace, name) do update
set queue = excluded.queue, needs = excluded.needs, priority = excluded.priority,
    guarantee = excluded.guarantee, max_attempts = excluded.max_attempts, timeout = excluded.timeout,
    expected = excluded.expected, deadline = excluded.deadline, concurrency = excluded.concurrency,
    per_key = excluded.per_key, rate_count = excluded.rate_count, rate_period = excluded.rate_period,
    rate_burst = excluded.rate_burst, updated_at = rota.now()
where (t.queue, t.needs, t.priority, t.guarantee, t.max_attempts, t.timeout, t.expected, t.deadline, t.concurrency,
       t.per_key, t.rate_count, t.rate_period, t.rate_burst)
    is distinct from (excluded.queue, excluded.needs, excluded.priority, excluded.guarantee,
                      excluded.max_attempts, excluded.timeout, excluded.expected, excluded.deadline,
                      excluded.concurrency, excluded.per_key, excluded.rate_count, excluded.rate_period,
                      excluded.rate_burst);

-- name: note_heartbeat_timeouts
update rota.node set heartbeat_timeouts = $2 where id = $1;

-- name: note_resources
-- Workers with other labels are of another kind: each kind is told of jobs that are near to some.
update rota.node set resources = $2::jsonb, labels = $3::text[],
    kind = case when $3::text[] = '{}' then kind else md5(concat_ws('|', kind, $3::text[]::text)) end
where id = $1;

-- name: note_used
update rota.node set used = $2::jsonb where id = $1;

-- name: queue_maxima
select name, max_run_time from rota.queue where namespace = $1 and max_run_time is not null;

-- name: lanes
-- Also those that a scheduler has not put to the others yet: see rota.settle_lanes().
select lane, queue, needs from rota.lane where namespace = $1
union
select lane, queue, needs from rota.new_lane where namespace = $1;
