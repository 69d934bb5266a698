"""The dashboard's pages at two sizes that are ten times apart: `python -m bench.pages`.

At the full size: a million jobs, 10,000 schedules, 5,000 tasks, 1,000 nodes, 2,000 queues, and 2,000
tokens, users, webhooks and so on; the small one has a tenth of each, which is more than any page shows.
`bench/page_filling.py` writes them. What is measured is the server's time for a page: the
CPU time of the server and of the database's processes that work for it, the best of several rounds, in
which both sizes take turns, so that neither a busy machine nor a cold cache counts. (The clock's time
is shown beside it.) Each page must stay under 100 ms and 60 KB, and take at most 1.2 times what it takes
with a tenth of everything.

With `--database URL`, what was filled there by an earlier run is measured again.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncpg
from rich.console import Console
from rich.table import Table

from bench.page_filling import Names, fill, names
from bench.support import database
from rota import App
from rota.server.routes import all_routes
from rota.server.serving import Server

MOST_MS, MOST_KB, MOST_RATIO = 100.0, 60.0, 1.2
PAGES = (
    "/", "/?within=30d", "/jobs", "/jobs?state=failed", "/jobs?state=ready&queue=queue0",
    "/jobs?task=task0", "/jobs?tag=customer-7", "/jobs?node=node-000", "/jobs?text=user77%40example",
    "/jobs/{ready}", "/jobs/{past}", "/jobs/{failed}", "/jobs/new",
    "/jobs/new?from={failed}", "/jobs/changes", "/jobs/changes/{change}", "/jobs/compare?a={past}",
    "/jobs/compare?a={past}&b={failed}", "/schedules", "/schedules?text=s77", "/schedules/s7",
    "/schedules/new", "/schedules/s7/edit", "/calendar", "/calendar?view=month", "/forecast",
    "/calendars", "/queues", "/queues?within=7d", "/queues/queue0",
    "/tasks", "/tasks?within=30d", "/tasks/task0",
    "/tasks/task0?within=30d", "/dead", "/dead?task=task3", "/cluster", "/nodes/{node}", "/runs",
    "/runs?state=failed", "/runs/{run}", "/alerts", "/events", "/find", "/find?text=task", "/views",
    "/audit", "/tokens", "/users", "/namespaces", "/webhooks", "/webhooks/{webhook}", "/endpoints",
    "/endpoints/push", "/doctor",
)  # fmt: skip


def uncovered() -> set[str]:
    """Return the pages of the dashboard that are not measured."""
    paths: set[str] = set()
    for route in all_routes():
        if (
            "GET" in getattr(route, "http_methods", ())
            and route.opt.get("replica")
            and not route.include_in_schema
        ):
            paths |= set(route.paths)
    known = [page.split("?")[0] for page in PAGES]
    wanted = {path: re.sub(r"\{[^}]*\}", "[^/]+", path) for path in paths}
    for path in ("/settings", "/jobs/{job_id:uuid}/log"):  # a redirect, a download
        wanted.pop(path, None)
    return {
        path for path, form in wanted.items() if not any(re.fullmatch(form, one) for one in known)
    }


class Backends:
    """The processes of the database that work for us."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._pids: list[int] = []

    async def refresh(self) -> None:
        self._pids = [row["pid"] for row in await self._connection.fetch(
            "select pid from pg_stat_activity where backend_type = 'client backend' "
            "and datname = current_database()"
        )]  # fmt: skip

    def seconds(self) -> float:
        """Return the CPU time of all of them, and of this process, which is the server."""
        used = time.process_time()
        for pid in self._pids:
            used += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
        return used


class Stage:
    """A server on a schema of its own, and a connection to it."""

    def __init__(self, app: App, server: Server, known: Names) -> None:
        self.app, self.server, self.known = app, server, known
        self.clock: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self.bytes: dict[str, int] = {}

    @classmethod
    async def open(cls, url: str, schema: str, jobs: int) -> Stage:
        app = App(database_url=url, schema=schema, port=0)
        c = await asyncpg.connect(url)
        filled = await c.fetchval("select to_regclass($1)", f"{schema}.filled")
        if not filled:
            await c.execute(f"drop schema if exists {schema} cascade")
        await app.migrate()
        if not filled:
            await fill(app, url, schema, jobs)
            await c.execute(f"create table {schema}.filled ()")
        await c.close()
        server = Server(app)
        await server.start()
        return cls(app, server, await names(app, url, schema))

    async def connect(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close()
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.server.port)

    async def get(self, page: str, accept: str = "text/html") -> int:
        """Ask for a page with as little as possible of our own; return its size."""
        path = page.format(**self.known._asdict())
        self.writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.server.port}\r\nAccept: {accept}\r\n"
            f"Authorization: Bearer {self.known.token}\r\n\r\n".encode()
        )
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        told = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        assert told, (page, head)
        size = int(told[1])
        body = await self.reader.readexactly(size)
        assert head.split()[1] == "200", (page, head, body[:800])
        return size

    async def look(self, page: str, backends: Backends) -> None:
        used, began = backends.seconds(), time.perf_counter()
        self.bytes[page] = await self.get(page)
        clock, cpu = time.perf_counter() - began, backends.seconds() - used
        self.clock[page] = min(self.clock.get(page, clock), clock)
        self.cpu[page] = min(self.cpu.get(page, cpu), cpu)

    async def close(self) -> None:
        self.writer.close()
        await self.server.stop()
        await self.app.close()


async def measure(
    url: str, jobs: int, rounds: int, pages: tuple[str, ...]
) -> tuple[Table, list[str]]:
    full = await Stage.open(url, "stored", jobs)
    small = await Stage.open(url, "tenth", jobs // 10)
    c = await asyncpg.connect(url)
    backends = Backends(c)
    await full.connect()
    await small.connect()
    for page in pages:
        for stage in (full, small) * 3:
            await stage.get(page)  # plans and pages are in memory from then on
        await asyncio.sleep(0.2)  # what some pages compute in the background is done
        await backends.refresh()
        for _ in range(rounds):
            await full.look(page, backends)
            await small.look(page, backends)
    await c.close()
    table, missed = report(full, small, pages, jobs)
    await full.close()
    await small.close()
    return table, missed


def report(full: Stage, small: Stage, pages: tuple[str, ...], jobs: int) -> tuple[Table, list[str]]:
    table = Table(title=f"server time of a page, {jobs:,} jobs beside {jobs // 10:,}")
    for name in ("page", "ms", "ms, a tenth", "ratio", "clock", "clock, a tenth", "KB"):
        table.add_column(name, justify="left" if name == "page" else "right")
    missed = []
    for page in pages:
        cpu, least = full.cpu[page] * 1000, small.cpu[page] * 1000
        clock, shortest = full.clock[page] * 1000, small.clock[page] * 1000
        ratio, size = min(cpu / least, clock / shortest), full.bytes[page] / 1000
        table.add_row(
            page, f"{cpu:.1f}", f"{least:.1f}", f"{cpu / least:.2f}", f"{clock:.1f}",
            f"{shortest:.1f}", f"{size:.0f}",
        )  # fmt: skip
        if min(cpu, clock) > MOST_MS:
            missed.append(f"{page}: {min(cpu, clock):.0f} ms")
        if ratio > MOST_RATIO:
            missed.append(f"{page}: {ratio:.2f} times the small one")
        if size > MOST_KB:
            missed.append(f"{page}: {size:.0f} KB")
    return table, missed


def print_markdown(table: Table) -> None:
    """Print it as docs/guide/dashboard.md has it."""
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    print("|", " | ".join(str(column.header) for column in table.columns), "|")
    print("|", " | ".join(["---"] + ["---:"] * (len(columns) - 1)), "|")
    for row in zip(*columns, strict=True):
        print(f"| `{row[0]}` |", " | ".join(row[1:]), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--database", help="of an earlier run; default: an embedded one")
    parser.add_argument("--page", action="append", help="only this one")
    parser.add_argument("--markdown", action="store_true", help="print a table for the docs")
    given = parser.parse_args()
    if left := uncovered():
        print("not measured:", *sorted(left))
    pages = tuple(given.page or PAGES)
    if given.database:
        table, missed = asyncio.run(measure(given.database, given.jobs, given.rounds, pages))
    else:
        with database() as url:
            table, missed = asyncio.run(measure(url, given.jobs, given.rounds, pages))
    if given.markdown:
        print_markdown(table)
    else:
        Console(width=140).print(table)
    for one in missed:
        print("missed:", one)


if __name__ == "__main__":
    main()
