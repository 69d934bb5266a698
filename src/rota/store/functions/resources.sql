-- Resources and nearness, which are entries of `needs`. docs/architecture.md describes the protocol ("Resources").

-- Whether these can be stored as a job's needs: names of capabilities, amounts (gpu=1), and at most one label (~model7=5).
create or replace function rota.are_needs(needs text[]) returns boolean language sql immutable parallel safe as $$
    select not exists (
        select from unnest(needs) as n
        where n is null or not (rota.is_name(n) or length(n) <= 120
              and n ~ '^([A-Za-z0-9_][A-Za-z0-9_.-]*|~[A-Za-z0-9_][A-Za-z0-9_.:-]*)=[0-9]{1,12}([.][0-9]{1,2})?$'))
      and (select count(*) from unnest(needs) as n where starts_with(n, '~')) <= 1
$$;

-- What a submit gives, with what its task declares where it has a mark: + for capabilities, = for amounts, ~ for the label.
create or replace function rota.needs_with(given text[], declared text[]) returns text[] language sql immutable parallel safe as $$
    select case when given = '{=,~}' and coalesce(declared, '{}') = '{}' then '{}'::text[] else rota.merged_needs(given, declared) end
$$;

create or replace function rota.merged_needs(given text[], declared text[]) returns text[] language sql immutable parallel safe as $$
    select case when given && array['+', '=', '~'] then (
        select coalesce(array_agg(e.need), '{}') from (
            select g.need from unnest(given) as g(need) where g.need not in ('+', '=', '~')
            union all
            select d.need from unnest(declared) as d(need)
            where case when starts_with(d.need, '~') then '~' when strpos(d.need, '=') > 0 then '=' else '+' end = any(given)) as e)
    else given end
$$;

-- Of a job's needs, the capabilities.
create or replace function rota.capabilities_in(needs text[]) returns text[] language sql immutable parallel safe as $$
    select coalesce(array_agg(n.need), '{}') from unnest(needs) as n(need) where strpos(n.need, '=') = 0
$$;

-- Whether a node can run jobs with these needs: it has the capabilities, and as much as one of them takes. Where it isn't
-- `near` them, it can, after a while.
create or replace function rota.can_run(needs text[], capabilities text[], resources jsonb) returns boolean
    language sql immutable parallel safe as $$
    select needs <@ capabilities or not exists (
        select from unnest(needs) as n(need)
        where n.need <> all(capabilities) and not starts_with(n.need, '~')
          and not (strpos(n.need, '=') > 0
                   and coalesce((resources ->> split_part(n.need, '=', 1))::float8 >= split_part(n.need, '=', 2)::float8, false)))
$$;

-- Whether the oldest ready job of a lane, or of the sublanes of an entry, has waited for so many seconds. Of each the first
-- fifty are looked at.
create or replace function rota.has_waited(its_lane text, seconds float8, tasks text[]) returns boolean language sql volatile
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select exists (
        select from (
            select its_lane as lane where right(its_lane, 1) <> '#'
            union all
            (select s.lane from rota.sublane as s
             where right(its_lane, 1) = '#' and s.base = left(its_lane, -1) and s.state = 1
             order by s.head limit 20)) as l
        cross join lateral (
            select p.due_at, p.task from rota.present as p
            where p.lane = l.lane and p.state = {state.ready} order by p.rank, p.id limit 50) as p
        where p.due_at <= rota.now() - make_interval(secs => seconds) and p.task = any(tasks))
$$;

-- Settles which node makes room for which lane. `lanes`: those that the node could serve and that don't fit what is free.
-- Returns the lane that this node makes room for. Each statement sees what was committed before it.
create or replace function rota.reserve(me uuid, space text, lanes text[], patience float8, tasks text[]) returns text
    language plpgsql volatile set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    mine text := (select r.lane from rota.reservation as r where r.node = me);
    one text;
begin
    if mine is not null then
        if mine = any(lanes) and rota.has_waited(mine, patience, tasks) and not rota.is_paused(mine) then
            return mine;
        end if;
        delete from rota.reservation as r where r.node = me;
    end if;
    foreach one in array lanes loop
        continue when exists (
            select from rota.reservation as r join rota.node as n on n.id = r.node
            where r.lane = one and n.state = 'live' and n.expires_at > rota.now());
        continue when rota.is_paused(one) or not rota.has_waited(one, patience, tasks);
        -- Of a node that is gone, it is taken over. Two nodes that do it at once wait for each other here: the row is one's.
        insert into rota.reservation as r (lane, namespace, node)
        select one, space, n.id from rota.node as n where n.id = me and n.state = 'live'
        on conflict (lane) do update set node = excluded.node, since = rota.now()
        where not exists (
            select from rota.node as n where n.id = r.node and n.state = 'live' and n.expires_at > rota.now());
        if found then
            return one;
        end if;
    end loop;
    return null;
end $$;

create or replace function rota.is_paused(its_lane text) returns boolean language sql stable as $$
    select exists (select from rota.queue as q
                   where q.namespace = split_part(its_lane, '/', 1) and q.name = rota.queue_of(its_lane) and q.paused_at is not null)
$$;

-- What a worker over HTTP holds of its resources, by the jobs that it holds.
create or replace function rota.held_amounts(me uuid) returns jsonb language sql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select coalesce(jsonb_object_agg(h.name, h.amount), '{}') from (
        select split_part(e.need, '=', 1) as name, sum(split_part(e.need, '=', 2)::float8) as amount
        from rota.batch as b
        cross join lateral (
            select p.lane from rota.present as p
            where p.id = any(b.ids) and p.token = b.token and p.node = me and p.state = {state.running} offset 0) as p
        cross join lateral unnest(rota.needs_of(p.lane)) as e(need)
        where b.node = me and strpos(e.need, '=') > 0 and not starts_with(e.need, '~')
        group by 1) as h
$$;

-- Of the lanes that ask for resources or nearness, those from which a worker over HTTP may claim now: how many jobs at `most`, and for
-- how many seconds they must have waited. Of those that ask for resources one at a time, by the request: what one takes is not
-- there for another. Claims of a worker go one after another from here, because each counts what the one before has taken.
create or replace function rota.special_lanes(me uuid, asked text, entries boolean)
    returns table (lane text, tasks text[], most int, wait float8) language plpgsql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
    n record;
    one record;
    held jsonb;
    near text;
    counted boolean := false;
begin
    for one in
        select l.lane, l.needs from rota.node as k
        join rota.lane as l on l.namespace = k.namespace collate "C"
        where k.id = me and k.remote and k.state = 'live' and k.expires_at > rota.now() and (right(l.lane, 1) = '#') = entries
          and (k.queues = '{}' or l.queue = any(k.queues collate "C"))
          and not l.needs <@ k.capabilities and rota.can_run(l.needs, k.capabilities, k.resources)
        order by hashtextextended(l.lane || asked, 0)
    loop
        if held is null then
            perform pg_advisory_xact_lock(hashtextextended('rota.' || me::text, 11));
            select k.resources, k.labels, k.tasks into n from rota.node as k where k.id = me;
            held := rota.held_amounts(me);
        end if;
        near := (select e.need from unnest(one.needs) as e(need) where starts_with(e.need, '~'));
        wait := case when near is not null and split_part(substr(near, 2), '=', 1) <> all(n.labels)
                     then split_part(near, '=', 2)::float8 end;
        most := (select min(floor(((n.resources ->> split_part(e.need, '=', 1))::float8
                        - coalesce((held ->> split_part(e.need, '=', 1))::float8, 0) + 0.001) / split_part(e.need, '=', 2)::float8))::int
                 from unnest(one.needs) as e(need)
                 where strpos(e.need, '=') > 0 and not starts_with(e.need, '~') and split_part(e.need, '=', 2)::float8 > 0);
        continue when most <= 0 or most is not null and counted
            or entries and wait is not null and not rota.has_waited(one.lane, wait, n.tasks);
        counted := counted or most is not null;
        lane := one.lane;
        tasks := n.tasks;
        return next;
    end loop;
end $$;

-- Amounts as the API tells them: memory in bytes.
create or replace function rota.public_amounts(amounts jsonb) returns jsonb language sql immutable parallel safe as $$
    select coalesce(amounts, '{}') || case when amounts ? 'memory'
        then jsonb_build_object('memory', (amounts ->> 'memory')::bigint * 1048576) else '{}' end
$$;

-- What a submit from plain SQL asks of a node, as needs, with marks for what its task declares. Refuses what can't be stored.
create or replace function rota.asked_needs(needs text[], resources jsonb, near text, near_patience interval) returns text[]
    language plpgsql immutable as $$
declare
    one record;
    asked text[];
    units numeric;
    step bigint;
    problem text;
begin
    if needs is null and resources is null and near is null then
        if near_patience is not null then
            raise exception using errcode = 'RT001', message = 'rota: near_patience needs near';
        end if;
        return null;
    end if;
    if near_patience < interval '0' or near_patience > interval '1 day' then
        raise exception using errcode = 'RT001', message = format('rota: near_patience must be 0 to 1 day, not %s', near_patience);
    end if;
    asked := coalesce(needs, '{+}');
    if resources is null then
        asked := asked || '='::text;
    elsif jsonb_typeof(resources) <> 'object' then
        raise exception using errcode = 'RT001', message = format(
            'rota: resources must be an object such as {"memory": "2GB", "gpu": 1}, not %s', left(resources::text, 100));
    else
        if (select count(*) from jsonb_object_keys(resources)) > 8 then
            raise exception using errcode = 'RT001', message = 'rota: resources: more than 8 names are too many';
        end if;
        for one in select e.key, e.value from jsonb_each_text(resources) as e loop
            units := case
                when one.key = 'memory' and one.value ~* '^[0-9]+([.][0-9]+)? *[kmgt]?(i?b)?$'
                    then substring(one.value from '^[0-9.]+')::numeric
                         * 1024 ^ (position(lower(coalesce(substring(one.value from '[kmgtKMGT]'), '')) in 'kmgt')
                                   * (one.value ~* '[kmgt]')::int) / 1048576
                when one.key <> 'memory' and one.value ~ '^[0-9]+([.][0-9]+)?$' then ceil(one.value::numeric * 100) / 100
            end;
            if one.key !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,49}$' or lower(one.key) in ('memory', 'cpu') and lower(one.key) <> one.key then
                raise exception using errcode = 'RT001',
                    message = format('rota: resources: %s is not a usable name', quote_literal(left(one.key, 100)));
            elsif units is null or units <= 0 then
                raise exception using errcode = 'RT001',
                    message = format('rota: resources: %s must be above 0: a number, or a size such as 2GB for memory, not %s',
                                     one.key, left(coalesce(one.value, 'null'), 100));
            elsif units > (case one.key when 'memory' then 1073741824 else 1000000 end) then
                raise exception using errcode = 'RT001',
                    message = format('rota: resources: %s must be at most %s, not %s',
                                     one.key, case one.key when 'memory' then '1024TB' else '1000000' end, left(one.value, 100));
            end if;
            if one.key = 'memory' then
                step := 64;
                while step < units loop
                    if step * 3 / 2 >= units then
                        step := step * 3 / 2;
                    else
                        step := step * 2;
                    end if;
                end loop;
                units := step;
            end if;
            asked := asked || (one.key || '=' || trim_scale(units));
        end loop;
    end if;
    return asked || case when near is null then array['~'] when near = '' then '{}'::text[]
        else array['~' || near || '=' || coalesce(trim_scale(round(extract(epoch from near_patience)::numeric, 2)), 5)] end;
end $$;
