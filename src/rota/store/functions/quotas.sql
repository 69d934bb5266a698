-- Depth limits. docs/architecture.md, "Quotas", describes the protocol.
--
-- `how` a job comes: 'own', in a transaction of Rota's with nothing else in it; 'bulk', in a longer one of Rota's; 'caller', in a
-- transaction of somebody else's; 'never': it is counted, and not refused, as steps, retries and what schedules fire.

-- Records that jobs have come to a queue, or, with a negative number, that they have left it; only of counted queues.
-- With its owner's rights, as the next ones: whoever submits needs no rights on these tables.
create or replace function rota.add_flow(space text, its_queue text, amount bigint) returns void
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    insert into rota.flow (namespace, queue, jobs)
    select q.namespace, q.name, amount from rota.queue as q
    where q.namespace = space collate "C" and q.name = its_queue collate "C" and q.intake is not null and amount <> 0;
end $$;

-- The same of jobs in a lane. For unlimited queues it only looks at the queue's row.
create or replace function rota.add_flow_of_lane(space text, its_lane text, amount bigint) returns void
    language plpgsql volatile as $$
begin
    if exists (select from rota.queue as q where q.namespace = space and q.name = rota.queue_of(its_lane) and q.intake is not null) then
        perform rota.add_flow(space, rota.queue_of(its_lane), amount);
    end if;
end $$;

-- Seconds after which so many jobs may have left, by how fast they have left lately.
create or replace function rota.seconds_to_leave(amount numeric, leaving float8) returns float8
    language sql immutable parallel safe as $$
    select case when leaving < 0.01 then 10.0 else least(greatest(amount::float8 / leaving, 1.0), 60.0) end
$$;

-- 0: there is room; 1: the limit is reached, or was and a fifth of it is not free yet; 2: twice the limit is reached.
create or replace function rota.shut_level(jobs bigint, max_depth bigint, before smallint) returns smallint
    language sql immutable parallel safe as $$
    select case when max_depth is null then 0
                when jobs >= 2 * max_depth then 2
                when jobs >= max_depth or (before > 0 and jobs > max_depth * 0.8) then 1
                else 0 end::smallint
$$;

-- Shuts and opens the queues of a namespace by their depths and that of the namespace. The caller has locked the
-- namespace's row.
create or replace function rota.judge_depths(space text) returns void language plpgsql volatile
    set enable_seqscan = off as $$
declare
    whole smallint;
begin
    update rota.depth as d
    set shut = rota.shut_level(d.jobs, d.max_depth, d.shut),
        shut_at = case when rota.shut_level(d.jobs, d.max_depth, d.shut) = 0 then null else coalesce(d.shut_at, rota.now()) end
    where d.namespace = space and d.shut <> rota.shut_level(d.jobs, d.max_depth, d.shut);
    whole := (select d.shut from rota.depth as d where d.namespace = space and d.queue = '');
    update rota.queue as q set intake = greatest(d.shut, whole)
    from rota.depth as d
    where d.namespace = space and d.queue <> '' and q.namespace = d.namespace and q.name = d.queue
      and q.intake is distinct from greatest(d.shut, whole);
end $$;

-- Adds the flows of a namespace to its depths. False: somebody else does it at the moment.
create or replace function rota.fold_flow(space text) returns boolean language plpgsql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
begin
    perform from rota.depth as d where d.namespace = space and d.queue = '' for update skip locked;
    if not found then
        return false;
    end if;
    -- A new statement, which sees what the fold before has committed. All flows of transactions that are older than the
    -- oldest in progress are seen, and taken, here: later folds begin there. A number that is too large is of another
    -- server, from which this database was restored.
    with since as materialized (
        select case when d.settled <= pg_snapshot_xmin(pg_current_snapshot()) then d.settled else '0'::xid8 end as xid,
               least(greatest(extract(epoch from rota.now() - d.folded_at)::float8, 0.001), 3600) as seconds
        from rota.depth as d where d.namespace = space and d.queue = ''
    ), taken as (
        delete from rota.flow as f where f.namespace = space and f.xid >= (select xid from since)
        returning f.queue, f.jobs
    ), total as (
        select coalesce(t.queue, '') as queue, sum(t.jobs) as jobs,
               coalesce(sum(t.jobs) filter (where t.jobs > 0), 0)::float8 as came,
               coalesce(-sum(t.jobs) filter (where t.jobs < 0), 0)::float8 as went
        from taken as t
        where exists (select from rota.depth as d where d.namespace = space and d.queue = t.queue)
        group by grouping sets ((t.queue), ())
    )
    update rota.depth as d
    set jobs = d.jobs + coalesce(t.jobs, 0), folded_at = rota.now(),
        -- An average of about ten seconds.
        arriving = d.arriving * exp(-s.seconds / 10) + coalesce(t.came, 0) / s.seconds * (1 - exp(-s.seconds / 10)),
        leaving = d.leaving * exp(-s.seconds / 10) + coalesce(t.went, 0) / s.seconds * (1 - exp(-s.seconds / 10)),
        settled = case when d.queue = '' then pg_snapshot_xmin(pg_current_snapshot()) else d.settled end
    from since as s, rota.depth as o left join total as t on t.queue = o.queue
    where o.namespace = space and d.namespace = o.namespace and d.queue = o.queue
      and (o.queue = '' or t.queue is not null or o.arriving + o.leaving > 0.001);
    perform rota.judge_depths(space);
    return true;
end $$;

-- Refuses jobs that a queue has no room for, or returns a warning about them, or null. Folds first where the numbers are a
-- tenth of a second old, or there is little room left; if another one is folding, it reads what that may not have seen: so
-- the depth exceeds the limit by no more than what others submit in that time, or are storing at the same moment. A refusal undoes its fold: whoever is refused folds once more (store/jobs.py), so that the
-- next ones are refused without.
create or replace function rota.check_intake(space text, its_queue text, amount bigint, how text) returns text
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    d record;
    marker text := 'rota.came_' || md5(space || '/' || its_queue);
    before bigint := 0;
    unfolded boolean := false;
    subject text;
    problem text;
    wait float8;
begin
    if how = 'never' or amount <= 0 then
        return null;
    end if;
    if how = 'own' and exists (
        select from rota.depth as o where o.namespace = space collate "C" and o.queue in ('', its_queue collate "C")
        and (o.folded_at not between rota.now() - interval '0.1 seconds' and rota.now()
             or o.shut = 0 and o.max_depth - o.jobs < 1000 + amount))
    then
        unfolded := not rota.fold_flow(space);  -- another one folds, and may take a while to commit
    end if;
    if how = 'caller' then
        -- What this transaction has submitted before is in nobody's count yet.
        before := coalesce(nullif(current_setting(marker, true), '')::bigint, 0);
        perform set_config(marker, (before + amount)::text, true);
    end if;
    -- One statement: of a fold that commits meanwhile it sees all or nothing.
    for d in select o.*, case when unfolded then coalesce((
                        select sum(f.jobs) from rota.flow as f
                        where f.namespace = space collate "C" and (o.queue = '' or f.queue = o.queue)), 0) else 0 end as pending
             from rota.depth as o
             where o.namespace = space collate "C" and o.queue in ('', its_queue collate "C") and o.max_depth is not null
             order by o.queue desc
    loop
        d.jobs := d.jobs + d.pending;
        continue when case how when 'caller' then d.jobs + before + amount <= d.max_depth and d.shut = 0
                               else d.jobs + amount <= d.max_depth and d.shut = 0 end;
        subject := case d.queue when '' then format('namespace %L', space) else format('queue %L', its_queue) end;
        wait := rota.seconds_to_leave(greatest(d.jobs + amount - d.max_depth, d.jobs - d.max_depth * 0.8), d.leaving);
        if how = 'caller' and d.shut < 2 and d.jobs + before + amount <= 2 * d.max_depth then
            problem := format('%s has %s jobs that have not ended, and its max_depth is %s: from %s on, submits in your own '
                              'transactions are refused, too', subject, d.jobs + before, d.max_depth, 2 * d.max_depth);
            raise warning using errcode = '01RT4', message = 'rota: ' || problem;
            return problem;
        end if;
        if amount > d.max_depth then
            problem := format('%s jobs at once are more than the max_depth of %s, %s', amount, subject, d.max_depth);
            wait := null;
        else
            problem := format('%s has %s jobs that have not ended, and its max_depth is %s', subject, d.jobs + before, d.max_depth)
                || case when d.shut > 0 then format(' (it takes jobs again at %s)', floor(d.max_depth * 0.8)) else '' end;
        end if;
        raise exception using errcode = 'RT004', message = 'rota: ' || problem,
            detail = json_build_object('queue', its_queue, 'namespace', space, 'depth', d.jobs + before, 'max_depth', d.max_depth,
                'quota', case d.queue when '' then 'namespace' else 'queue' end, 'retry_after', round(wait::numeric, 1))::text,
            hint = case when wait is null then 'Nothing was submitted. Submit fewer at once, or raise max_depth.'
                        else format('Nothing was submitted. Try again in %s s, or raise max_depth.', ceil(wait)) end;
    end loop;
    return null;
end $$;

create or replace function rota.count_new_queue() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    whole record;
begin
    select d.shut into whole from rota.depth as d
    where d.namespace = new.namespace and d.queue = '' and d.max_depth is not null;
    if found then
        new.intake := whole.shut;
        insert into rota.depth (namespace, queue) values (new.namespace, new.name) on conflict do nothing;
    end if;
    return new;
end $$;

-- Sets the limit of a queue, or with an empty name that of the namespace; null: none. Queues are counted from here on, or
-- no longer. What they hold already is counted by rota.recount_depth().
create or replace function rota.set_max_depth(space text, its_queue text, most bigint) returns void
    language plpgsql volatile as $$
declare
    whole bigint;
begin
    insert into rota.depth (namespace, queue, recount_at) values (space, '', null) on conflict do nothing;
    perform from rota.depth as d where d.namespace = space and d.queue = '' for update;
    if its_queue <> '' then
        insert into rota.queue (namespace, name) values (space, its_queue) on conflict do nothing;
        insert into rota.depth (namespace, queue) values (space, its_queue) on conflict do nothing;
    end if;
    update rota.depth as d set max_depth = most where d.namespace = space and d.queue = its_queue;
    whole := (select d.max_depth from rota.depth as d where d.namespace = space and d.queue = '');
    if whole is not null then
        insert into rota.depth (namespace, queue)
        select q.namespace, q.name from rota.queue as q where q.namespace = space on conflict do nothing;
    else
        with gone as (
            delete from rota.depth as d where d.namespace = space and d.queue <> '' and d.max_depth is null
            returning d.queue, d.jobs
        ), fewer as (
            update rota.depth as d set jobs = d.jobs - (select coalesce(sum(g.jobs), 0) from gone as g)
            where d.namespace = space and d.queue = ''
        )
        update rota.queue as q set intake = null where q.namespace = space and q.name in (select g.queue from gone as g);
        if not exists (select from rota.depth as d where d.namespace = space and d.queue <> '') then
            delete from rota.depth as d where d.namespace = space;
            delete from rota.flow as f where f.namespace = space;
            return;
        end if;
    end if;
    perform rota.judge_depths(space);
end $$;

-- Counts the jobs of a queue one by one, and corrects its depth by what that was wrong. Returns the correction; null:
-- the queue is not counted, or somebody else counts it. One snapshot shows the jobs, the depth and what has not been added
-- to it: whatever is folded meanwhile, the difference stays the same.
create or replace function rota.recount_depth(space text, its_queue text) returns bigint language plpgsql volatile as $$
declare
    base text := space || '/' || its_queue;
    wrong bigint;
    began timestamptz := clock_timestamp() - statement_timestamp() + rota.now();
    ended timestamptz;
begin
    if not pg_try_advisory_xact_lock(hashtextextended('rota.recount/' || base, 0)) then
        return null;
    end if;
    select (select count(*) from rota.present as p where p.lane = base collate "C")
         + (select count(*) from rota.present as p where p.lane >= (base || '#') collate "C" and p.lane < (base || '$') collate "C")
         + (select count(*) from rota.present as p where p.lane >= (base || '+') collate "C" and p.lane < (base || ',') collate "C")
         + (select count(*) from rota.future as f where f.namespace = space and rota.queue_of(f.lane) = its_queue)
         - d.jobs
         - coalesce((select sum(f.jobs) from rota.flow as f where f.namespace = space and f.queue = its_queue), 0)
    into wrong from rota.depth as d where d.namespace = space and d.queue = its_queue;
    if wrong is null then
        return null;
    end if;
    ended := clock_timestamp() - statement_timestamp() + rota.now();
    perform from rota.depth as d where d.namespace = space and d.queue = '' for update;
    update rota.depth as d
    set jobs = d.jobs + wrong, drift = d.drift + case when d.counted_at is null then 0 else abs(wrong) end,
        counted_at = rota.now(),
        -- Once more soon after the first: transactions that began before the limit was set are over by then. Afterwards it
        -- takes at most a two-hundredth of the time.
        recount_at = rota.now() + case when d.counted_at is null then interval '5 seconds'
            else greatest(interval '10 minutes', 200 * (ended - began)) end
    where d.namespace = space and d.queue = its_queue;
    update rota.depth as d
    set jobs = (select coalesce(sum(o.jobs), 0) from rota.depth as o where o.namespace = space and o.queue <> '')
    where d.namespace = space and d.queue = '';
    perform rota.judge_depths(space);
    return wrong;
end $$;

create or replace function rota.is_new_lane(its_lane text) returns boolean
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    return exists (select from rota.new_lane as l where l.lane = its_lane collate "C");
end $$;

-- Keeps a lane for which there is no row yet, for rota.settle_lanes(). For transactions that may take long: an insert into
-- rota.lane would make all others wait for them.
create or replace function rota.note_new_lane(its_lane text) returns void
    language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
begin
    if not rota.is_new_lane(its_lane) then
        insert into rota.new_lane (lane, namespace, queue, needs)
        values (its_lane, split_part(its_lane, '/', 1), rota.queue_of(its_lane), rota.needs_of(its_lane));
    end if;
end $$;

-- Moves lanes that callers' own transactions have used first to where they belong. Returns how many.
create or replace function rota.settle_lanes() returns bigint language plpgsql volatile as $$
declare
    moved bigint;
begin
    if not exists (select from rota.new_lane) then
        return 0;
    end if;
    with taken as materialized (
        delete from rota.new_lane where ctid = any(array(select ctid from rota.new_lane limit 1000 for update skip locked))
        returning *
    ), queues as (
        insert into rota.queue (namespace, name) select distinct t.namespace, t.queue from taken as t order by 1, 2
        on conflict do nothing
    ), lanes as (
        insert into rota.lane (lane, namespace, queue, needs)
        select distinct on (t.lane) t.lane, t.namespace, t.queue, t.needs from taken as t order by t.lane
        on conflict do nothing
    )
    select count(*) into moved from taken;
    return moved;
end $$;

-- Whether a token may submit so many jobs now: all servers ask here. Returns the seconds to wait, or null. More than a
-- second's worth at once is admitted as a debt, or nobody could ever submit a large bulk.
create or replace function rota.admit_token(its_id uuid, jobs bigint) returns float8 language plpgsql volatile as $$
declare
    t record;
    now timestamptz;
    burst float8;
begin
    select submits_per_second, allowance, refilled_at into t from rota.api_token where id = its_id for update;
    if t.submits_per_second is null then
        return null;
    end if;
    now := clock_timestamp() - statement_timestamp() + rota.now();  -- after waiting for the lock
    burst := greatest(t.submits_per_second, 1);
    t.allowance := case when isfinite(t.refilled_at) then least(burst, t.allowance + t.submits_per_second
        * least(greatest(extract(epoch from now - t.refilled_at), 0), 86400)) else burst end;
    if t.allowance < least(jobs, burst) then
        return (least(jobs, burst) - t.allowance) / t.submits_per_second;
    end if;
    update rota.api_token set allowance = t.allowance - jobs, refilled_at = now where id = its_id;
    return null;
end $$;
