-- Limits and order by key: claims from sublanes, and what people see and set. See functions/limits.sql and
-- functions/shared_claims.sql.

-- name: claim_shared
-- The columns of `claim`, in its order; as the rank what tells the due time. Committed by itself: the locks that it takes end with it.
select c.id, c.task, c.payload, c.token, c.attempt, c.max_attempts, c.guarantee, c.timeout, c.crashes,
       rota.rank(c.due_at, c.priority) as rank, c.priority,
       c.key, c.headers, c.schedule_id, c.lane, c.run_id, c.step, c.early
from rota.claim_shared($1, $2::text[], $3::int[], $4, $5::text[], $6::text[], $7::int[], $8::float8[], null, null, $9::jsonb) as c;

-- name: shared_pause
select rota.shared_pause($1::text[], $2::text[]);

-- name: settle_allotments
select meter, target from rota.settle_allotments($1, $2, $3, $4::text[], $5::int[], $6::int[]);

-- name: resort
-- Claimed jobs of tasks that have become limited since they were stored: back, into sublanes of their own.
with held as materialized (
    select p.id from rota.present as p
    where p.id = any($2::uuid[])
      and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 and p.state = {state.running}
      and strpos(p.lane, '#') = 0
    for update
), sorted as (
    update rota.present as p
    set state = {state.ready}, node = null, claimed_at = null, started_at = null, attempt = p.attempt - 1,
        share = rota.share_of(null, null, null, null, p.task),
        lane = rota.sublane_of(p.lane, rota.share_of(null, null, null, null, p.task))
    where p.id = any(array(select id from held))
    returning p.namespace, p.lane, p.rank
), hinted as (
    select rota.hint(namespace, lane, min(rank), count(*)) from sorted group by namespace, lane
)
select count(*) + 0 * (select count(*) from hinted) from sorted;

-- name: set_queue_limits
-- Limits count as new: what was claimed without them has to be counted. Blocked sublanes are looked at again, because there
-- may be room now; those that a claim holds are looked at within a second. Without limits the lanes themselves are claimed
-- from as those of any other queue.
with settings as (
    insert into rota.queue as q (namespace, name, concurrency, concurrency_per_key, rate_count, rate_period, rate_burst)
    values ($1, $2, $3, $4, $5, $6, $7)
    on conflict (namespace, name) do update
        set concurrency = excluded.concurrency, concurrency_per_key = excluded.concurrency_per_key,
            rate_count = excluded.rate_count, rate_period = excluded.rate_period, rate_burst = excluded.rate_burst
    returning q.governed
), split as (
    insert into rota.lane (lane, namespace, queue, needs)
    select l.lane || '#', l.namespace, l.queue, l.needs from rota.lane as l, settings as s
    where l.namespace = $1 and l.queue = $2 and s.governed and strpos(l.lane, '#') = 0
      and not exists (select from rota.lane as o where o.lane = l.lane || '#')
    on conflict do nothing
), opened as (
    update rota.sublane as s set state = 1, blocked_on = null, recheck_at = null
    where s.ctid = any(array(
        select s.ctid from rota.sublane as s
        where s.namespace = $1 and s.queue = $2 and s.state = 3 and s.blocked_on is not null for no key update skip locked))
), renewed as (
    update rota.meter as m
    set created_at = rota.now(), recheck_at = case when m.recheck_at is not null then rota.now() end
    where m.ctid = any(array(
        select m.ctid from rota.meter as m
        where m.namespace = $1 and (m.name in ('queue:' || $2, 'queue:' || $2 || '/rate')
                                    or starts_with(m.name, 'queue:' || $2 || '/key:'))
        order by m.name for no key update))
), unused as (
    delete from rota.sublane as s using settings as o
    where not o.governed and s.ctid = any(array(
        select s.ctid from rota.sublane as s
        where s.namespace = $1 and s.queue = $2 and s.share = '' for update skip locked))
), hinted as (
    select rota.hint($1, l.lane, -9223372036854775808, 1) from rota.lane as l where l.namespace = $1 and l.queue = $2
)
select governed from settings where (select count(*) from hinted) >= 0;

-- name: set_queue_policy
-- Acts on the backlog at once. In a fair queue all begin at the same virtual time. What another policy has ordered is moved
-- by the claims that come by.
with settings as (
    insert into rota.queue as q (namespace, name, policy, sorting) values ($1, $2, $3, $3 in ('fifo', 'edf'))
    on conflict (namespace, name) do update set policy = excluded.policy, sorting = q.sorting or excluded.sorting
    returning q.governed
), split as (
    insert into rota.lane (lane, namespace, queue, needs)
    select l.lane || '#', l.namespace, l.queue, l.needs from rota.lane as l, settings as s
    where l.namespace = $1 and l.queue = $2 and s.governed and strpos(l.lane, '#') = 0
      and not exists (select from rota.lane as o where o.lane = l.lane || '#')
    on conflict do nothing
), held as materialized (
    select s.lane from rota.sublane as s where s.namespace = $1 and s.queue = $2 order by s.lane for update
), changed as (
    update rota.sublane as s
    set fair = $3 = 'fair', head = case when $3 = 'fair' then 0 else -9223372036854775808 end, outstanding = 0, charged = 0
    where s.lane = any(array(select lane from held)) and s.fair <> ($3 = 'fair') and (s.share <> '' or $3 = 'fair')
), unused as (
    delete from rota.sublane as s using settings as o
    where s.lane = any(array(select lane from held)) and s.share = '' and $3 <> 'fair'
), hinted as (
    select rota.hint($1, l.lane, -9223372036854775808, 1) from rota.lane as l where l.namespace = $1 and l.queue = $2
)
select governed from settings where (select count(*) from hinted) >= 0;

-- name: set_fair_weight
insert into rota.fair_weight as w (namespace, queue, key, weight) values ($1, $2, $3, $4)
on conflict (namespace, queue, key) do update set weight = excluded.weight;

-- name: drop_fair_weight
delete from rota.fair_weight as w where w.namespace = $1 and w.queue = $2 and w.key = $3;

-- name: fair_weight
select w.weight from rota.fair_weight as w where w.namespace = $1 and w.queue = $2 and w.key = $3;

-- name: list_shares
-- Those that have jobs, or had some a while ago, the least served for their weight first; and all that have a weight.
with used as (
    select s.fair_key as key, sum(s.served) as served, sum(s.outstanding)::int as running, min(s.head) as head,
           bool_or(s.state <> 2 and (s.share <> '' or exists (
               select from rota.present as p where p.lane = s.lane and p.state = {state.ready}))) as waiting
    from rota.sublane as s where s.namespace = $1 and s.queue = $2 and s.fair group by 1 order by min(s.head) limit $3
), weights as (
    select w.key, w.weight from rota.fair_weight as w where w.namespace = $1 and w.queue = $2
)
select coalesce(u.key, w.key) as key, coalesce(w.weight, 1) as weight, coalesce(u.served, 0) as served,
       coalesce(u.running, 0) as running, coalesce(u.waiting, false) as waiting
from used as u full join weights as w on w.key = u.key
order by u.head nulls last, 1;

-- name: sample_shares
-- What the keys of fair queues were served until now, if that has changed since the sample of a minute before: the 100 of a
-- queue that were served most. Old samples go by the way.
with old as (
    delete from rota.share_service where ctid = any(array(
        select ctid from rota.share_service where at < rota.now() - interval '1 day' limit 5000 for update skip locked))
)
insert into rota.share_service as h (namespace, queue, key, at, served)
select q.namespace, q.name, s.key, date_trunc('minute', rota.now()), s.served
from rota.queue as q
cross join lateral (
    select s.fair_key as key, sum(s.served) as served from rota.sublane as s
    where s.namespace = q.namespace and s.queue = q.name and s.fair group by 1 having sum(s.served) > 0
    order by 2 desc limit 100) as s
where q.policy = 'fair' and s.served is distinct from (
    select h.served from rota.share_service as h
    where h.namespace = q.namespace and h.queue = q.name and h.key = s.key and h.at < date_trunc('minute', rota.now())
      and h.at >= rota.now() - interval '2 hours' order by h.at desc limit 1)
on conflict (namespace, queue, at, key) do update set served = excluded.served;

-- name: share_service
select h.key, h.at, h.served from rota.share_service as h
where h.namespace = $1 and h.queue = $2 and h.at >= date_trunc('minute', rota.now()) - interval '120 minutes'
order by h.at, h.key;

-- name: list_limits
-- The limits that are in use: how many jobs run, and how many sublanes wait for a place. Of a rate: the next start.
select m.name, m.most, m.spacing, m.burst,
       m.next_at - (m.burst - 1) * m.spacing * interval '1 second' as next_at, rota.count_held(m.namespace, m.name) + rota.allotted(m.namespace, m.name)
           + rota.count_asks(m.namespace, m.name, true) as running,
       (select count(*) from rota.sublane as s
        where s.namespace = m.namespace and s.blocked_on = m.name and s.state = 3)
           + rota.count_asks(m.namespace, m.name, false) as waiting
from rota.meter as m where m.namespace = $1 and ($2::text is null or m.name = $2)
order by m.name limit $3;

-- name: limit_holders
-- The jobs that run under a limit, the longest first.
select p.id, p.task, n.name as node, coalesce(p.started_at, p.claimed_at) as since
from rota.holders_of($1, $2, $3::int) as i(id)
cross join lateral (
    select p.* from rota.present as p where p.id = i.id and p.state = {state.running} offset 0) as p
left join rota.node as n on n.id = p.node
order by 4, 1 limit $3;

-- name: explain_limits
-- What a ready job waits for: the limits that are full, or the job that goes before it by its order_key.
select m.spacing, m.next_at - (m.burst - 1) * m.spacing * interval '1 second' as next_at, s.state, s.blocked_on, s.recheck_at, g.order_job, o.name, o.most,
       rota.count_held(s.namespace, o.name) + rota.allotted(s.namespace, o.name) as running,
       array(select h.id::text from rota.holders_of(s.namespace, o.name, 5) as h(id)) as holders,
       rota.share_part(s.share, 'o') as order_key,
       g.order_state
from rota.sublane as s
left join lateral (
    -- The jobs of the key may lie in several sublanes; one that has ended holds nobody.
    select e.order_job, rota.state_label(j.state) as order_state
    from rota.sublane as e join rota.job as j on j.id = e.order_job
    where e.namespace = s.namespace and e.queue = s.queue and rota.share_part(e.share, 'o') = rota.share_part(s.share, 'o')
      and e.order_job <> $2 and (j.state <= {state.running} or j.state = {state.failed} and rota.share_part(e.share, 'x') = 'hold')
    limit 1) as g on true
left join lateral rota.meters_of(s.namespace, s.queue, s.share) as o on true
left join rota.meter as m on m.namespace = s.namespace and m.name = o.name collate "C"
where s.lane = (select p.lane from rota.present as p where p.id = $2 and p.namespace = $1);

-- name: forget_sublanes
select rota.forget_sublanes($1);

-- name: take_permit
select granted, wait, lost from rota.take_permit($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: leave_permit
select rota.leave_permit($1, $2, $3, $4, $5);

-- name: forget_permits
delete from rota.permit as r
where r.ctid = any(array(
    select r.ctid from rota.permit as r
    where r.asked_at < rota.now() - interval '1 minute' and not rota.runs_under(r.job_id, r.token) limit $1));

-- name: explain_permits
-- What a running job waits for: the limits that its handler has asked for.
select r.name, m.most, r.asked_at,
       (select count(*) from rota.permit as o
        where o.namespace = r.namespace and o.name = r.name and o.granted_at is not null
          and rota.runs_under(o.job_id, o.token)) as running,
       (select count(*) from rota.permit as o
        where o.namespace = r.namespace and o.name = r.name and o.granted_at is null and o.number < r.number) as before,
       array(select o.job_id::text from rota.permit as o
             where o.namespace = r.namespace and o.name = r.name and o.granted_at is not null
               and rota.runs_under(o.job_id, o.token) order by o.granted_at limit 5) as holders,
       t.next_at - (t.burst - 1) * t.spacing * interval '1 second' as next_at
from rota.permit as r
left join rota.meter as m on m.namespace = r.namespace and m.name = 'limit:' || r.name
left join rota.meter as t on t.namespace = r.namespace and t.name = 'limit:' || r.name || '/rate'
where r.namespace = $1 and r.job_id = $2 and r.granted_at is null and rota.runs_under(r.job_id, r.token);
