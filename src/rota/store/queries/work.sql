-- What workers do to the hot table. Every write is guarded by (id, token, node): a row that isn't
-- found has moved on, and that is an answer, not an error.
--
-- Many at a time. $2 are ids in order (of equal ones the last counts), $3 their tokens, and what follows
-- belongs to them in the same order: so that a row finds its place among them, and with it its token, by
-- bisection. Not by a join with what was given, which a planner with statistics of an empty table would begin
-- from the wrong side, and keep to it when there is a backlog.

-- name: claim
-- Up to limits[i] ready jobs of lanes[i] after the cursor (ranks[i], ids[i]), in rank order, under
-- one new token. Rank and priority tell the due moment, and are quicker to read than it; `early` is that
-- of what is not due yet. Rows are locked by an ordered index scan and then updated by ctid: no index
-- mentions what changes here, so the update is heap-only and writes no index entry.
with wanted as (
    select w.lane, w.rank, w.id, w.slots
    from unnest($2::text[], $3::bigint[], $4::uuid[], $5::int[]) as w(lane, rank, id, slots)
    where not exists (
        select from rota.queue as q
        where q.namespace = split_part(w.lane, '/', 1) and q.name = rota.queue_of(w.lane)
          and (q.paused_at is not null or q.governed))
), picked as (
    select p.at
    from wanted as w
    cross join lateral (
        select p.ctid as at from rota.present as p
        where p.lane = w.lane and (p.rank, p.id) > (w.rank, w.id)
          and p.state = {state.ready} and p.task = any($6::text[])
        order by p.rank, p.id
        limit w.slots
        for update skip locked
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

-- name: adopt_options
-- For jobs that were stored before their tasks were registered, or declared otherwise. The guarantee is the task's. A step also
-- gets the number of attempts and the timeout, if its workflow does not say otherwise.
with open as materialized (
    select g.id, w.max_attempts is null as attempts, w.timeout is null as timeout
    from unnest($2::uuid[]) as g(id)
    cross join lateral (select p.run_id, p.step from rota.present as p where p.id = g.id offset 0) as p
    cross join lateral (select r.workflow_id from rota.run as r where r.id = p.run_id offset 0) as r
    cross join lateral (
        select w.max_attempts, w.timeout from rota.workflow_step as w
        where w.workflow_id = r.workflow_id and w.number = p.step offset 0) as w
)
update rota.present as p
set guarantee = ($4::smallint[])[width_bucket(p.id, $2::uuid[])],
    max_attempts = case when p.id in (select o.id from open as o where o.attempts)
                        then ($5::smallint[])[width_bucket(p.id, $2::uuid[])] else p.max_attempts end,
    timeout = case when p.id in (select o.id from open as o where o.timeout)
                   then ($6::real[])[width_bucket(p.id, $2::uuid[])] else p.timeout end
where p.id = any($2::uuid[])
  and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 and p.state = {state.running}
returning p.id, p.max_attempts, p.timeout;

-- name: mark_started
-- Before at_most_once jobs, and jobs that were lost before, really start: so that a reaper can tell
-- what began from what was only held, and a node that overslept can't begin at all.
update rota.present as p set started_at = rota.now()
where p.id = any($2::uuid[])
  and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 and p.state = {state.running}
  and p.cancel_at is null
returning p.id;

-- name: finish_succeeded
-- ran, ago: seconds by the node's monotonic clock (how long it ran, how long ago it ended);
-- the moments themselves are the database's: $8 is its time as the node last heard it, carried on to
-- the moment of sending; null: the statement's own time. $8 is a lower bound, and may be lower than the one by
-- which the job was started; the statement's time is an upper bound. A start that is early by the one and late
-- by the other is taken for punctual. Moments are reckoned in seconds, once for all jobs but for a sum: an interval
-- costs five times as much.
with gone as (
    delete from rota.present as p
    where p.id = any($2::uuid[])
      and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 and p.state = {state.running}
    returning {{columns moved}}, token, node, progress, width_bucket(p.id, $2::uuid[]) as place
), moment as (
    select date_part('epoch', coalesce($8::timestamptz, rota.now())) as heard, date_part('epoch', rota.now()) as now
), ended as (
    select *, ($6::float8[])[place] as ran, ($7::float8[])[place] as ago from gone
), kept as (
    {{insert rota.past, ended: state = {state.succeeded}; finished_at = to_timestamp((select heard from moment) - ago);
        started_at = greatest(to_timestamp((select heard from moment) - ago - ran),
            least(due_at, to_timestamp((select now from moment) - ago - ran)));
        result = ($4::json[])[place]; error = ($5::json[])[place]}}
    from ended
    returning 1
)
select count(*) from kept;

-- name: finish_sparing
-- The same where a queue may keep less than all of its jobs that succeeded: of those that it doesn't keep there is their id in a
-- trace, and they count in the statistics and have left their queue as others do.
with gone as (
    delete from rota.present as p
    where p.id = any($2::uuid[])
      and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 and p.state = {state.running}
    returning p.*, width_bucket(p.id, $2::uuid[]) as place
), mode as materialized (
    select l.lane, q.history from (select distinct g.lane, g.namespace from gone as g) as l
    cross join lateral (
        select q.history from rota.queue as q
        where q.namespace = l.namespace and q.name = rota.queue_of(l.lane) and q.history is not null offset 0) as q
), moment as (
    select date_part('epoch', coalesce($8::timestamptz, rota.now())) as heard, date_part('epoch', rota.now()) as now
), ended as materialized (
    select g.*, rota.keeps_success(o.history, g.id, g.attempts is not null or ($5::json[])[g.place] is not null,
                                   coalesce(g.run_id, g.schedule_id) is not null) as keeps,
           to_timestamp((select heard from moment) - ($7::float8[])[g.place]) as ended,
           greatest(to_timestamp((select heard from moment) - ($7::float8[])[g.place] - ($6::float8[])[g.place]),
                    least(g.due_at, to_timestamp((select now from moment) - ($7::float8[])[g.place] - ($6::float8[])[g.place])))
               as began
    from gone as g left join mode as o on o.lane = g.lane
), kept as (
    {{insert rota.past, ended: state = {state.succeeded}; finished_at = ended; started_at = began;
        result = ($4::json[])[place]; error = ($5::json[])[place]}}
    from ended where keeps
    returning 1
), spared as materialized (
    select id, namespace, lane, task, attempt, due_at, began as started_at, ended as finished_at, {state.succeeded} as state
    from ended where not keeps
), traced as (
    {{trace spared}}
), told as (
    {{tell spared}}
), {{tally spared}}
select (select count(*) from kept) + (select count(*) from spared) + 0 * (select flows from flowed);

-- name: finish_steps
-- The same for jobs of a workflow's steps, which end with them.
select accepted, pending from rota.finish_steps($1, $2::uuid[], $3::bigint[], $4::json[], $5::json[], $6::float8[],
    $7::float8[], $8::timestamptz);

-- name: finish_ended
-- Failed jobs go to the dead-letter list, cancelled ones to the past. `entry` joins the job's list of attempts, of
-- which the last 20 are kept.
with gone as (
    delete from rota.present as p
    where p.id = any($2::uuid[])
      and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 and p.state = {state.running}
    returning p.*, width_bucket(p.id, $2::uuid[]) as place
), outcome as (
    select *, ($4::smallint[])[place] as ended_as, ($5::jsonb[])[place] as entry, ($6::json[])[place] as error,
           ($7::smallint[])[place] as crashed, ($8::float8[])[place] as ran,
           rota.now() - ($9::float8[])[place] * interval '1 second' as ended
    from gone
), row as (
    select {{select ended: state = ended_as; started_at = ended - ran * interval '1 second'; finished_at = ended;
        crashes = crashed; result = null::json; error = error;
        attempts = rota.add_attempt(attempts, entry, ended - ran * interval '1 second', ended)}}
    from outcome
), buried as (
    insert into rota.dead ({{columns ended}})
    select * from row where state = {state.failed}
    -- A job of the same id that failed before must not keep this one running for ever.
    on conflict (id) do update set {{overwrite ended}}
    returning 1
), kept as (
    insert into rota.past ({{columns ended}})
    select * from row where state <> {state.failed}
    returning 1
)
select (select count(*) from buried) + (select count(*) from kept);

-- name: finish_retried
-- Back to the future, due after `delay` seconds; at once ready again when nothing is to be waited for.
-- A job that was asked to be cancelled meanwhile ends here instead: decided about rows that are locked, because a
-- cancel that commits while we wait for a row would be seen by neither branch.
with held as materialized (
    select p.id, p.cancel_at is null and ($4::float8[])[width_bucket(p.id, $2::uuid[])] <= 0 as at_once
    from rota.present as p
    where p.id = any($2::uuid[])
      and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 and p.state = {state.running}
    for update
), again as (
    update rota.present as p
    set state = {state.ready}, node = null, claimed_at = null, started_at = null,
        crashes = ($6::smallint[])[width_bucket(p.id, $2::uuid[])],
        attempts = rota.add_attempt(p.attempts, ($5::jsonb[])[width_bucket(p.id, $2::uuid[])],
            rota.now() - (($7::float8[])[width_bucket(p.id, $2::uuid[])]
                          + ($8::float8[])[width_bucket(p.id, $2::uuid[])]) * interval '1 second',
            rota.now() - ($8::float8[])[width_bucket(p.id, $2::uuid[])] * interval '1 second')
    where p.id = any(array(select id from held where at_once))
    returning p.namespace, p.lane, p.rank
), deleted as (
    delete from rota.present as p
    where p.id = any(array(select id from held where not at_once))
    returning p.*, width_bucket(p.id, $2::uuid[]) as place
), gone as (
    select *, ($4::float8[])[place] as delay, ($5::jsonb[])[place] as entry, ($6::smallint[])[place] as crashed,
           ($7::float8[])[place] as ran, ($8::float8[])[place] as ago
    from deleted
), later as (
    {{insert rota.future, moved: due_at = rota.now() + make_interval(secs => delay); crashes = crashed;
        attempts = rota.add_attempt(attempts, entry, rota.now() - (ran + ago) * interval '1 second',
                                    rota.now() - ago * interval '1 second')}}
    from gone where cancel_at is null
    returning 1
), stopped as (
    {{insert rota.past, ended: state = {state.cancelled}; crashes = crashed;
        started_at = rota.now() - (ran + ago) * interval '1 second';
        attempts = rota.add_attempt(attempts, entry, rota.now() - (ran + ago) * interval '1 second',
                                    rota.now() - ago * interval '1 second')}}
    from gone where cancel_at is not null
    returning 1
), hinted as (
    select rota.hint(namespace, lane, min(rank), count(*)) from again group by namespace, lane
)
select (select count(*) from again) + (select count(*) from later) + (select count(*) from stopped)
     + 0 * (select count(*) from hinted);

-- name: give_back
-- Unharmed: never started, or interrupted by a shutdown. The attempt doesn't count. What somebody
-- asked to cancel meanwhile ends here instead: locked first, as above.
with held as materialized (
    select p.id, p.cancel_at is null as wanted from rota.present as p
    where p.id = any($2::uuid[])
      and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 and p.state = {state.running}
    for update
), again as (
    update rota.present as p
    set state = {state.ready}, node = null, claimed_at = null, started_at = null, attempt = p.attempt - 1
    where p.id = any(array(select id from held where wanted))
    returning p.namespace, p.lane, p.rank
), gone as (
    delete from rota.present as p
    where p.id = any(array(select id from held where not wanted))
    returning p.*
), kept as (
    {{insert rota.past, ended: state = {state.cancelled}}}
    from gone
    returning 1
), hinted as (
    select rota.hint(namespace, lane, min(rank), count(*)) from again group by namespace, lane
)
select (select count(*) from again) + (select count(*) from kept) + 0 * (select count(*) from hinted);

-- name: close_batches
delete from rota.batch where node = $1 and token = any($2::bigint[]);

-- name: open_batches
select token, lane from rota.batch where node = $1;

-- name: batch_parts
-- What a node left behind is looked for in parts of its batches, because others' jobs may lie between a batch's
-- own: at most $4 rows of the lane each, from where nothing is held any more. `last`: the part reaches to the end.
-- From each batch to its rows, never the other way: `offset 0` keeps a planner with statistics of an empty table
-- from beginning with it. So in all that look for what a node holds.
select b.token, b.lane, b.low, b.low_id, coalesce(u.rank, b.high) as until, coalesce(u.id, b.high_id) as until_id,
       u.rank is null as last
from unnest($2::bigint[], $3::text[]) as t(token, lane)
cross join lateral (
    select b.* from rota.batch as b where b.token = t.token and b.lane = t.lane and b.node = $1 offset 0
) as b
left join lateral (
    select p.rank, p.id from rota.present as p
    where p.lane = b.lane and (p.rank, p.id) >= (b.low, b.low_id) and (p.rank, p.id) <= (b.high, b.high_id)
    order by p.rank, p.id
    offset $4 limit 1
) as u on true;

-- name: held_jobs
-- What a node still holds of these parts. A row that its last commit has locked is passed over; its batch then
-- stays for the next look.
select p.* from unnest($2::bigint[], $3::text[], $4::bigint[], $5::uuid[], $6::bigint[], $7::uuid[])
    as t(token, lane, low, low_id, until, until_id)
cross join lateral (
    select p.id, p.token, p.attempt, p.max_attempts, p.guarantee, p.crashes,
           p.started_at is not null as started, p.cancel_at is not null as cancelled,
           extract(epoch from rota.now() - coalesce(p.started_at, p.claimed_at))::float8 as ran
    from rota.present as p
    where p.lane = t.lane and (p.rank, p.id) >= (t.low, t.low_id) and (p.rank, p.id) <= (t.until, t.until_id)
      and p.token = t.token and p.node = $1 and p.state = {state.running}
    for update skip locked
) as p;

-- name: close_parts
-- A batch of whose last part nothing is held is closed; after another part it begins later. Nothing comes to a
-- batch after its claim, so a concurrent change of its beginning is right as well.
with empty as materialized (
    select t.* from unnest($2::bigint[], $3::text[], $4::bigint[], $5::uuid[], $6::bigint[], $7::uuid[], $8::boolean[])
        as t(token, lane, low, low_id, until, until_id, last)
    where not exists (
        select from rota.present as p
        where p.lane = t.lane and (p.rank, p.id) >= (t.low, t.low_id) and (p.rank, p.id) <= (t.until, t.until_id)
          and p.token = t.token and p.node = $1 and p.state = {state.running}
        offset 0)
), moved as (
    update rota.batch as b set low = e.until, low_id = e.until_id from empty as e
    where b.token = e.token and b.lane = e.lane and b.node = $1 and not e.last
), closed as (
    delete from rota.batch as b using empty as e
    where b.token = e.token and b.lane = e.lane and b.node = $1 and e.last
)
select count(*) from empty;

-- name: save_progress
update rota.present as p set progress = ($4::json[])[width_bucket(p.id, $2::uuid[])]
where p.id = any($2::uuid[])
  and p.token = ($3::bigint[])[width_bucket(p.id, $2::uuid[])] and p.node = $1 and p.state = {state.running};

-- name: check_lease
-- No lock: a handler may hold its transaction open for long, and the reaper must not wait for it. The
-- finish in the same transaction decides.
select true from rota.present where id = $2 and token = $3 and node = $1 and state = {state.running};

-- name: begin_effect
-- Under the job's lease, the key becomes this attempt's, or the state of an earlier attempt is returned.
with lease as (
    select from rota.present where id = $2 and token = $3 and node = $1 and state = {state.running} for share
), begun as (
    insert into rota.effect as e (namespace, key, job_id, token)
    select $4, $5, $2, $3 from lease
    on conflict (namespace, key) do update
        set job_id = case when e.done_at is null and $6 then excluded.job_id else e.job_id end,
            token = case when e.done_at is null and $6 then excluded.token else e.token end
    returning e.job_id, e.token, e.done_at, e.result
)
select exists (select from lease) as held, b.job_id = $2 and b.token = $3 as ours, b.done_at, b.result
from (select) as one left join begun as b on true;

-- name: end_effect
update rota.effect set done_at = rota.now(), result = $5
where namespace = $1 and key = $2 and job_id = $3 and token = $4 and done_at is null
returning true;

-- name: drop_effect
delete from rota.effect
where namespace = $1 and key = $2 and job_id = $3 and token = $4 and done_at is null;
