-- name: register_signatures
-- By a node of a release at its start. Those of releases that have long gone are forgotten.
with gone as (
    delete from rota.task_signature as s
    where s.namespace = $1 and s.release <> $2 and s.registered_at < rota.now() - interval '1 day'
      and not exists (select from rota.node as n
                      where n.namespace = $1 and n.release = s.release and n.state in ('live', 'draining'))
), known as (
    delete from rota.unknown_task as u where u.namespace = $1 and u.name = any($3::text[])
)
insert into rota.task_signature (namespace, name, release, signature)
select $1, name, $2, signature from unnest($3::text[], $4::json[]) as s(name, signature)
on conflict do nothing;

-- name: note_release
update rota.node set release = $2 where id = $1;

-- name: signatures_of
select rota.signatures_of($1, $2);

-- name: note_unknown_task
select rota.note_unknown_task($1, $2, $3);

-- name: list_tasks
-- What nodes registered, with the newest signature. Of one task, if a name is given. Nodes of one kind know the same tasks:
-- one of them is looked at, however many there are.
with kinds as materialized (
    select k.nodes, n.tasks
    from (select count(*) as nodes, min(n.id::text)::uuid as id from rota.node as n
          where n.namespace = $1 and n.state = 'live' and n.expires_at >= rota.now()
          group by coalesce(n.kind, n.id::text)) as k
    join rota.node as n on n.id = k.id
)
select t.name, t.queue, t.needs, t.priority, t.guarantee, t.max_attempts, t.timeout,
       t.updated_at as registered_at, s.signature,
       (select coalesce(sum(k.nodes), 0)::bigint from kinds as k where t.name = any(k.tasks)) as workers
from rota.task as t
left join lateral (
    select s.signature from rota.task_signature as s
    where s.namespace = t.namespace and s.name = t.name
    order by s.registered_at desc limit 1
) as s on true
where t.namespace = $1 and t.name > $2 and ($3::text is null or t.name = $3)
  and not starts_with(t.name, 'rota' || '.')
order by t.name
limit $4;
