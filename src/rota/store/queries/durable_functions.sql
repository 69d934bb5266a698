-- name: open_functions
-- Of many functions at a time: those that are no longer this node's have no row.
select g.place - 1 as place, r.restarts, h.* from (
    select * from unnest($2::uuid[], $3::bigint[], $4::uuid[]) with ordinality as g(job, token, run_id, place) order by run_id
) as g
cross join lateral (select r.restarts from rota.run as r where r.id = g.run_id offset 0) as r
cross join lateral rota.open_function($1, g.job, g.token, g.run_id) as h;

-- name: record_checkpoints
-- Of many functions at a time. What was written by an earlier try of the same statement is written again; what another
-- attempt of the function has written stays as it is. Returns what was written, and whether its run is being cancelled.
with given as (
    select g.* from unnest($2::uuid[], $3::bigint[], $4::uuid[], $5::int[], $6::text[], $7::text[], $8::smallint[],
        $9::smallint[], $10::smallint[], $11::float8[], $12::float8[], $13::json[], $14::json[])
        as g(job, token, run_id, number, name, digest, kind, state, attempt, delay, ran, result, error)
    cross join lateral (
        select from rota.present as p
        where p.id = g.job and p.token = g.token and p.node = $1 and p.state = {state.running} offset 0) as held
), written as (
    insert into rota.checkpoint as c (run_id, number, name, digest, kind, state, attempt, token, result, error, wake_at, ended_at,
        created_at)
    select run_id, number, name, digest, kind, state, attempt, token, result, error,
           case when state = {step.waiting} then rota.now() + make_interval(secs => delay) end,
           case when state <> {step.waiting} then rota.now() end, rota.now() - make_interval(secs => coalesce(ran, 0))
    from given
    on conflict (run_id, number) do update
    set state = excluded.state, attempt = excluded.attempt, token = excluded.token, result = excluded.result,
        error = excluded.error, ended_at = excluded.ended_at,
        wake_at = case when c.kind = {checkpoint.sleep} then c.wake_at else excluded.wake_at end
    where c.name = excluded.name and (c.state = {step.waiting} or c.token = excluded.token)
    returning c.run_id, c.number
)
select w.run_id, w.number, r.cancel_at is not null as cancelled from written as w
cross join lateral (select r.cancel_at from rota.run as r where r.id = w.run_id offset 0) as r;

-- name: forgive_crashes
-- Functions that come further are no longer blamed for having gone down with their processes.
update rota.present as p set crashes = 0
from unnest($2::uuid[], $3::bigint[]) as g(job, token)
where p.id = g.job and p.token = g.token and p.node = $1 and p.state = {state.running};

-- name: suspend_function
select rota.suspend_function($1, $2, $3, $4, $5::int[], $6::int[], $7, $8::json);

-- name: restart_function
select rota.restart_function($1, $2, $3, $4, $5::json);

-- name: call_jobs
select rota.call_jobs($1, $2::uuid[], $3::bigint[], $4::uuid[], $5::int[], $6::text[], $7::text[], $8::json[]);

-- name: call_run
select rota.call_run($1, $2, $3, $4, $5, $6, $7, $8::json);

-- name: wait_for_signal
select * from rota.wait_for_signal($1, $2, $3, $4, $5, $6, $7, $8, $9);

-- name: close_waits
select rota.close_waits($1, $2, $3, $4, $5::int[], $6, $7, $8::json);

-- name: offer_signals
select rota.offer_signals($1, $2, $3);

-- name: set_run_status
update rota.run as r set status = $5::json where r.id = $4 and exists (
    select from rota.present as p where p.id = $2 and p.token = $3 and p.node = $1 and p.state = {state.running});

-- name: send_signal
select signal_id, existed, run_id from rota.send_signal_of($1::json);

-- name: cancel_function
select rota.cancel_function($1);

-- name: cancelled_calls
select c.job_id, c.kind from rota.checkpoint as c
where c.run_id = $1 and c.state = {step.cancelled} and c.kind in ({checkpoint.call}, {checkpoint.run})
  and c.job_id is not null;  -- null: the function was told of its cancel there, and nothing was called

-- name: force_cancel
with forced as (
    update rota.run set forced = true where id = $1 returning id
)
insert into rota.pending_step (run_id, step) select id, null from forced;

-- name: lock_function
-- Before anything else of its run, by whoever may wake it: jobs come before runs.
select rota.lock_functions(array[$1::uuid]);

-- name: wake_function
select rota.lock_functions(array[$1::uuid]), rota.wake_functions(array[$1::uuid]);

-- name: end_called_runs
select rota.end_called_runs($1);

-- name: forget_failure
select rota.forget_failure($1);

-- name: forget_from
with first as (
    select 0 as number from rota.run as r
    join rota.workflow_step as w on w.workflow_id = r.workflow_id and w.kind = {kind.function} and w.name = $2
    where r.id = $1
    union all
    select c.number from rota.checkpoint as c where c.run_id = $1 and c.name = $2
), forgotten as (
    delete from rota.checkpoint as c where c.run_id = $1 and c.number >= (select min(number) from first)
)
select exists (select from first);

-- name: list_checkpoints
select c.number, c.kind, c.state, c.attempt, c.name, c.job_id, c.created_at, c.ended_at, c.wake_at, c.digest, c.signal,
       c.signal_key, c.result, c.error
from rota.checkpoint as c where c.run_id = $1 and c.number > $2 order by c.number limit $3;

-- name: list_signals
select s.id, s.name, s.key, s.once, s.sent_at, s.taken_at, s.run_id, s.payload from rota.run_signal as s
where s.namespace = $1 and ($2::text is null or s.name = $2) and ($3::text is null or s.key = $3)
order by s.sent_at desc, s.id limit $4;

-- name: forget_signals
with old as materialized (
    select id from rota.run_signal where sent_at < rota.now() - make_interval(days => $1::int) order by sent_at limit $2
    for update skip locked
), gone as (
    delete from rota.run_signal where id in (select id from old) returning 1
)
select count(*) from gone;
