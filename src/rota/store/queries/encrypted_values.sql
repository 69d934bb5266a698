-- For `rota encrypt`, which no node runs.

-- name: encrypted_values
-- How many values of a namespace are under which key; null: under none.
select substring(v.value from '^(?:{"[$]rota-encrypted":"|[$]rota-encrypted:)1[.]([A-Za-z0-9_-]+)[.]') as key, count(*) as count
from (
    select payload::text as value from rota.job where namespace = $1
    union all
    select result::text from rota.job where namespace = $1 and result is not null
    union all
    select progress::text from rota.job where namespace = $1 and progress is not null
    union all
    select error ->> 'message' from rota.job where namespace = $1 and error is not null
    union all
    select a -> 'error' ->> 'message' from rota.job, jsonb_array_elements(attempts) as a
    where namespace = $1 and a ? 'error'
    union all
    select payload::text from rota.schedule where namespace = $1 and payload::text <> '{}'
    union all
    select (v.spec -> 'payload')::text from rota.schedule_version as v join rota.schedule as s on s.id = v.schedule_id
    where s.namespace = $1 and json_typeof(v.spec -> 'payload') = 'object'
    union all
    select result::text from rota.effect where namespace = $1 and result is not null
    union all
    select input::text from rota.run where namespace = $1
    union all
    select s.result::text from rota.run as r join rota.step as s on s.run_id = r.id where r.namespace = $1 and s.result is not null
    union all
    select s.error ->> 'message' from rota.run as r join rota.step as s on s.run_id = r.id
    where r.namespace = $1 and s.error ->> 'type' <> 'SkippedByHand'
    union all
    select error -> 'cause' ->> 'message' from rota.run where namespace = $1 and error -> 'cause' is not null
    union all
    select status::text from rota.run where namespace = $1 and status is not null
    union all
    select case c.kind when {checkpoint.run} then c.result ->> 'result' else c.result::text end
    from rota.run as r join rota.checkpoint as c on c.run_id = r.id where r.namespace = $1 and c.result is not null
    union all
    select c.digest from rota.run as r join rota.checkpoint as c on c.run_id = r.id
    where r.namespace = $1 and c.digest is not null and c.kind <> {checkpoint.note}
    union all
    select coalesce(c.error -> 'cause', c.error) ->> 'message' from rota.run as r join rota.checkpoint as c on c.run_id = r.id
    where r.namespace = $1 and c.error is not null and (c.kind <> {checkpoint.run} or c.error -> 'cause' is not null)
    union all
    select unnest(array[c.items::text, c.result::text]) from rota.run as r join rota.map_chunk as c on c.run_id = r.id
    where r.namespace = $1
    union all
    select c.results::text from rota.run as r join rota.map_result as c on c.run_id = r.id where r.namespace = $1
    union all
    select unnest(array[c.result::text, c.error ->> 'message']) from rota.run as r join rota.map_member as c on c.run_id = r.id
    where r.namespace = $1
    union all
    select payload::text from rota.run_signal where namespace = $1
    union all
    select text from rota.job_log where namespace = $1
    union all
    select key from rota.person where namespace = $1 and key is not null
) as v
group by 1 order by 1;
