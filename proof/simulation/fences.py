"""Whether a scheduler's write as an owner was committed under an epoch that was over by then.

The database can't tell by itself: two owners are never wrong, so that nothing else would show it. So the
transaction says which epochs it fires under, and a trigger looks, at its commit, whether they hold.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proof.simulation.engine import Engine
from proof.simulation.patches import Patches
from rota.model import State
from rota.store.durable_functions import DurableFunctionStore
from rota.store.schedules import ScheduleStore

INSTALL = """
create table {schema}.stale_write (shard smallint, claimed bigint not null, epoch bigint not null);
create function {schema}.note_stale_write() returns trigger language plpgsql as $$
declare
    fence jsonb := nullif(current_setting('sim.fence', true), '')::jsonb;
    claimed bigint := (fence ->> new.shard::text)::bigint;
begin
    insert into {schema}.stale_write
    select s.shard, claimed, s.epoch from {schema}.shard as s
    where s.shard = new.shard and s.epoch <> claimed;
    return null;
end $$;
create constraint trigger stale_write after update of cursor on {schema}.schedule
    deferrable initially deferred for each row execute function {schema}.note_stale_write();

-- What a durable function records is written under the token of its job, which it holds.
create table {schema}.stale_record (run_id uuid, number int, token bigint);
create function {schema}.note_stale_record() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' or new.token <> old.token then
        insert into {schema}.stale_record select new.run_id, new.number, new.token
        where not exists (
            select from {schema}.step as s join {schema}.present as p on p.id = s.job_id
            where s.run_id = new.run_id and s.number = 0 and p.token = new.token and p.state = 4);
    end if;
    return null;
end $$;
create trigger stale_record after insert or update on {schema}.checkpoint
    for each row execute function {schema}.note_stale_record();

-- And so it is suspended: it leaves the present under that token, for the future, without an attempt.
create table {schema}.departure (
    job uuid, token bigint, state int, transaction bigint, suspended boolean);
create function {schema}.note_departure() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        insert into {schema}.departure values (old.id, old.token, old.state, txid_current(), false);
    else
        insert into {schema}.departure values (new.id, null, null, txid_current(), true);
    end if;
    return null;
end $$;
create trigger departure after delete on {schema}.present
    for each row when (old.run_id is not null and old.step = 0)
    execute function {schema}.note_departure();
create trigger departure after insert on {schema}.future
    for each row when (new.run_id is not null and new.step = 0 and new.attempt = 0)
    execute function {schema}.note_departure();
"""

# Jobs that somebody asked to suspend, under these tokens; and those of which the answer was: suspended.
_asked: set[tuple[str, int]] = set()
_suspended: set[tuple[str, int]] = set()


def watch(patches: Patches) -> None:
    honest = ScheduleStore.due_schedules

    async def due_schedules(self: ScheduleStore, connection: Any, *arguments: Any) -> Any:
        rows = await honest(self, connection, *arguments)
        fence = {str(row["shard"]): row["epoch"] for row in rows if row["epoch"] is not None}
        if fence:
            text = msgspec.json.encode(fence).decode()
            await connection.execute("select set_config('sim.fence', $1, true)", text)
        return rows

    patches.set(ScheduleStore, "due_schedules", due_schedules)
    suspend = DurableFunctionStore.suspend_function

    async def suspend_function(
        self: DurableFunctionStore, node: Any, job: Any, token: int, *rest: Any
    ) -> str:
        _asked.add((str(job), token))
        answer = await suspend(self, node, job, token, *rest)
        if answer == "suspended":
            _suspended.add((str(job), token))
        return answer

    _asked.clear()
    _suspended.clear()
    patches.set(DurableFunctionStore, "suspend_function", suspend_function)


def stale_writes(engine: Engine, schema: str) -> list[str]:
    rows = engine.ask(f"select shard, claimed, epoch from {schema}.stale_write order by 1, 2, 3")
    stale = engine.ask(f"select run_id, number, token from {schema}.stale_record order by 1, 2")
    moved = engine.ask(
        f"select d.job, d.token, d.state from {schema}.departure as d"
        f" join {schema}.departure as s on s.job = d.job and s.transaction = d.transaction"
        " where s.suspended and not d.suspended order by 1, 2"
    )
    records = [
        f"no record of a stale function: run {run}: number {number} was written under token {token}"
        for run, number, token in stale
    ] + [
        f"no suspension by a stale function: job {job} was held under token {token}, state {state}"
        for job, token, state in moved
        if (str(job), token) not in _asked or state != State.RUNNING
    ]
    left = {(str(job), token) for job, token, _ in moved}
    records += [
        f"no suspension by a stale function: job {job} was suspended by token {token}, which it had lost"
        for job, token in sorted(_suspended - left)
    ]
    return records + [
        f"no write of a stale owner: shard {shard}: written under epoch {claimed} when it was {epoch}"
        for shard, claimed, epoch in rows
    ]
