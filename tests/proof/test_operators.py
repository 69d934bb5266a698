"""The operators of the simulation and of the nemesis: what they are told, and what they make of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from proof import asking
from proof.asking import Asker
from proof.history import Operation, SchedulePromise
from proof.nemesis import operating as nemesis
from proof.operators import Operator
from rota import errors
from rota.errors import Conflict, NotFound, StoreUnavailable

# What no operation says to its caller on purpose; each class that is new must be sorted in somewhere.
NOT_ANSWERS = {
    "NotAuthentic", "ResultUnavailable", "EventLoopRunning", "SchemaMismatch", "ServerUnavailable",
    "EmbeddedPostgresError", "DatabaseNotRecovered",
}  # fmt: skip
AGAIN = {"StoreUnavailable", "TooMuchToRead"}


def derived(kind: type[Exception]) -> set[type[Exception]]:
    return {kind}.union(*(derived(each) for each in kind.__subclasses__()))


KINDS = {
    kind.__name__: kind
    for kind in derived(errors.RotaError) - {errors.RotaError}
    if kind.__module__ == errors.__name__ and not issubclass(kind, errors.JobError)
}


def made(kind: type[Exception]) -> Exception:
    error = kind.__new__(kind, "no")  # some take more than a message, which is not the point
    assert str(error) == "no"
    return error


async def answer_to(kind: str, *said: Exception | None) -> Operation:
    """What is written down when these are what it is told, one after the other; None: it is done."""
    noted: list[Operation] = []
    answers = iter(said)

    async def action() -> dict[str, Any]:
        error = next(answers)
        if error is not None:
            raise error
        return {"count": 1}

    asker = Asker(Random(1), lambda: 0.0, noted.append)
    done = await asker.ask(kind, "it", action)
    (operation,) = noted
    assert done == (operation.answer == "done")
    return operation


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_AGAIN", 0.0)


@pytest.mark.parametrize("name", sorted(KINDS.keys() - AGAIN))
async def test_whatever_refuses_a_request_is_an_answer_and_nothing_else_is(name: str) -> None:
    operation = await answer_to("update", made(KINDS[name]))
    assert operation.answer == ("failed" if name in NOT_ANSWERS else "refused")
    assert "no" in operation.detail


@pytest.mark.parametrize("error", [OverflowError("no"), KeyError("no"), errors.RotaError("no")])
async def test_an_error_that_is_no_refusal_is_one_that_nobody_should_see(error: Exception) -> None:
    assert (await answer_to("retry", error)).answer == "failed"


@pytest.mark.parametrize("name", sorted(AGAIN))
async def test_what_got_no_answer_is_asked_for_again(name: str) -> None:
    operation = await answer_to("pause", made(KINDS[name]), made(KINDS[name]), None)
    assert (operation.answer, operation.count) == ("done", 1)


@pytest.mark.parametrize(
    ("kind", "error", "second"),
    [
        ("retry", Conflict("it is running"), "done"),
        ("retry", NotFound("no such job"), "done"),
        ("delete", NotFound("no such schedule"), "done"),
        ("delete", Conflict("no"), "refused"),
        ("pause", NotFound("no such schedule"), "refused"),
    ],
)
async def test_what_was_done_before_it_was_refused_is_done(
    kind: str, error: Exception, second: str
) -> None:
    """The first time it was asked for, it may have been done, and only its answer was lost."""
    assert (await answer_to(kind, error)).answer == "refused"
    assert (await answer_to(kind, StoreUnavailable("lost"), error)).answer == second


# -- what it does


class Schedules:
    """In place of an app's: takes everything, and keeps what it says."""

    def __init__(self) -> None:
        self.there: dict[str, Any] = {}

    async def put(self, spec: Any) -> None:
        self.there[spec.name] = spec

    async def get(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(id=f"id of {name}", spec=self.there[name])

    async def delete(self, name: str) -> None:
        del self.there[name]


def operator_of(schedules: Schedules, noted: list[Operation], **more: Any) -> Operator:
    app: Any = SimpleNamespace(schedules=schedules)
    return Operator(
        app, Random(1), lambda: 0.0, noted.append, pace=0.001, tasks=["tick"], **more
    )  # fmt: skip


async def test_a_line_is_made_and_deleted_while_jobs_wait_in_it() -> None:
    schedules, noted, waited_for = Schedules(), list[Operation](), list[str]()

    async def jobs_wait(name: str) -> None:
        assert name in schedules.there
        waited_for.append(name)

    await operator_of(schedules, noted).line_up_and_delete(jobs_wait)
    made, deleted = noted
    assert waited_for == [made.subject]
    assert (made.kind, deleted.kind) == ("create", "delete")
    assert made.subject == deleted.subject
    assert made.schedule is not None
    assert (made.schedule.overlap, made.schedule.every, made.schedule.task) == (
        "queue", 1, "slow_tick",
    )  # fmt: skip
    assert not schedules.there


async def test_lines_come_and_go_among_the_other_moves() -> None:
    schedules, noted = Schedules(), list[Operation]()
    operator = operator_of(schedules, noted, moves=("lines",))
    running = asyncio.create_task(operator.run())
    async with asyncio.timeout(60):
        while Counter(operation.kind for operation in noted)["delete"] < 3:
            await asyncio.sleep(0.01)
    operator.stopping = True
    await running
    assert {operation.answer for operation in noted} == {"done"}
    assert len(schedules.there) <= 2
    assert "lines" in nemesis.MOVES


@pytest.mark.parametrize("spoil", [0.0, 1.0])
async def test_one_is_spoilt_in_the_end_if_that_is_asked_for(spoil: float) -> None:
    schedules, noted, spoilt = Schedules(), list[Operation](), list[str]()

    async def spoiler(name: str, way: str) -> None:
        spoilt.append(name)

    operator = operator_of(schedules, noted, moves=("spoil",), spoil=spoiler)
    await operator.adopt([SchedulePromise("sound", "tick", 1)])
    await operator.leave(mend=0.5, spoil=spoil)
    assert spoilt == operator.spoilt == (["sound"] if spoil else [])


async def test_an_operator_that_is_done_does_not_end_the_others() -> None:
    stopped, over = asyncio.Event(), asyncio.Event()

    async def twelve_maps() -> None:
        over.set()

    running = [asyncio.create_task(twelve_maps()), asyncio.create_task(asyncio.Event().wait())]
    waiting = asyncio.create_task(nemesis.until_stopped(stopped, running))  # type: ignore[arg-type]
    await over.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    stopped.set()
    await waiting
    running[1].cancel()


async def test_an_operator_that_fails_ends_the_process() -> None:
    async def broken() -> None:
        raise ValueError("as a bug does")

    running = [asyncio.create_task(broken())]
    await nemesis.until_stopped(asyncio.Event(), running)
    assert isinstance(running[0].exception(), ValueError)
