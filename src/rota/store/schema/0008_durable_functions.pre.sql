-- Durable functions: what they have done, and the signals that they wait for. docs/architecture.md describes the protocol.
--
-- A run of a durable function is a run of a workflow with one step, the function. Its job runs the function, again from its
-- beginning after each wait and each crash; what is recorded here is not done again.

alter table rota.run
    add column suspended   boolean not null default false,  -- its function waits, without a worker
    add column waits_left  int,                             -- it goes on when so many waits have ended; null: when one has
    add column cancel_sent boolean not null default false,  -- its function was told that the run is being cancelled
    add column forced      boolean not null default false,  -- cancelled again: its function is stopped, too
    add column problem     json,                            -- why it was paused: its code contradicts its history
    add column status      json;                            -- what its function reports of itself

-- The history of a function. `number`: in the order in which they were asked for.
create table rota.checkpoint (
    run_id     uuid not null,
    number     int not null,
    kind       smallint not null,
    state      smallint not null,
    attempt    smallint not null default 1,
    token      bigint not null,       -- of the attempt of the function that wrote it
    created_at timestamptz not null default rota.now(),
    ended_at   timestamptz,
    wake_at    timestamptz,           -- a sleep's end, a wait's time-out, the next try of a step
    job_id     uuid,                  -- of a call: its job or run; of a wait: the signal that it took
    name       text not null,         -- where it is in the code: branch, name and occurrence
    digest     text,                  -- of its arguments
    signal     text collate "C",      -- of a wait: the signal's name and key
    signal_key text collate "C",
    namespace  text collate "C",
    result     json,
    error      json,
    primary key (run_id, number)
) with (fillfactor = 90);
create index checkpoint_signal on rota.checkpoint (namespace, signal, signal_key, created_at)
    where signal is not null and state = {step.waiting};
insert into rota.row_security (table_name, condition, privileges) values
    ('checkpoint', 'exists (select from rota.run as r where r.id = run_id)', 'select, insert, update, delete');

-- Signals: those that wait to be taken, and for a while those that were, so that one that is sent again is known.
create table rota.run_signal (
    id         uuid primary key,
    namespace  text collate "C" not null,
    name       text collate "C" not null,
    key        text collate "C" not null,
    once       text collate "C",      -- the sender's own key: the same again is not another signal
    sent_at    timestamptz not null default rota.now(),
    taken_at   timestamptz,
    run_id     uuid,                  -- the run that took it
    payload    json not null
);
create unique index run_signal_once on rota.run_signal (namespace, name, key, once) where once is not null;
create index run_signal_waiting on rota.run_signal (namespace, name, key, sent_at) where taken_at is null;
create index run_signal_sent on rota.run_signal (sent_at);
insert into rota.row_security (table_name, privileges) values ('run_signal', 'select, insert, update, delete');
-- A signal that has to be offered is pending as a run is: see rota.send_signal().
update rota.row_security
set condition = 'exists (select from rota.run as r where r.id = run_id) or exists (select from rota.run_signal as s where s.id = run_id)'
where table_name = 'pending_step';
