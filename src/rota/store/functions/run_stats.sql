-- The bucket of a duration: 0 up to a millisecond; then each is wider than the one before by the square root of two, 53
-- of them, up to about a day. The same as bucket bounds in core/histogram.py, from which they come.
create or replace function rota.bucket(took interval) returns smallint language sql immutable parallel safe as $$
    select width_bucket(took, {{buckets}})::smallint
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
-- All jobs have left their queue, which matters where it is counted.
create or replace function rota.tally_runs() returns trigger language plpgsql as $$
declare
    flows bigint;
    counted boolean;
    wanted boolean;
    -- An undo of a bulk action: they were counted when they ended.
    restoring boolean := tg_table_name = 'dead' and coalesce(current_setting('rota.restoring', true), '') = 'on';
begin
    select exists (select from rota.queue as q where q.intake is not null),
           tg_table_name = 'past' and exists (select from rota.sink as s where s.wants <> '{}')
    into counted, wanted;
    if counted then
        with {{tally ended: counted = not restoring}}
        select f.flows into flows from flowed as f;
    else
        {{runs ended: counted = not restoring}};
    end if;
    if wanted then
        {{tell ended}};
    end if;
    return null;
end $$;
