-- Whether these are words of an attempt that this node really made: it holds the job under that token, or
-- it was the last to hold it and nobody has taken it since, or the job's record says that its attempt ended
-- there. Of an attempt that was lost (its node was declared dead) nothing more is believed.
create or replace function rota.may_log(job uuid, its_token bigint, me uuid) returns boolean
    language plpgsql stable
    set enable_hashjoin = off set enable_mergejoin = off set enable_seqscan = off
as $$
declare
    made jsonb := jsonb_build_array(jsonb_build_object('token', its_token, 'node', me));
    lost jsonb := jsonb_build_array(jsonb_build_object('token', its_token, 'outcome', 'lost'));
    held record;
begin
    select p.token, p.node, p.attempts into held from rota.present as p where p.id = job;
    if found then
        return ((held.token = its_token and coalesce(held.node, me) = me)
                or coalesce(held.attempts @> made, false))
            and not coalesce(held.attempts @> lost, false);
    end if;
    select f.attempts into held from rota.future as f where f.id = job;
    if found then
        return coalesce(held.attempts @> made and not held.attempts @> lost, false);
    end if;
    return exists (
        select from (select p.token, p.node, p.attempts from rota.past as p where p.id = job
                     union all
                     select d.token, d.node, d.attempts from rota.dead as d where d.id = job) as e
        where ((e.token = its_token and e.node = me) or coalesce(e.attempts @> made, false))
          and not coalesce(e.attempts @> lost, false));
end $$;
