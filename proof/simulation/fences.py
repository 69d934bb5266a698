"""Whether a scheduler's write as an owner was committed under an epoch that was over by then.

The database can't tell by itself: two owners are never wrong, so that nothing else would show it. So the
transaction says which epochs it fires under, and a trigger looks, at its commit, whether they hold.
"""

from __future__ import annotations

from typing import Any

import msgspec

from proof.simulation.engine import Engine
from proof.simulation.patches import Patches
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
"""


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


def stale_writes(engine: Engine, schema: str) -> list[str]:
    rows = engine.ask(f"select shard, claimed, epoch from {schema}.stale_write order by 1, 2, 3")
    return [
        f"no write of a stale owner: shard {shard}: written under epoch {claimed} when it was {epoch}"
        for shard, claimed, epoch in rows
    ]
