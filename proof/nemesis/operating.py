"""The operator's process: it steers schedules and jobs until SIGTERM, and leaves all in order but for
schedules that are spoilt.

Protocol. What it asks for takes effect between its question and its last answer. So its line may lose
answers, questions and connections, but holds nothing back to deliver it later: nobody could say then
what a schedule says. It is not killed, since it alone knows what it has asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import asyncpg

from proof.flows import RunOperator
from proof.function_operator import FunctionOperator
from proof.history import Operation, Recorder
from proof.nemesis.limited import Limited
from proof.nemesis.tasks import SCHEDULED, app
from proof.operators import Operator
from proof.owners import OWN_SETTINGS
from proof.spoiling import spoiling
from rota.errors import StoreUnavailable

MOVES = ("schedules", "jobs", "spoil", "lines")
_PACE = 0.25
_PACE_OF_RUNS = 0.4
_FIRST = 4  # schedules to begin with
_PATIENCE = 40.0  # seconds until jobs wait in a line: workers may have much else to do
_WAITING = """
select exists (select from rota.future as job join rota.schedule on schedule.id = job.schedule_id
               where schedule.name = $1 and job.state = 1)"""


async def operate() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    folder = Path(os.environ["NEMESIS_FOLDER"])
    recorder = Recorder(folder, "operations")

    def note(operation: Operation) -> None:
        recorder.write(operation)

    chance = random.Random(f"{os.environ['NEMESIS_SEED']} operator")
    operator = Operator(
        app, chance, time.monotonic, note, pace=_PACE, tasks=SCHEDULED, moves=MOVES, spoil=_spoil
    )
    seed = os.environ["NEMESIS_SEED"]
    runs = RunOperator(
        app, random.Random(f"{seed} workflows"), time.monotonic, note, pace=_PACE_OF_RUNS
    )
    walks = FunctionOperator(
        app, random.Random(f"{seed} functions"), time.monotonic, note, pace=_PACE_OF_RUNS, most=200
    )
    limited = Limited(app, seed, note, Recorder(folder, "clients"))
    operators = (operator, runs, walks, *limited.operators)
    await operator.begin(_FIRST)
    await runs.begin()
    await walks.begin()
    await limited.begin()
    running = [asyncio.create_task(each.run()) for each in operators]
    await until_stopped(stopped, running)
    for each in operators:
        each.stopping = True
    await asyncio.gather(*running)
    await runs.leave()
    await limited.leave()
    helping = asyncio.create_task(walks.look_after())
    # Not left to chance: one is spoilt in the calm, and jobs wait when their schedule is deleted.
    await operator.leave(mend=0.5, spoil=1.0)
    await operator.line_up_and_delete(_jobs_wait)
    await helping
    await app.close()


async def until_stopped(stopped: asyncio.Event, running: list[asyncio.Task[None]]) -> None:
    """Return when the process is asked to stop, or when an operator has failed.

    An operator that has done all it was to do, as one that starts twelve maps, doesn't end the others:
    the process would be started again, and everything would be named a second time.
    """
    waiting = asyncio.create_task(stopped.wait())
    pending: set[asyncio.Task[Any]] = {waiting, *running}
    while not waiting.done():
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if any(each.exception() is not None for each in done):
            break
    waiting.cancel()


async def _spoil(name: str, way: str) -> None:
    if not await _at_console(spoiling("rota", way), name):
        raise StoreUnavailable("somebody else holds its row")  # asked for again


async def _jobs_wait(name: str) -> None:
    """Return when a job of this schedule waits for its turn, or after a long time without one."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            while not await _does_wait(name):
                await asyncio.sleep(0.2)


async def _does_wait(name: str) -> bool:
    try:
        return bool((await _at_console(_WAITING, name))[0][0])
    except StoreUnavailable:
        return False


async def _at_console(statement: str, *arguments: object) -> list[asyncpg.Record]:
    """Execute a statement as somebody who has a console of the database's own machine."""
    try:
        connection = await asyncpg.connect(
            os.environ["NEMESIS_SERVER"], timeout=5, server_settings=OWN_SETTINGS
        )
        try:
            return await connection.fetch(statement, *arguments)
        finally:
            with contextlib.suppress(OSError, asyncpg.InterfaceError):
                connection.terminate()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
        raise StoreUnavailable(str(error)) from error
