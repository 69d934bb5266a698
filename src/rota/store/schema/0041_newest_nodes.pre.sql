-- The newest nodes first, a page at a time. A heartbeat changes none of these columns.
create index node_started on rota.node (namespace, started_at desc, id);
