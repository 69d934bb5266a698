-- As the role shop: its own schema.
create schema shop;

create table shop.orders (
    id bigint generated always as identity primary key,
    article text not null,
    price numeric(10, 2) not null,
    state text not null default 'new'
);

create table shop.refunds (
    order_id bigint primary key references shop.orders,
    amount numeric(10, 2) not null
);

create table shop.reports (
    day date primary key,
    orders bigint not null
);
