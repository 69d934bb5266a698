"""The dashboard's pages at two sizes that are ten times apart: `python -m bench.pages [--jobs 1000000]`.

At the full size: a million jobs, 10,000 schedules, 500 tasks, 100 nodes, 200 queues. The small one has a
tenth of each. The time of the server for each page, over HTTP on the loopback, page by page at one and
at the other, so that noise hits both alike. Four of five jobs are in the history, of which a tenth is of
the last hour; the rest waits, is ready, or has failed. On a machine that others use at the same time,
the CPU time (of server, client and database together) says more than the time on the clock: the goals
are checked against the smaller of the two.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncpg
import httpx
import psutil
from rich.console import Console
from rich.table import Table

from bench.support import database, median
from rota import App
from rota.lib.ids import new_id
from rota.operations.installation import Installation
from rota.server.serving import Server

PAGES = ("/", "/jobs", "/jobs?state=failed", "/jobs?state=ready&queue=mail", "/jobs/{job}", "/jobs/new",
         "/jobs/changes", "/jobs/compare?a={job}", "/schedules", "/schedules/s7", "/schedules/s7/edit",
         "/calendar", "/calendar?view=month", "/forecast", "/calendars", "/queues", "/queues/mail",
         "/tasks", "/tasks/task7", "/dead", "/cluster", "/nodes/{node}", "/runs", "/alerts",
         "/events", "/find",
         "/find?text=task", "/views", "/audit", "/tokens", "/users", "/namespaces", "/webhooks",
         "/endpoints")  # fmt: skip
MOST_MS, MOST_KB, MOST_RATIO = 100.0, 60.0, 1.2

_ID = """encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing substring(int8send(
    (extract(epoch from t) * 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1), 'hex')::uuid"""
_PAYLOAD = "json_build_object('to', 'user' || n || '@example.org', 'text', repeat('x', 400))"
_LANE = "'default/' || (array['mail', 'money', 'media', 'default'])[1 + n % 4]"
_ENDED = """(id, due_at, created_at, started_at, finished_at, state, priority, guarantee, attempt,
    max_attempts, crashes, namespace, lane, task, payload, error)"""


async def fill(url: str, schema: str, jobs: int) -> None:
    c = await asyncpg.connect(url, timeout=60)
    past, dead, future = jobs * 8 // 10, jobs // 50, jobs * 12 // 100
    ready = jobs - past - dead - future
    ended = f"select {_ID}, t, t, t + interval '20 ms', t + interval '1 s', "
    constant = f"0, 1, 1, 5, 0, 'default', {_LANE}, 'task' || n % 20, {_PAYLOAD}"
    # Appended as it would be: in the order of time. One in ten is of the last hour.
    early = f"now() - interval '1 hour' - (({past * 9 // 10} - n) * interval '80 s' / 1000)"
    late = f"now() - interval '1 s' - ({past // 10} - n) * (interval '1 hour' / {past // 10})"
    for count, moment in ((past * 9 // 10, early), (past // 10, late)):
        await c.execute(
            f"insert into {schema}.past {_ENDED} {ended} 5, {constant}, null "
            f"from (select n, {moment} as t from generate_series(1, {count}) as n) as s",
            timeout=600,
        )
    await c.execute(
        f"insert into {schema}.dead {_ENDED} {ended} 6, {constant}, json_build_object('type', "
        "'ValueError', 'message', 'invoice ' || n || ' of kind ' || n % 30 || 'x') "
        f"from (select n, now() - n * interval '20 s' as t from generate_series(1, {dead}) as n) as s",
        timeout=600,
    )
    await c.execute(
        f"insert into {schema}.future (id, due_at, shard, namespace, lane, task, payload) "
        f"select id, t, {schema}.shard_of(id, 128), 'default', lane, 'task' || n % 20, payload from ("
        f"select {_ID} as id, t, n, {_LANE} as lane, {_PAYLOAD} as payload from (select n, now() + n * "
        f"interval '1 s' as t from generate_series(1, {future}) as n) as s) as j",
        timeout=600,
    )
    await c.execute(
        f"insert into {schema}.present (id, rank, due_at, namespace, lane, task, payload) "
        f"select {_ID}, {schema}.rank(t, 0), t, 'default', {_LANE}, 'task' || n % 20, {_PAYLOAD} from ("
        f"select n, now() - ({ready} - n) * interval '1 ms' as t "
        f"from generate_series(1, {ready}) as n) as s",
        timeout=600,
    )
    for queue in ("mail", "money", "media", "default"):
        await c.execute(f"insert into {schema}.queue (namespace, name) values ('default', $1) "
                        "on conflict do nothing", queue)  # fmt: skip
        await c.execute(f"insert into {schema}.lane values ('default/' || $1::text, 'default', $1, "
                        "'{}') on conflict do nothing", queue)  # fmt: skip
    for table in ("past", "dead", "future", "present"):
        await c.execute(f"vacuum analyze {schema}.{table}", timeout=600)
    await c.close()


async def with_surroundings(app: App, url: str, schema: str, jobs: int) -> str:
    """Schedules, tasks, nodes, queues and statistics in proportion to the jobs; the id of a node."""
    schedules, tasks = max(jobs // 100, 10), max(jobs // 2_000, 5)
    nodes, queues = max(jobs // 10_000, 2), max(jobs // 5_000, 4)
    await app.schedule("s0", "task0", cron="7 * * * *")
    c = await asyncpg.connect(url, timeout=60)
    change = (
        "jsonb_build_object('id', gen_random_uuid(), 'name', 's' || n, 'task', 'task' || n % $1, "
        "'spec', s.spec::jsonb || jsonb_build_object('name', 's' || n, 'task', 'task' || n % $1, "
        "'rule', jsonb_build_object('cron', (n % 60) || ' ' || (n % 24) || ' * * *')), "
        "'next_due', s.next_due + n * interval '7 s')"
    )
    columns = await c.fetchval(
        "select string_agg(quote_ident(column_name), ', ') from information_schema.columns where "
        "table_schema = $1 and table_name = 'schedule' and is_generated = 'NEVER'", schema,
    )  # fmt: skip
    picked = ", ".join(f"(r).{name.strip()}" for name in columns.split(","))
    await c.execute(
        f"insert into {schema}.schedule ({columns}) select {picked} from (select "
        f"jsonb_populate_record(s, {change}) as r from {schema}.schedule as s, "
        f"generate_series(1, $2::int) as n where s.name = 's0') as made", tasks, schedules - 1,
    )  # fmt: skip
    await c.execute(
        f"insert into {schema}.task (namespace, name, queue, needs, priority, guarantee, max_attempts) "
        "select 'default', 'task' || n, 'mail', '{}', 0, 1, 5 from generate_series(0, $1::int - 1) as n "
        "on conflict do nothing", tasks,
    )  # fmt: skip
    for n in range(queues):
        await c.execute(f"insert into {schema}.queue (namespace, name) values ('default', $1) "
                        "on conflict do nothing", f"queue{n}")  # fmt: skip
    ids = [new_id() for _ in range(nodes)]
    for place, id in enumerate(ids):
        await app_node(c, schema, id, f"node-{place}")
    await c.execute(
        f"insert into {schema}.run_stats (namespace, span, task, queue, at, runs, failed, seconds, "
        "durations, lags) select 'default', 60, t.task, 'mail', date_trunc('minute', now()) - "
        "m * interval '1 minute', 10, 1, 5, '{0,0,0,5,5}', '{5,5}' from generate_series(0, 1439) as m, "
        "(select '' as task union all select 'task' || n from "
        "generate_series(0, least($1::int, 50) - 1) as n) as t on conflict do nothing", tasks,
    )  # fmt: skip
    for table in ("schedule", "task", "node", "queue", "run_stats"):
        await c.execute(f"analyze {schema}.{table}")
    await c.close()
    return str(ids[0])


async def app_node(c: Any, schema: str, id: Any, name: str) -> None:
    await c.execute(
        f"insert into {schema}.node (id, namespace, name, host, pid, version, roles, queues, "
        "capabilities, tasks, slots, expires_at) values ($1, 'default', $2, 'host', 1, '0', "
        "'{worker}', '{}', "
        "'{}', '{}', 20, now() + interval '1 day')", id, name,
    )  # fmt: skip


def work_of(backends: list[int]) -> float:
    """Seconds of CPU: of this process, which is server and client, and of the database's for us."""
    done = time.process_time()
    for process in backends:
        used = psutil.Process(process).cpu_times()
        done += used.user + used.system
    return done


class Stage:
    """A server on a schema of its own."""

    def __init__(
        self, app: App, server: Server, client: httpx.AsyncClient, job: str, node: str
    ) -> None:
        self.app, self.server, self.client, self.job, self.node = app, server, client, job, node
        self.seconds: dict[str, list[float]] = {page: [] for page in PAGES}
        self.cpu: dict[str, float] = {}
        self.bytes: dict[str, int] = {}

    @classmethod
    async def make(cls, url: str, schema: str, jobs: int) -> Stage:
        app = App(database_url=url, schema=schema, port=0)
        await app.migrate()
        node = await with_surroundings(app, url, schema, jobs)
        await fill(url, schema, jobs)
        job = str((await app.submit("greet", {"name": "ada"}, queue="mail")).id)
        server = Server(app)
        await server.start()
        made = await Installation(app.connector).tokens.create(
            "bench", namespace="default", everywhere=True, role="admin"
        )
        client = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{server.port}", timeout=60, trust_env=False,
            headers={"Authorization": f"Bearer {made.token}", "Accept": "text/html"},
        )  # fmt: skip
        return cls(app, server, client, job, node)

    async def look(self, page: str, times: int, backends: list[int]) -> None:
        self.seconds[page] = []
        before = work_of(backends)
        for _ in range(times):
            began = time.perf_counter()
            answer = await self.client.get(page.format(job=self.job, node=self.node))
            self.seconds[page].append(time.perf_counter() - began)
            assert answer.status_code == 200, (page, answer.status_code, answer.text[:500])
            self.bytes[page] = len(answer.content)
        self.cpu[page] = (work_of(backends) - before) / times

    async def close(self) -> None:
        await self.client.aclose()
        await self.server.stop()
        await self.app.close()


async def measure(url: str, jobs: int, rounds: int) -> tuple[Table, list[str]]:
    full = await Stage.make(url, "stored", jobs)
    small = await Stage.make(url, "tenth", jobs // 10)
    c = await asyncpg.connect(url)
    for page in PAGES:
        for stage in (full, small):
            await stage.look(page, 3, [])  # plans and pages are in memory from then on
            backends = [row["pid"] for row in await c.fetch(
                "select pid from pg_stat_activity where backend_type = 'client backend'"
            )]  # fmt: skip
            await stage.look(page, rounds, backends)
    await c.close()
    table = Table(title=f"server time of a page, {jobs:,} jobs beside {jobs // 10:,} (ms, median)")
    columns: tuple[Any, ...] = (
        "page",
        "full",
        "tenth",
        "ratio",
        "CPU full",
        "CPU tenth",
        "ratio",
        "KB",
    )
    for name in columns:
        table.add_column(name, justify="left" if name == "page" else "right")
    missed = []
    for page in PAGES:
        one, other = (median(stage.seconds[page]) * 1000 for stage in (full, small))
        work, least = (stage.cpu[page] * 1000 for stage in (full, small))
        size = full.bytes[page] / 1000
        table.add_row(
            page, f"{one:.1f}", f"{other:.1f}", f"{one / other:.2f}", f"{work:.1f}", f"{least:.1f}",
            f"{work / least:.2f}", f"{size:.0f}",
        )  # fmt: skip
        if min(one, work) > MOST_MS:
            missed.append(f"{page}: {min(one, work):.0f} ms")
        if min(one / other, work / least) > MOST_RATIO:
            missed.append(f"{page}: {min(one / other, work / least):.2f} times the small one")
        if size > MOST_KB:
            missed.append(f"{page}: {size:.0f} KB")
    await full.close()
    await small.close()
    return table, missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    with database() as url:
        table, missed = asyncio.run(measure(url, given.jobs, given.rounds))
    Console(width=120).print(table)
    for one in missed:
        print("missed:", one)


if __name__ == "__main__":
    main()
