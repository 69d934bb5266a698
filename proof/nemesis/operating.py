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

import asyncpg

from proof.history import Operation, Recorder
from proof.nemesis.tasks import SCHEDULED, app
from proof.operators import Operator
from proof.owners import OWN_SETTINGS
from proof.spoiling import spoiling
from rota.errors import StoreUnavailable

MOVES = ("schedules", "jobs", "spoil", "lines")
_PACE = 0.25
_FIRST = 4  # schedules to begin with
_IN_LINE = 5.0  # seconds until jobs wait in line behind one that takes two


async def operate() -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    recorder = Recorder(Path(os.environ["NEMESIS_FOLDER"]), "operations")

    def note(operation: Operation) -> None:
        recorder.write(operation)

    chance = random.Random(f"{os.environ['NEMESIS_SEED']} operator")
    operator = Operator(
        app, chance, time.monotonic, note, pace=_PACE, tasks=SCHEDULED, moves=MOVES, spoil=_spoil
    )
    await operator.begin(_FIRST)
    running = asyncio.create_task(operator.run())
    waiting = asyncio.create_task(stopped.wait())
    await asyncio.wait([running, waiting], return_when=asyncio.FIRST_COMPLETED)
    operator.stopping = True
    await running
    await operator.leave(mend=0.5)
    # Not left to chance: jobs wait when their schedule is deleted, and one is spoilt in the calm.
    await operator.line_up_and_delete(_IN_LINE)
    if not operator.spoilt:
        await operator.spoil_any()
    await app.close()


async def _spoil(name: str, way: str) -> None:
    """By somebody who has a console of the database's own machine."""
    try:
        connection = await asyncpg.connect(
            os.environ["NEMESIS_SERVER"], timeout=5, server_settings=OWN_SETTINGS
        )
        try:
            done = await connection.fetch(spoiling("rota", way), name)
        finally:
            with contextlib.suppress(OSError, asyncpg.InterfaceError):
                connection.terminate()
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError) as error:
        raise StoreUnavailable(str(error)) from error
    if not done:
        raise StoreUnavailable("somebody else holds its row")  # asked for again
