"""Schedules as files: YAML that is applied, crontabs that are imported and run."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import rota.testing
from rota import App, CatchUp, ConfigError, ScheduleSpec
from rota.cli import cli
from rota.commands import COMMAND_TASK, enable_commands
from rota.core.time.interval import seconds_of
from rota.core.time.schedule import Cron, Every
from rota.files.changes import Present, difference, fields_of
from rota.files.crontab import read_crontab
from rota.files.yaml_nodes import Source
from rota.files.yaml_schedules import FIELDS, RULES, read_schedules
from rota.node import Node
from tests.support.places import ROOT
from tests.support.sandboxes import isolated

START = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)  # a Monday

EVERYTHING = """\
schedules:
  nightly-report:
    task: report_stock
    cron: "30 2 * * *"
    tz: Europe/Paris
    gap: skip
    fold: both
    payload: {country: NO, count: 3, share: 0.5, when: 2026-01-01, deep: {list: [1, null, true]}}
    options: {queue: reports, priority: 5, needs: [gpu], timeout: 15m, max_attempts: 2, tags: [x]}
    overlap: queue
    max_queued: 3
    drop: oldest
    max_running: 2
    catch_up: {latest: 1h}
    starts: 2026-01-01T00:00:00+01:00
    ends: 2027-01-01T00:00:00+01:00
    max_occurrences: 100
    jitter: 30s
    spread: 5m
    exclude: [company-holidays]
    include: workdays
    description: The report of the night.
    tags: [reports, nightly]
    paused: true
  poll:
    task: poll
    every: 1h30m
    anchor: 2026-01-01T00:10:00Z
    catch_up: all
  invoices: {task: invoices, calendar: last business day of the month at 18:00, catch_up: {all: 6h}}
  yearly: {task: tell, rrule: FREQ=YEARLY, catch_up: none}
  orders: {workflow: orders, cron: "@daily", payload: {day: today}, options: {priority: 3}}
calendars:
  company-holidays:
    dates: [2026-12-24]
    ranges: [[2026-12-28, 2027-01-01]]
  workdays: {weekdays: [mon, tue, Wednesday, thu, fri], description: when we are here}
"""


def read(text: str, name: str = "schedules.yaml", **rest: Any) -> Any:
    return read_schedules([Source(name, text.encode(), **rest)])


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return str(caught.value).split("\n")


# -- reading YAML


def test_a_file_can_say_everything_that_a_schedule_can_be() -> None:
    wanted = read(EVERYTHING)
    spec = wanted.schedules["nightly-report"]
    assert spec.rule == Cron("30 2 * * *")
    assert spec.payload == {
        "country": "NO", "count": 3, "share": 0.5, "when": "2026-01-01",
        "deep": {"list": [1, None, True]},
    }  # fmt: skip
    assert spec.options["timeout"] == 900
    assert (spec.catch_up, spec.spread) == (CatchUp("latest", 3600), 300)
    assert (spec.exclude, spec.include) == (("company-holidays",), ("workdays",))
    untouched = {
        field for field in ScheduleSpec.__struct_fields__
        if field not in ("name", "task", "workflow", "rule")
        and getattr(spec, field) == getattr(ScheduleSpec(name="x", task="x", rule=spec.rule), field)
    }  # fmt: skip
    assert untouched == set()
    assert set(FIELDS) == {
        *RULES, "anchor", *ScheduleSpec.__struct_fields__
    } - {"name", "rule"}  # fmt: skip
    assert wanted.schedules["poll"].rule == Every(5400, datetime(2026, 1, 1, 0, 10, tzinfo=UTC))
    assert wanted.schedules["poll"].catch_up == CatchUp("all")
    assert wanted.schedules["invoices"].catch_up == CatchUp("all", 6 * 3600)
    assert wanted.calendars["workdays"].weekdays == {0, 1, 2, 3, 4}
    assert wanted.calendars["company-holidays"].covers(datetime(2026, 12, 30).date())


def test_what_a_file_says_is_what_is_shown_of_it() -> None:
    spec = read(EVERYTHING).schedules["nightly-report"]
    shown = fields_of(spec)
    assert shown["catch_up"] == {"latest": "1h"}
    assert (shown["cron"], shown["spread"], shown["paused"]) == ("30 2 * * *", "5m", True)
    again = read(json.dumps({"schedules": {"nightly-report": shown},
                             "calendars": {"company-holidays": {}, "workdays": {}}}))  # fmt: skip
    assert again.schedules["nightly-report"] == spec


def test_a_schedule_of_a_file_may_start_a_workflow() -> None:
    spec = read(EVERYTHING).schedules["orders"]
    assert (spec.task, spec.workflow, spec.payload) == ("", "orders", {"day": "today"})
    again = read(json.dumps({"schedules": {"orders": fields_of(spec)}}))
    assert again.schedules["orders"] == spec
    found = complaints(
        "schedules:\n"
        "  both: {task: t, workflow: w, cron: '@daily'}\n"
        "  wrong: {workflow: 'a b', cron: '@daily'}\n"
        "  late: {workflow: w, cron: '@daily', options: {timeout: 5s}}\n"
    )
    expected = """\
2:29: schedules.both.workflow: there is task already; a schedule runs one of them
3:21: schedules.wrong.workflow: 'a b' is not a usable name: use 1 to 100 letters, digits, \
'_', '.', ':' or '-', starting with a letter, digit or '_'
4:48: schedules.late.options: 'timeout' is none of queue, priority, tags, which a schedule may \
set for a workflow; set it for the workflow's steps
"""
    assert [line.removeprefix("schedules.yaml:") for line in found] == expected.splitlines()


def test_everything_that_is_wrong_is_said_at_once_with_its_line_and_field() -> None:
    text = """\
schedules:
  nightly:
    task: report
    cron: "61 2 * * *"
    overlap: maybe
    spraed: 5m
  gone: {task: x, cron: "0 0 30 2 *"}
  both: {task: x, cron: "@daily", every: 5m}
  neither: {task: x}
  taskless: {every: 5m}
  bad values:
    task: x
    every: soon
    tz: Europe/Pariss
    max_queued: many
    starts: yesterday
    max_occurrences: 3
    options: {priority: 9999, colour: red}
    payload: [1]
  excluding:
    task: x
    cron: "0 0 * * *"
    exclude: [nowhere]
    paused: perhaps
    catch_up: {latest: x}
calendars:
  c: {dates: [2026-13-01], ranges: [[2026-02-01, 2026-01-01], [1]], weekdays: [caturday], ics: no.ics}
"""
    expected = """\
4:11: schedules.nightly.cron: minute: 61 is not in 0-59
5:14: schedules.nightly.overlap: 'maybe' is none of skip, queue, allow, kill
6:5: schedules.nightly.spraed: is not known here; did you mean spread?
7:25: schedules.gone.cron: never fires: no day 30 in the given months, which have 29 at most
8:42: schedules.both.every: there is cron already; a schedule has one rule
9:3: schedules.neither: has no rule: write one of cron, every, calendar, rrule
10:3: schedules.taskless: task is missing: the name of the task to run, or a workflow
11:3: schedules.bad values: 'bad values' is not a schedule's name; letters, digits and _.:/- up \
to 200
13:12: schedules.bad values.every: 'soon' is not a duration; write 90, 90s, 15m, 1h30m or 2d
14:9: schedules.bad values.tz: 'Europe/Pariss' is not an IANA time zone; did you mean \
Europe/Paris, Europe/Warsaw, Europe/Madrid?
15:17: schedules.bad values.max_queued: must be a whole number, not "many"
16:13: schedules.bad values.starts: 'yesterday' is not a time; write 2027-01-31T09:00:00+01:00
18:25: schedules.bad values.options.priority: priority must be a whole number from -1000 to 1000, \
not 9999
18:31: schedules.bad values.options.colour: is not known here; there are \
heartbeat_timeout, max_attempts, near, near_patience, needs, priority, queue, resources, tags, timeout
19:14: schedules.bad values.payload: must be a mapping of argument names and values
23:14: schedules.excluding.exclude: no calendar 'nowhere'; there are: c
24:13: schedules.excluding.paused: must be true or false, not "perhaps"
25:24: schedules.excluding.catch_up.latest: 'x' is not a duration; write 90, 90s, 15m, 1h30m or 2d
27:15: calendars.c.dates[0]: '2026-13-01' is not a day; write 2026-12-24
27:37: calendars.c.ranges[0]: 2026-02-01 to 2026-01-01 runs backwards
27:63: calendars.c.ranges[1]: write a first and a last day: [2026-12-28, 2027-01-01]
27:64: calendars.c.ranges[1][0]: '1' is not a day; write 2026-12-24
27:80: calendars.c.weekdays[0]: 'caturday' is not a weekday; there are mon, tue, wed, thu, fri, \
sat, sun
27:96: calendars.c.ics: no.ics can't be read: No such file or directory
"""
    found = complaints(text)
    assert [line.removeprefix("schedules.yaml:") for line in found] == expected.splitlines()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("schedules:\n  a: {task: x, every: 5m}\n  a: {task: y, every: 5m}\n",
         "f.yaml:3:3: schedules.a: is there twice"),
        ("schedules:\n  a: {task: x, task: y, every: 5m}\n",
         "f.yaml:2:16: schedules.a.task: is there twice"),
        ("schedules:\n  a: {task: x, cron: @daily}\n",
         "f.yaml:2:22: is not YAML: while scanning for the next token, found character that cannot"),
        ("schedules: [1]\n", "f.yaml:1:12: schedules: must be a mapping"),
        ("schedules:\n  a: 5\n", "f.yaml:2:3: schedules.a: must be a mapping with its task"),
        ("schedule: {}\n", "f.yaml:1:1: schedule: is not known here; did you mean schedules?"),
        ("- a\n", "f.yaml:1:1: must be a mapping"),
        ("schedules:\n  a: {task: x, every: 5m, payload: {a: !!python/name:os.system x}}\n",
         "f.yaml:2:40: is not YAML: the tag !!python/name:os.system is not plain YAML"),
        ("schedules:\n  a: {task: x, every: 5m, payload: {a: !!set {}}}\n",
         "f.yaml:2:40: is not YAML: the tag !!set is not plain YAML"),
        ("schedules:\n  a: {task: x, every: 5m, payload: {a: !!int x}}\n",
         "f.yaml:2:40: schedules.a.payload.a: x is not a valid int"),
        ("schedules:\n  a: {task: x, every: 5m, payload: &a {b: *a}}\n",
         "f.yaml:2:43: is not YAML: *a contains itself"),
        ("schedules: " + "[" * 200 + "]" * 200, "f.yaml:1:111: is not YAML: nested over 100 levels"),
        ('schedules:\n  a: {task: "x\\0", every: 5m}\n', "f.yaml:2:13: schedules.a.task: has the"),
        ("schedules:\n  a: {task: x\x01}\n", "f.yaml:2:14: is not YAML: a control character"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: is not YAML: expected a single document"),
        ("# " + "x" * 1_000_000, "f.yaml:1:1: has over 1,000,000 bytes"),
        ("schedules:\n  a: {task: x, rrule: FREQ=NEVER}\n", "f.yaml:2:23: schedules.a.rrule: "),
        ("schedules:\n  a: {task: x, calendar: now and then}\n", "f.yaml:2:26: schedules.a.calendar: "),
        ("schedules:\n  a: {task: x, every: 5m, jitter: 10m}\n", "f.yaml:2:35: schedules.a.jitter: "),
        ("schedules:\n  a: {task: x, every: 5m, ends: 9999-12-31T23:59:59Z}\n",
         "f.yaml:2:33: schedules.a.ends: '9999-12-31T23:59:59Z' is not in the years 1900 to 2200"),
        ("schedules:\n  a: {task: x, cron: 0 0 * * *, starts: 2026-01-01}\n",
         "f.yaml:2:41: schedules.a.starts: 2026-01-01 00:00:00 has no time zone"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text, "f.yaml")
    assert str(caught.value).startswith(complaint)


def test_few_aliases_that_make_many_values_are_refused() -> None:
    lines = ["x-0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"x-{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    lines += ["schedules: {a: {task: x, every: 5m, payload: {bomb: *a8}}}"]
    assert "over 100,000 values, aliases counted" in complaints("\n".join(lines))[0]


def test_anchors_aliases_and_merges_work() -> None:
    wanted = read("""\
x-usual: &usual {tz: Europe/Paris, overlap: allow, payload: &p {a: 1}}
schedules:
  a: {<<: *usual, task: x, cron: 0 0 * * *}
  b: {task: x, cron: 0 1 * * *, <<: *usual, overlap: kill, payload: {<<: *p, b: 2}}
""")
    a, b = wanted.schedules["a"], wanted.schedules["b"]
    assert (a.tz, a.overlap, a.payload) == ("Europe/Paris", "allow", {"a": 1})
    assert (b.tz, b.overlap, b.payload) == ("Europe/Paris", "kill", {"a": 1, "b": 2})


def test_a_name_in_two_files_is_refused_and_an_empty_file_is_fine() -> None:
    one = Source("one.yaml", b"schedules: {a: {task: x, every: 5m}}")
    two = Source("two.yaml", b"\n\nschedules: {a: {task: x, every: 5m}}")
    with pytest.raises(
        ConfigError, match=r"^two.yaml:3:13: schedules.a: is also in one.yaml:1:16$"
    ):
        read_schedules([one, two, Source("three.yaml", b"")])


def test_calendars_come_from_ics_files_and_holiday_sets(tmp_path: Path) -> None:
    (tmp_path / "days.ics").write_text(
        "BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20260501\nEND:VEVENT\nEND:VCALENDAR\n"
    )
    text = """\
calendars:
  mine: {ics: days.ics, dates: [2026-05-02], holidays: NO}
  bavaria: {holidays: {country: DE, subdivision: BY, years: [2026]}}
"""
    calendars = read(text, folder=tmp_path).calendars
    covered = calendars["mine"].dates
    for day in ("2026-05-01", "2026-05-02", "2026-05-17", "2030-12-25"):
        assert datetime.fromisoformat(day).date() in covered
    assert datetime(2026, 1, 6).date() in calendars["bavaria"].dates
    assert complaints("calendars:\n  c:\n    holidays: XX\n")[0].startswith(
        "schedules.yaml:3:15: calendars.c.holidays: no holidays of 'XX'"
    )


# -- applying


@pytest.fixture
def app(database_url: str) -> App:
    app = App(database_url=database_url, node_name="test")

    @app.task
    async def tell(note: str = "") -> str:
        return note

    enable_commands(app)
    return app


@pytest.fixture
async def sandbox(app: App) -> AsyncIterator[rota.testing.Sandbox]:
    async with isolated(app, now=START) as sandbox:
        yield sandbox


class Answer:
    def __init__(self, result: Any) -> None:
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def actions(self) -> dict[str, str]:
        return {change["name"]: change["action"] for change in self.json["changes"]}


Rota = Callable[..., Any]


@pytest.fixture
def rota_cli(
    sandbox: rota.testing.Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Rota:
    """`rota schedules ...` on the sandbox, in a folder of its own."""
    monkeypatch.setenv("ROTA_DATABASE_URL", sandbox.app.settings.database_url or "")
    monkeypatch.setenv("ROTA_SCHEMA", sandbox.app.settings.schema)
    monkeypatch.chdir(tmp_path)

    async def run(*arguments: str, stdin: str | None = None) -> Answer:
        words = ["schedules", *arguments]
        return Answer(await asyncio.to_thread(CliRunner().invoke, cli, words, input=stdin))

    return run


TWO = """\
schedules:
  first: {task: tell, cron: "0 * * * *", payload: {note: one}}
  second: {task: tell, every: 30m, exclude: [off]}
calendars:
  off: {weekdays: [sat, sun]}
"""


async def test_apply_shows_the_difference_creates_and_then_changes_nothing(
    app: App, sandbox: rota.testing.Sandbox, rota_cli: Rota, tmp_path: Path
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(TWO)
    dry = await rota_cli("apply", "s.yaml", "--dry-run")
    assert "+ create first\n    task: tell\n    cron: 0 * * * *\n    payload: " in dry.out
    assert "+ create calendar off\n    weekdays: [5,6]\n" in dry.out
    assert dry.out.endswith("3 to create\n")
    assert await app.schedules.list() == []

    asked = await rota_cli("apply", "s.yaml", stdin="n\n")
    assert (asked.code, await app.schedules.list()) == (1, [])
    agreed = await rota_cli("apply", "s.yaml", stdin="y\n")
    assert (agreed.code, agreed.out.splitlines()[-1]) == (0, "3 created")
    assert [s.source for s in await app.schedules.list()] == ["file", "file"]

    again = await rota_cli("apply", "s.yaml")  # nobody is asked
    assert (again.code, again.out.splitlines()[-1]) == (0, "3 unchanged")
    assert [s.version for s in await app.schedules.list()] == [1, 1]
    await sandbox.advance(hours=1)
    assert sorted(job.result for job in await sandbox.run_due()) == ["", "one"]


async def test_a_changed_file_shows_old_and_new_and_prune_deletes_only_what_came_from_files(
    app: App, rota_cli: Rota, tmp_path: Path
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(TWO)
    await rota_cli("apply", "s.yaml", "--yes")
    await app.schedule("by-api", "tell", every="1h")
    file.write_text(
        'schedules:\n  first: {task: tell, cron: "5 * * * *", tz: Europe/Paris}\n'
        "  third: {task: tell, every: 1d}\n"
    )
    kept = await rota_cli("apply", "s.yaml", "--dry-run", "--json")
    assert kept.actions == {"first": "update", "third": "create"}
    pruned = await rota_cli("apply", "s.yaml", "--prune", "--yes")
    assert "~ update first\n    cron: 0 * * * * → 5 * * * *\n" in pruned.out
    assert '    payload: {"note":"one"} → (default)\n    tz: (default) → Europe/Paris' in pruned.out
    assert "- delete second\n" in pruned.out
    assert pruned.out.endswith("1 created, 1 updated, 1 deleted\n")
    assert [s.name for s in await app.schedules.list()] == ["by-api", "first", "third"]
    assert (await app.schedules.get("first")).version == 2


async def test_a_broken_file_changes_nothing_even_beside_a_sound_one(
    app: App, rota_cli: Rota, tmp_path: Path
) -> None:
    (tmp_path / "sound.yaml").write_text(TWO)
    (tmp_path / "broken.yaml").write_text('schedules:\n  x:\n    task: t\n    cron: "61 * * * *"\n')
    answer = await rota_cli("apply", "sound.yaml", "broken.yaml", "--yes", "--prune")
    assert answer.code == 1
    where = "broken.yaml:4:11: schedules.x.cron: minute: 61 is not in 0-59"
    assert answer.err == f"error: {where}\n"
    assert await app.schedules.list() == []
    as_json = await rota_cli("apply", "broken.yaml", "--json")
    assert json.loads(as_json.err)["error"]["message"] == where
    missing = await rota_cli("apply", "nowhere.yaml")
    assert missing.err == "error: nowhere.yaml can't be read: No such file or directory\n"


async def test_apply_refuses_arguments_that_no_live_release_takes_and_warns_of_unknown_tasks(
    app: App, make_app: Callable[..., App], rota_cli: Rota, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    worker = make_app()
    monkeypatch.setenv("ROTA_DATABASE_URL", worker.settings.database_url or "")
    monkeypatch.setenv("ROTA_SCHEMA", worker.settings.schema)

    @worker.task
    async def pay(order: int) -> None: ...

    file = tmp_path / "s.yaml"
    async with Node(worker).running():
        file.write_text('schedules:\n  x: {task: pay, cron: "@daily", payload: {ordre: 1}}\n')
        refused = await rota_cli("apply", "s.yaml", "--yes")
        file.write_text('schedules:\n  x: {task: typo, cron: "@daily"}\n')
        warned = await rota_cli("apply", "s.yaml", "--yes")
        linted = await rota_cli("lint", "--strict", "--json")

    assert refused.code == 1
    assert "s.yaml:2" in refused.err
    assert "schedule 'x': task 'pay' takes no argument 'ordre'; it takes: order" in refused.err
    assert warned.code == 0
    assert "Warning: schedule 'x': no node has registered a task named 'typo'" in warned.err
    assert (linted.code, [each["code"] for each in linted.json]) == (1, ["unknown_task"])


async def test_apply_reads_standard_input_and_json_asks_nobody(app: App, rota_cli: Rota) -> None:
    refused = await rota_cli("apply", "-", "--json", stdin=TWO)
    assert (refused.code, await app.schedules.list()) == (2, [])
    assert (await rota_cli("apply", "-", stdin=TWO)).code == 2
    done = await rota_cli("apply", "-", "--json", "--yes", stdin=TWO)
    assert done.json["applied"]
    again = await rota_cli("apply", "-", "--json", stdin=TWO)
    assert (again.code, again.json["applied"]) == (0, False)
    assert set(again.actions.values()) == {"unchanged"}


async def test_a_schedule_that_the_code_declares_is_not_taken_over(
    app: App, rota_cli: Rota
) -> None:
    app.cron("0 0 * * *", name="first")(app.tasks["tell"])
    await app.schedules.declare()
    answer = await rota_cli("apply", "-", "--yes", stdin=TWO)
    assert answer.err.startswith("error: <stdin>:2:3: schedules.first: is declared in code")
    assert [s.name for s in await app.schedules.list()] == ["first"]


async def test_everything_applied_is_unchanged_afterwards(
    app: App, sandbox: rota.testing.Sandbox, rota_cli: Rota
) -> None:
    await rota_cli("apply", "-", "--yes", stdin=EVERYTHING)
    wanted = read(EVERYTHING)
    changes = difference(await Present.of(app), wanted.schedules, wanted.calendars)
    assert {change.action for change in changes} == {"unchanged"}
    assert len(changes) == 7


# -- reading crontabs


def crontab(text: str, **options: Any) -> Any:
    return read_crontab(text, **options)


def payloads(text: str, **options: Any) -> list[Any]:
    read = crontab(text, **options)
    assert read.bad == []
    return [spec.payload for spec in read.schedules.values()]


def test_variables_apply_to_the_entries_after_them_and_quotes_are_as_in_cron() -> None:
    first, second = payloads(
        "* * * * * a\nSHELL=/bin/bash\n PATH = /bin:/sbin \n'odd'=\"two  words \"\nE=\n"
        "F=$HOME/x # no comment\n* * * * * A=b c"
    )
    assert first == {"shell": "a"}
    assert second == {
        "shell": "A=b c",
        "env": {"SHELL": "/bin/bash", "PATH": "/bin:/sbin", "odd": "two  words ", "E": "",
                "F": "$HOME/x # no comment"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("command", "shell", "stdin"),
    [
        ("mail -s hi%one%two", "mail -s hi", "one\ntwo\n"),
        (r"date +\%F", "date +%F", None),
        (r"cat%100\%%", "cat", "100%\n"),
        ("cat%", "cat", ""),
        (r"sed 's/\\/x/'", r"sed 's/\\/x/'", None),
        ("echo  two   spaces ", "echo  two   spaces", None),
    ],
)
def test_percent_signs_are_as_in_cron(command: str, shell: str, stdin: str | None) -> None:
    [payload] = payloads(f"* * * * * {command}")
    assert (payload["shell"], payload.get("stdin")) == (shell, stdin)


def test_zones_delays_users_and_comments() -> None:
    read = crontab(
        "# m h  dom mon dow   command\n0 1 * * * root a\n\n# not about it\n\n# Backs up\n# all of it\n"
        "CRON_TZ=America/New_York\nRANDOM_DELAY=5\n# Says b\n# twice\n@daily\tada\tb b\n",
        with_user=True,
        tz="Europe/Paris",
    )
    a, b = read.schedules.values()
    assert (a.tz, a.spread, a.description, a.payload["user"]) == ("Europe/Paris", 0, "", "root")
    assert (b.tz, b.spread, b.description) == ("America/New_York", 300, "Says b\ntwice")
    assert b.rule == Cron("@daily")
    assert b.payload == {"shell": "b b", "user": "ada"}
    assert [warning.line for warning in read.warnings] == [2, 12]


def test_names_come_from_the_command_and_stay_when_lines_and_times_change() -> None:
    before = crontab(
        "0 1 * * * /opt/bin/backup.sh --all\n0 2 * * * cd /srv && ./run x\n0 3 * * * A=b c\n"
    )
    after = crontab(
        "# new\n\n5 5 * * * /opt/bin/backup.sh --all\n0 2 * * * cd /srv && ./run x\n@daily A=b c"
    )
    assert list(before.schedules) == list(after.schedules)
    names = [name.rpartition("-")[0] for name in before.schedules]
    assert names == ["crontab-backup-sh", "crontab-run", "crontab-c"]
    twice = list(crontab("0 1 * * * a\n0 2 * * * a\n", prefix="host1").schedules)
    assert twice[1] == f"{twice[0]}-2"
    assert twice[0].startswith("host1-a-")


def test_what_cannot_be_imported_is_named_with_its_line_and_reason() -> None:
    read = crontab(
        "MAILTO=ops@example.org\nMAILTO=\n@reboot start\n61 * * * * a\n* * * b\nTZ=Mars/Base\n"
        'X="open\n@every_minute c\nRANDOM_DELAY=soon\n0 0 * * *  %x\nTZ=UTC\n'
        "0 0 30 2 * d\n* * * * * fine\n"
    )
    assert [(w.line, w.message.partition(" is")[0]) for w in read.warnings] == [
        (1, "MAILTO=ops@example.org"), (3, "@reboot"),
    ]  # fmt: skip
    reasons = {remark.line: remark.message for remark in read.bad}
    assert set(reasons) == {4, 5, 6, 7, 8, 9, 10, 12}
    assert "minute: 61 is not in 0-59" in reasons[4]
    assert "write a time and a command" in reasons[5]
    assert "TZ=Mars/Base: 'Mars/Base' is not an IANA time zone" in reasons[6]
    assert "never fires" in reasons[12]
    assert [spec.payload["shell"] for spec in read.schedules.values()] == ["fine"]


# -- a real crontab, imported and running

CRONTAB = """\
SHELL=/bin/bash
PATH=/usr/local/bin:/usr/bin:/bin
MAILTO=ops@example.org
GREETING="good morning"
CRON_TZ=Europe/Paris

# Greets
0 14 * * *      echo "$GREETING" from $0
*/20 * * * *    printf '\\%s\\n' twenty > {folder}/twenty
@hourly         date +\\%Y > {folder}/year
15 * * * *      cat > {folder}/input%first line%second line
30 * * * MON    test -n "$BASH" && echo monday >> {folder}/monday
30 * * * TUE    echo tuesday >> {folder}/tuesday
45 * * * *      echo trouble >&2; exit 3
GREETING=hello
HOME={folder}
5 * * * *       pwd; echo $GREETING
10 * * * *      exit 75
0 0 1 1 *       echo new year
"""


async def test_a_real_crontab_of_ten_lines_is_imported_and_runs(
    app: App, sandbox: rota.testing.Sandbox, rota_cli: Rota, tmp_path: Path
) -> None:
    (tmp_path / "crontab").write_text(CRONTAB.replace("{folder}", str(tmp_path)))
    imported = await rota_cli("import", "crontab", "--json", "--yes")
    assert (imported.code, imported.json["applied"]) == (0, True)
    assert list(imported.actions.values()) == ["create"] * 10
    assert [warning["place"] for warning in imported.json["warnings"]] == ["line 3"]
    again = await rota_cli("import", "crontab")
    assert again.out.endswith("\n10 unchanged\n")
    assert {s.version for s in await app.schedules.list()} == {1}

    # START is 13:00 in Paris; an hour, minute by minute.
    ended: dict[str, list[Any]] = {}
    for _ in range(60):
        await sandbox.advance(minutes=1)
        for job in await sandbox.run_due():
            ended.setdefault(job.payload["shell"].split()[0], []).append(job)
    [greeting] = [job for job in ended["echo"] if job.state == "succeeded"]
    [busy, trouble] = [job for job in chain(*ended.values()) if job.state == "failed"]
    assert greeting.result["stdout"] == "good morning from /bin/bash\n"
    assert trouble.error.message.endswith("ended with exit code 3: trouble")
    assert (busy.payload["shell"], busy.attempt) == ("exit 75", 5)
    assert len(ended["printf"]) == 3
    assert (tmp_path / "twenty").read_text() == "twenty\n"
    assert (tmp_path / "year").read_text().strip().isdecimal()
    assert (tmp_path / "input").read_text() == "first line\nsecond line\n"
    assert (tmp_path / "monday").read_text() == "monday\n"
    assert not (tmp_path / "tuesday").exists()
    assert ended["pwd;"][0].result["stdout"] == f"{tmp_path}\nhello\n"
    for status in await app.schedules.list():
        audit = await app.schedules.audit(status.name, START, START + timedelta(hours=1))
        assert audit.is_clean
    greets = next(s for s in await app.schedules.list() if "echo" in s.name and s.spec.description)
    assert (greets.source, greets.task, greets.spec.description) == (
        "crontab",
        COMMAND_TASK,
        "Greets",
    )


async def test_a_bad_line_stops_the_import_unless_it_may_be_skipped(
    app: App, rota_cli: Rota
) -> None:
    text = "0 1 * * * fine\n0 61 * * * bad\n"
    refused = await rota_cli("import", "-", stdin=text)
    assert refused.code == 1
    assert "+ create crontab-fine-" in refused.out
    assert "x line 2: cron '0 61 * * *': hour: 61 is not in 0-23" in refused.out
    assert "Nothing was imported" in refused.err
    assert await app.schedules.list() == []
    skipped = await rota_cli("import", "-", "--skip-bad", "--tz", "Asia/Tokyo", "--yes", stdin=text)
    assert skipped.code == 0
    [status] = await app.schedules.list()
    assert status.spec.tz == "Asia/Tokyo"
    assert (await rota_cli("import", "-", "--user", "--system", stdin=text)).code == 2
    assert (await rota_cli("import", "-", "--tz", "Mars/Base", stdin=text)).code == 1


async def test_pruning_files_leaves_an_imported_crontab_alone(app: App, rota_cli: Rota) -> None:
    await rota_cli("import", "-", "--yes", stdin="0 1 * * * fine\n")
    await rota_cli("apply", "-", "--prune", "--yes", stdin="schedules: {}\n")
    assert len(await app.schedules.list()) == 1


def test_durations_read_what_the_difference_shows() -> None:
    spec = read("schedules: {a: {task: x, every: 90}}").schedules["a"]
    assert seconds_of(fields_of(spec)["every"]) == 90


def test_the_files_that_the_guide_shows_are_good() -> None:
    page = ROOT / "docs" / "guide" / "schedule-files.md"
    blocks = re.findall(
        r"^```(yaml|crontab)\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert {language for language, _ in blocks} == {"yaml", "crontab"}
    for language, text in blocks:
        if language == "yaml":
            assert read(text).schedules
        else:
            assert len(crontab(text).schedules) == 2
            assert crontab(text).bad == []
