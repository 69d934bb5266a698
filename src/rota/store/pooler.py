"""Detection of poolers, and of databases that are not PostgreSQL.

Protocol. One probe connection looks, before a pool is opened. The process id that was handed out at
log-in is that of the backend that answers: we talk to the server itself (`none`). If it isn't, something
stands in between, and it matters whether each connection has a backend of its own (`session`: PgBouncer
in session mode, the proxies of Neon and Supabase, which make the id up) or only for the length of a
transaction (`transaction`: PgBouncer, RDS Proxy, Supavisor).

So a second connection opens a transaction, which holds a backend, and the first asks for its own again.
A transaction pooler that gives out the backend used last has given ours to the second; one that takes
turns answers from another. Either way the first has another backend now, or gets no answer while the
pool is used up. Between the two, though, other clients' transactions end as well, and the first may get
its old backend back by chance, three rounds in a row. So what has kept its backend must also hear a
notification while it is idle: behind a transaction pooler an idle connection has no backend to hear it
from. What is wrongly taken for a transaction pooler costs speed; the reverse would be wrong, so any
doubt means `transaction`. The setting `pooler` says it instead.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

import asyncpg

from rota.errors import ConfigError

Mode: TypeAlias = Literal["none", "session", "transaction"]
Connect: TypeAlias = Callable[..., Awaitable[Any]]

_ROUNDS = 3
_PATIENCE = 3.0
_OWN_BACKEND = "select pg_backend_pid()"


def check_engine(connection: Any) -> None:
    """Refuse databases that speak PostgreSQL's protocol and lack what jobs depend on."""
    reported = connection.get_settings()
    version = str(getattr(reported, "server_version", ""))
    if getattr(reported, "crdb_version", None) is not None:
        raise ConfigError(
            "this is CockroachDB, on which Rota can't work: it has no LISTEN, and its advisory locks "
            "lock nothing. Use PostgreSQL 14 or newer"
        )
    if "-YB-" in version:
        raise ConfigError(
            f"this is YugabyteDB ({version}), on which Rota can't work: its LISTEN is not complete, and "
            "its locks differ. Use PostgreSQL 14 or newer"
        )
    major = version.partition(".")[0].split("beta")[0].split("rc")[0]
    if major.isdigit() and int(major) < 14:
        raise ConfigError(f"this is PostgreSQL {version}: Rota needs 14 or newer")


async def detect_mode(connect: Connect) -> tuple[Mode, bool]:
    """Return what stands in between, and whether ids of backends are true."""
    probe = await connect(statement_cache_size=0)
    try:
        check_engine(probe)
        backend: int = await probe.fetchval(_OWN_BACKEND)
        if backend == probe.get_server_pid():
            return "none", True
        return (
            "session" if await _keeps_backend(probe, backend, connect) else "transaction"
        ), False
    finally:
        await probe.close(timeout=5)


async def _keeps_backend(probe: Any, backend: int, connect: Connect) -> bool:
    try:
        async with asyncio.timeout(_PATIENCE):
            other = await connect(statement_cache_size=0)
            try:
                for _ in range(_ROUNDS):
                    async with other.transaction():
                        held = await other.fetchval(_OWN_BACKEND)
                        if held == backend or await probe.fetchval(_OWN_BACKEND) != backend:
                            return False
                return await _hears(probe, other)
            finally:
                other.terminate()
    except (TimeoutError, asyncpg.PostgresError):
        probe.terminate()  # it waits for an answer
        return False


async def _hears(probe: Any, other: Any) -> bool:
    """Wait for a notification to arrive at the idle probe, as long as the caller lets us."""
    heard = asyncio.Event()
    channel = f"rota_{uuid.uuid4().hex}"
    await probe.add_listener(channel, lambda *_: heard.set())
    await other.execute("select pg_notify($1, '')", channel)
    return await heard.wait()
