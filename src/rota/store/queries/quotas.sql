-- Namespaces and what they may use.

-- name: admit
select refused, retry_after from rota.admit($1, $2, $3, $4);

-- name: put_namespace
with depth as (select rota.set_max_depth($1, '', $5))
insert into rota.namespace as n (name, max_jobs, max_payload_bytes, submits_per_second)
select $1, $2, $3, $4 from depth
on conflict (name) do update set max_jobs = excluded.max_jobs, max_payload_bytes = excluded.max_payload_bytes,
    submits_per_second = excluded.submits_per_second,
    counted_at = '-infinity'
returning n.name, n.created_at, n.max_jobs, n.max_payload_bytes, n.submits_per_second, n.stored_jobs, n.stored_bytes,
    $5::bigint as max_depth, null::bigint as depth;

-- name: get_namespace
select n.name, n.created_at, n.max_jobs, n.max_payload_bytes, n.submits_per_second, n.stored_jobs, n.stored_bytes,
       d.max_depth, case when d.max_depth is not null then d.jobs end as depth
from rota.namespace as n left join rota.depth as d on d.namespace = n.name and d.queue = '' where n.name = $1;

-- name: list_namespaces
-- Those with a row of their own, and those that only have jobs.
select coalesce(n.name, u.name) as name, n.created_at, n.max_jobs, n.max_payload_bytes, n.submits_per_second,
       n.stored_jobs, n.stored_bytes, d.max_depth, case when d.max_depth is not null then d.jobs end as depth
from rota.namespace as n
full join (select distinct namespace as name from rota.queue) as u on u.name = n.name
left join rota.depth as d on d.namespace = n.name and d.queue = ''
order by 1;

-- name: namespace_names
-- The first $1 of those that list_namespaces has. Queues are read a namespace at a time, not one by one.
with recursive used as (
    (select q.namespace from rota.queue as q order by q.namespace limit 1)
    union all
    select (select q.namespace from rota.queue as q where q.namespace > u.namespace order by q.namespace limit 1)
    from used as u where u.namespace is not null
)
select name from (
    (select n.name from rota.namespace as n order by n.name limit $1)
    union
    (select u.namespace from used as u where u.namespace is not null limit $1)) as n
order by name limit $1;

-- name: some_namespaces
-- Those of these names, which may be without a row.
select w.name, n.created_at, n.max_jobs, n.max_payload_bytes, n.submits_per_second,
       n.stored_jobs, n.stored_bytes, d.max_depth, case when d.max_depth is not null then d.jobs end as depth
from unnest($1::text[]) as w(name)
left join rota.namespace as n on n.name = w.name
left join rota.depth as d on d.namespace = w.name and d.queue = ''
order by w.name;

-- name: namespace_is_known
select exists (select from rota.namespace where name = $1) or exists (select from rota.queue where namespace = $1)
    or exists (select from rota.schedule where namespace = $1) or exists (select from rota.task where namespace = $1)
    or exists (select from rota.webhook where namespace = $1) or exists (select from rota.calendar where namespace = $1)
    or exists (select from rota.api_token where namespace = $1) or exists (select from rota.membership where namespace = $1);

-- name: remove_namespace
-- An encrypted one stays encrypted: its row stays, without limits.
with depth as materialized (
    select max((select d.max_depth from rota.depth as d where d.namespace = $1 and d.queue = '')) as max_depth
), gone as (
    delete from rota.namespace where name = $1 and not encrypted
    returning name, created_at, max_jobs, max_payload_bytes, submits_per_second, stored_jobs, stored_bytes
), freed as (
    update rota.namespace as n set max_jobs = null, max_payload_bytes = null, submits_per_second = null
    from rota.namespace as o
    where n.name = $1 and o.name = n.name and n.encrypted
    returning n.name, n.created_at, o.max_jobs, o.max_payload_bytes, o.submits_per_second, n.stored_jobs, n.stored_bytes
)
select g.*, d.max_depth, null::bigint as depth, rota.set_max_depth(g.name, '', null) as freed
from (select * from gone union all select * from freed) as g, depth as d;

-- name: limited_namespaces
select name from rota.namespace
where max_jobs is not null or max_payload_bytes is not null or submits_per_second is not null;

-- name: readiness
select (select count(*) from rota.node where 'scheduler' = any(roles) and state in ('live', 'draining')
        and expires_at > rota.now()) as schedulers,
       (select count(*) from rota.node where 'worker' = any(roles) and state = 'live'
        and expires_at > rota.now()) as workers;
