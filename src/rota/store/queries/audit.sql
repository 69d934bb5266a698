-- The audit log: changes and their actors.

-- name: record_change
insert into rota.audit (namespace, actor, via, action, subject, before, after, request_id, address,
    interface)
values ($1, $2, $3, $4, $5, $6::jsonb, $7::jsonb, $8, $9, $10)
returning id;

-- name: get_change
select id, at, namespace, actor, via, action, subject, before::text, after::text, request_id, address, interface
from rota.audit where namespace = $1 and id = $2;

-- name: list_changes
select id, at, namespace, actor, via, action, subject, before::text, after::text, request_id, address, interface
from rota.audit
where ($1::text is null or namespace = $1) and ($2::text is null or action = $2) and ($3::text is null or actor = $3)
  and ($4::text is null or subject = $4) and ($5::bigint is null or id < $5)
  and ($7::text is null or interface = $7) and ($8::timestamptz is null or at >= $8)
  and ($9::timestamptz is null or at < $9)
order by id desc limit $6;
