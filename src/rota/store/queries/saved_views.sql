-- Views that people have saved: addresses of pages, under a name.

-- name: list_saved_views
-- One's own.
select v.owner, v.name, v.address, v.shared, v.created_at from rota.saved_view as v
where v.namespace = $1 and v.owner = $2 order by v.name limit 200;

-- name: list_shared_views
-- Those that others share.
select v.owner, v.name, v.address, v.shared, v.created_at from rota.saved_view as v
where v.namespace = $1 and v.owner <> $2 and v.shared
order by v.name, v.owner limit $3 offset $4;

-- name: find_views
-- One's own and shared ones with $3 in their names: $4 at most, of $5 that are looked at of either.
select v.owner, v.name, v.address, v.shared, v.created_at
from (
    (select * from rota.saved_view as v where v.namespace = $1 and v.owner = $2 order by v.name limit $5)
    union all
    (select * from rota.saved_view as v where v.namespace = $1 and v.owner <> $2 and v.shared order by v.name, v.owner limit $5)) as v
where strpos(lower(v.name), lower($3)) > 0
order by v.owner <> $2, v.name, v.owner limit $4;

-- name: put_saved_view
-- Nothing is stored, and nothing returned, when somebody has $6 others already.
insert into rota.saved_view as v (namespace, owner, name, address, shared)
select $1, $2, $3, $4, $5 where (
    select count(*) from rota.saved_view as o where o.namespace = $1 and o.owner = $2 and o.name <> $3) < $6
on conflict (namespace, owner, name) do update set address = excluded.address, shared = excluded.shared
returning v.owner, v.name, v.address, v.shared, v.created_at;

-- name: get_saved_view
select v.owner, v.name, v.address, v.shared, v.created_at from rota.saved_view as v
where v.namespace = $1 and v.owner = $2 and v.name = $3;

-- name: remove_saved_view
delete from rota.saved_view as v where v.namespace = $1 and v.owner = $2 and v.name = $3
returning v.owner, v.name, v.address, v.shared, v.created_at;
