"""Endpoints and webhooks over HTTP; and small things of the job routes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from proof.waiting import eventually
from rota import App
from rota.node import Node
from rota.signing import SIGNATURE_HEADER, verify, verify_push
from tests.support.api import query
from tests.support.receiver import Receiver
from tests.support.server_fixtures import LiveServer, serving


async def changes(server: LiveServer) -> list[tuple[str, str]]:
    return [
        tuple(row)
        for row in await query(server, "select action, subject from {}.audit order by id")
    ]


# -- endpoints


async def test_with_only_the_server_and_a_worker_jobs_of_any_language_run(
    make_app: Callable[..., App], receiver: Receiver
) -> None:
    app = make_app(port=0, heartbeat=0.5, missed_heartbeats=20)
    await app.webhooks.allow("127.0.0.1")
    async with serving(make_app(port=0)) as server, Node(app).running():
        admin = await server.client("admin")
        said = {"name": "greet", "url": receiver.url, "retry": {"max_attempts": 2}}
        made = await admin.post("/v1/endpoints", json=said)
        assert made.status_code == 201, made.text
        secret = made.json()["secret"]
        assert made.json()["endpoint"]["retry"]["max_attempts"] == 2
        receiver.answers.append(
            (200, {"content-type": "application/json"}, b'{"greeting": "hello"}')
        )
        operator = await server.client("operator")
        job = (await operator.post("/v1/jobs", json={"task": "greet", "payload": {"n": 1}})).json()

        async def ended() -> Any:
            result = (await operator.get(f"/v1/jobs/{job['id']}/result")).json()
            return result if result["ended"] else None

        assert (await eventually(ended))["result"] == {"greeting": "hello"}
        (got,) = receiver.received
        assert verify_push(secret, got.headers, got.body, time.time()) is not None


async def test_endpoints_are_made_seen_changed_and_removed(server: LiveServer) -> None:
    admin = await server.client("admin")
    said = {"name": "greet", "url": "https://example.com/greet", "secret": "x" * 20, "queue": "q"}
    made = await admin.post("/v1/endpoints", json=said)
    assert made.json()["secret"] == "x" * 20
    again = await admin.post("/v1/endpoints", json=said)
    assert (again.status_code, again.json()["code"]) == (409, "exists")
    operator = await server.client("operator")
    (shown,) = (await operator.get("/v1/endpoints")).json()["items"]
    assert (shown["name"], shown["queue"], shown["timeout"]) == ("greet", "q", 30.0)
    assert "secret" not in shown
    assert (await operator.get("/v1/endpoints/greet")).json() == shown
    changed = await admin.patch("/v1/endpoints/greet", json={"timeout": 5, "secret": "y" * 20})
    assert changed.json()["timeout"] == 5
    assert changed.json()["url"] == shown["url"]
    wrong = [{}, {"guarantee": "exactly_once"}, {"url": "ftp://x"}, {"url": "http://a:b@c/"}]
    for change in wrong:
        assert (await admin.patch("/v1/endpoints/greet", json=change)).status_code == 422, change
    refused = await admin.post("/v1/endpoints", json={**said, "name": "rota.command"})
    assert refused.status_code == 422
    assert (await admin.delete("/v1/endpoints/greet")).status_code == 200
    assert (await admin.get("/v1/endpoints/greet")).status_code == 404
    assert (await admin.delete("/v1/endpoints/greet")).status_code == 404
    assert await changes(server) == [
        ("create", "endpoint greet"), ("change", "endpoint greet"), ("remove", "endpoint greet"),
    ]  # fmt: skip
    audit = (await admin.get("/v1/audit")).text
    assert "xxxx" not in audit
    assert "yyyy" not in audit
    for role, status in (("viewer", 403), ("operator", 403)):
        client = await server.client(role)
        assert (await client.post("/v1/endpoints", json=said)).status_code == status
    assert (await (await server.client("viewer")).get("/v1/endpoints")).status_code == 403


async def test_tasks_of_stored_endpoints_stay_in_their_namespace_also_beside_a_worker(
    make_app: Callable[..., App], receiver: Receiver
) -> None:
    """A node that is worker and server: what it serves for its own is not known to others."""
    app = make_app(port=0, heartbeat=0.5, missed_heartbeats=20)
    await app.endpoints.add("greet", receiver.url, queue="mail", guarantee="at_most_once")
    async with serving(app) as server, Node(app).running():
        client = await server.client("operator", "other")
        job = (await client.post("/v1/jobs", json={"task": "greet"})).json()
        shown = (await client.get(f"/v1/jobs/{job['id']}")).json()
    assert (shown["queue"], shown["guarantee"]) == ("default", "at_least_once")


# -- webhooks


async def test_webhooks_are_made_tested_paused_resumed_and_removed(
    make_app: Callable[..., App], receiver: Receiver
) -> None:
    app = make_app(port=0, heartbeat=0.5, missed_heartbeats=20)
    await app.webhooks.allow("127.0.0.1")
    async with serving(make_app(port=0)) as server, Node(app).running():
        admin = await server.client("admin")
        said = {"url": receiver.url, "kinds": ["dead_lettered"]}
        made = await admin.post("/v1/webhooks", json=said)
        assert made.status_code == 201, made.text
        secret, webhook = made.json()["secret"], made.json()["webhook"]
        assert (await admin.post("/v1/webhooks", json=said)).status_code == 409
        listed = (await admin.get("/v1/webhooks")).json()
        assert (listed["items"], listed["allowed"]) == ([webhook], ["127.0.0.1"])
        address = f"/v1/webhooks/{webhook['id']}"
        assert (await admin.get(address)).json() == webhook
        assert secret not in (await admin.get(address)).text
        sent = await admin.post(f"{address}/test")
        assert sent.status_code == 202
        await eventually(lambda: receiver.received)
        (got,) = receiver.received
        assert got.headers["rota-delivery"] == sent.json()["id"]
        assert verify(secret, got.headers[SIGNATURE_HEADER.lower()], got.body, time.time())
        assert (await admin.post(f"{address}/pause")).json()["paused_at"] is not None
        assert (await admin.post(f"{address}/resume")).json()["paused_at"] is None
        assert (await admin.delete(address)).status_code == 200
        assert (await admin.get(address)).status_code == 404
        assert [action for action, _ in await changes(server)] == [
            "allow", "create", "test", "pause", "resume", "remove",
        ]  # fmt: skip
        assert secret not in (await admin.get("/v1/audit")).text
        wrong = [{"url": "ftp://x"}, {"url": "http://user:word@x/"}]
        for said in wrong:
            assert (await admin.post("/v1/webhooks", json=said)).status_code == 422, said
        for role in ("viewer", "operator"):
            client = await server.client(role)
            assert (await client.get("/v1/webhooks")).status_code == 403
            assert (await client.post("/v1/webhooks", json=said)).status_code == 403


# -- jobs


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("sent", "own", "kept"),
    [
        ({"traceparent": TRACE}, None, {"traceparent": TRACE}),
        ({"traceparent": TRACE, "tracestate": "a=1"}, {"x": 1},
         {"traceparent": TRACE, "tracestate": "a=1", "x": 1}),
        ({"traceparent": TRACE}, {"traceparent": "mine"}, {"traceparent": "mine"}),
        ({"traceparent": "nonsense"}, None, {}),
        ({"traceparent": f"00-{'0' * 32}-b7ad6b7169203331-01"}, None, {}),
        ({"tracestate": "a=1"}, None, {}),
    ],
)  # fmt: skip
async def test_the_trace_of_a_submit_travels_with_its_job(
    server: LiveServer, sent: dict[str, str], own: Any, kept: dict[str, Any]
) -> None:
    client = await server.client("operator")
    said = {"task": "work", **({"headers": own} if own else {})}
    answer = await client.post("/v1/jobs", json=said, headers=sent)
    assert answer.status_code == 201, answer.text
    assert (await server.app.jobs.get(answer.json()["id"])).headers == kept


async def test_a_trace_goes_on_to_the_endpoint(
    make_app: Callable[..., App], receiver: Receiver
) -> None:
    app = make_app(port=0, heartbeat=0.5, missed_heartbeats=20)
    await app.webhooks.allow("127.0.0.1")
    app.endpoint("greet", url=receiver.url, secret="x" * 20)
    async with serving(app) as server, Node(app).running():
        client = await server.client("operator")
        await client.post("/v1/jobs", json={"task": "greet"}, headers={"traceparent": TRACE})
        await eventually(lambda: receiver.received)
    assert receiver.received[0].headers["traceparent"] == TRACE


async def test_the_document_tells_of_what_has_not_changed(server: LiveServer) -> None:
    document = (await (await server.client(None)).get("/v1/openapi.json")).json()
    responses = document["paths"]["/v1/jobs/{job_id}"]["get"]["responses"]
    assert "content" not in responses["304"]
    assert "Readiness" in str(document["paths"]["/readyz"]["get"]["responses"]["503"])
    operation = document["paths"]["/v1/jobs/{job_id}/callback"]["post"]
    assert "security" not in operation
    assert "Rota-Callback-Key" in {each["name"] for each in operation["parameters"]}


async def test_a_command_where_no_worker_allows_it_waits_and_says_why(
    make_app: Callable[..., App], tmp_path: Any
) -> None:
    app = make_app(port=0, heartbeat=0.5, missed_heartbeats=20)

    @app.task
    async def later() -> None: ...

    async with serving(app) as server, Node(app).running():
        client = await server.client("operator")
        flag = tmp_path / "ran"
        said = {"task": "rota.command", "payload": {"argv": ["touch", str(flag)]}}
        id = (await client.post("/v1/jobs", json=said)).json()["id"]
        told = (await client.get(f"/v1/jobs/{id}/explain")).json()
        assert told["code"] == "commands_not_allowed"
        assert "--allow-commands" in told["sentence"]
        # A job of the same queue that came later has run: so would this one have.
        await (await later.submit()).wait(60)
        assert (await client.get(f"/v1/jobs/{id}")).json()["state"] == "ready"
    assert not flag.exists()
