"""Many jobs in one request."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import psutil
import pytest

from rota.server.api.bulk import Lines
from tests.support.server_fixtures import LiveServer

MEGABYTE = 1_000_000


def ndjson(*jobs) -> bytes:
    return b"".join(json.dumps(job).encode() + b"\n" for job in jobs)


async def post(client, body, **params):
    answer = await client.post("/v1/jobs:bulk", content=body, params=params)
    assert answer.status_code == 200, answer.text
    return answer


async def in_database(server: LiveServer) -> list[dict]:
    store = await server.app.store()
    async with store.database.connection() as c:
        rows = await c.fetch(f"select * from {server.app.settings.schema}.job order by id")
    return [dict(row) for row in rows]


async def test_each_line_is_a_job_with_its_own_options(server: LiveServer):
    @server.app.task(queue="known", priority=3)
    async def known(n: int) -> None: ...

    store = await server.app.store()
    async with store.database.connection() as c:  # as a node elsewhere registers its tasks
        await c.execute(
            f"insert into {server.app.settings.schema}.task values"
            " ('default', 'elsewhere', 'far', '{gpu}', 5, 2, 9, 60)"
        )
    client = await server.client("operator")
    body = ndjson(
        {"task": "plain"},
        {"job_type": "mail", "queue": "mail", "retries": 2, "payload": {"n": 1}, "tags": ["blue"]},
        {"task": "later", "delay": 3600, "priority": 4, "needs": ["big"]},
        {"task": "known", "payload": {"n": 5}},
        {"task": "elsewhere", "max_attempts": 1},
    )
    summary = (await post(client, body)).json()
    assert len(summary.pop("warnings")) == 3  # nobody has registered those tasks
    assert summary == {"lines": 5, "stored": 5, "existed": 0, "refused": 0, "errors": []}
    jobs = {job["task"]: job for job in await in_database(server)}
    assert (jobs["plain"]["lane"], jobs["plain"]["max_attempts"]) == ("default/default", 5)
    assert (jobs["mail"]["lane"], jobs["mail"]["max_attempts"]) == ("default/mail", 3)
    assert json.loads(jobs["mail"]["headers"]) == {"tags": ["blue"]}
    assert (jobs["later"]["lane"], jobs["later"]["state"]) == ("default/default+big", 2)
    assert (jobs["known"]["lane"], jobs["known"]["priority"]) == ("default/known", 3)
    far = jobs["elsewhere"]
    assert (far["lane"], far["priority"], far["guarantee"]) == ("default/far+gpu", 5, 2)
    assert (far["max_attempts"], far["timeout"]) == (1, 60)
    assert {queue.name for queue in await server.app.queues.list()} >= {"mail", "far", "known"}


async def test_a_broken_line_is_refused_alone(server: LiveServer):
    client = await server.client("operator")
    body = b"\n".join(
        [
            b'{"task": "good", "payload": {"n": 1}}',
            b"{not json",
            b"",
            b'{"task": "a b"}',
            b'{"task": "good", "payload": {"n": 2}}\r',
            b'{"task": "good", "payload": {"deep": ' + b"[" * 20_000 + b"]" * 20_000 + b"}}",
            b'{"task": "good", "payload": {"half": "\\ud800"}}',
            b'{"task": "good", "payload": {"nul": "\\u0000"}}',
            b'{"task": "good", "payload": {"nan": NaN}}',
            b'{"task": "good", "payload": {"bytes": "\xff"}}',
            b'{"task": "good", "key": "\\u0000"}',
            b'{"task": "good", "payload": {"n": 3}}',
        ]
    )
    summary = (await post(client, body)).json()
    assert (summary["lines"], summary["stored"], summary["refused"]) == (12, 3, 8)
    assert [error["line"] for error in summary["errors"]] == [2, 4, 6, 7, 8, 9, 10, 11]
    stored = [json.loads(job["payload"])["n"] for job in await in_database(server)]
    assert sorted(stored) == [1, 2, 3]


async def test_with_stop_a_broken_line_ends_it(server: LiveServer):
    client = await server.client("operator")
    body = ndjson({"task": "one"}, {"task": "two"}) + b"rubbish\n" + ndjson({"task": "three"})
    summary = (await post(client, body, on_error="stop")).json()
    assert (summary["stored"], summary["refused"], summary["lines"]) == (2, 1, 3)
    assert {job["task"] for job in await in_database(server)} == {"one", "two"}


async def test_keys_hold_within_a_bulk_and_between_them(server: LiveServer):
    client = await server.client("operator")
    body = ndjson(
        {"task": "pay", "key": "a", "payload": {"n": 1}},
        {"task": "free"},
        {"task": "pay", "key": "a", "payload": {"n": 1}},
        {"task": "pay", "key": "a", "payload": {"n": 2}},
    )
    first = (await post(client, body, answer="lines")).text.splitlines()
    told = [json.loads(line) for line in first]
    assert told[0]["id"] == told[2]["id"]
    assert told[2]["existed"] is True
    assert told[3]["code"] == "key-conflict"
    told[4]["summary"].pop("warnings")
    assert told[4] == {"summary": {"lines": 4, "stored": 2, "existed": 1, "refused": 1}}
    again = (await post(client, body)).json()
    assert (again["stored"], again["existed"], again["refused"]) == (1, 2, 1)
    assert Counter(job["task"] for job in await in_database(server)) == {"pay": 1, "free": 2}


async def test_a_hundred_thousand_jobs_in_one_request_need_no_more_memory(server: LiveServer):
    client = await server.client("operator")
    line = ndjson({"task": "many", "payload": {"text": "x" * 100}})
    await post(client, line * 5000)
    peak = before = psutil.Process().memory_info().rss

    async def stream():
        nonlocal peak
        for _ in range(100):
            yield line * 1000
            peak = max(peak, psutil.Process().memory_info().rss)

    summary = (await post(client, stream())).json()
    assert summary["stored"] == 100_000
    store = await server.app.store()
    async with store.database.connection() as c:
        count = await c.fetchval(f"select count(*) from {server.app.settings.schema}.present")
    assert count == 105_000
    assert peak - before < 40 * MEGABYTE


async def test_a_quota_in_the_middle_ends_it_and_says_how_far_it_came(server: LiveServer):
    store = await server.app.store()
    async with store.database.connection() as c:
        await c.execute(
            f"insert into {server.app.settings.schema}.namespace (name, max_jobs)"
            " values ('default', 3000)"
        )
    server.context.quotas.forget()
    client = await server.client("operator")
    answer = await client.post("/v1/jobs:bulk", content=ndjson({"task": "x"}) * 5000)
    assert answer.status_code == 429
    assert "retry-after" in answer.headers
    assert {"name": "jobs_dealt_with", "message": "2000"} in answer.json()["fields"]
    assert len(await in_database(server)) == 2000


async def test_a_client_that_goes_away_leaves_whole_chunks(server: LiveServer):
    client = await server.client("operator")
    line = ndjson({"task": "cut"})

    async def cut():
        yield line * 4500
        async with asyncio.timeout(60):
            while not await in_database(server):
                await asyncio.sleep(0.05)
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        await post(client, cut())
    await post(client, ndjson({"task": "another"}))
    counted = Counter(job["task"] for job in await in_database(server))
    assert counted["another"] == 1
    assert counted["cut"] in (2000, 4000)


def test_a_line_that_is_too_long_is_passed_over_without_being_held():
    lines = Lines(10)
    got = [*lines.feed(b"short\n" + b"x" * 50)]
    for _ in range(1000):
        got += lines.feed(b"x" * 50)
        assert sum(map(len, lines._begun)) <= 60
    got += [*lines.feed(b"xxx\nnext\nlast"), *lines.end()]
    assert got == [b"short", None, b"next", b"last"]
