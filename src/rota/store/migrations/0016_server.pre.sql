-- Tokens: the tasks that one is limited to, and the token that it was made with. Log-ins: the places from which
-- somebody has logged in before.

alter table rota.api_token
    add column tasks text[] not null default '{}',   -- empty: all; else names, or beginnings of names with a *
    add column made_with uuid;                       -- another token's id; null: a session or the command line
create index api_token_made_with on rota.api_token (made_with) where made_with is not null;

-- Of an account and an address, in hashed form: guesses from elsewhere don't keep such a log-in out.
create table rota.login_place (
    place   bytea primary key,
    seen_at timestamptz not null
);
