-- Unique jobs, debounce and throttle. See functions/unique.sql.

-- name: submit_unique
select job_id, existed, conflict, outcome from rota.submit_unique_alone($1::json, $2);

-- name: forget_unique_keys
select rota.forget_unique_keys($1);
