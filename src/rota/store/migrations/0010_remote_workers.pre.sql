-- Workers over HTTP. Each is a row of rota.node like any worker, with a lease of its own by the database's
-- clock: the reaper, the tokens, hints, explain and the lists need not know that it is elsewhere.

alter table rota.node add column remote boolean not null default false;
-- Heartbeats change nothing that it mentions: they stay heap-only.
create index node_remote on rota.node (id) where remote and ended_at is null;

-- Which request of a worker a batch is the answer to, and which of its tries: so that a repeated request
-- gets what the lost answer held.
alter table rota.batch add column request text collate "C";
alter table rota.batch add column request_try bigint;

-- How a task's failures are tried again, for tasks whose code no node has.
alter table rota.task add column retry json;

-- A tenant's worker is registered, and claims, as its tenant.
update rota.wall set privileges = 'select, insert, update' where table_name = 'node';
insert into rota.wall (table_name, condition, privileges) values
    ('batch', 'split_part(lane, ''/'', 1) = current_setting(''rota.namespace'', true)', 'select, insert, update, delete');
