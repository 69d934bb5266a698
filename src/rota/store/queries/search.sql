-- Jobs by what is known of them. `found_jobs` is the filter itself; `search` puts a page, a count or a list of
-- ids around it. A filter that is null lets everything pass, and is folded away when the statement is planned.

-- name: found_jobs
select * from rota.job as j
where j.namespace = $1
  and ($2::smallint[] is null or j.state = any($2))
  and ($3::text is null or j.task = $3)
  and ($4::text is null or rota.queue_of(j.lane) = $4)
  and ($5::text is null or (j.headers::jsonb -> 'tags') ? $5)
  and ($6::timestamptz is null or j.created_at >= $6)
  and ($7::timestamptz is null or j.created_at < $7)
  and ($8::text is null or strpos(lower(concat_ws(' ', j.id, j.task, j.key, j.payload, j.headers,
                                                  j.error ->> 'type', j.error ->> 'message')), lower($8)) > 0
       -- JSON as pages show it, with spaces and line ends between its parts, is stored without them.
       or ($11::text is not null and strpos(lower(concat_ws(' ', j.payload, j.headers)), lower($11)) > 0))
  and ($9::text is null or j.schedule_id = (select s.id from rota.schedule as s where s.namespace = $1 and s.name = $9))
  and ($10::text is null or case j.state when {state.succeeded} then 'succeeded' when {state.cancelled} then 'cancelled' else j.attempts -> -1 ->> 'outcome' end = $10)
  and ($12::text is null or (j.error is not null and rota.fingerprint(j.task, j.error) = $12))
  and ($14::timestamptz is null or j.finished_at >= $14)
  and ($15::timestamptz is null or j.finished_at < $15)
  and ($13::text is null or j.node = any(array(select n.id from rota.node as n where n.namespace = $1 and (n.name = $13 or n.id::text = $13))))

-- name: dead_groups
-- Failures that are alike: of one task, of one type, with messages that differ in numbers and ids only.
select g.fingerprint, g.task, g.error, count(*) as count, min(g.first_at) as first_at, max(g.finished_at) as last_at,
       (array_agg(g.message order by g.finished_at desc))[1] as message,
       (array_agg(g.id order by g.finished_at desc))[1] as latest
from (
    select d.id, d.task, d.finished_at, d.error ->> 'type' as error, rota.error_words(d.error) as message,
           rota.failed_first(d.attempts, d.error, d.finished_at) as first_at, rota.fingerprint(d.task, d.error) as fingerprint
    from rota.dead as d
    where d.namespace = $1
      and ($2::text is null or d.task = $2)
      and ($3::text is null or rota.queue_of(d.lane) = $3)) as g
group by g.fingerprint, g.task, g.error
order by count(*) desc, g.fingerprint
limit $4;

-- name: find_dead_group
-- The oldest first.
select d.id from rota.dead as d
where d.namespace = $1
  and rota.fingerprint(d.task, d.error) = $2
order by d.finished_at
limit $3;

-- name: schedules_page
-- By name; $6 is the last name of the page before. Only the first $8 names after it are looked at; null: all.
select s.id, s.namespace, s.name, s.version, s.task, s.spec, s.next_due, s.cursor, s.paused_at, s.paused_until, s.fired,
       s.source, s.app, s.created_at, s.updated_at, t.reason as problem, t.node as problem_node, t.since as problem_since
from (select * from rota.schedule as s
      where s.namespace = $1 and s.source not in ('backfill', 'deleted') and ($6::text is null or s.name > $6)
      order by s.name limit $8) as s
left join lateral (
    select t.node, t.since, t.reason from rota.schedule_problem as t
    where t.schedule_id = s.id and t.version = s.version and t.seen_at > rota.now() - interval '5 minutes'
    order by t.since limit 1) as t on true
where ($2::text is null or s.task = $2 or (s.task = 'rota' || '.start' and strpos(s.spec::text, '\u0000') = 0 and s.spec ->> 'workflow' = $2))
  -- A NUL, which older releases let pass, can't become text.
  and ($3::text is null or case when strpos(s.spec::text, '\u0000') = 0 then (s.spec::jsonb -> 'tags') ? $3 end)
  and ($4::boolean is null or (s.paused_at is not null) = $4)
  and ($5::text is null or strpos(lower(s.name), lower($5)) > 0 or case
       when strpos(s.spec::text, '"description":"') = 0 or strpos(s.spec::text, '\u0000') > 0 then false
       else strpos(lower(s.name || ' ' || (s.spec ->> 'description')), lower($5)) > 0 end)
order by s.name
limit $7;

-- name: schedule_name
-- A schedule by its name or by its id, which fits into a path whatever the name is.
select s.name from rota.schedule as s
where s.namespace = $1
  and (s.name = $2 or s.id = case when $2 ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then $2::uuid end) and s.source not in ('backfill', 'deleted')
order by s.name = $2 desc
limit 1;
