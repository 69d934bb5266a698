-- By a superuser, once: two roles that own nothing of each other's, and one database for both.
create role rota login password 'rota-secret';
create role shop login password 'shop-secret';
create database shop;
grant create on database shop to rota, shop;

-- The server answers each request as this role, so that row-level security keeps namespaces apart.
create role rota_tenant nologin;
grant rota_tenant to rota;
