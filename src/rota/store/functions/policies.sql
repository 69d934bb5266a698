-- The policies `fifo` and `edf`. docs/architecture.md, "Policies", describes the protocol.

-- The rank of a job in the sublane of these keys, of which `q` is the policy that orders it.
create or replace function rota.rank_in(share text, space text, its_task text, due_at timestamptz, priority int) returns bigint
    language sql stable parallel safe as $$
    select case
        when share is null then rota.rank(due_at, priority)
        when share = 'q=fifo' or right(share, 7) = '&q=fifo' then rota.rank(due_at, 0)
        when share = 'q=edf' or right(share, 6) = '&q=edf' then rota.rank(rota.deadline_of(space, its_task, due_at), 0)
        else rota.rank(due_at, priority) end
$$;

-- When a job should have ended: by the deadline of its task, or an hour after it was due.
create or replace function rota.deadline_of(space text, its_task text, due_at timestamptz) returns timestamptz
    language sql stable parallel safe as $$
    select due_at + make_interval(secs => coalesce((
        select t.deadline from rota.task as t
        where t.namespace = space collate "C" and t.name = its_task collate "C"), 3600))
$$;

-- The keys of a sublane as they are under a policy. Jobs of an order_key stay in their order.
create or replace function rota.share_under(share text, policy text) returns text language sql immutable parallel safe as $$
    select nullif(concat_ws('&',
        nullif(array_to_string(array(
            select p from unnest(string_to_array(share, '&')) as p where not starts_with(p, 'q=')), '&'), ''),
        case when policy in ('fifo', 'edf') and rota.share_part(share, 'o') is null then 'q=' || policy end), '')
$$;

-- Moves the due jobs of sublanes that another policy has ordered to where they belong. The caller has locked these
-- sublanes. Returns the lanes to claim from in their place, which are locked then. One that another claim holds is left
-- alone, with its jobs: whoever holds it claims from it.
create or replace function rota.sort_lanes(space text, lanes text[]) returns text[] language plpgsql volatile
    set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
    set plan_cache_mode = force_generic_plan
as $$
declare
    most_at_once constant int := 5000;
    inbox record;
    twin text;
    known text;
    first bigint;
    jobs bigint;
    answer text[] := '{}';
begin
    for inbox in
        select s.lane, s.base, s.queue, s.share, q.policy, rota.share_under(s.share, q.policy) as wanted
        from rota.sublane as s join rota.queue as q on q.namespace = s.namespace and q.name = s.queue
        where s.lane = any(lanes) order by s.lane
    loop
        if coalesce(inbox.wanted, '') = inbox.share then
            answer := answer || inbox.lane;
            continue;
        end if;
        twin := rota.sublane_of(inbox.base, inbox.wanted);
        if inbox.wanted is not null or exists (select from rota.sublane as o where o.lane = twin) then
            select o.lane into known from rota.sublane as o where o.lane = twin for no key update skip locked;
            if not found then
                insert into rota.sublane (lane, base, namespace, queue, share, head, state)
                values (twin, inbox.base, space, inbox.queue, coalesce(inbox.wanted, ''), 9223372036854775807, 2)
                on conflict do nothing;
                continue when not found;  -- another claim holds it
            end if;
        end if;
        with moved as (
            update rota.present as p
            set lane = twin, share = inbox.wanted, rank = rota.rank_in(inbox.wanted, space, p.task, p.due_at, p.priority)
            where p.ctid = any(array(
                select p.ctid from rota.present as p
                where p.lane = inbox.lane and p.state = {state.ready} and p.due_at <= rota.now()
                order by p.rank, p.id limit most_at_once for update skip locked))
            returning p.rank
        )
        select min(rank), count(*) into first, jobs from moved;
        perform rota.settle_sublane(inbox.lane, jobs = most_at_once);
        if jobs > 0 then
            update rota.sublane as o
            set state = case when o.state = 3 and o.blocked_on is not null then o.state else 1 end, recheck_at = null,
                head = least(o.head, first), low = least(o.low, first)
            where o.lane = twin;
            if inbox.wanted is null then
                perform rota.hint(space, twin, first, jobs);
            end if;
        end if;
        if twin <> all(answer) and exists (select from rota.sublane as o where o.lane = twin and o.state = 1) then
            answer := answer || twin;
        end if;
    end loop;
    return answer;
end $$;
