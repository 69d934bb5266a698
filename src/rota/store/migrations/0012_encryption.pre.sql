-- Payloads and results encrypted at rest. Only additions: code that knows nothing of it goes on working,
-- and stores what it submits as it is.

alter table rota.namespace add column encrypted boolean not null default false;

-- Which keys a worker has, so that a job nobody can open is explained; null: it doesn't say.
alter table rota.node add column keys text[];
