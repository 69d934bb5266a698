"""`rota schedules`: every command, for people and for programs, on time that the test moves."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
import typer
from typer.testing import CliRunner

import rota.testing
from rota import App, Context
from rota.cli import cli
from rota.cli.clock_changes import previewed
from rota.cli.times import parse_when
from rota.core.time.schedule import compile_schedule, make_spec
from rota.operations.schedules import Schedules
from rota.store.run_stats import RunStatsStore
from tests.support.broken_schedules import add_broken
from tests.support.fake_node import register_tasks
from tests.support.places import EXAMPLES, SUPPORT
from tests.support.sandboxes import isolated

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
NOWHERE = "postgresql://nobody@127.0.0.1:1/nowhere"


class Answer:
    """What a command said, and how it ended."""

    def __init__(self, *arguments: str, stdin: str | None = None) -> None:
        result = CliRunner().invoke(cli, ["schedules", *arguments], input=stdin)
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run(*arguments: str, stdin: str | None = None) -> Answer:
    return Answer(*arguments, stdin=stdin)


def done(*arguments: str, stdin: str | None = None) -> Answer:
    answer = run(*arguments, stdin=stdin)
    assert answer.code == 0, answer.err
    return answer


class Clock:
    """A schema of its own, on which the command line works, and which runs what is due."""

    def __init__(self, runner: asyncio.Runner, sandbox: rota.testing.Sandbox) -> None:
        self._runner, self.sandbox = runner, sandbox
        self.app = sandbox.app

    def advance(self, steps: int = 1, **units: float) -> int:
        """Time goes on in steps; how many jobs ended on the way."""
        return self._runner.run(self._advance(steps, timedelta(**units)))

    async def _advance(self, steps: int, step: timedelta) -> int:
        ended = 0
        for _ in range(steps):
            await self.sandbox.advance(step)
            ended += len(await self.sandbox.run_due())
        return ended

    def run(self, coroutine: Any) -> Any:
        return self._runner.run(coroutine)


@pytest.fixture
def clock(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    app = App(database_url=database_url, node_name="test")

    @app.task
    async def tell(ctx: Context, note: str = "") -> str:
        return note

    yield from standing(app, monkeypatch)


@pytest.fixture
def shop(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    """The example shop, with the schedules that its code declares."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.setenv("ROTA_DATABASE_URL", database_url)
    from shop.app import app

    app.settings = app.settings.replace(database_url=database_url)
    for clock in standing(app, monkeypatch):
        clock.run(app.schedules.declare())
        yield clock


def standing(app: App, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    with asyncio.Runner() as runner:
        private = isolated(app, now=START, namespace=f"n{uuid4().hex[:8]}")
        sandbox = runner.run(private.__aenter__())
        settings = sandbox.app.settings
        for name in ("database_url", "schema", "namespace"):
            monkeypatch.setenv(f"ROTA_{name.upper()}", str(getattr(settings, name)))
        runner.run(register_tasks(sandbox.app, *sandbox.app.tasks))
        try:
            yield Clock(runner, sandbox)
        finally:
            runner.run(private.__aexit__(None, None, None))


# -- times


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-29T02:30+02:00", datetime(2026, 3, 29, 0, 30, tzinfo=UTC)),
        ("2026-03-29T02:30Z", datetime(2026, 3, 29, 2, 30, tzinfo=UTC)),
        ("2026-03-29", datetime(2026, 3, 29, tzinfo=UTC)),
        ("now", START),
        ("-2d", START - timedelta(days=2)),
        ("+1h30m", START + timedelta(minutes=90)),
    ],
)
def test_a_moment_is_given_in_full_as_a_day_or_relative_to_now(text: str, moment: datetime) -> None:
    assert parse_when(text).at(START) == moment


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("2026-03-29T02:30", "has no time zone"),
        ("2026-02-30", "not a time"),
        ("tomorrow", "not a time"),
        ("-soon", "not a duration"),
        ("9999-12-31T23:59-14:00", "not in the years 1 to 9999"),
        ("0001-01-01T00:00+14:00", "not in the years 1 to 9999"),
        ("+99999999999d", "longer than 10,000 years"),
        ("-900000d", "not in the years 1 to 9999"),
    ],
)
def test_what_is_no_moment_is_refused_with_advice(text: str, complaint: str) -> None:
    with pytest.raises(typer.BadParameter, match=complaint):
        parse_when(text).at(START)


# -- creating


def test_create_says_whether_it_created_updated_or_changed_nothing(clock: Clock) -> None:
    daily = ("create", "daily", "--task", "tell", "--cron", "30 2 * * *", "--tz", "Europe/Paris")
    assert (
        done(*daily).out
        == "created daily: every day at 02:30 in Europe/Paris; next in 13 h 30 min\n"
    )
    assert done(*daily).out.startswith("unchanged daily")
    changed = done(*daily, "--gap", "skip", "--json").json
    assert changed == {
        "schedule": "daily", "change": "updated", "next_due": "2026-03-02T01:30:00Z",
        "warnings": [],
    }  # fmt: skip


def test_create_takes_every_part_of_a_schedule(clock: Clock) -> None:
    done("create", "full", "--task", "tell", "--every", "15m", "--payload", '{"note": "x"}',
         "--tz", "Asia/Kathmandu", "--gap", "shift", "--fold", "both", "--overlap", "queue",
         "--catch-up", "latest:1h", "--spread", "5m", "--jitter", "30s", "--starts", "+1h",
         "--ends", "2026-04-01", "--queue", "q", "--priority", "7", "--timeout", "1m",
         "--max-attempts", "3", "--tag", "red", "--tag", "new", "--about", "All of it")  # fmt: skip
    spec = done("show", "full", "--json").json["spec"]
    assert spec["rule"] == {"type": "every", "seconds": 900.0, "anchor": None}
    assert spec["payload"] == {"note": "x"}
    assert (spec["tz"], spec["gap"], spec["fold"]) == ("Asia/Kathmandu", "shift", "both")
    assert (spec["overlap"], spec["spread"], spec["jitter"]) == ("queue", 300.0, 30.0)
    assert spec["catch_up"] == {"kind": "latest", "within": 3600.0}
    assert (spec["starts"], spec["ends"]) == ("2026-03-01T13:00:00Z", "2026-04-01T00:00:00Z")
    assert spec["options"] == {"queue": "q", "priority": 7, "timeout": 60.0, "max_attempts": 3}
    assert (spec["tags"], spec["description"]) == (["red", "new"], "All of it")


@pytest.mark.parametrize(
    "rule",
    [
        ("--calendar", "last business day of the month at 18:00"),
        ("--rrule", "FREQ=WEEKLY;BYDAY=MO"),
        ("--cron", "@hourly"),
    ],
)
def test_create_takes_each_kind_of_rule(clock: Clock, rule: tuple[str, str]) -> None:
    assert done("create", "s", "--task", "tell", *rule, "--json").json["change"] == "created"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--cron", "30 25 * * *"], 1, "hour: 25 is not in 0-23"),
        (["--cron", "0 0 30 2 *"], 1, "never fires"),
        (["--cron", "0 0 * * *", "--tz", "Europe/Pariss"], 1, "did you mean Europe/Paris"),
        (["--cron", "0 0 * * *", "--gap", "maybe"], 1, "gap: 'maybe' is none of next, skip, shift"),
        (["--cron", "0 0 * * *", "--every", "5m"], 1, "exactly one rule"),
        ([], 1, "exactly one rule"),
        (["--every", "5m", "--catch-up", "lates"], 2, "did you mean latest?"),
        (["--every", "5m", "--catch-up", "all:soon"], 2, "not a duration"),
        (["--every", "5m", "--starts", "2026-03-01T09:00"], 2, "no time zone"),
        (["--every", "5m", "--payload", "[1]"], 2, "JSON object"),
        (["--every", "5m", "--exclude", "holidays"], 1, "no calendar 'holidays'"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_with_the_reason(
    clock: Clock, arguments: list[str], code: int, complaint: str
) -> None:
    refused = run("create", "s", "--task", "tell", *arguments)
    assert (refused.code, refused.out) == (code, "")
    assert refused.err.startswith("error: ")
    assert complaint in refused.err
    as_json = run("create", "s", "--task", "tell", *arguments, "--json")
    assert complaint in json.loads(as_json.err)["error"]["message"]
    assert done("list", "--json").json == []


@pytest.fixture
def cli_app(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Imported anew: an app reads its settings when it is made."""
    monkeypatch.chdir(SUPPORT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("cli_app", None)
    yield "cli_app:app"
    sys.modules.pop("cli_app", None)


def test_with_an_app_the_payload_is_checked(clock: Clock, cli_app: str) -> None:
    given = ("create", "s", "--task", "greet", "--every", "5m", "--app", cli_app)
    assert "nam" in run(*given, "--payload", '{"nam": "x"}').err
    assert done(*given, "--payload", '{"name": "x"}').out.startswith("created")


def test_a_schedule_starts_a_workflow(clock: Clock) -> None:
    flow = clock.app.workflow("orders")
    flow.step(clock.app.tasks["tell"])
    clock.run(clock.app.workflows.declare())
    given = ("create", "s", "--workflow", "orders", "--every", "5m")
    assert done(*given, "--payload", '{"note": "x"}').out.startswith("created")
    assert "no step reads 'nota'" in run(*given, "--payload", '{"nota": "x"}').err
    assert clock.advance(minutes=5) == 2
    [listed] = done("list", "--task", "orders", "--json").json
    assert (listed["workflow"], listed["fired"]) == ("orders", 1)
    assert "workflow orders" in done("list").out
    both = run("create", "t", "--workflow", "orders", "--task", "tell", "--every", "5m")
    assert (both.code, run("create", "t", "--every", "5m").code) == (2, 2)
    assert "give either --task or --workflow" in both.err


# -- looking


def test_a_list_tells_rule_next_last_and_pause(clock: Clock) -> None:
    assert "No schedules" in done().err
    done("create", "a", "--task", "tell", "--cron", "0 * * * *", "--tag", "red")
    done("create", "b", "--task", "other", "--every", "15m")
    clock.advance(hours=1)
    done("pause", "b")
    lines = done().out.splitlines()
    assert lines[0].split() == ["name", "rule", "next", "last", "paused", "task"]
    assert lines[1].split() == [
        "a",
        "every",
        "hour",
        "in",
        "UTC",
        "in",
        "1",
        "h",
        "succeeded",
        "tell",
    ]
    assert "paused" in lines[2]
    assert done("list").out.splitlines() == lines
    [a, b] = done("list", "--json").json
    assert (a["last"]["state"], a["last"]["job_state"]) == ("fired", "succeeded")
    assert (a["paused_at"], b["paused_at"]) == (None, "2026-03-01T13:00:00Z")
    assert [each["name"] for each in done("list", "--tag", "red", "--json").json] == ["a"]
    assert [each["name"] for each in done("list", "--task", "other", "--json").json] == ["b"]


def test_a_list_tells_when_nobody_sees_to_what_is_due(clock: Clock) -> None:
    done("create", "s", "--task", "tell", "--every", "1h")
    clock.run(clock.sandbox.advance(hours=2))
    assert "no scheduler?" in done().out


def test_show_tells_everything(clock: Clock) -> None:
    done("create", "s", "--task", "tell", "--cron", "0 */6 * * *", "--tz", "Europe/Paris",
         "--gap", "shift", "--payload", '{"note": "x"}', "--catch-up", "all:2h")  # fmt: skip
    clock.advance(12, hours=6)
    told = done("show", "s").out
    for part in ("0 */6 * * *", "Europe/Paris", "shift", "first", '{"all":"2h"}',
                 '"note": "x"', "Thu 2026-03-05 00:00 +01:00", "succeeded"):  # fmt: skip
        assert part in told
    shown = done("show", "s", "--json").json
    assert len(shown["next"]) == 5
    assert shown["next"][0]["utc"] == "2026-03-04T17:00:00Z"
    assert len(shown["last"]) == 10
    assert shown["last"][0]["due_at"] > shown["last"][1]["due_at"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "nosuch"), ("pause", "nosuch"), ("resume", "nosuch"), ("trigger", "nosuch"),
        ("delete", "nosuch", "--yes"), ("occurrences", "nosuch"), ("audit", "nosuch"),
        ("backfill", "nosuch", "--from", "-1d", "--yes"), ("preview", "nosuch"),
    ],
)  # fmt: skip
def test_an_unknown_name_is_said_to_be_unknown(clock: Clock, arguments: tuple[str, ...]) -> None:
    refused = run(*arguments, "--json")
    assert (refused.code, refused.out) == (1, "")
    assert json.loads(refused.err)["error"]["type"] == "NotFound"
    assert "no schedule 'nosuch'" in run(*arguments).err


# -- steering


def test_pause_resume_trigger_and_delete(clock: Clock) -> None:
    done("create", "s", "--task", "tell", "--every", "1h")
    assert done("pause", "s", "--for", "2h").out == "paused s until 2026-03-01 14:00:00+00:00\n"
    assert done("pause", "s", "--until", "+3h", "--json").json == {
        "schedule": "s", "paused": True, "until": "2026-03-01T15:00:00Z",
    }  # fmt: skip
    assert "resumes in 3 h" in done().out
    assert run("pause", "s", "--until", "-1h").code == 2
    assert run("pause", "s", "--until", "+1h", "--for", "1h").code == 2
    assert done("resume", "s").out == "resumed s\n"
    assert done("list", "--json").json[0]["paused_at"] is None

    job_id = done("trigger", "s", "--json").json["job_id"]
    [row] = done("occurrences", "s", "--json").json
    assert (row["job_id"], row["reason"], row["job_state"]) == (job_id, "triggered", "ready")

    assert run("delete", "s", "--json").code == 2
    asked = run("delete", "s", stdin="n\n")
    assert asked.code == 1
    assert "Delete s (every" in asked.err
    assert done("delete", "s", stdin="y\n").out.endswith("deleted s\n")
    assert done("list", "--json").json == []


# -- the ledger


def test_occurrences_tell_what_became_of_each(clock: Clock) -> None:
    done("create", "s", "--task", "tell", "--cron", "0 * * * *")
    clock.advance(2, hours=1)
    done("pause", "s")
    clock.advance(2, hours=1)
    rows = done("occurrences", "s", "--from", "-4h", "--json").json
    assert [(row["state"], row["reason"]) for row in rows] == [
        ("fired", None), ("fired", None), ("skipped", "paused"), ("skipped", "paused"),
    ]  # fmt: skip
    assert (rows[0]["job_state"], rows[0]["lag"]) == ("succeeded", pytest.approx(0, abs=1))
    skipped = done("occurrences", "s", "--state", "skipped", "--json").json
    assert [row["due_at"] for row in skipped] == ["2026-03-01T15:00:00Z", "2026-03-01T16:00:00Z"]
    some = done("occurrences", "s", "--from", "2026-03-01", "--to", "2026-03-01T14:00Z", "--json")
    assert len(some.json) == 1
    table = done("occurrences", "s")
    assert "2026-03-01 13:00  fired" in table.out
    assert "paused" in table.out
    assert "--from 2026-03-01T13:00:00.000001" in done("occurrences", "s", "--limit", "1").err
    assert run("occurrences", "s", "--from", "now", "--to", "-1h").code == 2
    assert run("occurrences", "s", "--state", "lost").code == 2


def test_an_audit_is_clean_until_the_ledger_and_the_rule_differ(clock: Clock) -> None:
    done("create", "s", "--task", "tell", "--cron", "0 * * * *")
    done("create", "t", "--task", "tell", "--every", "30m")
    clock.advance(4, minutes=30)
    audits = done("audit", "--json").json
    assert [(each["name"], each["expected"]) for each in audits] == [("s", 2), ("t", 4)]
    assert all(each["clean"] for each in audits)
    clock.run(spoil(clock.app))
    differing = run("audit", "s", "--json")
    assert differing.code == 1
    [one] = differing.json
    assert one["missing"] == ["2026-03-01T13:00:00Z"]
    assert one["extra"] == ["2026-03-01T13:07:00Z"]
    people = run("audit")
    assert people.code == 1
    assert "missing s 2026-03-01T13:00:00+00:00" in people.out
    assert "extra s 2026-03-01T13:07:00+00:00" in people.out
    assert done("audit", "s", "--from", "2026-03-01T13:30Z").code == 0


async def spoil(app: App) -> None:
    """Move a row of the ledger by seven minutes."""
    database = (await app.store()).database
    status = await app.schedules.get("s")
    async with database.connection() as connection:
        await connection.execute(
            f"update {database.schema}.occurrence set due_at = due_at + interval '7 minutes' "
            "where schedule_id = $1 and due_at = $2",
            status.id, START + timedelta(hours=1),
        )  # fmt: skip


def test_a_backfill_counts_asks_and_runs(clock: Clock) -> None:
    done("create", "s", "--task", "tell", "--cron", "0 * * * *", "--overlap", "allow")
    past = ("backfill", "s", "--from", "-3h", "--to", "now")
    assert done(*past, "--dry-run", "--json").json == {"schedule": "s", "count": 3, "dry_run": True}
    refused = run(*past, stdin="n\n")
    assert refused.code == 1
    assert "Run 3 occurrences of s" in refused.err
    assert done(*past, "--yes").out == "backfilled 3 of s\n"
    assert "Nothing to run" in done(*past, "--yes").err
    assert clock.advance(seconds=1) == 3
    rows = done("occurrences", "s", "--json").json
    assert [(row["reason"], row["job_state"]) for row in rows] == [("backfilled", "succeeded")] * 3
    assert run("backfill", "s").code == 2
    assert run(*past, "--json").code == 2


@pytest.mark.skipif(
    "max_parallel" not in inspect.signature(Schedules.backfill).parameters,
    reason="this backfill has no max_parallel",
)
def test_a_backfill_takes_how_many_may_run_at_a_time(clock: Clock) -> None:
    done("create", "s", "--task", "tell", "--cron", "0 * * * *", "--overlap", "allow")
    filled = done("backfill", "s", "--from", "-3h", "--max-parallel", "2", "--yes", "--json")
    assert filled.json["count"] == 3


# -- preview


def paris(after: str, *arguments: str, count: int = 3, cron: str = "30 2 * * *") -> list[Any]:
    """Without a database: there is none."""
    rows: list[Any] = done(
        "preview", cron, "--tz", "Europe/Paris", "--after", after, "--count", str(count),
        *arguments, "--json", "--database-url", NOWHERE,
    ).json  # fmt: skip
    return rows


@pytest.mark.parametrize(
    ("gap", "utc", "remark"),
    [
        ("next", "2026-03-29T01:00:00Z", "02:30 doesn't exist: runs 03:00"),
        ("shift", "2026-03-29T01:30:00Z", "02:30 doesn't exist: runs 03:30"),
        ("skip", None, "2026-03-29 02:30 doesn't exist: doesn't run"),
    ],
)
def test_a_preview_marks_what_each_gap_policy_does(gap: str, utc: str | None, remark: str) -> None:
    before, jump, after = paris("2026-03-28", "--gap", gap)
    assert (before["utc"], before["remark"]) == ("2026-03-28T01:30:00Z", None)
    assert (jump["utc"], jump["runs"], jump["remark"]) == (utc, gap != "skip", remark)
    assert (after["local"], after["remark"]) == ("2026-03-30T02:30:00+02:00", None)


@pytest.mark.parametrize(
    ("fold", "expected"),
    [
        ("first", [("00:30", "02:30 comes twice: runs the first time")]),
        ("second", [("01:30", "02:30 comes twice: runs the second time")]),
        (
            "both",
            [
                ("00:30", "02:30 comes twice: runs both times, this is the first"),
                ("01:30", "02:30 comes twice: runs both times, this is the second"),
            ],
        ),
    ],
)
def test_a_preview_marks_what_each_fold_policy_does(
    fold: str, expected: list[tuple[str, str]]
) -> None:
    rows = paris("2026-10-25", "--fold", fold, count=len(expected) + 1)
    assert [(row["utc"][11:16], row["remark"]) for row in rows[:-1]] == expected
    assert (rows[-1]["utc"], rows[-1]["remark"]) == ("2026-10-26T01:30:00Z", None)


def test_a_preview_tells_of_several_times_in_one_gap() -> None:
    collapsed = paris("2026-03-29", cron="*/15 2 * * *", count=1)[0]
    assert collapsed["remark"] == "02:00, 02:15, 02:30 and 02:45 don't exist: runs 03:00"
    regular = paris("2026-03-29", cron="0 2,3 * * *", count=1)[0]
    assert (regular["mark"], regular["remark"]) == (None, "02:00 doesn't exist: runs 03:00")
    many = paris("2026-03-29", cron="*/5 2 * * *", count=1)[0]
    assert many["remark"] == "02:00 to 02:55 (12) don't exist: runs 03:00"


def test_a_preview_of_a_rule_of_every_hour_has_no_gaps_and_both_passes() -> None:
    spring = paris("2026-03-28T23:30Z", cron="30 * * * *", count=4)
    assert [row["remark"] for row in spring] == [None] * 4
    autumn = paris("2026-10-24T23:45Z", cron="30 * * * *", count=3)
    assert [row["local"][11:] for row in autumn] == [
        "02:30:00+02:00", "02:30:00+01:00", "03:30:00+01:00",
    ]  # fmt: skip
    assert "runs both times" in autumn[0]["remark"]


def test_marks_stay_within_the_start_and_the_end_of_a_schedule() -> None:
    spec = make_spec("s", "t", cron="30 2 * * *", tz="Europe/Paris", gap="skip",
                     ends=datetime(2026, 3, 28, 12, tzinfo=UTC))  # fmt: skip
    rows = previewed(compile_schedule(spec), datetime(2026, 3, 27, tzinfo=UTC), 5)
    assert [row.runs for row in rows] == [True, True]


def test_a_preview_for_people() -> None:
    answer = done("preview", "30 2 * * *", "--tz", "Europe/Paris", "--after", "2026-03-28",
                  "--count", "2", "--database-url", NOWHERE)  # fmt: skip
    assert answer.out.splitlines()[0] == "every day at 02:30 in Europe/Paris  gap=next fold=first"
    assert "Sun 2026-03-29 03:00 +02:00  2026-03-29 01:00  02:30 doesn't exist" in answer.out
    spread = done("preview", "H 5 * * *", "--after", "2026-03-28", "--database-url", NOWHERE)
    assert "--name" in spread.err


def test_a_preview_of_other_rules_and_of_a_stored_schedule(clock: Clock) -> None:
    assert done("preview", "--every", "15m", "--count", "2", "--json").json[1]["utc"] == (
        "2026-03-01T12:30:00Z"
    )
    assert (
        len(done("preview", "--rrule", "FREQ=DAILY;BYHOUR=9", "--count", "3", "--json").json) == 3
    )
    phrase = ("preview", "--calendar", "last day of the month at 18:00", "--after", "+1d")
    assert done(*phrase, "--json").json[0]["utc"] == "2026-03-31T18:00:00Z"
    done("create", "s", "--task", "tell", "--cron", "30 2 * * *", "--tz", "Europe/Paris")
    [stored] = done("preview", "s", "--count", "1", "--json").json
    assert stored["local"] == "2026-03-02T02:30:00+01:00"
    [what_if] = done("preview", "s", "--tz", "UTC", "--count", "1", "--json").json
    assert what_if["local"] == "2026-03-02T02:30:00Z"
    assert run("preview", "s", "--every", "5m").code == 2
    assert run("preview").code == 1


# -- lint and forecast, on the example


def test_lint_warns_and_strict_makes_it_fail(shop: Clock) -> None:
    warnings = done("lint", "--json").json
    assert {(each["code"], each["schedule"]) for each in warnings} == {
        ("gap", "report_stock"), ("fold", "report_stock"),
    }  # fmt: skip
    assert "it runs at 2026-03-29 02:00 instead" in done("lint").out
    assert run("lint", "--strict").code == 1
    done("delete", "report_stock", "--yes")
    assert "No warnings about the schedules" in done("lint", "--strict").err
    done("create", "more", "--task", "confirm", "--cron", "*/15 * * * *")
    herd = run("lint", "--herd", "2", "--strict", "--json")
    assert (herd.code, {each["code"] for each in herd.json}) == (1, {"herd"})


def test_lint_knows_how_long_a_task_takes(clock: Clock) -> None:
    done("create", "s", "--task", "tell", "--every", "5m")
    assert done("lint", "--json").json == []
    clock.advance(3, minutes=5)
    clock.run(make_slow(clock.app, minutes=10))
    [warning] = done("lint", "--json").json
    assert warning["code"] == "too_often"
    assert "usually takes 10m" in warning["message"]


async def make_slow(app: App, minutes: int) -> None:
    """What has succeeded so far took so long."""
    database = (await app.store()).database
    await RunStatsStore(database).fold(1000)
    async with database.connection() as connection:
        await connection.execute(
            f"update {database.schema}.run_stats set durations = array_fill(0::bigint, "
            f"array[{database.schema}.bucket($1)::int]) || array[runs] where task <> ''",
            timedelta(minutes=minutes),
        )


def test_a_forecast_of_the_shop(shop: Clock) -> None:
    no_worker = run("forecast")
    assert no_worker.code == 1
    assert "give --slots" in no_worker.err
    week = ("forecast", "--slots", "1", "--duration", "report_stock=40m", "--duration",
            "remind_of_baskets=2m")  # fmt: skip
    told = done(*week, "--json").json
    assert (told["from"], told["to"]) == ("2026-03-01T12:00:00Z", "2026-03-08T12:00:00Z")
    assert told["runs"] == 7 * 96 + 7 + 5
    assert told["durations"]["restock"] == {"seconds": 1.0, "source": "assumed"}
    assert told["durations"]["report_stock"] == {"seconds": 2400.0, "source": "given"}
    assert len(told["buckets"]) == 7 * 24
    assert len({one["start"][:10] for one in told["pile_ups"]}) == 7
    assert told["max_wait"] > 600

    people = done(*week)
    assert f"{len(told['pile_ups'])} pile-ups" in people.out
    assert "Mon 2026-03-02" in people.out
    assert "Never measured, assumed to take 1 s: restock" in people.err


def test_a_forecast_measures_and_leaves_out_what_is_paused(clock: Clock) -> None:
    done("create", "a", "--task", "tell", "--every", "1h")
    done("create", "b", "--task", "tell", "--every", "1h")
    clock.advance(2, hours=1)
    clock.run(make_slow(clock.app, minutes=10))
    day = ("forecast", "--days", "1", "--slots", "4", "--json")
    measured = done(*day).json
    assert measured["durations"] == {"tell": {"seconds": 630.0, "source": "measured"}}
    assert measured["runs"] == 48
    done("pause", "b")
    assert done(*day).json["runs"] == 24
    done("pause", "b", "--for", "12h")
    assert done(*day).json["runs"] == 36


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--duration", "tell"], "TASK=DURATION"),
        (["--duration", "nosuch=5m"], "no schedule runs task 'nosuch'"),
        (["--days", "0"], "--days"),
    ],
)
def test_a_forecast_that_makes_no_sense_ends_with_2(
    clock: Clock, arguments: list[str], complaint: str
) -> None:
    refused = run("forecast", "--slots", "1", *arguments)
    assert refused.code == 2
    assert complaint in refused.err


def test_schedules_that_cannot_be_read_are_listed_as_broken_beside_the_others(clock: Clock) -> None:
    clock.run(clock.app.schedule("good", "tell", every="1h"))
    names = clock.run(add_broken(clock.app, cron="*/5 * * * *"))
    listed = {one["name"]: one for one in done("list", "--json").json}
    assert set(listed) == {"good", *names}
    unread = sorted(name for name in names if listed[name]["spec"] is None)
    assert len(unread) == 8
    shown = done("list").out
    for name in unread:
        assert f"{name} doesn't fire: " in " ".join(shown.split())
        assert "It doesn't fire: " in done("show", name).out
    assert {one["schedule"] for one in run("lint", "--json").json} >= set(unread)
    assert done("forecast", "--slots", "2", "--json").json
    assert {one["name"] for one in done("audit", "--json").json} == {"good", *names}
    assert done("delete", "zone-gone", "--yes").code == 0
