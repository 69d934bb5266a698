"""The process runner with real processes and signals."""

import asyncio
import json
import logging
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from rota.config import Settings
from rota.core.rank import rank_of
from rota.errors import ConfigError, LeaseLost
from rota.model import Guarantee, OutcomeKind
from rota.runtime.work import Work
from rota.worker.runners.base import NodeParts
from rota.worker.runners.process import ProcessRunner
from rota.worker.runners.reference import AppReference
from tests.support import process_tasks

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFERENCE = AppReference(process_tasks.__name__, None, "app")


class Pool:
    """A runner, and everything it said."""

    def __init__(self, size=2, reference=REFERENCE, **settings):
        self._changed = asyncio.Event()
        self.forget()
        settings = Settings(**{"kill_grace": 5.0, **settings})
        self.runner = ProcessRunner(reference, size, NodeParts(settings, self._done, self))

    def forget(self):
        self.outcomes = defaultdict(list)
        self.heard = defaultdict(list)  # by job: (name, body)
        self.released = asyncio.Event()
        self.failing = {}
        self.on_done = lambda work, outcome: None

    async def __aenter__(self):
        await self.runner.start()
        return self

    async def __aexit__(self, *exc):
        await self.runner.stop()

    def _done(self, work, outcome):
        self.outcomes[work].append(outcome)
        self.on_done(work, outcome)
        self._changed.set()

    def report_progress(self, work, progress):
        self.heard[work].append(("progress", progress))
        self._changed.set()

    async def answer(self, work, name, body):
        self.heard[work].append((name, body))
        self._changed.set()
        if name in self.failing:
            raise self.failing[name]
        if name == "wait":
            await self.released.wait()
        return b"answer to " + body

    def run(self, task, *, guarantee=Guarantee.AT_LEAST_ONCE, timeout=None, crashes=0, **arguments):
        work = Work(uuid.uuid4(), task, json.dumps(arguments).encode(), 7, 1, 5)
        work.guarantee, work.timeout, work.crashes = guarantee, timeout, crashes
        self.runner.run(work)
        return work

    async def until(self, condition):
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def outcome(self, work):
        await self.until(lambda: self.outcomes[work])
        assert len(self.outcomes[work]) == 1
        return self.outcomes[work][0]

    async def result(self, task, **arguments):
        outcome = await self.outcome(self.run(task, **arguments))
        assert outcome.kind is OutcomeKind.SUCCEEDED, outcome
        return json.loads(outcome.result) if outcome.result else None

    async def told(self, work):
        """It has begun, and said something."""
        await self.until(lambda: self.heard[work])
        return json.loads(self.heard[work][0][1])

    def pids(self):
        return {child.pid for child in self.runner._children}


@pytest_asyncio.fixture(loop_scope="module")
async def pool():
    async with Pool() as pool:
        yield pool


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_for_all():
    async with Pool(size=1) as pool:
        yield pool


@pytest_asyncio.fixture(loop_scope="module")
async def single(one_for_all):
    """A pool with one child, which is used again, because a start takes its time."""
    one_for_all.forget()
    yield one_for_all
    await asyncio.wait_for(one_for_all.result("echo"), 60)  # it has healed


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def death_of(*pids):
    while any(is_alive(pid) for pid in pids):
        await asyncio.sleep(0.01)


# How works end


async def test_a_function_returns_its_result_and_knows_its_job(single):
    due = datetime(2026, 1, 2, tzinfo=UTC)
    work = Work(
        uuid.uuid4(), "describe", b"{}", 7, 1, 5, Guarantee.AT_MOST_ONCE, rank=rank_of(due, 0), key="k",
        headers='{"a":1}',
    )  # fmt: skip
    single.runner.run(work)
    outcome = await single.outcome(work)
    assert outcome.kind is OutcomeKind.SUCCEEDED
    expected = [str(work.id), "describe", 1, 5, 7, str(due), "k", {"a": 1}, False]
    assert json.loads(outcome.result) == expected
    assert work.started > 0
    assert await single.result("echo") is None


async def test_an_exception_is_kept_as_text_without_our_own_frames(single):
    outcome = await single.outcome(single.run("raise_own"))
    assert outcome.kind is OutcomeKind.RAISED
    assert not outcome.fatal
    failure = outcome.failure
    assert failure.type == f"{process_tasks.__name__}.OwnError"
    assert failure.message == "nothing there \\x00 \\ud800"
    assert failure.lineage[:2] == (f"{process_tasks.__name__}.OwnError", "builtins.LookupError")
    assert "in raise_own" in failure.traceback
    assert "rota/runners" not in failure.traceback


async def test_odd_exceptions_break_nothing(single):
    long = (await single.outcome(single.run("raise_at_length"))).failure
    assert len(long.message) == 2_000
    assert len(long.traceback) == 16_000
    assert long.traceback.startswith("Traceback")
    odd = (await single.outcome(single.run("raise_unspeakable"))).failure
    assert odd.type == f"{process_tasks.__name__}.UnspeakableError"
    assert "RuntimeError" in odd.message


async def test_fatal_and_retry_after_are_told_apart(single):
    assert (await single.outcome(single.run("raise_fatal"))).fatal
    outcome = await single.outcome(single.run("raise_retry_after"))
    assert (outcome.retry_after, outcome.fatal) == (42.0, False)


@pytest.mark.parametrize(
    ("how", "name"),
    [("exit", "SystemExit"), ("interrupt", "KeyboardInterrupt"), ("memory", "MemoryError")],
)
async def test_leaving_by_an_odd_door_ends_the_job_and_not_the_child(single, how, name):
    pids = single.pids()
    outcome = await single.outcome(single.run("leave", how=how))
    assert (outcome.kind, outcome.failure.type) == (OutcomeKind.RAISED, name)
    assert await single.result("print_child_pid") in pids


async def test_an_unknown_task_is_an_error_of_that_job(single):
    outcome = await single.outcome(single.run("no_such_task"))
    assert outcome.kind is OutcomeKind.RAISED
    assert outcome.failure.type == "rota.errors.UnknownTask"


@pytest.mark.parametrize(
    ("task", "arguments", "reason"),
    [("return_bytes", {"count": 2000}, "max_result_bytes"), ("return_object", {}, "TypeError")],
)
async def test_a_result_that_cannot_be_kept_is_dropped_and_the_job_is_done(task, arguments, reason):
    async with Pool(size=1, max_result_bytes=1000) as pool:
        outcome = await pool.outcome(pool.run(task, **arguments))
    assert (outcome.kind, outcome.result) == (OutcomeKind.SUCCEEDED, None)
    assert outcome.failure.type == "ResultDropped"
    assert reason in outcome.failure.message


async def test_large_payloads_and_results_pass(single):
    value = "x" * 900_000
    works = [single.run("echo", value=value) for _ in range(8)]
    for work in works:
        assert json.loads((await single.outcome(work)).result) == value


# Stopping


@pytest.mark.parametrize("task", ["spin", "sleep"])
async def test_a_timeout_ends_the_code_and_the_child_survives(single, task):
    pids = single.pids()
    outcome = await single.outcome(work := single.run(task, timeout=0.5))
    assert time.monotonic() - work.started >= 0.5
    assert outcome.kind is OutcomeKind.TIMED_OUT
    assert "500 ms" in outcome.failure.message
    assert f"in {task}" in outcome.failure.traceback
    assert await single.result("print_child_pid") in pids


@pytest.mark.parametrize("task", ["stubborn", "hold_the_interpreter"])
async def test_what_does_not_stop_is_killed_and_the_pool_heals(task):
    async with Pool(size=1, kill_grace=0.2) as pool:
        pids = pool.pids()
        outcome = await pool.outcome(pool.run(task, timeout=0.2))
        assert outcome.kind is OutcomeKind.TIMED_OUT
        assert "SIGKILL" in outcome.failure.message
        assert "memory" not in outcome.failure.message
        assert await pool.result("print_child_pid") not in pids


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("cancel", OutcomeKind.CANCELLED),
        ("shutdown", OutcomeKind.RETURNED),
        ("lease", OutcomeKind.RETURNED),
    ],
)
async def test_a_stopped_function_cleans_up(single, tmp_path, reason, kind):
    work = single.run("clean_up", path=str(tmp_path / "trace"))
    await single.told(work)
    single.runner.stop_work(work, reason)
    single.runner.stop_work(work, "timeout")  # the first reason counts
    assert (await single.outcome(work)).kind is kind
    assert (tmp_path / "trace").read_text() == "cleaned"


async def test_a_result_that_comes_in_spite_of_the_stop_counts(single):
    work = single.run("poll_cancelled")
    await single.told(work)
    single.runner.stop_work(work, "cancel")
    outcome = await single.outcome(work)
    assert (outcome.kind, outcome.result) == (OutcomeKind.SUCCEEDED, b"true")


async def test_a_stop_while_the_result_is_being_encoded_comes_too_late(single):
    work = single.run("return_slow")
    await single.told(work)
    single.runner.stop_work(work, "cancel")
    outcome = await single.outcome(work)
    assert (outcome.kind, outcome.result) == (OutcomeKind.SUCCEEDED, b'"encoded"')


async def test_backlog_can_be_cancelled_or_withdrawn_but_running_work_cannot_be_withdrawn(single):
    running = single.run("wait_for_node", value=1)
    await single.told(running)
    cancelled, returned, withdrawn, kept = (single.run("echo", value=n) for n in range(4))
    single.runner.stop_work(cancelled, "cancel")
    single.runner.stop_work(returned, "shutdown")
    assert single.runner._backlog.withdraw(withdrawn)
    assert not single.runner._backlog.withdraw(running)
    single.released.set()
    assert (await single.outcome(kept)).result == b"3"
    assert (await single.outcome(running)).result == b"1"
    assert (await single.outcome(cancelled)).kind is OutcomeKind.CANCELLED
    assert (await single.outcome(returned)).kind is OutcomeKind.RETURNED
    assert cancelled.started == returned.started == 0.0
    assert not single.outcomes[withdrawn]


async def test_work_waiting_inside_a_child_can_be_cancelled(single):
    await train(single, "wait_for_node")
    single.released.clear()
    running, waiting, last = (single.run("wait_for_node", value=n) for n in range(3))
    assert waiting in single.runner._backlog._works
    await single.until(lambda: single.heard[running])
    single.runner.stop_work(waiting, "cancel")
    assert (await single.outcome(waiting)).kind is OutcomeKind.CANCELLED
    assert not single.heard[waiting]
    single.released.set()
    assert (await single.outcome(last)).result == b"2"


async def test_a_sigterm_from_elsewhere_is_ignored(single):
    work = single.run("wait_for_node", value="unharmed")
    await single.told(work)
    for pid in single.pids():
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
    single.released.set()
    assert json.loads((await single.outcome(work)).result) == "unharmed"
    assert await single.result("terminate_fork") == -signal.SIGTERM


async def test_a_stop_never_hits_the_next_work(single):
    """Stops that arrive just as the work ends, with the next one right behind it."""
    await train(single, "work_a_moment", seconds=0.0001)
    pids = single.pids()
    chance = random.Random(1)
    stopped = 0
    for _ in range(400):
        victim, *neighbours = (single.run("work_a_moment", seconds=0.0001) for _ in range(4))
        await asyncio.sleep(0)  # they are written
        until = time.perf_counter() + chance.random() * 0.0006
        while time.perf_counter() < until:
            pass
        single.runner.stop_work(victim, "cancel")
        for work in neighbours:
            assert (await single.outcome(work)).kind is OutcomeKind.SUCCEEDED
        stopped += (await single.outcome(victim)).kind is OutcomeKind.CANCELLED
    assert single.pids() == pids
    assert stopped > 0


async def test_a_stop_in_the_middle_of_a_long_message_does_not_spoil_the_stream(single):
    pids = single.pids()
    for _ in range(30):
        work = single.run("shout")
        await single.told(work)
        single.runner.stop_work(work, "cancel")
        assert (await single.outcome(work)).kind is OutcomeKind.CANCELLED
    assert single.pids() == pids


# Deaths


async def test_a_segfault_takes_down_one_job_while_its_neighbour_finishes(pool):
    neighbour = pool.run("wait_for_node", value="well")
    await pool.told(neighbour)
    outcome = await pool.outcome(pool.run("segfault"))
    assert outcome.kind is OutcomeKind.CRASHED
    assert "SIGSEGV" in outcome.failure.message
    pool.released.set()
    assert json.loads((await pool.outcome(neighbour)).result) == "well"


async def test_a_crash_tells_how_the_process_died(single):
    outcome = await single.outcome(single.run("exit_at_once", status=3))
    assert (outcome.kind, outcome.failure.type) == (OutcomeKind.CRASHED, "ProcessDied")
    assert "exited with status 3" in outcome.failure.message
    outcome = await single.outcome(single.run("kill_own_process"))
    assert "SIGKILL (possibly out of memory)" in outcome.failure.message


async def test_works_behind_a_crash_run_elsewhere(single):
    await train(single, "exit_or_echo")
    works = [single.run("exit_or_echo", value=n, exits=n == 3) for n in range(20)]
    kinds = [(await single.outcome(work)).kind for work in works]
    assert kinds.count(OutcomeKind.CRASHED) == 1
    assert kinds[3] is OutcomeKind.CRASHED
    assert kinds.count(OutcomeKind.SUCCEEDED) == 19


async def test_results_that_a_dead_child_had_sent_count(single):
    await train(single, "exit_or_echo")
    works = [single.run("exit_or_echo", value=n, exits=n == 9) for n in range(10)]
    await asyncio.sleep(0)  # they are written
    (child,) = single.runner._children
    while not child.has_exited():  # without letting the loop read anything
        time.sleep(0.001)  # noqa: ASYNC251
    single.runner._check_now()
    for work in works[:9]:
        assert (await single.outcome(work)).kind is OutcomeKind.SUCCEEDED
    assert (await single.outcome(works[9])).kind is OutcomeKind.CRASHED


async def test_grandchildren_die_with_a_killed_child_and_a_crashed_one():
    async with Pool(size=1, kill_grace=0.1) as pool:
        for then, timeout in (("sleep", 0.3), ("hold", 0.3), ("exit", None), ("fork", None)):
            work = pool.run("start_grandchild", then=then, timeout=timeout)
            grandchild = (await pool.told(work))["done"]
            await pool.outcome(work)
            await death_of(grandchild)


@pytest.mark.parametrize("then", ["sleep", "hold"])
async def test_children_and_grandchildren_die_with_a_killed_parent(then):
    command = [sys.executable, process_tasks.__file__, then]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        grandchild, child = map(int, parent.stdout.readline().split())
        assert is_alive(child)
        parent.kill()
    await asyncio.wait_for(death_of(child, grandchild), 60)


@pytest.mark.proof
async def test_nothing_is_lost_or_doubled_while_children_are_killed_at_random():
    chance = random.Random(2)
    reports = defaultdict(int)
    async with Pool(size=3) as pool:
        results = {}

        def on_done(work, outcome):
            reports[work] += 1
            number = json.loads(work.payload)["value"]
            if outcome.kind is OutcomeKind.SUCCEEDED:
                assert json.loads(outcome.result) == number
                results[number] = outcome
            else:
                assert outcome.kind is OutcomeKind.CRASHED
                pool.run("echo", value=number, crashes=work.crashes + 1)

        async def kill_at_random():
            while True:
                # By the work that is done, not by time: on a busy machine no child would get to work.
                goal = len(results) + chance.randrange(20, 120)
                await pool.until(lambda goal=goal: len(results) >= goal)
                await asyncio.sleep(chance.random() * 0.01)
                ready = [child.pid for child in pool.runner._children if child.is_ready]
                if ready:
                    os.kill(chance.choice(ready), signal.SIGKILL)

        pool.on_done = on_done
        killer = asyncio.create_task(kill_at_random())
        for start in range(0, 2000, 250):
            for number in range(start, start + 250):
                odd = chance.random() < 0.05
                guarantee = Guarantee.AT_MOST_ONCE if odd else Guarantee.AT_LEAST_ONCE
                pool.run("echo", value=number, guarantee=guarantee)
            await pool.until(lambda start=start: len(results) >= start)
        await pool.until(lambda: len(results) == 2000)
        killer.cancel()
    assert len(reports) > 2000  # some crashed, and ran again
    assert set(reports.values()) == {1}


async def test_an_over_long_frame_kills_the_child_with_a_clear_line(single, caplog):
    outcome = await single.outcome(single.run("send_nonsense"))
    assert outcome.kind is OutcomeKind.CRASHED
    assert "over the limit" in outcome.failure.message
    assert "over the limit" in caplog.text
    assert await single.result("echo", value=1) == 1


# Order


async def train(pool, task, **arguments):
    """Its task becomes known to be short, so that works are given ahead."""
    pool.runner._backlog.pace._seconds.clear()
    pool.released.set()
    for _ in range(20):
        await pool.result(task, **arguments)


async def test_a_short_job_does_not_wait_behind_a_long_one_of_the_same_task(pool):
    await train(pool, "wait_or_echo")
    pool.released.clear()
    long = pool.run("wait_or_echo", value=0, waits=True)
    short = [pool.run("wait_or_echo", value=n) for n in range(1, 100)]
    for work in short:
        await pool.outcome(work)
    assert not pool.outcomes[long]
    pool.released.set()
    await pool.outcome(long)


@pytest.mark.parametrize(
    "special",
    [
        {"guarantee": Guarantee.AT_MOST_ONCE},
        {"guarantee": Guarantee.EXACTLY_ONCE},
        {"timeout": 0.9},
        {"crashes": 1},
    ],
)
async def test_a_work_that_must_be_alone_is_neither_ahead_nor_behind(single, special):
    await train(single, "echo")
    inside = []
    before = [single.run("echo", value=n) for n in range(5)]
    alone = single.run("echo", value=5, **special)
    after = [single.run("echo", value=n) for n in range(6, 10)]

    def look(work, outcome):
        (child,) = single.runner._children
        inside.append({flight.work for flight in child.flights.values()})

    single.on_done = look
    for work in (*before, alone, *after):
        await single.outcome(work)
    assert max(len(works) for works in inside) > 1  # some were given ahead
    assert all(works == {alone} for works in inside if alone in works)
    assert [*single.outcomes][-10:] == [*before, alone, *after]


# Speaking with the node


async def test_progress_and_calls_reach_the_node(single):
    work = single.run("ask", name="once")
    assert json.loads((await single.outcome(work)).result) == "answer to question"
    assert single.heard[work] == [("once", b"question")]
    much = single.run("say_much", times=5000)
    await single.outcome(much)
    last = json.dumps({"done": 4999, "total": 5000, "message": "on"}, separators=(",", ":"))
    await single.until(lambda: single.heard[much][-1] == ("progress", last.encode()))


async def test_errors_of_the_node_are_raised_in_the_handler(single):
    single.failing = {"lost": LeaseLost("gone"), "odd": ZeroDivisionError("no")}
    assert await single.result("ask_in_vain", name="lost") == ["LeaseLost", "gone"]
    assert await single.result("ask_in_vain", name="odd") == ["JobError", "ZeroDivisionError: no"]


async def test_a_function_that_waits_for_the_node_can_be_stopped(single):
    work = single.run("wait_for_node")
    await single.told(work)
    single.runner.stop_work(work, "cancel")
    assert (await single.outcome(work)).kind is OutcomeKind.CANCELLED


# Starting and ending


async def test_an_import_error_at_start_is_clear(tmp_path, monkeypatch):
    (tmp_path / "broken_app.py").write_text("import json\nraise ValueError('broken on import')\n")
    monkeypatch.syspath_prepend(tmp_path)
    children = psutil.Process().children()
    with pytest.raises(ConfigError, match="broken_app:app") as caught:
        await Pool(reference=AppReference("broken_app", None, "app")).runner.start()
    assert "ValueError: broken on import" in str(caught.value)
    assert "line 2" in str(caught.value)
    assert psutil.Process().children() == children


async def test_a_pool_heals_when_an_import_works_again(tmp_path, monkeypatch, caplog):
    flag = tmp_path / "flag"
    flag.touch()
    code = f"open({str(flag)!r}).close()\nfrom {process_tasks.__name__} import app\n"
    (tmp_path / "fragile_app.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    seen = asyncio.Event()

    class Watch(logging.Handler):
        def emit(self, record):
            if "could not import" in record.getMessage():
                seen.set()

    watch = Watch()
    logging.getLogger("rota.runners.process").addHandler(watch)
    async with Pool(size=1, reference=AppReference("fragile_app", None, "app")) as pool:
        flag.unlink()
        await pool.outcome(pool.run("exit_at_once", status=1))
        waiting = pool.run("echo", value=1)
        await seen.wait()
        flag.touch()
        assert (await pool.outcome(waiting)).result == b"1"
    logging.getLogger("rota.runners.process").removeHandler(watch)


async def test_stopping_leaves_nothing_behind():
    def held():
        fds = len(os.listdir("/proc/self/fd"))
        return fds, psutil.Process().children(), asyncio.all_tasks()

    before = held()
    async with Pool(size=3) as pool:
        assert pool.runner.size == 3
        await asyncio.gather(*(pool.result("echo", value=n) for n in range(100)))
        await pool.outcome(pool.run("exit_at_once", status=1))
        pids = pool.pids()
    assert held() == before
    assert not any(is_alive(pid) for pid in pids)


async def test_what_is_left_at_the_end_is_given_back():
    async with Pool(size=1) as pool:
        running, waiting = pool.run("stubborn"), pool.run("echo")
        await pool.told(running)
    assert (await pool.outcome(running)).kind is OutcomeKind.RETURNED
    assert (await pool.outcome(waiting)).kind is OutcomeKind.RETURNED


async def test_it_works_on_a_loop_that_is_not_on_the_main_thread():
    results = []

    async def use():
        async with Pool(size=1) as pool:
            results.append(await pool.result("echo", value="there"))
            outcome = await pool.outcome(pool.run("sleep", timeout=0.1))
            results.append(outcome.kind)

    await asyncio.to_thread(lambda: asyncio.run(use()))
    assert results == ["there", OutcomeKind.TIMED_OUT]


async def test_an_app_in_a_script_is_found_by_its_path():
    reference = AppReference(None, str(Path(process_tasks.__file__)), "app")
    async with Pool(size=1, reference=reference) as pool:
        assert await pool.result("echo", value=1) == 1
        outcome = await pool.outcome(pool.run("raise_own"))
        assert outcome.failure.type == "__main__.OwnError"
