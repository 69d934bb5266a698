-- The shop's own tables, in the same database as Rota's.
create schema if not exists shop;
create table if not exists shop.refund (
    order_id int primary key,
    amount   numeric not null,
    made_at  timestamptz not null default now()
);
