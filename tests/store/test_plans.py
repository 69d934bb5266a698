"""The hot statements keep their one good plan, whatever the planner believes about the tables."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import msgspec
import pytest

from rota import App, Settings
from rota.store.database import Database
from rota.store.migrate import migrate
from rota.store.work import LOWEST_RANK, NIL
from tests.support.plans import nodes

NODE = uuid4()
LANES = ["default/default", "default/heavy"]

PART = (
    "array[1::bigint], array['default/default'], "
    f"array[1::bigint], array['{NIL}'::uuid], array[20000::bigint], array['{NIL}'::uuid]"
)
# What each statement is given, as SQL.
ARGUMENTS = {
    "claim": (
        f"'{NODE}'::uuid, array{LANES}, array['{LOWEST_RANK}'::bigint, 0], "
        f"array['{NIL}'::uuid, '{NIL}'], array[100, 100], array['greet']"
    ),
    "release": f"array{list(range(128))}, array{[0] * 128}, 5000",
    "finish_succeeded": (
        f"'{NODE}', array['{NIL}'::uuid], array[1::bigint], array[null::json], array[null::json], "
        "array[0], array[0], null"
    ),
    "finish_ended": (
        f"'{NODE}', array['{NIL}'::uuid], array[1::bigint], array[6::smallint], "
        "array[null::jsonb], array[null::json], array[0::smallint], array[0], array[0]"
    ),
    "finish_retried": (
        f"'{NODE}', array['{NIL}'::uuid], array[1::bigint], array[1.0::float8], "
        "array[null::jsonb], array[0::smallint], array[0], array[0]"
    ),
    "give_back": f"'{NODE}', array['{NIL}'::uuid], array[1::bigint]",
    "mark_started": f"'{NODE}', array['{NIL}'::uuid], array[1::bigint]",
    "save_progress": f"'{NODE}', array['{NIL}'::uuid], array[1::bigint], array['1'::json]",
    "report_progress": f"'{NODE}', array['{NIL}'::uuid], array[1::bigint], array['1'::json]",
    "batch_parts": f"'{NODE}', array[1::bigint], array['default/default'], 20000",
    "held_jobs": f"'{NODE}', {PART}",
    "close_parts": f"'{NODE}', {PART}, array[true]",
    "note_strays": f"'{NIL}', 20000",
    "close_finished": f"'{NODE}', array[1::bigint]",
    "renew_worker": f"'{NODE}', 'default', 15.0, false",
    "count_suspects": f"'{NODE}', 1, 2",
    "has_overruns": "1.0, 86400.0",
    "take_overruns": "1.0, 200, 86400.0",
    "note_alive": f"'{NODE}', array['{NIL}'::uuid], array[1::bigint]",
    "held_of_worker": f"'{NODE}', null, array['{NIL}'::uuid], array[1::bigint], null",
    "offered_to_worker": f"'{NODE}', 'default', array['{NIL}'::uuid], array[1::bigint]",
    "held_for_finish": f"'{NODE}', array['{NIL}'::uuid], array[1::bigint], 'default'",
    "cancels_of": f"'{NODE}'",
    "moved_on": f"'{NODE}', array['{NIL}'::uuid], array[1::bigint]",
    "check_lease": f"'{NODE}', '{NIL}', 1",
    "begin_effect": f"'{NODE}', '{NIL}', 1, 'default', 'charge', false",
    "log_so_far": f"'{NODE}', '{NIL}', 1",
    "cancel_jobs": f"'default', array['{NIL}'::uuid]",
    "due_schedules": f"array{list(range(128))}, array{[0] * 128}, 1000, '{{}}', '{{}}'",
    "schedule_work": f"array{list(range(128))}, array{[0] * 128}, '{{}}', '{{}}'",
    "promote_waiting": f"500, '{NIL}', 2000",
}
WRITES = {
    "finish_succeeded", "finish_ended", "finish_retried", "give_back", "mark_started", "save_progress",
    "report_progress", "note_alive",
}  # fmt: skip
# What looks for the rows of batches, by lane and rank, and for single rows, by id.
BY_BATCH = {"batch_parts", "held_jobs", "close_parts"}
BY_ID = {
    "held_for_finish", "cancels_of", "moved_on", "check_lease", "begin_effect", "log_so_far",
    "cancel_jobs", "held_of_worker", "close_finished", "renew_worker", "count_suspects",
    "has_overruns", "take_overruns", "offered_to_worker",
}  # fmt: skip


async def plan_of(connection: Any, database: Any, name: str) -> dict[str, Any]:
    """The plan that a hot connection uses for it: a generic one, made without the arguments."""
    await connection.execute(f"prepare {name} as {database.queries[name]}")
    try:
        given = f"({ARGUMENTS[name]})" if name in ARGUMENTS else ""
        text = await connection.fetchval(f"explain (format json) execute {name}{given}")
    finally:
        await connection.execute(f"deallocate {name}")
    plan: dict[str, Any] = msgspec.json.decode(text)[0]["Plan"]
    return plan


def scans(plan: dict[str, Any], table: str) -> list[tuple[str, str | None]]:
    """How this table is read: the kinds of scan, each with its index."""
    return [
        (node["Node Type"], node.get("Index Name"))
        for node in nodes(plan)
        if node.get("Relation Name") == table and "Scan" in node["Node Type"]
    ]


def picked(plan: dict[str, Any]) -> dict[str, Any]:
    """Where rows are chosen and locked."""
    return next(node for node in nodes(plan) if node["Node Type"] == "LockRows")


HUGE = 200_000


@pytest.fixture
async def hot(database_url):
    """A node's database on a schema of its own, which nobody has touched: real time included."""
    settings = Settings(database_url=database_url, schema=f"rota_test_{uuid4().hex[:12]}")
    database = Database(database_url, settings, hot=True)
    await database.open()
    async with database.connection() as connection:
        await migrate(connection, settings.schema)
        yield database
        await connection.execute(f"drop schema {settings.schema} cascade")
    await database.close()


@pytest.fixture
def grow(hot):
    async def grow(connection: Any, count: int) -> None:
        """Ready and running jobs in two lanes, and jobs for later, unknown to the planner."""
        schema = hot.schema
        await connection.execute(
            f"insert into {schema}.present"
            " (id, rank, due_at, state, namespace, lane, task, payload)"
            f" select gen_random_uuid(), n, now(), 3 + n % 2, 'default',"
            f" 'default/' || (array['default', 'heavy'])[1 + n % 2], 'greet', '{{}}'"
            f" from generate_series(1, {count}) as n"
        )
        await connection.execute(
            f"insert into {schema}.future (id, shard, due_at, namespace, lane, task, payload)"
            f" select gen_random_uuid(), n % 128, now() + n * interval '1 minute', 'default',"
            f" 'default/default', 'greet', '{{}}' from generate_series(1, {count}) as n"
        )

    return grow


async def check_plans(connection: Any, hot: Any) -> None:
    claim = await plan_of(connection, hot, "claim")
    assert sorted(scans(claim, "present")) == [
        ("Index Scan", "present_claim"), ("Tid Scan", None),
    ]  # fmt: skip
    [index_scan] = [n for n in nodes(claim) if n.get("Index Name") == "present_claim"]
    assert "lane" in index_scan["Index Cond"]
    assert "ROW(rank, id) > ROW(" in index_scan["Index Cond"]
    assert "Sort" not in {node["Node Type"] for node in nodes(picked(claim))}
    assert scans(claim, "queue") == [("Index Scan", "queue_pkey")]

    release = await plan_of(connection, hot, "release")
    assert sorted(scans(release, "future")) == [
        ("Index Only Scan", "future_due"), ("Index Scan", "future_due"), ("Tid Scan", None)
    ]  # fmt: skip
    for index_scan in (n for n in nodes(release) if n.get("Index Name") == "future_due"):
        assert "shard" in index_scan["Index Cond"]
        assert "due_at" in index_scan["Index Cond"]
    assert "Sort" not in {node["Node Type"] for node in nodes(picked(release))}

    for name in WRITES:
        plan = await plan_of(connection, hot, name)
        assert set(scans(plan, "present")) == {("Index Scan", "present_pkey")}, name

    for name in BY_BATCH | BY_ID:
        await check_looks(connection, hot, name)


async def check_looks(connection: Any, hot: Any, name: str) -> None:
    """From what is known to the rows, never from the table."""
    found = [
        (node["Index Name"], node.get("Index Cond", "none"))
        for node in nodes(await plan_of(connection, hot, name))
        if node.get("Relation Name") == "present" and "Scan" in node["Node Type"]
    ]
    assert found, name
    wanted = {"present_claim": "lane =", "present_pkey": "id ="}
    for index, condition in found:
        assert wanted[index] in condition, (name, index, condition)
    assert {index for index, _ in found} == {
        index
        for index, names in (("present_claim", BY_BATCH), ("present_pkey", BY_ID))
        if name in names
    }, name


@pytest.mark.parametrize("size", [0, 1, 10_000, HUGE])
async def test_claims_and_finishes_go_by_index_with_and_without_statistics(hot, grow, size):
    """Asked of a pooled connection, so that its settings are what pins the plans."""
    async with hot.connection() as connection:
        await connection.execute(f"alter table {hot.schema}.present set (autovacuum_enabled = off)")
        await connection.execute(f"alter table {hot.schema}.future set (autovacuum_enabled = off)")
        await grow(connection, size)
        await check_plans(connection, hot)
        await connection.execute(f"analyze {hot.schema}.present, {hot.schema}.future")
        await check_plans(connection, hot)


async def test_plans_stay_right_when_the_planner_remembers_a_full_table_that_is_empty(hot, grow):
    async with hot.connection() as connection:
        await grow(connection, 10_000)
        await connection.execute(f"analyze {hot.schema}.present, {hot.schema}.future")
        await connection.execute(f"delete from {hot.schema}.present")
        await connection.execute(f"delete from {hot.schema}.future")
        await check_plans(connection, hot)


async def test_a_claim_is_a_heap_only_update_that_writes_no_index_entry(hot):
    app = App(hot.settings)

    @app.task
    async def greet(text: str) -> None: ...

    async with app:
        await greet.submit_many(["x" * 200] * 1000)
    table = f"'{hot.schema}.present'::regclass"
    async with hot.connection() as connection, connection.transaction():
        rows = await connection.fetch(
            hot.queries["claim"], NODE, ["default/default"], [LOWEST_RANK], [NIL], [1000], ["greet"]
        )
        updated, heap_only = await connection.fetchrow(
            f"select pg_stat_get_xact_tuples_updated({table}),"
            f" pg_stat_get_xact_tuples_hot_updated({table})"
        )
    assert (len(rows), updated) == (1000, 1000)
    assert heap_only == 1000


async def test_a_firer_s_tick_reads_no_more_of_the_schedules_than_is_due(hot, grow):
    """Whatever is stored: 20,000 schedules and jobs that no statistics tell of."""
    schema = hot.schema
    async with hot.connection() as connection:
        await grow(connection, 20_000)
        await connection.execute(
            f"insert into {schema}.schedule (id, namespace, name, shard, next_due, cursor, priority,"
            " guarantee, max_attempts, lane, task, payload, spec)"
            " select gen_random_uuid(), 'default', 's' || n, n % 128, now() + interval '1 day',"
            " now(), 0, 1, 5, 'default/default', 'greet', '{}', '{}' from generate_series(1, 20000) as n"
        )
        due = await plan_of(connection, hot, "due_schedules")
        assert scans(due, "schedule") == [
            ("Index Scan", "schedule_due"), ("Index Scan", "schedule_due")
        ]  # fmt: skip
        work = await plan_of(connection, hot, "schedule_work")
        assert scans(work, "schedule") == [
            ("Index Scan", "schedule_due"), ("Index Only Scan", "schedule_resume")
        ]  # fmt: skip
        assert scans(work, "future") == [("Index Only Scan", "future_waiting")]
        resume = await plan_of(connection, hot, "resume_due")
        assert scans(resume, "schedule") == [("Index Scan", "schedule_resume")]
        promote = await plan_of(connection, hot, "promote_waiting")
        assert scans(promote, "schedule") == [("Index Scan", "schedule_pkey")]
        assert {index for _, index in scans(promote, "present")} == {
            "present_pkey", "present_scheduled",
        }  # fmt: skip
        assert {index for _, index in scans(promote, "future")} <= {
            "future_pkey", "future_scheduled", "future_waiting",
        }  # fmt: skip


@pytest.mark.parametrize("size", [0, 1])
async def test_writes_planned_beside_an_empty_table_suit_a_backlog(hot, grow, size):
    """Whoever plans one first keeps to it: it must not begin from the table, however small that was."""
    async with hot.connection() as connection:
        await grow(connection, size)
        for name in WRITES:
            plan = await plan_of(connection, hot, name)
            reads = [
                n
                for n in nodes(plan)
                if n.get("Relation Name") == "present" and "Scan" in n["Node Type"]
            ]
            assert reads, name
            for read in reads:
                assert read["Index Name"] == "present_pkey", name
                assert "id = ANY" in read["Index Cond"], name
