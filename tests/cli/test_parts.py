"""Parts of the command line: times, the loading of an app, what a terminal may show, live lines."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

import rota
from rota import App, ConfigError, Settings
from rota.cli import live
from rota.cli.live import DevOutput, describe_database, sample
from rota.cli.loading import find_reference, load_app
from rota.cli.output import Screen, plain
from rota.cli.times import parse_duration, parse_when, relative
from rota.core.lifecycle import End, Succeed, TryAgain
from rota.lib.ids import new_id
from rota.model import Failure, Outcome, OutcomeKind, State
from rota.runtime.work import Work


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1.5", 1.5), ("30s", 30), ("5m", 300), ("5 min", 300), ("1h30m", 5400),
     ("2d", 172_800), ("250ms", 0.25)],
)  # fmt: skip
def test_durations_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "-5", "5x", "m", "1h-3m", "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_duration(text)


def test_moments_need_a_zone() -> None:
    assert parse_when("2027-01-31T09:00Z").moment == datetime(2027, 1, 31, 9, tzinfo=UTC)
    with pytest.raises(typer.BadParameter, match="time zone"):
        parse_when("2027-01-31T09:00")


def test_times_as_people_read_them() -> None:
    now = datetime(2027, 1, 1, tzinfo=UTC)
    distances = [0.4, 2, -2, 185, -7200, 10 * 86400]
    shown = [relative(now + timedelta(seconds=distance), now) for distance in distances]
    assert shown == ["now", "in 2 s", "2 s ago", "in 3 min 5 s", "2 h ago", "in 10 d"]
    assert relative(None, now) == "-"


def test_an_app_is_loaded_from_this_folder_by_its_real_name(folder: Path) -> None:
    (folder / "only_one.py").write_text("from rota import App\napp = App()\nalias = app\n")
    loaded = load_app("only_one:app")
    assert loaded is sys.modules["only_one"].app
    assert load_app("only_one") is loaded


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("nosuch_module:app", "no module 'nosuch_module'"),
        ("nosuch.deep:app", "there is no 'nosuch'"),
        ("several:nosuch", "has no 'nosuch'; it has several:a, several:b"),
        ("several:number", "no App, but of type int"),
        ("several", "say several:a or several:b"),
        ("empty", "has no App"),
        ("several.py:a", "give its module: several"),
        ("several:", "names no app"),
        (":app", "names no app"),
    ],
)
def test_what_can_not_be_loaded_says_why(folder: Path, reference: str, complaint: str) -> None:
    (folder / "several.py").write_text("from rota import App\na, b, number = App(), App(), 3\n")
    (folder / "empty.py").write_text("")
    with pytest.raises(ConfigError, match=complaint):
        load_app(reference)


def test_an_import_that_fails_inside_the_module_keeps_its_traceback(folder: Path) -> None:
    (folder / "needy.py").write_text("import nosuch_dependency\n")
    with pytest.raises(ModuleNotFoundError, match="nosuch_dependency"):
        load_app("needy:app")


def test_without_a_name_the_usual_files_are_looked_at(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"app\.py or main\.py"):
        find_reference()
    (folder / "app.py").write_text("")
    (folder / "main.py").write_text("from rota import App\nshop = App()\n")
    assert find_reference() == "main:shop"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:secret@db.example:5432/shop",
        "postgresql://ada:secret@db.example:5432/shop?password=secret&sslmode=require",
        "postgresql://ada@db.example:5432/shop?password=secret",
    ],
)
def test_a_password_is_never_shown(url: str) -> None:
    shown = describe_database(Settings(database_url=url))
    assert shown == "postgresql://ada@db.example:5432/shop"


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert plain("a\x1b[2J\x9b1m\tb\n\x07") == "a\ufffd[2J\ufffd1m\tb\n\ufffd"


def test_the_sample_fits_the_signature() -> None:
    app = App()

    @app.task
    async def resize(path: str, width: int, ctx: rota.Context, crop: bool = False) -> None: ...

    assert sample(resize) == '{"path": "...", "width": 1}'


# -- live lines


class Recorded(DevOutput):
    """Keeps its lines, and knows when a period was summed up."""

    def __init__(self) -> None:
        super().__init__(Screen(), "app:app", App())
        self.lines: list[str] = []
        self.summed = asyncio.Event()

    def _say(self, line: Any) -> None:
        self.lines.append(str(line))
        if str(line).startswith("..."):
            self.summed.set()


async def test_a_busy_node_shows_a_few_lines_and_counts_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "_PERIOD", 0.01)
    output = Recorded()
    error = Failure("ValueError", "first line\nsecond line")
    for _ in range(1000):
        output.ended(_work(), Outcome.succeeded(), Succeed())
    output.ended(_work(), Outcome(OutcomeKind.RAISED, failure=error), TryAgain(2.0, 0))
    last = _work()
    output.ended(last, Outcome(OutcomeKind.TIMED_OUT), End(State.FAILED, 0, error))
    await asyncio.wait_for(output.summed.wait(), 60)
    assert sum("succeeded in" in line for line in output.lines) == 12
    assert "raised in " in output.lines[12]
    assert ": ValueError: first line, attempt 1 of 5, again in 2 s" in output.lines[12]
    assert "failed in " in output.lines[13]
    assert str(last.id) in output.lines[13]
    assert output.lines[14:] == ["... and 988 more: 988 succeeded"]


def _work() -> Work:
    work = Work(new_id(), "resize", b"{}", 1, 1, 5)
    work.started = 1.0
    return work
