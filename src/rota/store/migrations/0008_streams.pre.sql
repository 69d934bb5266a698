-- Events in the order in which they become visible, so that a reader can go on where it stopped.
--
-- Numbers are drawn before a commit: a smaller one may appear after a larger one was read. The number of
-- the transaction tells whether that can still happen: below the oldest one that is under way, it can't.
alter table rota.event add column xid xid8 not null default pg_current_xact_id();
create index event_stream on rota.event (namespace, xid, id);
