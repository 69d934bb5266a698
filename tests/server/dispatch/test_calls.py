"""The calls of workers by a broker, delivered twice, late and out of order: server/dispatch/calls.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from rota import App
from rota.lib.ids import new_id
from rota.server.context import ServerContext
from rota.server.dispatch.calls import WorkerCalls
from rota.server.problems import Problem

TASKS = [
    {"name": "work", "retry": {"max_attempts": 3, "base": 0}},
    {"name": "once", "guarantee": "at_most_once"},
]


class Worker:
    def __init__(self, app: App, calls: WorkerCalls) -> None:
        self.app, self.id = app, new_id()
        self._calls = calls

    async def call(self, name: str, body: Any = None) -> Any:
        answer = await self._calls.answer(self.id, name, msgspec.json.encode(body))
        return msgspec.json.decode(msgspec.json.encode(answer))

    async def register(self) -> Worker:
        await self.call("register", {"name": "w", "tasks": TASKS, "slots": 10})
        return self

    async def claim(self, request: str = "r1", attempt: int = 1, most: int = 10) -> list[Any]:
        body = {"request": request, "attempt": attempt, "max": most}
        return (await self.call("claim", body))["jobs"]

    async def begin(self, *offers: Any) -> list[Any]:
        return (await self.call("begin", {"jobs": [ticket(offer) for offer in offers]}))["go"]

    async def finish(self, offer: Any, outcome: str = "succeeded", **more: Any) -> str:
        item = {**ticket(offer), "outcome": outcome, **more}
        return (await self.call("finish", {"items": [item]}))["items"][0]["answer"]

    async def beat(self, *offers: Any, seen: int) -> Any:
        return await self.call("heartbeat", {"jobs": [ticket(o) for o in offers], "seen": seen})

    async def query(self, sql: str, *arguments: Any) -> Any:
        """Run a statement, with `{}` for the schema."""
        settings = self.app.settings
        connection = await asyncpg.connect(settings.database_url)
        try:
            return await connection.fetchval(sql.format(settings.schema), *arguments)
        finally:
            await connection.close()

    async def marked(self, offer: Any) -> Any:
        return await self.query(
            "select started_at from {}.present where id = $1", UUID(offer["job"])
        )

    async def job(self, offer: Any) -> Any:
        return await self.app.jobs.get(UUID(offer["job"]))


def ticket(offer: Any) -> dict[str, Any]:
    return {"job": offer["job"], "token": offer["token"]}


@pytest.fixture
async def make_worker(make_app: Callable[..., App]) -> AsyncIterator[Callable[[], Worker]]:
    app = make_app()
    async with ServerContext.open(app) as context:
        calls = WorkerCalls(context, "default", "redis://test")
        yield lambda: Worker(app, calls)


@pytest.fixture
async def worker(make_worker: Callable[[], Worker]) -> Worker:
    return await make_worker().register()


async def longer_than_a_lease(worker: Worker) -> None:
    """Make what is held be held for longer than a lease, and keep the worker alive."""
    await worker.query("update {}.present set claimed_at = claimed_at - interval '1 hour'")
    await worker.call("heartbeat", {})


async def test_a_claim_that_is_delivered_again_takes_nothing(worker: Worker):
    """Or what has begun would be offered again, under a token for which it had not begun."""
    await worker.app.submit("once", {})
    [offer] = await worker.claim()
    assert await worker.begin(offer) == [ticket(offer)]
    assert await worker.claim() == []  # the same attempt, twice delivered
    assert (await worker.job(offer)).token == offer["token"]
    assert await worker.finish(offer) == "accepted"
    assert (await worker.job(offer)).state == "succeeded"


async def test_a_claim_that_was_not_answered_is_repeated_and_gets_the_same_jobs(worker: Worker):
    await worker.app.submit("work", {})
    [lost] = await worker.claim()
    [offer] = await worker.claim(attempt=2)
    assert (offer["job"], offer["token"] > lost["token"]) == (lost["job"], True)
    assert await worker.claim(attempt=1) == []  # which was late
    assert await worker.begin(lost) == []
    assert await worker.finish(lost, "released", begun=False) == "stale"
    assert await worker.begin(offer) == [ticket(offer)]
    assert await worker.finish(offer) == "accepted"


async def test_an_offer_is_not_begun_and_begin_may_be_repeated(worker: Worker):
    await worker.app.submit("once", {})
    [offer] = await worker.claim()
    assert await worker.marked(offer) is None
    assert await worker.begin(offer) == [ticket(offer)]
    started = await worker.marked(offer)
    assert started is not None
    assert await worker.begin(offer) == [ticket(offer)]
    assert await worker.marked(offer) == started
    assert await worker.finish(offer) == "accepted"
    assert await worker.finish(offer) == "accepted"
    assert await worker.begin(offer) == []


async def test_an_offer_says_whether_it_may_start_without_begin(worker: Worker):
    """What must be marked first, asks first: or nobody would know after a crash that it had begun."""
    for task in ("work", "once"):
        await worker.app.submit(task, {})
    offers = {offer["task"]: offer for offer in await worker.claim()}
    assert {task: offer["go"] for task, offer in offers.items()} == {"work": True, "once": False}
    assert await worker.marked(offers["work"]) is None
    assert await worker.finish(offers["work"]) == "accepted"


async def test_a_job_that_took_its_process_with_it_twice_asks_first(worker: Worker):
    handle = await worker.app.submit("work", {})
    await worker.query("update {}.present set crashes = 2 where id = $1", handle.id)
    [offer] = await worker.claim()
    assert offer["go"] is False
    assert await worker.begin(offer) == [ticket(offer)]
    assert await worker.marked(offer) is not None


async def test_an_outcome_of_another_namespaces_worker_is_not_taken(
    worker: Worker,
):
    """Also where row security is off: the namespace is a part of the statement."""
    await worker.app.submit("work", {})
    [offer] = await worker.claim()
    async with ServerContext.open(worker.app) as context:
        elsewhere = WorkerCalls(context, "elsewhere", "redis://test")
        item = {**ticket(offer), "outcome": "succeeded"}
        with pytest.raises(Exception, match="there is no worker"):
            await elsewhere.answer(worker.id, "finish", msgspec.json.encode({"items": [item]}))
    assert await worker.finish(offer) == "accepted"


async def test_what_was_cancelled_while_it_was_offered_does_not_begin(worker: Worker):
    for task in ("work", "once"):
        handle = await worker.app.submit(task, {})
        [offer] = await worker.claim(task)
        await worker.app.jobs.cancel(handle.id)
        assert await worker.begin(offer) == []
        assert await worker.finish(offer, "released", begun=False) == "accepted"
        assert (await worker.job(offer)).state == "cancelled"


async def test_another_worker_can_neither_begin_nor_finish_it(
    worker: Worker, make_worker: Callable[[], Worker]
):
    other = await make_worker().register()
    await worker.app.submit("work", {})
    [offer] = await worker.claim()
    assert await other.begin(offer) == []
    assert await other.finish(offer) == "stale"
    assert await worker.begin(offer) == [ticket(offer)]


async def test_a_late_heartbeat_gives_back_nothing_that_was_offered_after_it(worker: Worker):
    await worker.app.submit("once", {})
    [offer] = await worker.claim()
    await worker.begin(offer)
    await longer_than_a_lease(worker)
    answer = await worker.beat(seen=offer["token"] - 1)  # was sent before the offer arrived
    assert answer["lost"] == []
    assert (await worker.job(offer)).state == "running"
    assert await worker.finish(offer) == "accepted"


async def test_an_offer_that_never_arrived_is_given_back(worker: Worker):
    """Even of an at_most_once job: it has not begun."""
    await worker.app.submit("once", {})
    [offer] = await worker.claim()
    await longer_than_a_lease(worker)
    await worker.beat(seen=offer["token"])
    job = await worker.job(offer)
    assert (job.state, job.attempt) == ("ready", 0)
    assert await worker.begin(offer) == []  # it was late, and is another's
    [again] = await worker.claim("r2")
    assert await worker.begin(again) == [ticket(again)]


async def test_what_a_late_claim_took_is_given_back_even_if_nothing_else_is_ever_offered(
    worker: Worker,
):
    """The worker has given the claim up, and the answer to it was lost."""
    await worker.app.submit("once", {})
    [lost] = await worker.claim("given up")
    answer = await worker.call("claim", {"request": "next"})
    assert (answer["jobs"], answer["seen"] > lost["token"]) == ([], True)
    await longer_than_a_lease(worker)
    await worker.beat(seen=answer["seen"])
    assert (await worker.job(lost)).state == "ready"


async def test_one_that_began_and_is_unknown_is_not_run_again(worker: Worker):
    await worker.app.submit("once", {})
    [offer] = await worker.claim()
    await worker.begin(offer)
    await longer_than_a_lease(worker)
    await worker.beat(seen=offer["token"])
    job = await worker.job(offer)
    assert (job.state, job.error.type) == ("failed", "NodeLost")


async def test_a_worker_whose_lease_has_run_out_begins_nothing(worker: Worker):
    await worker.app.submit("work", {})
    [offer] = await worker.claim()
    await worker.query("update {}.node set expires_at = now() - interval '1 second'")
    assert await worker.begin(offer) == []


async def test_a_paused_queue_offers_nothing(worker: Worker):
    await worker.app.submit("work", {})
    await worker.app.queues.pause("default")
    assert await worker.claim() == []


async def test_calls_that_are_wrong_are_refused(worker: Worker, make_worker: Callable[[], Worker]):
    wrong: list[tuple[str, Any, int, str]] = [
        ("steal", None, 404, "there is no call 'steal'"),
        ("begin", {"jobs": "all"}, 400, "jobs: Expected `array`"),
        ("claim", {"max": 1000}, 400, "max"),
        ("claim", {"attempt": 0}, 400, "attempt"),
        ("register", {"name": "x", "tasks": ["a"], "id": str(new_id())}, 400, "sealed for"),
        ("finish", {"items": [{"job": str(new_id()), "token": 1, "outcome": "\0"}]}, 400, "NUL"),
    ]
    for name, body, status, message in wrong:
        with pytest.raises(Problem, match=message) as refused:
            await worker.call(name, body)
        assert refused.value.status == status
    nobody = make_worker()
    for name, body in (
        ("claim", {}),
        ("heartbeat", {}),
        ("finish", {"items": []}),
        ("leave", None),
    ):
        with pytest.raises(Exception, match="there is no worker"):
            await nobody.call(name, body)
    await worker.call("leave")
    with pytest.raises(Problem, match="has left") as gone:
        await worker.claim()
    assert gone.value.status == 410
