-- What lets statements and transactions read and write a bounded number of rows.

-- Where a batch lies in its lane, to the row: many jobs may have the same rank. And the jobs themselves, for
-- workers over HTTP: they claim few at a time, and are looked after by id. Claims of an older release leave the
-- widest bounds.
alter table rota.batch add column low_id uuid not null default '00000000-0000-0000-0000-000000000000';
alter table rota.batch add column high_id uuid not null default 'ffffffff-ffff-ffff-ffff-ffffffffffff';
alter table rota.batch add column ids uuid[];

update rota.batch as b set ids = array(
    select p.id from rota.present as p
    where p.lane = b.lane and p.rank between b.low and b.high and p.token = b.token and p.node = b.node and p.state = 4)
where b.request is not null;

-- A schedule that was deleted while much of it was undecided goes when that is written down, in steps. Nothing of it
-- fires meanwhile, also with schedulers of an older release: it has no next_due and no places.
alter table rota.schedule add column deleted_at timestamptz;
create index schedule_deleted on rota.schedule (id) where deleted_at is not null;
