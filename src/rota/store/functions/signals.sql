-- Signals to durable functions: sent, waited for, given. durable_functions.sql: the order of locks.

create or replace function rota.lock_signal(namespace text, name text, key text) returns void language sql volatile as
    $$ select pg_advisory_xact_lock(hashtextextended(format('rota signal %s %s %s', namespace, name, key), 0)) $$;

-- Waits for a signal: takes the oldest that is there, or notes that the function waits. Returns the state of the wait; null:
-- the function is no longer this node's.
create or replace function rota.wait_for_signal(
    me uuid, job uuid, job_token bigint, run uuid, number int, name text, signal text, key text, time_out float8
) returns table (state smallint, job_id uuid, result json) language plpgsql volatile as $$
#variable_conflict use_column
declare
    space text := (select r.namespace from rota.run as r where r.id = run);
    found_signal record;
begin
    perform rota.lock_signal(space, wait_for_signal.signal, wait_for_signal.key);
    perform from rota.present as p where p.id = job and p.token = job_token and p.node = me and p.state = {state.running};
    if not found then
        return;
    end if;
    insert into rota.checkpoint as c (run_id, number, kind, state, token, name, signal, signal_key, namespace, wake_at)
    values (run, wait_for_signal.number, {checkpoint.signal}, {step.waiting}, job_token, wait_for_signal.name,
            wait_for_signal.signal, wait_for_signal.key, space, rota.now() + make_interval(secs => time_out))
    on conflict on constraint checkpoint_pkey do nothing;
    if found then
        select s.id, s.payload into found_signal from rota.run_signal as s
        where s.namespace = space and s.name = wait_for_signal.signal and s.key = wait_for_signal.key and s.taken_at is null
        order by s.sent_at, s.id limit 1 for update;
        if found then
            update rota.run_signal as s set taken_at = rota.now(), run_id = run where s.id = found_signal.id;
            update rota.checkpoint as c set state = {step.succeeded}, ended_at = rota.now(), job_id = found_signal.id,
                result = found_signal.payload
            where c.run_id = run and c.number = wait_for_signal.number;
        end if;
    end if;
    return query select c.state, c.job_id, c.result from rota.checkpoint as c
    where c.run_id = run and c.number = wait_for_signal.number
      and c.token = job_token and c.name = wait_for_signal.name;
end $$;

-- Gives a signal to the function that has waited longest for it, and returns its run; null: nobody waits. The caller has
-- locked the signal's name and key.
create or replace function rota.give_signal(namespace text, name text, key text, signal_id uuid, payload json)
    returns uuid language plpgsql volatile as $$
#variable_conflict use_column
declare
    waiter record;
begin
    for waiter in
        select c.run_id, c.number from rota.checkpoint as c
        where c.namespace = give_signal.namespace and c.signal = give_signal.name and c.signal_key = give_signal.key
          and c.state = {step.waiting}
        order by c.created_at, c.run_id, c.number
    loop
        -- The wait may have ended meanwhile, by its time-out or a cancel: then the next one is tried.
        perform rota.lock_functions(array[waiter.run_id]);
        update rota.checkpoint as c set state = {step.succeeded}, ended_at = rota.now(), job_id = give_signal.signal_id,
            result = give_signal.payload
        where c.run_id = waiter.run_id and c.number = waiter.number and c.state = {step.waiting}
          and (c.wake_at is null or c.wake_at > rota.now())
          and exists (select from rota.run as r where r.id = waiter.run_id and r.state = {run.running});
        if found then
            perform rota.count_ended_waits(array[waiter.run_id]);
            return waiter.run_id;
        end if;
    end loop;
    return null;
end $$;

-- Offers signals that were given back to functions that wait for them meanwhile.
create or replace function rota.offer_signals(namespace text, name text, key text) returns void language plpgsql volatile as $$
#variable_conflict use_column
declare
    its record;
    taker uuid;
begin
    perform rota.lock_signal(offer_signals.namespace, offer_signals.name, offer_signals.key);
    for its in
        select s.id, s.payload from rota.run_signal as s
        where s.namespace = offer_signals.namespace and s.name = offer_signals.name and s.key = offer_signals.key
          and s.taken_at is null
        order by s.sent_at, s.id
    loop
        taker := rota.give_signal(offer_signals.namespace, offer_signals.name, offer_signals.key, its.id, its.payload);
        exit when taker is null;
        update rota.run_signal as s set taken_at = rota.now(), run_id = taker where s.id = its.id;
    end loop;
end $$;

-- Sends a signal: to the function that has waited longest for it, or to the next that will. `existed`: the same `once` was
-- sent before, and nothing happens. `run_id`: the run that took it.
--
-- In a transaction that does other things as well the signal is left to an advancer, which offers it after the commit: here it
-- would lock a function, and whoever ends something for it would wait until the sender commits, or deadlock with what the sender
-- has locked before. Nor would a transaction that keeps to one snapshot see who has begun to wait since then.
create or replace function rota.send_signal(
    name text, key text, payload json default 'null', namespace text default 'default', once text default null,
    id uuid default null
) returns table (signal_id uuid, existed boolean, run_id uuid) language plpgsql volatile as $$
#variable_conflict use_column
declare
    its_id uuid := coalesce(send_signal.id, rota.new_id());
    leave_it boolean := pg_current_xact_id_if_assigned() is not null
        or current_setting('transaction_isolation') in ('repeatable read', 'serializable');
    taken uuid;
begin
    if not rota.is_name(send_signal.name) then
        raise exception using errcode = 'RT001', message = format('rota: signal %L is not a usable name', send_signal.name);
    end if;
    if length(send_signal.key) not between 1 and 255 or length(send_signal.once) not between 1 and 255 then
        raise exception using errcode = 'RT001', message = 'rota: the key and the once of a signal must be 1 to 255 characters long';
    end if;
    if not leave_it then
        perform rota.lock_signal(send_signal.namespace, send_signal.name, send_signal.key);
    end if;
    return query select s.id, true, s.run_id from rota.run_signal as s
    where s.id = its_id or (s.namespace = send_signal.namespace and s.name = send_signal.name and s.key = send_signal.key
                            and s.once = send_signal.once);
    if found then
        return;
    end if;
    if not leave_it then
        taken := rota.give_signal(send_signal.namespace, send_signal.name, send_signal.key, its_id,
            coalesce(send_signal.payload, 'null'));
    end if;
    insert into rota.run_signal (id, namespace, name, key, once, taken_at, run_id, payload)
    values (its_id, send_signal.namespace, send_signal.name, send_signal.key, send_signal.once,
            case when taken is not null then rota.now() end, taken, coalesce(send_signal.payload, 'null'))
    on conflict (namespace, name, key, once) where once is not null do nothing;
    if not found then  -- another has sent it at this moment, and has committed
        return query select s.id, true, s.run_id from rota.run_signal as s
        where s.namespace = send_signal.namespace and s.name = send_signal.name and s.key = send_signal.key
          and s.once = send_signal.once;
        return;
    end if;
    if leave_it then
        insert into rota.pending_step (run_id, step) values (its_id, -1);
    end if;
    return query select its_id, false, taken;
end $$;

-- The same from one JSON object, for callers with one value to pass. `later`: the caller's transaction does other things, too.
create or replace function rota.send_signal_of(signal json) returns table (signal_id uuid, existed boolean, run_id uuid)
    language plpgsql volatile as $$
#variable_conflict use_column
begin
    if (signal ->> 'later')::boolean then
        perform pg_current_xact_id();  -- as if it had done something already
    end if;
    return query
    select s.signal_id, s.existed and s.signal_id <> r.id, s.run_id
    from json_to_record(signal) as r(id uuid, namespace text, name text, key text, once text, payload json)
    cross join lateral rota.send_signal(r.name, r.key, r.payload, r.namespace, r.once, r.id) as s;
end $$;
