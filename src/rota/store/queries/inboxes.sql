-- Messages that come by HTTP: see rota.worker.sources.inbox.

-- name: declare_inbox
-- How its messages are signed, as the code of the node that reads says.
insert into rota.inbox as i (namespace, name, form, secrets) values ($1, $2, $3, $4)
on conflict (namespace, name) do update set form = excluded.form, secrets = excluded.secrets
where (i.form, i.secrets) is distinct from (excluded.form, excluded.secrets);

-- name: find_inbox
select i.form, i.secrets, extract(epoch from rota.now())::float8 as now
from rota.inbox as i join rota.trigger as t using (namespace, name)
where i.namespace = $1 and i.name = $2 and t.source = 'http:';

-- name: store_message
-- No row back: it is there already, or the inbox is gone.
with known as (
    select from rota.inbox_message as m where m.namespace = $1 and m.name = $2 and m.delivery = $3
), next as (
    update rota.inbox as i set last_number = last_number + 1
    where i.namespace = $1 and i.name = $2 and not exists (select from known)
    returning i.last_number
)
insert into rota.inbox_message (namespace, name, number, id, delivery, body, sealed, headers)
select $1, $2, n.last_number, $4, $3, $5, $6, $7 from next as n
on conflict (namespace, name, delivery) do nothing
returning number;

-- name: find_message
select number from rota.inbox_message where namespace = $1 and name = $2 and delivery = $3;

-- name: read_inbox
-- At most $5 bytes of bodies, but one message at least: batches are held in memory.
select m.number, m.id, m.delivery, m.body, m.sealed, m.headers
from (select o.number, sum(octet_length(o.body)) over (order by o.number) as bytes
      from rota.inbox_message as o
      where o.namespace = $1 and o.name = $2 and o.number > $3
      order by o.number limit $4) as s
join rota.inbox_message as m on m.namespace = $1 and m.name = $2 and m.number = s.number
where s.bytes - octet_length(m.body) < $5
order by m.number;

-- name: last_of_inbox
select coalesce(max(number), 0) from rota.inbox_message where namespace = $1 and name = $2;

-- name: prune_inbox
-- Messages up to the mark were read when it was set: $4 seconds later they are removed, a thousand at a time, and the mark
-- is set anew, to what is read by now ($3). So each stays for that time after it was read, and for twice as long at most.
with old as (
    select i.mark_number from rota.inbox as i
    where i.namespace = $1 and i.name = $2 and i.mark_at < rota.now() - make_interval(secs => $4)
), gone as (
    delete from rota.inbox_message as m where m.namespace = $1 and m.name = $2 and m.number in (
        select o.number from rota.inbox_message as o, old
        where o.namespace = $1 and o.name = $2 and o.number <= least(old.mark_number, $3)
        order by o.number limit 1000)
    returning m.number
), marked as (
    update rota.inbox as i set mark_number = $3, mark_at = rota.now()
    where i.namespace = $1 and i.name = $2
      and (i.mark_at is null or exists (select from old) and (select count(*) from gone) < 1000)
)
select number from gone;
