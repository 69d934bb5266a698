-- Depths of counted queues: see functions/quotas.sql.

-- name: set_max_depth
select rota.set_max_depth($1, $2, $3);

-- name: recount_depth
select rota.recount_depth($1, $2);

-- name: settle_lanes
select rota.settle_lanes();

-- name: depths_to_fold
-- Namespaces with something to fold, to average or to report. Where nothing is counted, only the index of queues is read.
select d.namespace from rota.depth as d
where exists (select from rota.queue as q where q.intake is not null) and d.queue = ''
  and (d.arriving + d.leaving > 0.001 or exists (select from rota.flow as f where f.namespace = d.namespace)
       or exists (select from rota.depth as o where o.namespace = d.namespace and o.reported <> (o.shut > 0)));

-- name: fold_flow
select rota.fold_flow($1);

-- name: report_intake
-- Events for queues, and namespaces, that were shut or opened. Whoever does the same at the same time finds nothing.
with changed as (
    update rota.depth as d set reported = d.shut > 0
    where d.namespace = $1 and d.reported <> (d.shut > 0)
    returning d.namespace, d.queue, d.jobs, d.max_depth, d.shut
)
insert into rota.event (namespace, kind, task, detail)
select c.namespace, case when c.shut > 0 then 'queue_full' else 'queue_open' end, '',
       json_build_object('queue', nullif(c.queue, ''), 'depth', c.jobs, 'max_depth', c.max_depth)
from changed as c
returning kind;

-- name: depths_to_recount
select d.namespace, d.queue from rota.depth as d
where exists (select from rota.queue as q where q.intake is not null) and d.queue <> '' and d.recount_at <= rota.now()
order by d.recount_at
limit $1;

-- name: postpone_recount
update rota.depth set recount_at = rota.now() + interval '10 minutes' where namespace = $1 and queue = $2;

-- name: list_depths
select d.namespace, d.queue, d.jobs, d.max_depth, d.shut > 0 as is_full from rota.depth as d
where exists (select from rota.queue as q where q.intake is not null) and ($1::text is null or d.namespace = $1)
order by d.namespace, d.queue;
