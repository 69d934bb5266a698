"""A task can be an HTTP endpoint: signed pushes, answers that decide, and reports that come later."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import msgspec
import pytest
from typer.testing import CliRunner

from proof.waiting import eventually
from rota import App, ConfigError, InvalidArguments, NotFound, Retry
from rota.cli import cli
from rota.errors import Conflict
from rota.lib.failpoints import armed_with
from rota.node import Node
from rota.operations.endpoint_callbacks import KEY_HEADER, URL_HEADER, make_key
from rota.signing import SIGNATURE_HEADER, verify_push
from rota.store.audit import AuditStore
from rota.store.endpoints import EndpointStore, RetryNumbers
from tests.support.addresses import FORBIDDEN
from tests.support.cluster import Cluster
from tests.support.receiver import Received, Receiver
from tests.support.server_fixtures import LiveServer, serving

SECRET = "a secret of some length"
QUICK = Retry(max_attempts=4, base=0.01, factor=1.0)
JSON = {"content-type": "application/json"}


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver().running() as receiver:
        yield receiver


@pytest.fixture
async def app(make_app: Callable[..., App]) -> App:
    app = make_app(heartbeat=0.5, missed_heartbeats=20, port=0)
    await app.webhooks.allow("127.0.0.1")
    return app


def declare(app: App, receiver: Receiver, **given: Any) -> Any:
    return app.endpoint(
        "email_send", **{"url": receiver.url, "secret": SECRET, "retry": QUICK, **given}
    )


# -- one push


async def test_a_push_says_whose_it_is_and_is_signed(app: App, receiver: Receiver) -> None:
    task = declare(app, receiver)
    receiver.answers.append((200, JSON, b'{"sent": [1, 2.50]}'))
    async with Node(app).running():
        handle = await task.submit(to="a@example.com", amount=12)
        assert await handle.result(60) == {"sent": [1, 2.5]}
    (got,) = receiver.received
    assert msgspec.json.decode(got.body) == {"to": "a@example.com", "amount": 12}
    assert got.headers["content-type"] == "application/json"
    assert got.headers["rota-namespace"] == "default"
    assert got.headers[URL_HEADER.lower()] == f"/v1/jobs/{handle.id}/callback"
    now = time.time()
    push = verify_push(SECRET, got.headers, got.body, now)
    assert push is not None
    assert (push.job, push.attempt, push.task) == (str(handle.id), 1, "email_send")
    assert push.token == (await app.jobs.get(handle.id)).token
    # Not with another secret, body, moment, job, token, attempt or task.
    assert verify_push("another secret", got.headers, got.body, now) is None
    assert verify_push(SECRET, got.headers, got.body + b" ", now) is None
    assert verify_push(SECRET, got.headers, got.body, now + 3600) is None
    for name, value in {"rota-job": str(UUID(int=0)), "rota-token": str(push.token + 1),
                        "rota-attempt": "2", "rota-task": "refund"}.items():  # fmt: skip
        assert verify_push(SECRET, {**got.headers, name: value}, got.body, now) is None
    assert verify_push(SECRET, {}, got.body, now) is None


async def test_a_payload_arrives_as_it_was_submitted(app: App, receiver: Receiver) -> None:
    declare(app, receiver)
    async with serving(app) as server, Node(app).running():
        client = await server.client("operator")
        body = (
            b'{"task": "email_send", "payload": {"n": 1.10, "big": 123456789012345678901234567890}}'
        )
        answer = await client.post("/v1/jobs", content=body, headers=JSON)
        assert answer.status_code == 201, answer.text
        await eventually(lambda: receiver.received)
    assert receiver.received[0].body == b'{"n": 1.10, "big": 123456789012345678901234567890}'


ANSWERS = [
    # status, headers, body; state, attempts, part of the error
    (200, {}, b"", "succeeded", 1, None),
    (204, {}, b"", "succeeded", 1, None),
    (200, {"content-type": "text/plain"}, b"fine", "succeeded", 1, None),
    (200, JSON, b"not JSON", "succeeded", 1, "is no JSON"),
    (200, {**JSON, "content-length": "1000"}, b'{"x": 1}', "succeeded", 1, "did not arrive whole"),
    (301, {"location": "/other"}, b"", "failed", 1, "redirects are not followed"),
    (307, {"location": "http://169.254.169.254/"}, b"", "failed", 1, "redirects are not followed"),
    (400, {}, b'{"error": "no such person"}', "failed", 1, '400: {"error": "no such person"}'),
    (404, {}, b"", "failed", 1, "answered with 404"),
    (410, {}, b"", "failed", 1, "answered with 410"),
    (408, {}, b"", "succeeded", 2, None),
    (425, {}, b"", "succeeded", 2, None),
    (429, {}, b"", "succeeded", 2, None),
    (500, {}, b"", "succeeded", 2, None),
    (502, {}, b"", "succeeded", 2, None),
    (503, {"retry-after": "0"}, b"", "succeeded", 2, None),
    (599, {}, b"", "succeeded", 2, None),
]


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: f"{case[0]} {case[5] or ''}")
async def test_the_answer_decides(app: App, receiver: Receiver, case: Any) -> None:
    status, headers, body, state, attempts, problem = case
    task = declare(app, receiver)
    receiver.answers.append((status, headers, body))
    async with Node(app).running():
        job = await (await task.submit()).wait(60)
    assert (job.state, job.attempt) == (state, attempts), job.error
    assert len(receiver.received) == attempts  # nowhere else was gone to
    assert {each.path for each in receiver.received} == {"/hook"}
    if problem is not None:
        assert problem in job.error.message
    tokens = [int(each.headers["rota-token"]) for each in receiver.received]
    assert tokens == sorted(set(tokens))


async def test_chunks_are_one_body(app: App, receiver: Receiver) -> None:
    task = declare(app, receiver)
    chunked = {**JSON, "transfer-encoding": "chunked"}
    receiver.answers.append((200, chunked, b"4;x=y\r\n[1, \r\n2\r\n2]\r\n0\r\n\r\n"))
    async with Node(app).running():
        assert await (await task.submit()).result(60) == [1, 2]


async def test_a_result_that_is_too_large_is_left_out_and_the_job_stays_done(
    make_app: Callable[..., App], receiver: Receiver
) -> None:
    app = make_app(heartbeat=0.5, missed_heartbeats=20, max_result_bytes=1000)
    await app.webhooks.allow("127.0.0.1")
    task = declare(app, receiver)
    receiver.answers.append((200, JSON, b'"' + b"x" * 2000 + b'"'))
    async with Node(app).running():
        job = await (await task.submit()).wait(60)
    assert (job.state, job.result, job.error.type) == ("succeeded", None, "ResultDropped")


@pytest.mark.parametrize("status", [429, 503])
async def test_retry_after_is_respected_in_seconds_and_as_a_date(
    app: App, receiver: Receiver, status: int
) -> None:
    task = declare(app, receiver)
    receiver.answers.append((status, {"retry-after": "1800"}))
    receiver.answers.append(
        (status, {"date": "Fri, 01 Jan 2027 00:00:00 GMT",
                  "retry-after": "Fri, 01 Jan 2027 02:00:00 GMT"})
    )  # fmt: skip
    async with Node(app).running():
        for number, seconds in ((1, 1800), (2, 7200)):
            handle = await task.submit()
            job = await eventually(lambda h=handle: _scheduled(app, h.id))
            ended = job.attempts[0].ended_at
            assert seconds - 5 < (job.due_at - ended).total_seconds() < seconds + 5, number


async def _scheduled(app: App, id: UUID) -> Any:
    job = await app.jobs.get(id)
    return job if job.state == "scheduled" else None


async def test_what_does_not_answer_is_tried_again_and_in_the_end_dead_lettered(
    app: App, receiver: Receiver
) -> None:
    closed = receiver.url.replace(str(receiver.port), "1")
    refused = app.endpoint("refused", url=closed, secret=SECRET, retry=QUICK)
    unknown = app.endpoint(
        "unknown", url="http://no-such-host.invalid/", secret=SECRET, retry=QUICK
    )
    silent = declare(app, receiver, timeout=0.1, retry=Retry(max_attempts=2, base=0.01))
    forever = asyncio.Event()

    async def say_nothing(_: Received) -> None:
        await forever.wait()

    receiver.before_answer = say_nothing
    async with Node(app).running():
        handles = [await task.submit() for task in (refused, unknown, silent)]
        jobs = [await handle.wait(60) for handle in handles]
        forever.set()
    assert [(job.state, job.attempt) for job in jobs] == [
        ("failed", 4),
        ("failed", 4),
        ("failed", 2),
    ]
    assert "could not be spoken to" in jobs[0].error.message
    assert "there is no host" in jobs[1].error.message
    assert "did not answer within 0.1 s" in jobs[2].error.message


async def test_at_most_once_is_pushed_once(app: App, receiver: Receiver) -> None:
    task = declare(app, receiver, guarantee="at_most_once")
    receiver.answers.append((500, {}))
    async with Node(app).running():
        job = await (await task.submit()).wait(60)
    assert (job.state, job.attempt, len(receiver.received)) == ("failed", 1, 1)


async def test_an_address_that_is_not_public_is_refused_for_good(
    make_app: Callable[..., App], receiver: Receiver
) -> None:
    app = make_app(heartbeat=0.5, missed_heartbeats=20)  # and nobody allowed it
    task = declare(app, receiver)
    async with Node(app).running():
        job = await (await task.submit()).wait(60)
    assert (job.state, job.attempt, receiver.received) == ("failed", 1, [])
    assert "not a public address" in job.error.message


async def test_no_way_of_writing_a_forbidden_address_leads_a_push_or_a_webhook_there(
    make_app: Callable[..., App],
) -> None:
    app = make_app(heartbeat=0.5, missed_heartbeats=20)
    for number, url in enumerate(FORBIDDEN):
        await app.endpoints.add(f"bad-{number}", url)
        await app.webhooks.add(url, kinds=["missed"])
    webhooks = await app.webhooks.list()
    async with Node(app).running():
        handles = [await app.submit(f"bad-{number}") for number in range(len(FORBIDDEN))]
        handles += [await app.webhooks.test(webhook.id) for webhook in webhooks]
        for handle in handles:
            job = await handle.wait(60)
            assert (job.state, job.attempt, job.error.type) == ("failed", 1, "rota.errors.Fatal")
            assert "not a public address" in job.error.message


async def test_a_name_that_changes_its_mind_between_look_and_push_is_asked_once(
    app: App, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["127.0.0.1", "10.255.255.1"]
    real = asyncio.BaseEventLoop.getaddrinfo

    async def getaddrinfo(loop: Any, host: Any, port: Any, **given: Any) -> Any:
        if host != "rebinding.example":
            return await real(loop, host, port, **given)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (answers.pop(0), port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    declare(app, receiver, url=f"http://rebinding.example:{receiver.port}/hook")
    async with Node(app).running():
        job = await (await app.submit("email_send")).wait(60)
        assert (job.state, answers) == ("succeeded", ["10.255.255.1"])
        assert receiver.received[0].headers["host"] == f"rebinding.example:{receiver.port}"
        # The next push asks anew, and doesn't go there.
        job = await (await app.submit("email_send")).wait(60)
    assert job.state == "failed"
    assert "10.255.255.1, which is not a public address" in job.error.message


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"guarantee": "exactly_once"}, "can't be exactly_once: its effects are in another"),
        ({"url": "ftp://x/"}, "begins with http"),
        ({"url": "http://user:word@x/"}, "a name or a password"),
        ({"secret": "short"}, "16 to 200"),
        ({"timeout": 0}, "timeout must be above 0"),
        ({"callback_timeout": 1e9}, "at most 30 days"),
        ({"name": "rota.command"}, "Rota's own"),
        ({"name": "a b"}, "not a usable name"),
        ({"retry": {"max_attempts": 0}}, "max_attempts"),
    ],
)
async def test_an_endpoint_that_cant_work_is_refused(
    app: App, given: dict[str, Any], complaint: str
) -> None:
    whole = {"name": "x", "url": "https://example.com/", "secret": SECRET, **given}
    name, retry = whole.pop("name"), whole.pop("retry", {})
    with pytest.raises(ConfigError, match=complaint):
        app.endpoint(name, **whole, retry=Retry(**retry))
    url = whole.pop("url")
    with pytest.raises(ConfigError, match=complaint):
        await app.endpoints.add(name, url, **whole, retry=RetryNumbers(**retry))
    assert app.tasks == {}
    assert await app.endpoints.list() == []


async def test_it_is_submitted_by_name_and_not_called(app: App, receiver: Receiver) -> None:
    task = declare(app, receiver)
    with pytest.raises(InvalidArguments):
        await task.submit("by position")
    with pytest.raises(ConfigError, match="not called"):
        await task(to="x")
    with pytest.raises(ConfigError, match="two tasks"):
        declare(app, receiver)


async def test_a_job_that_asks_for_exactly_once_is_not_pushed(app: App, receiver: Receiver) -> None:
    declare(app, receiver)
    async with serving(app) as server, Node(app).running():
        client = await server.client("operator")
        said = {"task": "email_send", "guarantee": "exactly_once"}
        assert "guarantee" in (await client.post("/v1/jobs", json=said)).json()["detail"]
        by_sql = f"select {app.settings.schema}.submit('email_send', guarantee => 'exactly_once')"
        async with (await app.store()).database.connection() as connection:
            id = await connection.fetchval(by_sql)
        job = await eventually(lambda: _ended(app, id))
    assert (job.state, receiver.received) == ("failed", [])


async def _ended(app: App, id: Any) -> Any:
    job = await app.jobs.get(id)
    return job if job.finished_at else None


# -- done later


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
    app = make_app(heartbeat=0.5, missed_heartbeats=20, port=0, encryption_keys=keys)
    await app.webhooks.allow("127.0.0.1")
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


# -- stored ones


async def test_a_stored_endpoint_is_served_by_running_nodes_as_it_comes_changes_and_goes(
    make_app: Callable[..., App], app: App, receiver: Receiver
) -> None:
    client = make_app()
    async with Node(app).running():
        handle = await client.submit("hello", {"n": 1})  # nobody knows it yet
        new = await client.endpoints.add("hello", receiver.url, queue="default")
        assert (await handle.wait(60)).state == "succeeded"
        got = receiver.received[0]
        assert verify_push(new.secret, got.headers, got.body, time.time()) is not None
        (node,) = await app.nodes.list()
        explained = await client.jobs.explain(handle.id)
        assert explained.code == "succeeded"
        # Another place, another secret.
        other = "another secret of some length"
        shown = await client.endpoints.change("hello", url=f"{receiver.url}/2", secret=other)
        assert shown.url == f"{receiver.url}/2"

        async def is_followed() -> bool:
            await (await client.submit("hello")).wait(60)
            return receiver.received[-1].path == "/hook/2"

        await eventually(is_followed)
        got = receiver.received[-1]
        assert verify_push(other, got.headers, got.body, time.time()) is not None
        # Gone: its jobs stay where they are, and it is said why.
        await client.endpoints.remove("hello")
        await eventually(lambda: _knows(app, "hello", False))
        pushes = len(receiver.received)
        left = await client.submit("hello")
        explained = await client.jobs.explain(left.id)
        assert (explained.code, len(receiver.received)) == ("task_unknown", pushes)
        assert (await client.jobs.get(left.id)).state == "ready"
        # And back.
        await client.endpoints.add("hello", receiver.url)
        assert (await left.wait(60)).state == "succeeded"
        await eventually(lambda: _knows(app, "hello", True))
    assert node.id


async def _knows(app: App, task: str, known: bool) -> bool:
    schema = app.settings.schema
    async with (await app.store()).database.connection() as connection:
        tasks = await connection.fetchval(
            f"select tasks from {schema}.node where state = 'live' and 'worker' = any(roles)"
        )
    return (task in tasks) is known


async def test_a_stored_endpoint_says_how_its_jobs_are(app: App, receiver: Receiver) -> None:
    """Also to who submits in SQL, before any node has heard of it."""
    await app.endpoints.add(
        "hello", receiver.url, queue="mail", needs=["dmz"], priority=7, guarantee="at_most_once",
        retry=RetryNumbers(max_attempts=9),
    )  # fmt: skip
    async with (await app.store()).database.connection() as connection:
        id = await connection.fetchval(f"select {app.settings.schema}.submit('hello')")
    job = await app.jobs.get(id)
    assert (job.queue, job.needs, job.priority, job.guarantee, job.max_attempts) == (
        "mail", ("dmz",), 7, "at_most_once", 9,
    )  # fmt: skip
    await app.endpoints.change("hello", queue="post", needs=[], retry=RetryNumbers(max_attempts=2))
    job = await app.jobs.get((await app.submit("hello")).id)
    assert (job.queue, job.needs, job.max_attempts) == ("post", (), 2)


async def test_a_stored_endpoint_is_served_where_it_is_wanted(
    make_app: Callable[..., App], app: App, receiver: Receiver
) -> None:
    await app.endpoints.add("hello", receiver.url)
    async with Node(make_app(serve_endpoints=False)).running():
        handle = await app.submit("hello")
        explained = await app.jobs.explain(handle.id)
        assert explained.code == "task_unknown"
        elsewhere = make_app(namespace="other")
        async with Node(elsewhere).running():
            away = await elsewhere.submit("hello")
            assert (await elsewhere.jobs.explain(away.id)).code == "task_unknown"
        assert receiver.received == []
        async with Node(make_app(heartbeat=0.5, missed_heartbeats=20)).running():
            assert (await handle.wait(60)).state == "succeeded"


async def test_a_name_that_code_has_is_the_codes(app: App, receiver: Receiver) -> None:
    @app.task
    async def hello() -> str:
        return "from code"

    await app.endpoints.add("hello", receiver.url)
    async with Node(app).running():
        assert await (await hello.submit()).result(60) == "from code"
    assert receiver.received == []


async def test_another_namespace_has_its_own(make_app: Callable[..., App], app: App) -> None:
    other = make_app(namespace="other")
    await app.endpoints.add("hello", "https://example.com/a")
    await other.endpoints.add("hello", "https://example.com/b")
    with pytest.raises(Conflict, match="already"):
        await app.endpoints.add("hello", "https://example.com/a")
    (shown,) = await app.endpoints.list()
    assert shown.url == "https://example.com/a"
    assert not hasattr(shown, "secret")
    await other.endpoints.remove("hello")
    for question in (other.endpoints.get, other.endpoints.remove):
        with pytest.raises(NotFound):
            await question("hello")
    with pytest.raises(NotFound):
        await other.endpoints.change("hello", queue="slow")
    assert (await app.endpoints.get("hello")).guarantee == "at_least_once"
    with pytest.raises(ConfigError, match="exactly_once"):
        await app.endpoints.change("hello", guarantee="exactly_once")
    with pytest.raises(ConfigError, match="no field 'colour'"):
        await app.endpoints.change("hello", colour="x")


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


# -- the command line


async def test_the_command_line_adds_shows_changes_and_removes(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROTA_DATABASE_URL", app.settings.database_url or "")
    monkeypatch.setenv("ROTA_SCHEMA", app.settings.schema)

    async def rota(*arguments: str) -> Any:
        words = ["endpoints", *arguments, "--json"]
        ran = await asyncio.to_thread(CliRunner().invoke, cli, words)
        return msgspec.json.decode(ran.stdout) if ran.exit_code == 0 else ran.stderr

    new = await rota("add", "greet", "https://example.com/", "--max-attempts", "3", "--need", "dmz")
    assert new["endpoint"]["name"] == "greet"
    (shown,) = await rota("list")
    assert (shown["retry"]["max_attempts"], shown["needs"]) == (3, ["dmz"])
    assert "secret" not in shown
    file = tmp_path / "secret"
    file.write_text("a new secret of some length\n")
    changed = await rota("change", "greet", "--timeout", "5", "--secret-file", str(file))
    assert changed == {**shown, "timeout": 5.0, "updated_at": changed["updated_at"]}
    (row,) = await EndpointStore((await app.store()).database).list("default")
    assert row.secret == "a new secret of some length"
    assert await rota("show", "greet") == changed
    assert "exactly_once" in await rota("change", "greet", "--guarantee", "exactly_once")
    assert "give at least one option to change" in await rota("change", "greet")
    assert await rota("remove", "greet", "--yes") == {"removed": "greet"}
    assert "there is no endpoint" in await rota("remove", "greet", "--yes")
    changes = await AuditStore((await app.store()).database).list("default")
    told = [(each.action, each.subject) for each in reversed(changes)]
    assert [each for each in told if each[1] == "endpoint greet"] == [
        ("create", "endpoint greet"), ("change", "endpoint greet"), ("remove", "endpoint greet"),
    ]  # fmt: skip
