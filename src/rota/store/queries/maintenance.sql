-- Maintenance windows: times in which people are not told of events.

-- name: list_maintenance
-- With $2, only that one. Those that have ended are listed for a day.
select m.name, m.starts_at, m.ends_at, m.kinds, m.note, m.actor as created_by,
       m.starts_at <= rota.now() and rota.now() < m.ends_at as open
from rota.maintenance as m
where m.namespace = $1 and ($2::text is null or m.name = $2) and m.ends_at > rota.now() - interval '1 day'
order by m.starts_at, m.name;

-- name: put_maintenance
-- $3: when it starts, now without one. Windows that have ended long ago are removed by the way.
with old as (
    delete from rota.maintenance as m
    where m.namespace = $1 and m.name <> $2 and m.ends_at < rota.now() - interval '31 days'
)
insert into rota.maintenance as m (namespace, name, starts_at, ends_at, kinds, note, actor)
values ($1, $2, coalesce($3, rota.now()), coalesce($3, rota.now()) + make_interval(secs => $4), $5, $6, $7)
on conflict (namespace, name) do update set starts_at = excluded.starts_at, ends_at = excluded.ends_at,
    kinds = excluded.kinds, note = excluded.note, actor = excluded.actor;

-- name: delete_maintenance
delete from rota.maintenance as m where m.namespace = $1 and m.name = $2 returning m.name;

-- name: announced_maintenance
-- Windows that cover everything, open or planned for the next week: for the status page.
select m.starts_at, m.ends_at from rota.maintenance as m
where m.namespace = $1 and m.kinds = '{}' and m.ends_at > rota.now() and m.starts_at < rota.now() + interval '7 days'
order by m.starts_at, m.ends_at limit 10;

-- name: open_maintenance
-- The open window that covers alerts and lasts longest.
select m.name, m.ends_at, m.note, m.actor from rota.maintenance as m
where m.namespace = $1 and m.kinds = '{}' and m.starts_at <= rota.now() and rota.now() < m.ends_at
order by m.ends_at desc limit 1;
