-- Marks on alerts: what somebody has acknowledged or silenced.

-- name: list_alert_marks
select m.alert, m.acknowledged_at, m.silenced_until, m.actor, m.note from rota.alert_mark as m
where m.namespace = $1 and m.alert = any($2::text[]);

-- name: acknowledge_alert
-- Marks that cover nothing any more are removed by the way, a few at a time.
with old as (
    delete from rota.alert_mark where ctid = any(array(
        select ctid from rota.alert_mark
        where namespace = $1 and alert <> $2 and marked_at < rota.now() - interval '31 days'
          and coalesce(silenced_until, '-infinity') < rota.now() limit 100 for update skip locked))
)
insert into rota.alert_mark as m (namespace, alert, acknowledged_at, actor, note) values ($1, $2, rota.now(), $3, $4)
on conflict (namespace, alert) do update
    set acknowledged_at = excluded.acknowledged_at, actor = excluded.actor, note = excluded.note, marked_at = rota.now();

-- name: silence_alert
insert into rota.alert_mark as m (namespace, alert, silenced_until, actor, note)
values ($1, $2, rota.now() + make_interval(secs => $3), $4, $5)
on conflict (namespace, alert) do update
    set silenced_until = excluded.silenced_until, actor = excluded.actor, note = excluded.note, marked_at = rota.now();

-- name: restore_alert
delete from rota.alert_mark as m where m.namespace = $1 and m.alert = $2
returning m.alert, m.acknowledged_at, m.silenced_until, m.actor, m.note;
