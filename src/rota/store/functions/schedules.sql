-- Moves a job that doesn't run after all to the past as skipped, and records the reason in its occurrence.
create or replace function rota.skip_job(job uuid, why text) returns void language sql volatile as $$
    with gone as (
        delete from rota.future where id = job
        returning {{columns moved}}
    ), held as (
        delete from rota.present where id = job
        returning {{columns moved}}
    ), kept as (
        {{insert rota.past, ended: state = {state.skipped}; token = null; node = null; started_at = null; progress = null}}
        from (select * from gone union all select * from held) as g
        returning id
    )
    -- Not if somebody else has ended the job meanwhile, such as by cancelling it.
    update rota.occurrence set state = {occurrence.skipped}, reason = why, decided_at = rota.now()
    where job_id = (select id from kept)
$$;

-- The places in the gates of these schedules that nobody holds any more. A job holds its place until it ends and, if it started a
-- run of a workflow, which has its id, until that run ends.
create or replace function rota.left_places(plans uuid[]) returns table (schedule_id uuid, job_id uuid) language sql stable as $$
    select g.schedule_id, g.job_id from rota.gate as g
    where g.schedule_id = any(plans)
      and not exists (select from rota.present as p where p.id = g.job_id)
      and not exists (select from rota.future as f where f.id = g.job_id)
      and not exists (select from rota.run as r where r.id = g.job_id and r.state = {run.running})
$$;

-- Before scheduled jobs start: may they, beside what their schedules already run? Decided under the schedules' row locks,
-- so that any number of workers agree. All jobs are locked first, then all schedules, each in one order; what is committed
-- before is seen by the statements that follow. Answers start, skip or wait for each; what isn't ours any more gets no
-- answer. Most may start: those are found and given their places together, as if they had come one after the other. What
-- becomes of the others is decided one by one, by rota.begin_one().
create or replace function rota.begin_scheduled(me uuid, ids uuid[], tokens bigint[])
    returns table (job_id uuid, verdict text) language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off set enable_bitmapscan = off
    set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    held uuid[];
    plans uuid[];
    dues timestamptz[];
    starting uuid[];
    entering uuid[];
    entered uuid[];
    others uuid[];
    other uuid;
    word text;
begin
    select array_agg(l.id), array_agg(l.schedule_id), array_agg(l.due_at) into held, plans, dues
    from (select p.id, p.schedule_id, p.due_at from unnest(ids, tokens) as a(id, token)
          join rota.present as p on p.id = a.id and p.token = a.token
          where p.node = me and p.state = {state.running} and p.cancel_at is null
          order by p.schedule_id, p.rank, p.id
          for update of p) as l;
    if held is null then
        return;
    end if;
    perform from rota.schedule as s where s.id = any(plans) order by s.id for update;

    delete from rota.gate as g using rota.left_places(plans) as l
    where g.schedule_id = l.schedule_id and g.job_id = l.job_id;
    with job as materialized (
        select j.*, s.overlap, coalesce(s.max_running, 1) as places,
               -- Where there is no such schedule, nothing stands in the way.
               coalesce(s.deleted_at >= j.due_at, s.overlap = {overlap.allow} and s.max_running is null, true) as free,
               s.deleted_at is null and exists (
                   select from rota.gate as g where g.schedule_id = j.schedule_id and g.job_id = j.id) as inside,
               s.deleted_at is not null as deleted,
               (select count(*) from rota.gate as g where g.schedule_id = j.schedule_id) as taken
        from unnest(held, plans, dues) with ordinality as j(id, schedule_id, due_at, place)
        left join rota.schedule as s on s.id = j.schedule_id
    ), seen as (
        select j.*, j.asks
               and j.taken + row_number() over (partition by j.schedule_id, j.asks order by j.place) <= j.places
               and not (j.overlap = {overlap.queue} and exists (
                   select from rota.future as f
                   where f.schedule_id = j.schedule_id and f.state = {state.waiting} and f.due_at < j.due_at)) as enters
        from (select *, not (free or inside or deleted) as asks from job) as j
    )
    select array_agg(s.id) filter (where s.free or s.inside or s.enters),
           array_agg(s.id) filter (where s.enters), array_agg(s.schedule_id) filter (where s.enters),
           array_agg(s.id order by s.place) filter (where not (s.free or s.inside or s.enters))
    into starting, entering, entered, others
    from seen as s;
    if entering is not null then
        insert into rota.gate (schedule_id, job_id) select e.* from unnest(entered, entering) as e(schedule_id, job_id)
        on conflict do nothing;
    end if;
    foreach other in array coalesce(others, '{}') loop
        word := rota.begin_one(other);
        if word = 'start' then
            starting := starting || other;
        else
            job_id := other;
            verdict := word;
            return next;
        end if;
    end loop;
    update rota.present as p set started_at = rota.now() where p.id = any(starting);
    return query select s.id, 'start'::text from unnest(starting) as s(id);
end $$;

-- The same of one job that is locked, as is its schedule; without the mark of its start. Stale entries of the gate are gone.
create or replace function rota.begin_one(job uuid) returns text language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
declare
    mine record;
    plan record;
    waiting bigint;
    older uuid;
    verdict text := 'wait';
begin
    select p.id, p.schedule_id, p.due_at into mine from rota.present as p where p.id = job;
    select s.id, s.overlap, s.max_running, s.max_queued, s.drop_newest, s.deleted_at into plan
    from rota.schedule as s where s.id = mine.schedule_id;
    if plan.deleted_at is not null then
        -- As if the schedule were gone: what was due goes on, what was to come doesn't run.
        perform rota.skip_job(job, 'deleted');
        return 'skip';
    end if;
    if (select count(*) from rota.gate as g where g.schedule_id = plan.id) < coalesce(plan.max_running, 1) then
        if plan.overlap = {overlap.queue} then
            -- One that somebody else has locked, to cancel it say, keeps nobody waiting.
            select f.id into older from rota.future as f
            where f.schedule_id = plan.id and f.state = {state.waiting} and f.due_at < mine.due_at
            order by f.due_at limit 1 for update skip locked;
        end if;
        if older is null then
            insert into rota.gate (schedule_id, job_id) values (plan.id, job) on conflict do nothing;
            return 'start';
        end if;
        -- Or an older one would wait for as long as newer ones are ready whenever a place is free.
        perform rota.make_wait(job);
        perform rota.let_through(older);
        return 'wait';
    end if;
    if plan.overlap in ({overlap.allow}, {overlap.skip}) then
        perform rota.skip_job(job, 'overlap');
        return 'skip';
    end if;
    select count(*) into waiting from rota.future as f where f.schedule_id = plan.id and f.state = {state.waiting};
    if waiting >= plan.max_queued and (plan.drop_newest or plan.max_queued = 0) then
        verdict := 'skip';
        perform rota.skip_job(job, 'overlap_queue_full');
    else
        if waiting >= plan.max_queued then
            perform rota.skip_job((select f.id from rota.future as f
                where f.schedule_id = plan.id and f.state = {state.waiting} order by f.due_at limit 1), 'overlap_queue_full');
        end if;
        perform rota.make_wait(job);
    end if;
    if plan.overlap = {overlap.kill} then
        perform rota.stop_running(plan.id);
        perform rota.stop_runs(plan.id);
    end if;
    return verdict;
end $$;

-- From the present to the future, waiting for the one that runs.
create or replace function rota.make_wait(job uuid) returns void language sql volatile as $$
    with gone as (delete from rota.present where id = job returning *)
    {{insert rota.future, moved: state = {state.waiting}; attempt = attempt - 1}}
    from gone
$$;

-- From the future to the present: it may ask for its turn again.
create or replace function rota.let_through(job uuid) returns void language sql volatile as $$
    with moved as (
        delete from rota.future as f where f.id = job returning f.*
    ), readied as (
        {{insert rota.present, moved}}
        from moved
        returning namespace, lane, rank
    )
    select rota.hint(namespace, lane, rank, 1) from readied
$$;

-- overlap = kill: asks the running jobs to stop.
create or replace function rota.stop_running(schedule uuid) returns void language sql volatile as $$
    with asked as (
        update rota.present as p set cancel_at = coalesce(p.cancel_at, rota.now())
        from rota.gate as g
        where g.schedule_id = schedule and p.id = g.job_id and p.state = {state.running}
        returning p.id, p.node, p.token, p.namespace
    ), signalled as (
        insert into rota.signal as s (node, job_id, token, kind)
        select node, id, token, 'cancel' from asked
        on conflict (node, job_id) do update set token = excluded.token
    )
    select rota.notify_signal(namespace, node) from asked
$$;

-- The same for runs of workflows: as when they are cancelled. After the jobs, since a job that is just starting its run holds
-- its own lock until the run is there to be seen.
create or replace function rota.stop_runs(schedule uuid) returns void language plpgsql volatile as $$
declare
    its record;
begin
    for its in
        select r.id from rota.gate as g join rota.run as r on r.id = g.job_id
        where g.schedule_id = schedule and r.state = {run.running} and r.cancel_at is null
        order by r.id for update of r
    loop
        perform rota.close_run(its.id);
    end loop;
end $$;
