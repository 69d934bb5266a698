"""Those who only read: somebody who has a table open for minutes, and pg_dump in a loop.

They are no fault: Rota must not notice them. So they aren't written down as one, and they go on while
the mended cluster is watched: a start that is late because of them is late.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections import Counter

from proof.nemesis.database import LOST
from proof.nemesis.server import Server
from proof.simulation.trouble import TABLES

_SHORTEST, _LONGEST = 5.0, 180.0
_BETWEEN_DUMPS = 5.0


class Readers:
    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._chance = random.Random(f"{seed} readers")
        self._tasks: list[asyncio.Task[None]] = []
        self._stopping = False
        self.tables: Counter[str] = Counter()  # that were held, how often
        self.longest = 0.0
        self.dumps = 0
        self.broken_dumps = 0  # the server was restarted, say

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._hold()), asyncio.create_task(self._hold())]
        self._tasks.append(asyncio.create_task(self._dump()))

    async def stop(self) -> None:
        # What is asked of the server may fail just then, with an error in place of the cancellation:
        # being cancelled is not enough.
        self._stopping = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(self) -> None:
        while not self._stopping:
            table = self._chance.choice(TABLES)
            seconds = _SHORTEST * (_LONGEST / _SHORTEST) ** self._chance.random()
            began = asyncio.get_running_loop().time()
            with contextlib.suppress(*LOST):
                await self._hold_one(table, seconds)
            self.longest = max(self.longest, asyncio.get_running_loop().time() - began)
            await asyncio.sleep(0.2)

    async def _hold_one(self, table: str, seconds: float) -> None:
        connection = await self._server.connect()
        try:
            async with connection.transaction():
                await connection.execute(f"lock table rota.{table} in access share mode")
                self.tables[table] += 1
                async with asyncio.timeout(seconds):
                    while True:  # until its time is over, or its connection is
                        await connection.fetchval("select 1")
                        await asyncio.sleep(0.5)
        finally:
            connection.terminate()

    async def _dump(self) -> None:
        while True:
            process = await asyncio.create_subprocess_exec(
                str(self._server.programs / "pg_dump"), "--schema=rota", "--file=/dev/null",
                f"--dbname={self._server.url}", env={"PATH": os.environ.get("PATH", "")},
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
            try:
                code = await process.wait()
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
                raise
            self.dumps += code == 0
            self.broken_dumps += code != 0
            await asyncio.sleep(_BETWEEN_DUMPS)
