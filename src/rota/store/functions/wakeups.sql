-- The only way to NOTIFY. Tests and simulations replace this one function.
create or replace function rota.notify(channel text, payload text) returns void language plpgsql volatile as $$
begin
    perform pg_notify(channel, payload);
end $$;

create or replace function rota.channel(namespace text) returns text language sql immutable parallel safe as
    $$ select 'rota_' || md5('rota.' || namespace) $$;

create or replace function rota.channel(namespace text, node uuid) returns text language sql immutable parallel safe as
    $$ select 'rota_' || md5('rota.' || namespace || '.' || node::text) $$;

-- The advisory lock that a worker's listening connection holds. When the process is killed or the line is cut,
-- the lock is gone, and the next hint goes to another worker.
create or replace function rota.listener_lock(node uuid) returns bigint language sql immutable parallel safe as
    $$ select hashtextextended('rota.' || node::text, 5) $$;

create or replace function rota.is_listening(node uuid) returns boolean language plpgsql volatile as $$
begin
    if pg_try_advisory_lock_shared(rota.listener_lock(node)) then
        return not pg_advisory_unlock_shared(rota.listener_lock(node));
    end if;
    return true;
end $$;

-- Notifies idle workers of every kind that serves the lane, until their free slots cover `amount`. Returns how
-- many were notified; null when it gave up, after too many kinds or too many workers that don't listen, which
-- bounds its cost. The walk goes around a ring, from a place that follows from the rank, so that hints spread.
-- It locks nothing: two hints may choose the same worker, which passes on what it can't take. The collation is
-- named because the argument has its own: with another collation than the index's, the index isn't used.
create or replace function rota.draw(space text, job_lane text, job_rank bigint, amount bigint, not_me uuid)
    returns bigint language plpgsql volatile
    set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_incremental_sort = off
    set plan_cache_mode = force_generic_plan
as $$
declare
    queue text := rota.queue_of(job_lane);
    needs text[] := rota.needs_of(job_lane);
    special boolean := strpos(job_lane, '=') > 0;  -- it asks for resources, or to be near
    capabilities text[] := case when special then rota.capabilities_in(needs) else needs end;
    place int := hashint8(job_rank);
    able record;
    worker record;
    chosen rota.node.kind%type := '';
    notified bigint := 0;
    missed int := 0;
    uncovered bigint;
    around boolean;
    able_now boolean;
    last_lot int;
    last_id uuid;
begin
    for kinds in 1 .. 30 loop
        select n.kind, n.queues, n.capabilities into able from rota.node as n
        where n.namespace = space collate "default" and n.kind > chosen and n.idle_slots is not null and n.state = 'live'
        order by n.kind, n.lot, n.id limit 1;
        if not found then
            return notified;
        end if;
        chosen := able.kind;
        continue when not (capabilities <@ able.capabilities and (able.queues = '{}' or queue = any(able.queues)));
        uncovered := amount;
        around := false;
        last_lot := place;
        last_id := '00000000-0000-0000-0000-000000000000';
        while uncovered > 0 loop
            -- One at a time: most hints need no more than one.
            select n.id, n.lot, n.idle_slots, n.heartbeat_at + (n.expires_at - n.heartbeat_at) / 2 > rota.now() as fresh
            into worker from rota.node as n
            where n.namespace = space collate "default" and n.kind = chosen and (n.lot, n.id) > (last_lot, last_id)
              and n.idle_slots is not null and n.state = 'live'
            order by n.lot, n.id limit 1;
            if not found and not around then
                around := true;
                last_lot := -2147483648;
                last_id := '00000000-0000-0000-0000-000000000000';
                continue;
            end if;
            exit when not found or (around and worker.lot >= place);
            last_lot := worker.lot;
            last_id := worker.id;
            continue when worker.id = not_me;
            able_now := true;
            if special then  -- in a branch of its own: an expression with a query costs a plan whether or not it is needed
                able_now := rota.can_run(needs, able.capabilities, (select n.resources from rota.node as n where n.id = worker.id));
            end if;
            if able_now and worker.fresh and rota.is_listening(worker.id) then
                perform rota.notify(rota.channel(space, worker.id),
                    concat_ws(' ', job_lane, job_rank, least(worker.idle_slots, uncovered)));
                notified := notified + 1;
                uncovered := uncovered - worker.idle_slots;
            else
                missed := missed + 1;
                if missed > 50 then
                    return null;
                end if;
            end if;
        end loop;
    end loop;
    return null;
end $$;

-- Records that a sublane has new jobs. The first time, its lane gets the entry that tells workers to look for them.
create or replace function rota.note_arrival(space text, sublane text, its_rank bigint) returns void language plpgsql volatile
as $$
declare
    its_base text := split_part(sublane, '#', 1);
begin
    if right(sublane, 1) = '#' then
        return;  -- the entry itself, when all lanes of a queue are hinted
    end if;
    insert into rota.arrival (base, lane, namespace, rank) values (its_base, sublane, space, its_rank);
    if not exists (select from rota.lane as l where l.lane = its_base || '#') and not rota.is_new_lane(its_base || '#') then
        insert into rota.lane (lane, namespace, queue, needs)
        values (its_base || '#', space, rota.queue_of(sublane), rota.needs_of(sublane)) on conflict do nothing;
    end if;
end $$;

-- Notifies workers that a lane has new jobs: the lane, the lowest rank added, how many. The notification may be
-- lost. The lowest possible rank means that the number is unknown, as when a queue is resumed. Whatever makes jobs
-- ready calls this: so it is also where claims learn of sublanes, by an arrival, which is not lost.
create or replace function rota.hint(namespace text, lane text, rank bigint, count bigint) returns void
    language plpgsql volatile as $$
begin
    if strpos(lane, '#') > 0 then
        perform rota.note_arrival(namespace, lane, rank);
    end if;
    if rank = -9223372036854775808 or coalesce(rota.draw(namespace, lane, rank, count, null), 0) = 0 then
        perform rota.notify(rota.channel(namespace), concat_ws(' ', lane, rank, count));
    end if;
end $$;

-- Notifies a worker that there is a signal for it.
create or replace function rota.notify_signal(space text, to_node uuid) returns void language sql volatile as
    $$ select rota.notify(rota.channel(space, to_node), 'signal ' || to_node::text) $$;
