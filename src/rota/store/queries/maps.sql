-- Maps: functions/maps.sql says how they go on.

-- name: make_map
select rota.make_map($1, $2, $3, $4, $5, $6, $7, $8, $9::json);

-- name: start_map
select rota.start_map($1, $2);

-- name: add_chunks
select rota.add_chunks($1, $2, $3::json, $4);

-- name: open_chunks
select * from rota.open_chunks($1, $2::uuid[], $3::bigint[], $4::uuid[], $5::int[], $6::int[]);

-- name: record_members
select rota.record_members($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::json, $12::json);

-- name: reopen_maps
select rota.reopen_other_maps($1, $2::int[], $3);

-- name: reopen_members
select rota.reopen_map($1, $2, $3::bigint[]);

-- name: restart_members
-- Of a map that still runs: what was reopened starts when there is room.
select rota.start_chunks($1, $2);

-- name: forget_map
select rota.forget_map($1, $2);

-- name: renew_map
select rota.renew_map($1, $2);

-- name: open_feed
select * from rota.open_feed($1, $2, $3, $4, $5);

-- name: feed_maps
select rota.feed_maps($1, $2, $3, $4, $5::json, $6);

-- name: map_progress
-- The maps of a run: counts, with what was recorded of chunks that run.
select m.step, m.id, m.each_job, m.held, m.stopped, m.closed, m.at_once, m.chunks, m.running, m.ended, m.members, m.succeeded,
       m.failed, coalesce(c.done, 0) as under_way
from rota.map as m
left join lateral (
    select sum(case when m.each_job then 0 else c.done end) as done from rota.map_chunk as c
    where c.run_id = m.run_id and c.step = m.step and c.state = {step.running}) as c on true
where m.run_id = $1 and ($2::int is null or m.step = $2) order by m.step;

-- name: map_chunks
-- Chunks from the one that holds a member on.
select c.number, c.first, c.size, c.state, c.done, c.job_id, c.items, c.result, c.ended_at
from rota.map_chunk as c
where c.run_id = $1 and c.step = $2 and c.first >= coalesce(
    (select max(o.first) from rota.map_chunk as o where o.run_id = $1 and o.step = $2 and o.first <= $3), 0)
order by c.first limit $4;

-- name: chunks_of_members
select c.number, c.first, c.size, c.state, c.done, c.job_id, c.items, c.result, c.ended_at from (
    select distinct (select max(o.first) from rota.map_chunk as o where o.run_id = $1 and o.step = $2 and o.first <= n) as first
    from unnest($3::bigint[]) as n) as k
join rota.map_chunk as c on c.run_id = $1 and c.step = $2 and c.first = k.first;

-- name: map_results
select p.first, p.size, p.results from rota.map_result as p
where p.run_id = $1 and p.step = $2 and p.first >= $3 and p.first <= $4 order by p.first;

-- name: map_members
-- Members that have failed at least once.
select b.number, b.state, b.attempt, b.ended_at, b.result, b.error from rota.map_member as b
where b.run_id = $1 and b.step = $2 and b.number >= $3 and b.number <= $4 and ($5::smallint is null or b.state = $5)
order by b.number limit $6;

-- name: size_of_results
-- About how many bytes the results of a map have.
select coalesce((select sum(octet_length(p.results::text)) from rota.map_result as p where p.run_id = $1 and p.step = $2), 0)
     + coalesce((select sum(octet_length(c.result::text)) from rota.map_chunk as c where c.run_id = $1 and c.step = $2), 0)
     + coalesce((select m.members * 5 from rota.map as m where m.run_id = $1 and m.step = $2), 0);
