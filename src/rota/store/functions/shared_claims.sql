-- Claims from sublanes, under limits and in order. docs/architecture.md, "Limits", describes the protocol.

-- Makes sublanes of what has arrived, and wakes those that were idle. Waits for claims that hold one of them: what
-- they decide ("nothing is left") was decided before these jobs could be seen. Returns whether anything has arrived: then
-- the caller holds sublanes, and must not wait for others.
create or replace function rota.fold_arrivals(bases text[]) returns boolean language plpgsql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $$
begin
    insert into rota.sublane (lane, base, namespace, queue, share, head, fair)
    select b.base, b.base, q.namespace, q.name, '',
           case when q.policy = 'fair' then rota.fair_floor(b.base) else -9223372036854775808 end, q.policy = 'fair'
    from unnest(bases) as b(base)
    join rota.queue as q on q.namespace = split_part(b.base, '/', 1) and q.name = rota.queue_of(b.base)
    where q.governed and not exists (select from rota.sublane as s where s.lane = b.base)
    order by b.base
    on conflict do nothing;

    -- One pass in the order of lanes, for what has come and for what has ended: claims can't wait for each other in a
    -- circle. In a fair queue a sublane that was idle begins where the others are, without credit.
    with seen as (
        delete from rota.arrival as a
        where a.ctid = any(array(
            select a.ctid from rota.arrival as a where a.base = any(bases) limit 2000 for update skip locked))
        returning a.lane, a.base, a.namespace, a.rank, a.jobs, a.seconds
    ), arrived as (
        select lane, base, namespace, min(rank) as head, sum(jobs)::int as jobs, sum(seconds) as seconds from seen
        group by 1, 2, 3
    )
    insert into rota.sublane as s (lane, base, namespace, queue, share, fair_key, head, fair, state, outstanding, served, low)
    select a.lane, a.base, a.namespace, q.name, p.share, coalesce(rota.share_part(p.share, 'f'), ''),
           case when q.policy = 'fair' then rota.fair_floor(a.base) else coalesce(a.head, 9223372036854775807) end,
           q.policy = 'fair', case when a.head is null then 2 else 1 end, a.jobs, a.seconds,
           coalesce(a.head, 9223372036854775807)
    from arrived as a
    join rota.queue as q on q.namespace = a.namespace and q.name = rota.queue_of(a.lane)
    cross join lateral (
        select s.share from rota.sublane as s where s.lane = a.lane
        union all
        select p.share from (select p.share from rota.present as p where p.lane = a.lane and p.share is not null limit 1) as p
        limit 1) as p
    order by a.lane
    on conflict (lane) do update
    set state = case when excluded.state = 2 or s.state = 3 and s.blocked_on is not null then s.state else 1 end,
        recheck_at = case when excluded.state = 2 or s.state = 3 and s.blocked_on is not null then s.recheck_at end,
        head = case when not s.fair then least(s.head, excluded.head)
                    else greatest(
                        s.head + case when excluded.outstanding = 0 then 0 else
                            ((rota.fair_seconds(s.base, s.fair_key, excluded.outstanding, excluded.served)
                              - rota.charged_for(s.outstanding, s.charged, excluded.outstanding))
                             / rota.fair_weight_of(s.namespace, s.queue, s.base, s.fair_key) * 1000000)::bigint end,
                        case when s.state = 2 and excluded.state = 1 then excluded.head end) end,
        cost = case when excluded.outstanding = 0 or not s.fair then s.cost
                    else greatest(s.cost + (1 - power(0.9, least(excluded.outstanding, 1000)))
                                           * (excluded.served / excluded.outstanding - s.cost), 0.0001) end,
        charged = s.charged - rota.charged_for(s.outstanding, s.charged, excluded.outstanding),
        outstanding = greatest(s.outstanding - excluded.outstanding, 0),
        served = s.served + excluded.served,
        changed_at = case when s.state = 2 and excluded.state = 1 then rota.now() else s.changed_at end,
        low = least(s.low, excluded.low);
    return found;
end $$;

-- The lowest virtual time of what is ready in a fair queue, or the highest of all when nothing is. A share begins there.
create or replace function rota.fair_floor(its_base text) returns bigint language sql volatile
    set enable_seqscan = off as $$
    select coalesce(
        (select s.head from rota.sublane as s where s.base = its_base and s.state = 1 and s.share <> '' order by s.head limit 1),
        (select s.head from rota.sublane as s where s.base = its_base and s.share <> '' order by s.head desc limit 1), 0)
$$;

-- What part of the weight of its key a sublane has: the ready ones of a key share it.
create or replace function rota.fair_weight_of(space text, its_queue text, its_base text, its_key text) returns float8
    language sql volatile set enable_seqscan = off as $$
    select coalesce((select w.weight from rota.fair_weight as w
                     where w.namespace = space and w.queue = its_queue and w.key = its_key), 1)
           / greatest((select count(*) from (
                select from rota.sublane as o where o.base = its_base and o.fair_key = its_key and o.state = 1 limit 1000) as o), 1)
$$;

-- Of the seconds that jobs have run, those that a share of a fair queue pays for: the ones in which another share waited.
-- A job that ran for hours while nobody else wanted its slot must not keep its share waiting for as long afterwards. Only
-- long runs are looked at: what is short makes no difference, and ends too often for a look at who waits.
create or replace function rota.fair_seconds(its_base text, its_key text, jobs int, seconds float8) returns float8
    language sql volatile set enable_seqscan = off as $$
    select case when seconds <= jobs * 10.0 then seconds else least(seconds, jobs * greatest(10.0, (
        select extract(epoch from rota.now() - min(o.changed_at))::float8 from rota.sublane as o
        where o.base = its_base and o.state = 1 and o.share <> '' and o.fair_key <> its_key))) end
$$;

-- The seconds that were charged for so many of a sublane's jobs.
create or replace function rota.charged_for(outstanding int, charged float8, jobs int) returns float8
    language sql immutable parallel safe as $$
    select case when outstanding > 0 then charged * least(jobs::float8 / outstanding, 1) else 0 end
$$;

-- Opens blocked sublanes for which there may be room: where jobs have ended in `freed` lanes, and where it is time to
-- look again. Nothing is decided here; the claim counts under the lock.
create or replace function rota.reopen(space text, bases text[], freed text[]) returns void language plpgsql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set plan_cache_mode = force_generic_plan
as $$
declare
    full_one record;
begin
    update rota.sublane as s set state = 1, recheck_at = null
    where s.ctid = any(array(
        select s.ctid from rota.sublane as s
        where s.base = any(bases) and s.recheck_at <= rota.now() limit 200 for no key update skip locked));
    if freed <> '{}' then
        update rota.sublane as s set state = 1, recheck_at = null
        where s.ctid = any(array(
            select s.ctid from rota.sublane as s
            where s.state = 3 and s.blocked_on is null and s.lane = any(freed || array(
                select o.lane from rota.sublane as f
                join rota.sublane as o on o.namespace = f.namespace and o.queue = f.queue
                     and rota.share_part(o.share, 'o') = rota.share_part(f.share, 'o')
                where f.lane = any(freed) and rota.share_part(f.share, 'o') is not null and o.lane <> f.lane))
            for no key update skip locked));
    end if;
    for full_one in
        select m.name, m.most, m.spacing, m.burst, m.next_at, coalesce(rota.is_due(m.recheck_at), false) as due from rota.meter as m
        where m.namespace = space and m.recheck_at is not null
          and (rota.is_due(m.recheck_at) or (freed <> '{}' and m.name = any(array(
               select o.name from rota.sublane as s cross join lateral rota.meters_of(space, s.queue, s.share) as o
               where s.lane = any(freed)))))
        limit 50
    loop
        -- One at least when it is time to look again: the limit may be another by now.
        update rota.sublane as s set state = 1, blocked_on = null
        where s.ctid = any(array(
            select s.ctid from rota.sublane as s
            where s.namespace = space and s.blocked_on = full_one.name and s.state = 3
              -- Its place is ours to fill; others are looked at when it is time to.
              and (full_one.due or s.base = any(bases))
            order by s.head
            limit least(greatest(
                case when full_one.spacing is null
                     then full_one.most - rota.count_held(space, full_one.name) - rota.allotted(space, full_one.name)
                     else rota.starts_at(full_one.next_at, full_one.spacing, full_one.burst, rota.now()) end,
                full_one.due::int), 100)
            for no key update skip locked));
    end loop;
end $$;

-- Whether it is time to look at a limit again. It is looked at every ten seconds at least, because its numbers may have
-- changed: what is later is of a time before the clock was set back.
create or replace function rota.is_due(recheck_at timestamptz) returns boolean language sql stable as $$
    select recheck_at <= rota.now() or recheck_at > rota.now() + interval '11 seconds'
$$;

-- When to look again at limits that block something. Passes over rows that another claim has locked.
create or replace function rota.plan_rechecks(space text) returns void language sql volatile as $$
    update rota.meter as m
    set recheck_at = case when exists (
            select from rota.sublane as s where s.namespace = space and s.blocked_on = m.name and s.state = 3)
        then greatest(rota.now() + case when m.spacing is null then interval '1 second' else interval '20 milliseconds' end,
                      least(m.next_at - (m.burst - 1) * m.spacing * interval '1 second', rota.now() + interval '10 seconds')) end
    where m.ctid = any(array(
        select m.ctid from rota.meter as m
        where m.namespace = space and rota.is_due(m.recheck_at) limit 50 for no key update skip locked))
$$;

-- Whether the next job of an order_key may start in a sublane, and which: 'go' with the job that went first before and goes
-- again or, if null, whichever is first; 'wait' and when to look again. The job that went last holds its place until it has
-- ended: running, waiting for its retry, or, with `hold`, failed. The jobs of a key may lie in several sublanes: claims of
-- all of them go one after another, by a lock of the key that nobody waits for.
create or replace function rota.next_in_order(space text, its_queue text, its_lane text, its_key text, out verdict text,
    out job uuid, out recheck timestamptz) language plpgsql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    one record;
    found_row record;
    on_failure text;
    mine record;
    most_at_once constant int := 10000;
    dropped int;
begin
    if not pg_try_advisory_xact_lock(hashtextextended('rota.order/' || space || '/' || its_queue || '/' || its_key, 0)) then
        verdict := 'wait';
        recheck := rota.now() + interval '20 milliseconds';
        return;
    end if;
    verdict := 'go';
    for one in  -- a new statement: it sees what those who had the lock before have committed
        select s.lane, s.share, s.order_job, s.low from rota.sublane as s
        where s.namespace = space and s.queue = its_queue and rota.share_part(s.share, 'o') = its_key
        order by s.lane <> its_lane, s.lane
    loop
        if one.order_job is not null then
            on_failure := rota.share_part(one.share, 'x');
            -- One statement: between two it might go from the table that is looked into last to the one that was first.
            select p.state, p.due_at into found_row from rota.present as p where p.id = one.order_job
            union all select {state.scheduled}, f.due_at from rota.future as f where f.id = one.order_job
            union all select {state.failed}, null from rota.dead as d where d.id = one.order_job and on_failure is not null;
            if found_row.state <> {state.failed} then
                if one.lane = its_lane and found_row.state = {state.ready} and found_row.due_at <= rota.now() then
                    job := one.order_job;
                    return;
                end if;
                verdict := 'wait';
                recheck := least(greatest(found_row.due_at, rota.now() + interval '1 second'), rota.now() + interval '10 seconds');
                return;
            elsif found_row.state = {state.failed} then
                if on_failure = 'hold' then
                    verdict := 'wait';
                    recheck := rota.now() + interval '2 seconds';
                    return;
                end if;
                with gone as (
                    delete from rota.present as p where p.id = any(array(
                        select p.id from rota.present as p
                        where p.lane in (
                            select s.lane from rota.sublane as s
                            where s.namespace = space and s.queue = its_queue and rota.share_part(s.share, 'o') = its_key)
                          and p.state = {state.ready} limit most_at_once for update skip locked))
                    returning {{columns moved}}
                )
                {{insert rota.past, ended: state = {state.cancelled}; token = null; node = null; started_at = null; progress = null;
                    error = json_build_object('type', 'OrderDropped',
                        'message', 'the job before it of its order_key failed: ' || one.order_job)}}
                from gone;
                get diagnostics dropped = row_count;
                if dropped = most_at_once then
                    verdict := 'wait';  -- there may be more
                    recheck := rota.now() + interval '20 milliseconds';
                    return;
                end if;
                update rota.sublane as s set order_job = null where s.lane = one.lane;  -- those that come later are not behind it
            end if;
        end if;
        -- What waits in another of its sublanes goes first if it came first.
        if one.lane = its_lane then
            select p.rank, p.id into mine from rota.present as p
            where p.lane = one.lane and p.rank >= one.low and p.state = {state.ready} and p.due_at <= rota.now()
            order by p.rank, p.id limit 1;
            continue;
        end if;
        select p.rank, p.id into found_row from rota.present as p
        where p.lane = one.lane and p.rank >= one.low and p.state = {state.ready} and p.due_at <= rota.now()
        order by p.rank, p.id limit 1;
        if (found_row.rank, found_row.id) < (mine.rank, mine.id) then
            verdict := 'wait';
            recheck := least(recheck, rota.now() + interval '250 milliseconds');
        end if;
    end loop;
end $$;

-- Of these lanes, those whose jobs are under limits of whole queues and tasks alone: they run under allotments.
create or replace function rota.wide_lanes(space text, lanes text[]) returns text[] language sql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select coalesce(array_agg(s.lane), '{}') from rota.sublane as s
    where s.lane = any(lanes) and not s.fair and s.share ~ '^(t=[^&]*)?(&?q=[^&]*)?$' and (
        select bool_and(o.spacing is null and o.its_key is null) from rota.meters_of(space, s.queue, s.share) as o)
$$;

-- What a claim answers beside its jobs to a node that keeps allotments: a row without an id.
create or replace function rota.note_of_claim(lanes jsonb, allowed jsonb, more jsonb)
    returns table (id uuid, task text, payload json, token bigint, attempt smallint, max_attempts smallint,
        guarantee smallint, timeout real, crashes smallint, rank bigint, priority smallint, key text, headers json,
        schedule_id uuid, lane text, run_id uuid, step int, early float8, due_at timestamptz) language sql immutable as $$
    select null::uuid, null::text, json_build_object('lanes', lanes, 'allowed', allowed, 'more', more), null::bigint, null::smallint,
           null::smallint, null::smallint, null::real, null::smallint, null::bigint, null::smallint, null::text, null::json,
           null::uuid, null::text, null::uuid, null::int, null::float8, null::timestamptz
$$;

-- Up to wanted[i] jobs of the sublanes of bases[i], and `most` in all, under one new token. In the lanes `freed` so many
-- jobs have `ended`, which had run so many `seconds`. `asked`: the request of an
-- HTTP worker, which is noted in the batch. `gates`: of a node that keeps allotments, what it has of them: `turn`, the
-- number of this change; `free` slots and `slots` in all; `held`, by limit: the most that it runs until it has our
-- answer, the jobs that it has, how many more it may have ahead, and the slots of the runners of its jobs; `lows`, by lane: the
-- rank to begin at; `full`, by base: of how many sublanes it has all that it may run, which others are looked at besides. It
-- gets a row without an id, whose payload says what it may run. Each statement below sees what was committed
-- before it: first the locks, then the counts, then the claim.
create or replace function rota.claim_shared(me uuid, bases text[], wanted int[], most int, tasks text[], freed text[],
        ended int[] default '{}', seconds float8[] default '{}', asked text default null, this_try bigint default null,
        gates jsonb default null)
    returns table (id uuid, task text, payload json, token bigint, attempt smallint, max_attempts smallint,
        guarantee smallint, timeout real, crashes smallint, rank bigint, priority smallint, key text, headers json,
        schedule_id uuid, lane text, run_id uuid, step int, early float8, due_at timestamptz) language plpgsql volatile
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    space text := split_part(bases[1], '/', 1);
    new_token bigint;
    remote boolean := asked is not null;
    arrived boolean;
    lanes text[];
    metered text[] := '{}';   -- lanes, and beside each one of its limits
    meters text[] := '{}';
    full_ones text[] := '{}';
    rooms jsonb := '{}';
    taken uuid[] := '{}';
    part uuid[];
    c record;
    each_one record;
    moment timestamptz;
    latest timestamptz;
    verdict text;
    first_job uuid;  -- of an order_key: the one that goes first
    first_rank bigint;
    later timestamptz;
    n int;
    closed text[];            -- lanes without room: what they can't take is left to others
    spare jsonb;              -- by limit of an allotment: how many more we may have, before this claim
    wide text[] := '{}';      -- lanes whose jobs run under allotments
    allowed jsonb := '{}';    -- by limit: how many of them we may run
    answer jsonb := '{}';     -- by lane: its limits, and whether there may be more in it
    its_gates text[];
    headroom jsonb;           -- by limit: how many more we may have
    got jsonb := '{}';        -- by limit: how many we have taken
    granted jsonb := '{}';    -- by limit: how many start by places of their own, or under a rate
    more jsonb := '{}';       -- the limits whose lanes may have more
    singles int;
begin
    if freed <> '{}' then
        insert into rota.arrival (base, lane, namespace, jobs, seconds)
        select split_part(f.lane, '#', 1), f.lane, space, f.jobs, f.seconds from unnest(freed, ended, seconds) as f(lane, jobs, seconds)
        where exists (select from rota.sublane as s where s.lane = f.lane and s.fair);
    end if;
    arrived := rota.fold_arrivals(bases);
    perform rota.reopen(space, bases, freed);
    lanes := array(
        select s.lane from unnest(bases, wanted) as w(base, slots)
        cross join lateral (
            select s.lane from rota.sublane as s
            where s.base = w.base and s.state = 1
              and (rota.share_part(s.share, 't') is null or rota.share_part(s.share, 't') = any(tasks))
            order by s.head limit least(w.slots, 100) + 1 + least(coalesce((gates -> 'full' ->> w.base)::int, 0), 100)
            for no key update skip locked) as s
        where w.slots > 0 and not exists (
            select from rota.queue as q
            where q.namespace = space and q.name = rota.queue_of(w.base) and q.paused_at is not null));
    if lanes = '{}' and not arrived then
        -- All that is ready is in other claims' hands: wait for the first, and not for another turn.
        lanes := array(
            select s.lane from rota.sublane as s
            where s.base = any(bases) and s.state = 1
              and (rota.share_part(s.share, 't') is null or rota.share_part(s.share, 't') = any(tasks))
              and not exists (
                select from rota.queue as q where q.namespace = space and q.name = s.queue and q.paused_at is not null)
            order by s.head limit 1 for no key update);
    end if;
    if lanes <> '{}' and exists (
        select from rota.queue as q
        where q.namespace = space and q.sorting and q.name = any(array(select rota.queue_of(b.base) from unnest(bases) as b(base))))
    then
        lanes := rota.sort_lanes(space, lanes);
    end if;
    if lanes = '{}' then
        perform rota.plan_rechecks(space);
        if gates -> 'held' <> '{}' then
            return query select * from rota.note_of_claim(answer, allowed, more);  -- of its limits nothing is ready
        end if;
        return;
    end if;

    -- The limits of these sublanes, locked in the order of their names: claims can't wait for each other in a circle.
    select coalesce(array_agg(s.lane), '{}'), coalesce(array_agg(o.name), '{}') into metered, meters
    from rota.sublane as s cross join lateral rota.meters_of(space, s.queue, s.share) as o
    where s.lane = any(lanes);
    if meters <> '{}' then
        insert into rota.meter (namespace, name, most, spacing, burst)
        select distinct on (o.name) space, o.name, o.most, o.spacing, o.burst
        from rota.sublane as s cross join lateral rota.meters_of(space, s.queue, s.share) as o
        where s.lane = any(lanes) and not exists (
            select from rota.meter as m where m.namespace = space and m.name = o.name collate "C")
        order by o.name
        on conflict do nothing;
        perform from rota.meter as m where m.namespace = space and m.name = any(meters)
        order by m.name for no key update;
        if (select count(*) from rota.meter as m where m.namespace = space and m.name = any(meters))
           < (select count(distinct o) from unnest(meters) as o)
        then
            return;  -- one was removed as unused before we could lock it: the next claim makes it again
        end if;
        -- From here on nobody else claims under these limits, and what others have claimed can be seen. The time that has
        -- passed since this statement began counts, by waiting or by its first plans: or what it grants would start
        -- later than the moment it was granted for, together with what the next claim grants.
        moment := clock_timestamp() - statement_timestamp() + rota.now();
        if gates is not null then
            wide := rota.wide_lanes(space, lanes);
        end if;
        for each_one in
            select distinct on (o.name) o.*, r.held, r.next_at,
                   r.recheck_at > rota.now() and r.recheck_at <= rota.now() + interval '50 milliseconds' as not_yet,
                   bool_or(s.lane = any(wide)) over (partition by o.name) as wide,
                   bool_or(s.lane <> all(wide)) over (partition by o.name) as single, r.created_at > rota.now() - interval '10 seconds'
                   or r.used_at < rota.now() - interval '5 seconds' as is_new
            from rota.sublane as s cross join lateral rota.meters_of(space, s.queue, s.share) as o
            join rota.meter as r on r.namespace = space and r.name = o.name collate "C"
            where s.lane = any(lanes)
        loop
            if each_one.spacing is not null then
                -- All that a rate can have granted. What is later was by another rate, or before the clock was set back.
                latest := moment + each_one.burst * each_one.spacing * interval '1 second';
                if each_one.next_at > latest then
                    update rota.meter as r set next_at = latest where r.namespace = space and r.name = each_one.name;
                    each_one.next_at := latest;
                end if;
                rooms := rooms || jsonb_build_object(
                    each_one.name, case when each_one.not_yet then 0 else
                        rota.starts_at(each_one.next_at, each_one.spacing, each_one.burst, moment) end);
                update rota.meter as r set spacing = each_one.spacing, burst = each_one.burst
                where r.namespace = space and r.name = each_one.name
                  and (r.spacing, r.burst) is distinct from (each_one.spacing, each_one.burst);
                continue;
            end if;
            if each_one.is_new then
                perform rota.seed_meter(space, each_one.name, each_one.kind, each_one.subject, each_one.its_key);
            end if;
            n := case when each_one.its_key is null then rota.allotted(space, each_one.name) else 0 end;
            if each_one.is_new or each_one.held > 0 and each_one.held + n + claim_shared.most > each_one.most then
                singles := rota.recount(space, each_one.name);
            else
                singles := each_one.held;
            end if;
            if each_one.single and singles + n >= each_one.most and n > 0 then
                perform rota.wish_for_places(space, each_one.name, singles + claim_shared.most);
            end if;
            if each_one.wide then
                n := rota.allot(me, space, (gates ->> 'turn')::bigint, each_one.name, each_one.most, singles,
                        coalesce((gates -> 'held' -> each_one.name ->> 0)::int, 0),
                        least(coalesce((gates -> 'held' -> each_one.name ->> 3)::int, (gates ->> 'slots')::int),
                              coalesce((gates -> 'held' -> each_one.name ->> 1)::int, 0) + (gates ->> 'free')::int));
                if n is null then
                    return;  -- a later claim of this node has come first
                end if;
                allowed := allowed || jsonb_build_object(each_one.name, n);
                n := rota.allotted(space, each_one.name);
            end if;
            rooms := rooms || jsonb_build_object(each_one.name, each_one.most - singles - n);
            update rota.meter as r set most = each_one.most
            where r.namespace = space and r.name = each_one.name and r.most <> each_one.most;
        end loop;
    end if;

    -- What it may run and doesn't have yet, and some ahead.
    spare := (
        select jsonb_object_agg(a.name, a.places::int - coalesce((gates -> 'held' -> a.name ->> 1)::int, 0)
            + case when a.places::int > 0 then coalesce((gates -> 'held' -> a.name ->> 2)::int, 0) else 0 end)
        from jsonb_each_text(allowed) as a(name, places));
    closed := array(
        select t.lane from unnest(metered, meters) as t(lane, meter)
        where (case when t.lane = any(wide) then spare else rooms end ->> t.meter)::int <= 0);
    new_token := nextval('rota.token');
    for c in
        with seen as (
            select s.lane, s.base, w.slots, p.id,
                   case when not s.fair then p.rank
                        else s.head + (e.step * (row_number() over (partition by s.lane order by p.rank, p.id) - 1))::bigint
                   end as rank
            from rota.sublane as s
            cross join lateral (
                select case when s.fair then s.cost / rota.fair_weight_of(s.namespace, s.queue, s.base, s.fair_key) * 1000000 end as step) as e
            join unnest(bases, wanted) as w(base, slots) on w.base = s.base
            cross join lateral (
                select p.rank, p.id from rota.present as p
                where p.lane = s.lane and p.rank >= rota.looks_from(s.share, s.low, (gates -> 'lows' ->> s.lane)::bigint)
                  and p.state = {state.ready} and p.due_at <= rota.now()
                  and p.task = any(tasks)
                  and not (remote and p.guarantee = {guarantee.exactly_once})
                order by p.rank, p.id
                limit case when rota.share_part(s.share, 'o') is null then w.slots else 1 end) as p
            where s.lane = any(lanes) and cardinality(lanes) > 1
        ), numbered as (
            select e.lane, e.base, e.slots, row_number() over (partition by e.base, e.lane = any(closed) order by e.rank, e.id) as place
            from seen as e
        ), offered as (
            -- `most` is for all of them: the first job of each base, then the second of each, beginning at another base
            -- with each claim. By rank a base with a backlog would take it all, and ranks of fair queues are none.
            select n.*, row_number() over (partition by n.lane = any(wide) or n.lane = any(closed)
                                           order by n.place, hashint8extended(b.nr, new_token)) as turn
            from numbered as n join unnest(bases) with ordinality as b(base, nr) on b.base = n.base
        ), allotted as (
            select o.lane, count(*) filter (
                       where o.place <= o.slots
                         and (o.turn <= claim_shared.most or o.lane = any(wide) or o.lane = any(closed))) as jobs
            from offered as o group by o.lane
        )
        select s.lane, s.queue, s.share, s.order_job, rota.share_part(s.share, 'o') is not null as ordered, s.fair, s.low,
               case when cardinality(lanes) > 1 then a.jobs when rota.share_part(s.share, 'o') is null then w.slots else 1 end as jobs
        from rota.sublane as s left join allotted as a on a.lane = s.lane
        left join unnest(bases, wanted) as w(base, slots) on w.base = s.base
        where s.lane = any(lanes) order by s.head, s.lane
    loop
        part := null;
        first_job := null;
        first_rank := null;
        if c.lane = any(wide) then
            -- Without those that were taken away while we waited for their meters.
            its_gates := array(
                select t.meter from unnest(metered, meters) as t(lane, meter) where t.lane = c.lane and allowed ? t.meter);
            headroom := (
                select jsonb_object_agg(g.name, (spare ->> g.name)::int - coalesce((got ->> g.name)::int, 0))
                from unnest(its_gates) as g(name));
            n := least(c.jobs, (select min(h.jobs::int) from jsonb_each_text(headroom) as h(name, jobs)));
            later := null;
            first_job := null;
            if n > 0 then
                return query
                    with picked as (
                        select p.ctid as at from rota.present as p
                        where p.lane = c.lane and p.rank >= rota.looks_from(c.share, c.low, (gates -> 'lows' ->> c.lane)::bigint)
                          and p.state = {state.ready} and p.due_at <= rota.now() and p.task = any(tasks)
                        order by p.rank, p.id
                        limit n
                        for update skip locked
                    ), claimed as (
                        update rota.present as p
                        set state = {state.running}, node = me, token = new_token, attempt = p.attempt + 1,
                            claimed_at = rota.now(), started_at = null, progress = null
                        where p.ctid = any(array(select at from picked))
                        returning p.id, p.task, p.payload, p.token, p.attempt, p.max_attempts, p.guarantee, p.timeout,
                                  p.crashes, p.rank, p.priority, p.key, p.headers, p.schedule_id, p.lane, p.run_id, p.step,
                                  null::float8, p.due_at
                    ), noted as (
                        insert into rota.batch (token, lane, node, low, high, low_id, high_id, gates)
                        select new_token, c.lane, me, min(p.rank), max(p.rank), (array_agg(p.id order by p.id))[1],
                               (array_agg(p.id order by p.id))[count(*)], its_gates
                        from claimed as p having count(*) > 0
                    )
                    select * from claimed as p order by p.rank, p.id;
                get diagnostics singles = row_count;
                if singles < n or c.share <> '' or c.low < 9223372036854775807 then
                    perform rota.settle_sublane(c.lane, singles > 0, (gates -> 'lows' ->> c.lane)::bigint);
                end if;
                got := got || (select jsonb_object_agg(g.name, coalesce((got ->> g.name)::int, 0) + singles)
                               from unnest(its_gates) as g(name));
            end if;
            if n <= 0 or singles = n then
                -- More than we may have: places under a limit are of use only where no other limit is in the way.
                more := more || coalesce((
                    select jsonb_object_agg(h.name, true) from jsonb_each_text(headroom) as h(name, jobs)
                    where h.jobs::int <= n or n = c.jobs), '{}');
            end if;
            answer := answer || jsonb_build_object(c.lane, to_jsonb(its_gates));
            if n < c.jobs and exists (select from unnest(its_gates) as g(name) where (allowed ->> g.name)::int = 0) then
                full_ones := full_ones || its_gates;
            end if;
            continue;
        end if;
        if (rooms ->> ('queue:' || c.queue))::int <= 0 then
            -- The whole queue is full: its sublanes stay as they are, however many there are.
            full_ones := full_ones || ('queue:' || c.queue);
            continue;
        elsif (rooms ->> ('queue:' || c.queue || '/rate'))::int <= 0 then
            full_ones := full_ones || ('queue:' || c.queue || '/rate');
            continue;
        end if;
        if c.ordered and c.jobs is distinct from 0 then
            select v.verdict, v.job, v.recheck into verdict, first_job, later
            from rota.next_in_order(space, c.queue, c.lane, rota.share_part(c.share, 'o')) as v;
            if verdict = 'wait' then
                update rota.sublane as s set state = 3, recheck_at = later where s.lane = c.lane;
                continue;
            elsif first_job is null then
                update rota.sublane as s set order_job = null where s.lane = c.lane and s.order_job is not null;
                -- Whoever's task it is: what comes behind it waits for those that can run it.
                select p.id into first_job from rota.present as p
                where p.lane = c.lane and p.rank >= c.low and p.state = {state.ready} and p.due_at <= rota.now()
                order by p.rank, p.id limit 1;
            end if;
            first_rank := (select p.rank from rota.present as p where p.id = first_job);
        end if;
        if c.jobs > 0 then
            n := least(c.jobs, claim_shared.most - cardinality(taken));
            continue when n <= 0;
            for each_one in select t.meter from unnest(metered, meters) as t(lane, meter) where t.lane = c.lane loop
                n := least(n, (rooms ->> each_one.meter)::int);
                if n <= 0 then
                    update rota.sublane as s set state = 3, blocked_on = each_one.meter where s.lane = c.lane;
                    full_ones := full_ones || each_one.meter;
                    exit;
                end if;
            end loop;
            continue when n <= 0;
            with picked as (
                select p.ctid as at from rota.present as p
                where p.lane = c.lane
                  and p.rank >= coalesce(first_rank, rota.looks_from(c.share, c.low, (gates -> 'lows' ->> c.lane)::bigint))
                  and p.state = {state.ready} and p.due_at <= rota.now()
                  and p.task = any(tasks)
                  and not (remote and p.guarantee = {guarantee.exactly_once})
                  and (first_job is null or p.id = first_job)
                order by p.rank, p.id
                limit n
                for update skip locked
            ), claimed as (
                update rota.present as p
                set state = {state.running}, node = me, token = new_token, attempt = p.attempt + 1, claimed_at = rota.now(),
                    started_at = null, progress = null,
                    guarantee = case when asked is null then p.guarantee
                                     else rota.declared_guarantee(p.namespace, p.task, p.guarantee) end
                where p.ctid = any(array(select at from picked))
                returning p.id
            )
            select array_agg(id) into part from claimed;
            n := coalesce(array_length(part, 1), 0);
            taken := taken || coalesce(part, '{}');
            rooms := rooms || coalesce((
                select jsonb_object_agg(t.meter, (rooms ->> t.meter)::int - n)
                from unnest(metered, meters) as t(lane, meter) where t.lane = c.lane), '{}');
            if n < c.jobs or cardinality(lanes) > 1 then
                -- A rate that has granted all it can is not asked again before it is worth it.
                for each_one in
                    select r.name, r.name = 'queue:' || c.queue || '/rate' as whole from rota.meter as r
                    where r.namespace = space and r.spacing is not null and (rooms ->> r.name)::int <= 0
                      and r.name = any(array(select t.meter collate "C" from unnest(metered, meters) as t(lane, meter) where t.lane = c.lane))
                loop
                    full_ones := full_ones || each_one.name;
                    if not each_one.whole and part is not null and not c.ordered then
                        update rota.sublane as s set state = 3, blocked_on = each_one.name where s.lane = c.lane;
                    end if;
                end loop;
            end if;
        end if;
        if c.fair and part is not null then
            perform rota.charge_sublane(c.lane, cardinality(part));
        end if;
        if c.ordered and part is not null then
            update rota.sublane as s
            set order_job = part[1], state = 3, recheck_at = rota.now() + interval '1 second'
            where s.lane = c.lane;
        elsif c.ordered and first_job is not null and part is null then
            -- It is for workers of another kind, or somebody has locked it.
            update rota.sublane as s set state = 3, recheck_at = rota.now() + interval '0.2 seconds' where s.lane = c.lane;
        elsif c.jobs is distinct from 0 then
            perform rota.settle_sublane(c.lane, part is not null, (gates -> 'lows' ->> c.lane)::bigint);
        end if;
    end loop;

    if taken <> '{}' then
        insert into rota.batch (token, lane, node, low, high, low_id, high_id, ids, request, request_try)
        select new_token, p.lane, me, min(p.rank), max(p.rank), (array_agg(p.id order by p.id))[1],
               (array_agg(p.id order by p.id))[count(*)], case when remote then array_agg(p.id) end,
               asked, this_try
        from rota.present as p where p.id = any(taken) group by p.lane;
        insert into rota.place (namespace, meter, token, ids)
        select space, t.meter, new_token, array_agg(p.id) from rota.present as p
        join unnest(metered, meters) as t(lane, meter) on t.lane = p.lane
        join rota.meter as r on r.namespace = space and r.name = t.meter collate "C" and r.spacing is null
        where p.id = any(taken) group by t.meter
        on conflict (namespace, meter, token) do nothing;
        granted := (
            select coalesce(jsonb_object_agg(g.meter, g.jobs), '{}') from (
                select t.meter, count(*) as jobs from rota.present as p
                join unnest(metered, meters) as t(lane, meter) on t.lane = p.lane
                where p.id = any(taken) group by t.meter) as g);
    end if;
    if meters <> '{}' then
        -- One write for all that a rate has granted. It is never taken back: what a worker that dies was granted is lost.
        update rota.meter as r
        set held = g.held, next_at = g.next_at, used_at = rota.now(),
            recheck_at = case
                when not g.ask_again then r.recheck_at
                when r.spacing is null then rota.now() + interval '1 second'
                else greatest(least(g.next_at - (r.burst - 1) * r.spacing * interval '1 second',
                                    rota.now() + interval '10 seconds'),
                              rota.now() + least(r.burst * r.spacing / 2, 0.05) * interval '1 second') end
        from (
            select m.name, m.held + case when m.spacing is null then j.jobs else 0 end as held,
                   case when m.spacing is null or j.jobs = 0 then m.next_at
                        else greatest(m.next_at, moment) + j.jobs * m.spacing * interval '1 second' end as next_at,
                   m.name = any(full_ones) and (m.recheck_at is null or rota.is_due(m.recheck_at)) as ask_again, j.jobs
            from rota.meter as m
            cross join lateral (select coalesce((granted ->> m.name)::int, 0) as jobs) as j
            where m.namespace = space and m.name = any(meters)) as g
        where r.namespace = space and r.name = g.name
          and (g.jobs > 0 or g.ask_again or r.used_at < rota.now() - interval '1 second');
    end if;
    perform rota.plan_rechecks(space);
    if wide <> '{}' then
        -- Of what there are no more jobs for nothing is kept.
        for each_one in
            select a.name, a.target::int, h.ceiling, h.jobs
            from jsonb_each_text(allowed) as a(name, target)
            cross join lateral (
                select coalesce((gates -> 'held' -> a.name ->> 0)::int, 0) as ceiling,
                       coalesce((gates -> 'held' -> a.name ->> 1)::int, 0) + coalesce((got ->> a.name)::int, 0) as jobs) as h
            where not more ? a.name and h.jobs < a.target::int
        loop
            update rota.allotment as a
            set places = greatest(each_one.ceiling, each_one.jobs), wish = each_one.jobs,
                since = case when greatest(each_one.ceiling, each_one.jobs) = 0 then rota.now() else a.since end
            where a.namespace = space and a.meter = each_one.name and a.node = me;
            allowed := allowed || jsonb_build_object(each_one.name, each_one.jobs);
        end loop;
        return query select * from rota.note_of_claim(answer, allowed, more);
    end if;
    if taken = '{}' then
        return;
    end if;
    return query
        select p.id, p.task, p.payload, p.token, p.attempt, p.max_attempts, p.guarantee, p.timeout, p.crashes, p.rank,
               p.priority, p.key, p.headers, p.schedule_id, p.lane, p.run_id, p.step, null::float8, p.due_at
        from rota.present as p where p.id = any(taken) order by p.rank, p.id;
end $$;

-- Charges a sublane of a fair queue for jobs that were claimed from it: what they are expected to take, over its weight.
create or replace function rota.charge_sublane(its_lane text, jobs int) returns void language sql volatile
    set enable_seqscan = off as $$
    update rota.sublane as s
    set head = case when s.share = '' then greatest(s.head, rota.fair_floor(s.base)) else s.head end
               + (jobs * s.cost / rota.fair_weight_of(s.namespace, s.queue, s.base, s.fair_key) * 1000000)::bigint,
        outstanding = s.outstanding + jobs, charged = s.charged + jobs * s.cost
    where s.lane = its_lane
$$;

-- From which rank on a claim looks into a sublane. Of the lane itself workers have cursors (`since`), because nothing
-- tells what comes to it; its `low` is the lowest rank that was found not to be due yet. Who has no cursor reads it all.
create or replace function rota.looks_from(share text, low bigint, since bigint) returns bigint
    language sql immutable parallel safe as $$
    select case when share <> '' then low when since is null then -9223372036854775808 else least(since, low) end
$$;

-- What a sublane is after a claim has looked into it, and taken something or not: idle, ready at a later rank, or to be
-- looked at when its next job is due. What this claim can't run goes behind the others. In a fair queue its place among
-- the others is its virtual time, and what this claim can't run is left to others for a moment. The lane itself is ready at
-- all times: what comes to it is told by no arrival. `since` is the cursor of a claim that has looked into it.
create or replace function rota.settle_sublane(its_lane text, took boolean, since bigint default null) returns void
    language plpgsql volatile
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
as $$
declare
    next record;
    looks_from bigint := (select rota.looks_from(s.share, s.low, since) from rota.sublane as s where s.lane = its_lane);
begin
    select p.rank, p.due_at into next from rota.present as p
    where p.lane = its_lane and p.rank >= looks_from and p.state = {state.ready} order by p.rank, p.id limit 1;
    if not found then
        update rota.sublane as s
        set state = case when s.share = '' then 1 else 2 end, changed_at = rota.now(), recheck_at = null,
            low = 9223372036854775807,
            head = case when s.share <> '' then s.head
                        when s.fair then greatest(s.head, rota.fair_floor(s.base))
                        else -9223372036854775808 end
        where s.lane = its_lane;
    elsif took then
        update rota.sublane as s
        set head = case when s.fair then s.head else next.rank end,
            low = case when s.share = '' and next.due_at <= rota.now() then 9223372036854775807 else next.rank end
        where s.lane = its_lane;
    elsif next.due_at > rota.now() then
        update rota.sublane as s
        set state = case when s.share = '' then 1 else 3 end, recheck_at = next.due_at,
            low = case when s.share = '' then next.rank else s.low end,
            head = case when s.fair then s.head else next.rank end
        where s.lane = its_lane;
    else
        update rota.sublane as s
        set state = case when s.fair then 3 else s.state end,
            recheck_at = case when s.fair then rota.now() + interval '0.2 seconds' else s.recheck_at end,
            head = case when s.fair then s.head else greatest(s.head, rota.rank(rota.now(), 0)) end
        where s.lane = its_lane;
    end if;
end $$;

-- The seconds until a claim from these sublanes may find something: 0 if there is something ready, null if nothing is
-- known. The lanes themselves don't count: of those it is not known whether they have jobs. Nor do those of which the
-- caller has `enough`.
create or replace function rota.shared_pause(bases text[], enough text[] default '{}') returns float8
    language sql volatile as $$
    select case
        when exists (
                select from rota.sublane as s
                where s.base = any(bases) and s.state = 1 and s.share <> '' and s.lane <> all(enough) and not exists (
                    select from rota.meter as m
                    where m.namespace = s.namespace and not rota.is_due(m.recheck_at)
                      and m.name in ('queue:' || s.queue, 'queue:' || s.queue || '/rate')))
             or exists (select from rota.arrival as a where a.base = any(bases)) then 0
        else (
            -- `greatest` passes over nulls: of two that are null it would make a look every 20 milliseconds, for ever.
            select case when soonest.at is not null then greatest(extract(epoch from soonest.at - rota.now())::float8, 0.02) end
            from (
                select least(
                    (select min(case when rota.is_due(m.recheck_at) then rota.now() else m.recheck_at end) from rota.meter as m
                     where m.namespace = split_part(bases[1], '/', 1) and m.recheck_at is not null),
                    (select min(s.recheck_at) from rota.sublane as s where s.base = any(bases))) as at
            ) as soonest)
    end
$$;
