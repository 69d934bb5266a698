"""The audit log: every change, by whichever way, leaves one row, in the transaction that makes it.

The examples are compared with the route table, the command tree and the verbs of `App`: whoever adds a
way to change something adds an example here, or says why it is no change.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import httpx
import pytest
import typer

from rota import App, NotFound
from rota.cli import cli
from rota.core.time.calendars import NamedCalendar
from rota.core.time.schedule import make_spec
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.errors import RotaError
from rota.server.application import make_server
from rota.server.policy import route_table
from rota.store.changes import Actor, acting_as, changing, local_user
from rota.store.search import JobFilter
from rota.workflow import Workflow
from tests.support.audit_world import World
from tests.support.command_line import run
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import csrf_of, enter

CRON = {"cron": "0 4 * * *"}

# -- REST

# Route, path, body; in an order in which each has something to change.
REST: list[tuple[str, str, Any]] = [
    ("POST /v1/dead/{fingerprint}/retry", "/v1/dead/{group_a}/retry", {}),
    ("POST /v1/dead/{fingerprint}/discard", "/v1/dead/{group_b}/discard", {}),
    ("POST /v1/jobs/{job_id}/discard", "/v1/jobs/{dead_c}/discard", None),
    ("POST /v1/jobs/{job_id}/retry", "/v1/jobs/{dead_d}/retry", None),
    ("POST /v1/dead:retry", "/v1/dead:retry", {"ids": ["{dead_f}"]}),
    ("POST /v1/dead:discard", "/v1/dead:discard", {"ids": ["{dead_g}"]}),
    ("POST /v1/jobs:retry", "/v1/jobs:retry", {"task": "dead_e"}),
    ("POST /v1/jobs/{job_id}/cancel", "/v1/jobs/{one}/cancel", None),
    ("POST /v1/jobs:cancel", "/v1/jobs:cancel", {"task": "two"}),
    ("POST /v1/endpoints", "/v1/endpoints", {"name": "new", "url": "https://example.org/x"}),
    ("PATCH /v1/endpoints/{name}", "/v1/endpoints/push", {"timeout": 5}),
    ("DELETE /v1/endpoints/{name}", "/v1/endpoints/push", None),
    ("PUT /v1/namespaces/{name}", "/v1/namespaces/acme", {"max_jobs": 7}),
    ("DELETE /v1/namespaces/{name}", "/v1/namespaces/acme", None),
    ("POST /v1/queues/{name}/pause", "/v1/queues/mail/pause", None),
    ("POST /v1/nodes/{node_id}/drain", "/v1/nodes/{node}/drain", None),
    ("POST /v1/nodes/{node_id}/undrain", "/v1/nodes/{node}/undrain", None),
    ("POST /v1/nodes/{node_id}/stop", "/v1/nodes/{node}/stop", None),
    ("POST /v1/queues/{name}/resume", "/v1/queues/mail/resume", None),
    ("PUT /v1/queues/{name}", "/v1/queues/mail", {"max_run_time": 60}),
    ("PUT /v1/pools/{name}", "/v1/pools/spare", {"max_slots": 4}),
    ("DELETE /v1/pools/{name}", "/v1/pools/spare", None),
    ("PUT /v1/maintenance/{name}", "/v1/maintenance/move", {"for": "2h", "kinds": ["missed"]}),
    ("DELETE /v1/maintenance/{name}", "/v1/maintenance/move", None),
    ("PUT /v1/queues/{name}/shares", "/v1/queues/mail/shares", {"key": "acme", "weight": 2}),
    ("POST /v1/alerts:acknowledge", "/v1/alerts:acknowledge", {"key": "queue-paused:held"}),
    ("POST /v1/alerts:silence", "/v1/alerts:silence", {"key": "queue-paused:held", "for": "2h"}),
    ("POST /v1/alerts:restore", "/v1/alerts:restore", {"key": "queue-paused:kept"}),
    ("POST /v1/jobs/changes/{change_id}/undo", "/v1/jobs/changes/{bulk_a}/undo", None),
    ("POST /v1/views", "/v1/views", {"name": "mine", "address": "/jobs?state=failed"}),
    ("POST /v1/views:remove", "/v1/views:remove", {"name": "mine"}),
    ("POST /v1/schedules", "/v1/schedules", {"name": "new", "task": "greet", **CRON}),
    ("PUT /v1/schedules/{name}", "/v1/schedules/new", {"task": "greet", "cron": "0 5 * * *"}),
    ("DELETE /v1/schedules/{name}", "/v1/schedules/new", None),
    ("POST /v1/schedules:apply", "/v1/schedules:apply",
     {"schedules": [{"name": "set", "task": "greet", **CRON}]}),
    ("POST /v1/schedules/{name}/pause", "/v1/schedules/nightly/pause", None),
    ("POST /v1/schedules/{name}/resume", "/v1/schedules/nightly/resume", None),
    ("POST /v1/schedules/{name}/trigger", "/v1/schedules/nightly/trigger", None),
    ("POST /v1/schedules/{name}/backfill", "/v1/schedules/nightly/backfill",
     {"first": "{first}", "end": "{end}"}),
    ("DELETE /v1/sessions/{session_id}", "/v1/sessions/{session_a}", None),
    ("POST /v1/tokens", "/v1/tokens", {"name": "x", "role": "viewer"}),
    ("DELETE /v1/tokens/{prefix}", "/v1/tokens/{ci}", None),
    ("POST /v1/triggers/{name}/pause", "/v1/triggers/orders/pause", None),
    ("POST /v1/triggers/{name}/resume", "/v1/triggers/orders/resume", None),
    ("POST /v1/triggers/{name}/rewind", "/v1/triggers/orders/rewind", {"to": "0-1"}),
    ("DELETE /v1/triggers/{name}", "/v1/triggers/orders", None),
    ("POST /v1/sinks/{name}/pause", "/v1/sinks/out/pause", None),
    ("POST /v1/sinks/{name}/resume", "/v1/sinks/out/resume", None),
    ("POST /v1/sinks/{name}/rewind", "/v1/sinks/out/rewind", {"to": "1.2"}),
    ("DELETE /v1/sinks/{name}", "/v1/sinks/out", None),
    ("POST /v1/webhooks", "/v1/webhooks", {"url": "https://example.org/new"}),
    ("POST /v1/webhooks/{webhook_id}/pause", "/v1/webhooks/{webhook}/pause", None),
    ("POST /v1/webhooks/{webhook_id}/resume", "/v1/webhooks/{webhook}/resume", None),
    ("POST /v1/webhooks/{webhook_id}/test", "/v1/webhooks/{webhook}/test", None),
    ("POST /v1/webhooks/deliveries/{job_id}/redeliver",
     "/v1/webhooks/deliveries/{delivery}/redeliver", None),
    ("DELETE /v1/webhooks/{webhook_id}", "/v1/webhooks/{webhook}", None),
    ("POST /v1/runs/{id}/cancel", "/v1/runs/{run_a}/cancel", None),
    ("POST /v1/runs/{id}/pause", "/v1/runs/{run_b}/pause", None),
    ("POST /v1/runs/{id}/resume", "/v1/runs/{run_b}/resume", None),
    ("POST /v1/runs/{id}/steps/{step}/retry", "/v1/runs/{run_c}/steps/first/retry", None),
    ("POST /v1/runs/{id}/steps/{step}/members/retry", "/v1/runs/{run_m}/steps/parts/members/retry",
     {}),
    ("POST /v1/runs/{id}/steps/{step}/skip", "/v1/runs/{run_d}/steps/first/skip", {"result": 1}),
    ("POST /v1/workflows/{name}/retire", "/v1/workflows/flow/retire", None),
    ("POST /v1/workflows/{name}/restore", "/v1/workflows/flow/restore", None),
    ("POST /v1/workflows:apply", "/v1/workflows:apply",
     {"definitions": [{"name": "filed", "steps": [{"name": "only", "task": "greet"}]}]}),
    ("PUT /v1/roles/{name}", "/v1/roles/mailer", {"permissions": ["queues"]}),
    ("DELETE /v1/roles/{name}", "/v1/roles/mailer", None),
    ("POST /v1/users", "/v1/users", {"name": "eve", "role": "viewer"}),
    ("DELETE /v1/users/{name}", "/v1/users/ada", None),
    ("POST /v1/sessions:end-links", "/v1/sessions:end-links", None),
    ("PUT /v1/namespaces/{name}/encryption", "/v1/namespaces/acme/encryption",
     {"encrypted": False}),
]  # fmt: skip

# What isn't steered by a person: submitted jobs are their own record, as is what workers do.
NO_CHANGE = {
    # A test of their own, below.
    "POST /v1/queues/{name}/undo/{entry}", "POST /queues/{name}/undo/{entry}",
    "POST /v1/jobs", "POST /v1/jobs:bulk", "POST /v1/workflows/{name}/runs",
    "POST /v1/jobs/{job_id}/callback", "POST /v1/triggers/{name}/messages",
    "POST /v1/signals", "POST /v1/runs/{id}/signals",
    "POST /v1/schedules:preview", "POST /v1/schedules:forecast", "POST /v1/schedules:check",
    "POST /v1/workers",
    *(f"POST /v1/workers/{{worker_id}}/{verb}"
      for verb in ("heartbeat", "claim", "finish", "progress", "logs")),
    "DELETE /v1/workers/{worker_id}",
}  # fmt: skip

# -- the dashboard's forms

FORMS: list[tuple[str, str, dict[str, str]]] = [
    ("POST /dead/{fingerprint}/retry", "/dead/{group_a}/retry", {"sure": "yes"}),
    ("POST /dead/{fingerprint}/discard", "/dead/{group_b}/discard", {"sure": "yes"}),
    ("POST /jobs/{job_id}/discard", "/jobs/{dead_c}/discard", {"sure": "yes"}),
    ("POST /jobs/{job_id}/retry", "/jobs/{dead_d}/retry", {}),
    ("POST /jobs/{job_id}/cancel", "/jobs/{one}/cancel", {"sure": "yes"}),
    ("POST /jobs/bulk", "/jobs/bulk", {"do": "cancel", "id": "{two}", "sure": "yes"}),
    ("POST /queues/{name}/pause", "/queues/mail/pause", {}),
    ("POST /nodes/{node_id}/drain", "/nodes/{node}/drain", {}),
    ("POST /nodes/{node_id}/undrain", "/nodes/{node}/undrain", {}),
    ("POST /nodes/{node_id}/stop", "/nodes/{node}/stop", {"sure": "yes"}),
    ("POST /queues/{name}/resume", "/queues/mail/resume", {}),
    ("POST /queues/{name}/settings", "/queues/mail/settings", {"policy": "fair", "concurrency": "3"}),
    ("POST /queues/{name}/weight", "/queues/mail/weight", {"key": "acme", "weight": "2"}),
    ("POST /alerts/acknowledge", "/alerts/acknowledge", {"key": "queue-paused:held"}),
    ("POST /alerts/silence", "/alerts/silence", {"key": "queue-paused:held", "for": "2h"}),
    ("POST /alerts/restore", "/alerts/restore", {"key": "queue-paused:kept"}),
    ("POST /jobs/changes/{change_id}/undo", "/jobs/changes/{bulk_a}/undo", {}),
    ("POST /views", "/views", {"name": "mine", "address": "/jobs?state=failed"}),
    ("POST /views/remove", "/views/remove", {"name": "mine", "sure": "yes"}),
    ("POST /endpoints", "/endpoints", {"name": "fresh", "url": "https://example.org/x"}),
    ("POST /endpoints/{name}/change", "/endpoints/push/change", {"timeout": "5s"}),
    ("POST /endpoints/{name}/remove", "/endpoints/push/remove", {"sure": "yes"}),
    ("POST /calendars", "/calendars", {"name": "days", "text": "2027-12-24"}),
    ("POST /runs/{run_id}/cancel", "/runs/{run_a}/cancel", {"sure": "yes"}),
    ("POST /runs/{run_id}/pause", "/runs/{run_b}/pause", {}),
    ("POST /runs/{run_id}/resume", "/runs/{run_b}/resume", {}),
    ("POST /runs/{run_id}/steps/{step}/retry", "/runs/{run_c}/steps/first/retry", {}),
    ("POST /runs/{run_id}/steps/{step}/members/retry", "/runs/{run_m}/steps/parts/members/retry", {}),
    ("POST /runs/{run_id}/steps/{step}/members/{number}/retry",
     "/runs/{run_n}/steps/parts/members/0/retry", {}),
    ("POST /runs/{run_id}/steps/{step}/skip", "/runs/{run_d}/steps/first/skip", {}),
    ("POST /schedules/new", "/schedules/new",
     {"name": "new", "task": "greet", "kind": "cron", "rule": "0 4 * * *"}),
    ("POST /schedules/{name}/edit", "/schedules/new/edit",
     {"task": "greet", "kind": "cron", "rule": "0 5 * * *"}),
    ("POST /schedules/{name}/delete", "/schedules/new/delete", {"sure": "yes"}),
    ("POST /schedules/{name}/pause", "/schedules/nightly/pause", {}),
    ("POST /schedules/{name}/resume", "/schedules/nightly/resume", {}),
    ("POST /schedules/{name}/trigger", "/schedules/nightly/trigger", {}),
    ("POST /schedules/{name}/backfill", "/schedules/nightly/backfill",
     {"first": "{first}", "end": "{end}", "sure": "yes"}),
    ("POST /tokens", "/tokens", {"name": "x", "role": "viewer"}),
    ("POST /tokens/{prefix}/revoke", "/tokens/{ci}/revoke", {"sure": "yes"}),
    ("POST /roles", "/roles", {"name": "mailer", "permission": "queues:write"}),
    ("POST /roles/remove", "/roles/remove", {"name": "mailer", "sure": "yes"}),
    ("POST /users", "/users", {"name": "eve", "role": "viewer"}),
    ("POST /users/link", "/users/link", {"name": "ada"}),
    ("POST /users/remove", "/users/remove", {"name": "ada", "sure": "yes"}),
    ("POST /namespaces/{name}/limits", "/namespaces/acme/limits", {"max_jobs": "7"}),
    ("POST /webhooks", "/webhooks", {"url": "https://example.org/new", "format": "json"}),
    ("POST /webhooks/{webhook_id}/pause", "/webhooks/{webhook}/pause", {}),
    ("POST /webhooks/{webhook_id}/resume", "/webhooks/{webhook}/resume", {}),
    ("POST /webhooks/{webhook_id}/test", "/webhooks/{webhook}/test", {}),
    ("POST /webhooks/deliveries/{job_id}/redeliver", "/webhooks/deliveries/{delivery}/redeliver", {}),
    ("POST /webhooks/{webhook_id}/remove", "/webhooks/{webhook}/remove", {"sure": "yes"}),
    ("POST /triggers/{name}/pause", "/triggers/orders/pause", {}),
    ("POST /triggers/{name}/resume", "/triggers/orders/resume", {}),
    ("POST /triggers/{name}/rewind", "/triggers/orders/rewind", {"position": "0-1", "sure": "yes"}),
    ("POST /triggers/{name}/remove", "/triggers/orders/remove", {"sure": "yes"}),
]  # fmt: skip

# A preview changes nothing; a submitted job is its own record; log-ins have tests of their own, below.
NO_FORM = {
    "POST /schedules/preview", "POST /session/zone", "POST /session/look", "POST /jobs/new",
    "POST /login", "POST /login/link",
    "POST /login/password", "POST /logout",
}  # fmt: skip


def test_every_route_that_changes_something_has_an_example():
    routes = route_table(make_server(App(database_url="postgresql://nowhere/none")))
    changes = {f"{route.method} {route.path}" for route in routes if route.is_change}
    examples = [name for name, _, _ in [*REST, *FORMS]]
    assert len(examples) == len(set(examples))
    assert changes == {*examples, *NO_CHANGE, *NO_FORM}


async def filled(server: LiveServer) -> World:
    world = World(server.app)
    await world.fill()
    client = await server.client("viewer")
    for group in (await client.get("/v1/dead")).json()["items"]:
        world.names[group["task"].replace("dead", "group")] = group["fingerprint"]
    return world


def named(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: named(each, names) for key, each in value.items()}
    if isinstance(value, list):
        return [named(each, names) for each in value]
    return value.format(**names) if isinstance(value, str) else value


async def test_every_change_by_rest_is_recorded_with_it_or_not_made(server: LiveServer):
    world = await filled(server)
    client = await server.client("admin", "*", name="Ada")
    for name, path, body in REST:
        method, address = name.partition(" ")[0], path.format(**world.names)
        before = await world.state()
        async with world.full_disk():
            answer = await client.request(method, address, json=named(body, world.names))
        assert answer.status_code == 500, (name, answer.text)
        await world.check_refused(name, before)
        answer = await client.request(method, address, json=named(body, world.names))
        assert answer.status_code < 300, (name, answer.text)
        row = await world.check_recorded(name, "rest", "Ada")
        assert row["via"].startswith("token "), name
        assert row["request_id"] == answer.headers["x-request-id"], name
        assert row["address"] == "127.0.0.1", name
        assert await world.state() != before, name


async def test_every_change_by_the_dashboard_is_recorded_with_it_or_not_made(server: LiveServer):
    world = await filled(server)
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/users"))
    me = (await browser.get("/v1/session")).json()["name"]
    await world.rows()
    for name, path, fields in FORMS:
        said = {**named(fields, world.names), "csrf": csrf}
        address = path.format(**world.names)
        if name.endswith(("/edit", "/delete")):  # only as it was seen
            said["tag"] = await _tag(browser, address)
        before = await world.state()
        async with world.full_disk():
            assert (await browser.post(address, data=said)).status_code >= 300, name
        await world.check_refused(name, before)
        answer = await browser.post(address, data=said)
        assert answer.status_code in (200, 201, 303), (name, answer.text)
        row = await world.check_recorded(name, "dashboard", me)
        assert row["via"].startswith("session "), name
        assert await world.state() != before, name


async def _tag(browser: httpx.AsyncClient, address: str) -> str:
    page = await browser.get(address.replace("/delete", "/edit"))
    return page.text.split('name="tag" value="')[1].split('"')[0].replace("&#34;", '"')


async def test_entries_of_a_period_are_listed_by_rest(server: LiveServer):
    client = await server.client("admin")
    for name in ("a", "b"):
        await client.post("/v1/tokens", json={"name": name, "role": "viewer"})
    second, first = (await client.get("/v1/audit")).json()["items"]
    for period, expected in (
        ({"since": second["at"]}, [second["id"]]),
        ({"until": second["at"]}, [first["id"]]),
        ({"since": first["at"], "until": second["at"]}, [first["id"]]),
    ):
        answer = await client.get("/v1/audit", params=period)
        assert [entry["id"] for entry in answer.json()["items"]] == expected, period
    answer = await client.get("/v1/audit", params={"since": "2027-01-31T09:00:00"})
    assert answer.status_code == 400


async def test_logging_in_and_out_is_recorded_with_it_or_not_done(server: LiveServer):
    world = World(server.app)
    link = await server.link(role="admin", namespace="*")
    browser = await server.client(None)
    before = await world.state()
    async with world.full_disk():
        assert (await browser.post("/login/link", json={"link": link})).status_code == 500
    await world.check_refused("login", before)
    answer = await browser.post("/login/link", json={"link": link})
    assert answer.status_code == 200
    me = answer.json()["name"]
    row = await world.check_recorded("login", "dashboard", me)
    assert (row["action"], row["via"]) == ("login", "link")
    browser.headers["x-rota-csrf"] = answer.json()["csrf"]
    assert (await browser.post("/logout")).status_code == 200
    row = await world.check_recorded("logout", "dashboard", me)
    assert row["action"] == "logout"


# -- Python

Verb = Callable[[App, dict[str, str]], Awaitable[Any]]


async def _group(app: App, task: str, act: Callable[[str], Awaitable[Any]]) -> Any:
    [group] = await app.dead.groups(task=task)
    return await act(group.fingerprint)


def _graph(name: str = "other") -> Graph:
    return Graph(Definition(name=name, steps=[StepDefinition(name="only", task="greet")]))


def _workflow(app: App, name: str) -> Workflow:
    flow = Workflow(app.runs, name)
    flow._steps["only"] = StepDefinition(name="only", task="greet")
    return flow


def _declare(app: App) -> Awaitable[None]:
    app.workflows.declared["declared"] = _workflow(app, "declared")
    return app.workflows.declare()


VERBS: list[tuple[str, Verb]] = [
    ("jobs.cancel", lambda app, n: app.jobs.cancel(n["one"])),
    ("jobs.cancel_many", lambda app, n: app.jobs.cancel_many([n["two"], n["three"]])),
    ("jobs.retry", lambda app, n: app.jobs.retry(n["dead_a"])),
    ("jobs.retry_many", lambda app, n: app.jobs.retry_many([n["dead_b"]])),
    ("jobs.retry_dead", lambda app, n: app.jobs.retry_dead(task="dead_c")),
    ("jobs.discard", lambda app, n: app.jobs.discard(n["dead_d"])),
    ("jobs.discard_many", lambda app, n: app.jobs.discard_many([n["dead_e"]])),
    ("jobs.change_many", lambda app, n: app.jobs.change_many("retry", [n["dead_f"]])),
    ("jobs.change_matching", lambda app, n: app.jobs.change_matching(
        "discard", JobFilter(task="dead_g"))),
    ("jobs.change_selected", lambda app, n: app.jobs.change_selected(
        "discard", [UUID(n["dead_h"])], "some jobs", limit=10, dry_run=False)),
    ("dead.retry_group", lambda app, n: _group(app, "dead_i", app.dead.retry_group)),
    ("dead.discard_group", lambda app, n: _group(app, "dead_j", app.dead.discard_group)),
    ("dead.change_group", lambda app, n: _group(app, "dead_k", partial(
        app.dead.change_group, "retry"))),
    ("queues.pause", lambda app, n: app.queues.pause("mail")),
    ("nodes.drain", lambda app, n: app.nodes.drain(UUID(n["node"]))),
    ("nodes.undrain", lambda app, n: app.nodes.undrain(UUID(n["node"]))),
    ("nodes.stop", lambda app, n: app.nodes.stop(UUID(n["node"]))),
    ("queues.resume", lambda app, n: app.queues.resume("mail")),
    ("queues.set_limits", lambda app, n: app.queues.set_limits("mail", concurrency=4)),
    ("queues.set_policy", lambda app, n: app.queues.set_policy("mail", "fair")),
    ("queues.set_history", lambda app, n: app.queues.set_history("mail", "failures")),
    ("history.partition_by", lambda app, n: app.history.partition_by("hour")),
    ("queues.set_max_depth", lambda app, n: app.queues.set_max_depth("mail", 1000)),
    ("pools.put", lambda app, n: app.pools.put("spare", max_slots=4)),
    ("pools.delete", lambda app, n: app.pools.delete("spare")),
    ("maintenance.put", lambda app, n: app.maintenance.put("move", time="2h")),
    ("maintenance.delete", lambda app, n: app.maintenance.delete("move")),
    ("queues.set_weight", lambda app, n: app.queues.set_weight("mail", "acme", 2)),
    ("queues.configure", lambda app, n: app.queues.configure("money", concurrency=3)),
    ("alerts.acknowledge", lambda app, n: app.alerts.acknowledge("queue-paused:held")),
    ("alerts.silence", lambda app, n: app.alerts.silence("queue-paused:held", "2h")),
    ("alerts.restore", lambda app, n: app.alerts.restore("queue-paused:kept")),
    ("bulk.undo", lambda app, n: app.bulk.undo(UUID(n["bulk_a"]))),
    ("views.save", lambda app, n: app.views.save("mine", "/jobs?state=failed")),
    ("views.remove", lambda app, n: app.views.remove("mine")),
    ("queues.set_max_run_time", lambda app, n: app.queues.set_max_run_time("mail", 60.0)),
    ("schedules.put", lambda app, n: app.schedules.put(make_spec("new", "greet", every="1h"))),
    ("schedules.put_all", lambda app, n: app.schedules.put_all([], delete=["new"])),
    ("schedules.declare", lambda app, n: app.schedules.declare()),
    ("schedules.pause", lambda app, n: app.schedules.pause("nightly")),
    ("schedules.resume", lambda app, n: app.schedules.resume("nightly")),
    ("schedules.trigger", lambda app, n: app.schedules.trigger("nightly")),
    ("schedules.backfill", lambda app, n: app.schedules.backfill(
        "nightly", datetime.fromisoformat(n["first"]), datetime.fromisoformat(n["end"]))),
    ("schedules.delete", lambda app, n: app.schedules.delete("weekly")),
    ("schedules.put_calendar", lambda app, n: app.schedules.put_calendar(
        NamedCalendar(name="holidays"))),
    ("webhooks.add", lambda app, n: app.webhooks.add("https://example.org/new")),
    ("webhooks.pause", lambda app, n: app.webhooks.pause(UUID(n["webhook"]))),
    ("webhooks.resume", lambda app, n: app.webhooks.resume(UUID(n["webhook"]))),
    ("webhooks.test", lambda app, n: app.webhooks.test(UUID(n["webhook"]))),
    ("webhooks.redeliver", lambda app, n: app.webhooks.redeliver(UUID(n["delivery"]))),
    ("webhooks.remove", lambda app, n: app.webhooks.remove(UUID(n["webhook"]))),
    ("webhooks.allow", lambda app, n: app.webhooks.allow("10.0.0.2")),
    ("webhooks.disallow", lambda app, n: app.webhooks.disallow("10.0.0.2")),
    ("triggers.pause", lambda app, n: app.triggers.pause("orders")),
    ("triggers.resume", lambda app, n: app.triggers.resume("orders")),
    ("triggers.rewind", lambda app, n: app.triggers.rewind("orders")),
    ("triggers.remove", lambda app, n: app.triggers.remove("orders")),
    ("sinks.pause", lambda app, n: app.sinks.pause("out")),
    ("sinks.resume", lambda app, n: app.sinks.resume("out")),
    ("sinks.rewind", lambda app, n: app.sinks.rewind("out")),
    ("sinks.remove", lambda app, n: app.sinks.remove("out")),
    ("endpoints.add", lambda app, n: app.endpoints.add("new", "https://example.org/x")),
    ("endpoints.change", lambda app, n: app.endpoints.change("push", timeout=5.0)),
    ("endpoints.remove", lambda app, n: app.endpoints.remove("push")),
    ("workflows.put", lambda app, n: app.workflows.put(_graph())),
    ("workflows.put_declared", lambda app, n: app.workflows.put_declared(
        _workflow(app, "coded"))),
    ("workflows.declare", lambda app, n: _declare(app)),
    ("workflows.put_all", lambda app, n: app.workflows.put_all([_graph("filed")])),
    ("workflows.retire", lambda app, n: app.workflows.retire("flow")),
    ("runs.cancel", lambda app, n: app.runs.cancel(n["run_a"])),
    ("runs.pause", lambda app, n: app.runs.pause(n["run_b"])),
    ("runs.resume", lambda app, n: app.runs.resume(n["run_b"])),
    ("runs.retry", lambda app, n: app.runs.retry(n["run_c"], "first")),
    ("runs.retry_members", lambda app, n: app.runs.retry_members(n["run_m"], "parts")),
    ("runs.skip", lambda app, n: app.runs.skip(n["run_d"], "first")),
]  # fmt: skip

READS = {
    "jobs": {"find", "get", "list", "count", "dead_letters", "logs", "explain", "search", "look",
             "count_matching", "applicable", "matching", "has_ended", "log_lines", "check_kept",
             "look_whole"},
    "dead": {"groups", "count_by_error"},
    # `undo` has a test of its own, below; `begin` and `note` are parts of the verbs of jobs.
    "queues": {"get", "settings", "holders", "limits", "list", "shares", "service", "undo"},
    "alerts": {"list"},
    "bulk": {"get", "list", "jobs", "begin", "note"},
    "views": {"list"},
    "pools": {"get", "list"},
    "maintenance": {"get", "list"},
    "persons": {"find", "list", "open", "seal", "erase", "erase_ids"},  # test_persons.py
    "schedules": {"list", "page", "resolve", "get", "preview", "occurrences", "audit", "lint", "measure",
                  "compile_spec", "forecast", "calendar_load", "coming", "coming_week", "latest",
                  "calendars", "check_tasks", "latest_of", "latest_page", "look", "pages"},
    "webhooks": {"list", "get", "allowed", "deliveries", "deliveries_filter"},
    "endpoints": {"list", "get"},
    "triggers": {"list", "get"},
    "sinks": {"list", "get"},
    "registry": {"get", "list"},
    "nodes": {"get", "list", "running", "shards", "takeovers"},
    "statistics": {"all", "before", "queue", "queues", "task", "tasks"},
    "history": {"jobs", "page", "partitions"},
    "events": {"list", "stream"},
    "workflows": {"list", "get", "find", "definition"},
    # A run that is started is its own record, as a submitted job and a signal are.
    "runs": {"explain", "members", "list", "get", "steps", "step", "result", "start", "start_declared",
             "start_all_declared", "history", "graph", "new_declared", "input_of", "send", "has_ended"},
}  # fmt: skip


def test_every_verb_that_changes_something_has_an_example():
    app = App(database_url="postgresql://nowhere/none")
    verbs = {
        f"{noun}.{name}"
        for noun in READS
        for name, member in inspect.getmembers(getattr(app, noun), inspect.ismethod)
        if not name.startswith("_") and not name.endswith("_sync") and name not in READS[noun]
    }
    assert verbs == {name for name, _ in VERBS}


async def test_every_change_by_python_is_recorded_with_it_or_not_made(app: App):
    @app.cron("0 6 * * *")
    async def declared() -> None:
        """Declared in code."""

    world = World(app)
    await world.fill()
    for name, act in VERBS:
        before = await world.state()
        async with world.full_disk():
            with pytest.raises((asyncpg.PostgresError, RotaError)):
                await act(app, world.names)
        await world.check_refused(name, before)
        await act(app, world.names)
        row = await world.check_recorded(name, "python", local_user())
        assert row["via"] == "python", name
        assert await world.state() != before, name


async def test_an_undo_of_a_queues_change_is_recorded_with_it_or_not_made(app: App):
    world = World(app)
    await world.fill()
    await app.queues.pause("mail")
    [entry] = await app.rota.audit.list("default", limit=1)
    before = await world.state()
    async with world.full_disk():
        with pytest.raises((asyncpg.PostgresError, RotaError)):
            await app.queues.undo("mail", entry.id)
    assert await world.state() == before
    await app.queues.undo("mail", entry.id)
    [done] = await app.rota.audit.list("default", limit=1)
    assert (done.action, done.subject) == ("undo", "queue mail")
    assert (await app.queues.get("mail")).paused_at is None


async def test_what_changes_nothing_is_not_recorded(app: App):
    world = World(app)
    await app.schedule("nightly", "greet", cron="0 3 * * *")
    job = await app.submit("greet", {})
    await world.rows()
    assert await app.schedule("nightly", "greet", cron="0 3 * * *") == "unchanged"
    assert await app.jobs.retry_many([job.id]) == []
    with pytest.raises(NotFound):
        await app.queues.resume("nosuchqueue")
    assert await world.rows() == []


async def test_an_apply_is_one_transaction_with_a_row_for_each_schedule(app: App):
    world = World(app)
    await app.schedule("old", "greet", every="1h")
    await world.rows()
    specs = [make_spec(name, "greet", every="1h") for name in ("a", "b")]
    await app.schedules.put_all(specs, delete=["old"])
    rows = await world.rows()
    assert [(row["action"], row["subject"]) for row in rows] == [
        ("create", "schedule a"), ("create", "schedule b"), ("delete", "schedule old"),
    ]  # fmt: skip


async def test_a_change_within_a_change_is_recorded_as_one(app: App):
    world = World(app)
    database = (await app.store()).database
    with acting_as(Actor(name="night job", via="python", interface="python")):
        async with changing(database, "close", "shop") as change:
            await app.queues.pause("mail")
            await app.queues.pause("web")
            change.after = {"queues": ["mail", "web"]}
    [row] = await world.rows()
    assert (row["actor"], row["action"], row["subject"]) == ("night job", "close", "shop")
    assert {queue.name for queue in await app.queues.list() if queue.paused_at} == {"mail", "web"}


async def test_a_failed_change_takes_everything_within_it_back(app: App):
    world = World(app)
    database = (await app.store()).database

    async def close() -> None:
        async with changing(database, "close", "shop"):
            await app.queues.pause("mail")
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        await close()
    assert await world.rows() == []
    assert await app.queues.list() == []


async def test_tasks_started_within_a_change_do_not_join_its_transaction(app: App):
    world = World(app)
    database = (await app.store()).database

    async def close() -> None:
        async with changing(database, "close", "shop"):
            await asyncio.create_task(app.queues.pause("mail"))
            raise ValueError("half way")

    with pytest.raises(ValueError, match="half way"):
        await close()
    assert [row["action"] for row in await world.rows()] == ["pause"]


async def test_entries_are_found_by_who_what_and_from_where(app: App):
    await app.queues.pause("mail")
    with acting_as(Actor(name="Ada", via="token x", interface="rest")):
        await app.queues.resume("mail")
    store = app.rota.audit
    asked: list[dict[str, Any]] = [{"actor": "Ada"}, {"action": "resume"}, {"interface": "rest"}]
    for given in asked:
        assert [entry.action for entry in await store.list("default", **given)] == ["resume"], given
    assert len(await store.list("default", subject="queue mail")) == 2
    assert await store.list("elsewhere") == []


# -- the command line

COMMANDS: list[tuple[str, list[str]]] = [
    ("jobs cancel", ["{one}"]),
    ("jobs retry", ["{dead_a}"]),
    ("jobs discard", ["{dead_b}"]),
    ("history partitions", ["--by", "hour"]),
    ("queues pause", ["mail"]),
    ("nodes drain", ["{node}"]),
    ("nodes undrain", ["{node}"]),
    ("nodes stop", ["{node}"]),
    ("runs cancel", ["{run_a}"]),
    ("runs pause", ["{run_b}"]),
    ("runs resume", ["{run_b}"]),
    ("runs retry", ["{run_c}", "first"]),
    ("runs retry-members", ["{run_m}", "parts"]),
    ("runs skip", ["{run_d}", "first"]),
    ("workflows retire", ["flow"]),
    ("workflows apply", ["{workflow}", "--yes"]),
    ("queues resume", ["mail"]),
    ("queues set", ["mail", "--max-run-time", "1m"]),
    ("queues weight", ["mail", "acme", "2"]),
    ("queues apply", ["{queues}", "--yes"]),
    ("pools set", ["spare", "--max-slots", "4"]),
    ("pools delete", ["spare", "--yes"]),
    ("maintenance set", ["move", "--for", "2h"]),
    ("maintenance delete", ["move", "--yes"]),
    ("alerts acknowledge", ["queue-paused:held"]),
    ("alerts silence", ["queue-paused:held", "--for", "2h"]),
    ("alerts restore", ["queue-paused:kept"]),
    ("jobs undo", ["{bulk_a}"]),
    ("schedules create", ["new", "--task", "greet", "--cron", "0 4 * * *"]),
    ("schedules pause", ["nightly"]),
    ("schedules resume", ["nightly"]),
    ("schedules trigger", ["nightly"]),
    ("schedules backfill", ["nightly", "--from", "{first}", "--to", "{end}", "--yes"]),
    ("schedules delete", ["new", "--yes"]),
    ("schedules apply", ["{file}", "--yes"]),
    ("schedules import", ["{crontab}", "--yes"]),
    ("sessions end", ["{session_b}", "--yes"]),
    ("tokens create", ["x"]),
    ("tokens revoke", ["{ci}", "--yes"]),
    ("roles set", ["mailer", "--permission", "queues"]),
    ("roles delete", ["mailer", "--yes"]),
    ("users add", ["eve"]),
    ("login", ["--as", "ada"]),
    ("users remove", ["ada", "--yes"]),
    ("namespaces limit", ["acme", "--max-jobs", "7"]),
    ("namespaces unlimit", ["acme", "--yes"]),
    ("namespaces encrypt", ["beta"]),
    ("namespaces decrypt", ["beta"]),
    ("webhooks add", ["https://example.org/new"]),
    ("webhooks pause", ["{webhook}"]),
    ("webhooks resume", ["{webhook}"]),
    ("webhooks redeliver", ["{delivery}"]),
    ("webhooks remove", ["{webhook}", "--yes"]),
    ("webhooks allow", ["10.0.0.2"]),
    ("webhooks disallow", ["10.0.0.2"]),
    ("triggers pause", ["orders"]),
    ("triggers resume", ["orders"]),
    ("triggers rewind", ["orders", "--yes"]),
    ("triggers remove", ["orders", "--yes"]),
    ("sinks pause", ["out"]),
    ("sinks resume", ["out"]),
    ("sinks rewind", ["out", "--yes"]),
    ("sinks remove", ["out", "--yes"]),
    ("endpoints add", ["new", "https://example.org/x"]),
    ("endpoints change", ["push", "--timeout", "5"]),
    ("endpoints remove", ["push", "--yes"]),
]

# They look, submit (a job is its own record), or run; `grants`, `migrate` and `encrypt --rotate` have
# other tests.
# `webhooks test` waits for a worker, `schedules declare` loads code; the verbs behind them are tested
# above.
LOOKS = {
    "alerts list", "jobs changes", "queues undo",  # an undo of a queue has a test of its own
    "audit export", "audit list",
    "completion", "dev", "encrypt", "endpoints list", "endpoints show", "events", "grants",
    "history export",
    "jobs dead", "jobs watch",
    "runs explain", "runs members", "runs watch",
    "runs list", "runs show", "runs history", "runs send", "signals list", "signals send",
    "workflows check-replay", "workflows export", "workflows list", "workflows show",
    "workflows start",
    "jobs explain", "jobs list", "jobs logs", "jobs show", "jobs submit", "migrate",
    "namespaces list", "nodes list", "schedules audit", "schedules declare", "schedules forecast",
    "schedules lint",
    "schedules list", "schedules occurrences", "schedules preview", "schedules show", "sessions list",
    "shards",
    "queues export",
    "queues limits", "queues list", "queues shares", "pool", "pools list", "pools show",
    "maintenance list", "persons list", "persons show", "start",
    "persons erase",  # tests/operations/test_persons.py
    "tasks list", "tasks show", "tasks stats",
    "tokens list", "roles list", "roles show", "roles permissions", "users list",
    "version", "webhooks deliveries", "webhooks list",
    "webhooks test", "triggers list", "triggers show", "sinks list", "sinks show",
    "profiles list", "profiles remove", "profiles use", "doctor",
    "recover",  # tests/operations/test_recovery.py
}  # fmt: skip


def _commands(group: Any, path: tuple[str, ...] = ()) -> set[str]:
    found: set[str] = set()
    for name, each in group.commands.items():
        inner = hasattr(each, "commands")
        found |= _commands(each, (*path, name)) if inner else {" ".join((*path, name))}
    return found


def test_every_command_that_changes_something_has_an_example():
    assert _commands(typer.main.get_command(cli)) == {name for name, _ in COMMANDS} | LOOKS


def test_every_change_by_the_command_line_is_recorded_with_it_or_not_made(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ROTA_ENCRYPTION_KEYS", "k:" + "A" * 43 + "=")
    world = World(App())
    asyncio.run(_filled_and_closed(world))
    (tmp_path / "s.yaml").write_text("schedules:\n  from-file: {task: greet, cron: 0 4 * * *}\n")
    (tmp_path / "crontab").write_text("0 4 * * * /bin/true\n")
    (tmp_path / "w.yaml").write_text("workflow: from-file\nsteps: {only: {task: greet}}\n")
    (tmp_path / "q.yaml").write_text("queues: {filed: {concurrency: 3}}\n")
    files = {
        "file": str(tmp_path / "s.yaml"), "crontab": str(tmp_path / "crontab"),
        "workflow": str(tmp_path / "w.yaml"),
        "queues": str(tmp_path / "q.yaml"),
    }  # fmt: skip
    for name, given in COMMANDS:
        words = [*name.split(), *(each.format(**world.names, **files) for each in given)]
        before, refused = asyncio.run(_refused(world, words))
        assert refused, name
        asyncio.run(world.check_refused(name, before))
        answer = run(*words)
        assert answer.code == 0, (name, answer.err)
        row = asyncio.run(world.check_recorded(name, "cli", local_user()))
        assert row["via"] == "cli", name
        assert asyncio.run(world.state()) != before, name


async def _filled_and_closed(world: World) -> None:
    await world.fill()
    await world.app.close()


async def _refused(world: World, words: list[str]) -> tuple[list[Any], bool]:
    before = await world.state()
    async with world.full_disk():
        try:
            answer = await asyncio.to_thread(run, *words)
        except asyncpg.PostgresError:
            return before, True
    return before, answer.code != 0


def test_the_log_is_listed_and_filtered_on_the_command_line(environ: dict[str, str]):
    assert run("queues", "pause", "mail", "--new").code == 0
    assert run("queues", "resume", "mail").code == 0
    listed = run("audit", "--json").json
    assert [entry["action"] for entry in listed] == ["resume", "pause"]
    assert {entry["interface"] for entry in listed} == {"cli"}
    assert {entry["actor"] for entry in listed} == {local_user()}
    shown = run("audit", "--action", "pause", "--subject", "queue mail", "--since", "-1h")
    assert "pause" in shown.out
    assert "resume" not in shown.out
    assert run("audit", "--interface", "rest", "--json").json == []
    older = run("audit", "--before", str(listed[0]["id"]), "--json").json
    assert [entry["action"] for entry in older] == ["pause"]
