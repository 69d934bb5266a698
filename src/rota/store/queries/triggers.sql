-- name: declare_trigger
-- For the node $5. While another node reads, the trigger stays as that one's code says. A source that it never had
-- begins anew; one that it had before goes on where it was left.
insert into rota.trigger as t (namespace, name, task, source) values ($1, $2, $3, $4)
on conflict (namespace, name) do update
set task = excluded.task, source = excluded.source,
    position = case when t.source = excluded.source then t.position else t.kept ->> excluded.source end,
    started = case when t.source = excluded.source then t.started else t.kept ? excluded.source end,
    kept = case when t.source = excluded.source then t.kept
                when t.started then t.kept - excluded.source || jsonb_build_object(t.source, t.position)
                else t.kept - excluded.source end,
    lag = case when t.source = excluded.source then t.lag end,
    fault = case when t.source = excluded.source then t.fault end
where (t.task, t.source) is distinct from (excluded.task, excluded.source)
  and (t.reader is null or t.reader = $5 or t.reads_until <= rota.now());

-- name: read_trigger
-- This node reads from the source $5 for another $4 seconds, unless another one does: then no row comes back.
update rota.trigger set reader = $3, reads_until = rota.now() + make_interval(secs => $4)
where namespace = $1 and name = $2 and source = $5
  and (reader is null or reader = $3 or reads_until <= rota.now())
returning position, started, paused_at is not null as paused, fault;

-- name: source_of_trigger
select source from rota.trigger where namespace = $1 and name = $2;

-- name: leave_trigger
update rota.trigger set reader = null where namespace = $1 and name = $2 and reader = $3;

-- name: start_trigger
-- Where to begin, decided once.
update rota.trigger set position = $3, started = true
where namespace = $1 and name = $2 and source = $4 and not started returning name;

-- name: advance_trigger
-- The first statement of the transaction that stores the jobs: its lock keeps others from doing the same. No row back:
-- somebody else was faster, or it was paused, rewound or given another source ($8) meanwhile, and these messages are not
-- ours to store.
update rota.trigger
set position = $4, jobs = jobs + $5, skipped = skipped + $6, dead = dead + $7, moved_at = rota.now(), fault = null
where namespace = $1 and name = $2 and source = $8 and position is not distinct from $3 and started
  and paused_at is null
returning name;

-- name: bury_messages
-- Jobs of this transaction that can never run: they go to the dead letters.
with gone as (
    delete from rota.present as p where p.id = any($1::uuid[]) and p.state = {state.ready}
    returning p.*, width_bucket(p.id, $1::uuid[]) as place
)
{{insert rota.dead, ended: state = {state.failed}; error = ($2::json[])[place]}}
from gone
returning id;

-- name: note_trigger
update rota.trigger set lag = $3, fault = $4
where namespace = $1 and name = $2 and (lag, fault) is distinct from ($3::bigint, $4::text);

-- name: list_triggers
select name, task, source, position, paused_at, jobs, skipped, dead, lag, fault, moved_at, created_at,
       case when t.reads_until > rota.now() then (select n.name from rota.node as n where n.id = t.reader) end as reader
from rota.trigger as t where t.namespace = $1 and ($2::text is null or t.name = $2)
order by name;

-- name: pause_trigger
update rota.trigger set paused_at = case when $3 then coalesce(paused_at, rota.now()) end
where namespace = $1 and name = $2 returning name;

-- name: lock_trigger
select name from rota.trigger where namespace = $1 and name = $2 for update;

-- name: rewind_trigger
-- $3: the position to go on from; null: the beginning of the stream.
update rota.trigger set position = $3, started = true, fault = null
where namespace = $1 and name = $2 returning name;

-- name: remove_trigger
delete from rota.trigger where namespace = $1 and name = $2 returning name;
