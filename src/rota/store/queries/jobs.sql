-- Reads and changes of jobs by users and programs.

-- name: submit_jobs
-- $3: how they come, see functions/quotas.sql.
select job_id, existed, conflict from rota.submit_jobs($1::json, $2, $3);

-- name: submit_made
select rota.submit_made($1, $2, $3, $4, $5, $6, $7, $8, $9, $10);

-- name: open_bulk
-- Before a COPY: the database's time (the only clock), what is due within the horizon, the shards.
select rota.now() as now,
       (select value from rota.setting where name = 'horizon_ms') as horizon_ms,
       (select value from rota.setting where name = 'shards') as shards;

-- name: open_copy
-- The same for jobs of one lane, which is made unless it exists. `counted`: see functions/quotas.sql.
with queues as (
    insert into rota.queue as q (namespace, name) select split_part($1, '/', 1), rota.queue_of($1) on conflict do nothing
    returning q.intake
), lanes as (
    insert into rota.lane (lane, namespace, queue, needs)
    select $1, split_part($1, '/', 1), rota.queue_of($1), rota.needs_of($1) on conflict do nothing
)
select rota.now() as now,
       (select value from rota.setting where name = 'horizon_ms') as horizon_ms,
       (select value from rota.setting where name = 'shards') as shards,
       coalesce((select q.intake from queues as q), (select q.intake from rota.queue as q
                 where q.namespace = split_part($1, '/', 1) and q.name = rota.queue_of($1))) is not null as counted;

-- name: ensure_lanes
-- Returns the queues that are counted.
with queues as (
    insert into rota.queue as q (namespace, name)
    select distinct split_part(lane, '/', 1), rota.queue_of(lane) from unnest($1::text[]) as lane
    on conflict do nothing
    returning q.name, q.intake
), lanes as (
    insert into rota.lane (lane, namespace, queue, needs)
    select lane, split_part(lane, '/', 1), rota.queue_of(lane), rota.needs_of(lane) from unnest($1::text[]) as lane
    on conflict do nothing
)
select name from queues where intake is not null
union
select q.name from unnest($1::text[]) as lane
join rota.queue as q on q.namespace = split_part(lane, '/', 1) and q.name = rota.queue_of(lane) and q.intake is not null;

-- name: enter_queues
-- Refuses jobs that these queues have no room for, and counts the others.
select rota.check_intake($1, e.queue, e.jobs, 'bulk') as warning, rota.add_flow($1, e.queue, e.jobs)
from unnest($2::text[], $3::bigint[]) as e(queue, jobs);

-- name: hint_lanes
select rota.hint($1, lane, rank, count) from unnest($2::text[], $3::bigint[], $4::bigint[]) as h(lane, rank, count);

-- name: get_jobs
select * from rota.job where namespace = $1 and id = any($2::uuid[]);

-- name: list_jobs
-- Newest first, of the newest $9 (in the state, if one is given); $6 is the last id of the page before. They come by the
-- indexes on ids, in their order, so that reading ends with the last row of the page.
select * from (
    select * from rota.job
    where namespace = $1
      and ($2::smallint is null or state = $2)
      and ($6::uuid is null or id < $6)
    order by id desc
    limit $9) as j
where ($3::text is null or j.task = $3)
  and ($4::text is null or rota.queue_of(j.lane) = $4)
  and ($5::text is null or (j.headers::jsonb -> 'tags') ? $5)
  and ($8::text is null or case j.state when {state.succeeded} then 'succeeded' when {state.cancelled} then 'cancelled' else j.attempts -> -1 ->> 'outcome' end = $8)
order by j.id desc
limit $7;

-- name: job_after
-- The id that is $4 places after the id $3, in the order of list_jobs.
select j.id from rota.job as j
where j.namespace = $1 and ($2::smallint is null or j.state = $2) and ($3::uuid is null or j.id < $3)
order by j.id desc offset $4 - 1 limit 1;

-- name: count_jobs
select state, count(*) from rota.job
where namespace = $1
  and ($2::smallint is null or state = $2)
  and ($3::text is null or task = $3)
  and ($4::text is null or rota.queue_of(lane) = $4)
group by state;

-- name: cancel_jobs
-- What hasn't started is cancelled here. What runs is marked, and its node is notified.
with postponed as (
    delete from rota.future where namespace = $1 and id = any($2::uuid[])
    returning {{columns moved}}
), waiting as (
    delete from rota.present where namespace = $1 and id = any($2::uuid[]) and state = {state.ready}
    returning {{columns moved}}
), kept as (
    {{insert rota.past, ended: state = {state.cancelled}; token = null; node = null; started_at = null; progress = null}}
    from (select * from postponed union all select * from waiting) as c
    returning id
), asked as (
    update rota.present set cancel_at = coalesce(cancel_at, rota.now())
    where namespace = $1 and id = any($2::uuid[]) and state = {state.running}
    returning id, node, token
), signalled as (
    insert into rota.signal as s (node, job_id, token, kind)
    select node, id, token, 'cancel' from asked
    on conflict (node, job_id) do update set token = excluded.token
    returning s.node
), notified as (
    select rota.notify_signal($1, node) from (select distinct node from signalled) as n
)
select id, 'cancelled' as what from kept
union all
select id, 'stopping' from asked where (select count(*) from notified) >= 0;

-- name: retry_jobs
-- From the dead-letter list, or out of a wait for the next retry, to ready: now, with a fresh count. A failed step of a
-- workflow is retried by its run, as a new job: its old job would run without effect on the run.
with risen as (
    delete from rota.dead where namespace = $1 and id = any($2::uuid[]) and run_id is null
    returning {{columns moved}}
), hurried as (
    delete from rota.future where namespace = $1 and id = any($2::uuid[]) and state = {state.scheduled} and attempt > 0
    returning {{columns moved}}
), readied as (
    {{insert rota.present, moved: due_at = rota.now(); attempt = 0; crashes = 0}}
    from (select * from risen union all select * from hurried) as r
    returning id, namespace, lane, rank
), hinted as (
    select rota.hint(namespace, lane, min(rank), count(*)) from readied group by namespace, lane
), flowed as (
    select rota.add_flow_of_lane(namespace, lane, count(*)) from risen group by namespace, lane
)
select id from readied where (select count(*) from hinted) + (select count(*) from flowed) >= 0;

-- name: discard_jobs
-- Off the dead-letter list: kept in the past as cancelled, until retention takes it. What comes to the past counts as having
-- left its queue (rota.tally_runs()); these had left it before.
with gone as (
    delete from rota.dead where namespace = $1 and id = any($2::uuid[]) returning *
), flowed as (
    select rota.add_flow_of_lane(namespace, lane, count(*)) from gone group by namespace, lane
), kept as (
    {{insert rota.past, ended: state = {state.cancelled}; result = result; error = error}}
    from gone
    returning id
)
select id from kept where (select count(*) from flowed) >= 0;

-- name: find_dead
select id from rota.dead
where namespace = $1
  and ($2::text is null or task = $2)
  and ($3::text is null or rota.queue_of(lane) = $3)
  -- By its whole name, or by the last parts of it: CardDeclined, or payments.CardDeclined.
  and ($4::text is null or error ->> 'type' = $4 or right(error ->> 'type', length($4) + 1) = '.' || $4)
order by finished_at
limit $5;

-- name: count_dead
select task, error ->> 'type' as error, count(*) as count, max(finished_at) as last_at
from rota.dead
where namespace = $1
  and ($2::text is null or task = $2)
  and ($3::text is null or rota.queue_of(lane) = $3)
group by 1, 2
order by 3 desc, 1, 2;

-- name: now
select rota.now();

-- name: explain_job
-- The facts behind a job's "why isn't it running": judged in core, all read in one snapshot.
select j.id, j.task, j.guarantee, j.lane, j.state, j.due_at, j.attempt, j.max_attempts, j.started_at, j.finished_at, j.cancel_at,
       j.timeout, (select p.alive_at from rota.present as p where p.id = j.id) as alive_at,
       (select q.max_run_time from rota.queue as q
        where q.namespace = j.namespace and q.name = rota.queue_of(j.lane)) as max_run_time,
       rota.share_part(j.share, 'p') as punctual,
       j.node, j.error ->> 'type' as error_type, j.error ->> 'message' as error_message, j.attempts -> -1 as last_attempt,
       rota.now() as now,
       starts_with(j.task, 'rota' || '.') or exists (
           select from rota.task as t where t.namespace = j.namespace and t.name = j.task) as registered,
       substring(j.payload::text from '^{"[$]rota-encrypted":"1[.]([A-Za-z0-9_-]+)[.]') as encrypted_with,
       (select s.name from rota.schedule as s where s.id = j.schedule_id and s.deleted_at is null) as schedule,
       (select o.reason from rota.occurrence as o where o.job_id = j.id) as reason,
       coalesce((select q.governed from rota.queue as q
                 where q.namespace = j.namespace and q.name = rota.queue_of(j.lane)), false) as governed,
       (select paused_at from rota.queue as q where q.namespace = j.namespace and q.name = rota.queue_of(j.lane)) as paused_at,
       (select jsonb_build_object('name', n.name, 'state', n.state,
               'heartbeat_timeout', case when n.remote then rota.heartbeat_timeout(n.heartbeat_timeouts, j.task, j.headers)
                   else coalesce(rota.own_heartbeat_timeout(j.headers), (n.heartbeat_timeouts ->> j.task)::float8) end,
               'silent', extract(epoch from rota.now() - n.heartbeat_at),
               'expires_in', extract(epoch from n.expires_at - rota.now()))
        from rota.node as n where n.id = j.node) as holder,
       -- Workers that are alike are one entry. Why an ended job ran is no question.
       case when j.finished_at is null then
       (select coalesce(jsonb_agg(to_jsonb(s)), '[]')
        from (select count(*) as nodes, sum(n.slots) as slots, sum(n.running) as running, n.remote, n.keys,
                  j.task = any(n.tasks) and not (n.remote and j.guarantee = {guarantee.exactly_once}) as knows_task
              from rota.node as n
              where n.namespace = j.namespace and 'worker' = any(n.roles) and n.state in ('live', 'draining')
                and n.expires_at >= rota.now()
                and (n.queues = '{}' or rota.queue_of(j.lane) = any(n.queues))
                and rota.can_run(rota.needs_of(j.lane), n.capabilities, n.resources)
              group by n.remote, n.keys, 6) as s) end as servers,
       (select count(*) from rota.node as n
        where n.namespace = j.namespace and 'worker' = any(n.roles) and n.state = 'live' and n.expires_at >= rota.now()) as workers,
       (select count(*) from rota.node as n
        where 'scheduler' = any(n.roles) and n.state in ('live', 'draining') and n.expires_at >= rota.now()) as schedulers,
       (select max(n.coordinator || ' does not answer (' || n.coordinator_fault || ')') from rota.node as n
        where n.state in ('live', 'draining') and n.expires_at >= rota.now()) as coordinator_fault,
       (select count(*) from (
            select from rota.present as p
            join rota.present as me on me.id = j.id
            where p.lane = me.lane and (p.rank, p.id) < (me.rank, me.id) and p.state = {state.ready} and j.state = {state.ready}
            limit 1000000) as ahead) as ahead
from rota.job as j
where j.namespace = $1 and j.id = $2;

-- name: list_queues
-- $2: only the queue of this name. Without the numbers of jobs: see store/queue_counts.py.
select q.namespace, q.name, q.paused_at, q.max_run_time, q.concurrency, q.concurrency_per_key,
       q.rate_count, q.rate_period, q.rate_burst, q.policy, coalesce(q.history, 'all') as history,
       0 as ready, 0 as running, 0 as scheduled, null::float8 as lag,
       d.max_depth, d.jobs as depth, case when q.intake > 0 then coalesce(d.shut_at, n.shut_at) end as full_since
from rota.queue as q
left join rota.depth as d on q.intake is not null and d.namespace = q.namespace and d.queue = q.name
left join rota.depth as n on q.intake is not null and n.namespace = q.namespace and n.queue = ''
where q.namespace = $1 and ($2::text is null or q.name = $2)
order by q.name;

-- name: known_queues
-- Those that have had a job, and those that a task declares.
select name from rota.queue where namespace = $1
union
select queue from rota.task where namespace = $1;

-- name: pause_queue
insert into rota.queue as q (namespace, name, paused_at) values ($1, $2, rota.now())
on conflict (namespace, name) do update set paused_at = coalesce(q.paused_at, rota.now())
returning paused_at;

-- name: set_queue_max_run_time
insert into rota.queue as q (namespace, name, max_run_time) values ($1, $2, $3)
on conflict (namespace, name) do update set max_run_time = excluded.max_run_time;

-- name: resume_queue
with resumed as (
    update rota.queue set paused_at = null where namespace = $1 and name = $2 returning name
), hinted as (
    -- Also lanes that a caller's transaction has made, and that no scheduler has settled yet.
    select rota.hint($1, l.lane, -9223372036854775808, 1)
    from (select lane, namespace, queue from rota.lane union select lane, namespace, queue from rota.new_lane) as l, resumed
    where l.namespace = $1 and l.queue = resumed.name
)
select name from resumed where (select count(*) from hinted) >= 0;
