"""The walls between tenants, the audit log, and quotas that hold for all servers together."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncpg
import pytest

from rota.core.administration import Limits
from rota.errors import TooManyRequests
from rota.store.migrate import FUNCTIONS, known_migrations, migrate
from rota.store.quotas import QuotaStore
from rota.store.row_security import RowSecurity
from rota.task import SubmitOptions
from tests.support.api import query
from tests.support.server_fixtures import LiveServer, serving
from tests.support.sessions import log_in

# -- row-level security


async def fill(server: LiveServer, namespace: str) -> Any:
    """A namespace in which there is something of everything."""
    tenant = server.context.tenant(namespace)
    job = await tenant.submit("greet", {"name": namespace}, key="k")
    await tenant.submit("later", {}, delay=3600)
    await tenant.schedule("nightly", "greet", cron="0 3 * * *")
    await tenant.queues.pause("default")
    return job


def walled_tables() -> list[str]:
    return ["future", "present", "submit_key", "queue", "lane", "schedule", "schedule_version"]


async def test_a_query_that_forgets_its_namespace_sees_only_its_own(server: LiveServer):
    schema = server.app.settings.schema
    await fill(server, "acme")
    await fill(server, "other")
    mine = server.context.tenant("acme").connector.database
    for table in [*walled_tables(), "job"]:
        every = await query(server, f"select from {{}}.{table}")
        async with mine.connection() as connection:
            seen = await connection.fetch(f"select * from {schema}.{table}")
        assert seen, table
        assert len(seen) * 2 == len(every), table
        assert all(row.get("namespace", "acme") == "acme" for row in seen)


async def test_a_write_that_forgets_its_namespace_changes_only_its_own(server: LiveServer):
    schema = server.app.settings.schema
    await fill(server, "acme")
    await fill(server, "other")
    async with server.context.tenant("acme").connector.database.connection() as connection:
        await connection.execute(f"update {schema}.future set priority = 7")
        await connection.execute(f"delete from {schema}.present")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await connection.execute(f"update {schema}.future set namespace = 'other'")
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="row-level security"):
            await connection.execute(
                f"insert into {schema}.queue (namespace, name) values ('other', 'x')"
            )
    rows = await query(server, "select namespace, priority from {}.future")
    assert {tuple(row) for row in rows} == {("acme", 7), ("other", 0)}
    assert [r[0] for r in await query(server, "select namespace from {}.present")] == ["other"]


async def test_a_tenant_cannot_touch_what_is_the_servers_own(server: LiveServer):
    schema = server.app.settings.schema
    async with server.context.tenant("acme").connector.database.connection() as connection:
        for table in (
            "api_token",
            "session",
            "user_account",
            "login_link",
            "namespace",
            "row_security",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f"select from {schema}.{table}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(f"select {schema}.trim_audit('infinity')")


async def test_connections_are_lent_to_one_tenant_after_the_other(server: LiveServer):
    """The pool's connections go round: none brings the tenant before along."""
    namespaces = [f"n{number}" for number in range(6)]
    for namespace in namespaces:
        await server.context.tenant(namespace).submit("greet", {"name": namespace})

    async def look(namespace: str) -> set[str]:
        async with server.context.tenant(namespace).connector.database.connection() as connection:
            rows = await connection.fetch(
                f"select namespace from {server.app.settings.schema}.present"
            )
        return {row[0] for row in rows}

    asked = namespaces * 10
    seen = await asyncio.gather(*(look(namespace) for namespace in asked))
    assert seen == [{namespace} for namespace in asked]


async def test_a_bulk_is_copied_and_stays_in_its_namespace(server: LiveServer):
    tenant = server.context.tenant("acme")

    @server.app.task
    async def greet(name: str) -> None:
        """For the bulk."""

    assert await tenant.jobs.list() == []  # so that the connection was lent before
    handles = await tenant.submissions.submit_calls(
        greet, SubmitOptions.checked(),
        [{"name": str(n)} for n in range(300)],
    )  # fmt: skip
    assert len(handles) == 300
    rows = await query(server, "select distinct namespace from {}.present")
    assert [row[0] for row in rows] == ["acme"]
    # Row security applies again to the connection that copied.
    async with tenant.connector.database.connection() as connection:
        assert await connection.fetchval("select current_user") == "rota_tenant"
    async with server.context.tenant("other").connector.database.connection() as connection:
        assert not await connection.fetch(f"select from {server.app.settings.schema}.present")


async def test_behind_a_pooler_row_security_holds_for_one_transaction_at_a_time(server: LiveServer):
    """There another client gets the connection next: nothing may stay with it."""
    await fill(server, "acme")
    await fill(server, "other")
    outer = await server.app.connector.open_database()
    outer.behind_pooler = True
    try:
        tenant = RowSecurity(outer, enabled=True).for_namespace("acme")
        assert len(await tenant.fetch("list_queues", "acme", None)) == 1
        assert not await tenant.fetch("list_queues", "other", None)
        async with tenant.transaction() as connection:
            assert await connection.fetchval("select current_user") == "rota_tenant"
        async with outer.connection() as connection:
            assert await connection.fetchval("select current_user") != "rota_tenant"
            setting = f"select current_setting('{tenant.schema}.namespace', true)"
            assert await connection.fetchval(setting) in (None, "")
    finally:
        await outer.close()


async def test_every_table_is_behind_a_wall_or_out_of_reach(server: LiveServer):
    """A new table is covered by itself: a tenant can't touch it until somebody lists it."""
    rows = await query(
        server,
        "select c.relname, c.relrowsecurity from pg_class as c "
        "where c.relnamespace = ("
        "select relnamespace from pg_class where oid = '{}.row_security'::regclass) "
        "and c.relkind in ('r', 'p') "
        "and has_table_privilege('rota_tenant', c.oid, 'select, insert, update, delete')",
    )
    open_to_all = {row["relname"] for row in rows if not row["relrowsecurity"]}
    assert open_to_all == {"setting", "shard", "migration"}


async def test_migrating_without_the_right_to_make_roles_leaves_the_queries_as_the_wall(
    database_url: str, make_app
):
    """A plain owner of a database can migrate: then the server says that row security is missing."""
    connection = await asyncpg.connect(database_url)
    transaction = connection.transaction()
    await transaction.start()
    try:
        await connection.execute("create role plain_owner nologin")
        database = await connection.fetchval("select current_database()")
        await connection.execute(f"grant create on database {database} to plain_owner")
        await connection.execute("set role plain_owner")
        done = await migrate(connection, "rota_plain")
        assert done == [*(m.name for m in known_migrations() if m.phase == "pre"), FUNCTIONS]
    finally:
        await transaction.rollback()
        await connection.close()


# -- the audit log


async def test_a_change_is_recorded_with_before_and_after(server: LiveServer):
    client = await server.client("admin", "*", name="the boss")
    limits = {"max_jobs": 5}
    asked = await client.put("/v1/namespaces/acme", json=limits, headers={"X-Request-Id": "r-1"})
    assert asked.status_code == 200
    await client.put("/v1/namespaces/acme", json={"max_jobs": 6})
    page = (await client.get("/v1/audit", headers={"X-Rota-Namespace": "acme"})).json()
    last, first = page["items"]
    assert (first["actor"], first["action"]) == ("the boss", "limit")
    assert first["subject"] == "namespace acme"
    assert first["via"].startswith("token ")
    assert first["request_id"] == "r-1"
    assert first["before"] is None
    assert last["before"]["limits"]["max_jobs"] == 5
    assert last["after"]["limits"]["max_jobs"] == 6


async def test_the_audit_log_cannot_be_changed_by_anyone(server: LiveServer):
    await log_in(server)
    for statement in (
        "update {}.audit set actor = 'nobody'", "delete from {}.audit", "truncate {}.audit",
    ):  # fmt: skip
        with pytest.raises(asyncpg.PostgresError, match="only ever added to"):
            await query(server, statement)
    tenant = server.context.tenant("default").connector.database
    async with tenant.connection() as connection:
        for statement in (
            "update {}.audit set actor = 'nobody'", "delete from {}.audit", "truncate {}.audit",
        ):  # fmt: skip
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement.replace("{}", server.app.settings.schema))
        # Not even by saying the word that its owner's retention says.
        await connection.execute(f"set {server.app.settings.schema}.trimming = 'on'")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute(f"delete from {server.app.settings.schema}.audit")
    assert len(await query(server, "select from {}.audit")) == 1


async def test_the_owner_ends_the_retention_of_old_entries_alone(server: LiveServer):
    await log_in(server)
    await server.context.identity.sweep(1)
    assert len(await query(server, "select from {}.audit")) == 1
    assert (await query(server, "select {}.trim_audit(now() + interval '1 second')"))[0][0] == 1


async def test_a_change_that_cannot_be_recorded_is_not_made(server: LiveServer):
    client = await server.client("admin")
    await query(server, "alter table {}.audit rename to audit_away")
    try:
        answer = await client.post("/v1/tokens", json={"name": "x", "role": "viewer"})
        assert answer.status_code == 500
        assert "token" not in answer.json()
        assert not await query(server, "select from {}.api_token where name = 'x'")
    finally:
        await query(server, "alter table {}.audit_away rename to audit")


async def test_entries_of_another_namespace_are_not_shown(server: LiveServer):
    theirs = await server.client("admin", "other")
    await theirs.post("/v1/tokens", json={"name": "x", "role": "viewer"})
    mine = await server.client("admin", "acme")
    assert (await mine.get("/v1/audit")).json()["items"] == []
    assert len((await theirs.get("/v1/audit")).json()["items"]) == 1


# -- quotas


async def limit(server: LiveServer, **limits: Any) -> None:
    await QuotaStore(server.context.database).put_namespace("acme", Limits(**limits))


async def count_admitted(servers: list[LiveServer], times: int, size: int = 1) -> int:
    """Asked of all servers at once."""

    async def ask(server: LiveServer) -> bool:
        try:
            await server.context.quotas.admit("acme", 1, size)
        except TooManyRequests as refused:
            return not refused.retry_after
        return True

    asked = [ask(server) for server in servers for _ in range(times)]
    return sum(await asyncio.gather(*asked))


async def test_a_quota_of_jobs_holds_across_two_servers(make_app):
    app = make_app(port=0)
    async with serving(app) as one, serving(app) as two:
        await limit(one, max_jobs=7)
        assert await count_admitted([one, two], 10) == 7
        # Nothing was really submitted. Once what was admitted can't be under way any more, it is
        # counted anew, and there is room again.
        await query(
            one, "update {}.namespace set counted_at = '-infinity', window_at = '-infinity'"
        )
        assert await count_admitted([one, two], 10) == 7


async def test_what_is_counted_anew_is_the_truth(server: LiveServer):
    await limit(server, max_jobs=3, max_payload_bytes=1000)
    tenant = server.context.tenant("acme")
    await tenant.submit("greet", {"name": "x"})
    await tenant.submit("greet", {"name": "y"}, delay=3600)
    await query(server, "update {}.namespace set stored_jobs = 1000")
    assert await count_admitted([server], 5) == 1
    [row] = await query(server, "select stored_jobs, stored_bytes from {}.namespace")
    assert tuple(row) == (3, 2 * len('{"name":"x"}') + 1)


async def test_a_quota_of_bytes_holds_across_two_servers(make_app):
    app = make_app(port=0)
    async with serving(app) as one, serving(app) as two:
        await limit(one, max_payload_bytes=1000)
        assert await count_admitted([one, two], 10, size=100) == 10


async def test_a_rate_holds_across_two_servers(make_app):
    app = make_app(port=0)
    async with serving(app) as one, serving(app) as two:
        await limit(one, submits_per_second=0.001)  # one at once, the next in a quarter of an hour
        assert await count_admitted([one, two], 10) == 1
        await query(one, "update {}.namespace set refilled_at = now() - interval '1001 seconds'")
        assert await count_admitted([one, two], 10) == 1


async def test_a_bulk_over_the_rate_goes_into_debt_that_others_wait_for(server: LiveServer):
    await limit(server, submits_per_second=10)
    await server.context.quotas.admit("acme", 1000, 0)
    with pytest.raises(TooManyRequests) as refused:
        await server.context.quotas.admit("acme", 1, 0)
    assert 50 < refused.value.retry_after <= 101


async def test_a_namespace_without_limits_is_not_asked_about(server: LiveServer):
    quotas = server.context.quotas
    await quotas.admit("acme", 1, 1)
    await limit(server, max_jobs=0)
    await quotas.admit("acme", 1, 1)  # known as without limits, for five seconds
    quotas._cached_until = float("-inf")  # as if they had passed
    with pytest.raises(TooManyRequests):
        await quotas.admit("acme", 1, 1)


async def test_limits_are_set_and_seen_over_http(server: LiveServer):
    boss = await server.client("admin", "*")
    answer = await boss.put("/v1/namespaces/acme", json={"submits_per_second": 2.5})
    assert answer.json()["limits"] == {
        "max_jobs": None, "max_payload_bytes": None, "submits_per_second": 2.5, "max_depth": None,
    }  # fmt: skip
    mine = await server.client("viewer", "acme")
    names = [each["name"] for each in (await mine.get("/v1/namespaces")).json()["items"]]
    assert names == ["acme"]
    other = await server.client("viewer", "other")
    theirs = await other.get("/v1/namespaces/acme")
    none = await other.get("/v1/namespaces/nothing")
    assert theirs.status_code == none.status_code == 404
    assert re.sub("acme", "nothing", theirs.json()["detail"]) == none.json()["detail"]
    assert (await boss.delete("/v1/namespaces/acme")).status_code == 200
    assert (await boss.delete("/v1/namespaces/acme")).status_code == 404
