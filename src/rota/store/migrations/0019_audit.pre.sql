-- From where a change was made: rest, dashboard, cli or python. Null: before this was recorded.
alter table rota.audit add column interface text;
