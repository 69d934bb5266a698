"""Bulk actions: what became of their jobs, and that an undo brings back exactly what is untouched."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from proof.waiting import eventually
from rota import App, Retry
from rota.core.bulk import outcome_of
from rota.errors import Conflict, NotFound
from rota.node import Node
from rota.operations.bulk_changes import MOST_REMEMBERED
from rota.store.search import JobFilter
from tests.support.api import fail_jobs


@pytest.fixture
def app(make_app: Callable[..., App]) -> App:
    app = make_app(heartbeat=0.5, missed_heartbeats=20)

    @app.task(retry=Retry(max_attempts=1))
    async def pay(number: int = 0) -> int:
        if number % 2:
            raise ValueError("no money")
        return number

    return app


async def rows(app: App, table: str) -> list[dict[str, Any]]:
    async with (await app.store()).database.connection() as c:
        found = await c.fetch(f"select * from {app.settings.schema}.{table} order by id")
    return [dict(row) for row in found]


async def bulk_of(app: App, action: Any, wanted: JobFilter | None = None) -> UUID:
    done = await app.jobs.change_matching(action, wanted or JobFilter(task="pay"))
    assert done.bulk is not None
    return done.bulk


async def test_an_undone_cancel_leaves_jobs_exactly_as_they_were(app: App):
    await app.submit("pay", {"number": 2}, key="two", priority=3, tags=["x"])
    await app.submit("pay", {"number": 4}, delay=3600, key="four")
    before = await rows(app, "present"), await rows(app, "future")
    bulk = await bulk_of(app, "cancel")
    assert (await app.bulk.get(bulk)).can_undo == 2
    assert not await rows(app, "present")
    done = await app.bulk.undo(bulk)
    assert (done.undone, done.can_undo) == (2, 0)
    assert (await rows(app, "present"), await rows(app, "future")) == before
    assert not await rows(app, "past")
    # The idempotency key still names the job: a repeated submit makes no second one.
    again = await app.submit("pay", {"number": 2}, key="two", priority=3, tags=["x"])
    assert again.id == before[0][0]["id"]
    with pytest.raises(Conflict, match="undone already"):
        await app.bulk.undo(bulk)


@pytest.mark.parametrize("action", ["retry", "discard"])
async def test_an_undo_brings_dead_letters_back_without_a_second_failure(app: App, action: Any):
    async with Node(app).running():
        job = await app.submit("pay", {"number": 1})
        await eventually(lambda: rows(app, "dead"))
    before = await rows(app, "dead")
    tallies, events = len(await rows_of(app, "tally")), len(await rows_of(app, "event"))
    bulk = await bulk_of(app, action)
    assert not await rows(app, "dead")
    done = await app.bulk.undo(bulk)
    assert done.undone == 1
    assert await rows(app, "dead") == before
    assert not await rows(app, "present")
    assert not await rows(app, "past")
    assert len(await rows_of(app, "tally")) == tallies
    assert len(await rows_of(app, "event")) == events
    assert (await app.jobs.get(job.id)).error is not None
    # The next failure is one again: the setting was for the undo's transaction alone.
    await app.jobs.retry(job.id)
    async with Node(app).running():
        await eventually(lambda: rows(app, "dead"))
        assert len(await rows_of(app, "tally")) + await folded(app) > tallies


async def folded(app: App) -> int:
    return len(await rows_of(app, "run_stats"))


async def rows_of(app: App, table: str) -> list[Any]:
    async with (await app.store()).database.connection() as c:
        found: list[Any] = await c.fetch(f"select * from {app.settings.schema}.{table}")
    return found


async def test_what_has_run_since_is_not_taken_back(app: App):
    ids = [str((await app.submit("pay", {"number": number})).id) for number in (2, 3)]
    await fail_jobs(app, ids)
    bulk = await bulk_of(app, "retry")
    async with Node(app).running():
        await eventually(lambda: ended(app, ids))
    told = await app.bulk.get(bulk)
    assert told.sentence == "2 retried: 1 succeeded, 1 failed again"
    assert told.finished == 2
    done = await app.bulk.undo(bulk)
    assert done.undone == 0
    assert [(await app.jobs.get(id)).state for id in ids] == ["succeeded", "failed"]


async def ended(app: App, ids: list[str]) -> bool:
    states = [(await app.jobs.get(id)).state for id in ids]
    return all(state in ("succeeded", "failed") for state in states)


async def test_a_job_that_was_claimed_and_given_back_is_not_taken_back(app: App):
    job = await app.submit("pay", {"number": 2})
    await fail_jobs(app, [str(job.id)])
    bulk = await bulk_of(app, "retry")
    async with (await app.store()).database.connection() as c:
        await c.execute(f"update {app.settings.schema}.present set token = 7")
    assert (await app.bulk.undo(bulk)).undone == 0
    assert (await app.jobs.get(job.id)).state == "ready"


async def test_jobs_whose_place_others_may_take_are_not_brought_back(app: App):
    await app.submit("pay", {"number": 2}, unique="waiting", unique_key="a")
    await app.submit("pay", {"number": 4}, order_key="b")
    bulk = await bulk_of(app, "cancel")
    assert (await app.bulk.get(bulk)).can_undo == 0
    with pytest.raises(Conflict, match="can't be undone"):
        await app.bulk.undo(bulk)
    assert (await app.bulk.get(bulk)).undone_at is None


async def test_two_undos_at_once_bring_jobs_back_once(app: App):
    for number in range(20):
        await app.submit("pay", {"number": number})
    bulk = await bulk_of(app, "cancel")
    found = await asyncio.gather(*(app.bulk.undo(bulk) for _ in range(4)), return_exceptions=True)
    assert sum(isinstance(one, Conflict) for one in found) == 3
    assert len(await rows(app, "present")) == 20


async def test_more_jobs_than_an_undo_remembers_are_cancelled_for_good(
    app: App, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.operations.bulk_changes.MOST_REMEMBERED", 2)
    assert MOST_REMEMBERED > 100
    for number in range(3):
        await app.submit("pay", {"number": number})
    told = await app.bulk.get(await bulk_of(app, "cancel"))
    assert (told.jobs, told.can_undo) == (3, 0)


async def test_an_error_with_odd_characters_comes_back_whole(app: App):
    job = await app.submit("pay", {"number": 1})
    await fail_jobs(app, [str(job.id)], message="a backslash \\u0000, a face \U0001f600, 'quotes'")
    before = await rows(app, "dead")
    bulk = await bulk_of(app, "discard")
    await app.bulk.undo(bulk)
    assert await rows(app, "dead") == before


async def test_a_bulk_action_of_another_namespace_is_unknown(
    app: App, make_app: Callable[..., App]
):
    await app.submit("pay", {"number": 2})
    bulk = await bulk_of(app, "cancel")
    other = make_app(namespace="other", schema=app.settings.schema)
    with pytest.raises(NotFound):
        await other.bulk.get(bulk)
    with pytest.raises(NotFound):
        await other.bulk.undo(bulk)
    assert [one.id for one in await app.bulk.list()] == [bulk]


def test_the_sentence_counts_what_became_of_the_jobs():
    states = {"running": 1, "succeeded": 3, "failed": 2}
    told = outcome_of("retry", 7, states, 2_000)
    assert told.sentence == "7 retried: 1 running, 3 succeeded, 2 failed again, 1 no longer stored"
    assert told.finished == 5
    assert outcome_of("discard", 2, {"cancelled": 2}, 2_000).sentence == "2 discarded"
    many = outcome_of("retry", 10_000, {"succeeded": 2_000}, 2_000)
    assert many.sentence == "10,000 retried: 2,000 succeeded (of the first 2,000)"
