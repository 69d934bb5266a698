-- What is looked for among many, by an index of its own.

-- Backfills that may have ended, among all schedules.
create index schedule_backfill on rota.schedule (created_at) where source = 'backfill' and deleted_at is null;
