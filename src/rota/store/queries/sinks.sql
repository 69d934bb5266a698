-- Events that go to topics of brokers: see rota.worker.outbox.

-- name: declare_sink
-- For the node $4. While another node sends, the sink stays as that one's code says. A target that it never had begins
-- anew; one that it had before goes on where it was left.
insert into rota.sink as s (namespace, name, target) values ($1, $2, $3)
on conflict (namespace, name) do update
set target = excluded.target, position = s.kept ->> excluded.target, fault = null,
    kept = case when s.position is null then s.kept - excluded.target
                else s.kept - excluded.target || jsonb_build_object(s.target, s.position) end
where s.target is distinct from excluded.target
  and (s.sender is null or s.sender = $4 or s.sends_until <= rota.now());

-- name: take_sink
-- This node sends to the target $5 for another $4 seconds, unless another one does: then no row comes back. From its commit
-- on, what it asks for ($6 of $7 and $8) is recorded.
update rota.sink set sender = $3, sends_until = rota.now() + make_interval(secs => $4), wants = $6::text[],
    of_queues = $7::text[], of_tasks = $8::text[]
where namespace = $1 and name = $2 and target = $5 and (sender is null or sender = $3 or sends_until <= rota.now())
returning position, paused_at is not null as paused;

-- name: target_of_sink
select target from rota.sink where namespace = $1 and name = $2;

-- name: leave_sink
update rota.sink set sender = null where namespace = $1 and name = $2 and sender = $3;

-- name: start_sink
-- Where to begin, decided once.
update rota.sink set position = $3
where namespace = $1 and name = $2 and target = $4 and position is null returning name;

-- name: advance_sink
-- After the broker's confirmation. No row back: another node sends by now, or a person has rewound the sink.
update rota.sink
set position = $5, sent = sent + $6, skipped = skipped + $7, moved_at = rota.now(), fault = null
where namespace = $1 and name = $2 and target = $8 and sender = $3 and position = $4
returning name;

-- name: note_sink
update rota.sink set fault = $3 where namespace = $1 and name = $2 and fault is distinct from $3::text;

-- name: queues_of_jobs
select j.id, rota.queue_of(j.lane) as queue from rota.job as j where j.id = any($1::uuid[]);

-- name: list_sinks
select name, target, position, paused_at, sent, skipped, fault, moved_at, created_at,
       case when s.sends_until > rota.now() then (select n.name from rota.node as n where n.id = s.sender) end as sender
from rota.sink as s where s.namespace = $1 and ($2::text is null or s.name = $2)
order by name;

-- name: pause_sink
update rota.sink set paused_at = case when $3 then coalesce(paused_at, rota.now()) end
where namespace = $1 and name = $2 returning name;

-- name: rewind_sink
update rota.sink set position = $3, fault = null where namespace = $1 and name = $2 returning name;

-- name: remove_sink
delete from rota.sink where namespace = $1 and name = $2 returning name;
