-- How many runs each pair of buckets of `durations` and `lags` stands for; null: one each.
alter table rota.tally add column counts bigint[];
