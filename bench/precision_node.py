"""A node with bare timers in its own process and event loop, for `bench.precision`. Says how many
milliseconds each timer was late, in a line of JSON, when it ends.

python -m bench.precision_node SECONDS COUNT     for how long, how many; a line of stdin says when
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.app import app
from rota.node import Node


async def timers(begin: float, seconds: float, count: int) -> list[float]:
    """Milliseconds that asyncio.sleep is late at random moments."""
    loop = asyncio.get_running_loop()
    offset = loop.time() - time.time()

    async def one(due: float) -> float:
        await asyncio.sleep(due - loop.time())
        return (loop.time() - due) * 1000

    moments = [begin + random.random() * seconds + offset for _ in range(count)]
    return await asyncio.gather(*map(one, moments))


async def told(seconds: float, count: int) -> list[float]:
    """The timers, once it is said when they begin; none if that is never said."""
    begin = await asyncio.to_thread(sys.stdin.readline)
    return await timers(float(begin), seconds, count) if begin else []


async def main(seconds: float, count: int) -> None:
    late = asyncio.create_task(told(seconds, count))
    await Node(app, roles=["worker", "scheduler"]).run()
    print(json.dumps(await late), flush=True)


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), int(sys.argv[2])))
