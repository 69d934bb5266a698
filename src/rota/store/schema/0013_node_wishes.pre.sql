-- What somebody has asked of a node: 'drain', to start no more jobs; 'stop', to drain and end. It learns of it with its
-- next heartbeat. null: nothing, or no longer.
alter table rota.node add column wish text check (wish in ('drain', 'stop'));
