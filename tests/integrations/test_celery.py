"""`rota.integrations.celery`: a project that was written for Celery, moved over; what doesn't map."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

import rota.testing
from rota.core.time.schedule import compile_schedule, make_spec
from rota.errors import ConfigError, InvalidArguments
from rota.files.celery_beat import schedule_rule
from rota.integrations import celery
from rota.integrations.celery import Celery, NotMapped, crontab, shared_task
from rota.integrations.celery import app as celery_app
from tests.support.places import EXAMPLES, ROOT, ROTA, SUPPORT

MOVED = EXAMPLES / "from_celery"
PAGE = ROOT / "docs" / "guide" / "from-celery.md"


@pytest.fixture(autouse=True)
def _no_apps_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(celery_app, "_shared", [])
    monkeypatch.setattr(celery_app, "_current", [])


def run(script: Path, folder: Path, url: str) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "ROTA_DATABASE_URL": url}
    done = subprocess.run(
        [sys.executable, script], text=True, capture_output=True, timeout=100, check=False,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return printed


def difference() -> str:
    """The change that moves the project over, as `diff -u` shows it."""
    lines: list[str] = []
    for after in sorted((MOVED / "after" / "mailroom").glob("*.py")):
        before = MOVED / "before" / "mailroom" / after.name
        lines += difflib.unified_diff(
            before.read_text("utf-8").splitlines(), after.read_text("utf-8").splitlines(),
            f"before/mailroom/{after.name}", f"after/mailroom/{after.name}", lineterm="",
        )  # fmt: skip
    return "\n".join(lines)


def test_the_guide_shows_the_whole_difference() -> None:
    shown = PAGE.read_text("utf-8").partition("```diff\n")[2].partition("\n```")[0]
    # A line without text loses its one space, as editors have it.
    assert shown == "\n".join(line.rstrip() for line in difference().splitlines())


def test_a_project_of_celery_s_gives_the_same_results_after_the_change(database_url: str) -> None:
    before = run(SUPPORT / "celery_before.py", MOVED / "before", database_url)
    after = run(SUPPORT / "celery_after.py", MOVED / "after", database_url)
    beats, queues = after.pop("beats"), after.pop("queues")
    assert after == before
    assert len(after["names"]) == 11
    # Nine hours of a Friday 13th: every 5 minutes, every 30, once at 3:00 and once at 7:30.
    assert beats == {
        "mailroom.reports.heartbeat": 108, "mailroom.tasks.add": 18,
        "mailroom.reports.cleanup": 1, "mailroom.reports.daily_report": 1,
    }  # fmt: skip
    assert queues["mailroom.reports.cleanup"] == "reports"
    assert queues["mailroom.tasks.add"] == "default"


def test_a_real_worker_runs_the_tasks_in_its_children(environ: dict[str, str]) -> None:
    code = (
        "from mailroom import reports, tasks; "
        "print(tasks.add.delay(2, 3).get(60), tasks.charge.apply_async(kwargs={'order_id': 1}).state, "
        "reports.bill.delay('ada').get(60), tasks.side_by_side([1, 2]).delay().get(60))"
    )
    environment = {**os.environ, **environ}
    with subprocess.Popen(
        [ROTA, "start", "mailroom.celery:app"], cwd=MOVED / "after", env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    ) as node:  # fmt: skip
        try:
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=MOVED / "after", env=environment, text=True,
                capture_output=True, timeout=100, check=False,
            )  # fmt: skip
        finally:
            node.terminate()
            shown = node.communicate(timeout=60)[0]
    assert done.stdout.split(maxsplit=1)[0] == "5", f"{done.stderr}\n{shown}"
    assert done.stdout.rstrip().endswith("billed ada 6")


def test_the_report_reads_celery_s_own_app() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rota.integrations.celery", "mailroom.celery:app"], text=True,
        capture_output=True, cwd=MOVED / "before", timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "same     task mailroom.tasks.fetch: 6 attempts at most" in lines
    assert any(line.startswith("changed  task mailroom.tasks.add: early ack") for line in lines)
    assert not any("mailroom.reports.cleanup: early ack" in line for line in lines)
    assert any(line.startswith("changed  conf.broker_url: there is no broker") for line in lines)
    assert sum(line.startswith("same     schedule ") for line in lines) == 5
    assert "BYMONTHDAY=13;BYDAY=FR" in done.stdout


def test_the_report_names_what_has_to_be_changed_by_hand() -> None:
    from celery import Celery as Original
    from celery import Task

    class Chatty(Task):
        pass

    app = Original("shop", set_as_current=False)

    @app.task(name="shop.slow", rate_limit="10/m", serializer="pickle", base=Chatty)
    def slow(ctx: int) -> None: ...

    app.conf.beat_schedule = {"noon": {"task": "shop.slow", "schedule": object()}}
    by_hand = [each.message for each in celery.report(app) if each.verdict == "by hand"]
    for expected in ("ctx needs another name", "serializer pickle", "its class Chatty",
                     "rate_limit 10/m", "its schedule is of type object"):  # fmt: skip
        assert any(expected in message for message in by_hand), expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expires": 60}, "waits until a worker has time"),
        ({"link": "x"}, "make it a chain"),
        ({"link_error": "x"}, "one_failed"),
        ({"nonsense": 1}, "no option 'nonsense'"),
    ],
)
def test_options_that_do_not_map_are_refused(options: dict[str, Any], message: str) -> None:
    app = Celery("shop")

    @app.task
    def work() -> None: ...

    with pytest.raises((NotMapped, InvalidArguments), match=message):
        work.apply_async(**options)


def test_declarations_that_do_not_map_are_refused() -> None:
    app = Celery("shop")
    for options, message in (
        ({"serializer": "pickle"}, "arguments are JSON"),
        ({"base": object}, "put what the class does"),
        ({"retry_kwargs": {"queue": "x"}}, "'queue' has no counterpart"),
        ({"nonsense": 1}, "'nonsense' has no counterpart"),
    ):
        with pytest.raises(NotMapped, match=message):
            app.task(**options)(_nothing)

    with pytest.raises(ConfigError, match="'ctx', which is Rota's word"):

        @app.task
        def takes(ctx: int) -> None: ...


def _nothing() -> None: ...


def test_an_entry_of_beat_that_can_not_be_scheduled_stops_the_start() -> None:
    app = Celery("shop")
    app.conf.beat_schedule = {"broken": {"task": "shop.unknown", "schedule": 5, "args": [1]}}
    with pytest.raises(ConfigError, match=r"beat_schedule\['broken'\].*give them by name"):
        app.prepare()


async def test_shared_tasks_periodic_tasks_and_transactions(database_url: str) -> None:
    @shared_task(bind=True)
    def early(self: Any, n: int) -> int:
        return n + 1

    app = Celery("shop", settings=rota.Settings(database_url=database_url))

    @app.on_after_configure.connect  # type: ignore[untyped-decorator]
    def set_up(sender: Any, **_: Any) -> None:
        sender.add_periodic_task(crontab(minute="*/10"), early.s(1), name="often")

    async with rota.testing.isolated(app, now=datetime(2030, 1, 1, tzinfo=UTC)) as sandbox:
        await app.schedules.declare()
        ran = await sandbox.run_for(minutes=35)
        assert [job.result for job in ran] == [2, 2, 2]
        assert early(5) == 6  # called here, as a function
        assert early.apply((7,)).get() == 8


def test_day_of_month_and_day_of_week_must_both_match() -> None:
    """As in Celery; cron would take either."""
    from celery.schedules import crontab as original

    for made in (crontab, original):
        rule = schedule_rule(made(minute=0, hour=3, day_of_month="13", day_of_week="fri"))
        spec = make_spec("friday", "x", tz="Europe/Berlin", **rule)
        due = islice(compile_schedule(spec).after(datetime(2026, 1, 1, tzinfo=UTC)), 3)
        found = [
            each.due_at.astimezone(ZoneInfo("Europe/Berlin")).date().isoformat() for each in due
        ]
        assert found == ["2026-02-13", "2026-03-13", "2026-11-13"]


def test_intervals_of_every_kind() -> None:
    from celery.schedules import schedule

    assert schedule_rule(30) == {"every": 30.0}
    assert schedule_rule(timedelta(minutes=5)) == {"every": timedelta(minutes=5)}
    assert schedule_rule(schedule(timedelta(hours=1))) == {"every": timedelta(hours=1)}
    solar = type("solar", (), {})  # the original needs another package
    with pytest.raises(ConfigError, match="of type solar"):
        schedule_rule(solar())
