"""What `bench.growth` looks at, at each size: the services of a node, routes, pages and commands."""

# ruff: noqa: E501  addresses and commands, as they are given

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from bench.growth_reading import Cost, Reading, names_of, normal
from bench.pages import PAGES, Stage
from rota import App
from rota.node import Node
from rota.observe.stats import Stats
from rota.scheduler.janitor import Janitor
from rota.server.routes import all_routes
from rota.store.work import UpkeepStore

_WARM, _ROUNDS = 5, 2  # a statement gets its lasting plan with its sixth call
_PATIENT = 1.5  # seconds after which a look is not repeated
_SUBMITS, _BATCH = 40, 25
_RESTING = 12.0  # seconds in which a node only ticks
_QUEUE = "measured"

# What they are given in place of the names in their paths; a route without an entry has its own word here.
_PARTS = {
    "job_id": "{past}", "name": "{name}", "change_id": "{change}", "node_id": "{node}", "id": "{run}",
    "webhook_id": "{webhook}", "step": "paid",
}  # fmt: skip
_NAMED = {
    "schedules": "s7", "queues": "queue0", "tasks": "task0", "endpoints": "push", "namespaces": "default",
    "workflows": "billing", "roles": "admin",
}  # fmt: skip
_NEEDED = {
    "/v1/history": "since={day}&until={now}",
    "/v1/schedules/{name:str}/audit": "first={day}&end={now}",
    "/v1/schedules/{name:str}/preview": "count=5",
    "/v1/schedules/{name:str}/occurrences": "first={day}&end={now}",
    "/v1/limits/holders": "limit=none",
    "/v1/dead:ids": "limit=50",
    "/v1/tasks:signatures": "name=task0",
}  # fmt: skip
# /metrics is kept for seconds: its statements are measured. Streams, downloads, links of a browser, what has nothing stored here, and what answers 404 without it.
_LEFT_OUT = (
    "/healthz", "/readyz", "/metrics", "/v1/events/stream", "/v1/jobs/{job_id:uuid}/logs/stream", "/v1/runs/{id:uuid}/steps/{step:str}/members",
    "/v1/pools/", "/v1/sinks/", "/v1/triggers/", "/v1/maintenance/", "/v1/queues/{name:str}/shares",
    "/status.json", "/v1/views", "/v1/limits/holders", "/v1/roles/", "/v1/signals",
)  # fmt: skip
_FILTERED = (
    "/v1/jobs?state=scheduled", "/v1/jobs?state=failed", "/v1/jobs?task=task7", "/v1/jobs?queue=queue7",
    "/v1/jobs?tag=customer-7", "/v1/jobs?text=user77%40example", "/v1/jobs?outcome=raised", "/v1/jobs?schedule=s7",
    "/v1/jobs?count=true", "/v1/jobs?task=nothing", "/v1/jobs?task=nothing&count=true",
    "/v1/jobs:whole?state=scheduled", "/v1/jobs:whole?task=nothing", "/v1/jobs:whole?tag=nothing",
    "/v1/schedules?task=task7", "/v1/schedules?tag=nothing", "/v1/schedules?text=s77", "/v1/schedules?paused=true",
    "/v1/schedules/s7/occurrences?first={day}&end={now}", "/v1/queues/queue7", "/v1/dead?task=task7",
    "/v1/tasks/task7/stats?within=7d", "/v1/schedules:latest?name=s7",
)  # fmt: skip
COMMANDS = (
    "schedules list", "schedules list --task task7", "schedules list --tag nothing", "schedules show s7", "schedules lint",
    "schedules forecast", "queues", "jobs list", "jobs list --state scheduled", "jobs list --task nothing",
    "jobs list --tag nothing", "jobs dead", "tasks", "nodes", "runs list", "workflows list", "alerts", "doctor",
    "queues limits",
)  # fmt: skip


class Probe(NamedTuple):
    kind: str  # statement, route, page, command
    name: str


Costs = dict[Probe, Cost]


def routes() -> list[str]:
    """Return the addresses of everything that the REST API lists or looks up."""
    found = set()
    for route in all_routes():
        if "GET" not in getattr(route, "http_methods", ()) or not route.include_in_schema:
            continue
        for path in route.paths:
            if any(
                path == one or (path.startswith(one) and one.endswith("/")) for one in _LEFT_OUT
            ):
                continue
            if "{" in path and not any(part in path for part in _known_parts(path)):
                continue
            found.add(_address(path))
    return [*sorted(one for one in found if ":str}" not in one and ":uuid}" not in one), *_FILTERED]


def _known_parts(path: str) -> list[str]:
    return [f"{{{name}:" for name in _PARTS]


def _address(path: str) -> str:
    noun = path.split("/")[2] if path.count("/") > 1 else ""
    address = path
    for name, value in _PARTS.items():
        for kind in ("str", "uuid"):
            given = _NAMED.get(noun, "") if name == "name" else value
            if given:
                address = address.replace(f"{{{name}:{kind}}}", given)
    return f"{address}?{_NEEDED[path]}" if path in _NEEDED else address


async def look_at_all(app: App, stage: Stage, reading: Reading, *, kinds: set[str]) -> Costs:
    found: Costs = {}
    if "statement" in kinds:
        found |= await _services(app, reading)
    now = datetime.now(UTC)
    times = {"day": quote((now - timedelta(days=1)).isoformat()), "now": quote(now.isoformat())}
    for kind, addresses, accept in (
        ("route", routes(), "application/json"),
        ("page", PAGES, "text/html"),
    ):
        if kind in kinds:
            for address in addresses:
                path = address.replace("{day}", times["day"]).replace("{now}", times["now"])
                cost = await _address_cost(stage, reading, path, accept)
                if cost is not None:
                    found[Probe(kind, address)] = cost
    if "command" in kinds:
        for command in COMMANDS:
            found[Probe("command", f"rota {command}")] = await _command_cost(app, reading, command)
    return found


# -- addresses


async def _address_cost(stage: Stage, reading: Reading, path: str, accept: str) -> Cost | None:
    """Return the least of several rounds: what others do at the same time only ever adds."""
    costs = []
    await stage.connect()  # one that was left alone is closed
    for place in range(_WARM + _ROUNDS):
        await reading.begin()
        began = time.perf_counter()
        try:
            await stage.get(path, accept)
        except AssertionError as error:
            print(f"not measured: {path}: {str(error)[:200]}", file=sys.stderr)
            return None
        seconds = time.perf_counter() - began
        cost = await reading.all()
        if place >= _WARM or seconds > _PATIENT:
            costs.append(Cost(cost.calls, cost.rows, cost.pages, cost.milliseconds, seconds))
        if seconds > _PATIENT:
            break
    return min(costs, key=lambda cost: cost.pages)


# -- commands


async def _command_cost(app: App, reading: Reading, command: str) -> Cost:
    await reading.begin()
    began = time.perf_counter()
    megabytes = await asyncio.to_thread(_peak_of, app, command)
    seconds = time.perf_counter() - began
    cost = await reading.all()
    return Cost(cost.calls, cost.rows, cost.pages, cost.milliseconds, seconds, megabytes)


def _peak_of(app: App, command: str) -> float:
    """Run it to its end; return the most memory that it had, in MB."""
    environment = {
        **os.environ, "ROTA_DATABASE_URL": app.settings.database_url or "", "ROTA_SCHEMA": app.settings.schema,
        "ROTA_STATEMENT_TIMEOUT": str(app.settings.statement_timeout),
    }  # fmt: skip
    program = [str(Path(sys.executable).parent / "rota"), *command.split()]
    process = subprocess.Popen(
        program, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        print(f"rota {command} ended with {process.returncode}: {said[-300:]}", file=sys.stderr)
    return used.ru_maxrss / 1024


# -- services


async def _services(app: App, reading: Reading) -> Costs:
    """Run a node that works for a queue of its own, and return what each of its statements cost."""
    mine = App(app.settings.replace(port=0, node_name="growth", concurrency=50))

    @mine.task(queue=_QUEUE)
    async def measured() -> None: ...

    for number in range(20):
        await mine.schedule(f"often-{number}", measured, every=1)
    node = Node(mine, queues=[_QUEUE])
    close, mine.close = mine.close, _nothing  # type: ignore[method-assign]
    try:
        async with node.running():
            await _work(mine, measured, 10)
            hot = await mine.connector.open_database(hot=True)
            janitor = Janitor(UpkeepStore(hot), mine.settings, node._shards)  # type: ignore[arg-type]
            stats = Stats((await mine.store()).database)
            await _upkeep(janitor, stats)
            await reading.begin()
            await _work(mine, measured, _SUBMITS)
            await _upkeep(janitor, stats)
            await asyncio.sleep(_RESTING)
            costs = await reading.by_statement()
            queries = (await mine.store()).database.queries
            for number in range(20):
                await mine.schedules.delete(f"often-{number}")
            await hot.close()
    finally:
        await close()
    names, found = names_of(queries), dict[Probe, Cost]()
    for text, cost in costs.items():
        name = names.get(normal(text)) or _short(text)
        if name:
            found[Probe("statement", name)] = found.get(Probe("statement", name), Cost()) + cost
    return found


async def _nothing() -> None:
    pass


async def _work(app: App, task: Any, submits: int) -> None:
    for _ in range(submits):
        handles = await task.submit_many([()] * _BATCH)
        await handles[-1].result(timeout=120)


async def _upkeep(janitor: Janitor, stats: Stats) -> None:
    for _ in range(6):
        await janitor.clean()
        await stats._look()


def _short(text: str) -> str:
    """Return a name for a statement that is not one of our files; none for what is no work."""
    words = " ".join(text.split())
    first = words.split(" ", 1)[0].lower()
    if first in ("begin", "begin;", "commit", "commit;", "rollback", "set", "reset", "listen", "unlisten", "discard",
                 "show", "create", "deallocate", "savepoint", "release", "vacuum"):  # fmt: skip
        return ""
    return words[:60]
