"""Helpers for tests of projects with Django.

    class OrderTests(RotaTestCase):
        def test_the_customer_gets_a_mail(self):
            self.client.post("/orders/", {"item": "teapot"})
            [result] = self.run_due()
            self.assertEqual(result.status, "SUCCESSFUL")
            self.assertEqual(len(mail.outbox), 1)

Django's `TestCase` never commits, so that no worker sees the jobs of a test. `run_due` runs them in the
test's own thread, on its connection: the same statements claim and finish them as in production, and the
same rules decide about retries. Time is moved by `advance`. Everything is rolled back with the test.
Schedules and workflows are tested with `rota.testing.isolated`.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, TypeVar
from uuid import UUID

import django.db
import msgspec
from asgiref.sync import async_to_sync
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase

from rota.app import App
from rota.context import Context, JobInfo, OnceAnswer, SyncContext
from rota.errors import ConfigError
from rota.integrations.django import project
from rota.integrations.django.interface import task_backends
from rota.lib.ids import new_id
from rota.lib.sync_bridge import sync_bridge
from rota.model import Guarantee, Outcome
from rota.runtime.attempts import Verdicts, decrypt, mark, must_mark, retry_of, to_work
from rota.runtime.work import Work
from rota.store.sql import load_queries
from rota.store.sync_effects import for_psycopg, numbered
from rota.store.work import LaneClaim, UpkeepStore, WorkStore
from rota.testing import EndlessRun
from rota.worker.runners.results import encode_result, failure_outcome

__all__ = ["RotaTestCase", "RotaTestMixin", "RotaTransactionTestCase"]

T = TypeVar("T")
_RELEASE = 5_000
_EMPTIED = ("future", "present", "past", "dead", "submit_key", "batch", "effect")


class RotaTestMixin:
    """Runs jobs inside a test. For `TestCase` and `TransactionTestCase`."""

    rota_backend: str | None = None  # the alias in TASKS; None: the first that is Rota's

    def run_due(self, *, raise_errors: bool = False, limit: int = 1_000) -> list[Any]:
        """Run what is due now, and what that makes due. Return the results of what has ended.

        Args:
            raise_errors: raise what the first handler raises.
            limit: how many attempts to run before `EndlessRun` is raised.
        """
        inline = _Inline(self.rota_backend)
        ran: list[UUID] = []
        while (id := inline.run_next(raise_errors)) is not None:
            ran.append(id)
            if len(ran) > limit:
                raise EndlessRun(
                    f"{limit:,} attempts ran and more jobs are due: does a task enqueue itself? "
                    "Otherwise pass a higher limit to run_due()"
                )
        backend = task_backends[inline.alias]
        results = [backend.get_result(str(id)) for id in dict.fromkeys(ran)]
        return [result for result in results if result.is_finished]

    def advance(self, delta: timedelta | None = None, /, **units: float) -> datetime:
        """Move Rota's time forward, as in ``advance(hours=1)``, until the end of the test."""
        return _Inline(self.rota_backend).advance((delta or timedelta()) + timedelta(**units))


class RotaTestCase(RotaTestMixin, TestCase):  # type: ignore[misc]
    """Django's `TestCase`, with `run_due` and `advance`."""


class RotaTransactionTestCase(RotaTestMixin, TransactionTestCase):  # type: ignore[misc]
    """Django's `TransactionTestCase`, with `run_due`. Its jobs are committed, and deleted afterwards."""

    @classmethod
    def tearDownClass(cls) -> None:
        super().tearDownClass()
        # The test database can't be dropped while operations, the admin's for one, are connected to it.
        if sync_bridge.loop is not None:
            sync_bridge.call(project.app_of(cls.rota_backend).close, "close")

    def _fixture_teardown(self) -> None:
        app, options = project.app_of(self.rota_backend), project.options_of(self.rota_backend)
        with connections[options.database].cursor() as cursor:
            for table in _EMPTIED:
                cursor.execute(f"delete from {app.settings.schema}.{table}")  # noqa: S608 - our names
        super()._fixture_teardown()


def _finish(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns that awaits nothing but itself."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise RuntimeError("a statement of the store waited for an event loop")


class _OnDjango:
    """A `Database` for claims and finishes, on Django's own connection."""

    def __init__(self, app: App, alias: str) -> None:
        self.settings, self.encryption = app.settings, app.connector.encryption
        self.queries = load_queries(app.settings.schema)
        self._alias = alias

    @property
    def raw(self) -> Any:
        connections[self._alias].ensure_connection()
        return connections[self._alias].connection

    async def fetch(self, name: str, *args: Any, on: Any = None) -> list[Any]:
        import psycopg
        from psycopg.types.string import TextLoader

        cursor = psycopg.Cursor(self.raw, row_factory=_rows)
        for kind in ("json", "jsonb"):  # as the store expects it
            cursor.adapters.register_loader(kind, TextLoader)
        cursor.execute(for_psycopg(self.queries[name]), numbered(*map(_plain, args)))
        return cursor.fetchall() if cursor.description else []

    async def fetchval(self, name: str, *args: Any, on: Any = None) -> Any:
        rows = await self.fetch(name, *args)
        return rows[0][0] if rows else None


class _Row(tuple[Any, ...]):  # noqa: SLOT001 - its names are set
    """A row whose values are found by place and by name."""

    names: dict[str, int]

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(self.names[key] if isinstance(key, str) else key)


def _rows(cursor: Any) -> Any:
    names = {column.name: place for place, column in enumerate(cursor.description or ())}

    def make(values: Sequence[Any]) -> _Row:
        row = _Row(values)
        row.names = names
        return row

    return make


def _plain(value: Any) -> Any:
    """Return what psycopg knows: no subclasses of numbers and ids."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, UUID):
        return UUID(int=value.int)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


class _Inline:
    """Claims one job at a time, and runs it here."""

    def __init__(self, alias: str | None) -> None:
        options = project.options_of(alias)
        self.alias, self._database = options.alias, options.database
        self._app = project.load(alias)
        self._on = _OnDjango(self._app, options.database)
        self._store = WorkStore(self._on)  # type: ignore[arg-type]
        self._node = new_id()
        self._kept: dict[str, bytes] = {}  # of once()

    def advance(self, delta: timedelta) -> datetime:
        if not connections[self._database].in_atomic_block:
            raise ConfigError("advance() needs a TestCase, whose transaction it ends with")
        if delta < timedelta():
            raise ConfigError(f"time only moves forward, not by {delta}")
        schema = self._app.settings.schema
        with connections[self._database].cursor() as cursor:
            cursor.execute(f"select {schema}.now() + %s", [delta])
            moment: datetime = cursor.fetchone()[0]
            cursor.execute(
                f"create or replace function {schema}.now() returns timestamptz language sql "
                f"stable parallel safe as 'select timestamptz ''{moment.isoformat()}'''"
            )
        return moment

    def run_next(self, raise_errors: bool) -> UUID | None:
        """Run one job that is due, and return its id; None if there is none."""
        namespace, tasks = self._app.settings.namespace, sorted(self._app.tasks)
        upkeep = UpkeepStore(self._on)  # type: ignore[arg-type]
        shards = _finish(upkeep.shards())
        _finish(upkeep.release(list(range(shards)), [None] * shards, _RELEASE))
        for row in sorted(_finish(self._on.fetch("lanes", namespace))):
            wish = LaneClaim(row[0], 1)
            for claimed in _finish(self._store.claim(self._node, [wish], tasks)):
                work = to_work(claimed)
                self._run(work, raise_errors)
                return work.id
        return None

    def _run(self, work: Work, raise_errors: bool) -> None:
        task, error = self._app.tasks[work.task], None
        decrypt(self._app.connector.encryption, work)
        if must_mark(work) and _finish(mark(self._store, self._node, [work])) != {work.id: "start"}:
            raise ConfigError(f"job {work.id} can't start: is its schedule's overlap reached?")
        began = monotonic()
        try:
            outcome = self._call(task, work)
        except Exception as raised:  # noqa: BLE001 - whatever a handler raises is its outcome
            error, outcome = raised, failure_outcome(raised)
        verdicts = Verdicts(self._node, self._app.settings.max_crashes)
        retry = retry_of(self._app.tasks, work.task)
        verdicts.judge(work, outcome, retry, monotonic() - began)
        _finish(verdicts.write(self._store, None))
        if error is not None and raise_errors:
            raise error

    def _call(self, task: Any, work: Work) -> Outcome:
        """Call the handler. What an exactly_once handler wrote before it raised is undone."""
        once, raised = work.guarantee is Guarantee.EXACTLY_ONCE, None
        with transaction.atomic(using=self._database):  # a savepoint, in a TestCase
            try:
                value = self._value(task, work, once)
            except Exception as error:
                if once or isinstance(error, django.db.Error):
                    raise
                raised = error
        if raised is not None:
            raise raised
        return encode_result(value, self._app.settings.max_result_bytes)

    def _value(self, task: Any, work: Work, once: bool) -> Any:
        channel, info = _Channel(self._kept), JobInfo.of(work)
        if not task.is_async:
            return task.call(
                work.payload, SyncContext(info, channel, self._on.raw if once else None)
            )

        async def run() -> Any:
            value = task.call(work.payload, Context(info, _AsyncChannel(self._kept)))
            return await value if inspect.isawaitable(value) else value

        return async_to_sync(run)()


class _Channel:
    """Answers the calls of a handler: `once` keys are kept for the length of `run_due`."""

    cancelled = False

    def __init__(self, kept: dict[str, bytes]) -> None:
        self._kept = kept

    def progress(self, body: bytes) -> None: ...

    def heartbeat(self) -> None: ...

    def call(self, name: str, body: bytes) -> Any:
        if name == "once_begin":
            key = msgspec.json.decode(body)[0]
            done = key in self._kept
            kept = msgspec.Raw(self._kept.get(key, b"null"))
            return msgspec.json.encode(OnceAnswer(done, kept))
        if name == "once_end":
            key, *values = msgspec.json.decode(body)
            self._kept[key] = msgspec.json.encode(values[0] if values else None)
        return b"null"


class _AsyncChannel(_Channel):
    async def call(self, name: str, body: bytes) -> Any:
        return super().call(name, body)
