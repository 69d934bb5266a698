"""Run the mail room that was moved over, on time that is moved, and print the same as JSON."""

import asyncio
import json
from collections import Counter
from datetime import datetime
from zoneinfo import ZoneInfo

from mailroom import reports, tasks
from mailroom.celery import app

import rota.testing

BEGIN = datetime(2026, 2, 12, 23, 59, tzinfo=ZoneInfo("Europe/Berlin"))  # before a Friday 13th


async def main():
    app.prepare()
    async with rota.testing.isolated(app, now=BEGIN) as sandbox:
        submitted = await asyncio.to_thread(submit)
        runs = await asyncio.to_thread(start)
        await sandbox.run_for(hours=1)
        results = {name: await outcome(result) for name, result in submitted.items()}
        for name, run in runs.items():
            results[name] = await run.run.result(10)
        await app.schedules.declare()
        ran = await sandbox.run_for(hours=9)
        beats = Counter(job.task for job in ran if job.state == "succeeded")
        queues = {job.task: job.queue for job in ran}
        print(json.dumps({**results, "names": sorted(n for n in app.tasks if n.startswith("mailroom")),
                          "beats": beats, "queues": queues}))  # fmt: skip


def submit():
    return {
        "add": tasks.add.delay(2, 3), "double": tasks.double.apply_async((4,), countdown=5),
        "total": tasks.total.delay([1, 2]), "fetch": tasks.fetch.delay("x"),
        "charge": tasks.charge.delay(order_id=7), "hopeless": tasks.hopeless.delay(),
        "notify": app.send_task("mailroom.notify", ["ada"]),
        "daily_report": reports.daily_report.delay(),
        "cleanup": reports.cleanup.delay(days=3), "heartbeat": reports.heartbeat.delay(),
        "bill": reports.bill.delay("ada"),
    }  # fmt: skip


def start():
    return {
        "chain": tasks.in_a_row(1).apply_async(), "chord": tasks.side_by_side([1, 2]).delay(),
        "group": tasks.each([1, 2])(),
    }  # fmt: skip


async def outcome(result):
    job = await app.jobs.get(result.id)
    return job.result if job.state == "succeeded" else job.error.type.rpartition(".")[2]


asyncio.run(main())
