-- Jobs that have ended, for exports.

-- name: ended_jobs
-- Those that ended from $2 to before $3, by id, after the id $4: the order in which they were submitted. The days that
-- are outside are not read.
select * from rota.job
where namespace = $1 and finished_at >= $2 and finished_at < $3 and id > $4
  and ($5::smallint is null or state = $5)
  and ($6::text is null or task = $6)
  and ($7::text is null or rota.queue_of(lane) = $7)
order by id
limit $8;

-- name: rows_of_day
-- Rows of the partition $1, which is of the time from $2 to $5, by id, after the id $3. By its parent: a role may read that.
select id, row_to_json(p)::text as row from rota.past as p
where finished_at >= $2 and finished_at < $5 and tableoid = to_regclass('rota.' || $1) and id > $3
order by id
limit $4;

-- name: count_day
select count(*) from rota.past as p
where finished_at >= $2 and finished_at < $3 and tableoid = to_regclass('rota.' || $1);

-- name: old_dead_letters
-- Dead letters whose retention is over, as the rows that are stored.
select id, row_to_json(d)::text as row from rota.dead as d
where finished_at < rota.now() - make_interval(days => $1::int)
order by finished_at
limit $2;

-- name: old_strays
-- The same for jobs that ended on a day that had no partition.
select id, row_to_json(p)::text as row from rota.past_other as p
where finished_at < rota.now() - make_interval(days => $1::int)
limit $2;

-- name: forget_dead_letters
delete from rota.dead where id = any($1::uuid[]);

-- name: forget_strays
delete from rota.past_other where id = any($1::uuid[]);

-- name: set_queue_history
insert into rota.queue as q (namespace, name, history) values ($1, $2, nullif($3::text, 'all'))
on conflict (namespace, name) do update set history = excluded.history;

-- name: find_trace
select t.queue, t.task, t.ended_at from rota.traces_of(array[$2::uuid]) as t where t.namespace = $1;
