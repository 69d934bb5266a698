"""The check-up: what it finds in a real installation, and how facts are judged.

Tests of `rota.operations.doctor`, `rota.core.checkup` and `rota doctor`.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import msgspec
import pytest

from rota import App
from rota.core import checkup
from rota.core.administration import Diagnosis
from rota.core.checkup import Finding, NodeFacts, ServerFacts, Slot, Standby, TokenFacts
from rota.operations.doctor import examine
from rota.operations.installation import Installation
from rota.store.database import Database
from tests.support.command_line import run
from tests.support.server_fixtures import LiveServer

GOOD = ServerFacts(
    version="PostgreSQL 16.2 on x86_64", number=160_002, standby=False, role="rota", fsync="on",
    full_page_writes="on", synchronous_commit="on", autovacuum="on", synchronous_standbys="",
    max_connections=97, connections=10, role_limit=-1, role_connections=3, oldest_xid=1000,
    sees_all=True, oldest_transaction=0.1, oldest_prepared=None,
)  # fmt: skip


def with_(**changes: Any) -> ServerFacts:
    return msgspec.structs.replace(GOOD, **changes)


def levels(*findings: Finding) -> set[str]:
    return {each.level for each in findings}


async def found(app: App) -> dict[str, list[Finding]]:
    diagnosis = await app.connector.diagnose()
    by_check: dict[str, list[Finding]] = {}
    for each in diagnosis.findings:
        by_check.setdefault(each.check, []).append(each)
    return by_check


async def test_every_check_is_made(app: App):
    await app.migrate()
    assert set(await found(app)) >= {
        "engine", "primary", "durability", "connections", "transactions", "replication", "clock",
        "listen", "schema", "rights", "row_security", "tokens", "nodes", "encryption",
    }  # fmt: skip


async def test_a_healthy_installation_is_told_from_one_without_nodes(app: App):
    await app.migrate()
    by_check = await found(app)
    for check in ("engine", "primary", "clock", "listen", "schema", "rights", "encryption"):
        assert levels(*by_check[check]) == {"ok"}, by_check[check]
    assert "no scheduler is alive" in {each.says for each in by_check["nodes"]}


async def test_a_database_that_is_not_there_is_a_finding(app: App):
    nowhere = App(database_url="postgresql://rota@127.0.0.1:1/none", connect_timeout=1)
    diagnosis = await nowhere.connector.diagnose()
    assert not diagnosis.healthy
    assert [each.check for each in diagnosis.findings] == ["database"]
    await nowhere.close()


async def test_a_schema_that_is_not_there_is_a_problem(app: App):
    empty = App(database_url=app.settings.database_url, schema="nothing_here")
    diagnosis = await empty.connector.diagnose()
    assert not diagnosis.healthy
    assert "Run `rota migrate` once" in diagnosis.findings[-1].says
    await empty.close()


async def test_a_role_without_rights_gets_an_answer(app: App):
    """Each check that it may not make is a finding; none of them an error."""
    await app.migrate()
    url = app.settings.database_url
    owner = await asyncpg.connect(url)
    name, schema = f"poor_{app.settings.schema}", app.settings.schema
    await owner.execute(f"create role {name} login; grant usage on schema {schema} to {name}")
    await owner.execute(f"grant select on {schema}.migration to {name}")
    poor = Database(url, app.settings)
    poor._hosts = _As(poor._hosts, name)  # type: ignore[assignment]
    try:
        await poor.open()
        diagnosis = await examine(poor, app.settings)
    finally:
        await poor.close()
        await owner.execute(f"drop owned by {name}; drop role {name}")
        await owner.close()
    by_check = {each.check: each for each in diagnosis.findings}
    assert by_check["rights"].level == "warning"
    assert "could not be checked" in by_check["tokens"].says


class _As:
    """Connections that act as another role."""

    def __init__(self, hosts: Any, role: str) -> None:
        self._hosts, self._role, self.patience = hosts, role, hosts.patience

    async def connect(self, *given: Any, **arguments: Any) -> Any:
        connection = await self._hosts.connect(*given, **arguments)
        await connection.execute(f"set session authorization {self._role}")
        return connection


async def test_a_prepared_transaction_that_nobody_ends_is_a_problem():
    [finding, _] = checkup.judge_transactions(with_(oldest_prepared=3600.0))
    assert finding.level == "problem"
    assert "pg_prepared_xacts" in finding.advice


@pytest.mark.parametrize(
    "version", ["CockroachDB CCL v24.1", "PostgreSQL 11.2-YB-2.20.0.0-b0 on x86_64"]
)
def test_engines_that_only_look_alike_are_refused(version: str):
    assert checkup.judge_engine(with_(version=version)).level == "problem"


@pytest.mark.parametrize(
    ("findings", "level"),
    [
        ([checkup.judge_engine(with_(number=130_010))], "problem"),
        ([checkup.judge_writes(with_(standby=True))], "problem"),
        ([checkup.judge_durability(with_(fsync="off"))], "problem"),
        ([checkup.judge_durability(with_(full_page_writes="off"))], "problem"),
        (checkup.judge_connections(with_(connections=90), 7), "warning"),
        (checkup.judge_connections(with_(role_limit=3), 7), "warning"),
        (checkup.judge_transactions(with_(oldest_transaction=7200.0)), "warning"),
        (checkup.judge_transactions(with_(oldest_xid=1_500_000_000)), "problem"),
        (checkup.judge_transactions(with_(autovacuum="off")), "problem"),
        (checkup.judge_replication([Standby("a", "streaming", "async", 90.0)], []), "warning"),
        (checkup.judge_replication([], [Slot("old", False, 50 * 2**30)]), "problem"),
        ([checkup.judge_clock(5.0, 0.1)], "warning"),
        ([checkup.judge_clock(-5.0, 4.0)], "ok"),  # the answer took that long
        ([checkup.judge_listen(True, False, 5.0)], "warning"),
        ([checkup.judge_rights("shop", ["present"])], "warning"),
        ([checkup.judge_row_security(False, "rota")], "warning"),
        (checkup.judge_tokens(TokenFacts(3, 1, 1, 1, 0)), "warning"),
        (checkup.judge_tokens(TokenFacts(3, 1, 1, 0, 2)), "warning"),
        (checkup.judge_nodes(NodeFacts(1, 3, ["1.0"])), "warning"),
        (checkup.judge_nodes(NodeFacts(2, 3, ["1.0", "1.1"])), "warning"),
        (checkup.judge_nodes(NodeFacts(2, 3, ["1.0"])), "ok"),
        (checkup.judge_coordination(NodeFacts(2, 3, ["1.0"], ["", "etcd://one:2379"])), "warning"),
        (checkup.judge_coordination(NodeFacts(2, 3, ["1.0"], ["etcd://one:2379"], ["gone"])), "warning"),
        (checkup.judge_coordination(NodeFacts(2, 3, ["1.0"], ["etcd://one:2379"])), "ok"),
        ([checkup.judge_encryption(["acme"], False)], "problem"),
    ],
)  # fmt: skip
def test_facts_are_judged(findings: Any, level: str):
    listed = list(findings)
    assert level in levels(*listed), listed
    assert all(each.advice for each in listed if each.level != "ok")


def test_the_exit_code_tells_whether_there_is_a_problem(environ: dict[str, str], monkeypatch):
    fine = run("doctor", "--json")
    assert fine.code == (0 if fine.json["healthy"] else 1)
    assert run("doctor", "--strict").code == 1  # no node is alive
    assert "no scheduler is alive" in run("doctor", "--quiet").out
    monkeypatch.setenv("ROTA_SCHEMA", "nothing_here")
    assert run("doctor").code == 1


async def test_only_an_admin_of_all_namespaces_may_ask_a_server(server: LiveServer):
    admin = await server.client("admin", "default")
    assert (await admin.get("/v1/doctor")).status_code == 403
    everywhere = await server.client("admin", "*")
    answer = await everywhere.get("/v1/doctor")
    assert answer.status_code == 200
    assert msgspec.json.decode(answer.content, type=Diagnosis).findings


async def test_tokens_are_counted(app: App):
    await app.migrate()
    tokens = Installation(app.connector).tokens
    await tokens.create("ci", namespace="default", role="viewer", expires_in=86_400)
    assert "1 tokens end within 14 days" in {each.says for each in (await found(app))["tokens"]}
