-- Tokens that submit jobs to some queues alone. Empty: to all; else names, or prefixes of names with a *.
alter table rota.api_token add column queues text[] not null default '{}';
