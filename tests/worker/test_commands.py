"""Programs as jobs: real processes, in groups of their own, which leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import rota.testing
from rota import App, ConfigError, InvalidArguments, Job, Settings
from rota.commands import COMMAND_TASK, OUTPUT_LIMIT, enable_commands
from rota.node import Node
from tests.support.places import ROTA, SUPPORT
from tests.support.sandboxes import isolated


@pytest.fixture
def app(database_url: str) -> App:
    app = App(database_url=database_url, node_name="test", kill_grace=0.5)
    enable_commands(app)
    return app


@pytest.fixture
async def sandbox(app: App) -> AsyncIterator[rota.testing.Sandbox]:
    async with isolated(app) as sandbox:
        yield sandbox


Run = Callable[..., Any]


@pytest.fixture
def run(app: App, sandbox: rota.testing.Sandbox) -> Run:
    """Submit a command, run what is due, give back its job as it is then."""

    async def run(*, timeout: float | None = None, **payload: Any) -> Job:
        attempts = None if timeout is None else 1
        handle = await app.submit(COMMAND_TASK, payload, timeout=timeout, max_attempts=attempts)
        await sandbox.run_due()
        return await app.jobs.get(handle.id)

    return run


async def test_an_argument_list_runs_as_it_is_and_never_through_a_shell(run: Run) -> None:
    job = await run(argv=["printf", "%s|", "a b", "$HOME", "; echo oops"])
    assert job.state == "succeeded"
    assert job.result == {"exit_code": 0, "stdout": "a b|$HOME|; echo oops|", "stderr": ""}


async def test_a_shell_command_goes_through_the_shell_that_is_named(run: Run) -> None:
    job = await run(shell="echo $((6 * 7)); echo careful >&2")
    assert (job.result["stdout"], job.result["stderr"]) == ("42\n", "careful\n")
    job = await run(shell="[[ -n $BASH ]] && echo bash", env={"SHELL": "/bin/bash"})
    assert job.result["stdout"] == "bash\n"


async def test_it_gets_its_standard_input_its_folder_and_its_variables(
    run: Run, tmp_path: Path
) -> None:
    job = await run(shell='pwd; echo "$COLOUR"; cat', env={"COLOUR": "re d"}, cwd=str(tmp_path),
                    stdin="one\ntwö\n")  # fmt: skip
    assert job.result["stdout"] == f"{tmp_path}\nre d\none\ntwö\n"
    job = await run(argv=["true"], stdin="x" * 500_000)  # nobody reads it
    assert job.state == "succeeded"
    job = await run(shell="pwd", env={"HOME": str(tmp_path)})
    assert job.result["stdout"] == f"{tmp_path}\n"
    job = await run(argv=["true"], cwd="/no/such/folder")
    assert "there is no folder '/no/such/folder'" in job.error.message


async def test_the_environment_of_the_node_stays_with_the_node(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_PASSWORD", "hunter2")
    job = await run(argv=["env"], env={"GIVEN": "1"})
    names = {line.partition("=")[0] for line in job.result["stdout"].splitlines()}
    assert names == {"PATH", "HOME", "LANG", "SHELL", "GIVEN"}
    assert "hunter2" not in job.result["stdout"]


async def test_an_exit_code_is_a_failure_that_says_the_code_and_what_was_said(run: Run) -> None:
    job = await run(shell="echo the disk is full >&2; exit 3")
    assert (job.state, job.attempt) == ("failed", 1)  # what failed is not run twice unasked
    assert job.error.type == "rota.commands.CommandFailed"
    assert job.error.message.endswith("ended with exit code 3: the disk is full")
    job = await run(shell="kill -9 $$")
    assert job.error.message.endswith("was ended by SIGKILL")


async def test_exit_code_75_asks_for_another_try_in_a_minute(
    run: Run, app: App, sandbox: rota.testing.Sandbox, tmp_path: Path
) -> None:
    flag = tmp_path / "flag"
    job = await run(shell=f"test -e {flag} && echo there || exit 75")
    assert job.state == "scheduled"
    assert 59 <= (job.due_at - sandbox.now()).total_seconds() <= 61
    flag.touch()
    await sandbox.advance(seconds=61)
    [job] = await sandbox.run_due()
    assert (job.state, job.result["stdout"]) == ("succeeded", "there\n")


async def test_a_job_says_what_its_exit_codes_mean(
    run: Run, app: App, sandbox: rota.testing.Sandbox
) -> None:
    meanings = {"1": "succeed", "3": "retry", "75": "fail", "0": "fail"}
    job = await run(shell="echo no match; exit 1", exit_codes=meanings)
    assert (job.state, job.result["exit_code"]) == ("succeeded", 1)
    assert job.result["stdout"] == "no match\n"
    job = await run(shell="exit 75", exit_codes=meanings)
    assert (job.state, job.attempt) == ("failed", 1)
    job = await run(shell="exit 0", exit_codes=meanings)
    assert (job.state, job.error.type) == ("failed", "rota.commands.CommandFailed")
    job = await run(shell="exit 2", exit_codes=meanings)  # what isn't named is as ever
    assert (job.state, job.attempt) == ("failed", 1)
    job = await run(shell="echo busy >&2; exit 3", exit_codes=meanings)
    assert (job.state, job.attempt) == ("scheduled", 1)  # by the pauses of a retry
    assert 1 < (job.due_at - sandbox.now()).total_seconds() < 4
    assert job.attempts[0].error.message.endswith("ended with exit code 3: busy")
    for wrong in ({"x": "fail"}, {"1": "perhaps"}):
        with pytest.raises(InvalidArguments):
            await app.submit(COMMAND_TASK, {"argv": ["true"], "exit_codes": wrong})


async def test_a_program_that_is_not_there_says_so(run: Run, tmp_path: Path) -> None:
    job = await run(argv=["no-such-program-here"])
    assert "there is no such program on this worker (exit code 127)" in job.error.message
    plain = tmp_path / "plain"
    plain.write_text("echo")
    job = await run(argv=[str(plain)])
    assert "Permission denied (exit code 126)" in job.error.message


@pytest.mark.parametrize("payload", [{}, {"argv": []}, {"argv": ["true"], "shell": "true"},
                                     {"argv": ["true"], "env": {"A=B": "c"}}])  # fmt: skip
async def test_a_payload_without_a_program_is_refused_for_good(run: Run, payload: Any) -> None:
    job = await run(**payload)
    assert (job.state, job.error.type) == ("failed", "rota.errors.Fatal")


async def test_long_output_keeps_its_beginning_and_its_end(run: Run) -> None:
    job = await run(shell="echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last")
    said = job.result["stdout"]
    assert said.startswith("first\nxxx")
    assert said.endswith("xxx\nlast\n")
    dropped = 1_000_012 - OUTPUT_LIMIT
    assert f"\n[... {dropped:,} bytes left out ...]\n" in said
    assert len(said) < OUTPUT_LIMIT + 100
    exact = await run(shell=f"head -c {OUTPUT_LIMIT} /dev/zero | tr '\\0' y")
    assert exact.result["stdout"] == "y" * OUTPUT_LIMIT


async def test_output_that_is_no_text_can_be_kept(run: Run) -> None:
    job = await run(argv=["printf", r"a\000b\377c"])
    assert job.result["stdout"] == "a\ufffdb\ufffdc"


# -- stopping


STUBBORN = (
    "trap '' TERM; (trap '' TERM; echo $BASHPID >> {pids}; exec sleep 300) & "
    "echo $$ >> {pids}; wait"
)


async def pids_in(file: Path, count: int) -> list[int]:
    for _ in range(500):
        if file.exists() and len(file.read_text().split()) == count:
            return [int(word) for word in file.read_text().split()]
        await asyncio.sleep(0.02)
    raise AssertionError("the processes never started")


def alive(pids: list[int]) -> list[int]:
    def is_alive(pid: int) -> bool:
        try:
            return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    return [pid for pid in pids if is_alive(pid)]


async def test_a_timeout_ends_the_whole_group_also_a_grandchild_that_ignores_the_asking(
    run: Run, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    began = time.monotonic()
    job = await run(shell=STUBBORN.format(pids=pids), env={"SHELL": "/bin/bash"}, timeout=1)
    assert job.error.type == "TimedOut"
    assert time.monotonic() - began >= 1.5  # the timeout, then kill_grace
    assert alive(await pids_in(pids, 2)) == []


async def test_a_program_that_listens_to_sigterm_can_clean_up(run: Run, tmp_path: Path) -> None:
    note = tmp_path / "note"
    job = await run(shell=f"trap 'echo cleaned > {note}; exit 0' TERM; sleep 300 & wait", timeout=1)
    assert job.error.type == "TimedOut"
    assert note.read_text() == "cleaned\n"


async def test_what_left_the_group_and_holds_the_output_does_not_hold_up_the_stop(
    run: Run, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    job = await run(
        shell=f"setsid sh -c 'echo $$ >> {pids}; exec sleep 300' & sleep 300", timeout=1
    )
    assert job.error.type == "TimedOut"
    [left] = await pids_in(pids, 1)
    os.kill(left, signal.SIGKILL)


async def test_a_cancel_and_a_shutdown_leave_no_process(
    make_app: Callable[..., App], tmp_path: Path
) -> None:
    app = make_app(kill_grace=0.3, grace=0.0)
    enable_commands(app)
    env = {"SHELL": "/bin/bash"}
    async with Node(app, queues=["default"]).running():
        first = tmp_path / "first"
        cancelled = await app.submit(
            COMMAND_TASK, {"shell": STUBBORN.format(pids=first), "env": env}
        )
        group = await pids_in(first, 2)
        await app.jobs.cancel(cancelled.id)
        with pytest.raises(rota.JobFailed):
            await cancelled.result(timeout=30)
        assert alive(group) == []
        second = tmp_path / "second"
        job = await app.submit(COMMAND_TASK, {"shell": STUBBORN.format(pids=second), "env": env})
        group = await pids_in(second, 2)
    assert alive(group) == []
    assert (await app.jobs.get(job.id)).state == "ready"  # given back: another node may run it


# -- who allows it


async def test_a_list_of_programs_allows_those_and_no_shell(
    database_url: str, tmp_path: Path
) -> None:
    app = App(database_url=database_url)
    enable_commands(app, ["echo", "/bin/true"])
    impostor = tmp_path / "echo"
    impostor.write_text("#!/bin/sh\necho impostor\n")
    impostor.chmod(0o755)
    async with isolated(app) as sandbox:

        async def said(**payload: Any) -> str:
            await app.submit(COMMAND_TASK, payload)
            [job] = await sandbox.run_due()
            return job.result["stdout"] if job.result else job.error.message

        path = {"PATH": str(tmp_path)}
        assert await said(argv=["echo", "x"]) == "x\n"  # the worker's own echo
        assert "PATH can't be set" in await said(argv=["echo", "x"], env=path)
        assert "may not run 'cat'; allowed: /bin/true, echo" in await said(argv=["cat"])
        assert "no shell" in await said(shell="echo x")
        assert "LD_PRELOAD can't be set" in await said(argv=["echo"], env={"LD_PRELOAD": "x"})


def test_enabling_it_twice_changes_nothing_and_nonsense_is_refused() -> None:
    app = App()
    enable_commands(app)
    task = app.tasks[COMMAND_TASK]
    enable_commands(app, ["echo"])
    assert app.tasks[COMMAND_TASK] is task
    with pytest.raises(ConfigError, match='"any" or a list'):
        enable_commands(App(), "echo")


def test_the_setting_is_off_unless_somebody_says_so() -> None:
    assert not Settings.read({}).allow_commands
    assert Settings.read({"ROTA_ALLOW_COMMANDS": "1"}).allow_commands
    assert not Settings.read({"ROTA_ALLOW_COMMANDS": "false"}).allow_commands


@pytest.fixture
async def given_only(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Run]:
    """Jobs of a worker with a list: a program of ours on its PATH, a whole argument list, a variable, a
    folder."""
    programs, folder = tmp_path / "programs", tmp_path / "folder"
    for place in (programs, folder):
        place.mkdir()
    (programs / "say").write_text('#!/bin/bash\nprintf "%s|" real "$LEVEL" "$TZ" "$@"\ntrue\n')
    (programs / "say").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    app = App(database_url=database_url, node_name="test")
    enable_commands(app, ["say", ["cat", "/etc/hostname"]], env=["LEVEL"], folders=[str(folder)])
    async with isolated(app) as sandbox:

        async def run(**payload: Any) -> Job:
            handle = await app.submit(COMMAND_TASK, payload, max_attempts=1)
            await sandbox.run_due()
            return await app.jobs.get(handle.id)

        yield run


WAYS_AROUND: dict[str, dict[str, Any]] = {
    "a function of the shell": {"env": {"BASH_FUNC_printf%%": "() { echo owned; }"}},
    "a start-up file": {"env": {"BASH_ENV": "{evil}/start"}},
    "another program of that name": {"env": {"PATH": "{evil}"}},
    "a program that Python starts": {
        "env": {"PYTHONWARNINGS": "all:0:antigravity.x:0:0", "BROWSER": "{evil}/say"}
    },
    "a library": {"env": {"LD_PRELOAD": "{evil}/x.so"}},
    "another home": {"env": {"HOME": "{evil}"}},
    "a locale in a folder": {"env": {"LANG": "../../{evil}"}},
    "a zone in a file": {"env": {"TZ": "/{evil}/zone"}},
    "a zone behind dots": {"env": {"TZ": "a/../../{evil}/zone"}},
    "a folder of its own": {"cwd": "{evil}"},
    "a folder behind dots": {"cwd": "{folder}/../evil"},
    "more arguments than allowed": {"argv": ["cat", "/etc/hostname", "/etc/passwd"]},
}


@pytest.mark.parametrize("way", WAYS_AROUND.values(), ids=WAYS_AROUND.keys())
async def test_no_job_leads_a_given_program_to_other_code(
    given_only: Run, way: dict[str, Any], tmp_path: Path
) -> None:
    evil = tmp_path / "evil"
    evil.mkdir()
    for name in ("say", "start"):
        (evil / name).write_text("#!/bin/sh\necho owned\n")
        (evil / name).chmod(0o755)
    filled = eval(repr(way).replace("{evil}", str(evil)).replace("{folder}", f"{tmp_path}/folder"))
    job = await given_only(**{"argv": ["say"], **filled})
    assert (job.state, job.error.type) == ("failed", "rota.errors.Fatal"), job.result
    assert next(iter(way)) in job.error.message or "may not run" in job.error.message


async def test_what_a_worker_allows_a_job_can_say(given_only: Run, tmp_path: Path) -> None:
    job = await given_only(argv=["say", "hi"], env={"LEVEL": "9", "TZ": "Europe/Berlin"},
                           cwd=f"{tmp_path}/folder")  # fmt: skip
    assert job.result["stdout"] == "real|9|Europe/Berlin|hi|"
    assert (await given_only(argv=["cat", "/etc/hostname"])).state == "succeeded"


@pytest.mark.parametrize(
    "given",
    [{"allow": ["bash"]}, {"allow": ["/usr/bin/python3.12"]}, {"allow": ["env"]},
     {"allow": ["./backup"]}, {"allow": ["say"], "env": ["PATH"]},
     {"allow": ["say"], "env": ["LD_PRELOAD"]}, {"allow": ["say"], "folders": ["here"]}],
)  # fmt: skip
def test_a_list_that_would_allow_everything_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"^{list(given)[-1]}: "):
        enable_commands(App(), **given)


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_node_runs_commands_only_where_its_operator_allows_it(
    make_app: Callable[..., App], allowed: bool
) -> None:
    app = make_app()
    job = await app.submit(COMMAND_TASK, {"argv": ["echo", "hello"]})
    greeting = await app.submit("greet", {"name": "Ada"})
    environ = {
        **os.environ,
        "ROTA_DATABASE_URL": app.settings.database_url or "",
        "ROTA_SCHEMA": app.settings.schema,
    }
    flags = ["--allow-commands"] if allowed else []
    with subprocess.Popen([ROTA, "start", "cli_app:app", *flags], cwd=SUPPORT, env=environ) as node:
        try:
            await greeting.result(timeout=60)
            if allowed:
                assert (await job.result(timeout=60))["stdout"] == "hello\n"
            else:
                explanation = await app.jobs.explain(job.id)
                assert explanation.code == "commands_not_allowed"
                assert "--allow-commands" in explanation.sentence
        finally:
            node.terminate()
            node.wait(60)
