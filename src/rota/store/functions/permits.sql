-- Places that handlers ask for while they run. docs/architecture.md, "Permits", describes the protocol.

-- Whether a job still runs under this token: then its permits count.
create or replace function rota.runs_under(job uuid, its_token bigint) returns boolean language sql volatile
    set enable_seqscan = off as $$
    select exists (select from rota.present as p where p.id = job and p.token = its_token and p.state = {state.running})
$$;

-- The permits of a limit that count. Forgets the others.
create or replace function rota.count_permits(space text, its_name text) returns int language plpgsql volatile
    set enable_seqscan = off as $$
begin
    delete from rota.permit as r
    where r.namespace = space and r.name = its_name and r.granted_at is not null and not rota.runs_under(r.job_id, r.token);
    return (select count(*) from rota.permit as r
            where r.namespace = space and r.name = its_name and r.granted_at is not null);
end $$;

-- Asks for a permit, again and again until it is granted: `wait` seconds before the next time. Who asked first is
-- served first. `lost`: the job is no longer this node's. Claims under one limit go one after the other, by the lock of its
-- meters; what is counted is counted by statements that begin after the lock.
create or replace function rota.take_permit(me uuid, job uuid, its_token bigint, space text, its_name text, this_ask int,
        its_most int, its_spacing float8, its_burst int, out granted boolean, out wait float8, out lost boolean)
    language plpgsql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    meter_name text := 'limit:' || its_name;
    mine record;
    rate record;
    waiting record;
    free int := 1;
    moment timestamptz;
begin
    granted := false;
    lost := false;
    wait := 1;
    insert into rota.meter (namespace, name, most, spacing, burst)
    select space, m.name, m.most, m.spacing, m.burst
    from (values (meter_name, its_most, null::float8, null::int), (meter_name || '/rate', null, its_spacing, its_burst))
        as m(name, most, spacing, burst)
    where (m.most is not null or m.spacing is not null)
      and not exists (select from rota.meter as o where o.namespace = space and o.name = m.name collate "C")
    order by 2 on conflict do nothing;
    perform from rota.meter as m
    where m.namespace = space and m.name in (meter_name, meter_name || '/rate') order by m.name for no key update;
    if (select count(*) from rota.meter as m where m.namespace = space
          and (m.name = meter_name and its_most is not null or m.name = meter_name || '/rate' and its_spacing is not null))
       < (its_most is not null)::int + (its_spacing is not null)::int
    then
        wait := 0.02;  -- removed as unused before we could lock it
        return;
    end if;
    -- The lease is locked too: a reaper that takes the job away waits, or has been before us.
    perform from rota.present as p
    where p.id = job and p.token = its_token and p.node = me and p.state = {state.running} for share;
    if not found then
        lost := true;
        return;
    end if;
    insert into rota.permit (namespace, name, job_id, token, ask, node) values (space, its_name, job, its_token, this_ask, me)
    on conflict do nothing;
    select r.number, r.granted_at into mine from rota.permit as r
    where r.namespace = space and r.name = its_name and r.job_id = job and r.token = its_token and r.ask = this_ask;
    if mine.granted_at is not null then
        granted := true;  -- its answer was lost
        return;
    end if;
    update rota.meter as m
    set used_at = rota.now(), most = case when m.name = meter_name then its_most else m.most end,
        spacing = case when m.name = meter_name then m.spacing else its_spacing end,
        burst = case when m.name = meter_name then m.burst else its_burst end
    where m.namespace = space and m.name in (meter_name, meter_name || '/rate')
      and (m.used_at < rota.now() - interval '1 second'
           or (m.most, m.spacing, m.burst) is distinct from (
               case when m.name = meter_name then its_most end, case when m.name <> meter_name then its_spacing end,
               case when m.name <> meter_name then its_burst end));
    if its_most is not null then
        free := its_most - rota.count_permits(space, its_name);
    end if;
    if its_spacing is not null then
        moment := rota.now();
        -- All that a rate can have granted, as in claim_shared().
        update rota.meter as m set next_at = moment + its_burst * its_spacing * interval '1 second'
        where m.namespace = space and m.name = meter_name || '/rate'
          and m.next_at > moment + its_burst * its_spacing * interval '1 second';
        select m.next_at into rate from rota.meter as m where m.namespace = space and m.name = meter_name || '/rate';
        free := least(case when its_most is null then 1000000 else free end,
                      rota.starts_at(rate.next_at, its_spacing, its_burst, moment));
        wait := least(greatest(extract(epoch from
            rate.next_at - (its_burst - 1) * its_spacing * interval '1 second' - moment)::float8, 0.005), 1);
    end if;
    if free <= 0 then
        return;
    end if;
    -- Those that asked before, as many as there are free places: what doesn't run any more is passed over.
    for waiting in
        select r.number, r.job_id, r.token from rota.permit as r
        where r.namespace = space and r.name = its_name and r.granted_at is null and r.number < mine.number order by r.number
    loop
        if rota.runs_under(waiting.job_id, waiting.token) then
            free := free - 1;
            if free <= 0 then
                wait := least(wait, 0.25);  -- theirs, as soon as they ask again
                return;
            end if;
        else
            delete from rota.permit as r where r.namespace = space and r.name = its_name and r.number = waiting.number;
        end if;
    end loop;
    update rota.permit as r set granted_at = rota.now()
    where r.namespace = space and r.name = its_name and r.job_id = job and r.token = its_token and r.ask = this_ask;
    if its_spacing is not null then
        update rota.meter as m set next_at = greatest(m.next_at, moment) + its_spacing * interval '1 second'
        where m.namespace = space and m.name = meter_name || '/rate';
    end if;
    granted := true;
end $$;

-- Gives a permit back, or takes an ask back, and wakes the nodes of those that are next.
create or replace function rota.leave_permit(job uuid, its_token bigint, space text, its_name text, this_ask int) returns boolean
    language plpgsql volatile set enable_seqscan = off as $$
declare
    told record;
begin
    delete from rota.permit as r
    where r.namespace = space and r.name = its_name and r.job_id = job and r.token = its_token and r.ask = this_ask;
    if not found then
        return false;
    end if;
    for told in
        select distinct n.node from (
            select r.node from rota.permit as r
            where r.namespace = space and r.name = its_name and r.granted_at is null order by r.number limit 2) as n
    loop
        perform rota.notify(rota.channel(space, told.node), 'permit ' || its_name);
    end loop;
    return true;
end $$;

-- How many have a permit of the limit that a meter stands for, or wait for one.
create or replace function rota.count_asks(space text, its_meter text, had boolean) returns bigint language sql volatile
    set enable_seqscan = off as $$
    select count(*) from rota.permit as r
    where r.namespace = space and starts_with(its_meter, 'limit:') and right(its_meter, 5) <> '/rate'
      and r.name = substr(its_meter, 7) collate "C" and (r.granted_at is not null) = had and rota.runs_under(r.job_id, r.token)
$$;

-- The jobs that run under a limit: by places of their own, by allotments of their nodes, or with a permit.
create or replace function rota.holders_of(space text, its_meter text, how_many int) returns table (id uuid)
    language sql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select h.id from (
        select distinct i.id from rota.place as l cross join lateral unnest(l.ids) as i(id)
        where l.namespace = space and l.meter = its_meter
          and exists (select from rota.present as p where p.id = i.id and p.state = {state.running})
        union
        select r.job_id from rota.permit as r
        where r.namespace = space and 'limit:' || r.name = its_meter and r.granted_at is not null
          and rota.runs_under(r.job_id, r.token)
        union
        (select p.id from rota.batch as b
         cross join lateral (
             select p.id from rota.present as p
             where p.lane = b.lane and (p.rank, p.id) >= (b.low, b.low_id) and (p.rank, p.id) <= (b.high, b.high_id)
               and p.token = b.token and p.state = {state.running} offset 0) as p
         where its_meter = any(b.gates) and split_part(b.lane, '/', 1) = space order by b.token limit how_many)) as h
    limit how_many
$$;
