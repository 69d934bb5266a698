-- Schedules: what an update finds undecided, schedules that can't be planned, and what code declares.

-- The oldest version that still has undecided occurrences; null: only the current one decides.
alter table rota.schedule add column behind int;
-- The application that declares it in code.
alter table rota.schedule add column app text collate "C";

-- An update that could not read the version before it leaves a stretch of time without rows, and says why.
alter table rota.schedule_version add column unsettled_from timestamptz;
alter table rota.schedule_version add column unsettled text;

-- Which node has set which schedule aside, because it can't plan it. A row counts for as long as its node
-- keeps trying (`seen_at`) and the schedule's version is the one that it tried.
create table rota.schedule_trouble (
    schedule_id uuid not null references rota.schedule on delete cascade,
    node        text not null,
    version     int not null,
    since       timestamptz not null default rota.now(),
    seen_at     timestamptz not null default rota.now(),
    reason      text not null,
    primary key (schedule_id, node)
);

-- Set aside for good by an older release: looked at again. (One that has ended ends again.)
update rota.schedule set next_due = rota.now() where next_due is null and paused_at is null and source <> 'backfill';

-- The sets of schedules that an application has declared, each by the digest of what it says. The one with
-- the latest `declared_at` is in force; the others were superseded.
create table rota.declaration (
    namespace   text collate "C" not null,
    app         text collate "C" not null,
    digest      text not null,
    release     text not null default '',
    declared_at timestamptz not null default rota.now(),
    primary key (namespace, app, digest)
);

-- Up to where the ledger has been thrown away: nobody knows any more what ran before.
insert into rota.setting (name, value) values ('ledger_from', 0);

-- Jobs that waited for a schedule that was deleted meanwhile.
select rota.skip_job(f.id, 'deleted') from rota.future as f
where f.state = 1 and f.schedule_id is not null and not exists (select from rota.schedule as s where s.id = f.schedule_id);
delete from rota.gate as g where not exists (select from rota.schedule as s where s.id = g.schedule_id);

insert into rota.wall (table_name, condition, privileges) values
    ('schedule_trouble', 'exists (select from rota.schedule as s where s.id = schedule_id)', 'select'),
    ('declaration', 'namespace = current_setting(''rota.namespace'', true)', 'select');
