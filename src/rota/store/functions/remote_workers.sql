-- The guarantee of a job that is handed out over HTTP: what its task promises by now. A job that was stored before its task was
-- registered does not know. One that asks for a transaction stays as it is: it can't have one.
create or replace function rota.declared_guarantee(its_namespace text, its_task text, stored smallint) returns smallint
    language sql stable as $$
    select coalesce((select t.guarantee from rota.task as t
        where t.namespace = its_namespace and t.name = its_task and t.guarantee = {guarantee.at_most_once}), stored)
$$;

-- What a worker over HTTP gets: up to `most` ready jobs of all the lanes it serves, in rank order, under one new
-- token. As the nodes' claim, but that it reads what the worker serves from its row, takes nothing that is
-- exactly_once (whose transaction can't span the network), and has its request.
--
-- A request that is repeated because its answer was lost finds the batch of the earlier try. The jobs that are
-- still held become the new try's, under a new token: whatever the earlier one may still do (its answer arrives
-- after all, its server notices that the request is closed and gives the jobs back) is refused. A try that was
-- overtaken gets nothing, nor does one that is seen a second time, as a broker may deliver it: its jobs are out, and
-- may have begun. Tries of one request wait for each other here.
--
-- One that will wait advertises that the worker is idle if it finds nothing (`advertises`), and withdraws that if it
-- finds something (`withdraws`): a statement and a commit less than if these were others. Whoever advertises claims
-- once more, for what came before that was to be seen.
create or replace function rota.claim_remote(me uuid, asked text, this_try bigint, most int,
        advertises boolean default false, withdraws boolean default false)
    returns table (id uuid, task text, payload json, token bigint, attempt smallint, max_attempts smallint,
        guarantee smallint, timeout real, crashes smallint, due_at timestamptz, key text, headers json, early float8,
        schedule_id uuid, rank bigint, lane text, run_id uuid, step int) language plpgsql volatile
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    new_token bigint := nextval('rota.token');
    last_try bigint;
    shared record;
    kind text;
    took boolean;
begin
    perform pg_advisory_xact_lock(hashtextextended('rota.' || me::text || asked, 10));
    select max(b.request_try) into last_try from rota.batch as b where b.node = me and b.request = asked;
    if last_try >= this_try then
        return;
    elsif last_try is not null then
        return query
            update rota.present as p set token = new_token, claimed_at = rota.now(), started_at = null
            where p.id = any(array(select unnest(b.ids) from rota.batch as b where b.node = me and b.request = asked))
              and p.token = any(array(select b.token from rota.batch as b where b.node = me and b.request = asked))
              and p.node = me and p.state = {state.running}
            returning p.id, p.task, p.payload, p.token, p.attempt, p.max_attempts, p.guarantee, p.timeout, p.crashes,
                p.due_at, p.key, p.headers,
                case when p.due_at > rota.now() then extract(epoch from p.due_at)::float8 end, p.schedule_id, p.rank, p.lane,
                p.run_id, p.step;
        if found then
            update rota.batch as b set token = new_token, request_try = this_try where b.node = me and b.request = asked;
            return;
        end if;
        delete from rota.batch as b where b.node = me and b.request = asked;
    end if;
    -- Sublanes or plain lanes first, by the request: neither is passed over while the other has a backlog.
    select array_agg(e.lane) as lanes, array_agg(e.most) as mosts, e.tasks into shared from (
        select l.lane, most, n.tasks from rota.node as n
        join rota.lane as l on l.namespace = n.namespace collate "C"
        where n.id = me and n.remote and n.state = 'live' and n.expires_at > rota.now() and right(l.lane, 1) = '#'
          and (n.queues = '{}' or l.queue = any(n.queues collate "C")) and l.needs <@ n.capabilities
        union all
        select s.lane, least(s.most, claim_remote.most), s.tasks from rota.special_lanes(me, asked, true) as s) as e
    group by e.tasks;
    foreach kind in array case when hashtextextended(asked, 0) % 2 = 0 then array['plain', 'shared'] else array['shared', 'plain'] end loop
        if kind = 'plain' then
            return query
                with wanted as (
                    select e.* from (
                        select l.lane, n.tasks, most as room, null::float8 as wait from rota.node as n
                        join rota.lane as l on l.namespace = n.namespace collate "C"
                        where n.id = me and n.remote and n.state = 'live' and n.expires_at > rota.now()
                          and (n.queues = '{}' or l.queue = any(n.queues collate "C")) and l.needs <@ n.capabilities
                        union all
                        select s.lane, s.tasks, least(s.most, claim_remote.most), s.wait from rota.special_lanes(me, asked, false) as s) as e
                    where not exists (select from rota.queue as q
                                      where q.namespace = split_part(e.lane, '/', 1) and q.name = rota.queue_of(e.lane)
                                        and (q.paused_at is not null or q.governed))
                ), picked as (
                    select p.at
                    from wanted as w
                    cross join lateral (
                        select p.ctid as at, p.rank, p.id from rota.present as p
                        where p.lane = w.lane and p.state = {state.ready} and p.guarantee <> {guarantee.exactly_once} and p.task = any(w.tasks collate "C")
                          and (w.wait is null or p.due_at <= rota.now() - make_interval(secs => w.wait))
                        order by p.rank, p.id
                        limit w.room
                        for update skip locked
                    ) as p
                    order by p.rank, p.id
                    limit most
                ), claimed as (
                    update rota.present as p
                    set state = {state.running}, node = me, token = new_token, attempt = p.attempt + 1, claimed_at = rota.now(),
                        started_at = null, progress = null, guarantee = rota.declared_guarantee(p.namespace, p.task, p.guarantee)
                    where p.ctid = any(array(select at from picked))
                    returning p.*
                ), noted as (
                    insert into rota.batch (token, lane, node, low, high, ids, request, request_try)
                    select new_token, c.lane, me, min(c.rank), max(c.rank), array_agg(c.id), asked, this_try
                    from claimed as c group by c.lane
                )
                select c.id, c.task, c.payload, c.token, c.attempt, c.max_attempts, c.guarantee, c.timeout, c.crashes, c.due_at,
                    c.key, c.headers, case when c.due_at > rota.now() then extract(epoch from c.due_at)::float8 end,
                    c.schedule_id, c.rank, c.lane, c.run_id, c.step
                from claimed as c order by c.rank, c.id;
        elsif shared.lanes is not null then
            return query
                select c.id, c.task, c.payload, c.token, c.attempt, c.max_attempts, c.guarantee, c.timeout, c.crashes, c.due_at,
                    c.key, c.headers, c.early, c.schedule_id, c.rank, c.lane, c.run_id, c.step
                from rota.claim_shared(me, array(select rtrim(l, '#') from unnest(shared.lanes) as l),
                    shared.mosts, most, shared.tasks, '{}', '{}', '{}', asked, this_try) as c;
        end if;
        took := found;  -- the end of the loop sets `found`, too
        exit when took;
    end loop;
    if took then
        if withdraws then
            update rota.node as n set idle_slots = null where n.id = me and n.idle_slots is not null;
        end if;
    elsif advertises then
        update rota.node as n set idle_slots = most
        where n.id = me and n.remote and n.state = 'live' and n.idle_slots is distinct from most;
    end if;
end $$;

-- Whether this outcome was written before: the job's record says that the attempt ended there, and not because
-- another node ended it (its time was over, or its worker was declared dead).
create or replace function rota.was_finished(job uuid, its_token bigint, me uuid) returns boolean language plpgsql stable
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
declare
    held record;
    entry jsonb;
begin
    select * into held from (
        select p.token, p.node, p.attempts, p.state from rota.present as p where p.id = job
        union all select null, null, f.attempts, f.state from rota.future as f where f.id = job
        union all select p.token, p.node, p.attempts, p.state from rota.past as p where p.id = job
        union all select d.token, d.node, d.attempts, d.state from rota.dead as d where d.id = job) as j limit 1;
    if not found then
        return rota.left_trace(job);  -- it succeeded, and its queue keeps no history of that
    end if;
    select e into entry from jsonb_array_elements(held.attempts) as e
    where (e ->> 'token')::bigint = its_token and e ->> 'node' = me::text limit 1;
    if found then
        return entry ->> 'outcome' not in ('timed_out', 'heartbeat_timeout', 'lost');
    end if;
    -- Given back and not claimed since; or ended without an entry, as successes are.
    return held.token = its_token and ((held.state = {state.ready} and held.node is null) or (held.state > {state.running} and held.node = me));
end $$;

-- What a job was submitted with, in seconds. Whatever else is in its headers under that name counts as nothing.
create or replace function rota.own_heartbeat_timeout(headers json) returns float8 language sql immutable parallel safe as $$
    select case when (headers -> 'heartbeat_timeout')::text ~ '^[0-9]{1,9}([.][0-9]{1,20})?$'
                then nullif((headers ->> 'heartbeat_timeout')::float8, 0) end
$$;

-- For how long an attempt at a worker may be silent: as it was submitted, or as its task says. Only of tasks for which
-- the worker has declared that it passes signs of life on.
create or replace function rota.heartbeat_timeout(timeouts jsonb, task text, headers json) returns float8
    language sql immutable parallel safe as $$
    select case when timeouts ->> task is not null
                then coalesce(rota.own_heartbeat_timeout(headers), (timeouts ->> task)::float8) end
$$;
