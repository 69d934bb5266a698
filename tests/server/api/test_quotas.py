"""Full queues, rates of tokens and pools over HTTP, with the client and on the command line."""

from __future__ import annotations

import asyncio
import json

import pytest

from rota import QueueFull
from rota.client import AsyncClient
from rota.errors import TooManyRequests
from rota.scheduler.depths import Depths
from tests.support.server_fixtures import LiveServer, serving


class Nobody:
    def held(self):
        return []


async def fill(server: LiveServer, most: int = 2) -> None:
    await server.app.queues.set_max_depth("default", most)
    for _ in range(most):
        await server.app.submit("greet", {})


async def test_a_full_queue_is_answered_with_429_and_when_to_come_back(server: LiveServer):
    await fill(server)
    client = await server.client("operator")
    answer = await client.post("/v1/jobs", json={"task": "greet"})
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    problem = answer.json()
    assert (problem["code"], problem["quota"], problem["subject"]) == (
        "queue-full",
        "queue",
        "default",
    )
    assert (problem["depth"], problem["max_depth"]) == (2, 2)
    assert "queue 'default' has 2 jobs that have not ended" in problem["detail"]


async def test_a_key_that_was_stored_before_is_answered_as_before(server: LiveServer):
    await server.app.queues.set_max_depth("default", 1)
    client = await server.client("operator")
    headers = {"Idempotency-Key": "order-1"}
    first = await client.post("/v1/jobs", json={"task": "greet"}, headers=headers)
    again = await client.post("/v1/jobs", json={"task": "greet"}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json()["id"] == again.json()["id"]


@pytest.mark.parametrize("keyed", [False, True])
async def test_a_bulk_ends_where_the_queue_is_full(server: LiveServer, keyed: bool):
    await server.app.queues.set_max_depth("default", 2)
    client = await server.client("operator")
    lines = [{"task": "greet", **({"key": f"k{n}"} if keyed else {})} for n in range(3)]
    answer = await client.post("/v1/jobs:bulk", content="\n".join(map(json.dumps, lines)))
    assert answer.status_code == 429
    assert answer.json()["code"] == "queue-full"
    assert await server.app.jobs.list() == []


async def test_the_client_raises_the_same_error_at_once_or_waits(server: LiveServer):
    await fill(server, 1)
    [job] = await server.app.jobs.list()
    token = await server.token("operator")
    async with AsyncClient(server.url, token=token) as client:
        with pytest.raises(QueueFull) as caught:
            await client.jobs.submit("greet")
        full = caught.value
        assert (full.queue, full.quota, full.depth, full.max_depth) == ("default", "queue", 1, 1)
        assert full.retry_after
        assert full.status == 429
        with pytest.raises(QueueFull):
            await client.jobs.submit("greet", block=True, block_timeout=0.2)
        with pytest.raises(QueueFull):
            await client.jobs.submit_many([{"task": "greet"}])
        waiting = asyncio.create_task(client.jobs.submit("greet", block=True))
        many = asyncio.create_task(client.jobs.submit_many([{"task": "greet", "queue": "b"}]))
        assert len((await many).ids) == 1
        await server.app.jobs.cancel(job.id)
        assert (await waiting).task == "greet"


async def test_settings_over_http_are_checked_and_shown(server: LiveServer):
    client = await server.client("operator")
    await server.app.submit("greet", {})
    for bad in (0, -1, 1.5, "3", 2**60):
        answer = await client.put("/v1/queues/default", json={"max_depth": bad})
        assert answer.status_code in (400, 422)
        assert "max_depth" in answer.text
    answer = await client.put("/v1/queues/default", json={"max_depth": 5})
    assert (answer.json()["max_depth"], answer.json()["depth"]) == (5, 1)
    answer = await client.put("/v1/queues/default", json={"max_run_time": 60})
    assert answer.json()["max_depth"] == 5
    answer = await client.put("/v1/queues/default", json={"max_depth": None})
    assert (answer.json()["max_depth"], answer.json()["depth"]) == (None, None)


async def test_a_namespace_has_a_limit_of_its_own_that_other_namespaces_do_not_feel(
    server: LiveServer,
):
    boss = await server.client("admin", "*")
    answer = await boss.put("/v1/namespaces/acme", json={"max_depth": 1})
    assert answer.json()["limits"]["max_depth"] == 1
    acme, other = await server.client("operator", "acme"), await server.client("operator", "other")
    assert (await acme.post("/v1/jobs", json={"task": "greet"})).status_code == 201
    answer = await acme.post("/v1/jobs", json={"task": "greet", "queue": "elsewhere"})
    assert (answer.status_code, answer.json()["quota"]) == (429, "namespace")
    assert (await other.post("/v1/jobs", json={"task": "greet"})).status_code == 201
    answer = await boss.delete("/v1/namespaces/acme")
    assert answer.status_code == 200
    assert (await acme.post("/v1/jobs", json={"task": "greet"})).status_code == 201


async def test_metrics_and_events_tell_of_a_full_queue(server: LiveServer):
    await fill(server)
    await Depths((await server.app.store()).database, Nobody()).keep()  # type: ignore[arg-type]
    client = await server.client("viewer")
    text = (await client.get("/metrics")).text
    for line in (
        'rota_queue_depth{namespace="default",queue="default"} 2.0',
        'rota_queue_max_depth{namespace="default",queue="default"} 2.0',
        'rota_queue_full{namespace="default",queue="default"} 1.0',
    ):
        assert line in text
    events = (await client.get("/v1/events")).json()["items"]
    assert "queue_full" in [event["kind"] for event in events]


# -- rates of tokens


async def test_a_tokens_rate_holds_for_all_servers_together(make_app):
    app = make_app(port=0)
    async with serving(app) as one, serving(app) as two:
        boss = await one.client("admin")
        made = await boss.post(
            "/v1/tokens", json={"name": "slow", "role": "operator", "submits_per_second": 0.01}
        )
        assert made.json()["info"]["submits_per_second"] == 0.01
        answers = []
        for server in (one, two):
            client = await server.client(None)
            client.headers["Authorization"] = f"Bearer {made.json()['token']}"
            answers.append(await client.post("/v1/jobs", json={"task": "greet"}))
            answers.append(await client.post("/v1/jobs:bulk", content='{"task": "greet"}'))
        assert [answer.status_code for answer in answers] == [201, 429, 429, 429]
        assert 90 <= int(answers[1].headers["retry-after"]) <= 100
        assert "submits a second" in answers[2].json()["detail"]
        assert len(await app.jobs.list()) == 1
        assert (await boss.post("/v1/jobs", json={"task": "greet"})).status_code == 201


async def test_a_token_that_a_limited_one_makes_is_no_faster(server: LiveServer):
    boss = await server.client("admin")
    made = await boss.post(
        "/v1/tokens", json={"name": "slow", "role": "admin", "submits_per_second": 5}
    )
    client = await server.client(None)
    client.headers["Authorization"] = f"Bearer {made.json()['token']}"
    for asked, got in ((None, 5), (50, 5), (2, 2)):
        body = {"name": "child", "role": "operator", "submits_per_second": asked}
        info = (await client.post("/v1/tokens", json=body)).json()["info"]
        assert info["submits_per_second"] == got
    answer = await boss.post(
        "/v1/tokens", json={"name": "x", "role": "admin", "submits_per_second": 0}
    )
    assert answer.status_code in (400, 422)


async def test_the_client_repeats_what_a_tokens_rate_refuses_for_a_while(server: LiveServer):
    token = await server.token("operator", submits_per_second=0.01)
    async with AsyncClient(server.url, token=token, timeout=0.5) as client:
        await client.jobs.submit("greet")
        with pytest.raises(TooManyRequests) as caught:
            await client.jobs.submit("greet")
        assert not isinstance(caught.value, QueueFull)


# -- pools


async def test_pools_over_http_and_with_the_client(server: LiveServer):
    client = await server.client("operator")
    answer = await client.put("/v1/pools/all", json={"max_slots": 16, "slots_per_worker": 8})
    assert answer.status_code == 200
    await server.app.submit("greet", {})
    pool = (await client.get("/v1/pools/all")).json()
    assert (pool["slots"], pool["workers"], pool["max_slots"]) == (0, 0, 16)
    for bad, field in (({}, "max_slots"), ({"max_slots": 4, "min_slots": 5}, "min_slots")):
        answer = await client.put("/v1/pools/all", json=bad)
        assert answer.status_code in (400, 422)
        assert field in answer.text
    viewer = await server.client("viewer")
    assert (await viewer.put("/v1/pools/all", json={"max_slots": 1})).status_code == 403
    token = await server.token("operator")
    async with AsyncClient(server.url, token=token) as own:
        assert (await own.pools.put("more", max_slots=3)).max_slots == 3
        assert [one.name for one in await own.pools.list()] == ["all", "more"]
        await own.pools.delete("more")
    assert (await client.get("/v1/pools/more")).status_code == 404
    text = (await viewer.get("/metrics")).text
    assert 'rota_pool_slots{namespace="default",pool="all"} 0.0' in text
