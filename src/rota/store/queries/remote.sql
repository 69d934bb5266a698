-- Workers over HTTP. Whoever they are is asked of rota.node by (id, namespace): another tenant's is not found.
-- What they write about jobs is guarded by (id, token, node), as for any node.

-- name: register_worker
-- Repeated when its answer was lost: the row is there then.
insert into rota.node (id, namespace, name, host, pid, version, roles, expires_at, queues, capabilities, tasks,
    slots, kind, lot, remote)
values ($1, $2, $3, $4, 0, $5, '{worker}', rota.now() + make_interval(secs => $6), $7, $8, $9, $10,
    md5(concat_ws('|', 'remote', $7::text[]::text, $8::text[]::text, $9::text[]::text)), uuid_hash($1), true)
on conflict (id) do nothing;

-- name: register_remote_tasks
insert into rota.task as t (namespace, name, queue, needs, priority, guarantee, max_attempts, timeout, expected, deadline, retry)
select $1, n, q, coalesce(string_to_array(nullif(needs, ''), '+'), '{}'), p, g, m, tm, null, null, r
from unnest($2::text[], $3::text[], $4::text[], $5::smallint[], $6::smallint[], $7::smallint[], $8::real[], $9::json[])
    as r(n, q, needs, p, g, m, tm, r)
on conflict (namespace, name) do update
set queue = excluded.queue, needs = excluded.needs, priority = excluded.priority, guarantee = excluded.guarantee,
    max_attempts = excluded.max_attempts, timeout = excluded.timeout, retry = excluded.retry, updated_at = rota.now()
where (t.queue, t.needs, t.priority, t.guarantee, t.max_attempts, t.timeout, t.retry::text)
    is distinct from (excluded.queue, excluded.needs, excluded.priority, excluded.guarantee, excluded.max_attempts,
                      excluded.timeout, excluded.retry::text);

-- name: find_worker
select state, name, queues, capabilities, coalesce(resources, '{}') as resources, labels, ended_at, extract(epoch from expires_at - rota.now())::float8 as trusted
from rota.node where id = $1 and namespace = $2 and remote;

-- name: renew_worker
-- The lease begins anew. No row: there is no such worker, or it was declared dead. How many jobs it runs is not
-- what it says but what it holds.
update rota.node set heartbeat_at = rota.now(), expires_at = rota.now() + make_interval(secs => $3),
    state = case when $4 then 'draining' else state end,
    running = (select count(*) from rota.present as p
               where p.id = any(array(select unnest(b.ids) from rota.batch as b where b.node = $1))
                 and p.node = $1 and p.state = {state.running})
where id = $1 and namespace = $2 and remote and state in ('live', 'draining')
returning state, name, queues, capabilities, coalesce(resources, '{}') as resources, labels, ended_at,
    extract(epoch from expires_at - rota.now())::float8 as trusted;

-- name: end_worker
update rota.node set state = 'stopped', ended_at = rota.now(), running = 0, idle_slots = null
where id = $1 and namespace = $2 and remote and state in ('live', 'draining')
returning id;

-- name: next_try
select nextval('rota.token');

-- name: claim_remote
-- The columns of `claim`, in its order, and the time. The rank is made for priority 0, which gives the same due moment.
select c.id, c.task, c.payload, c.token, c.attempt, c.max_attempts, c.guarantee, c.timeout, c.crashes,
       rota.rank(c.due_at, 0) as rank, 0 as priority, c.key, c.headers, c.schedule_id, c.lane, c.run_id, c.step,
       c.early, extract(epoch from rota.now())::float8 as now
from rota.claim_remote($1, $2, $3, $4, $5, $6) as c;

-- name: unlock_listener
select pg_advisory_unlock(rota.listener_lock($1));

-- name: count_suspects
-- Jobs it holds that went down with their process this often, other than those of one token.
select count(*) from rota.present as p
where p.id = any(array(select unnest(b.ids) from rota.batch as b where b.node = $1 and b.token <> $2))
  and p.token <> $2 and p.node = $1 and p.state = {state.running} and p.crashes >= $3;

-- name: cancels_of
-- What the worker was asked to stop and still holds.
select s.job_id, s.token from rota.signal as s
cross join lateral (
    select from rota.present as p where p.id = s.job_id and p.token = s.token and p.node = s.node and p.state = {state.running}
    offset 0
) as p
where s.node = $1;

-- name: moved_on
-- Which of these are the worker's no more: ended, given to another, or given back.
select a.id, a.token from unnest($2::uuid[], $3::bigint[]) as a(id, token)
where not exists (select from rota.present as p
                  where p.id = a.id and p.token = a.token and p.node = $1 and p.state = {state.running} offset 0);

-- name: held_of_worker
-- All that it holds; or, of what it holds since longer than $2 seconds, what it doesn't know of ($3, $4), though it
-- has seen higher tokens ($5; null: this isn't asked).
-- Locked in the order of their ids, as by held_for_finish.
select p.* from (
    select p.id, p.token from rota.batch as b
    cross join lateral (
        select p.id, p.token from rota.present as p
        where p.id = any(b.ids) and p.token = b.token and p.node = $1
          and p.state = {state.running} and ($2::float8 is null or (p.claimed_at < rota.now() - make_interval(secs => $2)
               and ($5::bigint is null or p.token <= $5)
               and not exists (select from unnest($3::uuid[], $4::bigint[]) as k(id, token)
                               where k.id = p.id and k.token = p.token)))
        offset 0
    ) as p
    where b.node = $1
    order by p.id
) as a
cross join lateral (
    select p.id, p.token, p.task, p.attempt, p.max_attempts, p.guarantee, p.crashes,
           p.cancel_at is not null as cancelled, p.started_at is not null as started,
           extract(epoch from rota.now() - coalesce(p.started_at, p.claimed_at))::float8 as ran
    from rota.present as p
    where p.id = a.id and p.token = a.token and p.node = $1 and p.state = {state.running}
    for update
) as p;

-- name: offered_to_worker
-- Of jobs that were offered to a worker, those that it may begin: they are its own, nobody has cancelled them, and
-- its lease is good.
select p.id, p.token, p.task, p.attempt, p.max_attempts, p.guarantee, p.crashes, p.schedule_id,
       p.started_at is not null as started
from unnest($3::uuid[], $4::bigint[]) as a(id, token)
cross join lateral (
    select p.* from rota.present as p
    where p.id = a.id and p.token = a.token and p.node = $1 and p.state = {state.running} and p.cancel_at is null
    offset 0
) as p
where exists (select from rota.node as n where n.id = $1 and n.namespace = $2 and n.remote
              and n.state in ('live', 'draining') and n.expires_at > rota.now());

-- name: held_for_finish
select p.* from (
    select a.id, a.token from unnest($2::uuid[], $3::bigint[]) as a(id, token) order by a.id, a.token
) as a
cross join lateral (
    select p.id, p.token, p.task, p.attempt, p.max_attempts, p.guarantee, p.crashes,
           p.cancel_at is not null as cancelled, (rota.is_encrypted(p.payload) or p.run_id is not null and rota.is_encrypted(p.namespace)) as encrypted,
           extract(epoch from rota.now() - coalesce(p.started_at, p.claimed_at))::float8 as ran
    from rota.present as p
    where p.id = a.id and p.token = a.token and p.node = $1 and p.state = {state.running} and p.namespace = $4
    for update
) as p;

-- name: were_finished
select a.id, a.token from unnest($2::uuid[], $3::bigint[]) as a(id, token)
where rota.was_finished(a.id, a.token, $1);

-- name: close_finished
-- Batches of which nothing is held any more.
delete from rota.batch as b
where b.node = $1 and b.token = any($2::bigint[]) and b.ids is not null
  and not exists (select from rota.present as p
                  where p.id = any(b.ids) and p.token = b.token and p.node = $1 and p.state = {state.running} offset 0);

-- name: encrypted_of
select p.id from rota.present as p where p.id = any($2::uuid[]) and p.node = $1 and (rota.is_encrypted(p.payload) or p.run_id is not null and rota.is_encrypted(p.namespace));

-- name: report_progress
-- $2 are ids in order, as for save_progress.
update rota.present as p set progress = ($4::json[])[width_bucket(p.id, $2::uuid[])], alive_at = rota.now()
where p.id = any($2::uuid[])
  and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 and p.state = {state.running}
returning p.id, p.token;

-- name: log_so_far
-- What was kept of an attempt's lines: the last number, the size, and whether lines were left out. No row: the
-- attempt isn't the worker's.
select p.attempt, coalesce(max(l.seq), 0) as seq, coalesce(sum(octet_length(l.text) + 32), 0)::bigint as size,
       coalesce(bool_or(l.stream = 'mark'), false) as cut, bool_or((rota.is_encrypted(p.payload) or p.run_id is not null and rota.is_encrypted(p.namespace))) as encrypted
from rota.present as p left join rota.job_log as l on l.job_id = p.id and l.token = p.token
where p.id = $2 and p.token = $3 and p.node = $1 and p.state = {state.running}
group by p.attempt;

-- name: retries_of
select name, retry from rota.task where namespace = $1 and name = any($2::text[]) and retry is not null;

-- name: note_alive
-- Signs of life of attempts, as their worker passed them on. $2 are ids in order, as for save_progress.
update rota.present as p set alive_at = rota.now()
where p.id = any($2::uuid[])
  and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 and p.state = {state.running};

-- name: has_overruns
-- $1: seconds beyond its time that are left to the worker to end an attempt by itself. $2: the maximum run time of
-- the installation, if it has one. A worker says for which of its tasks it passes signs of life on.
select exists (
    select from rota.node as n join rota.batch as b on b.node = n.id
    left join rota.queue as q on q.namespace = split_part(b.lane, '/', 1) and q.name = rota.queue_of(b.lane)
    cross join lateral (
        select from rota.present as p
        where p.id = any(b.ids) and p.token = b.token and p.node = n.id and p.state = {state.running}
          and (coalesce(p.started_at, p.claimed_at)
                   < rota.now() - make_interval(secs => coalesce(p.timeout, q.max_run_time, $2::float8) + $1)
               or greatest(p.alive_at, p.started_at, p.claimed_at)
                   < rota.now() - make_interval(secs => rota.heartbeat_timeout(n.heartbeat_timeouts, p.task, p.headers) + $1))
        offset 0
    ) as p
    where n.remote and n.ended_at is null);

-- name: take_overruns
select p.*, q.max_run_time, rota.queue_of(b.lane) as queue,
       (select t.retry from rota.task as t where t.namespace = p.namespace and t.name = p.task) as retry
from rota.node as n join rota.batch as b on b.node = n.id
left join rota.queue as q on q.namespace = split_part(b.lane, '/', 1) and q.name = rota.queue_of(b.lane)
cross join lateral (
    select p.id, p.token, p.node, p.namespace, p.task, p.timeout, p.attempt, p.max_attempts, p.guarantee, p.crashes,
           rota.heartbeat_timeout(n.heartbeat_timeouts, p.task, p.headers) as heartbeat_timeout,
           coalesce(p.started_at, p.claimed_at)
               < rota.now() - make_interval(secs => coalesce(p.timeout, q.max_run_time, $3::float8) + $1) as is_over,
           p.cancel_at is not null as cancelled,
           extract(epoch from rota.now() - coalesce(p.started_at, p.claimed_at))::float8 as ran
    from rota.present as p
    where p.id = any(b.ids) and p.token = b.token and p.node = n.id and p.state = {state.running}
      and (coalesce(p.started_at, p.claimed_at)
               < rota.now() - make_interval(secs => coalesce(p.timeout, q.max_run_time, $3::float8) + $1)
           or greatest(p.alive_at, p.started_at, p.claimed_at)
               < rota.now() - make_interval(secs => rota.heartbeat_timeout(n.heartbeat_timeouts, p.task, p.headers) + $1))
    for update skip locked
) as p
where n.remote and n.ended_at is null
limit $2;
