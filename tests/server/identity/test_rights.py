"""What a token or a session can't do: submit what is Rota's own, outlive its maker, lock others out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from rota import App, ConfigError
from rota.config import is_internal_task
from rota.core.access import check_scopes
from rota.core.roles import NOUNS
from rota.core.time.schedule import make_spec
from rota.lib.ids import new_id
from rota.lib.passwords import hash_password
from rota.server.policy import route_table, scope_of
from tests.support.server_fixtures import LiveServer, serving

PASSWORD = "correct horse battery"


# -- tasks of Rota's own


INTERNAL = {"task": "rota.webhook", "payload": {"webhook": str(new_id()), "event": {"kind": "x"}}}


async def test_an_internal_task_cannot_be_submitted_or_scheduled_over_http(server: LiveServer):
    admin = await server.client("admin", "*")
    for word in ("task", "job_type"):
        said = {word: "rota.webhook", "payload": INTERNAL["payload"]}
        answer = await admin.post("/v1/jobs", json=said)
        assert answer.status_code == 422, answer.text
        assert "rota.webhook" in answer.json()["detail"]
        lines = f"{json.dumps(said)}\n{json.dumps({'task': 'own'})}\n"
        summary = (await admin.post("/v1/jobs:bulk", content=lines)).json()
        assert (summary["stored"], summary["refused"]) == (1, 1), summary
    schedule = {"name": "forged", "cron": "* * * * *", **INTERNAL}
    answer = await admin.post("/v1/schedules", json=schedule)
    assert answer.status_code == 422, answer.text
    assert [job.task for job in await server.app.jobs.list(task="rota.webhook")] == []


async def test_an_internal_task_cannot_be_submitted_or_scheduled_by_name(make_app):
    app: App = make_app()
    with pytest.raises(ConfigError, match=r"rota\.webhook"):
        await app.submit("rota.webhook", INTERNAL["payload"])
    with pytest.raises(ConfigError, match=r"rota\.anything"):
        await asyncio.to_thread(app.submit_sync, "rota.anything", {})
    with pytest.raises(ConfigError, match=r"rota\.webhook"):
        await app.schedules.put(make_spec("forged", "rota.webhook", cron="* * * * *"))
    assert (await app.submit("rota.command", {"argv": ["true"]})).id  # the one for everybody


async def test_python_and_sql_agree_on_what_is_internal(make_app):
    app: App = make_app()
    names = [
        "rota.webhook", "rota.command", "rota.commands", "rota.", "rota", "rota.endpoint", "rotas.x",
        "Rota.webhook", "own.rota.webhook", "rota_webhook", f"{app.settings.schema}.webhook", "",
    ]  # fmt: skip
    async with (await app.store()).database.connection() as connection:
        question = f"select {app.settings.schema}.is_internal_task($1)"
        by_sql = {name: await connection.fetchval(question, name) for name in names}
    assert by_sql == {name: is_internal_task(name) for name in names}
    assert {name for name, internal in by_sql.items() if internal} == {
        "rota.webhook", "rota.commands", "rota.", "rota.endpoint",
    }  # fmt: skip


async def test_an_internal_task_cannot_be_submitted_by_sql_not_even_by_the_owner(make_app):
    app: App = make_app()
    async with (await app.store()).database.connection() as connection:
        submit = f"select {app.settings.schema}.submit($1, '{{}}')"
        for task in ("rota.webhook", "rota.anything"):
            with pytest.raises(asyncpg.PostgresError, match="is internal") as refused:
                await connection.fetchval(submit, task)
            assert refused.value.sqlstate == "RT001"
        assert await connection.fetchval(submit, "rota.command")  # the one for everybody


# -- what a task declares, and what a token is for


async def test_a_submit_cannot_choose_another_guarantee_than_the_task_declares(
    make_app: Callable[..., App],
):
    app = make_app(port=0)

    @app.task(guarantee="at_most_once")
    async def charge() -> None: ...

    async with serving(app) as server:
        # Declared by a node somewhere else, which this server's app doesn't know.
        async with (await app.store()).database.connection() as connection:
            await connection.execute(
                f"""insert into {app.settings.schema}.task (namespace, name, queue, needs, priority,
                guarantee, max_attempts) values ('default', 'elsewhere', 'default', '{{}}', 0, 2, 5)"""
            )
        client = await server.client("operator")
        for task in ("charge", "elsewhere"):
            said = {"task": task, "guarantee": "exactly_once"}
            answer = await client.post("/v1/jobs", json=said)
            assert answer.status_code == 422, answer.text
            assert "declared at_most_once" in answer.json()["detail"]
            summary = (await client.post("/v1/jobs:bulk", content=json.dumps(said))).json()
            assert (summary["stored"], summary["refused"]) == (0, 1), summary
            same = await client.post("/v1/jobs", json={"task": task, "guarantee": "at_most_once"})
            assert same.status_code == 201, same.text
        free = {"task": "nobody.declared", "guarantee": "at_most_once"}
        assert (await client.post("/v1/jobs", json=free)).status_code == 201


async def test_a_token_for_submitting_submits_and_nothing_else(server: LiveServer):
    client = await server.client("operator", scopes=["jobs:submit"])
    id = (await client.post("/v1/jobs", json={"task": "work"})).json()["id"]
    assert (await client.post("/v1/jobs:bulk", content=b'{"task": "work"}')).status_code == 200
    for method, path in [("GET", "/v1/jobs"), ("GET", f"/v1/jobs/{id}"), ("GET", "/v1/queues"),
                         ("POST", f"/v1/jobs/{id}/cancel"), ("GET", "/v1/schedules")]:  # fmt: skip
        answer = await client.request(method, path)
        assert answer.status_code == 403, (path, answer.text)
    writer = await server.client("operator", scopes=["jobs:write"])
    assert (await writer.post("/v1/jobs", json={"task": "work"})).status_code == 201


async def test_a_token_for_tasks_submits_jobs_of_those(server: LiveServer):
    admin = await server.client("admin")
    made = await admin.post(
        "/v1/tokens", json={"name": "shop", "role": "operator", "tasks": ["resize", "mail.*"]}
    )
    assert made.status_code == 201, made.text
    assert made.json()["info"]["scopes"] == ["jobs:submit"]
    client = httpx.AsyncClient(
        base_url=server.url, headers={"Authorization": f"Bearer {made.json()['token']}"}, timeout=60
    )
    async with client:
        tasks = ("resize", "mail.send", "resized", "refund", "rota.command")
        statuses = {
            task: (await client.post("/v1/jobs", json={"task": task})).status_code for task in tasks
        }
        assert statuses == {
            "resize": 201, "mail.send": 201, "resized": 403, "refund": 403, "rota.command": 403,
        }  # fmt: skip
        lines = "\n".join(json.dumps({"task": task}) for task in tasks)
        summary = (await client.post("/v1/jobs:bulk", content=lines)).json()
        assert (summary["stored"], summary["refused"]) == (2, 3)
        assert (await client.get("/v1/jobs")).status_code == 403
    for wrong in ({"role": "viewer"}, {"scopes": ["jobs"]}, {"tasks": ["no good!"]}):
        body = {"name": "x", "role": "operator", "tasks": ["resize"], **wrong}
        refused = await admin.post("/v1/tokens", json=body)
        assert refused.status_code == 422, refused.text
        assert next(iter(wrong)) in refused.json()["detail"]


async def test_a_token_for_queues_submits_jobs_to_those(server: LiveServer):
    admin = await server.client("admin")
    body = {"name": "shop", "role": "operator", "queues": ["mail", "bulk.*"], "tasks": ["send"]}
    made = await admin.post("/v1/tokens", json=body)
    assert made.status_code == 201, made.text
    info = made.json()["info"]
    assert (info["scopes"], info["queues"]) == (["jobs:submit"], ["bulk.*", "mail"])
    client = httpx.AsyncClient(
        base_url=server.url, headers={"Authorization": f"Bearer {made.json()['token']}"}, timeout=60
    )
    jobs = [
        ({"task": "send", "queue": "mail"}, 201), ({"task": "send", "queue": "bulk.night"}, 201),
        ({"task": "send", "queue": "mails"}, 403), ({"task": "send", "queue": "default"}, 403),
        ({"task": "send"}, 403), ({"task": "refund", "queue": "mail"}, 403),
    ]  # fmt: skip
    async with client:
        for job, status in jobs:
            answer = await client.post("/v1/jobs", json=job)
            assert answer.status_code == status, (job, answer.text)
        said = (await client.post("/v1/jobs", json={"task": "send"})).json()["detail"]
        assert said == "this token can only submit jobs to queue bulk.*, mail: name one of them"
        lines = "\n".join(json.dumps(job) for job, _ in jobs)
        summary = (await client.post("/v1/jobs:bulk", content=lines)).json()
        assert (summary["stored"], summary["refused"]) == (2, 4)
        assert (await client.get("/v1/jobs")).status_code == 403
    stored = (await admin.get("/v1/jobs")).json()["items"]
    assert {job["queue"] for job in stored} == {"mail", "bulk.night"}
    for wrong in ({"role": "viewer"}, {"scopes": ["jobs"]}, {"queues": ["no good!"]}):
        body = {"name": "x", "role": "operator", "queues": ["mail"], **wrong}
        refused = await admin.post("/v1/tokens", json=body)
        assert refused.status_code == 422, refused.text
        assert next(iter(wrong)) in refused.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs:bulk"])
@pytest.mark.parametrize(
    "unique",
    [
        {"unique": "waiting", "unique_conflict": "replace"},
        {"debounce": 3600},
        {"throttle": 3600, "throttle_keep": "last"},
    ],
    ids=["replace", "debounce", "throttle"],
)
async def test_a_token_for_queues_changes_no_unique_job_of_another_queue(
    server: LiveServer, path: str, unique: dict[str, Any]
):
    admin = await server.client("admin")
    body = {"name": "shop", "role": "operator", "queues": ["mail"]}
    token = (await admin.post("/v1/tokens", json=body)).json()["token"]

    def job(queue: str, amount: int) -> dict[str, Any]:
        given = {"task": "refund", "queue": queue, "payload": {"amount": amount}}
        return {**given, "unique_key": "order-1", **unique}

    for amount in (1, 2):  # of a throttle the second is the one that waits
        assert (await admin.post("/v1/jobs", json=job("payments", amount))).status_code == 201
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, timeout=60) as client:
        answer = await client.post(path, content=json.dumps(job("mail", 1_000_000)))
        refused = answer.json().get("refused") if path.endswith("bulk") else answer.status_code
        assert refused == (1 if path.endswith("bulk") else 409), answer.text
    whole = (await admin.get("/v1/jobs:whole")).json()["items"]
    assert {each["queue"] for each in whole} == {"payments"}
    assert 1_000_000 not in [each["payload"]["amount"] for each in whole]
    assert (await admin.post("/v1/jobs", json=job("mail", 3))).status_code == 201  # without a limit
    whole = (await admin.get("/v1/jobs:whole")).json()["items"]
    assert 3 in [each["payload"]["amount"] for each in whole]


def test_a_scope_that_no_route_has_is_refused_with_the_one_that_is_meant():
    for wrong, meant in [("metrix", "metrics"), ("job:read", "jobs:read"), ("queue", "queues")]:
        with pytest.raises(ConfigError, match=f"do you mean '{meant}'"):
            check_scopes([wrong])
    for wrong in ("jobs:submits", "queues:submit", "", "*", "jobs:"):
        with pytest.raises(ConfigError, match="there is no scope"):
            check_scopes([wrong])
    assert check_scopes(["jobs:submit", "jobs:read", "metrics"])


async def test_the_known_scopes_are_those_of_the_routes(server: LiveServer):
    table = list(route_table(server.server.asgi))
    guarded = {scope_of(route.method, route.path) for route in table if route.policy.role}
    assert {scope.partition(":")[0] for scope in guarded} == NOUNS


# -- a token doesn't reach further than the one that made it


async def make_token(client: httpx.AsyncClient, **said: Any) -> httpx.Response:
    return await client.post("/v1/tokens", json={"name": "x", "role": "admin", **said})


def bearer(answer: httpx.Response) -> dict[str, str]:
    return {"Authorization": f"Bearer {answer.json()['token']}"}


async def test_a_token_makes_none_that_is_good_for_longer_than_itself(server: LiveServer):
    soon = datetime.now(UTC) + timedelta(hours=1)
    client = await server.client("admin", expires_at=soon)
    made = await make_token(client)
    assert datetime.fromisoformat(made.json()["info"]["expires_at"]) == soon
    later = (soon + timedelta(seconds=1)).isoformat()
    refused = await make_token(client, expires_at=later)
    assert refused.status_code == 403
    assert "expires_at" in refused.json()["detail"]
    earlier = (soon - timedelta(minutes=1)).isoformat()
    assert (await make_token(client, expires_at=earlier)).status_code == 201
    endless = await server.client("admin")
    assert (await make_token(endless)).json()["info"]["expires_at"] is None


async def test_what_a_token_made_is_revoked_with_it_if_asked(server: LiveServer):
    boss, client = await server.client("admin", name="boss"), await server.client("admin")
    child = await make_token(client)
    grandchild = await client.post(
        "/v1/tokens", json={"name": "x", "role": "viewer"}, headers=bearer(child)
    )
    assert grandchild.status_code == 201, grandchild.text
    prefix = client.headers["authorization"].split("_")[1]
    await boss.delete(f"/v1/tokens/{prefix}")
    for answer in (child, grandchild):  # not asked
        asked = await boss.get("/v1/session", headers=bearer(answer))
        assert asked.status_code == 200
    revoked = await boss.delete(f"/v1/tokens/{prefix}", params={"made": True})
    assert revoked.json()["prefix"] == prefix
    for answer in (child, grandchild):
        asked = await boss.get("/v1/session", headers=bearer(answer))
        assert asked.status_code == 401
    assert (await boss.get("/v1/session")).status_code == 200


# -- sessions


async def add_ada(server: LiveServer, password: str | None = PASSWORD) -> None:
    store = server.context.identity
    person = await store.put_user(new_id(), "ada", password and hash_password(password))
    await store.put_membership(person, "default", "operator")


async def log_in(server: LiveServer, password: str = PASSWORD, address: str = "") -> httpx.Response:
    browser = await server.client(None)
    headers = {"X-Forwarded-For": address} if address else {}
    said = {"name": "ada", "password": password}
    return await browser.post("/login/password", json=said, headers=headers)


async def test_a_new_password_ends_the_sessions_and_links_of_before(server: LiveServer):
    await add_ada(server)
    cookies = dict((await log_in(server)).cookies)
    link = await server.link(user="ada")
    browser = await server.client(None)
    browser.cookies.update(cookies)
    await add_ada(server, None)  # another role, no other password: nothing ends
    server.context.sessions.cache.clear()
    assert (await browser.get("/v1/session")).status_code == 200
    await add_ada(server, "another horse battery")
    server.context.sessions.cache.clear()  # as five seconds do
    assert (await browser.get("/v1/session")).status_code == 401
    stranger = await server.client(None)
    assert (await stranger.post("/login/link", json={"link": link})).status_code == 401
    assert (await log_in(server, "another horse battery")).status_code == 200


async def test_sessions_are_listed_and_ended_also_those_of_links(server: LiveServer):
    await add_ada(server)
    ada = dict((await log_in(server)).cookies)
    secret = await server.link(namespace="default")
    browser = await server.client(None)
    assert (await browser.post("/login/link", json={"link": secret})).status_code == 200
    other = await server.link(namespace="acme")
    elsewhere = await server.client(None)
    assert (await elsewhere.post("/login/link", json={"link": other})).status_code == 200

    admin = await server.client("admin")
    listed = (await admin.get("/v1/sessions")).json()["items"]
    assert [(one["name"], one["by_link"]) for one in listed] == [("link", True), ("ada", False)]
    assert "hash" not in listed[0]
    for one in listed:
        assert (await admin.delete(f"/v1/sessions/{one['id']}")).status_code == 204
    assert (await browser.get("/v1/session")).status_code == 401
    browser.cookies.update(ada)
    assert (await browser.get("/v1/session")).status_code == 401
    everywhere = await server.client("admin", "*")
    [left] = (await everywhere.get("/v1/sessions")).json()["items"]
    assert left["memberships"] == {"acme": "admin"}
    assert (await admin.delete(f"/v1/sessions/{left['id']}")).status_code == 404
    assert (await elsewhere.get("/v1/session?namespace=acme")).status_code == 200
    assert (await everywhere.delete(f"/v1/sessions/{left['id']}")).status_code == 204
    assert (await elsewhere.get("/v1/session?namespace=acme")).status_code == 401


@pytest.fixture
async def behind_proxy(make_app: Callable[..., App]) -> AsyncIterator[LiveServer]:
    """Its clients say where they come from."""
    async with serving(make_app(port=0, trusted_proxies="127.0.0.1")) as live:
        yield live


async def test_wrong_guesses_lock_out_the_address_they_come_from_and_nobody_else(
    behind_proxy: LiveServer,
):
    await add_ada(behind_proxy)
    guesses = [(await log_in(behind_proxy, "wrong", "192.0.2.66")).status_code for _ in range(7)]
    assert guesses == [401] * 5 + [429] * 2
    assert (await log_in(behind_proxy, PASSWORD, "192.0.2.66")).status_code == 429
    assert (await log_in(behind_proxy, PASSWORD, "192.0.2.1")).status_code == 200


async def test_guesses_from_many_addresses_stop_and_known_addresses_go_on(
    behind_proxy: LiveServer,
):
    await add_ada(behind_proxy)
    assert (await log_in(behind_proxy, PASSWORD, "192.0.2.1")).status_code == 200
    statuses = []
    for number in range(60):
        address = f"198.51.100.{number}"
        statuses.append((await log_in(behind_proxy, "wrong", address)).status_code)
    assert statuses == [401] * 50 + [429] * 10
    assert (await log_in(behind_proxy, PASSWORD, "203.0.113.9")).status_code == 429
    assert (await log_in(behind_proxy, PASSWORD, "192.0.2.1")).status_code == 200


# -- queues


async def test_a_queue_that_nobody_named_is_refused_with_the_one_that_is_meant(server: LiveServer):
    client = await server.client("operator")
    await client.post("/v1/jobs", json={"task": "pay", "queue": "payments"})
    refused = await client.post("/v1/queues/paymnts/pause")
    assert refused.status_code == 404
    assert "do you mean 'payments'" in refused.json()["detail"]
    assert (await client.post("/v1/queues/payments/pause")).status_code == 200
