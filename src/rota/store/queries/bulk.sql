-- Many different jobs at once. What follows from their tasks' defaults and from the time is computed by the
-- caller: in SQL, row by row, it costs several times as much as storing them.

-- name: defaults_of_tasks
select name, queue, needs, priority, guarantee, max_attempts, timeout, limited from rota.task
where namespace = $1 and name = any($2::text[]);

-- name: add_ready
{{insert rota.present, submitted: namespace = $1; rank = rank; run_id = null; schedule_id = null; key = null;
    step = null}}
from unnest($2::uuid[], $3::bigint[], $4::json[], $5::timestamptz[], $6::real[], $7::smallint[], $8::smallint[],
            $9::smallint[], $10::text[], $11::text[], $12::json[], $13::text[])
    as j(id, rank, payload, due_at, timeout, priority, guarantee, max_attempts, lane, task, headers, share);

-- name: add_future
{{insert rota.future, submitted: namespace = $1; shard = shard; run_id = null; schedule_id = null; key = null;
    step = null}}
from unnest($2::uuid[], $3::smallint[], $4::json[], $5::timestamptz[], $6::real[], $7::smallint[], $8::smallint[],
            $9::smallint[], $10::text[], $11::text[], $12::json[], $13::text[])
    as j(id, shard, payload, due_at, timeout, priority, guarantee, max_attempts, lane, task, headers, share);
