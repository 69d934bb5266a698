"""What becomes of jobs when the database can't do what it is asked: a full disk, a bad value."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from proof.waiting import eventually
from rota import All, App, Context, OnceUnknown, Retry, StoreUnavailable
from rota.core.lifecycle import LONGEST_DELAY, retry_delay
from rota.errors import ConfigError
from rota.node import Node
from rota.store.driver_errors import is_bad_value, is_transient
from rota.worker import effects
from rota.worker import finisher as finishing
from rota.worker.runners.loop import LoopRunner

# Out of disk, memory, connections; an I/O error; a bug of PostgreSQL's; too slow; a conflict.
STATES = ["53100", "53200", "53300", "58030", "XX000", "57014", "40001"]


class Faults:
    """Makes statements fail: by a trigger that counts in a sequence, which no rollback undoes."""

    def __init__(self, connection: Any, schema: str) -> None:
        self._connection = connection
        self._schema = schema
        self._undo: list[str] = []

    async def fail(
        self, table: str, event: str, state: str, times: int = 3, when: str = "true"
    ) -> None:
        schema, name = self._schema, f"fault_{table}"
        await self._connection.execute(f"""
            create sequence {schema}.{name};
            create function {schema}.{name}() returns trigger language plpgsql as $$ begin
                if {when} then
                    if nextval('{schema}.{name}') <= {times} then
                        raise exception using errcode = '{state}', message = 'as if';
                    end if;
                end if;
                return coalesce(new, old);
            end $$;
            create trigger {name} before {event} on {schema}.{table}
                for each row execute function {schema}.{name}()""")
        self._undo += [
            f"drop function {schema}.{name} cascade",
            f"drop sequence {schema}.{name}",
        ]

    async def times_met(self, table: str) -> int:
        count: int = await self._connection.fetchval(
            f"select last_value from {self._schema}.fault_{table}"
        )
        return count

    async def undo(self) -> None:
        for statement in self._undo:
            await self._connection.execute(statement)


@pytest.fixture
def app(make_app: Callable[..., App]) -> App:
    return make_app(heartbeat=0.5, concurrency=2, statement_timeout=20)


@pytest.fixture
async def faults(app: App, database_url: str) -> AsyncIterator[Faults]:
    connection = await asyncpg.connect(database_url)
    faults = Faults(connection, app.settings.schema)
    yield faults
    await faults.undo()
    await connection.close()


# -- what passes


@pytest.mark.parametrize("state", STATES)
async def test_an_outcome_waits_until_the_database_can_write_it(
    app: App, faults: Faults, state: str
) -> None:
    @app.task
    async def greet() -> str:
        return "hello"

    @app.task(retry=Retry(max_attempts=1))
    async def fail() -> None:
        raise OSError

    await faults.fail("past", "insert", state)
    await faults.fail("dead", "insert", state)
    async with app, Node(app).running():
        good, bad = await greet.submit(), await fail.submit()
        assert await good.result(60) == "hello"
        assert (await bad.wait(60)).state == "failed"
    assert await faults.times_met("past") >= 3


async def test_a_once_effect_whose_end_could_not_be_written_is_not_repeated_by_the_same_attempt(
    app: App, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged: list[int] = []
    monkeypatch.setattr(effects, "_END_PAUSES", ())

    @app.task(retry=Retry(max_attempts=1))
    async def pay(ctx: Context) -> str:
        with contextlib.suppress(StoreUnavailable):
            await ctx.once("charge:42", lambda: charged.append(1))
        try:
            await ctx.once("charge:42", lambda: charged.append(2))
        except OnceUnknown:
            return "unknown"
        return "repeated"

    await faults.fail("effect", "update", "53100", times=1, when="new.done_at is not null")
    async with app, Node(app).running():
        assert await (await pay.submit()).result(60) == "unknown"
    assert charged == [1]


@pytest.mark.parametrize("state", ["53100", "XX000", "22003", "42501"])
async def test_a_mark_that_fails_gives_its_jobs_back_and_frees_their_slots(
    app: App, faults: Faults, state: str
) -> None:
    ran: list[int] = []

    @app.task(guarantee="at_most_once")
    async def pay(number: int) -> None:
        ran.append(number)

    @app.task
    async def tick(ctx: Context) -> None: ...

    await faults.fail("present", "update", state, times=6, when="new.started_at is not null")
    async with app, Node(app).running() as node:
        handles = await pay.submit_many([(n,) for n in range(8)])
        for handle in handles:
            assert (await handle.wait(60)).state == "succeeded"
        assert sorted(ran) == list(range(8))
        await app.schedule("often", "tick", every=1, overlap="skip", catch_up=All())
        assert node.worker_role is not None
        slots = node.worker_role.worker.slots
        await eventually(lambda: slots.count_running() == 0)


async def test_a_job_that_no_runner_takes_fails_and_frees_its_slot(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task(retry=Retry(max_attempts=2, base=0))
    async def greet() -> None: ...

    def out_of_threads(self: Any, work: Any) -> None:
        raise RuntimeError("can't start new thread")

    async with app, Node(app).running():
        with monkeypatch.context() as patched:
            patched.setattr(LoopRunner, "run", out_of_threads)
            handles = await greet.submit_many([()] * 5)
            jobs = [await handle.wait(60) for handle in handles]
        assert {job.state for job in jobs} == {"failed"}
        assert {(job.attempt, job.error.type) for job in jobs} == {(2, "NotStarted")}
        assert (await (await greet.submit()).wait(60)).state == "succeeded"


def test_errors_of_the_server_pass_and_errors_of_a_value_do_not() -> None:
    def error(state: str) -> Exception:
        return asyncpg.PostgresError.new({"C": state, "M": "as if"})

    for state in (*STATES, "08006", "57P01", "25006", "25P03", "55P03", "40P01", "XX001", "58P01"):
        assert is_transient(error(state)), state
        assert not is_bad_value(error(state)), state
    for state in ("22003", "22P05", "23505", "23514", "54000"):
        assert is_bad_value(error(state)), state
        assert not is_transient(error(state)), state
    for state in ("42501", "42P01", "P0001"):
        assert not is_transient(error(state)), state
        assert not is_bad_value(error(state)), state


# -- what the job itself is to blame for


async def test_an_outcome_that_can_t_be_stored_harms_only_its_own_job(
    app: App, faults: Faults
) -> None:
    @app.task
    async def echo(text: str) -> str:
        return text

    await faults.fail("past", "insert", "22P05", 1000, "new.result::text = '\"bad\"'")
    async with app, Node(app).running():
        handles = await echo.submit_many([("bad" if n == 7 else f"good {n}",) for n in range(20)])
        jobs = [await handle.wait(60) for handle in handles]
    assert {job.state for job in jobs} == {"succeeded"}
    assert [job.result for job in jobs if job.error is None] == [
        f"good {n}" for n in range(20) if n != 7
    ]
    # The work was done, so it stays done: only its result is gone.
    assert jobs[7].result is None
    assert jobs[7].error.type == "ResultDropped"


async def test_an_attempt_that_can_t_be_stored_becomes_a_plain_failure(
    app: App, faults: Faults
) -> None:
    @app.task(retry=Retry(base=60))
    async def fail(number: int) -> None:
        raise OSError(f"number {number}")

    await faults.fail("future", "insert", "22008", 1000, "new.attempts::text like '%number 3%'")
    async with app, Node(app).running():
        handles = await fail.submit_many([(n,) for n in range(6)])
        job = await handles[3].wait(60)
        assert (job.state, job.error.type) == ("failed", "OutcomeNotStored")
        for number, handle in enumerate(handles):
            if number != 3:
                await eventually(lambda handle=handle: _state(handle, "scheduled"))


async def _state(handle: Any, state: str) -> bool:
    return (await handle.status()).state == state


# -- delays


@pytest.mark.parametrize("seconds", [1e13, 1e300, math.inf])
async def test_a_delay_longer_than_a_year_is_a_year(app: App, seconds: float) -> None:
    @app.task
    async def later() -> None:
        raise Retry.after(seconds)

    async with app, Node(app).running():
        handle = await later.submit()
        await eventually(lambda: _state(handle, "scheduled"))
        job = await handle.status()
    delay = (job.due_at - job.created_at).total_seconds()
    assert LONGEST_DELAY <= delay < LONGEST_DELAY + 3600


@pytest.mark.parametrize("seconds", [-1, math.nan])
def test_a_delay_that_is_no_length_of_time_is_refused(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"Retry\.after"):
        Retry.after(seconds)


async def test_a_delay_of_the_wrong_kind_is_an_ordinary_failure(app: App) -> None:
    @app.task(retry=Retry(max_attempts=2, base=0))
    async def later() -> None:
        error = Retry.after(1)
        error.seconds = "soon"  # type: ignore[assignment]
        raise error

    async with app, Node(app).running():
        assert (await (await later.submit()).wait(60)).attempt == 2


def test_a_retry_s_numbers_are_finite_and_its_delays_bounded() -> None:
    for field in ("base", "cap", "factor"):
        for value in (math.inf, math.nan, -1):
            with contextlib.suppress(TypeError), pytest.raises(ConfigError, match=field):
                Retry(**{field: value})
    assert retry_delay(Retry(base=1e9, factor=1e10, cap=1e200), 60, 0.9) == LONGEST_DELAY


# -- too much at a time


async def test_results_are_written_in_statements_of_bounded_size(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    monkeypatch.setattr(finishing, "_BYTES", 100_000)

    @app.task
    async def much() -> str:
        return "x" * 30_000

    async with app, Node(app).running() as node:
        assert node.worker_role is not None
        store = node.worker_role._finisher._store
        write = store.finish_succeeded

        async def measured(node: Any, jobs: Any, *others: Any) -> int:
            sizes.append(sum(job.size for job in jobs))
            return await write(node, jobs, *others)

        monkeypatch.setattr(store, "finish_succeeded", measured)
        handles = await much.submit_many([()] * 40)
        for handle in handles:
            assert (await handle.wait(60)).state == "succeeded"
    assert max(sizes) <= 100_000


async def test_what_takes_too_long_in_one_statement_is_written_in_smaller_ones(
    app: App, faults: Faults
) -> None:
    """As if the server were so slow that only five outcomes fit into its time."""
    schema = app.settings.schema
    await faults._connection.execute(f"""
        create function {schema}.too_much() returns trigger language plpgsql as $$ begin
            if (select count(*) from added) > 5 then
                raise exception using errcode = '57014', message = 'statement timeout';
            end if;
            return null;
        end $$;
        create trigger too_much after insert on {schema}.past referencing new table as added
            for each statement execute function {schema}.too_much()""")
    faults._undo.append(f"drop function {schema}.too_much cascade")

    @app.task
    async def greet() -> None: ...

    async with app:
        handles = await greet.submit_many([()] * 24)
        async with Node(app).running():
            for handle in handles:
                assert (await handle.wait(60)).state == "succeeded"


# -- what asyncpg calls an InterfaceError

MISUSES: dict[str, Callable[[asyncpg.Connection], Any]] = {
    "too few arguments": lambda line: line.fetch("select $1::int, $2::int", 1),
    "too many arguments": lambda line: line.fetch("select 1", 1),
    "a value of another type": lambda line: line.fetch("select $1::int", "connection is closed"),
    "a number that is too large": lambda line: line.fetch("select $1::int", 2**40),
    "a text with half of a character": lambda line: line.fetch("select $1::text", "\ud800"),
}


@pytest.mark.parametrize("misuse", list(MISUSES))
async def test_misuse_of_the_driver_is_a_bug_and_no_outage(app: App, misuse: str):
    """Taken for an outage it would be repeated for ever, and nobody would see it."""
    database = (await app.store()).database
    misused = (asyncpg.InterfaceError, asyncpg.DataError)
    with pytest.raises(misused) as raised:
        async with database.connection() as connection:
            await MISUSES[misuse](connection)
    assert not is_transient(raised.value)
    async with database.connection() as connection:
        assert await connection.fetchval("select 1") == 1


async def test_a_line_that_is_gone_is_an_outage(app: App, database_url: str):
    database = (await app.store()).database
    with pytest.raises(StoreUnavailable):  # noqa: PT012
        async with database.connection() as connection:
            await connection.close()
            await connection.fetch("select 1")
    with pytest.raises(StoreUnavailable):  # noqa: PT012
        async with database.connection() as connection:
            connection.terminate()
            await connection.fetch("select 1")
    pool = await asyncpg.create_pool(database_url, min_size=0)
    kept = await pool.acquire()
    await pool.release(kept)
    for use in (kept.fetchval, pool.fetchval):
        with pytest.raises(asyncpg.InterfaceError) as raised:
            await use("select 1")
        assert is_transient(raised.value), raised.value
        await pool.close()


def test_no_outage_has_words_that_are_not_known():
    """A new release of asyncpg may have others: then somebody has to look."""
    folder = Path(asyncpg.__file__).parent
    texts = set()
    for path in [*folder.glob("*.py"), *folder.glob("protocol/*.pyx")]:
        for raised in re.findall(r"InterfaceError\(\s*((?:f?['\"].*?['\"]\s*)+)", path.read_text()):
            texts.add("".join(re.findall(r"['\"](.*?)['\"]", raised)))
    assert "cannot perform operation: connection is closed" in texts
    like_outages = {
        text for text in texts if re.search("clos|lost|reset|abort|busy|progress", text)
    }
    bugs = {text for text in like_outages if not is_transient(asyncpg.InterfaceError(text))}
    assert bugs == {
        "cannot call PreparedStmt.{}(): the prepared statement is closed",
        "cursor: the prepared statement is closed",
    }
