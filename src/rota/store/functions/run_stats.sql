-- The bucket of a duration: 0 up to a millisecond; then each is wider than the one before by the square root of two, 53
-- of them, up to about a day. The same as bucket bounds in core/histogram.py.
create or replace function rota.bucket(seconds double precision) returns smallint language sql immutable parallel safe as $$
    select least(greatest(ceil(2.0 / ln(2.0::float8) * ln(greatest(seconds, 1e-9) * 1000.0)), 0), 54)::smallint
$$;

-- Adds up counts by bucket. Arrays may have different lengths.
create or replace function rota.add_counts(one bigint[], other bigint[]) returns bigint[] language sql immutable parallel safe as $$
    select coalesce(array_agg(coalesce(a.count, 0) + coalesce(b.count, 0) order by coalesce(a.place, b.place)), '{}')
    from unnest(one) with ordinality as a(count, place)
    full join unnest(other) with ordinality as b(count, place) on b.place = a.place
$$;

-- Counts by bucket from the numbers of buckets and the count of each.
create or replace function rota.from_places(places smallint[], counts bigint[]) returns bigint[] language sql immutable parallel safe as $$
    select array_agg(coalesce(c.count, 0) order by p.place)
    from generate_series(0, (select max(n) from unnest(places) as n)) as p(place)
    left join unnest(places, counts) as c(place, count) on c.place = p.place
$$;

-- One row for each task of what a statement has ended. Only of runs: what never started, or was cancelled, isn't one.
-- Runs are counted by the buckets of their duration and lag together, in one pass: in most statements these are a few pairs.
-- All jobs have left their queue, which matters where it is counted. date_part() and not extract(), which returns numeric.
create or replace function rota.tally_runs() returns trigger language plpgsql as $$
declare
    flows bigint;
    -- An undo of a bulk action: they were counted when they ended.
    restoring boolean := tg_table_name = 'dead' and coalesce(current_setting('rota.restoring', true), '') = 'on';
begin
    with pair as materialized (
        select date_bin('1 minute', e.finished_at, '2000-01-01 00:00:00+00') as minute, e.namespace, e.lane, e.task,
               e.state = {state.failed} as failed, case when e.ran then rota.bucket(e.seconds) end as duration,
               case when e.ran then rota.bucket(e.lag) end as lag, count(*) as jobs, sum(e.seconds) as seconds
        from (select *, date_part('epoch', finished_at - started_at) as seconds, date_part('epoch', started_at - due_at) as lag,
                     started_at is not null and state in ({state.succeeded}, {state.failed}) as ran
              from ended) as e
        group by 1, 2, 3, 4, 5, 6, 7
    ), tallied as (
        insert into rota.tally (minute, namespace, queue, task, failed, seconds, durations, lags, counts)
        select p.minute, p.namespace, rota.queue_of(p.lane), p.task, p.failed, sum(p.seconds), array_agg(p.duration),
               array_agg(p.lag), array_agg(p.jobs)
        from pair as p where p.duration is not null and not restoring
        group by p.minute, p.namespace, p.lane, p.task, p.failed
    )
    select count(*) into flows
    from (select p.namespace, rota.queue_of(p.lane) as queue, -sum(p.jobs)::bigint as jobs from pair as p group by 1, 2) as t
    cross join lateral (
        select from rota.queue as q where q.namespace = t.namespace and q.name = t.queue and q.intake is not null offset 0) as q
    cross join lateral rota.add_flow(t.namespace, t.queue, t.jobs);
    return null;
end $$;
