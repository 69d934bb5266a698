-- Pools of workers. core/pools.py decides by what these return.

-- How many slots a pool should have, as a scheduler decided last; 0: there is no such pool. Stable, with one row and one
-- column: for autoscalers that ask in SQL, as KEDA does.
create or replace function rota.pool_slots(pool text, namespace text default 'default') returns int language sql stable as $$
    select coalesce((select p.slots from rota.pool as p where p.namespace = pool_slots.namespace and p.name = pool), 0)
$$;

-- The same in workers.
create or replace function rota.pool_workers(pool text, namespace text default 'default') returns int language sql stable as $$
    select coalesce((select ceil(p.slots::numeric / p.slots_per_worker)::int from rota.pool as p
                     where p.namespace = pool_workers.namespace and p.name = pool), 0)
$$;

-- The load of the queues that a pool serves. Of each lane the first 10,000 jobs are looked at, by the index of claims: more of
-- them change no decision that a limit of slots would not. Where jobs are counted, their depth stands for the rest.
create or replace function rota.pool_load(space text, its_queues text[], its_capabilities text[], target float8)
    returns table (queue text, runnable float8, running bigint, arrivals float8, run_time float8) language sql stable as $$
    with lane as (
        select l.lane, l.queue from rota.lane as l
        where l.namespace = space and (its_queues = '{}' or l.queue = any(its_queues)) and rota.capabilities_in(l.needs) <@ its_capabilities
    ), part as (
        select l.queue, true as open, h.* from lane as l
        cross join lateral (
            select count(*) filter (where p.state = {state.running}) as running,
                   count(*) filter (where p.state = {state.ready} and p.due_at <= rota.now()) as ready, count(*) = 10000 as cut,
                   avg(extract(epoch from rota.now() - coalesce(p.started_at, p.claimed_at))) filter (where p.state = {state.running}) as age
            from (select p.state, p.due_at, p.started_at, p.claimed_at from rota.present as p
                  where p.lane = l.lane order by p.rank, p.id limit 10000) as p) as h
        where right(l.lane, 1) <> '#'
        union all
        -- What a limit or the order holds back is not runnable.
        select l.queue, s.state <> 3, h.* from lane as l
        cross join lateral (
            select s.lane, s.state from rota.sublane as s
            where s.base = left(l.lane, -1) and s.lane <> left(l.lane, -1) order by s.state, s.head limit 1000) as s
        cross join lateral (
            select count(*) filter (where p.state = {state.running}) as running,
                   count(*) filter (where p.state = {state.ready} and p.due_at <= rota.now()) as ready, count(*) = 1000 as cut,
                   avg(extract(epoch from rota.now() - coalesce(p.started_at, p.claimed_at))) filter (where p.state = {state.running}) as age
            from (select p.state, p.due_at, p.started_at, p.claimed_at from rota.present as p
                  where p.lane = s.lane order by p.rank, p.id limit 1000) as p) as h
        where right(l.lane, 1) = '#'
    ), held as (
        select p.queue, sum(p.running)::bigint as running, coalesce(sum(p.ready) filter (where p.open), 0)::float8 as ready,
               bool_or(p.cut) as cut, avg(p.age)::float8 as age
        from part as p group by 1
    )
    select h.queue,
           case when q.paused_at is not null then 0
                else least(case when h.cut then greatest(h.ready, d.jobs - h.running) else h.ready end,
                           case when q.concurrency is not null then greatest(q.concurrency - h.running, 0) end, q.rate_count / q.rate_period * target) end,
           h.running,
           coalesce(r.runs / extract(epoch from rota.now() - date_trunc('minute', rota.now()) + interval '2 minutes')::float8, 0),
           greatest(coalesce(r.mean, k.usual, h.age, 1), 0.001)
    from held as h
    left join rota.queue as q on q.namespace = space and q.name = h.queue
    left join rota.depth as d on q.intake is not null and d.namespace = space and d.queue = h.queue
    left join lateral (
        -- The last two minutes and what there is of this one; run times of a quarter of an hour.
        select coalesce(sum(s.runs) filter (where s.at >= date_trunc('minute', rota.now()) - interval '2 minutes'), 0) as runs,
               sum(s.seconds) / nullif(sum(s.runs), 0) as mean
        from rota.run_stats as s
        where s.namespace = space and s.span = 60 and s.task = '' and s.queue = h.queue
          and s.at >= date_trunc('minute', rota.now()) - interval '15 minutes') as r on true
    left join lateral (
        select avg(coalesce(t.expected, b.usual))::float8 as usual from rota.task as t
        left join rota.duration_baseline as b on b.namespace = t.namespace and b.task = t.name
        where t.namespace = space and t.queue = h.queue) as k on r.mean is null
$$;
