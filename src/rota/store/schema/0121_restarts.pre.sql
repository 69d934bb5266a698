-- How often a durable function has begun anew. Its random numbers follow from that, not from the round: a run that is resumed
-- has to give them again, for keys of payments are among them.
alter table rota.run add column restarts int not null default 0;
