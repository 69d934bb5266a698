-- name: identify
select * from rota.identify($1);

-- name: adopt_database
select rota.adopt($1);

-- name: recovery_state
-- Where the database is, where it was, and when a node was seen last.
-- Where no node has run yet, it was nowhere before.
select i.name, i.recovered_at,
       i.system is not null and (i.system is distinct from w.system or i.database is distinct from w.database) as copied,
       i.system is not null and i.timeline is distinct from w.timeline as restored, rota.now() as now,
       (select max(n.heartbeat_at) from rota.node as n) as last_seen
from rota.whereabouts() as w left join rota.installation as i on true;

-- name: may_have_run
-- Jobs that may run once at most, and may have run after the backup was made: they are due, or were running.
select j.id, j.namespace, j.task, rota.queue_of(j.lane) as queue, rota.state_label(j.state) as state, j.due_at
from rota.job as j
where j.guarantee = {guarantee.at_most_once} and j.state in ({state.scheduled}, {state.ready}, {state.running})
  and j.due_at <= rota.now()
order by j.due_at, j.id
limit $1;

-- name: queues_that_may_have_run
-- The same jobs, by queue: all of them are counted, however many are listed.
select j.namespace, rota.queue_of(j.lane) as queue, count(*)::int as jobs
from rota.job as j
where j.guarantee = {guarantee.at_most_once} and j.state in ({state.scheduled}, {state.ready}, {state.running})
  and j.due_at <= rota.now()
group by 1, 2 order by 3 desc, 1, 2;

-- name: will_run_again
-- The jobs that run again, by queue: they are due, or were running.
select j.namespace, rota.queue_of(j.lane) as queue, count(*)::int as jobs
from rota.job as j
where j.guarantee <> {guarantee.at_most_once} and j.state in ({state.scheduled}, {state.ready}, {state.running})
  and j.due_at <= rota.now()
group by 1, 2 order by 3 desc, 1, 2;

-- name: schedule_gaps
-- Schedules that were due since the backup: their catch-up policy decides about the gap.
select s.namespace, s.name, s.cursor as decided_until, coalesce(s.spec -> 'catch_up' ->> 'kind', 'none') as catch_up
from rota.schedule as s
where s.next_due <= rota.now() and s.paused_at is null and s.deleted_at is null
order by 1, 2;
