"""Run the mail room with Celery itself, eagerly, and print what its tasks return as JSON."""

import json

from mailroom.celery import app

app.loader.import_default_modules()
app.conf.update(task_always_eager=True, result_backend="cache+memory://", broker_url="memory://")

from mailroom import reports, tasks  # noqa: E402


def outcome(task, *args, **kwargs):
    result = task.apply(args, kwargs)
    return result.result if result.successful() else type(result.result).__name__


print(json.dumps({
    "add": outcome(tasks.add, 2, 3), "double": outcome(tasks.double, 4),
    "total": outcome(tasks.total, [1, 2]),
    "fetch": outcome(tasks.fetch, "x"), "charge": outcome(tasks.charge, order_id=7),
    "hopeless": outcome(tasks.hopeless), "notify": outcome(tasks.notify, "ada"),
    "daily_report": outcome(reports.daily_report), "cleanup": outcome(reports.cleanup, days=3),
    "heartbeat": outcome(reports.heartbeat), "bill": outcome(reports.bill, "ada"),
    "chain": tasks.in_a_row(1).apply_async().get(),
    "chord": tasks.side_by_side([1, 2]).apply_async().get(),
    "group": tasks.each([1, 2]).apply_async().get(),
    "names": sorted(name for name in app.tasks if name.startswith("mailroom")),
}))  # fmt: skip
