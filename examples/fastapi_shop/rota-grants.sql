grant usage on schema rota to shop;
grant select on rota.setting, rota.task, rota.node to shop;
grant select, insert, update on rota.submit_key to shop;
grant select, insert on rota.lane, rota.queue, rota.present, rota.future to shop;
