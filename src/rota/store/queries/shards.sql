-- Who looks after which shard. `rota.shard` is the truth; a write made as an owner locks its row
-- FOR KEY SHARE under the epoch it was given, see `release` and `due_schedules`.

-- name: see_shards
-- One statement a tick: this node goes on being a scheduler and keeps its shards for another $2 seconds
-- (not when $3 is false: then it only looks), and returns the owners of the rest.
with me as (
    update rota.node set schedules_until = rota.now() + make_interval(secs => $2)
    where id = $1 and $3 and state in ('live', 'draining')
    returning id
), kept as (
    update rota.shard as s set expires_at = rota.now() + make_interval(secs => $2)
    from me where s.owner = me.id
    returning s.shard
)
select array(select n.id from rota.node as n
             where n.state in ('live', 'draining') and n.schedules_until > rota.now() order by n.id) as members,
       array_agg(s.shard order by s.shard) as shards,
       array_agg(s.epoch order by s.shard) as epochs,
       array_agg(case when s.expires_at > rota.now() or k.shard is not null then s.owner end order by s.shard) as owners
from rota.shard as s left join kept as k on k.shard = s.shard;

-- name: take_shards
-- Those of $3 that are nobody's (any more). A row that an owner's write has locked is left for next time.
with free as (
    select s.shard, s.owner, s.expires_at from rota.shard as s
    where s.shard = any($3::smallint[]) and (s.expires_at is null or s.expires_at <= rota.now())
      and exists (select from rota.node as n where n.id = $1 and n.state in ('live', 'draining'))
    order by s.shard
    for update skip locked
), taken as (
    update rota.shard as s
    set owner = $1, epoch = s.epoch + 1, granted = null, expires_at = rota.now() + make_interval(secs => $2)
    from free as f where s.shard = f.shard
    returning s.shard, s.epoch, f.owner as previous, f.expires_at as previous_until
), noted as (
    insert into rota.shard_move (shard, epoch, owner, previous, previous_until)
    select shard, epoch, $1, previous, previous_until from taken
)
select shard, epoch from taken order by shard;

-- name: give_shards
-- Handed over: free from now on. Under the same epoch still, so that what this node has under way as
-- their owner is let through, and delays a takeover until it has committed.
update rota.shard set owner = null, expires_at = rota.now()
where owner = $1 and shard = any($2::smallint[])
returning shard;

-- name: leave_shards
-- A graceful stop: everything is handed over at once.
with me as (
    update rota.node set schedules_until = null where id = $1
)
update rota.shard set owner = null, expires_at = rota.now() where owner = $1
returning shard;

-- name: enforce_shards
-- Grants of another coordinator, with its numbers ($4). The fence is our own epoch, which rises by one with each
-- takeover. The coordinator's number is kept beside it, and decides between two grants while the row holds: the higher
-- one is the newer. Of a row that has expired, or was given up, any number is taken: a coordinator that was restored
-- from a backup, wiped or exchanged counts from below. A row that an owner's write has locked is left for next time.
with asked as (
    select s.shard, s.owner, s.expires_at, g.number
    from rota.shard as s join unnest($3::smallint[], $4::bigint[]) as g(shard, number) on g.shard = s.shard
    where not coalesce(s.owner = $1 and s.granted = g.number, false)
      and (s.granted < g.number or s.expires_at is null or s.expires_at <= rota.now()
           or s.owner = $1)  -- it was wiped, or PostgreSQL stood in for it, and the owner is the same
      and exists (select from rota.node as n where n.id = $1 and n.state in ('live', 'draining'))
    order by s.shard
    for update of s skip locked
), taken as (
    update rota.shard as s
    set owner = $1, epoch = s.epoch + 1, granted = a.number, expires_at = rota.now() + make_interval(secs => $2)
    from asked as a where s.shard = a.shard
    returning s.shard, s.epoch, a.owner as previous, a.expires_at as previous_until
), noted as (
    insert into rota.shard_move (shard, epoch, owner, previous, previous_until)
    select shard, epoch, $1, previous, least(previous_until, rota.now()) from taken
), kept as (
    update rota.shard as s set expires_at = rota.now() + make_interval(secs => $2)
    from unnest($3::smallint[], $4::bigint[]) as g(shard, number)
    where s.shard = g.shard and s.owner = $1 and s.granted = g.number
      and exists (select from rota.node as n where n.id = $1 and n.state in ('live', 'draining'))
    returning s.shard, s.epoch
)
select shard, epoch from taken union all select shard, epoch from kept order by shard;

-- name: note_coordinator
-- Which coordinator a scheduler uses, and why it doesn't answer (null: it does).
update rota.node set coordinator = $2, coordinator_fault = $3 where id = $1;

-- name: installation_id
select id from rota.installation;

-- name: shard_map
-- `owner` and `node`: null when the shard has no owner now.
select s.shard, s.epoch, case when s.expires_at > rota.now() then s.owner end as owner, n.name as node
from rota.shard as s left join rota.node as n on n.id = s.owner and s.expires_at > rota.now()
order by s.shard;

-- name: recent_shard_moves
-- Takeovers of the last $1 seconds, those of one moment together. `gap`: for how long the shards had no owner.
select m.at, m.owner, n.name as node, m.previous, p.name as previous_node, count(*) as shards,
       extract(epoch from max(m.at - m.previous_until))::float8 as gap
from rota.shard_move as m
left join rota.node as n on n.id = m.owner
left join rota.node as p on p.id = m.previous
where m.at > rota.now() - make_interval(secs => $1)
group by m.at, m.owner, n.name, m.previous, p.name
order by m.at desc
limit 1000;

-- name: forget_shard_moves
delete from rota.shard_move where at < rota.now() - interval '7 days';
