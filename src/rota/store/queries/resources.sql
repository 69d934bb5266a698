-- Claims under resources and near labels. docs/architecture.md describes the protocol ("Resources").

-- name: claim_bounded
-- As `claim`, for lanes of which only some jobs may be taken: those that have been due for waited[i] seconds (others' nodes are nearer
-- to them), and whose timeout is at most within[i] (null: any). Always from the start of the lane, where the oldest are: what is
-- passed over lies in front of any cursor. Of each lane the first hundred are looked at.
with wanted as (
    select w.lane, w.slots, w.waited, w.within
    from unnest($2::text[], $3::int[], $4::float8[], $5::float8[]) as w(lane, slots, waited, within)
    where not exists (
        select from rota.queue as q
        where q.namespace = split_part(w.lane, '/', 1) and q.name = rota.queue_of(w.lane)
          and (q.paused_at is not null or q.governed))
), picked as (
    select p.at
    from wanted as w
    cross join lateral (
        select p.at from (
            select p.ctid as at, p.rank, p.id, p.due_at, p.timeout from rota.present as p
            where p.lane = w.lane and p.state = {state.ready} and p.task = any($6::text[])
            order by p.rank, p.id
            limit 100
            for update skip locked
        ) as p
        where p.due_at <= rota.now() - make_interval(secs => w.waited)
          and (w.within is null or p.timeout <= w.within)
        order by p.rank, p.id
        limit w.slots
    ) as p
), claimed as (
    update rota.present as p
    set state = {state.running}, node = $1, token = (select nextval('rota.token')), attempt = p.attempt + 1,
        claimed_at = rota.now(), started_at = null, progress = null
    where p.ctid = any(array(select at from picked))
    returning p.id, p.task, p.payload, p.token, p.attempt, p.max_attempts, p.guarantee, p.timeout,
              p.crashes, p.rank, p.priority, p.key, p.headers, p.schedule_id, p.lane, p.run_id, p.step,
              case when p.due_at > rota.now() then extract(epoch from p.due_at)::float8 end as early
), noted as (
    insert into rota.batch (token, lane, node, low, high, low_id, high_id)
    select token, lane, $1, min(rank), max(rank), (array_agg(id order by id))[1], (array_agg(id order by id))[count(*)]
    from claimed group by token, lane
)
select * from claimed order by rank, id;

-- name: lanes_waited
-- Of these entries of sublanes, those with a job that has waited for so long.
select w.lane from unnest($1::text[], $2::float8[]) as w(lane, seconds)
where rota.has_waited(w.lane, w.seconds, $3::text[]);

-- name: reserve
select rota.reserve($1, $2, $3::text[], $4, $5::text[]);

-- name: end_reservation
delete from rota.reservation where node = $1;

-- name: explain_resources
-- The live workers of a lane's queue with the capabilities that it needs, the largest first, and what they run that holds
-- resources.
select n.name, coalesce(n.resources, '{}') as resources, n.labels, coalesce((
        select jsonb_agg(jsonb_build_object('id', h.id, 'lane', h.lane))
        from (
            select p.id, p.lane from rota.batch as b
            cross join lateral (
                select p.id, p.lane from rota.present as p
                where p.lane = b.lane and p.rank >= b.low and p.rank <= b.high and p.token = b.token and p.node = n.id
                  and p.state = {state.running} limit 100) as p
            where b.node = n.id and strpos(b.lane, '=') > 0
            limit 100) as h), '[]') as holders,
       (select r.lane from rota.reservation as r where r.node = n.id) as reserved
from rota.node as n
where n.namespace = $1 and 'worker' = any(n.roles) and n.state in ('live', 'draining') and n.expires_at >= rota.now()
  and (n.queues = '{}' or rota.queue_of($2) = any(n.queues))
  and rota.capabilities_in(rota.needs_of($2)) <@ n.capabilities
order by rota.can_run(rota.needs_of($2), n.capabilities, n.resources) desc, n.started_at
limit 200;

-- name: machines_of_lane
-- The same workers, without what they run: who only submits may read no more.
select n.name, coalesce(n.resources, '{}') as resources, n.labels from rota.node as n
where n.namespace = $1 and 'worker' = any(n.roles) and n.state in ('live', 'draining') and n.expires_at >= rota.now()
  and (n.queues = '{}' or rota.queue_of($2) = any(n.queues))
  and rota.capabilities_in(rota.needs_of($2)) <@ n.capabilities
order by rota.can_run(rota.needs_of($2), n.capabilities, n.resources) desc, n.started_at
limit 200;

-- name: reserved_on
select n.name from rota.reservation as r join rota.node as n on n.id = r.node
where r.namespace = $1 and r.lane in ($2, $2 || '#') and n.state = 'live' and n.expires_at > rota.now();

-- name: list_reservations
select r.lane, r.node, r.since, n.name from rota.reservation as r join rota.node as n on n.id = r.node
where r.namespace = $1 and n.state = 'live' and n.expires_at > rota.now()
order by r.since;

-- name: pass_to_all
select rota.notify(rota.channel($1), $2);
