-- Tasks that are HTTP endpoints, and what is reported of their attempts.

-- name: add_endpoint
-- With what a submit needs to know of the task, and a hint to the nodes.
with added as (
    insert into rota.endpoint as e (namespace, name, url, secret, queue, needs, priority, guarantee, retry,
        timeout, callback_timeout)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    on conflict (namespace, name) do nothing
    returning e.*
), registered as (
    insert into rota.task as t (namespace, name, queue, needs, priority, guarantee, max_attempts, timeout)
    select namespace, name, queue, needs, priority, guarantee, (retry ->> 'max_attempts')::smallint, null from added
    on conflict (namespace, name) do update
    set queue = excluded.queue, needs = excluded.needs, priority = excluded.priority,
        guarantee = excluded.guarantee, max_attempts = excluded.max_attempts, timeout = null, expected = null,
        deadline = null, updated_at = rota.now()
)
select a.name, rota.notify(rota.channel(a.namespace), 'endpoints') from added as a;

-- name: change_endpoint
with changed as (
    update rota.endpoint as e
    set url = $3, secret = $4, queue = $5, needs = $6, priority = $7, guarantee = $8, retry = $9, timeout = $10,
        callback_timeout = $11, version = gen_random_uuid(), updated_at = rota.now()
    where e.namespace = $1 and e.name = $2
    returning e.*
), registered as (
    update rota.task as t
    set queue = c.queue, needs = c.needs, priority = c.priority, guarantee = c.guarantee,
        max_attempts = (c.retry ->> 'max_attempts')::smallint, updated_at = rota.now()
    from changed as c where t.namespace = c.namespace and t.name = c.name
)
select c.name, rota.notify(rota.channel(c.namespace), 'endpoints') from changed as c;

-- name: remove_endpoint
with removed as (
    delete from rota.endpoint as e where e.namespace = $1 and e.name = $2 returning e.namespace, e.name
), forgotten as (
    delete from rota.task as t using removed as r where t.namespace = r.namespace and t.name = r.name
)
select r.name, rota.notify(rota.channel(r.namespace), 'endpoints') from removed as r;

-- name: list_endpoints
select name, url, secret, queue, needs, priority, guarantee, retry::text as retry, timeout, callback_timeout,
       version, created_at, updated_at
from rota.endpoint
where namespace = $1 and ($2::text is null or name = $2)
order by name
limit $3 offset $4;

-- name: endpoint_versions
-- Small, and another with any change: what a node asks now and then.
select md5(coalesce(string_agg(name || ' ' || version, ',' order by name), '')) from rota.endpoint where namespace = $1;

-- name: know_tasks
-- A node has learned of tasks, or forgets some. Its kind goes by them: see register_node.
update rota.node as n
set tasks = $2, kind = case when n.kind is not null then
    md5(concat_ws('|', n.queues::text, n.capabilities::text, $2::text[]::text)) end
where n.id = $1 and n.state in ('live', 'draining');

-- name: begin_push
select rota.now() as now, (select secret from rota.callback_secret) as callback_secret,
       array(select a.entry from rota.allowed_host as a where a.namespace = $1) as allowed;

-- name: callback_secret
select secret from rota.callback_secret;

-- name: attempt_place
-- Whose attempt a report is about, and whether what is kept of its job is encrypted. Only to prepare it.
-- The payload of a workflow's step is its definition's: of it, only what follows is encrypted.
select p.namespace, rota.is_encrypted(p.payload) or p.run_id is not null and rota.is_encrypted(p.namespace) as encrypted
from rota.present as p
where p.id = $1 and p.token = $2 and p.state = {state.running};

-- name: take_callback
-- What is reported of an attempt that still has its job. A success ends it here and now, as finish_succeeded
-- does; of a failure the node is notified, which judges it. No row back: it was reported before, or is over.
with held as (
    select p.id, p.token, p.node, p.namespace from rota.present as p
    where p.id = $1 and p.token = $2 and p.state = {state.running}
    for update
), noted as (
    insert into rota.callback as c (job_id, token, namespace, node, succeeded, detail)
    select h.id, h.token, h.namespace, h.node, $3, $6 from held as h
    on conflict (job_id, token) do nothing
    returning c.job_id, c.token, c.namespace, c.node
), gone as (
    delete from rota.present as p using noted as n
    where $3 and p.id = n.job_id and p.token = n.token and p.state = {state.running}
    returning p.*
), ended as materialized (
    select g.*, rota.keeps_success(q.history, g.id, g.attempts is not null or $5::json is not null,
                                   coalesce(g.run_id, g.schedule_id) is not null) as keeps
    from gone as g left join rota.queue as q on q.namespace = g.namespace and q.name = rota.queue_of(g.lane)
), kept as (
    {{insert rota.past, ended: state = {state.succeeded}; started_at = coalesce(started_at, claimed_at);
        result = $4::json; error = $5::json}}
    from ended where keeps
    returning 1
), spared as materialized (
    select id, namespace, lane, task, attempt, due_at, coalesce(started_at, claimed_at) as started_at, rota.now() as finished_at,
           {state.succeeded} as state
    from ended where not keeps
), traced as (
    {{trace spared}}
), told as (
    {{tell spared}}
), {{tally spared}}
select n.job_id, rota.notify(rota.channel(n.namespace, n.node), 'callback ' || n.job_id::text)
from noted as n where (select count(*) from kept) + (select flows from flowed) >= 0;

-- name: find_callbacks
select c.job_id, c.token, c.succeeded, c.detail::text as detail from rota.callback as c
join unnest($1::uuid[], $2::bigint[]) as w(job_id, token) on c.job_id = w.job_id and c.token = w.token;

-- name: forget_callbacks
delete from rota.callback where created_at < rota.now() - make_interval(days => $1);
