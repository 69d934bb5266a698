"""The command line: in this process where it only asks, in real processes where it runs nodes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from uuid import UUID, uuid4

import psutil
import pytest
import typer

import rota
from rota import App, ConfigError, Retry, Settings
from rota.cli import live
from rota.cli.live import Teller, describe_database, sample
from rota.cli.loading import find_reference, load_app
from rota.cli.output import Screen, plain
from rota.cli.times import parse_duration, parse_moment, relative
from rota.core.lifecycle import End, Succeed, TryAgain
from rota.lib.ids import new_id
from rota.model import Failure, Outcome, OutcomeKind, State
from rota.node import Node
from rota.runtime.work import Work
from tests.support.command_line import drop_schema, run
from tests.support.places import ROTA, SUPPORT

UNKNOWN = "01890000-0000-7000-8000-000000000000"


# -- one migrated schema, a namespace of its own for each test


def submit(*arguments: str) -> str:
    answer = run("jobs", "submit", *arguments, "--json")
    assert answer.code == 0, answer.err
    job_id: str = answer.json["id"]
    return job_id


class CardDeclined(Exception): ...


def fail(*messages: str, task: str = "explode") -> list[str]:
    """Jobs on the dead-letter list of this test's namespace."""

    async def work() -> list[str]:
        app = App()

        @app.task(name=task, retry=Retry(max_attempts=1))
        async def explode(message: str) -> None:
            if message == "declined":
                raise CardDeclined(message)
            raise ValueError(message) if message != "missing" else KeyError(message)

        async with Node(app, queues=["default"]).running():
            handles = [await explode.submit(message) for message in messages]
            for handle in handles:
                await handle.wait(30)
        return [str(handle.id) for handle in handles]

    return asyncio.run(work())


# -- submit


def test_a_submit_says_the_id_and_show_knows_the_job(environ: dict[str, str]) -> None:
    answer = run("jobs", "submit", "greet", '{"name": "Ada"}', "--priority", "5", "--queue", "q",
                 "--need", "gpu", "--tag", "red", "--tag", "new", "--max-attempts", "3",
                 "--timeout", "1m")  # fmt: skip
    assert answer.code == 0
    word, job_id = answer.out.split()
    assert word == "submitted"
    assert "No worker is alive" in answer.err

    job = run("jobs", "show", job_id, "--json").json
    assert job["payload"] == {"name": "Ada"}
    assert (job["task"], job["queue"], job["needs"]) == ("greet", "q", ["gpu"])
    assert (job["priority"], job["max_attempts"], job["timeout"]) == (5, 3, 60.0)
    assert job["headers"] == {"tags": ["red", "new"]}
    assert job["explanation"]["code"] == "no_worker"
    assert job["namespace"] == environ["ROTA_NAMESPACE"]


def test_a_delay_or_a_time_schedules_it(environ: dict[str, str]) -> None:
    delayed = run("jobs", "show", submit("x", "--delay", "1h30m"), "--json").json
    waited = datetime.fromisoformat(delayed["due_at"]) - datetime.fromisoformat(
        delayed["created_at"]
    )
    assert delayed["state"] == "scheduled"
    assert abs(waited - timedelta(minutes=90)) < timedelta(seconds=5)
    at = run("jobs", "show", submit("x", "--at", "2099-01-31T09:00:00+01:00"), "--json").json
    assert datetime.fromisoformat(at["due_at"]) == datetime(2099, 1, 31, 8, tzinfo=UTC)


def test_a_payload_comes_from_standard_input_or_a_file(
    environ: dict[str, str], tmp_path: Path
) -> None:
    answer = run("jobs", "submit", "x", "-", "--json", stdin='{"from": "stdin"}')
    assert run("jobs", "show", answer.json["id"], "--json").json["payload"] == {"from": "stdin"}
    file = tmp_path / "payload.json"
    file.write_text('{"from": "file"}')
    assert run("jobs", "show", submit("x", f"@{file}"), "--json").json["payload"] == {
        "from": "file"
    }
    assert run("jobs", "submit", "x", f"@{tmp_path}/none").code == 2


def test_the_same_key_gives_the_same_job_and_other_content_is_refused(
    environ: dict[str, str],
) -> None:
    first = run("jobs", "submit", "x", '{"a": 1}', "--key", "k", "--json").json
    second = run("jobs", "submit", "x", '{"a": 1}', "--key", "k", "--json").json
    assert (first["existed"], second["existed"]) == (False, True)
    assert first["id"] == second["id"]
    refused = run("jobs", "submit", "x", '{"a": 2}', "--key", "k", "--json")
    assert (refused.code, refused.out) == (1, "")
    assert refused.error["type"] == "KeyConflict"


def test_with_an_app_the_arguments_are_checked(environ: dict[str, str]) -> None:
    wrong = run("jobs", "submit", "greet", '{"nam": "x"}', "--app", "cli_app:app", "--json")
    assert wrong.code == 1
    assert wrong.error["type"] == "InvalidArguments"
    unknown = run("jobs", "submit", "nosuch", "--app", "cli_app:app")
    assert unknown.code == 1
    assert "no task is named 'nosuch'" in unknown.err
    assert run("jobs", "submit", "greet", '{"name": "x"}', "--app", "cli_app").code == 0


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["x", "{bad"], "not JSON"),
        (["x", "[1]"], "JSON object"),
        (["x", "--delay", "soon"], "not a duration"),
        (["x", "--at", "tomorrow"], "not a time"),
        (["x", "--at", "2099-01-01T00:00"], "no time zone"),
        (["x", "--max-attempts", "0"], "--max-attempts"),
        ([], "TASK"),
        (["x", "--nosuch"], "--nosuch"),
    ],
)
def test_a_command_that_makes_no_sense_ends_with_2(
    environ: dict[str, str], arguments: list[str], complaint: str
) -> None:
    people = run("jobs", "submit", *arguments)
    assert people.code == 2
    assert people.out == ""
    assert people.err.startswith("error: ")
    assert complaint in people.err
    assert people.err.count("\n") == 1
    programs = run("jobs", "submit", *arguments, "--json")
    assert (programs.code, programs.out) == (2, "")
    assert programs.error["type"] == "UsageError"
    assert complaint in programs.error["message"]


# -- asking


def test_a_list_is_newest_first_filtered_and_paged(environ: dict[str, str]) -> None:
    ids = [submit("red", "--tag", "t"), submit("blue"), submit("red", "--delay", "1h")]
    assert [job["id"] for job in run("jobs", "list", "--json").json] == ids[::-1]
    assert [job["id"] for job in run("jobs", "list", "--task", "blue", "--json").json] == [ids[1]]
    assert [job["id"] for job in run("jobs", "list", "--tag", "t", "--json").json] == [ids[0]]
    scheduled = run("jobs", "list", "--state", "scheduled", "--json").json
    assert [job["id"] for job in scheduled] == [ids[2]]
    page = run("jobs", "list", "--limit", "2")
    assert f"--before {ids[1]}" in page.err
    rest = run("jobs", "list", "--limit", "2", "--before", ids[1], "--json").json
    assert [job["id"] for job in rest] == [ids[0]]


def test_a_piped_table_has_whole_ids_and_no_colours(environ: dict[str, str]) -> None:
    job_id = submit("a_task_with_quite_a_long_name" * 3, "--queue", "q" * 60, "--delay", "3m")
    answer = run("jobs", "list")
    [header, row] = answer.out.splitlines()
    assert header.split() == ["id", "state", "task", "queue", "attempt", "when"]
    assert row.split()[:4] == [
        job_id, "scheduled", "a_task_with_quite_a_long_name" * 3, "q" * 60
    ]  # fmt: skip
    assert re.search(r"due in (3 min|2 min \d+ s)$", row.rstrip())
    assert "\x1b" not in answer.out


def test_an_unknown_state_or_id_is_refused_with_what_to_do(environ: dict[str, str]) -> None:
    state = run("jobs", "list", "--state", "done")
    assert state.code == 2
    assert "succeeded" in state.err
    bad = run("jobs", "show", "1234", "--json")
    assert bad.code == 2
    assert "whole UUID" in bad.error["message"]
    for verb in ("show", "explain", "cancel", "retry", "discard"):
        missing = run("jobs", verb, UNKNOWN, "--json")
        assert missing.code == 1
        assert missing.error["type"] == "NotFound"
        assert UNKNOWN in missing.error["message"]


def test_explain_is_a_sentence_and_a_code(environ: dict[str, str]) -> None:
    job_id = submit("x", "--delay", "3h")
    assert run("jobs", "explain", job_id).out.startswith("It is due at ")
    answer = run("jobs", "explain", job_id, "--json").json
    assert answer["code"] == "not_due"
    assert answer["id"] == job_id


def test_show_has_the_explanation_on_top_and_the_traceback(environ: dict[str, str]) -> None:
    [job_id] = fail("it \x1b[31mbroke")
    answer = run("jobs", "show", job_id)
    title, sentence, *_ = answer.out.splitlines()
    assert title == f"failed explode {job_id}"
    assert sentence.startswith("It failed at ")
    assert '"message": "it \\u001b[31mbroke"' in answer.out
    assert "Traceback (most recent call last)" in answer.out
    assert "ValueError: it \ufffd[31mbroke" in answer.out
    assert "\x1b" not in answer.out
    job = run("jobs", "show", job_id, "--json").json
    assert job["error"]["type"] == "ValueError"
    assert [attempt["outcome"] for attempt in job["attempts"]] == ["raised"]


# -- steering


def test_cancel_reports_each_job_and_fails_if_one_was_refused(environ: dict[str, str]) -> None:
    first, second = submit("x"), submit("x", "--delay", "1h")
    answer = run("jobs", "cancel", first, second, "--json")
    assert (answer.code, answer.json) == (0, {"cancelled": [first, second], "stopping": []})
    third = submit("x")
    mixed = run("jobs", "cancel", third, first, "--json")
    assert (mixed.code, mixed.json) == (1, {"cancelled": [third], "stopping": []})
    assert "already cancelled" in mixed.error["message"]
    assert run("jobs", "cancel").code == 2


def test_a_submit_for_a_task_that_nobody_has_registered_warns_on_the_standard_error(
    environ: dict[str, str],
) -> None:
    answer = run("jobs", "submit", "typo")

    assert (answer.code, answer.out.split()[0]) == (0, "submitted")
    assert answer.err.count("no node has registered a task named 'typo'") == 1
    assert len(run("jobs", "submit", "typo", "--json").json["warnings"]) == 1


def test_the_dead_letter_list_by_task_and_error(environ: dict[str, str]) -> None:
    assert "No failed jobs" in run("jobs", "dead").err
    fail("one", "two", "missing")
    fail("three", task="other")
    counts = run("jobs", "dead", "--json").json
    found = [(row["task"], row["error"], row["count"]) for row in counts]
    assert found == [("explode", "ValueError", 2), ("explode", "KeyError", 1),
                     ("other", "ValueError", 1)]  # fmt: skip
    assert [row["task"] for row in run("jobs", "dead", "--task", "other", "--json").json] == [
        "other"
    ]
    assert len(run("jobs", "dead", "--list", "--json").json) == 4
    assert "explode  ValueError      2" in run("jobs", "dead").out


def test_retry_and_discard_by_id(environ: dict[str, str]) -> None:
    first, second = fail("one", "two")
    assert run("jobs", "retry", first, "--json").json == {"retried": [first]}
    assert run("jobs", "discard", second, "--json").json == {"discarded": [second]}
    again = run("jobs", "discard", second, "--json")
    assert (again.code, again.json) == (1, {"discarded": []})
    assert "is cancelled, not failed" in again.error["message"]
    states = {job["id"]: job["state"] for job in run("jobs", "list", "--json").json}
    assert states == {first: "ready", second: "cancelled"}


def test_retry_and_discard_by_filter_ask_first(environ: dict[str, str]) -> None:
    values, [key, other] = fail("one", "two"), [*fail("missing"), *fail("x", task="other")]
    refused = run("jobs", "retry", "--failed", stdin="n\n")
    assert refused.code == 1
    assert "Retry 4 failed jobs? [y/N]" in refused.err
    assert len(run("jobs", "list", "--state", "failed", "--json").json) == 4

    assert run("jobs", "retry", "--failed", "--json").code == 2  # nobody to ask
    narrow = ["--failed", "--task", "explode", "--error", "ValueError"]
    limited = run("jobs", "retry", *narrow, "--limit", "1", "--yes", "--json").json
    agreed = run("jobs", "retry", *narrow, stdin="y\n")
    assert agreed.code == 0
    assert "Retry 1 failed job?" in agreed.err
    [first], [word, second] = limited["retried"], agreed.out.split()[-2:]  # after the echo
    assert (word, {first, second}) == ("retried", set(values))

    discarded = run("jobs", "discard", "--failed", "--yes", "--json").json["discarded"]
    assert sorted(discarded) == sorted([key, other])
    assert run("jobs", "retry", "--failed", "--yes", "--json").json == {"retried": []}


@pytest.mark.parametrize(
    "name", ["CardDeclined", "test_cli.CardDeclined", f"{__name__}.CardDeclined"]
)
def test_failed_jobs_are_found_by_the_short_and_by_the_dotted_name_of_their_error(
    environ: dict[str, str], name: str
) -> None:
    [declined] = fail("declined")
    fail("missing", task="other")

    answer = run("jobs", "retry", "--error", name, "--yes", "--json")

    assert (answer.code, answer.json) == (0, {"retried": [declined]})


@pytest.mark.parametrize("verb", ["retry", "discard"])
def test_a_filter_that_matches_no_failed_job_says_so_and_fails(
    environ: dict[str, str], verb: str
) -> None:
    fail("declined")

    answer = run("jobs", verb, "--error", "Declined", "--yes")

    assert answer.code == 1
    assert "No failed job has error 'Declined'. There are: explode: " in answer.err
    assert "CardDeclined" in answer.err
    assert len(run("jobs", "dead", "--json").json) == 1


@pytest.mark.parametrize("verb", ["retry", "discard"])
def test_either_ids_or_a_filter(environ: dict[str, str], verb: str) -> None:
    assert run("jobs", verb).code == 2
    assert run("jobs", verb, UNKNOWN, "--failed").code == 2


# -- queues, nodes, the rest


def test_queues_are_listed_paused_and_resumed(environ: dict[str, str]) -> None:
    submit("x"), submit("x", "--delay", "1h"), submit("x", "--queue", "other")
    queues = {queue["name"]: queue for queue in run("queues", "--json").json}
    assert (queues["default"]["ready"], queues["default"]["scheduled"]) == (1, 1)
    assert queues["default"]["lag"] >= 0
    assert queues["other"]["paused_at"] is None

    assert run("queues", "pause", "other").out == "paused other\n"
    assert run("queues", "--json").json[1]["paused_at"] is not None
    assert run("queues").out.splitlines()[2].split()[-1] == "paused"
    assert run("queues", "resume", "other", "--json").json == {"queue": "other", "paused": False}
    missing = run("queues", "resume", "nosuch", "--json")
    assert (missing.code, missing.error["type"]) == (1, "NotFound")


def test_options_may_stand_before_the_command(environ: dict[str, str]) -> None:
    submit("x", "--namespace", "elsewhere")
    assert run("--json", "jobs", "list").json == []
    assert len(run("--json", "--namespace", "elsewhere", "jobs", "list").json) == 1
    assert len(run("queues", "--json", "--namespace", "elsewhere").json) == 1


def test_version_and_help() -> None:
    assert run("--version").out == f"rota {rota.__version__}\n"
    assert run("version", "--json").json["rota"] == rota.__version__
    for arguments in ([], ["--help"], ["jobs"], ["jobs", "submit", "--help"]):
        answer = run(*arguments)
        assert answer.code == 0
        assert "Usage" in answer.out


def test_migrate_checks_and_applies(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"ROTA_DATABASE_URL": database_url, "ROTA_SCHEMA": f"cli_{uuid4().hex[:8]}"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    before = run("migrate", "--check", "--json")
    assert before.code == 1
    assert before.json["up_to_date"] is False
    refused = run("jobs", "list", "--json")
    assert refused.code == 1
    assert refused.error["type"] == "SchemaMismatch"
    assert run("migrate", "--json").json["applied"] == before.json["pending"]
    assert run("migrate", "--check", "--json").json == {"pending": [], "up_to_date": True}
    assert run("migrate", "--post").code == 0
    asyncio.run(drop_schema(environ))


def test_a_database_that_is_not_there_is_one_line() -> None:
    answer = run("nodes", "--database-url", "postgresql://u:secret@127.0.0.1:1/x")
    assert answer.code == 1
    assert answer.err.startswith("error: the database could not be reached")
    assert answer.err.count("\n") == 1
    assert "secret" not in answer.err


# -- times, loading, what a terminal may show


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
    assert parse_moment("2027-01-31T09:00Z") == datetime(2027, 1, 31, 9, tzinfo=UTC)
    with pytest.raises(typer.BadParameter, match="time zone"):
        parse_moment("2027-01-31T09:00")


def test_times_as_people_read_them() -> None:
    now = datetime(2027, 1, 1, tzinfo=UTC)
    distances = [0.4, 2, -2, 185, -7200, 10 * 86400]
    shown = [relative(now + timedelta(seconds=distance), now) for distance in distances]
    assert shown == ["now", "in 2 s", "2 s ago", "in 3 min 5 s", "2 h ago", "in 10 d"]
    assert relative(None, now) == "-"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to import from; what was imported is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


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


class Heard(Teller):
    """Keeps its lines, and knows when a period was summed up."""

    def __init__(self) -> None:
        super().__init__(Screen(as_json=False), "app:app", App())
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
    teller = Heard()
    error = Failure("ValueError", "first line\nsecond line")
    for _ in range(1000):
        teller.ended(_work(), Outcome.succeeded(), Succeed())
    teller.ended(_work(), Outcome(OutcomeKind.RAISED, failure=error), TryAgain(2.0, 0))
    last = _work()
    teller.ended(last, Outcome(OutcomeKind.TIMED_OUT), End(State.FAILED, 0, error))
    await asyncio.wait_for(teller.summed.wait(), 60)
    assert sum("succeeded in" in line for line in teller.lines) == 12
    assert "raised in " in teller.lines[12]
    assert ": ValueError: first line, attempt 1 of 5, again in 2 s" in teller.lines[12]
    assert "failed in " in teller.lines[13]
    assert str(last.id) in teller.lines[13]
    assert teller.lines[14:] == ["... and 988 more: 988 succeeded"]


def _work() -> Work:
    work = Work(new_id(), "resize", b"{}", 1, 1, 5)
    work.started = 1.0
    return work


# -- real processes


class Program:
    """A `rota` in a process group of its own, as in a terminal; its lines are read as they come."""

    def __init__(self, *arguments: str, **environ: str) -> None:
        clean = {n: v for n, v in os.environ.items() if not n.startswith("ROTA_")}
        self._process = subprocess.Popen(
            [ROTA, *arguments],
            cwd=SUPPORT,
            env={**clean, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._seen: list[str] = []

    def until(self, is_it: Callable[[str], bool]) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._seen.append(line)
            if is_it(line):
                return line
        raise AssertionError(f"it ended without saying so:\n{''.join(self._seen)}")

    def press_ctrl_c(self) -> None:
        os.killpg(self._process.pid, signal.SIGINT)

    def terminate(self) -> None:
        self._process.terminate()

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children(recursive=True)

    def end(self) -> tuple[int, str]:
        """Its exit code, and all that it said."""
        rest, _ = self._process.communicate(timeout=60)
        return self._process.returncode, "".join(self._seen) + rest

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()


@pytest.fixture
def data_dir() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="rota-"))
    path.chmod(0o711)  # root's server runs as another user, who must be able to pass
    yield path
    for process in _processes_of(path):
        process.kill()
    shutil.rmtree(path, ignore_errors=True)


def _processes_of(data_dir: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(data_dir) in argument for argument in process.cmdline()):
                found.append(process)
    return found


def test_dev_brings_its_database_shows_jobs_and_leaves_nothing_behind(data_dir: Path) -> None:
    where = {"ROTA_DATA_DIR": str(data_dir)}
    with Program("dev", "cli_app:app", **where) as dev:
        dev.until(lambda line: line.startswith("stop") and "Ctrl-C" in line)
        with Program("jobs", "submit", "greet", '{"name": "Ada"}', "--wait", **where) as submitted:
            code, said = submitted.end()
            job_id = UUID(said.split()[1])
            assert (code, said.splitlines()[-1]) == (0, '"hello Ada"')
        line = dev.until(lambda line: str(job_id) in line)
        assert line.split()[1:3] == ["greet", "succeeded"]
        with Program("jobs", "submit", "explode", "--wait", "--json", **where) as submitted:
            code, said = submitted.end()
            assert code == 1
            assert '"type":"JobFailed"' in said.splitlines()[-1]
        assert ": ValueError: boom" in dev.until(lambda line: "explode" in line)
        family = dev.family()
        assert family
        assert _processes_of(data_dir)
        dev.press_ctrl_c()
        code, said = dev.end()
    assert code == 0, said
    assert f"embedded PostgreSQL in {data_dir}" in said
    assert "add" in said
    assert "queue sums" in said
    assert "at_most_once" in said
    assert 'rota jobs submit greet \'{"name": "..."}\'' in said
    assert "Traceback" not in said
    assert "\x1b" not in said
    assert not [process for process in family if process.is_running()]
    assert _processes_of(data_dir) == []


def test_a_second_ctrl_c_stops_dev_at_once_and_returns_its_jobs(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"ROTA_DATABASE_URL": database_url, "ROTA_SCHEMA": f"cli_{uuid4().hex[:8]}"}
    with Program("dev", "cli_app:app", "--json", **environ) as dev:
        up = json.loads(dev.until(lambda line: '"up"' in line))
        assert {"name": "add", "queue": "sums", "guarantee": "at_most_once"} in up["tasks"]
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        job_id = submit("wait_for_ever")
        dev.until(lambda line: line == "waiting\n")
        dev.press_ctrl_c()
        first = json.loads(dev.until(lambda line: '"stopping"' in line))
        dev.press_ctrl_c()
        second = json.loads(dev.until(lambda line: '"stopping"' in line))
        assert (first["running"], first["now"], second["now"]) == (1, False, True)
        ended = json.loads(dev.until(lambda line: '"ended"' in line))
        assert (ended["id"], ended["outcome"]) == (job_id, "returned")
        code, said = dev.end()
    assert code == 0, said
    assert run("jobs", "show", job_id, "--json").json["state"] == "ready"
    asyncio.run(drop_schema(environ))


def test_start_runs_a_node_until_it_is_told_to_stop(environ: dict[str, str]) -> None:
    roles = ["--role", "worker", "--queue", "sums=1", "--capability", "gpu"]
    sizes = ["--concurrency", "3", "--processes", "1", "--log-format", "json"]
    with Program("start", "cli_app:app", *roles, *sizes, **environ) as program:
        entry = json.loads(program.until(lambda line: "is up" in line))
        assert (entry["level"], entry["logger"]) == ("info", "rota.node")
        assert datetime.fromisoformat(entry["time"]).tzinfo is not None
        [node] = run("nodes", "--json").json
        assert len(run("shards", "--json").json["shards"]) == 128
        assert "0-127" in run("shards").out
        assert (node["roles"], node["queues"], node["slots"]) == (["worker"], ["sums"], 4)
        assert (node["capabilities"], node["state"]) == (["gpu"], "live")
        waited = run("jobs", "submit", "add", '{"a": 1, "b": 2}', "--queue", "sums", "--wait")
        assert (waited.code, waited.out) == (0, "3\n")
        program.terminate()
        code, said = program.end()
    assert code == 0, said
    assert run("nodes", "--json").json == []
    [stopped] = run("nodes", "--all", "--json").json
    assert stopped["state"] == "stopped"


_OWN_LOGGING = """
import logging.config
logging.config.dictConfig({
    "version": 1,
    "formatters": {"own": {"format": "own %(levelname)s %(message)s"}},
    "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own", "level": HANDLER}},
    "root": {"level": "WARNING", "handlers": ["own"]},
    "loggers": {"rota": {"level": LEVEL}},
})
from cli_app import app
"""


def _with_own_logging(folder: Path, *, handler: str = "NOTSET", level: str = "NOTSET") -> Path:
    text = _OWN_LOGGING.replace("HANDLER", repr(handler)).replace("LEVEL", repr(level))
    (folder / "own_logging.py").write_text(text)
    return folder


def test_a_log_level_holds_where_the_application_configures_logging_itself(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["PYTHONPATH"] = str(_with_own_logging(tmp_path, level="ERROR"))
    with Program("start", "own_logging:app", "--log-level", "info", **environ) as program:
        assert program.until(lambda line: "is up" in line).startswith("own INFO ")
        program.terminate()
        assert program.end()[0] == 0


def test_without_a_log_level_the_application_decides_about_rotas_records(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["PYTHONPATH"] = str(_with_own_logging(tmp_path, level="ERROR"))
    with Program("start", "own_logging:app", **environ) as program:
        assert _has_registered()
        program.terminate()
        assert "own INFO" not in program.end()[1]


def _has_registered() -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if any(node["state"] == "live" for node in run("nodes", "--json").json):
            return True
    return False


def test_a_log_level_that_the_applications_handlers_defeat_is_said(
    environ: dict[str, str], tmp_path: Path
) -> None:
    environ["PYTHONPATH"] = str(_with_own_logging(tmp_path, handler="WARNING"))
    with Program("start", "own_logging:app", "--log-level", "info", **environ) as program:
        said = program.until(lambda line: "--log-level" in line)
        assert said.startswith("own WARNING --log-level info has no effect")


def test_start_refuses_a_schema_it_does_not_know(database_url: str) -> None:
    environ = {"ROTA_DATABASE_URL": database_url, "ROTA_SCHEMA": "cli_nowhere"}
    with Program("start", "cli_app:app", **environ) as program:
        code, said = program.end()
    assert code == 1
    assert "rota migrate" in said
    assert "Traceback" not in said


def test_an_app_that_child_processes_can_not_import_ends_the_start(
    environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "parents_only.py").write_text(
        "import sys\n"
        "assert 'rota.worker.runners.child' not in sys.orig_argv, 'not for children'\n"
        "from rota import App\n"
        "app = App()\n"
        "@app.task\n"
        "def plain(): pass\n"
    )
    with Program("start", "parents_only:app", **environ, PYTHONPATH=str(tmp_path)) as program:
        code, said = program.end()
    assert code == 1
    assert "error: a child process could not import the app parents_only:app" in said
    assert "AssertionError: not for children" in said


def test_a_bad_module_is_one_line(folder: Path) -> None:
    for arguments in (["dev", "nosuch:app"], ["dev"]):
        answer = run(*arguments)
        assert (answer.code, answer.out) == (1, "")
        assert answer.err.startswith("error: ")
        assert answer.err.count("\n") == 1
    with Program("start", "cli_app:nosuch") as program:
        assert program.end() == (
            1, "error: module 'cli_app' has no 'nosuch'; it has cli_app:app\n"
        )  # fmt: skip
