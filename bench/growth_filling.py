"""What `bench.growth` stores: jobs, schedules and their ledger, by SQL in bulk, in the order of time.

Around them stands what `bench.page_filling` writes for 20,000 jobs: nodes, tasks, queues, runs, events,
statistics. That stays as it is, so that two sizes differ in what is stored, and in nothing else.
"""

# ruff: noqa: E501  lines of SQL

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

from bench.page_filling import JOB_ID, Amounts

SURROUNDINGS = Amounts(20_000)
_DAYS = 6  # of history and of the ledger, within the retention that is set
_STEP = 1_000_000  # rows of a statement
# Bytes of a row with its indexes, its share of the write-ahead log not counted.
_BYTES = {"future": 380, "past": 420, "dead": 700, "ready": 900, "schedules": 2_400}
_SPARE = 6 << 30  # write-ahead log, temporary files, and what others need


class Stored(NamedTuple):
    """How many rows there are of what can be many."""

    future: int
    past: int
    schedules: int
    dead: int
    ready: int

    @classmethod
    def of(cls, jobs: int, schedules: int) -> Stored:
        """As many future as past jobs; of a hundred past ones a failed and a ready one."""
        return cls(jobs, jobs, schedules, max(jobs // 100, 10), max(jobs // 100, 10))

    @property
    def bytes(self) -> int:
        """About how much of the disk they need."""
        return sum(count * _BYTES[name] for name, count in self._asdict().items())

    def __str__(self) -> str:
        return (
            f"{self.future:,} future and {self.past:,} past jobs, {self.dead:,} dead letters, "
            f"{self.ready:,} ready jobs that nobody takes, {self.schedules:,} schedules"
        )


class NoRoom(Exception):
    """The disk has less room than the rows need."""


def check_room(wanted: Stored, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if wanted.bytes + _SPARE > free:
        raise NoRoom(
            f"{wanted} need about {(wanted.bytes + _SPARE) / 1e9:,.0f} GB, and {folder} has "
            f"{free / 1e9:,.0f} GB free: choose smaller sizes, or set TMPDIR to a larger disk"
        )


async def fill(c: Any, schema: str, before: Stored, after: Stored) -> None:
    """Add what `after` has more than `before`."""
    await c.execute("set session_replication_role = replica; set synchronous_commit = off")
    try:
        await _past(c, schema, before.past, after.past)
        await _dead(c, schema, before.dead, after.dead)
        await _future(c, schema, before.future, after.future)
        await _ready(c, schema, before.ready, after.ready)
        await _schedules(c, schema, before.schedules, after.schedules)
    finally:
        await c.execute("reset session_replication_role; reset synchronous_commit")
    for row in await c.fetch("select relname from pg_class where relkind = 'r' and "
                             "relnamespace = to_regnamespace($1)", schema):  # fmt: skip
        await c.execute(f'vacuum (analyze, freeze) {schema}."{row["relname"]}"')
    await c.execute("checkpoint")


_QUEUE = f"'default/queue' || (1 + n % {SURROUNDINGS.queues - 1})"
_TASK = f"'task' || (1 + n % {SURROUNDINGS.tasks - 1})"
_PAYLOAD = "json_build_object('to', 'user' || n || '@example.org', 'n', n)"
_HEADERS = "json_build_object('tags', json_build_array('customer-' || n % 1000))"
_ENDED = """(id, due_at, created_at, started_at, finished_at, state, priority, guarantee, attempt, max_attempts,
    crashes, namespace, lane, task, payload, headers, error)"""


async def _in_steps(c: Any, before: int, after: int, statement: str, *arguments: Any) -> None:
    """Run a statement for the numbers from $1 to $2."""
    for first in range(before, after, _STEP):
        await c.execute(statement, first + 1, min(first + _STEP, after), *arguments)


async def _past(c: Any, schema: str, before: int, after: int) -> None:
    """Append days of history, each in its own order of time, up to a minute ago."""
    for day in reversed(range(_DAYS)):
        await c.execute(
            f"select {schema}.make_partition('past', (now() at time zone 'UTC')::date - $1::int)",
            day,
        )
        await _in_steps(
            c, before // _DAYS, after // _DAYS,
            f"insert into {schema}.past {_ENDED} select {JOB_ID}, t, t, t, t + interval '30 ms', "
            f"case when n % 20 = 0 then 7 else 5 end, 0, 1, 1, 5, 0, 'default', {_QUEUE}, {_TASK}, {_PAYLOAD}, "
            f"{_HEADERS}, null from (select n, begun + (until - begun) * (n - $3::int)::float8 / ($4::int - $3::int) as t "
            "from (select date_trunc('day', now(), 'UTC') - $5::int * interval '1 day' as begun, "
            "least(date_trunc('day', now(), 'UTC') - ($5::int - 1) * interval '1 day', now()) - interval '1 minute' as until) as d, "
            "generate_series($1::int, $2::int) as n) as s",
            before // _DAYS, after // _DAYS, day,
        )  # fmt: skip


async def _dead(c: Any, schema: str, before: int, after: int) -> None:
    await _in_steps(
        c, before, after,
        f"insert into {schema}.dead {_ENDED} select {JOB_ID}, t, t, t, t + interval '30 ms', 6, 0, 1, 1, 5, 0, "
        f"'default', {_QUEUE}, {_TASK}, {_PAYLOAD}, {_HEADERS}, json_build_object('type', 'ValueError', "
        "'message', 'invoice ' || n || ' of kind ' || n % 30 || 'x') from (select n, now() - interval '6 days' * random() as t "
        "from generate_series($1::int, $2::int) as n) as s",
    )  # fmt: skip


async def _future(c: Any, schema: str, before: int, after: int) -> None:
    await _in_steps(
        c, before, after,
        f"insert into {schema}.future (id, due_at, created_at, shard, namespace, lane, task, payload, headers) "
        f"select id, due, t, {schema}.shard_of(id, 128), 'default', lane, task, payload, headers from ("
        f"select {JOB_ID} as id, t, now() + interval '1 day' + interval '60 days' * random() as due, {_QUEUE} as lane, "
        f"{_TASK} as task, {_PAYLOAD} as payload, {_HEADERS} as headers from (select n, now() - interval '6 days' * "
        "random() as t from generate_series($1::int, $2::int) as n) as s) as j",
    )  # fmt: skip


async def _ready(c: Any, schema: str, before: int, after: int) -> None:
    await _in_steps(
        c, before, after,
        f"insert into {schema}.present (id, rank, due_at, namespace, lane, task, payload, headers) "
        f"select {JOB_ID}, {schema}.rank(t, 0), t, 'default', {_QUEUE}, {_TASK}, {_PAYLOAD}, {_HEADERS} from ("
        "select n, now() - interval '6 hours' * random() as t from generate_series($1::int, $2::int) as n) as s",
    )  # fmt: skip


async def _schedules(c: Any, schema: str, before: int, after: int) -> None:
    """Daily ones, with an occurrence of each of three days, that are not due for hours."""
    columns = await c.fetchval(
        "select string_agg(quote_ident(column_name), ', ') from information_schema.columns where "
        "table_schema = $1 and table_name = 'schedule' and is_generated = 'NEVER'", schema,
    )  # fmt: skip
    picked = ", ".join(f"(r).{name.strip()}" for name in columns.split(","))
    await _in_steps(
        c, before, after,
        f"insert into {schema}.schedule ({columns}) select {picked} from (select jsonb_populate_record(s, "
        "jsonb_build_object('id', gen_random_uuid(), 'name', 'g' || n, 'task', " + _TASK + ", 'shard', n % 128, "
        "'lane', " + _QUEUE + ", 'spec', s.spec::jsonb || jsonb_build_object('name', 'g' || n, 'task', " + _TASK + ", 'rule', "
        "jsonb_build_object('type', 'cron', 'expression', (n % 60) || ' ' || (n % 24) || ' * * *')), 'cursor', now(), 'next_due', now() + "
        "interval '6 hours' + interval '1 day' * random())) as r "
        f"from {schema}.schedule as s, generate_series($1::int, $2::int) as n where s.name = 's0') as made",
    )  # fmt: skip
    for day in (3, 2, 1):
        await c.execute(
            f"select {schema}.make_partition('occurrence', (now() at time zone 'UTC')::date - $1::int)",
            day,
        )
        await _in_steps(
            c, before, after,
            f"insert into {schema}.occurrence (schedule_id, due_at, run_at, decided_at, version, state) "
            f"select s.id, t, t, t, 1, 1 from (select s.id, date_trunc('day', now(), 'UTC') - $3::int * interval '1 day' + "
            f"(n % 1440) * interval '1 minute' as t from generate_series($1::int, $2::int) as n "
            f"join {schema}.schedule as s on s.namespace = 'default' and s.name = 'g' || n) as s order by t",
            day,
        )  # fmt: skip
