"""Another tenant's ids are like ids that don't exist, on every route there is.

Made from the route table. A new route with a parameter in its path is tried with another tenant's value
of that parameter; one whose parameter isn't known here fails the test until it is.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from rota import App
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.server.application import make_server
from rota.server.policy import RouteInfo, route_table
from tests.support.api import fail_jobs, submit
from tests.support.server_fixtures import LiveServer

SECRET = "zanzibar"  # in everything that the other tenant has

ROUTES = [
    route
    for route in route_table(make_server(App(database_url="postgresql://nowhere/none")))
    if "{" in route.path and not route.policy.everywhere
]

# What a route's body needs to be understood at all.
BODIES: dict[str, dict[str, Any]] = {
    "put_schedule": {"task": "t", "cron": "@daily"},
    "change_endpoint": {"timeout": 5},
    "send_heartbeat": {},
    "claim_jobs": {},
    "finish_jobs": {"items": []},
    "report_progress": {"items": []},
    "add_log_lines": {"items": []},
    "set_queue": {"max_run_time": 60},
    "set_weight": {"key": "k", "weight": 2},
    "put_pool": {"max_slots": 1},
    "put_window": {"for": "1h"},
    "rewind_trigger": {},
    "rewind_sink": {},
    "start_run": {},
    "skip_step": {"result": 1},
    "retry_members": {},
    "send_to_run": {"signal": "go"},
    "send_signal": {"name": "go", "key": "k"},
    "backfill_schedule": {"first": "2026-01-01T00:00:00Z", "end": "2026-01-02T00:00:00Z"},
}


async def make_everything(server: LiveServer, namespace: str) -> dict[str, str]:
    """One of each, by the place that its id has in paths."""
    client = await server.client("admin", namespace)
    job = await submit(client, task=SECRET, queue=SECRET, payload={"text": SECRET}, tags=[SECRET])
    failed = await submit(client, task=SECRET)
    await fail_jobs(server.app, [failed], f"{SECRET} has failed")
    said = {"name": SECRET, "task": SECRET, "cron": "@daily", "description": SECRET}
    assert (await client.post("/v1/schedules", json=said)).status_code == 201
    (group,) = (await client.get("/v1/dead")).json()["items"]
    token = await client.post("/v1/tokens", json={"name": SECRET, "role": "viewer"})
    place = f"https://{SECRET}.example/"
    endpoint = {"name": SECRET, "url": place}
    assert (await client.post("/v1/endpoints", json=endpoint)).status_code == 201
    webhook = await client.post("/v1/webhooks", json={"url": place})
    steps = [StepDefinition(name=SECRET, task=SECRET)]
    graph = Graph(Definition(name=SECRET, steps=steps, description=SECRET))
    await server.context.tenant(namespace).workflows.put(graph)
    assert (await client.put(f"/v1/pools/{SECRET}", json={"max_slots": 1})).status_code == 200
    assert (await client.put(f"/v1/maintenance/{SECRET}", json={"for": "1h"})).status_code == 200
    run = await client.post(f"/v1/workflows/{SECRET}/runs", json={})
    assert run.status_code == 201
    async with (await server.app.store()).database.connection() as c:
        node = await c.fetchval(
            f"insert into {server.app.settings.schema}.node (id, namespace, name, host, pid, version,"
            " roles, expires_at, queues, capabilities, tasks, slots, remote) values (gen_random_uuid(),"
            " $1, $2, $2, 1, '1', '{worker}', now() + interval '1 hour', '{}', '{}', '{}', 4, true)"
            " returning id",
            namespace, SECRET,
        )  # fmt: skip
        session = await c.fetchval(
            f"insert into {server.app.settings.schema}.session (hash, id, namespace, role, expires_at)"
            " values (sha256($1::text::bytea), gen_random_uuid(), $1, 'viewer',"
            " now() + interval '1 hour')"
            " returning id",
            namespace,
        )  # fmt: skip
        await c.execute(
            f"insert into {server.app.settings.schema}.audit (id, namespace, actor, via, action,"
            " subject) overriding system value values (1234567, $1, 'x', 'x', 'pause', $2)"
            " on conflict do nothing",
            namespace, f"queue {SECRET}",
        )  # fmt: skip
    database = (await server.app.store()).database
    await database.fetch("declare_trigger", namespace, SECRET, SECRET, f"redis://{SECRET}/x", None)
    await database.fetch("declare_sink", namespace, SECRET, f"redis://{SECRET}/x", None)
    await server.context.installation.roles.set(
        SECRET, permissions=["queues"], namespaces=[namespace], description=SECRET
    )
    await client.post("/v1/jobs", json={"task": "bulky", "delay": 3600})
    bulk = await client.post("/v1/jobs:cancel", json={"task": "bulky"})
    return {
        "job_id": job,
        "change_id": bulk.json()["bulk"],
        "entry": "1234567",
        "session_id": str(session),
        "/v1/schedules/{name}": SECRET,
        "/v1/queues/{name}": SECRET,
        "/v1/roles/{name}": SECRET,
        "/v1/pools/{name}": SECRET,
        "/v1/maintenance/{name}": SECRET,
        "/v1/tasks/{name}": SECRET,
        "/v1/namespaces/{name}": namespace,
        "node_id": str(node),
        "worker_id": str(node),
        "fingerprint": group["fingerprint"],
        "prefix": token.json()["info"]["prefix"],
        "/v1/endpoints/{name}": SECRET,
        "/v1/triggers/{name}": SECRET,
        "/v1/sinks/{name}": SECRET,
        "webhook_id": webhook.json()["webhook"]["id"],
        "/v1/workflows/{name}": SECRET,
        "id": run.json()["id"],
        "run_id": run.json()["id"],
        "step": SECRET,
        "number": "1234567",
    }


NOBODYS = {
    "job_id": str(uuid4()), "change_id": str(uuid4()), "entry": "7654321",
    "/v1/roles/{name}": "nobodys",
    "/v1/schedules/{name}": "nobodys", "/v1/queues/{name}": "nobodys",
    "/v1/tasks/{name}": "nobodys", "/v1/pools/{name}": "nobodys",
    "/v1/maintenance/{name}": "nobodys",
    "/v1/namespaces/{name}": "nobodys", "/v1/endpoints/{name}": "nobodys",
    "/v1/triggers/{name}": "nobodys", "/v1/sinks/{name}": "nobodys",
    "webhook_id": str(uuid4()), "node_id": str(uuid4()), "worker_id": str(uuid4()),
    "fingerprint": "0" * 16, "prefix": "rota_00000000", "session_id": str(uuid4()),
    "/v1/workflows/{name}": "nobodys", "id": str(uuid4()), "run_id": str(uuid4()),
    "step": "nobodys", "number": "7654321",
}  # fmt: skip


def fill(route: RouteInfo, things: dict[str, str]) -> str:
    """The route's path with these things' ids in it."""
    parts = []
    for part in route.path.split("/"):
        if part.startswith("{"):
            so_far = "/".join([*parts, part])
            name = part.strip("{}")
            # A page has the address of its noun, without the version.
            known = things.get(name) or things.get(so_far) or things.get(f"/v1{so_far}")
            assert known, f"{route.path}: say here what another tenant's {name} is"
            part = known
        parts.append(part)
    return "/".join(parts)


async def ask(client: Any, route: RouteInfo, things: dict[str, str]) -> tuple[int, str]:
    """The status, and the answer without what differs from one request to another anyway."""
    body = BODIES.get(route.name)
    headers = {"If-Match": "*"} if route.method in ("PUT", "DELETE") else {}
    answer = await client.request(
        route.method, fill(route, things), headers=headers,
        **({"json": body} if body is not None else {}),
    )  # fmt: skip
    text = answer.text.replace(answer.headers["x-request-id"], "REQUEST")
    for value in things.values():
        text = text.replace(value, "ID")
    return answer.status_code, text


async def snapshot(server: LiveServer, namespace: str) -> list[Any]:
    """All that the other tenant has."""
    schema = server.app.settings.schema
    async with (await server.app.store()).database.connection() as c:
        return [
            await c.fetch(
                f"select * from {schema}.{table} where namespace = $1 order by 1", namespace
            )
            for table in (
                "job",
                "schedule",
                "queue",
                "node",
                "api_token",
                "event",
                "endpoint",
                "webhook",
            )
        ]


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_anothers_thing_is_like_no_thing(server: LiveServer, route: RouteInfo):
    theirs = await make_everything(server, "theirs")
    before = await snapshot(server, "theirs")
    role = "worker" if route.policy.role == "worker" else "admin"
    client = await server.client(role, "default")
    status, text = await ask(client, route, theirs)
    assert status in ((404, 412) if route.method == "PUT" else (404,)), text
    assert (status, text) == await ask(client, route, NOBODYS)
    assert SECRET not in text
    assert await snapshot(server, "theirs") == before


async def test_lists_show_nothing_of_others(server: LiveServer):
    await make_everything(server, "theirs")
    client = await server.client("admin", "default")
    for route in route_table(make_server(App(database_url="postgresql://nowhere/none"))):
        if route.method == "GET" and "{" not in route.path and not route.path.endswith("/stream"):
            answer = await client.get(route.path)
            assert SECRET not in answer.text, route.path
