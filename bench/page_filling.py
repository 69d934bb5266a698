"""What the dashboard's pages are measured with: jobs and what surrounds them, by SQL in bulk.

Of the jobs, 65 % are in the history of two weeks (a day's partition each, a tenth of them of the last
hour, one in twenty cancelled), 2 % are dead letters in many groups, 10 % are scheduled, and the rest is
ready or runs on some node. Everything else is in proportion: a task for 200 jobs, a node for 1,000, a
queue for 500, a schedule for 100, and so on. With 100,000 jobs that is more of everything than a page
shows or a search looks at, so that a page that reads no further does the same work at any larger size.
The first node, queue and task have a tenth of the jobs of any other: a search for them finds few.
"""

# ruff: noqa: E501  lines of SQL

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import asyncpg

from rota import App
from rota.lib.ids import new_id
from rota.operations.installation import Installation
from rota.store.search import JobFilter

JOB_ID = """encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) placing substring(int8send(
    (extract(epoch from t) * 1000)::bigint) from 3) from 1 for 6), 52, 1), 53, 1), 'hex')::uuid"""
_PAYLOAD = "json_build_object('to', 'user' || n || '@example.org', 'text', repeat('x', 400))"
_HEADERS = (
    "json_build_object('tags', json_build_array('region-' || n % 7, 'customer-' || n % 1000))"
)
_ENDED = """(id, due_at, created_at, started_at, finished_at, state, priority, guarantee, attempt,
    max_attempts, crashes, namespace, lane, task, payload, headers, node, error)"""
_DAYS = 14


class Amounts(NamedTuple):
    """How many of each there are, for a number of jobs."""

    jobs: int

    @property
    def tasks(self) -> int:
        return max(self.jobs // 200, 5)

    @property
    def nodes(self) -> int:
        return max(self.jobs // 1_000, 2)

    @property
    def queues(self) -> int:
        return max(self.jobs // 500, 4)

    @property
    def schedules(self) -> int:
        return max(self.jobs // 100, 10)

    @property
    def people(self) -> int:
        """Tokens, users, endpoints, views, and so on."""
        return max(self.jobs // 500, 4)


class Names(NamedTuple):
    """What the addresses of pages need."""

    ready: str
    past: str
    failed: str
    node: str
    run: str
    webhook: str
    change: str
    token: str


async def fill(app: App, url: str, schema: str, jobs: int) -> None:
    """Write everything, once."""
    how_many = Amounts(jobs)
    c = await asyncpg.connect(url, timeout=60, command_timeout=1200)
    await _write_surroundings(app, c, schema, how_many)
    nodes = [row["id"] for row in await c.fetch(f"select id from {schema}.node order by name")]
    await _write_jobs(c, schema, how_many, nodes)
    await _write_the_rest(app, c, schema, how_many)
    for row in await c.fetch("select relname from pg_class where relkind = 'r' and "
                             "relnamespace = to_regnamespace($1)", schema):  # fmt: skip
        await c.execute(f'vacuum analyze {schema}."{row["relname"]}"')
    await c.close()


def _seldom_first(count: int) -> str:
    """Return a number below `count` for a job's number `n`, of which 0 comes a tenth as often."""
    return f"(case when n % {10 * count} = 0 then 0 else 1 + n % {count - 1} end)"


async def _write_jobs(c: Any, schema: str, how_many: Amounts, nodes: Sequence[Any]) -> None:
    jobs = how_many.jobs
    past, dead, future, running = jobs * 13 // 20, jobs // 50, jobs // 10, len(nodes) * 10
    ready = jobs - past - dead - future - running
    lane = f"'default/queue' || {_seldom_first(how_many.queues)}"
    task = f"'task' || {_seldom_first(how_many.tasks)}"
    node = f"($1::uuid[])[1 + {_seldom_first(len(nodes))}]"
    ended = f"select {JOB_ID}, t, t, t + interval '20 ms', t + n % 50 * interval '40 ms' + interval '30 ms', "
    constant = f"0, 1, 1, 5, 0, 'default', {lane}, {task}, {_PAYLOAD}, {_HEADERS}, {node}"
    for day in range(_DAYS + 1):
        await c.execute(
            f"select {schema}.make_partition('past', (now() at time zone 'UTC')::date - $1::int)",
            day,
        )
    # Appended as it would be: in the order of time. One in ten is of the last hour.
    early, late = past * 9 // 10, past - past * 9 // 10
    for count, last, span in (
        (early, "interval '1 hour'", f"interval '{_DAYS} days'"),
        (late, "interval '1 s'", "interval '59 minutes'"),
    ):
        await c.execute(
            f"insert into {schema}.past {_ENDED} {ended} case when n % 20 = 0 then 7 else 5 end, "
            f"{constant}, null from (select n, now() - {last} - {span} * ({count} - n) / {count} "
            f"as t from generate_series(1, {count}) as n) as s", nodes,
        )  # fmt: skip
    await c.execute(
        f"insert into {schema}.dead {_ENDED} {ended} 6, {constant}, json_build_object('type', "
        "'ValueError', 'message', 'invoice ' || n || ' of kind ' || n % 30 || 'x') "
        f"from (select n, now() - n * interval '{_DAYS} days' / {dead} as t "
        f"from generate_series(1, {dead}) as n) as s", nodes,
    )  # fmt: skip
    await c.execute(
        f"insert into {schema}.future (id, due_at, shard, namespace, lane, task, payload, headers) "
        f"select id, t, {schema}.shard_of(id, 128), 'default', lane, task, payload, headers from ("
        f"select {JOB_ID} as id, due as t, {lane} as lane, {task} as task, {_PAYLOAD} as payload, {_HEADERS} "
        f"as headers from (select n, now() + n * interval '7 days' / {future} as due, now() - "
        f"n * interval '{_DAYS} days' / {future} as t from generate_series(1, {future}) as n) as s) as j"
    )
    await c.execute(
        f"insert into {schema}.present (id, rank, due_at, namespace, lane, task, payload, headers) "
        f"select {JOB_ID}, {schema}.rank(t, 0), t, 'default', {lane}, {task}, {_PAYLOAD}, {_HEADERS} from ("
        f"select n, now() - n * interval '2 hours' / {ready} as t from generate_series(1, {ready}) as n) as s"
    )
    await c.execute(
        f"with made as (insert into {schema}.present (id, rank, token, due_at, claimed_at, started_at, "
        "node, state, attempt, namespace, lane, task, payload, headers) "
        f"select {JOB_ID}, {schema}.rank(t, 0), 1000000 + n, t, t, t, {node}, 4, 1, 'default', {lane}, {task}, "
        f"{_PAYLOAD}, {_HEADERS} from (select n, now() - n * interval '10 ms' as t "
        f"from generate_series(1, {running}) as n) as s returning *) "
        f"insert into {schema}.batch (token, lane, node, low, high, low_id, high_id) "
        "select token, lane, node, rank, rank, id, id from made", nodes,
    )  # fmt: skip
    for relation, columns, values in (
        ("queue", "(namespace, name)", "'default', 'queue' || n"),
        ("lane", "", "'default/queue' || n, 'default', 'queue' || n, '{}'"),
    ):
        await c.execute(
            f"insert into {schema}.{relation} {columns} select {values} from "
            f"generate_series(0, {how_many.queues - 1}) as n on conflict do nothing"
        )


async def _write_surroundings(app: App, c: Any, schema: str, how_many: Amounts) -> None:
    """Schedules with their occurrences, tasks, nodes, statistics."""
    await app.schedule("s0", "task0", cron="7 * * * *")
    await _copy(
        c, schema, "schedule", "name = 's0'", how_many.schedules - 1,
        f"jsonb_build_object('id', gen_random_uuid(), 'name', 's' || n, 'task', 'task' || n % "
        f"{how_many.tasks}, 'spec', s.spec::jsonb || jsonb_build_object('name', 's' || n, 'task', 'task' "
        f"|| n % {how_many.tasks}, 'rule', jsonb_build_object('type', 'cron', 'expression', (n % 60) || ' ' || (n % 24) || "
        "' * * *')), 'next_due', s.next_due + n * interval '7 s')",
    )  # fmt: skip
    for day in range(12):
        await c.execute(
            f"select {schema}.make_partition('occurrence', (now() at time zone 'UTC')::date - $1::int)",
            day,
        )
    # In the order of time. Once a day, and in each of the last six hours, so that the current week has some on a Monday, too.
    await c.execute(
        f"insert into {schema}.occurrence (schedule_id, due_at, run_at, decided_at, version, state) "
        "select s.id, t, t, t, 1, 1 from (select s.id, date_trunc('hour', now()) - h * interval '1 hour' + "
        f"(hashtext(s.name) % 60) * interval '1 minute' as t from {schema}.schedule as s, "
        "(select generate_series(1, 6) as h union all select generate_series(24, 240, 24)) as h) as s "
        "order by t on conflict do nothing"
    )
    await c.execute(
        f"insert into {schema}.task (namespace, name, queue, needs, priority, guarantee, max_attempts) "
        f"select 'default', 'task' || n, 'queue' || n % {how_many.queues}, '{{}}', 0, 1, 5 "
        f"from generate_series(0, {how_many.tasks - 1}) as n on conflict do nothing"
    )
    for place in range(how_many.nodes):
        await c.execute(
            f"insert into {schema}.node (id, namespace, name, host, pid, version, roles, queues, "
            "capabilities, tasks, kind, slots, running, expires_at) values ($1, 'default', $2, 'host', "
            "1, '0', '{worker}', '{}', '{}', '{}', 'all', 20, 10, now() + interval '1 day')",
            new_id(), f"node-{place:03}",
        )  # fmt: skip
    # By minute for a day, by hour for a month: of the namespace, each queue, and each task. Of most of
    # them, what is older than 90 minutes or 8 days is there for every tenth period only.
    for span, step, periods, whole in ((60, "1 minute", 1439, 90), (3600, "1 hour", 719, 192)):
        await c.execute(
            f"insert into {schema}.run_stats (namespace, span, task, queue, at, runs, failed, seconds, "
            f"durations, lags, ready, ready_lag) select 'default', {span}, k.task, k.queue, "
            f"date_trunc('minute', now()) - extract(minute from now()) * interval '{span // 3600} minute' - "
            f"m * interval '{step}', 10, 1, 5, '{{0,0,0,5,5}}', '{{5,5}}', "
            f"20, 3 from generate_series(0, {periods}) as m, (select 0 as n, '' as task, '' as queue "
            f"union all select n, '', 'queue' || n from generate_series(0, {how_many.queues - 1}) as n "
            f"union all select n, 'task' || n, 'queue' || n % {how_many.queues} "
            f"from generate_series(0, {how_many.tasks - 1}) as n) as k "
            f"where m < {whole} or n < 10 or (m + n) % 10 = 0 on conflict do nothing"
        )


async def _write_the_rest(app: App, c: Any, schema: str, how_many: Amounts) -> None:
    """Runs, events, audit, webhooks, endpoints, tokens, users, namespaces, views."""

    @app.task(name="task0")
    async def nothing() -> None:
        """Is never run."""

    flow = app.workflow("billing")
    flow.step(nothing, name="paid")
    flow.step(nothing, name="told", after="paid")
    run = await flow.start()
    await _copy(
        c, schema, "run", f"id = '{run.id}'", how_many.jobs // 100,
        "jsonb_build_object('id', gen_random_uuid(), 'key', null, 'created_at', now() - n * "
        "interval '1 minute', 'state', 4 + n % 4, 'ended_at', case when n % 4 > 0 then now() end)",
    )  # fmt: skip
    await c.execute(
        f"insert into {schema}.event (at, namespace, kind, task, detail) select now() - "
        f"({how_many.jobs // 100} - n) * interval '1 day' / {how_many.jobs // 100}, 'default', "
        "(array['job_failed', 'task_slower', 'attempt_stopped'])[1 + n % 3], 'task' || n % 5, '{}' "
        f"from generate_series(1, {how_many.jobs // 100}) as n"
    )
    await c.execute(
        f"insert into {schema}.audit (at, namespace, actor, via, interface, action, subject) select now() - "
        f"({how_many.jobs // 100} - n) * interval '1 minute', 'default', 'ada', 'cli', 'cli', 'pause', "
        f"'queue queue' || n from generate_series(1, {how_many.jobs // 100}) as n"
    )
    installation = Installation(app.connector)
    await installation.tokens.create("first", namespace="default", role="viewer")
    await _copy(c, schema, "api_token", "name = 'first'", how_many.people,
                "jsonb_build_object('id', gen_random_uuid(), 'prefix', 'p' || n, 'hash', "
                "'\\x' || md5(n::text), 'name', 'token ' || n)")  # fmt: skip
    await c.execute(
        f"insert into {schema}.user_account (id, name) select gen_random_uuid(), 'user' || n || "
        f"'@example.org' from generate_series(1, {how_many.people}) as n"
    )
    await c.execute(
        f"insert into {schema}.membership select id, 'default', 'viewer' from {schema}.user_account"
    )
    await c.execute(
        f"insert into {schema}.namespace (name) select 'tenant-' || n "
        f"from generate_series(1, {how_many.people}) as n"
    )
    await app.endpoints.add("push", "https://example.org/push", queue="queue0")
    await _copy(c, schema, "endpoint", "name = 'push'", how_many.people,
                "jsonb_build_object('name', 'push' || n)")  # fmt: skip
    hook = await app.webhooks.add("https://example.org/hook", kinds=["node_dead"])
    await app.webhooks.test(hook.id)
    await _copy(c, schema, "webhook", f"id = '{hook.id}'", how_many.people,
                "jsonb_build_object('id', gen_random_uuid(), 'url', s.url || n)")  # fmt: skip
    await app.views.save("Failed", "/jobs?state=failed", shared=True)
    await _copy(c, schema, "saved_view", "name = 'Failed'", how_many.people,
                "jsonb_build_object('name', 'view ' || n)")  # fmt: skip
    for number in range(3):
        await app.jobs.change_matching("retry", JobFilter(task=f"task{number}"))
    await _copy(c, schema, "bulk_change", "true", how_many.people,
                "jsonb_build_object('id', gen_random_uuid())")  # fmt: skip
    await app.submit("task0", {}, queue="queue0", key="the-one", tags=["bench"])


async def _copy(
    c: Any, schema: str, table: str, condition: str, count: int, change: str
) -> None:  # fmt: skip
    """Copy a row `count` times; `change` is a JSON object of the columns that differ, by `n`."""
    columns = await c.fetchval(
        "select string_agg(quote_ident(column_name), ', ') from information_schema.columns where "
        "table_schema = $1 and table_name = $2 and is_generated = 'NEVER'", schema, table,
    )  # fmt: skip
    picked = ", ".join(f"(r).{name.strip()}" for name in columns.split(","))
    await c.execute(
        f"insert into {schema}.{table} ({columns}) select {picked} from (select "
        f"jsonb_populate_record(s, {change}) as r from {schema}.{table} as s, generate_series(1, {count}) "
        f"as n where s.ctid = (select ctid from {schema}.{table} where {condition} limit 1)) as made"
    )


async def names(app: App, url: str, schema: str) -> Names:
    """Return ids for the addresses of pages, and a token that sees everything."""
    c = await asyncpg.connect(url, timeout=60)
    made = await Installation(app.connector).tokens.create(
        f"bench {new_id()}", namespace="default", everywhere=True, role="admin"
    )
    found = [
        await c.fetchval(f"select {query}".replace("rota.", f"{schema}."))
        for query in (
            "id from rota.present where key = 'the-one'",
            "id from rota.past where task = 'task0' order by finished_at limit 1",
            "id from rota.dead order by finished_at limit 1",
            "id from rota.node order by name offset 1 limit 1",
            "id from rota.run order by created_at desc limit 1",
            "id from rota.webhook where url = 'https://example.org/hook'",
            "id from rota.bulk_change order by at desc limit 1",
        )
    ]
    await c.close()
    return Names(*(str(one) for one in found), made.token)
