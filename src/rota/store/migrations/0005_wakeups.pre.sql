-- Directed wake-ups: a hint goes to as many idle workers as there is work, not to all of them.
--
-- A worker with free slots that finds nothing more to claim says so in its row of rota.node (`wants`).
-- A hint draws among those that serve the lane, and tells each on a channel of its own; when nobody can
-- be drawn, it tells the whole namespace, as before. Nothing here is needed for correctness: whoever
-- isn't told looks by himself, later.
--
-- Nodes of the release before never say that they want something, and listen to the namespace's channel
-- only: while one of them is alive, every hint goes there (new nodes listen to it as well). They submit
-- through the same rota.hint(), and what they send by themselves (signals) goes to the namespace.

-- Workers of one kind can run the same jobs: they know the same tasks, and serve the same lanes. A hint
-- doesn't name the task, so it is given to every kind that serves the lane. Null: no worker, or one of
-- the release before. `lot`: its place in the draw. `wants`: the free slots of a worker that waits for
-- hints, else null. Heartbeats change nothing that an index mentions: they stay heap-only.
alter table rota.node add column kind text collate "C";
alter table rota.node add column lot int not null default 0;
alter table rota.node add column wants int;
alter table rota.node set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
create index node_hungry on rota.node (namespace, kind, lot, id) where wants is not null and state = 'live';
create index node_peers on rota.node (namespace, kind) where kind is not null and state = 'live';
create index node_of_old on rota.node (namespace) where kind is null and state = 'live' and 'worker' = any(roles);
