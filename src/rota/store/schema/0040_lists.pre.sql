-- What pages of the dashboard find without reading a whole list: the lanes of a queue, the queues whose jobs waited
-- longest in a minute, webhooks and shared views in their order, the newest nodes.

create index lane_queue on rota.lane (namespace, queue, lane);
-- Rows of minutes in which jobs of a queue were ready. A row gets `ready` once a minute: sums are added without it.
create index run_stats_waiting on rota.run_stats (namespace, at, ready_lag) where span = 60 and task = '' and ready > 0;
create index webhook_order on rota.webhook (namespace, created_at, id);
create index saved_view_shared on rota.saved_view (namespace, name, owner) where shared;
create index task_latest on rota.task (namespace, updated_at desc, name);
