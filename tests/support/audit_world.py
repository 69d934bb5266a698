"""An installation with something of everything to change, for the tests of the audit log."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from rota import App
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.lib.ids import new_id
from rota.operations.installation import Installation
from rota.operations.run_advance import RunAdvance
from rota.store.identity import IdentityStore
from rota.store.search import JobFilter
from tests.support.api import fail_jobs

# Not here, because they change by themselves: nodes, shards, when a token was used last.
_TABLES = (
    "node",
    "future", "present", "past", "dead", "queue", "fair_weight", "schedule", "occurrence", "calendar",
    "trigger", "sink",
    "webhook", "allowed_host", "endpoint", "user_account", "access_role", "membership", "session",
    "login_link",
    "namespace", "workflow", "run", "step", "alert_mark", "saved_view", "bulk_change",
    "pool", "depth", "maintenance", "setting",
)  # fmt: skip
_DEAD = tuple(f"dead_{letter}" for letter in "abcdefghijk")


class World:
    """`names` are what the examples name: ids, prefixes and fingerprints."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.names: dict[str, str] = {}

    async def fill(self) -> None:
        app, named = self.app, self.names
        database = (await app.store()).database
        source = ("orders", "charge", "redis://localhost:6379/orders")
        await database.fetch("declare_trigger", app.settings.namespace, *source, None)
        await database.fetch(
            "declare_sink", app.settings.namespace, "out", "redis://localhost/out", None
        )
        for each in ("one", "two", "three"):
            named[each] = str((await app.submit(each, {}, delay=3600)).id)
        await app.submit("greet", {}, queue="mail", delay=3600)
        for task in _DEAD:
            named[task] = str((await app.submit(task, {})).id)
            await fail_jobs(app, [named[task]], task)
        for schedule in ("nightly", "weekly", "old"):
            await app.schedule(schedule, "greet", cron="0 3 * * *")
        await app.schedules.pause("old")
        for number, webhook in enumerate(("webhook", "off")):
            named[webhook] = str((await app.webhooks.add(f"https://example.org/{number}")).id)
        await app.webhooks.pause(UUID(named["off"]))
        named["delivery"] = str((await app.webhooks.test(UUID(named["webhook"]))).id)
        await app.webhooks.allow("10.0.0.1")
        for endpoint in ("push", "pull"):
            await app.endpoints.add(endpoint, "https://example.org/push")
        await self._runs()
        await self._people()
        for bulk in ("bulk_a", "bulk_b"):
            await app.submit(bulk, {}, delay=3600)
            done = await app.jobs.change_matching("cancel", JobFilter(task=bulk))
            named[bulk] = str(done.bulk)
        for queue in ("held", "kept"):  # each is an alert
            await app.queues.pause(queue)
        await app.alerts.acknowledge("queue-paused:kept")
        named["node"] = str(new_id())
        await self.query(
            "insert into {0}.node (id, namespace, name, host, pid, version, roles, expires_at, queues,"
            " capabilities, tasks, slots) values ($1, $2, 'n', 'h', 1, '0', '{{worker}}',"
            " {0}.now() + interval '1 h', '{{}}', '{{}}', '{{}}', 1)", UUID(named["node"]),
            self.app.settings.namespace,
        )  # fmt: skip
        now = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
        named["first"] = (now - timedelta(days=3)).isoformat()
        named["end"] = (now - timedelta(days=1)).isoformat()
        await self.rows()

    async def _runs(self) -> None:
        graph = Graph(
            Definition(
                name="flow",
                steps=[
                    StepDefinition(name="first", task="greet"),
                    StepDefinition(name="second", task="greet", after=["first"]),
                ],
            )
        )
        await self.app.workflows.put(graph)
        for run in ("run_a", "run_b", "run_c", "run_d"):
            self.names[run] = str((await self.app.runs.start("flow")).id)
        for run in ("run_c", "run_d"):
            await self.app.runs.cancel(self.names[run])
        for run in ("run_m", "run_n"):
            await self._map(run)

    async def _map(self, name: str) -> None:
        """A run that has ended, with a map of which a member has failed."""
        step = StepDefinition(name="parts", map="greet", over=[1], each="job")
        await self.app.workflows.put(Graph(Definition(name="mapped", steps=[step])))
        run = (await self.app.runs.start("mapped")).id
        self.names[name] = str(run)
        await RunAdvance((await self.app.store()).database).advance(run)
        await self.query("delete from {0}.present where run_id = $1", run)
        await self.query(
            "with chunk as (update {0}.map_chunk set state = 6, failed = 1 where run_id = $1),"
            " map as (update {0}.map set running = 0, ended = 1, failed = 1, job_id = null"
            " where run_id = $1), step as (update {0}.step set state = 6 where run_id = $1),"
            " run as (update {0}.run set state = 6, ended_at = {0}.now() where id = $1)"
            " insert into {0}.map_member (run_id, step, number, state, attempt)"
            " values ($1, 0, 0, 6, 1)", run,
        )  # fmt: skip

    async def _people(self) -> None:
        store = IdentityStore((await self.app.store()).database)
        space = self.app.settings.namespace
        for name in ("ada", "bob"):
            person = await store.put_user(new_id(), name, None)
            await store.put_membership(person, "*", "admin")
        for name in ("ci", "cd"):
            made = await Installation(self.app.connector).tokens.create(
                name, namespace=space, role="viewer"
            )
            self.names[name] = made.info.prefix
        for session in ("session_a", "session_b"):
            self.names[session] = str(new_id())
            await self.query(
                "insert into {0}.session (hash, id, namespace, role, expires_at)"
                " values ($1, $2, $3, 'viewer', 'infinity')",
                session.encode(), UUID(self.names[session]), space,
            )  # fmt: skip
        await self.query("insert into {0}.namespace (name, max_jobs) values ('acme', 5)")

    async def query(self, sql: str, *arguments: Any) -> list[Any]:
        connection = await asyncpg.connect(self.app.settings.database_url)
        try:
            rows: list[Any] = await connection.fetch(
                sql.format(self.app.settings.schema), *arguments
            )
        finally:
            await connection.close()
        return rows

    async def rows(self) -> list[Any]:
        """What was recorded since the last look."""
        found = await self.query("select * from {0}.audit order by id")
        await self.query("select {0}.trim_audit('infinity')")
        return found

    async def state(self) -> list[Any]:
        """Everything that a change may change, in short."""
        digests = [
            "(select md5(coalesce(string_agg(t::text, ',' order by t::text), ''))"
            f" from {{0}}.{table} as t)"
            for table in _TABLES
        ]
        digests.append(
            "(select md5(coalesce(string_agg(t.prefix || coalesce(t.revoked_at::text, ''), ','"
            " order by t.prefix), '')) from {0}.api_token as t)"
        )
        [row] = await self.query(f"select {', '.join(digests)}")
        return list(row)

    @contextlib.asynccontextmanager
    async def full_disk(self) -> AsyncIterator[None]:
        """Nothing can be written to the audit log."""
        await self.query(
            "create function {0}.full_disk() returns trigger language plpgsql as"
            " $$ begin raise exception 'no space left'; end $$"
        )
        await self.query(
            "create trigger full_disk before insert on {0}.audit"
            " for each row execute function {0}.full_disk()"
        )
        try:
            yield
        finally:
            await self.query("drop function {0}.full_disk() cascade")

    async def check_refused(self, name: str, before: list[Any]) -> None:
        """After a change that couldn't be recorded: there is none."""
        assert await self.state() == before, f"{name} changed something without recording it"
        assert await self.rows() == [], name

    async def check_recorded(self, name: str, interface: str, actor: str) -> Any:
        [row] = rows = await self.rows()
        assert len(rows) == 1, name
        assert (row["interface"], row["actor"]) == (interface, actor), name
        return row
