"""The one path of an attempt: what claims return, and how verdicts are written."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

import rota.testing
from rota.model import Failure, Outcome, OutcomeKind, Retry
from rota.runtime.attempts import Verdicts, to_held, to_work
from rota.runtime.work import Work
from rota.store.database import Database
from tests.support.fake_node import FakeNode


@pytest.fixture
async def node(hot: Database, sandbox: rota.testing.Sandbox) -> FakeNode:
    return await FakeNode(hot, sandbox.app.settings).register()


async def claimed(sandbox: rota.testing.Sandbox, node: FakeNode, count: int) -> list[Work]:
    for n in range(count):
        await sandbox.app.submit("greet", {"n": n}, priority=n)
    return [to_work(row) for row in await node.claim()]


def succeeding(works: list[Work], node: FakeNode, results: list[bytes]) -> Verdicts:
    verdicts = Verdicts(node.id, max_crashes=3)
    for work, result in zip(works, results, strict=True):
        verdicts.judge(work, Outcome(OutcomeKind.SUCCEEDED, result), Retry(), ran=1.0)
    return verdicts


async def test_a_claim_s_row_is_the_job_that_was_submitted(
    sandbox: rota.testing.Sandbox, node: FakeNode
) -> None:
    [first, second] = await claimed(sandbox, node, 2)
    jobs = {job.id: job for job in await sandbox.jobs()}
    for work in (first, second):
        job = jobs[work.id]
        assert (work.token, work.attempt, work.lane) == (job.token, 1, "default/default")
        assert (work.due_at, work.priority) == (job.due_at, job.priority)


async def test_a_refused_value_takes_no_other_verdict_of_its_transaction_with_it(
    sandbox: rota.testing.Sandbox, hot: Database, node: FakeNode
) -> None:
    works = await claimed(sandbox, node, 4)
    verdicts = succeeding(works[:3], node, [b'"fine"', b"no JSON at all", b'"fine"'])
    failed = Outcome(OutcomeKind.RAISED, failure=Failure("Boom", "no"), fatal=True)
    verdicts.judge(works[3], failed, Retry(), ran=1.0)
    async with hot.transaction("test") as connection:
        assert await verdicts.write(node.store, connection, apart=True) == 4
    jobs = [await sandbox.app.jobs.get(work.id) for work in works]
    assert [job.state for job in jobs] == ["succeeded", "succeeded", "succeeded", "failed"]
    assert [job.result for job in jobs] == ["fine", None, "fine", None]
    assert [job.error and job.error.type for job in jobs] == [None, "ResultDropped", None, "Boom"]


async def test_without_savepoints_a_refused_value_fails_the_transaction(
    sandbox: rota.testing.Sandbox, hot: Database, node: FakeNode
) -> None:
    works = await claimed(sandbox, node, 2)
    verdicts = succeeding(works, node, [b'"fine"', b"no JSON at all"])
    with pytest.raises(asyncpg.PostgresError):
        async with hot.transaction("test") as connection:
            await verdicts.write(node.store, connection)
    assert {job.state for job in await sandbox.jobs()} == {"running"}


async def test_a_verdict_under_a_token_that_has_moved_on_changes_nothing(
    sandbox: rota.testing.Sandbox, hot: Database, node: FakeNode
) -> None:
    [work] = await claimed(sandbox, node, 1)
    stale = to_held(_row(work, token=work.token - 1))
    verdicts = succeeding([stale], node, [b'"late"'])
    async with hot.transaction("test") as connection:
        assert await verdicts.write(node.store, connection, apart=True) == 0
    assert (await sandbox.app.jobs.get(work.id)).state == "running"


def _row(work: Work, token: int) -> dict[str, Any]:
    return {
        "id": work.id, "token": token, "task": work.task, "attempt": work.attempt,
        "max_attempts": work.max_attempts, "guarantee": int(work.guarantee), "crashes": 0,
    }  # fmt: skip
