-- As the role shop. The refund is an exactly_once task: it runs on Rota's connection, as the role rota.
grant usage on schema shop to rota;
grant select, update on shop.orders to rota;
grant insert on shop.refunds to rota;
