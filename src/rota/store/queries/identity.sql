-- Tokens, users, sessions and log-ins.

-- name: row_security_enabled
select exists (select from pg_policies as p join pg_class as c on c.oid = 'rota.future'::regclass
               where p.schemaname = c.relnamespace::regnamespace::text and p.tablename = 'future' and p.policyname = 'tenant')
    and exists (select from pg_roles where rolname = 'rota_tenant'
                and pg_has_role(current_user, oid, 'member'));

-- name: create_token
insert into rota.api_token (id, prefix, hash, name, namespace, role, scopes, created_by, expires_at, tasks, made_with,
    submits_per_second, queues)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9::timestamptz, $10, $11::uuid, $12, $13)
returning id, prefix, name, namespace, role, scopes, tasks, queues, created_at, created_by, expires_at, revoked_at, last_used_at,
    submits_per_second;

-- name: find_token
select id, prefix, name, namespace, role, scopes, tasks, queues, created_at, created_by, expires_at, revoked_at, last_used_at, submits_per_second,
       case when isfinite(expires_at) then extract(epoch from expires_at - rota.now())::float8 end as seconds_left,
       (select json_agg(json_build_object('name', r.name, 'permissions', r.permissions, 'namespaces', r.namespaces,
            'tasks', r.tasks, 'queues', r.queues)) from rota.access_role as r
        where r.name = any (string_to_array(role, ',')))::text as roles
from rota.api_token
where hash = $1 and revoked_at is null and (expires_at is null or expires_at > rota.now());

-- name: list_tokens
select id, prefix, name, namespace, role, scopes, tasks, queues, created_at, created_by, expires_at, revoked_at, last_used_at,
       submits_per_second
from rota.api_token
where ($1::text is null or namespace = $1) and ($2::boolean or revoked_at is null)
  and ($3::timestamptz is null or (created_at, id) < ($3, $4::uuid))
order by created_at desc, id desc
limit $5;

-- name: get_token
select id, prefix, name, namespace, role, scopes, tasks, queues, created_at, created_by, expires_at, revoked_at, last_used_at,
       submits_per_second
from rota.api_token where prefix = $1 and ($2::text is null or namespace = $2);

-- name: revoke_token
-- With $3, also those that were made with it, and with those.
with recursive found as (
    select t.id from rota.api_token as t where t.prefix = $1 and ($2::text is null or t.namespace = $2)
    union
    select t.id from rota.api_token as t join found as f on t.made_with = f.id where $3::boolean
)
update rota.api_token as t set revoked_at = coalesce(t.revoked_at, rota.now())
from found as f where t.id = f.id
returning t.id, t.prefix, t.name, t.namespace, t.role, t.scopes, t.tasks, t.queues, t.created_at, t.created_by, t.expires_at, t.revoked_at, t.last_used_at,
    t.submits_per_second;

-- name: admit_token
select rota.admit_token($1, $2);

-- name: mark_tokens_used
update rota.api_token as t set last_used_at = rota.now() - make_interval(secs => u.ago)
from unnest($1::uuid[], $2::float8[]) as u(id, ago) where t.id = u.id;

-- name: put_user
-- A new password ends what was begun with the old one: sessions, and unused links.
with put as (
    insert into rota.user_account as p (id, name, password_hash) values ($1, $2, $3)
    on conflict (lower(name)) do update
    set password_hash = coalesce(excluded.password_hash, p.password_hash), disabled_at = null
    returning p.id
), ended as (
    update rota.session as s set ended_at = rota.now() from put
    where $3::text is not null and s.user_id = put.id and s.ended_at is null
), used as (
    update rota.login_link as l set used_at = rota.now() from put
    where $3::text is not null and l.user_id = put.id and l.used_at is null
)
select id from put;

-- name: put_membership
insert into rota.membership (user_id, namespace, role) values ($1, $2, $3)
on conflict (user_id, namespace) do update set role = excluded.role;

-- name: list_users
select p.name, p.created_at, p.disabled_at, p.password_hash is not null as has_password, p.issuer,
       coalesce((select json_object_agg(m.namespace, m.role order by m.namespace)
                 from rota.membership as m where m.user_id = p.id), '{}')::text as memberships
from rota.user_account as p
where $1::text is null or exists (select from rota.membership as m where m.user_id = p.id and m.namespace in ($1, '*'))
order by lower(p.name)
limit $2 offset $3;

-- name: remove_user
delete from rota.user_account where lower(name) = lower($1) returning id;

-- name: find_user
select id, name, password_hash from rota.user_account where lower(name) = lower($1) and disabled_at is null;

-- name: find_user_of_issuer
-- By the provider's own id of a user; the first time, by a name that the provider vouches for.
with known as (
    select id, name from rota.user_account where issuer = $1 and subject = $2 and disabled_at is null
), bound as (
    update rota.user_account set issuer = $1, subject = $2
    where lower(name) = lower($3) and issuer is null and disabled_at is null and not exists (select from known)
    returning id, name
)
select id, name from known union all select id, name from bound;

-- name: add_user_of_issuer
-- Nothing if the name or the provider's id is taken.
insert into rota.user_account as p (id, name, issuer, subject) values ($1, $2, $3, $4)
on conflict do nothing returning p.id;

-- name: list_memberships
select m.namespace, m.role from rota.membership as m where m.user_id = $1 order by m.namespace;

-- name: set_memberships
-- Exactly these.
with gone as (delete from rota.membership as m where m.user_id = $1 and m.namespace <> all($2::text[]))
insert into rota.membership as m (user_id, namespace, role)
select $1, each.namespace, each.role from unnest($2::text[], $3::text[]) as each (namespace, role)
on conflict (user_id, namespace) do update set role = excluded.role;

-- name: list_roles
select r.name, r.permissions, r.namespaces, r.tasks, r.queues, r.description, r.created_at, r.updated_at
from rota.access_role as r order by r.name;

-- name: lock_roles
-- Whoever gives a role holds this until the commit: so that none is deleted which is being given.
select r.name, r.permissions, r.namespaces, r.tasks, r.queues, r.description, r.created_at, r.updated_at
from rota.access_role as r where r.name = any ($1::text[]) order by r.name for share;

-- name: lock_role
select r.name, r.permissions, r.namespaces, r.tasks, r.queues, r.description, r.created_at, r.updated_at
from rota.access_role as r where r.name = $1 for update;

-- name: put_role
insert into rota.access_role as r (name, permissions, namespaces, tasks, queues, description)
values ($1, $2, $3, $4, $5, $6)
on conflict (name) do update set permissions = excluded.permissions, namespaces = excluded.namespaces,
    tasks = excluded.tasks, queues = excluded.queues, description = excluded.description, updated_at = rota.now()
returning r.name, r.permissions, r.namespaces, r.tasks, r.queues, r.description, r.created_at, r.updated_at;

-- name: delete_role
delete from rota.access_role as r where r.name = $1;

-- name: uses_of_role
select 'user ' || p.name from rota.membership as m join rota.user_account as p on p.id = m.user_id
where $1 = any (string_to_array(m.role, ','))
union all
select 'token ' || t.prefix from rota.api_token as t
where $1 = any (string_to_array(t.role, ',')) and t.revoked_at is null and (t.expires_at is null or t.expires_at > rota.now())
union all
select 'session ' || s.id from rota.session as s
where $1 = any (string_to_array(s.role, ',')) and s.ended_at is null and s.expires_at > rota.now()
union all
select 'a login link' from rota.login_link as l
where $1 = any (string_to_array(l.role, ',')) and l.used_at is null and l.expires_at > rota.now()
order by 1;

-- name: create_link
insert into rota.login_link (hash, user_id, namespace, role, expires_at)
values ($1, $2, $3, $4, rota.now() + make_interval(secs => $5));

-- name: use_link
-- The update of the row makes it a single use: of two concurrent uses, one finds the link used.
with used as (
    update rota.login_link set used_at = rota.now()
    where hash = $1 and used_at is null and expires_at > rota.now()
    returning user_id, namespace, role
)
insert into rota.session (hash, id, user_id, namespace, role, expires_at)
select $2, $3, user_id, namespace, role, rota.now() + make_interval(secs => $4) from used
returning id;

-- name: create_session
insert into rota.session (hash, id, user_id, expires_at)
values ($1, $2, $3, rota.now() + make_interval(secs => $4));

-- name: find_session
select s.id, coalesce(p.name, 'link') as name, s.expires_at,
       extract(epoch from s.expires_at - rota.now())::float8 as seconds_left,
       coalesce(h.memberships, '{}')::text as memberships,
       (select json_agg(json_build_object('name', r.name, 'permissions', r.permissions, 'namespaces', r.namespaces,
            'tasks', r.tasks, 'queues', r.queues)) from rota.access_role as r
        where r.name = any (string_to_array(h.names, ',')))::text as roles
from rota.session as s
left join rota.user_account as p on p.id = s.user_id
cross join lateral (
    select json_object_agg(m.namespace, m.role) as memberships, string_agg(m.role, ',') as names
    from (select s.namespace, s.role where s.user_id is null
          union all select m.namespace, m.role from rota.membership as m where m.user_id = s.user_id) as m
) as h
where s.hash = $1 and s.ended_at is null and s.expires_at > rota.now() and p.disabled_at is null;

-- name: end_session
update rota.session set ended_at = rota.now() where hash = $1 and ended_at is null returning id;

-- name: list_sessions
-- Valid sessions. $1: of links of this namespace, and of users with a role in it; null: all.
select s.id, coalesce(p.name, 'link') as name, s.user_id is null as by_link, s.created_at, s.expires_at,
       case when s.user_id is null then json_build_object(s.namespace, s.role)
            else coalesce((select json_object_agg(m.namespace, m.role) from rota.membership as m
                           where m.user_id = s.user_id and ($1::text is null or m.namespace in ($1, '*'))),
                          '{}') end::text as memberships
from rota.session as s left join rota.user_account as p on p.id = s.user_id
where s.ended_at is null and s.expires_at > rota.now() and p.disabled_at is null
  and ($1::text is null or s.namespace = $1 or exists (
       select from rota.membership as m where m.user_id = s.user_id and m.namespace in ($1, '*')))
  and ($2::timestamptz is null or (s.created_at, s.id) < ($2, $3::uuid))
order by s.created_at desc, s.id desc
limit $4;

-- name: end_sessions
-- By their public ids. $2 as in list_sessions, but of users only those without a role elsewhere.
update rota.session as s set ended_at = rota.now()
where s.id = any($1::uuid[]) and s.ended_at is null
  and ($2::text is null or s.namespace = $2 or (s.user_id is not null and not exists (
       select from rota.membership as m where m.user_id = s.user_id and m.namespace <> $2)))
returning s.id;

-- name: is_known_place
select exists (select from rota.login_place where place = $1);

-- name: remember_place
insert into rota.login_place (place, seen_at) values ($1, rota.now())
on conflict (place) do update set seen_at = excluded.seen_at;

-- name: count_attempt
-- Counted before the password is looked at: any number of guesses at once are still counted one by one.
-- Seconds to wait, or 0. From the `free`th failure on each one doubles the wait, up to a quarter of an hour.
insert into rota.login_failure as f (subject, failures, failed_at, blocked_until)
values ($1, 1, rota.now(), '-infinity')
on conflict (subject) do update set
    wait = case when f.blocked_until > rota.now() then extract(epoch from f.blocked_until - rota.now()) else 0 end,
    failures = case when f.blocked_until > rota.now() then f.failures
                    when f.failed_at < rota.now() - interval '1 hour' then 1 else f.failures + 1 end,
    failed_at = case when f.blocked_until > rota.now() then f.failed_at else rota.now() end,
    blocked_until = case
        when f.blocked_until > rota.now() or f.failed_at < rota.now() - interval '1 hour' or f.failures + 1 < $2
            then f.blocked_until
        else rota.now() + least(interval '15 minutes', interval '30 seconds' * 2 ^ least(f.failures + 1 - $2, 20)) end
returning wait;

-- name: forget_failures
delete from rota.login_failure where subject = any($1::bytea[]);

-- name: forgive_attempt
-- It was none: taken back, with the block that it may have brought.
update rota.login_failure set failures = greatest(failures - 1, 0),
    blocked_until = case when failures - 1 < $2 then '-infinity' else blocked_until end
where subject = $1;

-- name: begin_oidc
insert into rota.oidc_login (state, nonce, verifier, target, expires_at)
values ($1, $2, $3, $4, rota.now() + interval '10 minutes');

-- name: end_oidc
delete from rota.oidc_login where state = $1 and expires_at > rota.now() returning nonce, verifier, target;

-- name: sweep_identity
with links as (delete from rota.login_link where expires_at < rota.now() - interval '1 day'),
     sessions as (delete from rota.session where least(expires_at, ended_at) < rota.now() - interval '1 day'),
     failures as (delete from rota.login_failure where greatest(failed_at, blocked_until) < rota.now() - interval '1 day'),
     places as (delete from rota.login_place where seen_at < rota.now() - interval '90 days'),
     logins as (delete from rota.oidc_login where expires_at < rota.now())
select rota.trim_audit(rota.now() - make_interval(days => $1));
