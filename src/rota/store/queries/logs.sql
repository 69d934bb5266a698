-- What jobs print and log.

-- name: add_log_lines
-- $1 the node, $2 its namespace; $3, $4, $5: attempts (job, token, number); $6 and on: lines, each with the place of
-- its attempt among those. What an attempt may not say any more is left out; the places of those come back.
with verdict as materialized (
    select array_agg(rota.may_log(a.job_id, a.token, $1) order by a.place) as allowed
    from unnest($3::uuid[], $4::bigint[]) with ordinality as a(job_id, token, place)
), added as (
    insert into rota.job_log (job_id, token, attempt, seq, at, namespace, stream, text)
    select ($3::uuid[])[l.place], ($4::bigint[])[l.place], ($5::smallint[])[l.place], l.seq, coalesce(l.at, rota.now()),
           $2, l.stream, l.text
    from verdict as v, unnest($6::int[], $7::int[], $8::timestamptz[], $9::text[], $10::text[])
        as l(place, seq, at, stream, text)
    where v.allowed[l.place]
    on conflict do nothing
)
select a.place from verdict as v, unnest(v.allowed) with ordinality as a(allowed, place) where not a.allowed;

-- name: read_log
-- $4, $5: how far each attempt (by its token) was read before.
select l.token, l.attempt, l.seq, l.at, l.stream, l.text
from rota.job_log as l
where l.namespace = $1 and l.job_id = $2 and ($3::int is null or l.attempt = $3)
  and l.seq > coalesce((select r.seq from unnest($4::bigint[], $5::int[]) as r(token, seq)
                        where r.token = l.token), 0)
order by l.token, l.seq
limit $6;

-- name: old_log_days
select c.relname as name, pg_relation_size(c.oid) > 0 as filled
from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
where i.inhparent = 'rota.job_log'::regclass and c.relname ~ '^job_log_[0-9]{8}$'
  and to_date(right(c.relname, 8), 'YYYYMMDD') + 1 + $1::int <= (rota.now() at time zone 'UTC')::date
order by 1;

-- name: forget_log_lines
delete from rota.job_log_other where ctid = any(array(
    select ctid from rota.job_log_other where at < rota.now() - make_interval(days => $1::int) limit 10000));
