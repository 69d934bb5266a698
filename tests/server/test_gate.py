"""The gate: no route without a policy, none without a token, no change by a viewer. For every route."""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import httpx
import pytest
from litestar import get

from rota import App, ConfigError
from rota.core.access import Policy
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.server.application import make_server
from rota.server.policy import PUBLIC, VIEWER, RouteInfo, route_table, scope_of
from tests.support.api import query
from tests.support.server_fixtures import LiveServer, serving

ROUTES = list(route_table(make_server(App(database_url="postgresql://nowhere/none"))))
GATED = [route for route in ROUTES if route.policy.role is not None]
CHANGES = [route for route in GATED if route.is_change]


def name_of(route: RouteInfo) -> str:
    return f"{route.method} {route.path}"


def address_of(route: RouteInfo) -> str:
    """With something for each parameter."""
    return re.sub(r"{(\w+)[^}]*}", lambda found: never_was(found[1]), route.path)


async def ask(client: httpx.AsyncClient, route: RouteInfo, **given: Any) -> httpx.Response:
    return await client.request(route.method, address_of(route), **given)


def test_there_are_routes_to_test():
    assert len(GATED) > 5
    assert len(CHANGES) > 2


def test_a_route_without_a_policy_keeps_the_server_from_starting(app):
    @get("/v1/secrets")
    async def tell_all() -> str:
        return "all"

    with pytest.raises(ConfigError, match=r"GET /v1/secrets \(tell_all\) has no policy"):
        make_server(app, [tell_all])


def test_a_route_that_no_role_may_use_keeps_the_server_from_starting(app):
    @get("/v1/secrets", policy=VIEWER)
    async def tell_all() -> str:
        return "all"

    with pytest.raises(ConfigError, match=r"needs secrets:read, which no role has"):
        make_server(app, [tell_all])


def test_public_routes_are_these():
    """Whoever adds one has to think twice, here."""
    public = {name_of(route) for route in ROUTES if route.policy.role is None}
    assert public == {
        "GET /healthz", "GET /readyz", "GET /v1/openapi.json", "POST /logout",
        "GET /login", "POST /login", "GET /login.js", "POST /login/link",
        "GET /rota.css", "GET /rota.js", "GET /palette.js", "GET /icon.svg",
        "POST /login/password", "GET /login/oidc", "GET /login/oidc/callback",
        "POST /v1/jobs/{job_id}/callback",  # it has a key of its own
        "GET /status", "GET /status.json",  # 404 unless somebody has switched them on
        "POST /v1/triggers/{name}/messages",  # it is signed
    }  # fmt: skip


async def test_every_route_without_a_token_is_401(server: LiveServer):
    client = await server.client(None)
    for route in GATED:
        answer = await ask(client, route)
        assert answer.status_code == 401, name_of(route)
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["code"] == "unauthorized"


async def test_every_route_with_a_bad_token_is_401(server: LiveServer):
    good = await server.token("admin", "*")
    tampered = good[:-1] + ("A" if good[-1] != "A" else "B")
    client = await server.client(None)
    for route in GATED:
        for bad in (tampered, "rota_x", "x", "a" * 5000):
            answer = await ask(client, route, headers={"Authorization": f"Bearer {bad}"})
            assert answer.status_code == 401, name_of(route)


# What is asked by POST because it doesn't fit into an address, and changes nothing.
# Those of the session set a cookie of the browser, and change nothing here.
QUESTIONS_BY_POST = {
    "POST /v1/schedules:preview",
    "POST /schedules/preview",
    "POST /session/zone",
    "POST /session/look",
    "POST /v1/schedules:forecast",
    "POST /v1/schedules:check",
}
# Everybody has views of their own.
OWN_THINGS = {"POST /v1/views", "POST /v1/views:remove", "POST /views", "POST /views/remove"}


async def test_a_viewer_can_change_nothing(server: LiveServer):
    client = await server.client("viewer")
    await fill(server, "default")
    known = await ids_in(server, "default")
    before = await everything(server)
    for route in CHANGES:
        address = re.sub(r"{(\w+)[^}]*}", lambda m, r=route: known[noun_of(r), m[1]], route.path)
        answer = await client.request(route.method, address, json={})
        if name_of(route) in QUESTIONS_BY_POST | OWN_THINGS:
            assert answer.status_code != 403, name_of(route)
            continue
        assert answer.status_code == 403, name_of(route)
        assert answer.json()["code"] == "forbidden"
    assert await everything(server) == before


async def test_a_worker_can_only_use_what_is_for_workers_and_nobody_else_can(server: LiveServer):
    worker = await server.client("worker")
    admin = await server.client("admin")
    for route in GATED:
        outsider = admin if route.policy.role == "worker" else worker
        answer = await ask(outsider, route, **({"json": {}} if route.is_change else {}))
        assert answer.status_code == 403, name_of(route)


async def test_who_is_admin_here_is_nobody_elsewhere(server: LiveServer):
    client = await server.client("admin", "acme")
    for route in GATED:
        by_header = await ask(client, route, headers={"X-Rota-Namespace": "other"})
        by_query = await ask(client, route, params={"namespace": "other"})
        assert by_header.status_code == by_query.status_code == 403, name_of(route)


async def test_what_needs_a_role_everywhere_is_refused_to_the_admin_of_one(server: LiveServer):
    client = await server.client("admin", "acme")
    everywhere = [route for route in GATED if route.policy.everywhere]
    assert everywhere
    for route in everywhere:
        assert (await ask(client, route, json={})).status_code == 403, name_of(route)


async def test_a_token_with_scopes_is_for_nothing_else(server: LiveServer):
    client = await server.client("admin", scopes=["audit:write"])  # of which there is no route
    for route in GATED:
        if route.policy.role == "worker" or route.policy.everywhere:
            continue
        answer = await ask(client, route, **({"json": {}} if route.is_change else {}))
        assert answer.status_code == 403, name_of(route)
        assert answer.json()["code"] == "scope"


async def test_a_scope_opens_its_own_routes(server: LiveServer):
    reader = await server.client("admin", scopes=["tokens:read"])
    assert (await reader.get("/v1/tokens")).status_code == 200
    made = {"name": "x", "role": "viewer", "scopes": ["tokens:read"]}
    assert (await reader.post("/v1/tokens", json=made)).status_code == 403
    both = await server.client("admin", scopes=["tokens"])
    assert (await both.post("/v1/tokens", json={**made, "scopes": ["tokens"]})).status_code == 201


async def test_one_asks_in_ones_own_namespace_unless_another_is_named(server: LiveServer):
    own = await server.client("viewer", "acme")
    assert (await own.get("/v1/session")).json()["namespace"] == "acme"
    anyone = await server.client("viewer", "*")
    assert (await anyone.get("/v1/session")).json()["namespace"] == "default"
    elsewhere = await anyone.get("/v1/session", headers={"X-Rota-Namespace": "other"})
    assert elsewhere.json()["namespace"] == "other"
    for wrong in ("a/b", "'; drop", "x" * 200):
        refused = await anyone.get("/v1/session", headers={"X-Rota-Namespace": wrong})
        assert refused.status_code == 400


# -- other tenants' ids


def noun_of(route: RouteInfo) -> str:
    return scope_of(route.method, route.path).partition(":")[0]


async def fill(server: LiveServer, namespace: str) -> None:
    """A namespace in which there is something of everything."""
    tenant = server.context.tenant(namespace)
    await tenant.submit("greet", {"name": namespace})
    await tenant.submit("later", {}, delay=3600, queue="mail")
    await tenant.schedule("nightly", "greet", cron="0 3 * * *")
    await tenant.pools.put("large", max_slots=1)
    store = await server.app.store()
    await store.database.fetch("declare_trigger", namespace, "paid", "greet", "redis://r/x", None)
    await store.database.fetch("declare_sink", namespace, "out", "redis://r/y", None)
    await tenant.maintenance.put("move")
    await tenant.endpoints.add("pushed", "https://example.com/pushed")
    await tenant.webhooks.add("https://example.com/told")
    await tenant.workflows.put(
        Graph(Definition(name="orders", steps=[StepDefinition(name="only", task="greet")]))
    )
    await tenant.runs.start("orders")
    await server.context.installation.roles.set(
        f"{namespace}-keeper", permissions=["queues"], namespaces=[namespace]
    )
    link = await server.link(namespace=namespace)
    await server.context.installation.sessions.log_in("link", link=link)
    await query(
        server,
        "insert into {}.dead (id, due_at, created_at, finished_at, state, priority, guarantee, "
        "attempt, max_attempts, crashes, namespace, lane, task, payload, error) values "
        "($1, now(), now(), now(), 6, 0, 1, 1, 1, 0, $2::text, $2::text || '/default', 'boom', '{}', "
        """'{"type": "ValueError", "message": "no", "traceback": null}')""",
        uuid4(), namespace,
    )  # fmt: skip
    await query(
        server,
        "insert into {}.node (id, namespace, name, host, pid, version, roles, expires_at, queues, "
        "capabilities, tasks, slots, remote) values "
        "($1, $2, 'n', 'h', 1, '1', '{worker}', now() + interval '1 hour', '{}', '{}', '{}', 1, true)",
        uuid4(), namespace,
    )  # fmt: skip


async def ids_in(server: LiveServer, namespace: str) -> dict[tuple[str, str], str]:
    """By noun and parameter. A new kind of parameter has to be added here."""

    async def one(sql: str) -> str:
        return str((await query(server, sql, namespace))[0][0])

    admin = await server.client("admin", namespace)
    dead = (await admin.get("/v1/dead")).json()
    await admin.post("/v1/jobs", json={"task": "bulky", "delay": 3600})
    token = await server.token("viewer", namespace)
    groups = dead["items"] if isinstance(dead, dict) and "items" in dead else []
    job = await one("select id from {}.present where namespace = $1")
    node = await one("select id from {}.node where namespace = $1")
    cancelled = await admin.post("/v1/jobs:cancel", json={"task": "bulky"})
    return {
        ("jobs", "change_id"): cancelled.json()["bulk"],
        ("queues", "entry"): await one("select max(id) from {}.audit where namespace = $1"),
        ("jobs", "job_id"): job,
        ("webhooks", "job_id"): job,
        ("nodes", "node_id"): node,
        ("workers", "worker_id"): node,
        ("dead", "fingerprint"): groups[0]["fingerprint"] if groups else "none",
        ("queues", "name"): "mail",
        ("pools", "name"): "large",
        ("maintenance", "name"): "move",
        ("triggers", "name"): "paid",
        ("sinks", "name"): "out",
        ("tasks", "name"): "pushed",
        ("schedules", "name"): "nightly",
        ("namespaces", "name"): namespace,
        ("tokens", "prefix"): token.split("_")[1],
        ("endpoints", "name"): "pushed",
        ("users", "name"): "ada",
        ("roles", "name"): f"{namespace}-keeper",
        ("workflows", "name"): "orders",
        ("runs", "id"): await one("select id from {}.run where namespace = $1"),
        ("runs", "step"): "only",
        ("runs", "number"): "1234567",
        ("runs", "run_id"): await one("select id from {}.run where namespace = $1"),
        ("sessions", "session_id"): await one("select id from {}.session where namespace = $1"),
        ("webhooks", "webhook_id"): await one("select id from {}.webhook where namespace = $1"),
    }


def never_was(parameter: str) -> str:
    """An id of the right form."""
    made = uuid4()
    return {"fingerprint": made.hex[:16], "number": "7654321", "entry": "7654321"}.get(
        parameter, str(made)
    )


async def everything(server: LiveServer) -> dict[str, list[str]]:
    """All rows of all tables of tenants, as text."""
    tables = ("future", "present", "past", "dead", "queue", "schedule", "api_token", "namespace",
              "node", "signal", "audit", "endpoint", "webhook", "session", "pool", "trigger",
              "sink", "maintenance", "saved_view")  # fmt: skip
    return {
        table: sorted(row[0] for row in await query(
            server, f"select (to_jsonb(t) - 'last_used_at')::text from {{}}.{table} as t"
        ))
        for table in tables
    }  # fmt: skip


async def test_another_tenants_ids_look_like_ids_that_never_were(server: LiveServer):
    await fill(server, "other")
    theirs = await ids_in(server, "other")
    clients = {False: await server.client("admin", "acme"),
               True: await server.client("worker", "acme")}  # fmt: skip
    before = await everything(server)
    tried = 0
    for route in GATED:
        parameters = re.findall(r"{(\w+)", route.path)
        if not parameters or route.policy.everywhere:
            continue
        told = []
        for known in (True, False):
            address = route.path
            for parameter in parameters:
                id = theirs[noun_of(route), parameter] if known else never_was(parameter)
                address = re.sub("{" + parameter + "[^}]*}", id, address)
            body = {"json": {}} if route.is_change else {}
            client = clients[route.policy.role == "worker"]
            answer = await client.request(route.method, address, **body)
            text = re.sub(r'"request_id":"[^"]*"', "", answer.text)
            for part in address.split("/"):
                text = text.replace(f"{part!r}", "X").replace(part, "X") if part else text
            told.append((answer.status_code, text))
        assert told[0] == told[1], name_of(route)
        if not route.is_change or route.method == "DELETE":
            assert told[0][0] == 404, name_of(route)
        tried += 1
    assert tried > 5
    after = await everything(server)
    for table, rows in before.items():
        kept = [row for row in after[table] if '"other"' in row]
        assert kept == [row for row in rows if '"other"' in row], table


async def test_a_policy_is_asked_before_the_body_is_read(make_app):
    async with serving(make_app(port=0)) as server:
        client = await server.client("viewer")
        answer = await client.post("/v1/tokens", content=b"{" * 100_000)
        assert answer.status_code == 403


def test_public_is_the_policy_that_asks_nothing():
    assert Policy(None) == PUBLIC
