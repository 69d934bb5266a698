"""A push that was answered with 202: its end is reported later, once, by whoever has its key."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest

from proof.waiting import eventually
from rota import App
from rota.lib.failpoints import armed_with
from rota.node import Node
from rota.operations.endpoint_callbacks import KEY_HEADER, URL_HEADER, make_key
from rota.signing import SIGNATURE_HEADER
from rota.store.endpoints import EndpointStore
from tests.support.cluster import Cluster
from tests.support.endpoints import declare, pushing_app
from tests.support.receiver import Received, Receiver
from tests.support.server_fixtures import LiveServer, serving


@pytest.fixture
async def app(make_app: Callable[..., App]) -> App:
    return await pushing_app(make_app)


async def report(live: LiveServer, got: Received, **body: Any) -> httpx.Response:
    """As a receiver would: with what the push carried, and no token."""
    client = await live.client(None)
    headers = {KEY_HEADER: got.headers[KEY_HEADER.lower()]}
    return await client.post(got.headers[URL_HEADER.lower()], json=body, headers=headers)


@pytest.fixture
async def live(app: App, receiver: Receiver) -> AsyncIterator[LiveServer]:
    """A node that pushes, and a server that is another."""
    declare(app, receiver)
    async with serving(app) as live, Node(app).running():
        yield live


async def pushed(receiver: Receiver, count: int = 1) -> Received:
    await eventually(lambda: len(receiver.received) >= count)
    return receiver.received[count - 1]


async def waits(app: App, id: Any) -> None:
    """Until the 202 was read."""

    async def asked() -> bool:
        progress = (await app.jobs.get(id)).progress
        return bool(progress) and "202" in progress["message"]

    await eventually(asked)


async def test_a_report_of_success_ends_the_job_and_again_is_the_same(
    app: App, receiver: Receiver, live: LiveServer
) -> None:
    receiver.answers.append((202, {}))
    handle = await app.submit("email_send")
    got = await pushed(receiver)
    await waits(app, handle.id)
    first = await report(live, got, result={"sent": 1})
    assert first.status_code == 200, first.text
    assert first.json() == {"id": str(handle.id), "outcome": "succeeded"}
    # It is ended, whatever becomes of the node.
    job = await app.jobs.get(handle.id)
    assert (job.state, job.result) == ("succeeded", {"sent": 1})
    again = await report(live, got, result={"sent": 1})
    assert (again.status_code, again.json()) == (200, first.json())
    otherwise = await report(live, got, outcome="failed")
    assert (otherwise.status_code, otherwise.json()["code"]) == (409, "reported")
    assert await app.jobs.get(handle.id) == job
    # Its place is free again, and nothing of it was refused.
    await eventually(lambda: _idle(app))
    assert len(receiver.received) == 1


async def _idle(app: App) -> bool:
    nodes = await app.nodes.list()
    return bool(nodes) and all(node.running == 0 for node in nodes)


async def test_a_report_of_failure_is_judged_by_the_tasks_policy(
    app: App, receiver: Receiver, live: LiveServer
) -> None:
    receiver.answers += [(202, {}), (202, {}), (202, {})]
    handle = await app.submit("email_send")
    first = await pushed(receiver)
    assert (await report(live, first, outcome="failed", error="busy")).status_code == 200
    second = await pushed(receiver, 2)
    # The attempt that failed is over: the same again is the same, and another story is none.
    assert (await report(live, first, outcome="failed", error="busy")).status_code == 200
    assert (await report(live, first)).status_code == 409
    assert (await report(live, second, outcome="failed", error="soon", retry_after=0)).is_success
    third = await pushed(receiver, 3)
    assert (await report(live, third, outcome="failed", error="never", fatal=True)).is_success
    job = await handle.wait(60)
    assert (job.state, job.attempt, job.error.message) == ("failed", 3, "never")
    assert [a.error.message for a in job.attempts] == ["busy", "soon", "never"]


async def test_a_report_may_come_before_the_202_was_read(
    app: App, receiver: Receiver, live: LiveServer
) -> None:
    receiver.answers += [(202, {}), (202, {}), (202, {})]
    outcomes = iter(["succeeded", "failed", "succeeded"])

    async def be_quick(got: Received) -> None:
        answer = await report(live, got, outcome=next(outcomes), error="early")
        assert answer.is_success, answer.text

    receiver.before_answer = be_quick
    job = await (await app.submit("email_send")).wait(60)
    assert (job.state, job.attempt) == ("succeeded", 1)
    job = await (await app.submit("email_send")).wait(60)
    assert (job.state, job.attempt) == ("succeeded", 2)
    assert job.attempts[0].error.message == "early"
    await eventually(lambda: _idle(app))


async def test_a_report_is_found_without_a_hint(
    app: App, receiver: Receiver, live: LiveServer
) -> None:
    """The heartbeat's pace stands behind it."""
    schema = app.settings.schema
    async with (await app.store()).database.connection() as connection:
        await connection.execute(
            f"create or replace function {schema}.notify(channel text, payload text) returns void "
            "language plpgsql as $$ begin if payload not like 'callback %' then "
            "perform pg_notify(channel, payload); end if; end $$"
        )
        try:
            receiver.answers += [(202, {}), (202, {})]
            handle = await app.submit("email_send")
            got = await pushed(receiver)
            await waits(app, handle.id)
            assert (await report(live, got, outcome="failed")).is_success
            second = await pushed(receiver, 2)
            assert (await report(live, second)).is_success
            await eventually(lambda: _idle(app))
        finally:
            await connection.execute(
                f"create or replace function {schema}.notify(channel text, payload text) returns void "
                "language plpgsql as $$ begin perform pg_notify(channel, payload); end $$"
            )


async def test_without_the_right_key_nothing_is_reported(
    app: App, receiver: Receiver, live: LiveServer
) -> None:
    receiver.answers += [(202, {}), (202, {})]
    handle = await app.submit("email_send")
    other = await app.submit("email_send")
    await pushed(receiver, 2)
    keys = {got.headers["rota-job"]: got.headers[KEY_HEADER.lower()] for got in receiver.received}
    key = keys[str(handle.id)]
    token, _, digest = key.partition("-")
    client = await live.client(None)
    admin = await live.client("admin", "*")
    wrong = ["", "-", "x", token, f"{token}-", f"{int(token) + 1}-{digest}", key[:-1], key + "0",
             keys[str(other.id)], "9" * 40 + "-x",
             make_key("guessed", handle.id, int(token))]  # fmt: skip
    for bad in wrong:
        for asker in (client, admin):  # a token is no key
            answer = await asker.post(
                f"/v1/jobs/{handle.id}/callback", json={}, headers={KEY_HEADER: bad}
            )
            assert answer.status_code == 404, bad
    nobodys = await client.post(
        f"/v1/jobs/{UUID(int=7)}/callback", json={}, headers={KEY_HEADER: key}
    )
    assert nobodys.status_code == 404
    assert (await app.jobs.get(handle.id)).state == "running"
    good = {KEY_HEADER: key}
    address = f"/v1/jobs/{handle.id}/callback"
    for body in (b"", b"{", b'{"outcome": "perhaps"}', b'{"x": 1}', b'{"retry_after": -1}'):
        assert (await client.post(address, content=body, headers=good)).status_code == 400, body
    assert (await client.post(address, json={}, headers=good)).status_code == 200
    key = keys[str(other.id)]
    answer = await client.post(f"/v1/jobs/{other.id}/callback", json={}, headers={KEY_HEADER: key})
    assert answer.status_code == 200


async def test_a_report_whose_answer_was_lost_is_repeated_without_harm(
    app: App, receiver: Receiver, live: LiveServer
) -> None:
    receiver.answers.append((202, {}))
    handle = await app.submit("email_send")
    got = await pushed(receiver)
    with armed_with("take_callback:after=error@1"):
        assert (await report(live, got, result=1)).status_code == 503
    assert (await report(live, got, result=1)).status_code == 200
    assert await handle.result(60) == 1


async def test_nothing_reported_in_time_is_a_failed_attempt(app: App, receiver: Receiver) -> None:
    task = declare(app, receiver, callback_timeout=0.2)
    receiver.answers.append((202, {}))
    async with serving(app) as live, Node(app).running():
        job = await (await task.submit()).wait(60)
        assert (job.state, job.attempt) == ("succeeded", 2)
        assert "nothing was reported within 0.2 s" in job.attempts[0].error.message
        stale = await report(live, receiver.received[0])
    assert (stale.status_code, stale.json()["code"]) == (409, "stale")
    assert "another attempt" in stale.json()["detail"]


async def test_a_job_that_waits_can_be_cancelled_and_its_report_comes_too_late(
    app: App, receiver: Receiver, live: LiveServer
) -> None:
    receiver.answers.append((202, {}))
    handle = await app.submit("email_send")
    got = await pushed(receiver)
    await waits(app, handle.id)
    await app.jobs.cancel(handle.id)
    assert (await handle.wait(60)).state == "cancelled"
    assert (await report(live, got)).status_code == 409
    assert (await app.jobs.get(handle.id)).state == "cancelled"


async def test_a_drain_gives_back_what_waits_and_its_report_is_stale(
    make_app: Callable[..., App], receiver: Receiver
) -> None:
    app = make_app(heartbeat=0.5, missed_heartbeats=20, port=0, grace=0.1)
    await app.webhooks.allow("127.0.0.1")
    declare(app, receiver)
    receiver.answers.append((202, {}))
    async with serving(make_app(port=0)) as live:
        async with Node(app).running():
            handle = await app.submit("email_send")
            got = await pushed(receiver)
            await waits(app, handle.id)
        job = await app.jobs.get(handle.id)
        assert (job.state, job.attempt) == ("ready", 0)
        assert (await report(live, got)).status_code == 409
        async with Node(app).running():
            assert (await handle.wait(60)).state == "succeeded"
        assert (await report(live, got)).status_code == 409
    assert len(receiver.received) == 2


@pytest.fixture
async def cluster(app: App, database_url: str, tmp_path: Path) -> AsyncIterator[Cluster]:
    cluster = Cluster(
        tmp_path, database_url, app.settings.schema, heartbeat=0.5, missed_heartbeats=6
    )
    yield cluster
    cluster.stop()


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
async def test_a_node_that_dies_while_it_waits(
    app: App, receiver: Receiver, cluster: Cluster, guarantee: str
) -> None:
    """A late report is refused and changes nothing; one in time stays, whatever dies then."""
    await app.endpoints.add("slow", receiver.url, guarantee=guarantee)  # type: ignore[arg-type]
    receiver.answers += [(202, {}), (202, {})]
    victim = cluster.start("worker")
    async with serving(app) as live:
        in_time = await app.submit("slow", {"n": 1})
        first = await pushed(receiver)
        late = await app.submit("slow", {"n": 2})
        second = await pushed(receiver, 2)
        victim.kill()
        victim.wait()
        # Its lease still runs: this is in time, and nobody needs the node for it.
        assert (await report(live, first, result="kept")).status_code == 200
        cluster.start("scheduler")
        await eventually(lambda: _moved_on(app, late.id))
        assert (await report(live, second)).status_code == 409
        cluster.start("worker")
        job = await late.wait(60)
        if guarantee == "at_most_once":
            assert (job.state, job.error.type) == ("failed", "NodeLost")
        else:
            assert (job.state, job.attempt) == ("succeeded", 2)
            third = await pushed(receiver, 3)
            assert int(third.headers["rota-token"]) > int(second.headers["rota-token"])
            assert (await report(live, second)).status_code == 409
        job = await in_time.wait(60)
        assert (job.state, job.attempt, job.result) == ("succeeded", 1, "kept")
        assert (await report(live, first, result="kept")).status_code == 200


async def _moved_on(app: App, id: Any) -> bool:
    return (await app.jobs.get(id)).state != "running"


async def test_what_is_reported_of_an_encrypted_job_is_encrypted(
    make_app: Callable[..., App], receiver: Receiver
) -> None:
    keys = f"one:{base64.b64encode(b'k' * 32).decode()}"
    app = await pushing_app(make_app, encryption_keys=keys)
    database = (await app.store()).database
    await database.fetch("set_encrypted", "default", True)
    declare(app, receiver)
    receiver.answers += [(202, {}), (202, {})]
    async with serving(app) as live, Node(app).running():
        handle = await app.submit("email_send", {"to": "zanzibar"})
        first = await pushed(receiver)
        assert msgspec.json.decode(first.body) == {"to": "zanzibar"}
        assert (await report(live, first, outcome="failed", error="zanzibar is full")).is_success
        second = await pushed(receiver, 2)
        assert (await report(live, second, result="zanzibar at last")).is_success
        job = await handle.wait(60)
        async with database.connection() as connection:
            schema = app.settings.schema
            rows = await connection.fetch(
                f"select to_jsonb(j)::text from {schema}.job as j "
                f"union all select to_jsonb(c)::text from {schema}.callback as c"
            )
    assert job.result == "zanzibar at last"
    assert job.attempts[0].error.message == "zanzibar is full"
    assert len(rows) == 3
    assert "zanzibar" not in str(rows)


async def test_old_reports_are_forgotten(app: App, receiver: Receiver, live: LiveServer) -> None:
    receiver.answers.append((202, {}))
    handle = await app.submit("email_send")
    got = await pushed(receiver)
    assert (await report(live, got)).is_success
    store = EndpointStore((await app.store()).database)
    await store.forget_callbacks(7)
    assert await store.find_callbacks([(handle.id, int(got.headers["rota-token"]))])
    await store.forget_callbacks(-1)
    assert not await store.find_callbacks([(handle.id, int(got.headers["rota-token"]))])
    assert SIGNATURE_HEADER.lower() in got.headers
    with contextlib.suppress(TimeoutError):
        await handle.wait(60)
