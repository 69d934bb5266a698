-- Keys, limits and what they count. docs/architecture.md, "Limits", describes the protocol.

create or replace function rota.escaped_key(key text) returns text language sql immutable parallel safe as
    $$ select replace(replace(key, '%', '%25'), '&', '%26') $$;

-- The keys of a job as one text, always in the same order; null: it has none. The same as share_of() in Python.
create or replace function rota.share_of(concurrency_key text, fairness_key text, order_key text, order_failure text,
    limited_task text) returns text language sql immutable parallel safe as $$
    select nullif(concat_ws('&', 'c=' || rota.escaped_key(concurrency_key), 'f=' || rota.escaped_key(fairness_key),
                            'o=' || rota.escaped_key(order_key), 't=' || limited_task, 'x=' || order_failure), '')
$$;

-- The share of a job that no worker may claim ahead of its time, because a later submit may change it; `why` says which.
create or replace function rota.punctual_share(share text, why text) returns text language sql immutable parallel safe as
    $$ select case when why is null then share else concat_ws('&', share, 'p=' || why) end $$;

create or replace function rota.share_part(share text, part text) returns text language sql immutable parallel safe as $$
    select replace(replace(substr(p, 3), '%26', '&'), '%25', '%')
    from unnest(string_to_array(share, '&')) as p where starts_with(p, part || '=')
$$;

-- The lane of jobs with these keys. A digest: a key may be long, and hold what a lane's text must not.
create or replace function rota.sublane_of(base text, share text) returns text language sql immutable parallel safe as $$
    select case when share is null then base
                else base || '#' || left(encode(sha256(convert_to(share, 'UTF8')), 'hex'), 32) end
$$;

-- Refuses keys that can't be stored, naming the field.
create or replace function rota.check_keys(concurrency_key text, fairness_key text, order_key text, order_failure text)
    returns boolean language plpgsql immutable as $$
declare
    problem text := case
        when length(concurrency_key) not between 1 and 255 then 'concurrency_key must be 1 to 255 characters long'
        when length(fairness_key) not between 1 and 255 then 'fairness_key must be 1 to 255 characters long'
        when length(order_key) not between 1 and 255 then 'order_key must be 1 to 255 characters long'
        when order_failure not in ('hold', 'drop') then 'order_failure must be hold or drop; leave it out to go on'
        when order_failure is not null and order_key is null then 'order_failure needs an order_key'
    end;
begin
    if problem is not null then
        raise exception using errcode = 'RT001', message = 'rota: ' || problem, hint = 'Nothing was submitted.';
    end if;
    return true;
end $$;

-- A new lane of a queue with limits gets the entry that tells workers to claim from its sublanes.
create or replace function rota.split_new_lane() returns trigger language plpgsql as $$
begin
    if strpos(new.lane, '#') = 0 and exists (
        select from rota.queue as q where q.namespace = new.namespace and q.name = new.queue and q.governed)
    then
        insert into rota.lane (lane, namespace, queue, needs)
        values (new.lane || '#', new.namespace, new.queue, new.needs) on conflict do nothing;
    end if;
    return null;
end $$;

-- The limits that jobs with these keys are under. `kind`, `subject` and `its_key` say what they count.
create or replace function rota.meters_of(space text, queue_name text, share text)
    returns table (name text, most int, kind text, subject text, its_key text, spacing float8, burst int)
    language sql stable as $$
    select 'queue:' || q.name, q.concurrency, 'queue', q.name, null, null::float8, null::int from rota.queue as q
    where q.namespace = space and q.name = queue_name and q.concurrency is not null
    union all
    select 'queue:' || q.name || '/key:' || rota.share_part(share, 'c'), q.concurrency_per_key, 'queue', q.name,
           rota.share_part(share, 'c'), null, null
    from rota.queue as q
    where q.namespace = space and q.name = queue_name and q.concurrency_per_key is not null
      and rota.share_part(share, 'c') is not null
    union all
    -- Jobs without a key count together, as if they had an empty one.
    select 'task:' || t.name || case when t.per_key then '/key:' || coalesce(rota.share_part(share, 'c'), '') else '' end,
           t.concurrency, 'task', t.name, case when t.per_key then coalesce(rota.share_part(share, 'c'), '') end,
           null, null
    from rota.task as t
    where t.namespace = space and t.name = rota.share_part(share, 't') and t.concurrency is not null
    union all
    select 'queue:' || q.name || '/rate', null, 'rate', q.name, null, q.rate_period / q.rate_count, q.rate_burst
    from rota.queue as q where q.namespace = space and q.name = queue_name and q.rate_count is not null
    union all
    select 'task:' || t.name || '/rate' || case when t.per_key then '/key:' || coalesce(rota.share_part(share, 'c'), '') else '' end,
           null, 'rate', t.name, null, t.rate_period / t.rate_count, t.rate_burst
    from rota.task as t
    where t.namespace = space and t.name = rota.share_part(share, 't') and t.rate_count is not null
$$;

-- How many may start at a moment under a rate: GCRA. `next_at` is when the next one would be due if each came at its
-- time; `burst` of them may come at once.
create or replace function rota.starts_at(next_at timestamptz, spacing float8, burst int, moment timestamptz) returns int
    language sql immutable parallel safe as $$
    select greatest(burst + floor(
        extract(epoch from moment - greatest(next_at, moment))::float8 / spacing + 0.000001), 0)::int
$$;

-- How many jobs run under a limit.
create or replace function rota.count_held(space text, meter_name text) returns int language sql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    select count(distinct p.id)::int from rota.place as l
    cross join lateral unnest(l.ids) as i(id)
    cross join lateral (
        select p.id from rota.present as p where p.id = i.id and p.state = {state.running} offset 0) as p
    where l.namespace = space and l.meter = meter_name
$$;

-- Counts again, under the meter's lock, and forgets places of what runs no more.
create or replace function rota.recount(space text, meter_name text) returns int language plpgsql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    running int := rota.count_held(space, meter_name);
begin
    delete from rota.place as l
    where l.namespace = space and l.meter = meter_name and not exists (
        select from unnest(l.ids) as i(id)
        cross join lateral (
            select from rota.present as p where p.id = i.id and p.state = {state.running} offset 0) as p);
    update rota.meter as m set held = running where m.namespace = space and m.name = meter_name;
    return running;
end $$;

-- Gives places to what runs already when a limit is new, or has not been used for a while: it may have been claimed when
-- there was none.
create or replace function rota.seed_meter(space text, meter_name text, kind text, subject text, its_key text) returns void
    language sql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
    insert into rota.place (namespace, meter, token, ids)
    select space, meter_name, b.token, array_agg(p.id) from rota.batch as b
    cross join lateral (
        select p.id, p.task, p.share from rota.present as p
        where p.lane = b.lane and (p.rank, p.id) >= (b.low, b.low_id) and (p.rank, p.id) <= (b.high, b.high_id)
          and p.token = b.token and p.state = {state.running}
        offset 0) as p
    where split_part(b.lane, '/', 1) = space
      -- What runs under an allotment is counted by that.
      and (b.gates is null or meter_name <> all(b.gates) or not exists (
          select from rota.allotment as a
          where a.namespace = space and a.meter = meter_name collate "C" and a.node = b.node))
      and case kind when 'queue' then rota.queue_of(b.lane) = subject else p.task = subject end
      and (its_key is null or coalesce(rota.share_part(p.share, 'c'), '') = its_key)
    group by b.token
    on conflict (namespace, meter, token) do nothing
$$;

-- Forgets sublanes and limits that have not been used for a while. Returns how many.
create or replace function rota.forget_sublanes(how_many int) returns bigint language plpgsql volatile
    set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
    chosen text[];
    gone bigint;
    more bigint;
begin
    chosen := array(
        select s.lane from rota.sublane as s
        where s.state = 2 and s.changed_at < rota.now() - interval '1 minute' limit how_many for update skip locked);
    -- A new statement: jobs that were committed before the lock are seen, and those after it come with an arrival.
    delete from rota.sublane as s
    where s.lane = any(chosen) and not exists (select from rota.present as p where p.lane = s.lane)
      and (s.order_job is null or not exists (select from rota.future as f where f.id = s.order_job)
           and not (rota.share_part(s.share, 'x') = 'hold' and exists (
               select from rota.dead as d where d.id = s.order_job)));
    get diagnostics gone = row_count;
    delete from rota.meter as m
    where m.ctid = any(array(
        select m.ctid from rota.meter as m
        where m.used_at < rota.now() - interval '1 minute' and m.recheck_at is null
          and (m.next_at is null or m.next_at <= rota.now())  -- or a rate would begin anew
          and rota.count_held(m.namespace, m.name) + rota.allotted(m.namespace, m.name) = 0
        limit how_many for update skip locked));
    get diagnostics more = row_count;
    delete from rota.allotment as a where not exists (
        select from rota.meter as m where m.namespace = a.namespace and m.name = a.meter
          and (a.node = '00000000-0000-0000-0000-000000000000' or exists (
              select from rota.node as n where n.id = a.node and n.state in ('live', 'draining'))));
    delete from rota.place as l where not exists (
        select from rota.meter as m where m.namespace = l.namespace and m.name = l.meter);
    return gone + more;
end $$;
