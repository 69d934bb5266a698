"""Failpoints, and what becomes of every operation whose answer was lost, or whose process died in it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import rota
from proof import sweep
from proof.waiting import eventually
from rota import All, App
from rota.errors import ConfigError, Conflict, NotFound, StoreUnavailable
from rota.lib import failpoints
from rota.node import Node
from rota.store.sql import load_queries
from rota.testing import Sandbox

QUERIES = load_queries("rota")


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


# -- arming


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("claim:after", "not a failpoint"),
        ("claim:after=explode", "kill, stop, error and delay:SECONDS"),
        ("claim:after=delay", "not a failpoint"),
        ("claim:after=kill:3", "not a failpoint"),
        ("claim:after=delay:soon", "seconds after 'delay:', not 'soon'"),
        ("claim:after=kill@0", "a whole number from 1 on after '@', not '0'"),
        ("claim:after=kill@x", "a whole number from 1 on after '@', not 'x'"),
        ("claim:during=kill", "no failpoint 'claim:during'"),
        ("no_such_query:after=kill", "no failpoint 'no_such_query:after'"),
        ("fire:after=x, fire:begun=kill", "'fire:after=x'"),
    ],
)
def test_what_can_t_be_armed_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as refused:
        failpoints.arm(text)
    assert str(refused.value).startswith("ROTA_FAILPOINTS: ")
    assert not failpoints.armed


async def test_a_failpoint_acts_at_the_time_it_was_told_and_only_then(app: App) -> None:
    store = await app.store()
    with failpoints.armed_with("now:before=error@2"):
        await store.now()
        with pytest.raises(StoreUnavailable, match="now:before"):
            await store.now()
        await store.now()
    with failpoints.armed_with("now:after=delay:0.2"):
        before = time.monotonic()
        await store.now()
        assert time.monotonic() - before >= 0.2


async def test_the_boundaries_of_a_transaction_are_where_they_say(app: App) -> None:
    database = (await app.store()).database
    schema, made = database.schema, "create table {}.mark_{} ()"

    async def is_made(name: str) -> bool:
        async with database.connection() as connection:
            found = await connection.fetchval("select to_regclass($1)", f"{schema}.mark_{name}")
            return found is not None

    for point, committed in (("begun", False), ("before_commit", False), ("after_commit", True)):
        failpoints.arm(f"fire:{point}=error")
        with pytest.raises(StoreUnavailable, match=point):
            async with database.transaction("fire") as connection:
                await connection.execute(made.format(schema, point))
        failpoints.disarm()
        assert await is_made(point) == committed
    async with database.connection() as connection:
        await connection.execute(f"drop table {schema}.mark_after_commit")


@pytest.mark.parametrize(("action", "code"), [("kill", -9), ("error", 1)])
def test_a_process_reads_its_failpoints_from_the_environment(
    tmp_path: Path, app: App, action: str, code: int
) -> None:
    reached = tmp_path / "reached"
    environment = {
        "ROTA_DATABASE_URL": app.settings.database_url or "",
        "ROTA_SCHEMA": app.settings.schema,
        "ROTA_FAILPOINTS": f"list_nodes:before={action}@1",
        "ROTA_FAILPOINTS_REACHED": str(reached),
    }

    def ask(what: str) -> subprocess.Popen[bytes]:
        program = f"import asyncio; from rota import App; asyncio.run(App().{what}.list())"
        return subprocess.Popen([sys.executable, "-c", program], env=environment, stderr=-3)

    assert ask("queues").wait(60) == 0
    assert not reached.exists()
    process = ask("nodes")
    assert process.wait(60) == code
    assert reached.read_text() == f"list_nodes:before {action} {process.pid}\n"


def test_every_transaction_in_the_code_has_a_name_that_can_be_armed() -> None:
    source = Path(rota.__file__).parent
    used = set()
    for file in source.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                named = [a.value for a in node.args if isinstance(a, ast.Constant)]
                if node.func.attr in ("transaction", "shared_transaction") and named:
                    used.update(named)
    assert used | {"transaction", "sync_transact"} == set(failpoints.TRANSACTIONS)


# -- the sweep's lists

_WRITES = re.compile(
    r"\b(insert into|update rota\.|delete from|for (no key )?update|nextval|pg_notify|pg_advisory"
    r"|rota\.(submit_jobs|submit_made|begin_scheduled|hint|tell|draw|make_day|make_partition))\b"
)


def _writing() -> set[str]:
    return {name for name, text in QUERIES.items() if _WRITES.search(text)}


def test_every_query_that_writes_is_swept_or_excluded_with_a_reason() -> None:
    swept = {target.name for target in sweep.TARGETS}
    inside = {query for queries in sweep.INSIDE.values() for query in queries}
    assert _writing() - swept - inside - set(sweep.EXCLUDED) == set(), "neither swept nor explained"
    assert set(failpoints.TRANSACTIONS) - swept == set(sweep.EXCLUDED) & set(
        failpoints.TRANSACTIONS
    )
    for listed in (swept, inside, set(sweep.EXCLUDED), set(sweep.INSIDE)):
        assert listed - set(QUERIES) - set(failpoints.TRANSACTIONS) == set(), "no such query"
    assert (swept & set(sweep.EXCLUDED)) == set()


def test_the_short_sweep_is_a_part_of_the_long_one() -> None:
    cases = {str(case) for case in sweep.every_case()}
    assert set(sweep._TELLING) < cases
    assert len({case.target.name for case in sweep.telling_cases()}) == len(sweep.TARGETS)


@pytest.mark.proof
@pytest.mark.timeout(900)  # of a busy machine; about two minutes of processor time
async def test_processes_that_die_stop_or_are_cut_off_at_a_transaction_s_edge_break_no_promise(
    database_url: str, tmp_path: Path
) -> None:
    cases = sweep.telling_cases()
    assert await sweep.sweep(database_url, tmp_path, cases, chunk=100) == []


# -- answers that were lost, of what people do by hand: each is repeated by its caller


@pytest.fixture
def app_at_rest(sandbox: Sandbox) -> App:
    """With a task that fails, and nobody who runs anything until told."""

    @sandbox.app.task(retry=rota.Retry(max_attempts=1))
    async def fails() -> None:
        raise ValueError("no")

    @sandbox.app.task
    async def works() -> None: ...

    return sandbox.app


CHANGED = "change:after_commit"


async def twice(point: str, ask: Callable[[], Awaitable[Any]]) -> Any:
    """The answer to the repetition, after the first one's was lost behind its commit."""
    with failpoints.armed_with(f"{point}=error@1"), pytest.raises(StoreUnavailable):
        await ask()
    try:
        return await ask()
    except (ConfigError, Conflict, NotFound) as refused:
        return type(refused)


async def test_a_repeated_cancel_finds_the_job_cancelled(app_at_rest: App) -> None:
    handle = await app_at_rest.require_task("works").submit()
    again = await twice(CHANGED, lambda: app_at_rest.jobs.cancel(handle.id))
    assert again is Conflict
    assert await app_at_rest.jobs.count() == {"cancelled": 1}


async def test_a_repeated_retry_or_discard_finds_the_dead_letter_list_empty(
    app_at_rest: App, sandbox: Sandbox
) -> None:
    jobs = app_at_rest.jobs
    first, second = [await app_at_rest.require_task("fails").submit() for _ in range(2)]
    await sandbox.run_due()
    assert await jobs.count() == {"failed": 2}
    assert await twice(CHANGED, lambda: jobs.retry(first.id)) is Conflict
    assert await twice(CHANGED, lambda: jobs.discard(second.id)) is Conflict
    assert await jobs.count() == {"ready": 1, "cancelled": 1}


async def test_a_repeated_pause_keeps_the_moment_of_the_first(
    app_at_rest: App, sandbox: Sandbox
) -> None:
    await app_at_rest.schedule("s", "works", every=60)
    with failpoints.armed_with(f"{CHANGED}=error@1"), pytest.raises(StoreUnavailable):
        await app_at_rest.schedules.pause("s")
    paused_at = (await app_at_rest.schedules.get("s")).paused_at
    await sandbox.advance(seconds=10)
    await app_at_rest.schedules.pause("s")
    assert (await app_at_rest.schedules.get("s")).paused_at == paused_at is not None
    await twice(CHANGED, lambda: app_at_rest.schedules.resume("s"))
    assert (await app_at_rest.schedules.get("s")).paused_at is None
    await twice(CHANGED, lambda: app_at_rest.queues.pause("default"))
    await twice(CHANGED, lambda: app_at_rest.queues.resume("default"))
    assert [queue.paused_at for queue in await app_at_rest.queues.list()] == [None]


async def test_a_schedule_that_is_put_or_deleted_again_stays_as_it_is(app_at_rest: App) -> None:
    async def put() -> Any:
        return await app_at_rest.schedules.put(
            rota.core.time.schedule.make_spec("s", "works", every=60)
        )

    assert (await twice("put_schedules:after_commit", put)).change == "unchanged"
    assert (await app_at_rest.schedules.get("s")).version == 1
    by_hand = "schedule_by_hand:after_commit"
    gone = await twice(by_hand, lambda: app_at_rest.schedules.delete("s"))
    assert gone is NotFound
    assert await app_at_rest.schedules.list() == []


async def test_a_trigger_whose_answer_was_lost_is_repeated_as_the_same_job(
    app_at_rest: App,
) -> None:
    await app_at_rest.schedule("s", "works", every=3600)
    with failpoints.armed_with("schedule_by_hand:after_commit=error@1"):
        job = (await app_at_rest.schedules.trigger("s")).job_id
    assert [each.id for each in await app_at_rest.jobs.list()] == [job]
    with failpoints.armed_with("schedule_by_hand:before_commit=error@1"):
        other = (await app_at_rest.schedules.trigger("s")).job_id
    assert {each.id for each in await app_at_rest.jobs.list()} == {job, other}


async def test_a_repeated_backfill_finds_its_occurrences_in_the_ledger(
    app_at_rest: App, sandbox: Sandbox
) -> None:
    await app_at_rest.schedule("s", "works", every=60, catch_up=All())
    now = await (await app_at_rest.store()).now()
    first = now - timedelta(minutes=10)

    async def backfill() -> int:
        return (await app_at_rest.schedules.backfill("s", first, now)).count

    assert await twice("schedule_by_hand:after_commit", backfill) == 0
    assert 9 <= len(await app_at_rest.jobs.list()) <= 10


# -- answers that were lost, of a node's own doing; those of the hot path are in the sweep


async def test_a_node_whose_registration_was_not_answered_registers_again(app: App) -> None:
    """Under its id, which is there already: that must not be taken for somebody else's."""
    node = Node(app, roles=["worker"])
    with failpoints.armed_with("register_node:after=error@1"), pytest.raises(StoreUnavailable):
        await node.start()
    async with node.running():
        heartbeat = node._heartbeat
        assert heartbeat is not None
        before = node.id
        with failpoints.armed_with("register_node:after=error@1"):
            async with (await app.store()).database.connection() as connection:
                await connection.execute(
                    f"update {app.settings.schema}.node set state = 'dead' where id = $1", before
                )
            await eventually(lambda: node.id != before, what="a new identity")

            async def is_back() -> bool:
                return node.id in [each.id for each in await app.nodes.list()] and heartbeat.trusted

            await eventually(is_back, what="its registration")
            assert failpoints._points["register_node:after"].passed >= 2


async def test_an_exactly_once_job_is_not_charged_for_a_database_that_was_away(app: App) -> None:
    @app.task(guarantee="exactly_once", retry=rota.Retry(max_attempts=1))
    async def once_only() -> int:
        return 1

    with failpoints.armed_with("transact:begun=error@1"):
        async with Node(app, roles=["worker"]).running():
            job = await (await once_only.submit()).wait(30)
            assert failpoints._points["transact:begun"].passed == 2
    assert (job.state, job.attempt, job.attempts) == ("succeeded", 1, [])
