"""The transaction of a plain function in a child process, by psycopg, with the same queries as a node.

Protocol. As for coroutines (see `rota.worker.effects`): the writes of the handler and the finish of the
job are one commit under the token. The node is notified only afterwards; after a crash in between, the
token shows that the job is finished. The session has the settings of the node, and is cleaned after use.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import msgspec

from rota.errors import ConfigError, Fatal, LeaseLost
from rota.lib import failpoints
from rota.lib.encryption import Encryptor
from rota.model import Failure
from rota.store import session
from rota.store.drivers import tuple_rows
from rota.store.hosts import psycopg_arguments
from rota.store.sql import load_queries

_CONNECT_SECONDS = 10.0
_PLACEHOLDER = re.compile(r"\$(\d+)")


def transaction_ended(job_id: UUID) -> Fatal:
    """Return the error of a handler whose writes no longer depend on its job's finish."""
    return Fatal(
        f"the handler of job {job_id} committed or rolled back the transaction of ctx.connection: its "
        "writes don't depend on the job any more. See what it wrote, and leave the end to Rota"
    )


def result_needed(failure: Failure) -> Fatal:
    """Return the error of a step whose result was dropped: what it wrote is rolled back with it."""
    return Fatal(f"{failure.message}; a step must keep its result. What it wrote was rolled back")


class TransactionTerms(msgspec.Struct):
    """The data that a child process needs to finish a job by itself."""

    url: str
    schema: str
    node: UUID
    session: dict[str, str]
    behind_pooler: bool = False
    encryptor: Encryptor | None = None  # what its result is encrypted with; a key of this job's own
    step: bool = False  # of a workflow: its result must be kept
    password: str | None = None  # if it isn't in the URL; read for this job


class SyncEffects:
    """One connection per child process, opened when first needed."""

    def __init__(self) -> None:
        self._connection: Any = None

    @contextlib.contextmanager
    def transaction(self, terms: TransactionTerms, job_id: UUID, token: int) -> Iterator[Any]:
        """Open the handler's transaction. Before it ends without an error, `finish` must be called."""
        connection = self._open(terms)
        try:
            with connection.transaction():
                if terms.behind_pooler:
                    connection.execute(session.for_one_transaction(terms.session))
                self._check_lease(connection, terms, job_id, token)
                if failpoints.armed:
                    failpoints.reach_in_thread("sync_transact:begun")
                yield connection
                if terms.behind_pooler:  # see Database
                    connection.execute(session.RESET)
                if failpoints.armed:
                    failpoints.reach_in_thread("sync_transact:before_commit")
            if failpoints.armed:
                failpoints.reach_in_thread("sync_transact:after_commit")
        finally:
            self._clean(connection, terms)

    def _clean(self, connection: Any, terms: TransactionTerms) -> None:
        """Reset the connection after a handler's transaction has ended, or close it if that fails."""
        if connection.closed or connection.broken:
            self._connection = None
            return
        connection.row_factory = tuple_rows()
        if terms.behind_pooler:
            return
        try:
            connection.execute(f"{session.CLEAN}; {session.for_session(terms.session)}")
        except Exception:  # noqa: BLE001 - whatever it is, the next job gets a new one
            self.close()

    def _check_lease(
        self, connection: Any, terms: TransactionTerms, job_id: UUID, token: int
    ) -> None:
        """Check the lease before the handler runs. The finish checks it again, and decides."""
        check = for_psycopg(load_queries(terms.schema)["check_lease"])
        if connection.execute(check, numbered(terms.node, job_id, token)).fetchone() is None:
            raise LeaseLost(f"job {job_id} is no longer this node's")

    def finish(
        self, terms: TransactionTerms, job_id: UUID, token: int, ran: float, result: bytes | None
    ) -> None:
        from psycopg.pq import TransactionStatus

        if self._connection.info.transaction_status is TransactionStatus.IDLE:
            raise transaction_ended(job_id)
        query = for_psycopg(load_queries(terms.schema)["finish_sparing"])
        text = result.decode() if result is not None else None
        if terms.encryptor is not None and result is not None:
            text = terms.encryptor.json("result", result)
        # In rows of our own kind, whatever kind the handler has asked for.
        cursor = self._connection.cursor(row_factory=tuple_rows())
        row = cursor.execute(
            query, numbered(terms.node, [job_id], [token], [text], [None], [ran], [0.0], None)
        ).fetchone()
        if row is None or row[0] != 1:
            raise LeaseLost(f"job {job_id} moved on while it ran; its writes are rolled back")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self, terms: TransactionTerms) -> Any:
        """Return the connection of the job before, if its server answers and takes writes."""
        if self._connection is not None and not _is_usable(self._connection):
            self.close()
        if self._connection is None:
            try:
                import psycopg
            except ImportError:
                raise ConfigError(
                    "a plain function with guarantee='exactly_once' needs psycopg: "
                    "pip install 'rota[psycopg]', or make it a coroutine"
                ) from None
            # prepare_threshold: behind a transaction pooler prepared statements don't stay put.
            given: dict[str, Any] = {} if terms.password is None else {"password": terms.password}
            self._connection = psycopg.connect(
                terms.url, autocommit=True, prepare_threshold=None, **given,
                **psycopg_arguments(terms.url, _CONNECT_SECONDS),
            )  # fmt: skip
            if not terms.behind_pooler:
                self._connection.execute(session.for_session(terms.session))
        return self._connection


def _is_usable(connection: Any) -> bool:
    """Return whether the server takes writes, so that a failover between jobs costs no attempt."""
    if connection.closed:
        return False
    try:
        row = connection.execute("select current_setting('transaction_read_only')").fetchone()
    except Exception:  # noqa: BLE001 - whatever it is, a new connection is worth a try
        return False
    return bool(row[0] == "off")


def for_psycopg(query: str) -> str:
    return _PLACEHOLDER.sub(r"%(p\1)s", query.replace("%", "%%"))


def numbered(*values: Any) -> dict[str, Any]:
    return {f"p{number}": value for number, value in enumerate(values, 1)}
