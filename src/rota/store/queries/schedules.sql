-- Schedules and the ledger of their occurrences.

-- name: schedule_work
-- Whether there is anything to do for these shards: schedules that are due, a pause that is over, jobs that wait for
-- their schedule's turn; and which of the shards are another's by now. One statement without locks, so that a
-- scheduler with nothing to do costs one a tick. $3 and $4 are the versions that this scheduler has set aside.
select exists (
        select from unnest($1::smallint[], $2::bigint[]) as a(shard, epoch) cross join lateral (
            select from rota.schedule as s where s.shard = a.shard
              and (s.id, s.version) not in (select * from unnest($3::uuid[], $4::int[])) and s.next_due <= rota.now()
                + case when a.epoch is null then interval '0' else make_interval(secs =>
                    (select value from rota.setting where name = 'horizon_ms') / 1000.0) end
            limit 1) as s) as due,
    exists (select from rota.schedule as s where s.paused_until <= rota.now()) as resume,
    exists (select from rota.future as f where f.state = {state.waiting} and f.schedule_id is not null) as waiting,
    array(select a.shard from unnest($1::smallint[], $2::bigint[]) as a(shard, epoch)
          where a.epoch is not null and not exists (
              select from rota.shard as s where s.shard = a.shard and s.epoch = a.epoch)) as lost;

-- name: due_schedules
-- Locked until the firing transaction ends; what another scheduler is firing is passed over. Shards come with the
-- epoch under which this scheduler owns them, and are locked for that; without one it is a sweep: see `release`.
-- $4 and $5 are the versions that this scheduler has set aside: others may be able to plan them.
with asked as materialized (
    select a.shard, a.epoch, case when a.epoch is null then 0
        else (select value from rota.setting where name = 'horizon_ms') end as horizon_ms
    from unnest($1::smallint[], $2::bigint[]) as a(shard, epoch)
), ripe as materialized (
    select a.* from asked as a cross join lateral (
        select from rota.schedule as s where s.shard = a.shard
          and (s.id, s.version) not in (select * from unnest($4::uuid[], $5::int[]))
          and s.next_due <= rota.now() + make_interval(secs => a.horizon_ms / 1000.0) limit 1) as s
), held as materialized (
    select s.shard from ripe as r join rota.shard as s on s.shard = r.shard and s.epoch = r.epoch
    for key share of s
)
select s.id, s.name, s.namespace, s.task, s.version, s.undecided_version, s.cursor, s.paused_at, s.spec, rota.now() as now,
       r.horizon_ms, r.shard, r.epoch,
       (select max(o.due_at) from rota.occurrence as o where o.schedule_id = s.id and o.due_at <= s.cursor) as previous
from ripe as r
cross join lateral (
    select s.* from rota.schedule as s
    where s.shard = r.shard and s.next_due <= rota.now() + make_interval(secs => r.horizon_ms / 1000.0)
      and (s.id, s.version) not in (select * from unnest($4::uuid[], $5::int[]))
    order by s.next_due
    limit $3
    for update skip locked
) as s
where r.epoch is null or r.shard in (select shard from held)
limit $3;

-- name: fire
-- One statement: the ledger's rows, and the jobs of those that are new in it. Those are found by a hashed subquery: as a join it
-- would be a nested loop here, whose cost grows with the square of their number; `coalesce` keeps it from becoming one.
with horizon as materialized (
    select rota.now() + make_interval(secs => value / 1000.0) as at from rota.setting where name = 'horizon_ms'
), entry as (
    select * from unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::smallint[], $5::text[],
                         $6::boolean[], $7::uuid[], $8::json[])
        as e(schedule_id, due_at, run_at, state, reason, caught_up, job_id, headers)
), noted as (
    insert into rota.occurrence as o (schedule_id, due_at, run_at, state, reason, caught_up, job_id, version)
    select e.schedule_id, e.due_at, e.run_at, e.state, e.reason, e.caught_up, e.job_id, s.version
    from entry as e join rota.schedule as s on s.id = e.schedule_id
    on conflict (schedule_id, due_at) do nothing
    returning o.job_id
), job as (
    select e.job_id, e.run_at, rota.merged(s.headers, e.headers) as headers, s.id as schedule_id, s.timeout, s.priority, s.guarantee, s.max_attempts,
           s.namespace, rota.sublane_of(s.lane, k.share) as lane, s.task, s.payload, k.share
    from entry as e
    join rota.schedule as s on s.id = e.schedule_id
    left join lateral (
        select rota.share_of(null, null, null, null, t.name) as share from rota.task as t
        where t.namespace = s.namespace and t.name = s.task and t.limited offset 0) as k on true
    where e.job_id is not null and coalesce(e.job_id in (select n.job_id from noted as n), false)
), readied as (
    {{insert rota.present as p, submitted: id = job_id; due_at = run_at; run_id = null; key = null; step = null}}
    from job where run_at <= (select at from horizon)
    returning p.namespace, p.lane, p.rank
), postponed as (
    {{insert rota.future as f, submitted: id = job_id; due_at = run_at; run_id = null; key = null; step = null}}
    from job where run_at > (select at from horizon)
    returning f.namespace, f.lane
), hinted as (
    select rota.hint(namespace, lane, min(rank), count(*)) from readied group by namespace, lane
), flowed as (
    select rota.add_flow_of_lane(namespace, lane, count(*))
    from (select namespace, lane from readied union all select namespace, lane from postponed) as e group by namespace, lane
)
select (select count(*) from noted) as noted, (select count(*) from readied) + (select count(*) from postponed) as fired,
       0 * ((select count(*) from hinted) + (select count(*) from flowed)) as hinted;

-- name: advance_schedules
update rota.schedule as s set cursor = a.cursor, next_due = a.next_due, fired = s.fired + a.fired, undecided_version = a.undecided_version
from unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[], $4::bigint[], $5::int[])
    as a(id, cursor, next_due, fired, undecided_version)
where s.id = a.id;

-- name: note_problems
-- Schedules that this node ($1) can't plan. The first node to find out leaves an event.
with problem as (
    select * from unnest($2::uuid[], $3::int[], $4::text[]) as t(schedule_id, version, reason)
), known as materialized (
    select t.schedule_id from problem as t
    where exists (select from rota.schedule_problem as o where o.schedule_id = t.schedule_id and o.version = t.version)
), noted as (
    insert into rota.schedule_problem as o (schedule_id, node, version, reason)
    select schedule_id, $1, version, reason from problem
    on conflict (schedule_id, node) do update set version = excluded.version, reason = excluded.reason,
        seen_at = rota.now(), since = case when o.version = excluded.version then o.since else rota.now() end
), reported as (
    insert into rota.event (namespace, kind, task, detail)
    select s.namespace, 'set_aside', s.task, json_build_object(
        'schedule', s.name, 'version', t.version, 'node', $1, 'reason', t.reason)
    from problem as t join rota.schedule as s on s.id = t.schedule_id
    where t.schedule_id not in (select schedule_id from known)
)
select count(*) from problem;

-- name: clear_problems
-- Of those that this node can plan again, and of nodes that have not looked for a day.
delete from rota.schedule_problem where node = $1 and schedule_id = any($2::uuid[]) or seen_at < rota.now() - interval '1 day';

-- name: resume_due
update rota.schedule set paused_at = null, paused_until = null, next_due = rota.now()
where paused_until <= rota.now() returning name;

-- name: promote_waiting
-- The oldest of those that wait for their schedule's turn, as many as there are places free. Schedules that wait are
-- found one by one through the index, however many jobs each has waiting: $3 of them after the id $2. `until`: the
-- last of these, if there are more. No more is counted than there are places.
with recursive waiting as (
    (select f.schedule_id as id, 1 as place from rota.future as f where f.state = {state.waiting} and f.schedule_id > $2
     order by f.schedule_id limit 1)
    union all
    select (select f.schedule_id from rota.future as f where f.state = {state.waiting} and f.schedule_id > w.id
            order by f.schedule_id limit 1), w.place + 1
    from waiting as w where w.id is not null and w.place < $3
), free as materialized (
    select s.id, p.places
    from waiting as w
    join rota.schedule as s on s.id = w.id
    cross join lateral (select coalesce(s.max_running, 1) - (
        select count(*) from rota.gate as g where g.schedule_id = s.id
          and (exists (select from rota.present as p where p.id = g.job_id)
               or exists (select from rota.future as w where w.id = g.job_id and w.state = {state.scheduled})
               or exists (select from rota.run as r where r.id = g.job_id and r.state = {run.running}))
        ) - (
        -- Already let through, and not yet started. Newer ones don't count, or one would wait for as long as there are any.
        select count(*) from (
            select from rota.present as p where p.schedule_id = s.id and p.state = {state.ready}
              and not exists (select from rota.gate as g where g.job_id = p.id)
              and p.due_at <= (select f.due_at from rota.future as f where f.schedule_id = s.id and f.state = {state.waiting}
                               order by f.due_at limit 1)
            limit coalesce(s.max_running, 1)) as let_through) as places) as p
    where p.places > 0
    limit $1
    for update of s skip locked
), chosen as (
    select f.id from free as s cross join lateral (
        select f.id from rota.future as f where f.schedule_id = s.id and f.state = {state.waiting}
        order by f.due_at limit least(s.places, $1)) as f
), moved as (
    delete from rota.future as f using chosen as c where f.id = c.id returning f.*
), readied as (
    {{insert rota.present, moved}}
    from moved
    returning namespace, lane, rank
), hinted as (
    select rota.hint(namespace, lane, min(rank), count(*)) from readied group by namespace, lane
)
select (select count(*) from readied) + 0 * (select count(*) from hinted) as promoted,
       (select w.id from waiting as w where w.place = $3) as until;

-- name: begin_scheduled
select job_id, verdict from rota.begin_scheduled($1, $2, $3);

-- name: lock_schedule
select s.id, s.name, s.namespace, s.task, s.version, s.undecided_version, s.cursor, s.paused_at, s.spec, s.source, s.app,
       rota.now() as now, 0 as horizon_ms,
       (select max(o.due_at) from rota.occurrence as o where o.schedule_id = s.id and o.due_at <= s.cursor) as previous
from rota.schedule as s where s.namespace = $1 and s.name = $2 for update;

-- name: insert_schedule
insert into rota.schedule (id, {{columns schedule}}, namespace, name, shard)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
    rota.shard_of($1, (select value from rota.setting where name = 'shards'))
on conflict (namespace, name) do nothing
returning id;

-- name: update_schedule
update rota.schedule set version = version + 1, updated_at = rota.now(),
    paused_until = case when $4::timestamptz is not null then paused_until end,
    ({{columns schedule}}) = row($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
where id = $1
returning version;

-- name: note_version
insert into rota.schedule_version (schedule_id, version, valid_from, spec, unsettled_from, unsettled)
values ($1, $2, $3, $4, $5, $6);

-- name: get_schedule
select s.id, s.namespace, s.name, s.version, s.task, s.spec, s.next_due, s.cursor, s.paused_at, s.paused_until, s.fired,
       s.source, s.app, s.created_at, s.updated_at, t.reason as problem, t.node as problem_node, t.since as problem_since
from rota.schedule as s
left join lateral (
    select t.node, t.since, t.reason from rota.schedule_problem as t
    where t.schedule_id = s.id and t.version = s.version and t.seen_at > rota.now() - interval '5 minutes'
    order by t.since limit 1) as t on true
where s.namespace = $1 and s.name = $2 and s.source not in ('backfill', 'deleted');

-- name: set_paused
update rota.schedule set paused_at = coalesce(paused_at, rota.now()), paused_until = $3, updated_at = rota.now()
where namespace = $1 and name = $2 returning id;

-- name: set_resumed
update rota.schedule set paused_at = null, paused_until = null, next_due = least(next_due, rota.now()), updated_at = rota.now()
where namespace = $1 and name = $2 returning id;

-- name: lock_declarations
select pg_advisory_xact_lock(hashtextextended('rota.declaration ' || $1::text || ' ' || $2::text, 0));

-- name: declarations
select digest, release, declared_at from rota.declaration where namespace = $1 and app = $2 order by declared_at desc;

-- name: note_declaration
insert into rota.declaration (namespace, app, digest, release, declared_at)
select $1::text, $2::text, $3::text, $4::text, greatest(rota.now(), (
    select max(d.declared_at) + interval '1 microsecond' from rota.declaration as d where d.namespace = $1 and d.app = $2))
on conflict (namespace, app, digest) do update set release = excluded.release, declared_at = excluded.declared_at;

-- name: declared_by
select name, task from rota.schedule where namespace = $1 and app = $2 and source = 'code' order by name;

-- name: adopt
update rota.schedule as s set app = $2
from rota.schedule as before
where before.id = s.id and s.namespace = $1 and s.name = any($3::text[]) and s.source = 'code'
  and s.app is distinct from $2
returning s.name, before.app;

-- name: disown
update rota.schedule set app = null where namespace = $1 and app = $2;

-- name: lock_lines
-- The schedule, and the lines of its backfills.
select s.id from rota.schedule as s
where s.namespace = $1 and s.deleted_at is null and (s.name = $2 or (s.source = 'backfill' and s.name > $2 || ':backfill:' and s.name < $2 || ':backfill;'))
order by s.name for update;

-- name: mark_deleted
-- Its name is free, and nothing of it fires or is let through. $2: up to when it was in force. (Places for none also
-- keep schedulers of an older release from letting any through.)
update rota.schedule set deleted_at = $2, next_due = null, paused_until = null, max_running = 0, app = null,
    source = case source when 'backfill' then source else 'deleted' end, name = name || ':deleted:' || id
where id = any($1::uuid[]);

-- name: take_deleted
-- Schedules that are not gone yet: all, or these ($2). What another is at is passed over.
select s.id, s.namespace, s.version, s.undecided_version, s.cursor, s.spec, s.source, s.deleted_at
from rota.schedule as s where s.deleted_at is not null and ($2::uuid[] is null or s.id = any($2))
order by s.id limit $1
for update skip locked;

-- name: skip_unstarted
-- What was not to run yet when its schedule was deleted, at most $2. (A row that moves on meanwhile is no longer in
-- the future.)
with unstarted as materialized (
    select f.id from rota.future as f
    where f.schedule_id = $1 and (f.state = {state.waiting} or f.attempt = 0)
    limit $2
    for update
)
select count(*) from (select u.id, rota.skip_job(u.id, 'deleted') from unstarted as u) as skipped;

-- name: delete_schedule
with gates as (delete from rota.gate where schedule_id = $1)
delete from rota.schedule where id = $1;

-- name: list_occurrences
select o.due_at, o.run_at, o.state, o.reason, o.caught_up, o.job_id, o.version, o.decided_at,
       coalesce(r.state, j.state) as job_state, j.started_at, case when r.id is null then j.finished_at else r.ended_at end as finished_at
from rota.occurrence as o
left join rota.job as j on j.id = o.job_id
left join rota.run as r on r.id = o.job_id
where o.schedule_id = $1 and o.due_at >= $2 and o.due_at < $3
order by o.due_at
limit $4;

-- name: ledger
select due_at, state, reason, job_id from rota.occurrence
where schedule_id = $1 and due_at >= $2 and due_at < $3 order by due_at;

-- name: versions
select version, valid_from, spec, unsettled_from, unsettled from rota.schedule_version
where schedule_id = $1 and version >= $2 order by version;

-- name: calendars
select namespace, name, days from rota.calendar;

-- name: put_calendar
insert into rota.calendar (namespace, name, days) values ($1, $2, $3)
on conflict (namespace, name) do update set days = excluded.days, updated_at = rota.now();

-- name: ledger_from
select to_timestamp(value) from rota.setting where name = 'ledger_from';

-- name: open_backfill
-- A backfill is a schedule of its own that never fires: its jobs wait in line for its places.
insert into rota.schedule (id, namespace, name, shard, cursor, overlap, max_running, max_queued, priority, guarantee,
    max_attempts, timeout, lane, task, payload, headers, spec, source)
select $2::uuid, namespace, name || ':backfill:' || $2::uuid, shard, cursor, 3, $3, 2147483647, priority, guarantee,
    max_attempts, timeout, lane, task, payload, headers, spec, 'backfill'
from rota.schedule where id = $1;

-- name: backfill
with entry as (
    select * from unnest($3::timestamptz[], $4::uuid[], $5::json[]) as e(due_at, job_id, headers)
), noted as (
    insert into rota.occurrence as o (schedule_id, due_at, run_at, state, reason, caught_up, job_id, version)
    select $1, e.due_at, rota.now(), 1, 'backfilled', true, e.job_id, s.version
    from entry as e, rota.schedule as s where s.id = $1
    on conflict (schedule_id, due_at) do nothing
    returning o.due_at
), waiting as (
    insert into rota.future as f (id, shard, state, due_at, schedule_id, timeout, priority, guarantee, max_attempts,
        namespace, lane, task, payload, headers, share)
    select e.job_id, rota.shard_of(e.job_id, (select value from rota.setting where name = 'shards')), 1,
        rota.now() + (row_number() over (order by e.due_at)) * interval '1 microsecond', s.id,
        s.timeout, s.priority, s.guarantee, s.max_attempts, s.namespace, rota.sublane_of(s.lane, k.share), s.task,
        s.payload, rota.merged(s.headers, e.headers), k.share
    from noted as n join entry as e on e.due_at = n.due_at
    cross join rota.schedule as s
    left join lateral (
        select rota.share_of(null, null, null, null, t.name) as share from rota.task as t
        where t.namespace = s.namespace and t.name = s.task and t.limited offset 0) as k on true
    where s.id = $2
    returning f.namespace, f.lane
), flowed as (
    select rota.add_flow_of_lane(namespace, lane, count(*)) from waiting group by namespace, lane
)
select count(*) + 0 * (select count(*) from flowed) from waiting;

-- name: close_backfills
-- Those that have ended, found by an index that has nothing but backfills; 1,000 at most.
delete from rota.schedule where id = any(array(
    select s.id from rota.schedule as s
    where s.source = 'backfill' and s.deleted_at is null and s.created_at < rota.now() - interval '1 hour'
      and not exists (select from rota.future as f where f.schedule_id = s.id)
      and not exists (select from rota.present as p where p.schedule_id = s.id)
    order by s.created_at limit 1000));

-- name: latest_occurrences
-- The newest $3 rows of the ledger of each of these schedules. Everything is looked up one schedule at a time.
select s.name, o.*
from unnest($2::text[]) as n(name)
join rota.schedule as s on s.namespace = $1 and s.name = n.name
cross join lateral (
    select o.due_at, o.run_at, o.state, o.reason, o.caught_up, o.job_id, o.version, coalesce(r.state, j.state) as job_state,
           j.started_at, case when r.id is null then j.finished_at else r.ended_at end as finished_at
    from (select * from rota.occurrence as o where o.schedule_id = s.id order by o.due_at desc limit $3) as o
    left join lateral (select * from rota.job as j where j.id = o.job_id offset 0) as j on true
    left join rota.run as r on r.id = o.job_id
    order by o.due_at desc
    offset 0
) as o
order by s.name, o.due_at desc;

-- name: schedule_names
-- The first $3 after the name $2.
select s.name from rota.schedule as s
where s.namespace = $1 and s.source not in ('backfill', 'deleted') and ($2::text is null or s.name > $2)
order by s.name limit $3;

-- name: task_durations
-- The runs of each task within a week, by the hour's counts of their durations (core/histogram.py): the history isn't read.
select t.name as task, d.place - 1 as place, sum(d.count)::bigint as count
from rota.task as t
join rota.run_stats as s on s.namespace = t.namespace and s.span = 3600 and s.task = t.name
  and s.at >= rota.now() - interval '7 days'
cross join lateral unnest(s.durations) with ordinality as d(count, place)
where t.namespace = $1 and d.count > 0
group by 1, 2
order by 1, 2;

-- name: workflow_durations
-- The same for workflows that schedules start: of the newest $2 runs that have ended.
select 'workflow ' || r.name as task, count(*) as runs,
       percentile_cont(0.5) within group (order by r.seconds) as p50, percentile_cont(0.95) within group (order by r.seconds) as p95
from (select r.name, extract(epoch from r.ended_at - r.created_at)::float8 as seconds
      from (select * from rota.run as r where r.ended_at > rota.now() - interval '7 days' order by r.ended_at desc limit $2) as r
      where r.namespace = $1 and r.state = {run.succeeded} and r.schedule_id is not null) as r
group by 1;

-- name: next_moment
-- When something is due next, for tests that move time.
select min(at) from (
    select due_at as at from rota.future where state = {state.scheduled}
    union all select next_due from rota.schedule
    union all select paused_until from rota.schedule
    union all select deadline_at from rota.run where state = {run.running} and cancel_at is null
) as moments where at > rota.now();

-- name: lock_starter
-- The job that starts a scheduled run, held until its transaction ends, unless it was asked to stop: who asks that from then
-- on waits, and finds the run. With the schedule, which that of the job isn't in a backfill.
select (select o.schedule_id from rota.occurrence as o where o.due_at = $3 and o.job_id = $1 limit 1) as schedule_id
from rota.present as p
where p.id = $1 and p.token = $2 and p.state = {state.running} and p.cancel_at is null
for update of p;
