"""Events become deliveries exactly once, signed, tried again; and what others can't reach stays so."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from proof.waiting import eventually
from rota import App, CatchUp, ConfigError, NotFound, Retry
from rota.errors import Conflict
from rota.node import Node
from rota.operations.event_text import slack
from rota.scheduler.reaper import Reaper
from rota.signing import SIGNATURE_HEADER, verify
from rota.store.work import UpkeepStore
from rota.worker import webhook_delivery as delivery
from rota.worker.webhook_delivery import enable_webhooks
from tests.support.fake_node import FakeNode
from tests.support.receiver import Receiver


@pytest.fixture
async def app(make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch) -> App:
    quick = Retry(max_attempts=4, base=0.01, factor=1.0)
    monkeypatch.setattr(delivery, "_RETRY", quick)
    app = make_app(heartbeat=0.5, missed_heartbeats=20)

    @app.task(retry=Retry(max_attempts=2, base=0.01))
    async def hopeless(secret: str = "") -> None:
        raise ValueError("no luck")

    return app


async def deliveries(app: App) -> list[Any]:
    return await app.jobs.list(task="rota.webhook", limit=1000)


async def test_a_dead_letter_is_delivered_signed_and_once(app: App, receiver: Receiver) -> None:
    await app.webhooks.allow("127.0.0.1")
    new = await app.webhooks.add(receiver.url, kinds=["dead_lettered"])
    async with Node(app).running():
        job = await (await app.submit("hopeless", {"secret": "canary"})).wait(60)
        await eventually(lambda: receiver.received)
        (done,) = await eventually(lambda: _ended(app))
    (got,) = receiver.received
    (event,) = receiver.bodies()
    assert done.state == "succeeded"
    assert (event["kind"], event["task"], event["job_id"]) == (
        "dead_lettered",
        "hopeless",
        str(job.id),
    )
    assert event["detail"] == {
        "attempt": 2, "queue": "default", "error": "ValueError", "message": "no luck",
    }  # fmt: skip
    assert b"canary" not in got.body
    signature = got.headers[SIGNATURE_HEADER.lower()]
    assert verify(new.secret, signature, got.body, time.time())
    assert not verify(new.secret, signature, got.body + b" ", time.time())
    assert not verify("another secret", signature, got.body, time.time())
    assert not verify(new.secret, signature, got.body, time.time() + 3600)
    assert not verify(new.secret, "nonsense", got.body, time.time())
    assert got.headers["rota-delivery"] == str(done.id)
    (webhook,) = await app.webhooks.list()
    assert webhook.failures == 0
    assert webhook.delivered_at is not None


async def _ended(app: App) -> list[Any]:
    jobs = await deliveries(app)
    return jobs if jobs and all(job.state in ("succeeded", "failed") for job in jobs) else []


async def test_a_failed_delivery_is_tried_again_by_the_engine(app: App, receiver: Receiver) -> None:
    await app.webhooks.allow("127.0.0.0/8")
    await app.webhooks.add(receiver.url, kinds=["dead_lettered"])
    receiver.answers += [(500, {}), (503, {"retry-after": "0"}), (301, {"location": "/other"})]
    async with Node(app).running():
        await (await app.submit("hopeless")).wait(60)
        (job,) = await eventually(lambda: _ended(app))
    assert job.state == "succeeded"
    assert len(receiver.received) == 4
    assert {each.path for each in receiver.received} == {"/hook"}  # no redirect was followed
    assert len({each.body for each in receiver.received}) == 1
    assert [each.headers["rota-attempt"] for each in receiver.received] == ["1", "2", "3", "4"]


async def test_a_delivery_that_never_arrives_ends_as_a_dead_letter_and_tells_nobody(
    app: App, receiver: Receiver
) -> None:
    await app.webhooks.allow("127.0.0.1")
    await app.webhooks.add(receiver.url, kinds=["dead_lettered"])
    receiver.answers += [(500, {})] * 100
    async with Node(app).running():
        await (await app.submit("hopeless")).wait(60)
        jobs = await eventually(lambda: _ended(app))
        # Its own failures are events, and nobody is told of them.
        await eventually(lambda: _events(app, "dead_lettered", "rota.webhook"))
        await asyncio.sleep(1.5)  # two looks of the slow_jobs: time for what must not happen
        assert len(await deliveries(app)) == len(jobs)
    assert {job.state for job in jobs} == {"failed"}
    (webhook,) = await app.webhooks.list()
    assert webhook.last_error == "answered with 500"
    assert webhook.failures == len(receiver.received)


async def _events(app: App, kind: str, task: str) -> list[Any]:
    return [event for event in await app.events.list(kind=kind) if event.task == task]


async def test_one_that_is_gone_is_paused(app: App, receiver: Receiver) -> None:
    await app.webhooks.allow("127.0.0.1")
    new = await app.webhooks.add(receiver.url, kinds=["dead_lettered"])
    receiver.answers.append((410, {}))
    async with Node(app).running():
        await (await app.submit("hopeless")).wait(60)
        await eventually(lambda: _ended(app))
        (webhook,) = await app.webhooks.list()
        assert webhook.paused_at is not None
        await (await app.submit("hopeless")).wait(60)
        assert len(await deliveries(app)) == 1
        await app.webhooks.resume(new.id)
        await (await app.submit("hopeless")).wait(60)
        await eventually(lambda: len(receiver.received) == 2)


async def test_a_private_address_is_refused_for_good(app: App, receiver: Receiver) -> None:
    await app.webhooks.allow("127.0.0.1")
    await app.webhooks.add(receiver.url, kinds=["dead_lettered"])
    await app.webhooks.disallow("127.0.0.1")  # since then nobody allows it
    async with Node(app).running():
        await (await app.submit("hopeless")).wait(60)
        (job,) = await eventually(lambda: _ended(app))
    assert job.state == "failed"
    assert job.attempt == 1
    assert job.error is not None
    assert "not a public address" in job.error.message
    assert receiver.received == []


async def test_a_test_event_arrives(app: App, receiver: Receiver) -> None:
    await app.webhooks.allow("127.0.0.1")
    new = await app.webhooks.add(receiver.url, form="slack")
    async with Node(app).running():
        result = await (await app.webhooks.test(new.id)).result(60)
    assert result == "answered with 204"
    assert receiver.bodies() == [
        {"text": "[default] This is a test: webhooks of Rota arrive here."}
    ]


def test_what_people_wrote_is_no_markup_for_slack() -> None:
    event = {
        "namespace": "default", "kind": "dead_lettered", "task": "t", "job_id": "7",
        "detail": {"attempt": 2, "error": "ValueError", "message": "<!channel> & <http://x|y>"},
    }  # fmt: skip
    assert slack(event)["text"] == (
        "[default] t has failed for good at attempt 2: ValueError: "
        "&lt;!channel&gt; &amp; &lt;http://x|y&gt; (job 7)"
    )


# -- the hand-over, in the database alone


@pytest.fixture
async def quiet(sandbox: Any) -> Any:
    """A sandbox with a webhook for everything, whose deliveries nobody runs."""
    app: App = sandbox.app

    @app.task(retry=Retry(max_attempts=1))
    async def hopeless() -> None:
        raise ValueError("no luck")

    @app.task
    async def greet() -> None: ...

    await app.webhooks.add("https://example.com/hook")
    return sandbox


async def told(app: App) -> list[tuple[str, str]]:
    jobs = sorted(await deliveries(app), key=lambda job: job.payload["event"]["id"])
    return [(job.payload["event"]["kind"], job.payload["event"]["task"]) for job in jobs]


async def test_an_event_and_its_delivery_are_one_transaction(quiet: Any, hot: Any) -> None:
    app = quiet.app
    schema = app.settings.schema
    async with hot.connection() as connection:
        insert = (
            f"insert into {schema}.event (namespace, kind, task, detail)"
            " values ('default', 'slow', 'greet', '{}')"
        )
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(insert)
        await transaction.rollback()
        assert await deliveries(app) == []
        await connection.execute(insert)
    assert await told(app) == [("slow", "greet")]


async def test_a_dead_letter_that_returns_and_dies_again_is_told_again(quiet: Any) -> None:
    app = quiet.app
    handle = await app.submit("hopeless")
    await quiet.run_due()
    await app.jobs.retry(handle.id)
    await quiet.run_due()
    assert await told(app) == [("dead_lettered", "hopeless")] * 2
    assert len(await app.events.list(kind="dead_lettered")) == 1


async def test_missed_and_overrun_occurrences_and_dead_nodes_are_told(quiet: Any, hot: Any) -> None:
    app = quiet.app
    await app.schedule("s", "greet", every="1h", catch_up=CatchUp("none"))
    await quiet.advance(hours=10, minutes=5)
    await quiet.run_due()
    (missed,) = await app.events.list(kind="missed")
    assert missed.detail["schedule"] == "s"
    assert missed.detail["occurrences"] >= 9
    await FakeNode(hot, app.settings, "gone").register()
    await quiet.advance(hours=1)
    await Reaper(UpkeepStore(hot), app.settings).tick()
    (dead,) = await app.events.list(kind="node_dead")
    assert dead.detail["name"] == "gone"
    assert [each for each in await told(app) if each[0] != "late"] == [
        ("missed", "greet"),
        ("node_dead", ""),
    ]


async def test_an_overlap_that_is_skipped_is_told(quiet: Any, hot: Any) -> None:
    app = quiet.app
    await app.schedule("s", "greet", every="1d", overlap="skip")
    first, second = [(await app.schedules.trigger("s")).job_id for _ in range(2)]
    node = await FakeNode(hot, app.settings).register()
    jobs = {row["id"]: row for row in await node.claim()}
    assert {first, second} <= set(jobs)
    for id in (first, second):
        await node.store.begin_scheduled(node.id, [id], [jobs[id]["token"]])
    (event,) = await app.events.list(kind="overran")
    assert event.detail["schedule"] == "s"
    assert event.detail["reason"] == "overlap"
    assert ("overran", "greet") in await told(app)


async def test_another_namespace_hears_nothing(quiet: Any) -> None:
    schema = quiet.app.settings.schema
    store = await quiet.app.store()
    async with store.database.connection() as connection:
        await connection.execute(
            f"insert into {schema}.event (namespace, kind, task, detail)"
            " values ('other', 'slow', 'greet', '{}')"
        )
    assert await deliveries(quiet.app) == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"url": "ftp://x/"}, "begins with http"),
        ({"url": "https://x/", "kinds": ["all"]}, "kind 'all' is not one of"),
        ({"url": "https://x/", "form": "xml"}, "format 'xml'"),
        ({"url": "https://x/", "secret": "short"}, "16 to 200"),
    ],
)
async def test_a_webhook_that_cant_work_is_refused(
    app: App, arguments: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        await app.webhooks.add(**arguments)


async def test_webhooks_are_listed_once_and_removed(app: App) -> None:
    new = await app.webhooks.add("https://example.com/a", kinds=["slow"])
    with pytest.raises(Conflict, match="already"):
        await app.webhooks.add("https://example.com/a")
    (webhook,) = await app.webhooks.list()
    assert (webhook.id, webhook.kinds) == (new.id, ("slow",))
    assert not hasattr(webhook, "secret")
    await app.webhooks.remove(new.id)
    with pytest.raises(NotFound):
        await app.webhooks.remove(new.id)
    await app.webhooks.allow("10.0.0.0/8")
    assert await app.webhooks.allowed() == ["10.0.0.0/8"]
    await app.webhooks.disallow("10.0.0.0/8")
    with pytest.raises(ConfigError):
        await app.webhooks.allow("10.0.0/8/")
    enable_webhooks(app)
    enable_webhooks(app)
