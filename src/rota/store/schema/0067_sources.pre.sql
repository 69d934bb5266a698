-- Two releases may declare the same trigger with different sources, or the same sink with different targets, while one
-- replaces the other. The row is about one of them at a time; here are the positions of the others, by their addresses.
alter table rota.trigger add column kept jsonb not null default '{}';
alter table rota.sink add column kept jsonb not null default '{}';

-- Messages up to mark_number were read at mark_at or before: they are kept for a week after that.
alter table rota.inbox add column mark_number bigint, add column mark_at timestamptz;
