"""One connection of `bench.raw`, in a process of its own: moves or stores rows of a bare prototype.

python bench/raw_loop.py URL move|copy COUNT BATCH      says "ready", waits for a line, says what it did
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any
from uuid import uuid4

import asyncpg

_CLAIM = """
    update bare.ready set node = 1 where ctid = any (array (
        select ctid from bare.ready where rank > $1 and node is null order by rank
        limit $2 for update skip locked))
    returning id, rank, payload
"""
_FINISH = """
    with gone as (delete from bare.ready where id = any ($1) returning id, payload)
    insert into bare.past (id, finished_at, payload) select id, now(), payload from gone
"""


async def move(connection: Any, count: int, batch: int) -> int:
    """Claim and finish until nothing is left; how many."""
    claim, finish = await connection.prepare(_CLAIM), await connection.prepare(_FINISH)
    done, last = 0, 0
    while rows := await claim.fetch(last, batch):
        last = max(row["rank"] for row in rows)
        await finish.fetch([row["id"] for row in rows])
        done += len(rows)
    return done


async def copy(connection: Any, count: int, batch: int) -> int:
    columns = ["id", "rank", "payload"]
    for start in range(0, count, batch):
        rows = [(uuid4(), number, "[]") for number in range(start, min(start + batch, count))]
        await connection.copy_records_to_table(
            "ready", schema_name="bare", columns=columns, records=rows
        )
    return count


async def main(url: str, command: str, count: int, batch: int) -> None:
    connection = await asyncpg.connect(url)
    print("ready", flush=True)
    sys.stdin.readline()
    began, used = time.time(), time.process_time()
    done = await {"move": move, "copy": copy}[command](connection, count, batch)
    told = {"began": began, "ended": time.time(), "cpu": time.process_time() - used, "done": done}
    print(json.dumps(told), flush=True)
    await connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
