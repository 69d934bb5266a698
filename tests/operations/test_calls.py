"""Chains, groups and chords: compositions of calls, run as workflows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from rota import App, ConfigError, Context, InvalidArguments, Retry, chain, chord, group
from rota.calls import Call, Partial
from rota.errors import KeyConflict
from rota.run_handle import RunFailed
from rota.testing import Sandbox
from tests.support.sandboxes import isolated


class Sums:
    def __init__(self, app: App) -> None:
        self.app = app
        self.seen: list[Any] = []
        once = Retry(max_attempts=1)

        @app.task(retry=once)
        async def add(x: int, y: int) -> int:
            return x + y

        @app.task(retry=once)
        async def total(numbers: list[int | None], factor: int = 1) -> int:
            self.seen.append(numbers)
            return sum(number or 0 for number in numbers) * factor

        @app.task(retry=once)
        async def tell(ctx: Context, what: str = "nothing") -> str:
            self.seen.append(what)
            return what

        @app.task(retry=once)
        async def fail() -> int:
            raise ValueError("broken")

        @app.task(retry=once)
        async def several(*numbers: int) -> int:
            return sum(numbers)

        self.add, self.total, self.tell, self.fail = add, total, tell, fail
        self.several = several


@pytest.fixture
def sums(database_url: str) -> Sums:
    return Sums(App(database_url=database_url, node_name="test"))


@pytest.fixture
async def sandbox(sums: Sums) -> AsyncIterator[Sandbox]:
    async with isolated(sums.app) as sandbox:
        yield sandbox


async def result(sandbox: Sandbox, part: Any) -> Any:
    run = await part.start()
    await sandbox.run_due()
    return await run.result(1)


async def test_a_chain_passes_each_result_on_as_the_first_argument(
    sums: Sums, sandbox: Sandbox
) -> None:
    add = sums.add
    assert await result(sandbox, chain(add.s(1, 2), add.s(10), add.s(y=100))) == 113
    assert await result(sandbox, chain(add.s(1, 2))) == 3
    assert await result(sandbox, add.s(1, 2)) == 3
    assert await result(sandbox, chain(add.s(1, 2), sums.several.s(4, 5), sums.several.s())) == 12


async def test_a_call_that_stands_alone_takes_no_result_and_waits_for_the_one_before(
    sums: Sums, sandbox: Sandbox
) -> None:
    run = await chain(sums.add.s(1, 2), sums.tell.si("done")).start()
    assert [step.state for step in await run.steps()] == ["running", "waiting"]
    await sandbox.run_due()
    assert await run.result(1) == "done"


async def test_a_group_gives_the_results_in_order_and_a_chord_passes_them_on(
    sums: Sums, sandbox: Sandbox
) -> None:
    add, total = sums.add, sums.total
    assert await result(sandbox, group(add.s(2, 2), add.s(1, 1))) == [4, 2]
    assert await result(sandbox, group(add.s(n, n) for n in range(12))) == [
        2 * n for n in range(12)
    ]
    assert await result(sandbox, group(add.s(2, 2))) == [4]
    assert await result(sandbox, chord([add.s(1, 1), add.s(2, 2)], total.s(factor=10))) == 60
    assert await result(sandbox, group(add.s(1, 1), add.s(2, 2), then=total.s())) == 6
    assert sums.seen == [[2, 4], [2, 4]]


async def test_parts_can_be_nested(sums: Sums, sandbox: Sandbox) -> None:
    add, total = sums.add, sums.total
    spread = chain(add.s(1, 1), group(add.s(10), chain(add.s(20), add.s(100))), total.s())
    assert await result(sandbox, spread) == 12 + 122
    twice = group(group(add.s(1, 1), add.s(2, 2)), add.s(3, 3))
    assert await result(sandbox, twice) == [[2, 4], 6]
    assert await result(sandbox, group(add.s(1, 1), then=chain(total.s(), add.s(5)))) == 7


async def test_then_needs_success_and_ended_runs_however_they_ended(
    sums: Sums, sandbox: Sandbox
) -> None:
    run = await group(sums.add.s(1, 1), sums.fail.s(), then=sums.total.s()).start()
    await sandbox.run_due()
    assert {step.name: step.state for step in await run.steps()}["total"] == "upstream_failed"
    with pytest.raises(RunFailed):
        await run.result(1)
    assert sums.seen == []
    run = await group(sums.add.s(1, 1), sums.fail.s(), ended=sums.total.s()).start()
    await sandbox.run_due()
    assert sums.seen == [[2, None]]
    assert (await run.status()).state == "failed"


async def test_the_same_shape_is_stored_once_and_arguments_are_the_input(
    sums: Sums, sandbox: Sandbox
) -> None:
    add = sums.add
    runs = [await chain(add.s(n, 1), add.s(2)).start() for n in range(3)]
    found = [await run.status() for run in runs]
    assert len({run.workflow for run in found}) == 1
    assert {run.version for run in found} == {1}
    assert found[2].input == {"add": {"x": 2, "y": 1}, "add_2": {"y": 2}}
    other = await (await chain(add.s(1, 1), add.s(1), add.s(1)).start()).status()
    assert other.workflow != found[0].workflow
    assert await sums.app.workflows.list() == []  # they have no names of their own
    assert other.workflow.startswith("inline:")


async def test_options_of_the_run_and_of_its_steps(sums: Sums, sandbox: Sandbox) -> None:
    part = chain(sums.add.s(1, 1).set(queue="fast", name="first"), sums.add.s(1).set(priority=9))
    run = await part.options(key="one", priority=3).start()
    again = await part.options(key="one", priority=3).start()
    assert (again.id, again.existed) == (run.id, True)
    with pytest.raises(KeyConflict):
        await chain(sums.add.s(2, 2), sums.add.s(1)).options(key="one").start()
    (job,) = await sandbox.jobs()
    assert (job.queue, job.priority) == ("fast", 0)
    await sandbox.run_due()
    assert [step.name for step in await run.steps()] == ["first", "add"]
    assert await again.result(1) == 3
    with pytest.raises(ConfigError, match="'colour' is none of queue"):
        sums.add.s(1, 1).set(colour="blue")


async def test_a_composition_is_started_by_the_callers_transaction(
    sums: Sums, sandbox: Sandbox
) -> None:
    connection = await asyncpg.connect(sums.app.settings.database_url)
    part = chain(sums.add.s(1, 1), sums.add.s(1))
    try:
        transaction = connection.transaction()
        await transaction.start()
        lost = await part.options(connection=connection).start()
        await transaction.rollback()
        async with connection.transaction():
            kept = await part.options(connection=connection).start()
    finally:
        await connection.close()
    assert [run.id for run in await sums.app.runs.list()] == [kept.id]
    assert lost.id != kept.id


async def test_a_durable_function_can_be_a_part(sums: Sums, sandbox: Sandbox) -> None:
    @sums.app.durable
    async def waiting(ctx: Any, number: int) -> int:
        await ctx.sleep(60)
        return number + 1

    run = await chain(sums.add.s(1, 1), waiting.s(), sums.add.s(10)).start()
    await sandbox.run_for(minutes=2)
    assert await run.result(1) == 13


def test_what_cannot_be_composed_is_refused_before_anything_is_stored(
    sums: Sums, database_url: str
) -> None:
    assert isinstance(sums.add.s(1, 2), Call)
    assert isinstance(sums.add.s(1), Partial)
    with pytest.raises(ConfigError, match="at least one part"):
        group([])
    with pytest.raises(ConfigError, match="is not a call"):
        chain(sums.add)  # type: ignore[call-overload]
    with pytest.raises(InvalidArguments, match="task 'add': argument 'y' is missing"):
        chain(sums.add.s(1)).start_sync()  # type: ignore[call-overload]
    with pytest.raises(InvalidArguments, match=r"too many .* add.si\(...\) takes none"):
        chain(sums.add.s(1, 2), sums.add.s(1, 2)).start_sync()
    with pytest.raises(
        ConfigError, match=r"argument 'numbers' is a list.*, but step 'add' returns a int"
    ):
        chain(sums.add.s(1, 2), sums.total.s()).start_sync()
    with pytest.raises(ConfigError, match="either `then` or `ended`"):
        group(sums.add.s(1, 2), then=sums.total.s(), ended=sums.total.s())  # type: ignore[call-overload]
    other = Sums(App(database_url=database_url))
    with pytest.raises(ConfigError, match="different apps"):
        chain(sums.add.s(1, 2), other.add.s(1)).start_sync()
