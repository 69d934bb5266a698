"""Workers over HTTP that wait for work: what wakes them, and who is given nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import UUID

import pytest

from proof.waiting import eventually
from rota import App
from rota.server.remote_workers import subscription
from tests.support.api import query
from tests.support.remote_worker import RemoteWorker, submit, ticket
from tests.support.server_fixtures import LiveServer, serving


async def test_who_waits_is_told_of_new_work(make_app: Callable[..., App]):
    """Without being told, it would look again only after minutes."""
    async with serving(make_app(port=0, heartbeat=1000, poll=1000)) as server:
        worker = await RemoteWorker.register(server)
        waiting = asyncio.create_task(worker.claim(wait=30))
        await eventually(lambda: is_idle(server), what="advertise_idle")
        id = await submit(server)
        async with asyncio.timeout(20):
            assert [job["job"] for job in await waiting] == [str(id)]
        assert not await is_idle(server)


async def test_who_waits_hears_at_once_that_a_job_is_to_be_stopped(make_app: Callable[..., App]):
    async with serving(make_app(port=0, heartbeat=1000, poll=1000)) as server:
        worker = await RemoteWorker.register(server)
        await submit(server)
        job = await worker.claim_one()
        waiting = asyncio.create_task(worker.told("claim", {"wait": 30}))
        await eventually(lambda: is_idle(server), what="advertise_idle")
        await server.app.jobs.cancel(job["job"])
        async with asyncio.timeout(20):
            assert (await waiting)["cancel"] == [ticket(job)]


async def test_who_waits_goes_on_waiting_when_the_line_that_hears_is_cut(
    make_app: Callable[..., App],
):
    async with serving(make_app(port=0, heartbeat=1000, poll=1000)) as server:
        worker = await RemoteWorker.register(server)
        waiting = asyncio.create_task(worker.claim(wait=30))
        await eventually(lambda: is_idle(server), what="advertise_idle")
        subscriptions = server.context.subscriptions
        await eventually(lambda: UUID(worker.id) in subscriptions._locked, what="the line")
        before = subscriptions._connection
        before.terminate()
        await eventually(
            lambda: (
                subscriptions._connection not in (None, before)
                and UUID(worker.id) in subscriptions._locked
            )
        )
        await submit(server)
        async with asyncio.timeout(20):
            assert len(await waiting) == 1


async def test_the_line_that_hears_is_kept_between_requests_and_given_up_later(
    make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
):
    async with serving(make_app(port=0, heartbeat=1000, poll=1000)) as server:
        worker = await RemoteWorker.register(server)
        subscriptions = server.context.subscriptions
        for _ in range(3):
            waiting = asyncio.create_task(worker.claim(wait=30))
            await eventually(lambda: is_idle(server), what="the advertisement")
            await eventually(lambda: subscriptions._locked == {UUID(worker.id)}, what="the line")
            heard = dict(subscriptions._channels)
            assert len(heard) == 2
            await submit(server)
            assert len(await waiting) == 1
            assert not await is_idle(server)
            assert subscriptions._channels == heard
        monkeypatch.setattr(subscription, "_LINGER", 0.01)
        assert await worker.claim(wait=0.1) == []
        assert not await is_idle(server)
        await eventually(lambda: not (subscriptions._channels or subscriptions._locked))


async def test_a_server_that_stops_lets_nobody_wait(make_app: Callable[..., App]):
    async with serving(make_app(port=0)) as server:
        worker = await RemoteWorker.register(server)
        waiting = asyncio.create_task(worker.claim(wait=30))
        await eventually(lambda: is_idle(server), what="advertise_idle")
        server.context.stopping.set()
        async with asyncio.timeout(20):
            assert await waiting == []


NO_LONGER = {
    "revoked_at = now()": 401, "expires_at = now()": 401, "namespace = 'elsewhere'": 403,
    "role = 'viewer'": 403, "scopes = '{jobs:read}'": 403,
}  # fmt: skip


async def lose_rights(server: LiveServer, worker: RemoteWorker, change: str) -> None:
    prefix = worker.client.headers["authorization"].split("_")[1]
    await query(server, f"update {{}}.api_token set {change} where prefix = $1", prefix)
    server.context.tokens.cache.clear()  # as after five seconds


@pytest.mark.parametrize("change", NO_LONGER)
async def test_who_may_no_longer_ask_stops_waiting_and_is_given_nothing(
    make_app: Callable[..., App], change: str
):
    """Also while nothing wakes it: it would look again only after minutes."""
    async with serving(make_app(port=0, heartbeat=1000, poll=1000)) as server:
        worker = await RemoteWorker.register(server)
        waiting = asyncio.create_task(worker.ask("claim", {"wait": 30}))
        await eventually(lambda: is_idle(server), what="advertise_idle")
        await lose_rights(server, worker, change)
        async with asyncio.timeout(20):
            answer = await waiting
        assert answer.status_code == NO_LONGER[change], answer.text
        assert not await is_idle(server)


@pytest.mark.parametrize("change", NO_LONGER)
async def test_what_was_claimed_for_who_may_no_longer_ask_is_given_back(
    server: LiveServer, change: str
):
    """It is claimed a moment before it is due; and then the worker may not have it."""
    worker = await RemoteWorker.register(server)
    id = await submit(server, delay=0.9)

    async def running() -> bool:
        return (await server.app.jobs.get(id)).state == "running"

    asking = asyncio.create_task(worker.ask("claim", {"wait": 30}))
    await eventually(running, what="the claim")
    await lose_rights(server, worker, change)
    answer = await asking
    assert answer.status_code == NO_LONGER[change], answer.text
    job = await server.app.jobs.get(id)
    assert (job.state, job.attempt, job.attempts) == ("ready", 0, [])


async def test_who_went_away_while_waiting_is_given_nothing(server: LiveServer):
    worker = await RemoteWorker.register(server)
    impatient = asyncio.create_task(worker.claim(wait=30))
    await eventually(lambda: is_idle(server), what="advertise_idle")
    impatient.cancel()

    async def forgotten() -> bool:
        return not await is_idle(server)

    await eventually(forgotten, what="the end of its hunger")
    id = await submit(server)
    job = await server.app.jobs.get(id)
    assert (job.state, job.attempt) == ("ready", 0)


async def test_what_is_held_for_who_went_away_is_given_back(server: LiveServer):
    """It is claimed a moment before it is due; and then nobody is there to take it."""
    worker = await RemoteWorker.register(server)
    id = await submit(server, delay=0.9)

    async def state() -> str:
        return (await server.app.jobs.get(id)).state

    async def running() -> bool:
        return await state() == "running"

    async def ready() -> bool:
        return await state() == "ready"

    impatient = asyncio.create_task(worker.claim())
    await eventually(running, what="the claim")
    impatient.cancel()
    await eventually(ready, what="the return")
    assert (await server.app.jobs.get(id)).attempt == 0
    assert await query(server, "select * from {}.batch") == []


async def is_idle(server: LiveServer) -> bool:
    return bool(await query(server, "select from {}.node where idle_slots is not null"))
