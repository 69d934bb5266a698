"""Where the time of a job goes: `python -m bench.profile`, which writes docs/performance.md.

A worker's services are stepped by hand (see `budget`), so that each step can be measured by itself: its
processor time in this process, and what PostgreSQL says of its statements. Then the same under cProfile,
for the functions inside. With py-spy (installed into bench/.peers on demand) a real worker under load is
drawn as a flame graph too.
"""

# ruff: noqa: A005 - bench.profile, never profile

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import re
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench.app import app, noop
from bench.budget import BATCH, Steps, prepare, stepped
from bench.performance_page import write
from bench.support import connection, database, node, run, submit, wait_alive

ROOT = Path(__file__).parents[1]
TOOLS = ROOT / "bench" / ".peers" / "py-spy"
FLAME = ROOT / "docs" / "images" / "bench" / "worker-flame.svg"

_TOP = """
    select regexp_replace(left(query, 4000), '\\s+', ' ', 'g') as query, calls, rows,
           total_exec_time * 1000 as us, wal_bytes::float8 as wal
    from pg_stat_statements
    where toplevel and dbid = (select oid from pg_database where datname = current_database())
      and query not like '%pg_stat_statements%'
    order by total_exec_time desc limit 6
"""


class Timed(Steps):
    """Steps that note what each cost, in seconds of this thread."""

    def __init__(self, node: Any) -> None:
        super().__init__(node)
        self.spent: dict[str, float] = defaultdict(float)

    async def _timed(self, name: str, work: Any) -> None:
        began = time.thread_time()
        await work
        self.spent[name] += time.thread_time() - began

    async def run(self, count: int) -> None:
        for _ in range(0, count, BATCH):
            await self._timed("claim", self._worker.tick())
            await self._timed("run", self._ended())
            await self._timed("finish", self._finisher.flush())

    async def _ended(self) -> None:
        while self._worker.slots.count_running():
            await asyncio.sleep(0)


async def steps(count: int) -> dict[str, Any]:
    """Microseconds a job of each step in Python and each statement, and the dearest functions."""
    await app.migrate()
    app.tasks.pop("plain", None)
    await prepare(app)
    found: dict[str, Any] = {"jobs": count}
    async with stepped(app, noop, Timed) as timed:
        timed.spent.clear()
        await _sql("select pg_stat_statements_reset()")
        began = time.thread_time()
        for start in range(0, count, 10_000):
            await noop.submit_many([()] * min(10_000, count - start))
        submitted = time.thread_time() - began
        await timed.run(count)
        spent = {"submit": submitted, **timed.spent}
        found["python"] = {name: seconds / count * 1e6 for name, seconds in spent.items()}
        found["statements"] = await _statements(count)
        await noop.submit_many([()] * count)
        profile = cProfile.Profile(time.thread_time)
        profile.enable()
        await timed.run(count)
        profile.disable()
        found["functions"] = _functions(profile, count)
    return found


async def _sql(text: str) -> Any:
    async with connection() as c:
        return await c.fetchval(text)


async def _statements(count: int) -> list[dict[str, Any]]:
    async with connection() as c:
        rows = await c.fetch(_TOP)
    return [
        {
            "name": _name(row["query"]), "calls": row["calls"], "us": row["us"] / count,
            "wal": row["wal"] / count,
        }
        for row in rows
    ]  # fmt: skip


def _name(query: str) -> str:
    """By what only this statement says."""
    marks = {
        "copy": "COPY into present", "skip locked": "claim", "with gone as": "finish",
        "delete from rota.batch": "close batches", "commit": "commit", "rota.hint": "hint",
    }  # fmt: skip
    text = query.lower()
    return next((name for mark, name in marks.items() if mark in text), query[:50])


def _functions(profile: cProfile.Profile, count: int) -> list[tuple[str, float]]:
    """Own time of the dearest functions, in microseconds a job; more than without a profiler."""
    rows = []
    for (file, line, name), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        path = file
        for root in (
            "site-packages/",
            "src/",
            f"python{sys.version_info[0]}.{sys.version_info[1]}/",
        ):
            path = path.rpartition(root)[2]
        rows.append((f"{path}:{name}" if line else name, own / count * 1e6))
    return sorted(rows, key=lambda row: -row[1])[:14]


# -- a real worker, as py-spy sees it


def flame(seconds: int) -> str | None:
    """Draws a busy worker; why not, where that can't be done."""
    tool = TOOLS / "bin" / "py-spy"
    try:
        if not tool.exists():
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(TOOLS)], check=True)
            pip = [
                sys.executable,
                "-m",
                "pip",
                "--python",
                str(TOOLS / "bin" / "python"),
                "install",
            ]
            subprocess.run([*pip, "--quiet", "py-spy==0.4.3"], check=True, capture_output=True)
        FLAME.parent.mkdir(parents=True, exist_ok=True)
        return run(lambda: _record(tool, seconds))
    except (OSError, subprocess.SubprocessError) as error:
        return f"py-spy could not be used: {error}"


async def _record(tool: Path, seconds: int) -> str | None:
    async with connection() as c:
        with node("worker", "scheduler") as worker:
            await wait_alive(c, 1)
            drawing = await asyncio.create_subprocess_exec(
                str(tool), "record", "--pid", str(worker.pid), "--duration", str(seconds),
                "--rate", "500", "--format", "flamegraph", "--output", str(FLAME),
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            waiting = asyncio.create_task(drawing.communicate())
            while not waiting.done():
                await submit(noop, 10_000)
                await asyncio.sleep(0.1)
            _, said = waiting.result()
    if drawing.returncode:
        return said.decode().strip()[-200:]
    # Its title is the command, with the folders of whoever ran it.
    title = r"(<text id=\"title\"[^>]*>)[^<]*"
    FLAME.write_text(re.sub(title, r"\1A worker under load", FLAME.read_text()))
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--seconds", type=int, default=10, help="that py-spy looks on")
    parser.add_argument("--no-flame", action="store_true")
    chosen = parser.parse_args()
    with database():
        found = run(lambda: steps(chosen.jobs))
        found["flame"] = "it wasn't asked for" if chosen.no_flame else flame(chosen.seconds)
    write(found, ROOT / "docs" / "performance.md")
    for name, us in found["python"].items():
        print(f"{name}: {us:.1f} µs a job in Python")
    for row in found["statements"]:
        print(
            f"{row['name']}: {row['us']:.1f} µs a job in PostgreSQL, {row['wal']:.0f} bytes of WAL"
        )
    for name, us in found["functions"]:
        print(f"  {us:6.2f}  {name}")
    if found["flame"]:
        print(found["flame"])


if __name__ == "__main__":
    main()
