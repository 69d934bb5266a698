"""`rota doctor`: examine an installation, and say what to do about what was found.

It reads, and changes nothing. A check that fails by itself (no right, no answer) is a finding, and the
others go on. Its one message is a NOTIFY on a channel of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import asyncpg

from rota.config import Settings
from rota.core import checkup
from rota.core.administration import Diagnosis
from rota.core.checkup import Finding, NodeFacts, ServerFacts, Slot, Standby, TokenFacts
from rota.errors import RotaError
from rota.lib.ids import new_id
from rota.store.database import Connection, Database
from rota.store.migrate import SchemaFit, compare_schema
from rota.store.row_security import RowSecurity
from rota.store.rows import to_value

_ECHO_SECONDS = 3.0


async def examine(database: Database, settings: Settings) -> Diagnosis:
    """Make all checks. Without a schema, those of the server alone."""
    findings = [finding async for finding in _findings(database, settings)]
    return Diagnosis(all(each.level != "problem" for each in findings), findings)


async def _findings(database: Database, settings: Settings) -> AsyncIterator[Finding]:
    [row] = await database.fetch("doctor_server")
    server = to_value(row, ServerFacts)
    engine = checkup.judge_engine(server)
    yield engine
    if engine.level == "problem":
        return
    yield checkup.judge_writes(server)
    yield checkup.judge_durability(server)
    for found in (
        *checkup.judge_connections(server, settings.pool_size + 3),
        *checkup.judge_transactions(server),
    ):
        yield found
    standbys = [to_value(row, Standby) for row in await database.fetch("doctor_replication")]
    slots = [to_value(row, Slot) for row in await database.fetch("doctor_slots")]
    for found in checkup.judge_replication(standbys, slots):
        yield found
    yield checkup.judge_clock(*await _clock_skew(database))
    echoed = not server.standby and await _echoes(database)
    yield checkup.judge_listen(database.behind_pooler, echoed, settings.poll)
    async with database.connection() as connection:
        fit = await compare_schema(connection, settings.schema)
    yield _judge_schema(fit)
    if not fit.version:
        return
    lacking = [row["name"] for row in await database.fetch("doctor_rights")]
    yield checkup.judge_rights(server.role, lacking)
    for check, findings in (("row_security", _row_security), ("tokens", _tokens),
                            ("nodes", _nodes), ("encryption", _encryption)):  # fmt: skip
        try:
            for found in await findings(database, settings):
                yield found
        except (RotaError, asyncpg.PostgresError) as error:
            yield Finding(check, "warning", f"could not be checked: {error}")


def _judge_schema(fit: SchemaFit) -> Finding:
    if fit.fits:
        advice = ""
        if fit.post:
            advice = (
                f"after the last node of the release before: rota migrate --post ({fit.post[0]})"
            )
        return Finding("schema", "ok", f"version {fit.version} fits this release", advice)
    return Finding("schema", "problem", fit.verdict)


async def _clock_skew(database: Database) -> tuple[float, float]:
    """Return by how many seconds the database's clock is ahead, and how uncertain that is."""
    before = time.monotonic()
    theirs: datetime = await database.fetchval("doctor_clock")
    ours = time.time()  # noqa: TID251 - the one clock that is to be compared
    took = time.monotonic() - before
    return theirs.timestamp() - (ours - took / 2), took / 2


async def _echoes(database: Database) -> bool:
    """Return whether a notification reaches a connection that listens."""
    channel, heard = f"rota_doctor_{new_id().hex[-12:]}", asyncio.Event()
    listener: Connection | None = None

    def received(*_: Any) -> None:
        heard.set()

    try:
        listener = await database.dedicated()
        await listener.add_listener(channel, received)
        async with database.connection() as connection:
            await connection.execute(f"notify {channel}")
        async with asyncio.timeout(_ECHO_SECONDS):
            await heard.wait()
    except Exception:  # noqa: BLE001 - whatever a pooler or a proxy answers: it doesn't arrive
        return False
    finally:
        if listener is not None:
            with suppress(Exception):
                await listener.close(timeout=2)
    return True


async def _row_security(database: Database, settings: Settings) -> list[Finding]:
    enabled = (await RowSecurity.find(database)).enabled
    return [checkup.judge_row_security(enabled, settings.schema)]


async def _tokens(database: Database, settings: Settings) -> list[Finding]:
    [row] = await database.fetch("doctor_tokens")
    return [*checkup.judge_tokens(to_value(row, TokenFacts))]


async def _nodes(database: Database, settings: Settings) -> list[Finding]:
    [row] = await database.fetch("doctor_nodes")
    facts = to_value(row, NodeFacts)
    return [*checkup.judge_nodes(facts), *checkup.judge_coordination(facts)]


async def _encryption(database: Database, settings: Settings) -> list[Finding]:
    encrypted = [row["name"] for row in await database.fetch("encrypted_namespaces")]
    return [checkup.judge_encryption(encrypted, database.encryption.ring is not None)]
