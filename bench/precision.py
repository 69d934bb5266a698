"""How late 2,000 jobs start that are due at random moments, on an idle node and on one with half of the
load that it can take, beside bare timers in the same process: the part of docs/benchmarks.md about
precision.

python -m bench.precision [--quick] [--rounds 3] [--force] [--no-docs] [--render]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import part
from bench.app import app, noop
from bench.compare import about
from bench.ground import Ground, ground
from bench.part import Found, Gate
from bench.sizes import Stats
from bench.support import connection, empty, left, run, submit, wait_alive
from bench.svg import figure

HEADING = "## Precision"
_COMMAND = "python -m bench.precision"
_ABOUT = """2,000 jobs that are due at random moments within ten seconds, on one node; the lag is
from the due moment to the start, by the database's clock. Beside it, in the same process and event
loop, as many bare timers (`asyncio.sleep`) at random moments of the same seconds. Half of the load:
no-ops at half of the rate that the node had just run them at. Medians of the rounds, with the
lowest and the highest."""
_TITLES = {"idle": "idle", "half": "half of the load that it can take"}
_AHEAD = 3.0  # seconds from the start of the load to the first moment
_BATCH = 100

_STORE = """
    insert into rota.future (id, due_at, shard, namespace, lane, task, payload)
    select id, to_timestamp($2) + random() * make_interval(secs => $3),
           rota.shard_of(id, 128), 'default', 'default/default', 'punctual', '{}'
    from (select rota.new_id() as id from generate_series(1, $1)) as ids
"""
_ENDED = "select count(*) from rota.past where task = 'punctual'"
_LAGS = """
    select extract(epoch from started_at - due_at)::float8 * 1000 from rota.past
    where task = 'punctual' and state = 5 order by 1
"""


@dataclass(frozen=True)
class Size:
    jobs: int = 2_000
    seconds: float = 10.0
    full: int = 60_000  # no-ops that find out what the node can take


def measure(quick: bool, rounds: int, gate: Gate) -> Found:
    """{"about": …, "idle": [figures, …], "half": [figures, …]}"""
    size = Size(200, 3.0, 5_000) if quick else Size()
    found: Found = {"rounds": rounds, "idle": [], "half": []}
    with ground() as place:
        _use(place)
        run(app.migrate)
        found["about"] = about(place, rounds)
        for number in range(rounds):
            for case in _TITLES:
                gate.wait()
                rate = run(lambda: _capacity(size)) / 2 if case == "half" else 0.0
                figures = run(lambda: _precision(size, rate))  # noqa: B023
                found[case].append(figures)
                shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
                part.say(f"round {number + 1} of {rounds}, {_TITLES[case]}: {shown}")
    return found


def _use(place: Ground) -> None:
    place.sql("create database precision")
    url = place.url_of("precision")
    app.settings = app.settings.replace(database_url=url)


@contextlib.contextmanager
def _node(seconds: float, count: int) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.precision_node", str(seconds), str(count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1],
        env={"PATH": "/usr/bin:/bin", "ROTA_DATABASE_URL": app.settings.database_url},
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)


async def _capacity(size: Size) -> float:
    """No-ops a second that a node runs while they are submitted."""
    await empty()
    async with connection() as c:
        with _node(0.0, 0):
            await wait_alive(c, 1)
            began = time.perf_counter()
            await submit(noop, size.full)
            while await left(c):
                await asyncio.sleep(0.02)
            return size.full / (time.perf_counter() - began)


async def _precision(size: Size, rate: float) -> Stats:
    """How late jobs are, by the database's clock, and as many bare timers in the node's process."""
    await empty()
    async with connection() as c:
        with _node(size.seconds, size.jobs) as process:
            await wait_alive(c, 1)
            began = time.time()
            begin = began + _AHEAD
            await c.execute(_STORE, size.jobs, begin, size.seconds)
            assert process.stdin
            process.stdin.write(f"{begin}\n")
            process.stdin.flush()
            load = asyncio.create_task(_load(rate, begin + size.seconds))
            while await c.fetchval(_ENDED) < size.jobs:
                await asyncio.sleep(0.2)
            sent = await load
            beside = sent / (begin + size.seconds - began)
            lags = [row[0] for row in await c.fetch(_LAGS)]
            process.send_signal(signal.SIGINT)
            said, _ = await asyncio.to_thread(process.communicate, None, 60)
    timers = sorted(json.loads(said.strip().splitlines()[-1]))
    return {
        **_of(lags, ""), "earliest": lags[0], **_of(timers, "timer_"), "rate": rate,
        "beside": beside,
    }  # fmt: skip


async def _load(rate: float, until: float) -> int:
    """Submit so many no-ops a second, a batch at a time; how many that were."""
    sent, began = 0, time.time()
    while rate and (now := time.time()) < until:
        while sent < (now - began) * rate:
            await noop.submit_many([()] * _BATCH)
            sent += _BATCH
        await asyncio.sleep(_BATCH / rate / 2)
    return sent


def _of(lags: list[float], prefix: str) -> dict[str, float]:
    return {
        f"{prefix}p50": lags[len(lags) // 2], f"{prefix}p99": lags[int(len(lags) * 0.99)],
        f"{prefix}last": lags[-1],
    }  # fmt: skip


# -- the page


def body(found: Found) -> str:
    lines = [
        part.measured(found, _COMMAND), "",
        _ABOUT, "",
        "| the node is | | p50 ms | p99 ms | last ms |",
        "| --- | --- | ---: | ---: | ---: |",
    ]  # fmt: skip
    for case, title in _TITLES.items():
        rounds = found[case]
        beside = statistics.median(figures["beside"] for figures in rounds)
        shown = f"{title}, {figure(beside)} jobs/s" if beside else title
        for prefix, who in (("", "jobs of Rota"), ("timer_", "bare timers")):
            cells = " | ".join(_shown(rounds, prefix + key) for key in ("p50", "p99", "last"))
            lines.append(f"| {shown} | {who} | {cells} |")
    early = min(figures["earliest"] for case in _TITLES for figures in found[case])
    lines += [
        "",
        f"The earliest start was {figure(early)} ms after its moment; none may be before it.",
    ]
    return "\n".join(lines)


def _shown(rounds: list[dict[str, Any]], key: str) -> str:
    values = [figures[key] for figures in rounds]
    middle = figure(statistics.median(values))
    return (
        f"{middle} ({figure(min(values))} to {figure(max(values))})" if len(values) > 1 else middle
    )


if __name__ == "__main__":
    part.main("precision", __doc__, HEADING, measure, body)
