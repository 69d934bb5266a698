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

-- Whether a job that has entered the gate of its schedule still has its place: until it ends and, if it started a run of a
-- workflow, which has its id, until that run ends.
create or replace function rota.holds_place(job uuid) returns boolean language sql stable as $$
    select exists (select from rota.present as p where p.id = job)
        or exists (select from rota.future as f where f.id = job)
        or exists (select from rota.run as r where r.id = job and r.state = {run.running})
$$;

-- Before a scheduled job starts: may it, beside what its schedule already runs? Decided under the
-- schedule's row lock, so that any number of workers agree. Answers start, skip or wait for each; what
-- isn't ours any more gets no answer.
create or replace function rota.begin_scheduled(me uuid, ids uuid[], tokens bigint[])
    returns table (job_id uuid, verdict text) language plpgsql volatile
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    mine record;
    plan record;
    waiting bigint;
    older uuid;
begin
    for mine in
        select p.id, p.schedule_id, p.due_at from unnest(ids, tokens) as a(id, token)
        join rota.present as p on p.id = a.id and p.token = a.token
        where p.node = me and p.state = {state.running} and p.cancel_at is null
        order by p.schedule_id, p.rank, p.id
        for update of p
    loop
        job_id := mine.id;
        verdict := 'start';
        select s.id, s.overlap, s.max_running, s.max_queued, s.drop_newest, s.deleted_at into plan
        from rota.schedule as s where s.id = mine.schedule_id for update;
        if found and plan.deleted_at is not null then
            -- As if the schedule were gone: what was due goes on, what was to come doesn't run.
            if mine.due_at > plan.deleted_at then
                verdict := 'skip';
                perform rota.skip_job(mine.id, 'deleted');
            end if;
        elsif found and (plan.overlap <> {overlap.allow} or plan.max_running is not null) then
            delete from rota.gate as g where g.schedule_id = plan.id and not rota.holds_place(g.job_id);
            if exists (select from rota.gate as g where g.schedule_id = plan.id and g.job_id = mine.id) then
                null;  -- it has its place
            elsif (select count(*) from rota.gate as g where g.schedule_id = plan.id) < coalesce(plan.max_running, 1) then
                older := null;
                if plan.overlap = {overlap.queue} then
                    -- One that somebody else has locked, to cancel it say, keeps nobody waiting.
                    select f.id into older from rota.future as f
                    where f.schedule_id = plan.id and f.state = {state.waiting} and f.due_at < mine.due_at
                    order by f.due_at limit 1 for update skip locked;
                end if;
                if older is null then
                    insert into rota.gate (schedule_id, job_id) values (plan.id, mine.id) on conflict do nothing;
                else
                    -- Or an older one would wait for as long as newer ones are ready whenever a place is free.
                    verdict := 'wait';
                    perform rota.make_wait(mine.id);
                    perform rota.let_through(older);
                end if;
            elsif plan.overlap in ({overlap.allow}, {overlap.skip}) then
                verdict := 'skip';
                perform rota.skip_job(mine.id, 'overlap');
            else
                verdict := 'wait';
                select count(*) into waiting from rota.future as f where f.schedule_id = plan.id and f.state = {state.waiting};
                if waiting >= plan.max_queued and (plan.drop_newest or plan.max_queued = 0) then
                    verdict := 'skip';
                    perform rota.skip_job(mine.id, 'overlap_queue_full');
                else
                    if waiting >= plan.max_queued then
                        perform rota.skip_job((select f.id from rota.future as f
                            where f.schedule_id = plan.id and f.state = {state.waiting} order by f.due_at limit 1), 'overlap_queue_full');
                    end if;
                    perform rota.make_wait(mine.id);
                end if;
                if plan.overlap = {overlap.kill} then
                    perform rota.stop_running(plan.id);
                    perform rota.stop_runs(plan.id);
                end if;
            end if;
        end if;
        if verdict = 'start' then
            update rota.present as p set started_at = rota.now() where p.id = mine.id;
        end if;
        return next;
    end loop;
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
