"""Pictures of the dashboard for the docs: `make screenshots`. Each page: light, dark, on a phone.

A cluster of its own with an embedded PostgreSQL, made to look like a day in an office: a history is
written into the tables, real nodes run real jobs, and some of them fail. Needs Chromium.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import linecache
import random
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from playwright.async_api import Browser, Page, async_playwright

from rota import App, Context, Latest, Retry
from rota.core.administration import Limits
from rota.core.time.calendars import NamedCalendar
from rota.core.time.schedule import compile_schedule
from rota.durable.context import DurableContext
from rota.lib.ids import new_id
from rota.node import Node
from rota.operations.installation import Installation
from rota.server.serving import Server
from rota.store.changes import Actor, acting_as, changing
from rota.store.identity import IdentityStore
from rota.store.run_stats import RunStatsStore
from rota.store.search import JobFilter

FOLDER = Path(__file__).parent / "images" / "dashboard"
DESK = {"width": 1360, "height": 900}
TALLEST = 1200
PHONE = {"width": 390, "height": 844}

SCHEDULES: tuple[dict[str, Any], ...] = (
    {"name": "payroll", "task": "pay", "calendar": "last business day of the month at 18:00",
     "tz": "Europe/Berlin", "description": "Salaries of all offices", "tags": ["money"]},
    {"name": "stand-up-digest", "task": "digest", "cron": "0 9 * * MON-FRI", "tz": "Europe/Berlin"},
    {"name": "invoices", "task": "invoice", "every": "15m", "tags": ["money"]},
    {"name": "nightly-backup", "task": "backup", "cron": "30 2 * * *", "tz": "Europe/Berlin",
     "catch_up": Latest("6h")},
    {"name": "warm-caches", "task": "warm", "cron": "*/5 * * * *"},
    {"name": "exchange-rates", "task": "rates", "cron": "10,40 * * * *", "overlap": "skip"},
    {"name": "reports/weekly", "task": "report", "cron": "0 7 * * MON", "tz": "America/New_York"},
    {"name": "reports/monthly", "task": "report", "cron": "0 7 1 * *", "tz": "America/New_York"},
    {"name": "clean-uploads", "task": "clean", "cron": "0 4 * * *"},
    {"name": "sync-crm", "task": "sync", "every": "20m", "paused": True},
)  # fmt: skip


def as_if_in(file: str) -> Callable[[Any], Any]:
    """Tracebacks name that file, and not where the docs happen to be made."""

    def moved(function: Any) -> Any:
        code = function.__code__
        lines = linecache.getlines(code.co_filename)
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
        function.__code__ = code.replace(co_filename=file)
        return function

    return moved


def make_app(**settings: Any) -> App:
    app = App(**settings)
    for name in ("pay", "digest", "backup", "warm", "rates", "report", "clean", "sync"):
        app.task(name=name)(_work)

    @app.task(queue="mail", retry=Retry(max_attempts=3, base=0.05))
    @as_if_in("/srv/shop/mail.py")
    async def send_mail(to: str, subject: str) -> str:
        print(f"connecting to smtp.example.org for {to}")
        if "@" not in to:
            raise ValueError(f"{to!r} is not an address: there is no @ in it")
        return f"sent {subject!r}"

    @app.task(queue="money", retry=Retry(max_attempts=1))
    async def invoice(number: int = 0) -> None:
        if number:
            raise ConnectionError(f"payment gateway answered 502 to invoice {number}")

    @app.task(queue="media", guarantee="at_least_once")
    async def encode(ctx: Context, film: str) -> None:
        for part in range(7):
            ctx.progress(part, 100, f"encoding {film}")
            print(f"pass 1, part {part} of 100: {1200 + part * 17} kbit/s")
            await asyncio.sleep(0.05)
        await asyncio.sleep(3600)

    add_workflows(app)
    return app


def add_workflows(app: App) -> None:
    """A graph, of which a step fails, and a durable function, which waits for somebody."""

    @app.task(queue="money", retry=Retry(max_attempts=1))
    async def book(part: str, total: Any = None) -> int:
        await asyncio.sleep(0.2 + 0.05 * len(part))
        if part == "bank fees":
            raise ConnectionError("the bank's interface answered 503")
        return len(part)

    @app.task(queue="money")
    async def charge(order: int) -> str:
        await asyncio.sleep(0.3)
        return f"payment-{order}"

    @app.task(queue="parcels")
    async def ship(parcel: int) -> int:
        await asyncio.sleep(0.2 + parcel / 5)
        return 2 + parcel

    month = app.workflow("close-the-month", description="Books of all offices, then the report")
    opened = month.step(book, "opening balance", name="open")
    parts = [
        month.step(book, part, opened, name=part.replace(" ", "-"), optional=part == "bank fees")
        for part in ("invoices", "payroll", "bank fees", "travel")
    ]
    totals = month.step(book, "totals", name="totals", after=parts, rule="all_ended")
    month.step(book, "tax", totals, name="tax")
    month.step(book, "bank fees", totals, name="reconcile")
    month.step(book, "report", name="report", after=["tax", "reconcile"])

    @app.durable
    async def fulfil(ctx: DurableContext, order: int) -> str:
        payment = await ctx.step(charge, order)
        await ctx.set_status("waits for approval")
        await ctx.wait("approved", key=str(order), timeout="3d")
        await ctx.set_status("ships 3 parcels")
        days = await ctx.gather(*(ctx.call(ship, parcel) for parcel in range(3)))
        await ctx.sleep(0.1)
        return f"{payment}: all parcels arrive within {max(days)} days"


async def start_runs(app: App) -> dict[str, str]:
    """Runs of both; the ids of those that are shown."""
    month = await app.runs.start("close-the-month", {})
    orders = [await app.runs.start("fulfil", {"order": 4711 + each}) for each in range(4)]
    for each in range(3):
        await app.signals.send("approved", key=str(4711 + each), payload=True)
    for run in (month.id, orders[0].id):
        while (await app.runs.get(run)).state == "running":
            await asyncio.sleep(0.2)
    return {"month": str(month.id), "order": str(orders[0].id)}


async def _work() -> dict[str, int]:
    await asyncio.sleep(0.02)
    return {"rows": 1204, "skipped": 3}


# -- a day in an office


async def make_schedules(app: App) -> None:
    for said in SCHEDULES:
        given = dict(said)
        await app.schedule(given.pop("name"), given.pop("task"), **given)


async def fill(app: App) -> dict[str, str]:
    """Jobs of now; the ids of some."""
    chance = random.Random(7)
    await app.queues.pause("slow-mail")
    for _ in range(8):
        await app.submit("report", {}, delay=chance.random() * 3600, queue="reports")
    for n in range(30):
        await app.submit("send_mail", {"to": f"user{n}@example.org", "subject": "News"})
    bad = [
        await app.submit("send_mail", {"to": to, "subject": "Welcome"}, tags=["signup"])
        for to in ("ada.example.org", "grace", "alan.example.org")
    ]
    for number in range(14):
        await app.submit("invoice", {"number": 4000 + number}, key=f"invoice:{4000 + number}")
    film = await app.submit("encode", {"film": "harbour.mov"}, tags=["4k", "urgent"])
    await app.submit(
        "send_mail", {"to": "x@example.org", "subject": "y " * 300}, queue="slow-mail",
        tags=["a-tag-with-quite-a-long-name-that-has-to-be-cut-somewhere"],
    )  # fmt: skip
    for _ in range(6):
        await app.submit("report", {}, delay=chance.random() * 3600, queue="reports")
    return {"bad": str(bad[0].id), "film": str(film.id)}


async def make_people(app: App) -> None:
    store = IdentityStore((await app.store()).database)
    for name, role in (("ada@example.org", "admin"), ("grace@example.org", "operator")):
        person = await store.put_user(new_id(), name, None)
        await store.put_membership(person, "default", role)
    for name, role in (("shop", "operator"), ("grafana", "viewer"), ("render-farm", "worker")):
        await Installation(app.connector).tokens.create(name, namespace="default", role=role)
    actor = Actor(name="ada@example.org", via="password", interface="dashboard", address="10.0.0.7")
    for action, subject in (("pause", "queue slow-mail"), ("retry", "dead letters 51660a4d9ade6625"),
                            ("update", "schedule nightly-backup")):  # fmt: skip
        with acting_as(actor):
            async with changing(
                store.database, action, subject, before={"version": 1}, after={"version": 2}
            ):
                pass


def id_at(moment: datetime, chance: random.Random) -> UUID:
    """A UUIDv7 of that moment."""
    stamp = int(moment.timestamp() * 1000) << 80
    return UUID(
        int=stamp | 7 << 76 | chance.getrandbits(12) << 64 | 2 << 62 | chance.getrandbits(62)
    )


_COLUMNS = """(id, due_at, created_at, started_at, finished_at, state, priority, guarantee, attempt,
    max_attempts, crashes, namespace, lane, task, payload, schedule_id, error)"""
_JOB = """values ($1, $2, $2, $3, $4, $5, 0, 1, 1, 5, 0, 'default', 'default/' || $6::text, $7, '{}',
    $8, $9)"""
_ERROR = '{"type": "TimeoutError", "message": "no answer within 30 s"}'
_TASKS = {"mail": "send_mail", "money": "invoice", "default": "report", "media": "thumbnail"}


async def write_history(app: App) -> None:
    """An hour of finished jobs, and occurrences for the strips."""
    chance = random.Random(11)
    schema = app.settings.schema
    async with (await app.store()).database.connection() as c:
        now: datetime = await c.fetchval("select now()")
        rows = []
        for minute in range(60):
            for _ in range(30 + 25 * (minute % 15 < 3) + chance.randrange(20)):
                end = now - timedelta(minutes=minute, seconds=chance.random() * 60)
                start = end - timedelta(seconds=0.05 + chance.random())
                lag = chance.expovariate(1 / (0.02 + (0.4 if 20 < minute < 26 else 0)))
                due = start - timedelta(seconds=lag)
                queue = chance.choice(["mail", "mail", "money", "default", "media"])
                job = (id_at(due, chance), due, start, end, 5, queue, _TASKS[queue], None, None)
                rows.append(job)
        rows.sort(key=lambda row: row[3])
        await c.executemany(f"insert into {schema}.past {_COLUMNS} {_JOB}", rows)
        for status in await app.schedules.list():
            await _occurrences(c, schema, status, now, chance)


async def _occurrences(
    c: Any, schema: str, status: Any, now: datetime, chance: random.Random
) -> None:
    recurrence = compile_schedule(status.spec)
    for days in (1, 4, 70, 1500):
        moments = [one.due_at for one in recurrence.between(now - timedelta(days=days), now)][-48:]
        if len(moments) >= 40:
            break
    for due in moments:
        what = chance.random()
        job = id_at(due, chance)
        start = due + timedelta(seconds=45.0 if what < 0.05 else 0.03)
        failed, skipped = what > 0.97, 0.90 < what < 0.93
        await c.execute(
            f"insert into {schema}.occurrence (schedule_id, due_at, run_at, job_id, version, state, "
            "reason) values ($1, $2, $2, $3, 1, $4, $5)",
            status.id, due, None if skipped else job, 2 if skipped else 1,
            "overlap" if skipped else None,
        )  # fmt: skip
        if not skipped:
            await c.execute(
                f"insert into {schema}.{'dead' if failed else 'past'} {_COLUMNS} {_JOB}",
                job, due, start, start + timedelta(seconds=2), 6 if failed else 5, "default",
                status.task, status.id, _ERROR if failed else None,
            )  # fmt: skip


@contextlib.asynccontextmanager
async def office(folder: Path) -> AsyncIterator[tuple[App, Server, dict[str, str]]]:
    app = make_app(data_dir=folder, port=0, node_name="berlin-1", heartbeat=1.0, grace=0.5)
    other = make_app(data_dir=folder, node_name="berlin-2", heartbeat=1.0, grace=0.5)
    await app.migrate()
    await make_schedules(app)
    await write_history(app)
    server = Server(app)
    nodes = [Node(app, server=server, roles=("scheduler", "worker", "server")), Node(other)]
    for node in nodes:
        await node.start()
    try:
        paths = await fill(app)
        while (await app.jobs.get(paths["bad"])).state != "failed":
            await asyncio.sleep(0.2)
        await asyncio.sleep(2)
        paths |= await start_runs(app)
        await app.webhooks.add("https://hooks.example.org/rota", kinds=["failed", "node_dead"])
        paths |= await use_dashboard(app)
        await make_people(app)
        yield app, server, paths
    finally:
        for node in reversed(nodes):
            await node.stop()
        await app.close()
        await other.close()


async def use_dashboard(app: App) -> dict[str, str]:
    """What people did with the dashboard: limits and shares, a bulk action, marks, views, a calendar."""
    await app.queues.configure("parcels", policy="fair", concurrency=8, rate="600/minute")
    for key, weight in (("acme", 3.0), ("globex", 1.0), ("initech", 0.5)):
        await app.queues.set_weight("parcels", key, weight)
    schema, chance = app.settings.schema, random.Random(3)
    async with (await app.store()).database.connection() as c:
        for key, share in (("acme", 18.0), ("globex", 6.0), ("initech", 3.0)):
            served = 0.0
            for minute in range(60, 0, -1):
                served += share * chance.random()
                await c.execute(
                    f"insert into {schema}.share_service values ('default', 'parcels', $1, "
                    "date_trunc('minute', now()) - make_interval(mins => $2), $3)",
                    key, minute, served,
                )  # fmt: skip
    await app.alerts.list()
    await app.alerts.silence("queue-paused:slow-mail", "4h", note="moved to the new server tonight")
    done = await app.jobs.change_matching("retry", JobFilter(task="invoice"))
    await app.views.save("Failed payments", "/jobs?state=failed&task=invoice", shared=True)
    await app.endpoints.add("notify-crm", "https://crm.example.org/hooks/rota", queue="mail")
    days = frozenset(
        date(2026, month, day) for month, day in ((1, 1), (5, 1), (10, 3), (12, 25), (12, 26))
    )
    await app.schedules.put_calendar(NamedCalendar(
        name="holidays", dates=days, ranges=((date(2026, 12, 28), date(2026, 12, 31)),),
        weekdays=frozenset({6}), description="Days without deliveries",
    ))  # fmt: skip
    jobs = await app.jobs.list(task="send_mail", state="succeeded", limit=1)
    [node] = [node for node in await app.nodes.list() if node.name.startswith("berlin-1")]
    [hook] = await app.webhooks.list()
    await app.webhooks.test(hook.id)
    await Installation(app.connector).namespaces.set_limits("new", Limits())
    stats = RunStatsStore((await app.store()).database)
    while await stats.fold(10_000):
        pass  # what has just run is counted before the pictures are taken
    return {
        "bulk": str(done.bulk), "other": str(jobs[0].id), "node": str(node.id), "hook": str(hook.id),
    }  # fmt: skip


def shots(paths: dict[str, str]) -> dict[str, str]:
    """Pictures, by name, and the paths they are of."""
    return {
        "overview": "/", "jobs": "/jobs", "jobs-failed": "/jobs?state=failed",
        "jobs-none": "/jobs?task=nobody", "job-failed": f"/jobs/{paths['bad']}",
        "job-running": f"/jobs/{paths['film']}", "submit": f"/jobs/new?from={paths['bad']}",
        "runs": "/runs", "run": f"/runs/{paths['month']}", "run-function": f"/runs/{paths['order']}",
        "schedules": "/schedules", "schedule": "/schedules/nightly-backup",
        "schedule-edit": "/schedules/stand-up-digest/edit", "queues": "/queues", "dead": "/dead",
        "queue": "/queues/parcels", "task": "/tasks/send_mail", "alerts": "/alerts", "events": "/events",
        "forecast": "/forecast", "compare": f"/jobs/compare?a={paths['bad']}&b={paths['other']}",
        "change": f"/jobs/changes/{paths['bulk']}", "changes": "/jobs/changes",
        "find": "/find?text=mail", "views": "/views", "calendars": "/calendars?name=holidays",
        "endpoints": "/endpoints",
        "search": "/jobs?text=example.org", "tasks": "/tasks", "node": f"/nodes/{paths['node']}",
        "calendar": "/calendar?zone=Europe/Berlin", "calendar-month": "/calendar?view=month",
        "cluster": "/cluster", "audit": "/audit", "tokens": "/tokens", "users": "/users",
        "namespaces": "/namespaces", "webhooks": "/webhooks", "webhook": f"/webhooks/{paths['hook']}",
        "endpoint": "/endpoints/notify-crm", "doctor": "/doctor", "schedule-new": "/schedules/new",
        "compare-with": f"/jobs/compare?a={paths['bad']}", "confirm": f"/jobs/{paths['bad']}",
        "palette": "/",
        "empty": "/?namespace=new", "not-found": "/nowhere",
    }  # fmt: skip


async def log_in(page: Page, app: App, url: str) -> None:
    link = await Installation(app.connector).sessions.create_link()
    await page.goto(link.url(url))
    await page.wait_for_url(f"{url}/")


async def picture(
    browser: Browser, app: App, url: str, paths: dict[str, str], kind: str, only: list[str] | None
) -> None:
    phone = kind == "phone"
    context = await browser.new_context(
        viewport=PHONE if phone else DESK, color_scheme="dark" if kind == "dark" else "light",
        device_scale_factor=1, timezone_id="Europe/Berlin",
    )  # fmt: skip
    page = await context.new_page()
    await page.goto(f"{url}/login")
    if only is None or "login" in only:
        await page.screenshot(path=FOLDER / f"login-{kind}.png")
    await log_in(page, app, url)
    for name, path in shots(paths).items():
        if only is None or name in only:
            await page.goto(url + path)
            if name in ("calendar", "calendar-month"):
                await page.get_by_text("still being computed").wait_for(state="detached")
            if name == "confirm":
                await page.get_by_role("button", name="Discard…").click()
                await page.get_by_role("heading", name="Discard this job?").wait_for()
            if name == "palette":
                await page.keyboard.press("Control+k")
                await page.keyboard.type("mail")
                await page.locator("#palette a").first.wait_for()
            await page.wait_for_timeout(250)
            height = await page.evaluate("document.documentElement.scrollHeight")
            size = PHONE if phone else {**DESK, "height": min(max(height, 500), TALLEST)}
            await page.set_viewport_size(size)
            await page.screenshot(path=FOLDER / f"{name}-{kind}.png")
            await page.set_viewport_size(PHONE if phone else DESK)
    await context.close()


async def main(kinds: list[str], only: list[str] | None) -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("There is no chromium here: apt-get install chromium")
    FOLDER.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    try:
        async with office(folder) as (app, server, paths), async_playwright() as playwright:
            browser = await playwright.chromium.launch(
                executable_path=chromium, args=["--no-sandbox"]
            )
            for kind in kinds:
                await picture(browser, app, server.url, paths, kind, only)
            await browser.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{len(list(FOLDER.glob('*.png')))} pictures in {FOLDER}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", action="append", choices=["light", "dark", "phone"])
    parser.add_argument("--only", action="append", help="the name of a picture")
    given = parser.parse_args()
    asyncio.run(main(given.kind or ["light", "dark", "phone"], given.only))
