"""The transaction of an exactly_once task: Django's own, so that the ORM writes into it.

Protocol. As in `rota.store.sync_effects`: the writes of the handler and the finish of the job are one
commit under the token. Here `atomic()` opens and commits it, on Django's connection to the database that
has Rota's schema; blocks of `atomic()` inside are savepoints, and `on_commit` functions run after it.
What is written to another database is not part of it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from django.db import connections, transaction

from rota.errors import ConfigError
from rota.lib import failpoints
from rota.store.drivers import driver_of
from rota.store.sync_effects import SyncEffects, TransactionTerms


class DjangoEffects(SyncEffects):
    """Opens the transactions of handlers through one of Django's databases."""

    def __init__(self, database: str) -> None:
        self._database = database

    @property
    def _connection(self) -> Any:  # type: ignore[override] # of this thread, and open
        connection = connections[self._database].connection
        if driver_of(connection).name != "psycopg":
            raise ConfigError("exactly_once tasks need psycopg 3: pip install 'psycopg[binary]'")
        return connection

    @contextlib.contextmanager
    def transaction(self, terms: TransactionTerms, job_id: UUID, token: int) -> Iterator[Any]:
        """Open the handler's transaction. Before it ends without an error, `finish` must be called."""
        connections[self._database].close_if_unusable_or_obsolete()
        with transaction.atomic(using=self._database):
            connections[self._database].ensure_connection()
            connection = self._connection
            connection.execute("set transaction isolation level read committed")
            self._check_lease(connection, terms, job_id, token)
            if failpoints.armed:
                failpoints.reach_in_thread("sync_transact:begun")
            yield connection
            if failpoints.armed:
                failpoints.reach_in_thread("sync_transact:before_commit")
        if failpoints.armed:
            failpoints.reach_in_thread("sync_transact:after_commit")

    def close(self) -> None:
        """Leave the connection to Django."""
