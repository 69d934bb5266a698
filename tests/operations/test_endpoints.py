"""A task can be an HTTP endpoint: signed pushes, and answers that decide."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import msgspec
import pytest

from proof.waiting import eventually
from rota import App, ConfigError, InvalidArguments, Retry
from rota.core.administration import RetryNumbers
from rota.lib.ids import new_id
from rota.node import Node
from rota.operations.endpoint_callbacks import URL_HEADER
from rota.signing import verify_push
from rota.store.webhooks import WebhookStore
from tests.support.addresses import FORBIDDEN
from tests.support.endpoints import QUICK, SECRET, declare, pushing_app
from tests.support.receiver import Received, Receiver
from tests.support.server_fixtures import serving


@pytest.fixture
async def app(make_app: Callable[..., App]) -> App:
    return await pushing_app(make_app)


JSON = {"content-type": "application/json"}


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
    assert "127.0.0.1:1 failed" in jobs[0].error.message
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
    store = WebhookStore((await app.store()).database)
    for number, url in enumerate(FORBIDDEN):
        await app.endpoints.add(f"bad-{number}", url)
        with pytest.raises(ConfigError, match="not a public address"):
            await app.webhooks.add(url, kinds=["missed"])
        # One that was added while it was allowed, or whose name led elsewhere then.
        await store.add(new_id(), "default", url, "s" * 20, ["missed"], "json")
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
