-- name: register_node
insert into rota.node (id, namespace, name, host, pid, version, roles, expires_at, queues, capabilities, tasks, slots)
values ($1, $2, $3, $4, $5, $6, $7, rota.now() + make_interval(secs => $8), $9, $10, $11, $12);

-- name: heartbeat
-- No row back: this node was declared dead, and must stop what it does.
update rota.node set heartbeat_at = rota.now(), expires_at = rota.now() + make_interval(secs => $2),
    running = $3, state = case when $4 then 'draining' else state end
where id = $1 and state in ('live', 'draining')
returning extract(epoch from rota.now())::float8;

-- name: signals_for
select job_id, token, kind from rota.signal where node = $1;

-- name: deregister_node
update rota.node set state = 'stopped', ended_at = rota.now(), running = 0
where id = $1 and state in ('live', 'draining');

-- name: list_nodes
select id, namespace, name, host, pid, version, roles, started_at, queues, capabilities, slots, running,
       case when state in ('live', 'draining') and expires_at < rota.now() then 'silent' else state end as state,
       extract(epoch from rota.now() - heartbeat_at)::float8 as heartbeat_age
from rota.node
where namespace = $1 and ($2 or state in ('live', 'draining'))
order by started_at desc
limit 1000;

-- name: register_tasks
insert into rota.task as t (namespace, name, queue, needs, priority, guarantee, max_attempts, timeout, expected, deadline)
select $1, n, q, coalesce(string_to_array(nullif(needs, ''), '+'), '{}'), p, g, m, tm, ex, dl
from unnest($2::text[], $3::text[], $4::text[], $5::smallint[], $6::smallint[], $7::smallint[], $8::real[],
            $9::real[], $10::real[])
    as r(n, q, needs, p, g, m, tm, ex, dl)
on conflict (namespace, name) do update
set queue = excluded.queue, needs = excluded.needs, priority = excluded.priority,
    guarantee = excluded.guarantee, max_attempts = excluded.max_attempts, timeout = excluded.timeout,
    expected = excluded.expected, deadline = excluded.deadline, updated_at = rota.now()
where (t.queue, t.needs, t.priority, t.guarantee, t.max_attempts, t.timeout, t.expected, t.deadline)
    is distinct from (excluded.queue, excluded.needs, excluded.priority, excluded.guarantee,
                      excluded.max_attempts, excluded.timeout, excluded.expected, excluded.deadline);

-- name: lanes
select lane, queue, needs from rota.lane where namespace = $1;
