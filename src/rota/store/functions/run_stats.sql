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
create or replace function rota.tally_runs() returns trigger language plpgsql as $$
begin
    if tg_table_name = 'dead' and current_setting('rota.restoring', true) = 'on' then  -- an undo: they were counted
        return null;
    end if;
    insert into rota.tally (minute, namespace, queue, task, failed, seconds, durations, lags)
    select date_trunc('minute', e.finished_at), e.namespace, rota.queue_of(e.lane), e.task, e.state = {state.failed},
           sum(extract(epoch from e.finished_at - e.started_at)::float8),
           array_agg(rota.bucket(extract(epoch from e.finished_at - e.started_at)::float8)),
           array_agg(rota.bucket(extract(epoch from e.started_at - e.due_at)::float8))
    from ended as e
    where e.started_at is not null and e.state in ({state.succeeded}, {state.failed})
    group by 1, 2, 3, 4, 5;
    return null;
end $$;
