-- Places that nodes hold under limits of whole queues and tasks. docs/architecture.md, "Allotments", describes the protocol.

-- The places that nodes have under a limit, without one's own. What a dead node had is free.
create or replace function rota.allotted(space text, its_meter text, not_me uuid default null) returns int
    language sql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select coalesce(sum(a.places), 0)::int from rota.allotment as a
    where a.namespace = space and a.meter = its_meter and a.places > 0 and a.node is distinct from not_me and exists (
        select from rota.node as n where n.id = a.node and n.state in ('live', 'draining'))
$$;

-- Whether so much time has passed since a moment. One that is far ahead is of a time before the clock was set back.
create or replace function rota.is_over(since timestamptz, span interval) returns boolean language sql stable as $$
    select since not between rota.now() - span and rota.now() + interval '3 seconds'
$$;

-- Settles how many jobs a node may run at a time under a limit whose meter the caller has locked. `singles` run by
-- places of their own. The node says how many it may be running until it has our answer (`ceiling`), which stay its own
-- whatever is decided, and how many it could run. Returns how many it may run from now on; null: a later change of its
-- own has come first. What one node doesn't need others get; what all want is shared evenly, and if there are fewer
-- places than nodes they take turns of a second.
create or replace function rota.allot(me uuid, space text, this_turn bigint, its_meter text, most int, singles int,
    ceiling int, wanted int) returns int language plpgsql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
as $$
declare
    nobody constant uuid := '00000000-0000-0000-0000-000000000000';
    mine record;
    other record;
    fair int;
    others int;
    promised int;
    target int;
    given int;
    told record;
begin
    select a.places, a.since, a.turn into mine from rota.allotment as a
    where a.namespace = space and a.meter = its_meter and a.node = me;
    if mine.turn >= this_turn then
        return null;
    end if;
    select count(*) filter (where o.places > 0 or o.wish > 0)::int as claimants, coalesce(sum(o.places), 0)::int as places,
           count(*) filter (where o.places = 0 and o.wish > 0 and o.since < coalesce(mine.since, rota.now()))::int as before,
           count(*) filter (where o.places = 0 and o.wish > 0 and rota.is_over(o.since, '1 second'))::int as patient
    into other
    from rota.other_allotments(space, its_meter, me, singles) as o;
    others := other.places;
    fair := greatest(most / (other.claimants + 1), 1);
    promised := coalesce((select sum(greatest(o.places, least(o.wish, fair)))::int
                          from rota.other_allotments(space, its_meter, me, singles) as o), 0);
    target := greatest(least(wanted, most - others, greatest(fair, most - promised)), 0);
    if other.claimants >= most and other.patient > 0 then
        if coalesce(mine.places, 0) = 0 then
            target := greatest(least(target, most - others - other.before), 0);
        elsif rota.is_over(mine.since, '1 second') then
            target := 0;
        end if;
    end if;
    given := greatest(ceiling, target);
    insert into rota.allotment as a (namespace, meter, node, places, wish, turn)
    values (space, its_meter, me, given, wanted, this_turn)
    on conflict (namespace, meter, node) do update
    set places = excluded.places, wish = excluded.wish, wished_at = rota.now(), turn = excluded.turn,
        since = case when (a.places > 0) = (excluded.places > 0) and (a.places > 0 or a.wish > 0) then a.since
                     else rota.now() end;
    if given < coalesce(mine.places, 0) or target < wanted then
        -- Those that wait for what we leave, or hold what we wait for.
        for told in
            select a.node from rota.allotment as a
            where a.namespace = space and a.meter = its_meter and a.node not in (me, nobody)
              and case when given < coalesce(mine.places, 0)
                       then a.places < a.wish and not rota.is_over(a.wished_at, '3 seconds')
                       else a.places > fair or a.places > 0 and other.claimants >= most end
            order by a.since limit 3
        loop
            perform rota.notify(rota.channel(space, told.node), 'allotment');
        end loop;
    end if;
    return target;
end $$;

-- What others have under a limit, and could use; a wish counts for three seconds.
create or replace function rota.other_allotments(space text, its_meter text, me uuid, singles int)
    returns table (places int, wish int, since timestamptz) language sql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select a.places, case when rota.is_over(a.wished_at, '3 seconds') then 0 else a.wish end, a.since
    from rota.allotment as a
    where a.namespace = space and a.meter = its_meter and a.node <> me and exists (
        select from rota.node as n where n.id = a.node and n.state in ('live', 'draining'))
    union all
    select singles, coalesce((
        select a.wish from rota.allotment as a
        where a.namespace = space and a.meter = its_meter and a.node = '00000000-0000-0000-0000-000000000000'
          and not rota.is_over(a.wished_at, '3 seconds')), 0), rota.now()
$$;

-- Notes that claims of single places found a limit full: those that hold allotments leave them their part.
create or replace function rota.wish_for_places(space text, its_meter text, wanted int) returns void
    language plpgsql volatile set enable_seqscan = off as $$
declare
    nobody constant uuid := '00000000-0000-0000-0000-000000000000';
    told record;
begin
    if not exists (select from rota.allotment as a where a.namespace = space and a.meter = its_meter and a.places > 0) then
        return;
    end if;
    insert into rota.allotment as a (namespace, meter, node, places, wish) values (space, its_meter, nobody, 0, wanted)
    on conflict (namespace, meter, node) do update set wish = excluded.wish, wished_at = rota.now();
    for told in
        select a.node from rota.allotment as a
        where a.namespace = space and a.meter = its_meter and a.places > 0 order by a.places desc limit 3
    loop
        perform rota.notify(rota.channel(space, told.node), 'allotment');
    end loop;
end $$;

-- The limit that a meter of a whole queue or task stands for; null: there is none any more.
create or replace function rota.whole_limit(space text, its_meter text) returns int language sql stable as $$
    select q.concurrency from rota.queue as q
    where starts_with(its_meter, 'queue:') and q.namespace = space and q.name = substr(its_meter, 7) collate "C"
    union all
    select t.concurrency from rota.task as t
    where starts_with(its_meter, 'task:') and t.namespace = space and t.name = substr(its_meter, 6) collate "C" and not t.per_key
$$;

-- Settles allotments without a claim, for a node that can't use what it has, or was asked for some of it. Returns what it
-- may run from now on; null: there is no such limit any more.
create or replace function rota.settle_allotments(me uuid, space text, this_turn bigint, names text[], ceilings int[],
    wishes int[]) returns table (meter text, target int) language plpgsql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    each_one record;
begin
    perform from rota.meter as m where m.namespace = space and m.name = any(names) order by m.name for no key update;
    for each_one in
        select g.name, g.ceiling, g.wish, m.name is not null as known, rota.whole_limit(space, g.name) as most
        from unnest(names, ceilings, wishes) as g(name, ceiling, wish)
        left join rota.meter as m on m.namespace = space and m.name = g.name collate "C"
    loop
        meter := each_one.name;
        target := null;
        if each_one.most is null then
            delete from rota.allotment as a where a.namespace = space and a.meter = each_one.name and a.node = me;
            return next;
            continue;
        end if;
        continue when not each_one.known;  -- removed as unused: the next claim makes it again
        target := rota.allot(me, space, this_turn, each_one.name, each_one.most,
                             rota.count_held(space, each_one.name), each_one.ceiling, each_one.wish);
        if target is not null then
            return next;
        end if;
    end loop;
end $$;
