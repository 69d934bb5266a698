-- Each step is written again when it ends, and steps of one run that end together lie on one page: with less room most of them
-- would move to another page, with a new entry in the index.
alter table rota.step set (fillfactor = 45);
