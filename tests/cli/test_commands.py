"""Commands about jobs, dead letters, queues and the schema, in the test's own process."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

import rota
from rota import App, Retry
from rota.node import Node
from tests.support.command_line import drop_schema, run, submit

UNKNOWN = "01890000-0000-7000-8000-000000000000"


# -- one migrated schema, a namespace of its own for each test


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


def test_a_unique_job_is_submitted_once(environ: dict[str, str]) -> None:
    first = run("jobs", "submit", "x", '{"a": 1}', "--unique", "waiting", "--json").json
    second = run("jobs", "submit", "x", '{"a": 1}', "--unique", "1h", "--json").json
    assert (first["existed"], second["existed"]) == (False, True)
    assert first["id"] == second["id"]
    refused = run("jobs", "submit", "x", '{"a": 1}', "--unique", "unfinished",
                  "--unique-conflict", "refuse", "--json")  # fmt: skip
    assert (refused.code, refused.error["type"]) == (1, "DuplicateJob")
    debounced = run("jobs", "submit", "x", "--debounce", "5m", "--debounce-max", "1h",
                    "--unique-key", "k", "--json").json  # fmt: skip
    assert run("jobs", "show", debounced["id"], "--json").json["explanation"]["code"] == "debounced"
    assert run("jobs", "submit", "x", "--unique", "soon").code == 2


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
        (["x", "{bad"], "not valid JSON"),
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
    "name", ["CardDeclined", "test_commands.CardDeclined", f"{__name__}.CardDeclined"]
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


def test_version_compares_the_release_with_the_schema(environ, monkeypatch):
    fits = run("version", "--check", "--json")
    assert fits.code == 0
    schema = fits.json["schema"]
    assert schema["fits"]
    assert schema["version"] == schema["needed"]
    assert schema["pending"] == []
    monkeypatch.setenv("ROTA_SCHEMA", "nothing_here")
    lacking = run("version", "--check")
    assert lacking.code == 1
    assert "Run `rota migrate` once" in lacking.out


@pytest.mark.parametrize("option", ["--namespace", "--database-url", "--server", "--profile"])
def test_an_option_that_is_given_empty_does_not_mean_another_place(environ, option: str):
    """As "$UNSET" in a script is."""
    answer = run("jobs", "list", option, "")
    assert answer.code == 2
    assert f"{option}: must not be empty" in answer.err


def test_an_argument_that_is_no_text_is_refused(environ):
    answer = run("jobs", "list", "--task", "caf\udce9")
    assert answer.code == 2
    assert "is not text in UTF-8" in answer.err
