-- Coordinators other than PostgreSQL.

-- The number under which the coordinator granted the shard to its owner. Null: PostgreSQL did. It only decides between
-- two grants of that coordinator; the fence is `epoch`.
alter table rota.shard add column granted bigint;

-- The coordinator that a scheduler uses, without credentials. Null: PostgreSQL.
alter table rota.node add column coordinator text;
alter table rota.node add column coordinator_fault text;  -- why it doesn't answer; null: it does
