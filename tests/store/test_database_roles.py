"""Database roles with the least rights: each works with nothing more than `rota grants` gives it.

The tables belong to a role that is no superuser, as with managed PostgreSQL.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from proof.replicas import Replica
from proof.waiting import eventually
from rota import App, StoreUnavailable
from rota.node import Node
from rota.operations.installation import Installation
from rota.server.policy import route_table
from rota.store.grants import PURPOSES, SECRETS, grant_statements, table_grants
from rota.store.privileges import known_tables, needs_of
from rota.store.work import UpkeepStore
from tests.support import node_tasks
from tests.support.encrypted import OLD
from tests.support.server_fixtures import serving

ROLES = ("submit", "submit-unique", "seal", "worker", "scheduler", "server", "read")


class Installed:
    """A database whose tables belong to `rota_owner`, and roles named after what they do."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica

    def url(self, role: str) -> str:
        return f"postgresql://rota_{role.replace('-', '_')}@{self.replica.host}/postgres"

    async def connect(self, role: str) -> Any:
        return await asyncpg.connect(self.url(role))

    def app(self, role: str, **given: Any) -> App:
        return App(database_url=self.url(role), heartbeat=0.5, processes=1, **given)


async def _install() -> Installed:
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    replica = Replica(folder, "roles")
    await replica.make("fsync = off\n")
    admin = await replica.connect()
    await admin.execute("create role rota_owner login; revoke create on schema public from public")
    for statement in grant_statements("owner", "rota_owner", "rota"):
        await admin.execute(statement)
    for role in ROLES:
        await admin.execute(f"create role rota_{role.replace('-', '_')} login")
    await admin.close()
    installed = Installed(replica)
    owner = installed.app("owner")
    await owner.migrate()
    for role in ROLES:
        name = f"rota_{role.replace('-', '_')}"
        await Installation(owner.connector).database_roles.grant(name, role)  # type: ignore[arg-type]
    await owner.close()
    return installed


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    """Made once: nothing of it belongs to an event loop."""
    made = asyncio.run(_install())
    yield made
    asyncio.run(made.replica.stop())


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage() for record in caplog.records
        if "permission denied" in record.getMessage() + str(record.exc_info)
        or "may not do this" in record.getMessage() + str(record.exc_info)
    ]  # fmt: skip


async def test_workers_and_schedulers_do_their_work_with_their_own_rights(
    installed: Installed, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    owner = installed.app("owner")
    scheduler, tasks = installed.app("scheduler"), node_tasks.app
    async with (
        tasks.using(installed.app("worker").settings),
        Node(scheduler, roles=["scheduler"]).running(),
        Node(tasks, roles=["worker"]).running(),
    ):
        await owner.schedule("often", "remember", every=1, payload={"value": "tick"})
        submits: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
            ("remember", {"value": 1}, {}), ("remember", {"value": 2}, {"delay": 0.5}),
            ("in_child", {"number": 3}, {}), ("in_thread", {"number": 4}, {}),
            ("look_then_disturb", {"disturbance": "select 1"}, {}),
            ("look_then_disturb_in_child", {"disturbance": "select 1"}, {}),
            ("remember", {"value": 5}, {"concurrency_key": "k", "unique": "waiting"}),
            ("remember", {"value": 6}, {"queue": "limited"}),
        ]  # fmt: skip
        await owner.queues.set_limits("limited", concurrency=1)
        jobs = [await owner.submit(name, given, **more) for name, given, more in submits]
        for job in jobs:
            assert await job.result(90) is not None
        failing = await owner.submit("too_slow", {})

        async def dead() -> bool:
            return (await owner.jobs.get(failing.id)).state == "failed"

        await eventually(dead, 90)
        assert await owner.jobs.cancel((await owner.submit("sleep_long", {})).id)
        await eventually(lambda: "tick" in node_tasks.seen, 90)
    assert refusals(caplog) == []
    await owner.schedules.delete("often")
    await owner.close()
    await scheduler.close()


async def test_a_scheduler_makes_and_drops_days_that_belong_to_another_role(installed: Installed):
    app = installed.app("scheduler")
    store = UpkeepStore((await app.store()).database)
    assert await store.make_days(40) > 0
    admin = await installed.replica.connect()
    made = await admin.fetchval("select rota.make_partition('past', '2020-01-01')")
    owner = await admin.fetchval(
        "select relowner::regrole::text from pg_class where oid = 'rota.past_20200101'::regclass"
    )
    assert (made, owner) == (True, "rota_owner")
    assert "past_20200101" in await store.drop_old_days(7, 90, 7)
    connection = await installed.connect("scheduler")
    for statement, error in (
        ("select rota.drop_day('past_other', true, null)", asyncpg.UndefinedTableError),
        ("select rota.drop_day('api_token', false, null)", asyncpg.UndefinedTableError),
        ("select rota.make_partition('audit', '2030-01-01')", asyncpg.InvalidParameterValueError),
        ("drop table rota.past", asyncpg.InsufficientPrivilegeError),
    ):
        with pytest.raises(error):
            await connection.execute(statement)
    await store.vacuum_present()
    await connection.close()
    await admin.close()
    await app.close()


async def test_a_server_answers_every_route_with_its_own_rights(
    installed: Installed, caplog: pytest.LogCaptureFixture
):
    app = installed.app("server", port=0)
    async with serving(app) as live:
        assert live.context.row_security.enabled
        admin = await live.client("admin", namespace="*")
        made = await admin.post("/v1/jobs", json={"task": "greet", "payload": {}})
        assert made.status_code == 201, made.text
        job = made.json()["id"]
        bulk = "\n".join('{"task": "greet", "payload": {}}' for _ in range(300))
        for method, path, given in (
            ("POST", "/v1/jobs:bulk", {"content": bulk}),
            ("POST", f"/v1/jobs/{job}/cancel", {}),
            ("POST", "/v1/queues/default/pause", {}), ("POST", "/v1/queues/default/resume", {}),
            ("PUT", "/v1/schedules/nightly",
             {"json": {"task": "greet", "cron": "0 3 * * *"}}),
            ("POST", "/v1/schedules/nightly/pause", {}),
            ("DELETE", "/v1/schedules/nightly", {}),
            ("POST", "/v1/tokens", {"json": {"name": "t", "role": "viewer"}}),
            ("GET", f"/v1/jobs/{job}", {}),
        ):  # fmt: skip
            answer = await admin.request(method, path, **given)
            assert answer.status_code < 400, (path, answer.text)
        for route in route_table(live.server.asgi):
            unfit = "{" in route.path or "stream" in route.path or route.path == "/readyz"
            if route.method == "GET" and not unfit:
                answer = await admin.get(route.path, headers={"Accept": "text/html"}, timeout=20)
                assert answer.status_code < 500, (route.path, answer.text[:500])
        await live.context.identity.sweep(365)
    assert refusals(caplog) == []
    connection = await installed.connect("server")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="thirty days"):
        await connection.execute("select rota.trim_audit(now())")
    await connection.close()
    await app.close()


async def test_a_reader_reads_and_cannot_change_anything(installed: Installed):
    app = installed.app("read")
    assert isinstance(await app.jobs.list(), list)
    await app.queues.list()
    await app.nodes.list()
    await app.schedules.list()
    await app.events.list()
    await app.runs.list()
    with pytest.raises(StoreUnavailable, match="rota grants ROLE"):
        await app.submit("greet", {})
    connection = await installed.connect("read")
    for table in sorted(SECRETS):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(f"select from rota.{table}")
    await connection.close()
    await app.close()


@pytest.mark.parametrize("role", ROLES)
async def test_no_role_may_do_what_is_not_its_business(installed: Installed, role: str):
    forbidden = [
        "create table rota.mine (id int)", "drop table rota.past", "delete from rota.migration",
        "update rota.audit set actor = 'nobody'", "delete from rota.audit", "truncate rota.audit",
        "update rota.row_security set condition = 'true'", "delete from rota.schema_object",
        "alter table rota.present disable row level security",
        "create or replace function rota.now() returns timestamptz language sql as 'select now()'",
    ]  # fmt: skip
    if role != "server":
        forbidden += [f"select from rota.{table}" for table in
                      ("api_token", "session", "user_account", "login_link", "membership")]  # fmt: skip
        forbidden += ["select rota.trim_audit('2000-01-01')"]
    if role != "scheduler":
        forbidden += ["select rota.make_partition('past', '2030-01-01')",
                      "select rota.drop_day('past_20300101', false, null)"]  # fmt: skip
    connection = await installed.connect(role)
    for statement in forbidden:
        with pytest.raises((asyncpg.InsufficientPrivilegeError, asyncpg.RaiseError)):
            await connection.execute(statement)
    await connection.close()


async def test_who_seals_and_opens_erases_nobody(installed: Installed):
    owner = installed.app("owner", encryption_keys=OLD)
    sealed = await owner.persons.seal("ada", "Augusta Ada Byron")
    for role in ("seal", "worker", "server"):
        app = installed.app(role, encryption_keys=OLD)
        assert await app.persons.open(sealed) == "Augusta Ada Byron"
        await app.persons.open(await app.persons.seal(f"new for {role}", 1))
        await app.close()
    for role in ("seal", "worker"):
        app = installed.app(role, encryption_keys=OLD)
        with pytest.raises(StoreUnavailable, match="permission denied for table person"):
            await app.persons.erase("ada")
        await app.close()
    for role in ("submit", "scheduler", "read"):
        connection = await installed.connect(role)
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("select key from rota.person")
        await connection.close()
    assert await owner.persons.open(sealed) == "Augusta Ada Byron"
    assert (await owner.persons.erase("ada")).erased_at is not None
    await owner.close()


async def test_grants_follow_from_the_queries():
    needs = needs_of(["work"])
    assert needs.tables["present"] >= {"select", "update", "delete"}
    assert "insert" in needs.tables["event"]  # by a trigger of `dead`
    assert needs.sequences == {"event_id_seq", "token"}
    assert known_tables() >= {"job", "present", "migration"}
    granted = {
        table: privileges for privileges, tables in table_grants("worker") for table in tables
    }
    assert granted["webhook"] == "select, update"
    assert granted["workflow"] == "select"
    assert "api_token" not in granted
    assert set(PURPOSES) == {*ROLES, "owner"}
