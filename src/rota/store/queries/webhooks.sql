-- Webhooks, and where they may go.

-- name: add_webhook
insert into rota.webhook as w (id, namespace, url, secret, kinds, format) values ($1, $2, $3, $4, $5, $6)
on conflict (namespace, url) do nothing
returning w.id;

-- name: list_webhooks
-- With $2, only that one.
select id, url, kinds, format, paused_at, failures, last_error, delivered_at, created_at
from rota.webhook where namespace = $1 and ($2::uuid is null or id = $2)
order by created_at, id
limit $3 offset $4;

-- name: remove_webhook
delete from rota.webhook where namespace = $1 and id = $2 returning id;

-- name: pause_webhook
update rota.webhook set paused_at = case when $3 then coalesce(paused_at, rota.now()) end,
    failures = case when $3 then failures else 0 end
where namespace = $1 and id = $2 returning id;

-- name: find_delivery
select w.url, w.secret, w.format, w.paused_at is not null as paused, rota.now() as now,
       array(select a.entry from rota.allowed_host as a where a.namespace = w.namespace) as allowed
from rota.webhook as w where w.namespace = $1 and w.id = $2;

-- name: note_webhook_success
update rota.webhook set failures = 0, last_error = null, delivered_at = rota.now() where id = $1;

-- name: note_webhook_failure
-- So many failures in a row pause it.
update rota.webhook set failures = failures + 1, last_error = left($2, 300),
    paused_at = case when $3 or failures + 1 >= $4::int then coalesce(paused_at, rota.now()) else paused_at end
where id = $1
returning paused_at is not null;

-- name: allow_host
insert into rota.allowed_host (namespace, entry) values ($1, $2) on conflict do nothing;

-- name: disallow_host
delete from rota.allowed_host where namespace = $1 and entry = $2 returning entry;

-- name: list_allowed_hosts
select entry from rota.allowed_host where namespace = $1 order by entry;
