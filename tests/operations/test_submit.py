"""Submitting: what is stored, what is refused, and that nothing is ever doubled."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import enum
import json
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import asyncpg
import msgspec
import pytest

from rota import (
    ConfigError,
    InvalidArguments,
    KeyConflict,
    PayloadTooLarge,
    Retry,
    StoreUnavailable,
    SubmitError,
)
from rota.core.rank import rank_of
from rota.lib.ids import new_id
from rota.store.database import Database
from rota.store.jobs import shard_of
from rota.store.rows import NewJob, lane_name
from rota.store.work import (
    Ended,
    LaneClaim,
    Retried,
    Returned,
    Succeeded,
    UpkeepStore,
    WorkStore,
)


@pytest.fixture
def greet(app):
    @app.task
    async def greet(name: str, times: int = 1) -> None: ...

    return greet


async def everything(app) -> list[Any]:
    return await app.jobs.list(limit=1000)


# -- one job


async def test_a_submitted_job_is_ready_at_once_with_its_tasks_defaults(app):
    @app.task(queue="mail", needs=["smtp"], priority=3, timeout=30, guarantee="at_most_once")
    async def send(to: str) -> None: ...

    handle = await send.submit("ada@example.org")
    job = await handle.status()
    assert (job.state, job.task, job.payload) == ("ready", "send", {"to": "ada@example.org"})
    assert (job.queue, job.needs, job.priority, job.timeout) == ("mail", ("smtp",), 3, 30.0)
    assert (job.guarantee, job.max_attempts, job.attempt) == ("at_most_once", 5, 0)
    assert handle.existed is False


async def test_a_submits_options_win_over_the_tasks(app, greet):
    handle = await greet.options(
        queue="heavy", needs="gpu", priority=-7, max_attempts=2, timeout=9.5,
        tags=["a", "b"], headers={"trace": "1"},
    ).submit("Ada")  # fmt: skip
    job = await handle.status()
    assert (job.queue, job.needs, job.priority) == ("heavy", ("gpu",), -7)
    assert (job.max_attempts, job.timeout) == (2, 9.5)
    assert job.headers == {"trace": "1", "tags": ["a", "b"]}


async def test_a_job_for_later_is_scheduled_for_exactly_that_moment(app, greet):
    moment = datetime(2099, 3, 1, 9, 30, 0, 123456, tzinfo=ZoneInfo("Europe/Paris"))
    job = await (await greet.options(at=moment).submit("Ada")).status()
    assert (job.state, job.due_at) == ("scheduled", moment)


async def test_a_delay_counts_from_the_databases_now(sandbox):
    for delay in (3600, timedelta(hours=1)):
        handle = await sandbox.app.submit("elsewhere", {}, delay=delay)
        job = await handle.status()
        assert (job.state, job.due_at) == ("scheduled", sandbox.now() + timedelta(hours=1))


async def test_a_moment_in_the_past_is_due_at_once_and_keeps_its_place_in_line(app, greet):
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    job = await (await greet.options(at=moment).submit("Ada")).status()
    assert (job.state, job.due_at) == ("ready", moment)


async def test_plain_code_submits_as_well(app, greet):
    handle = await asyncio.to_thread(greet.submit_sync, "Ada", times=2)
    assert (await app.jobs.get(handle.id)).payload == {"name": "Ada", "times": 2}
    by_name = await asyncio.to_thread(app.submit_sync, "greet", {"name": "Alan"})
    assert (await asyncio.to_thread(by_name.status_sync)).payload == {"name": "Alan"}


async def test_a_task_that_lives_elsewhere_is_submitted_by_name_with_its_registered_defaults(app):
    await register(app, "resize", queue="heavy", needs="gpu", priority=4, max_attempts=9)
    job = await (await app.submit("resize", {"path": "a.png"})).status()
    assert (job.queue, job.needs, job.priority, job.max_attempts) == ("heavy", ("gpu",), 4, 9)


async def register(app, name, *, queue="default", needs="", priority=0, max_attempts=5) -> None:
    store = WorkStore((await app.store()).database)
    columns = [[name], [queue], [needs], [priority], [1], [max_attempts], [None], [None], [None]]
    await store.register_tasks("default", columns)


# -- keys


async def test_the_same_key_and_content_give_the_same_job_back(app, greet):
    first = await greet.options(key="k").submit("Ada")
    again = await greet.options(key="k").submit(name="Ada")
    assert (first.existed, again.existed) == (False, True)
    assert again.id == first.id
    assert len(await everything(app)) == 1


async def test_the_order_of_a_payloads_members_makes_no_other_content(app):
    first = await app.submit("elsewhere", {"a": 1, "b": [1, {"c": 2, "d": 3}]}, key="k")
    again = await app.submit("elsewhere", {"b": [1, {"d": 3, "c": 2}], "a": 1}, key="k")
    assert again.id == first.id


@pytest.mark.parametrize("change", ["payload", "task"])
async def test_the_same_key_with_other_content_is_a_conflict_that_stores_nothing(app, change):
    first = await app.submit("greet", {"name": "Ada"}, key="k")
    task, payload = ("greet", {"name": "Alan"}) if change == "payload" else ("t", {"name": "Ada"})
    with pytest.raises(KeyConflict, match=r"'k' already names job .* use another key") as caught:
        await app.submit(task, payload, key="k")
    assert (caught.value.key, caught.value.job_id) == ("k", str(first.id))
    [job] = await everything(app)
    assert job.payload == {"name": "Ada"}


async def test_within_one_batch_a_key_works_as_between_batches(app):
    store = await app.store()
    jobs = [new_job(payload=payload, key="k") for payload in (b"1", b"1", b"2")]
    first, same, other = await store.submit_jobs(jobs)
    assert (first.id, first.existed, first.conflict) == (jobs[0].id, False, False)
    assert (same.id, same.existed, same.conflict) == (jobs[0].id, True, False)
    assert (other.id, other.conflict) == (jobs[0].id, True)
    [job] = await everything(app)
    assert job.payload == {"x": 1}


def new_job(payload: bytes = b"1", **fields: Any) -> NewJob:
    return NewJob(
        id=new_id(),
        namespace="default",
        task="greet",
        payload=msgspec.Raw(b'{"x": ' + payload + b"}"),
        **fields,
    )


async def test_a_key_still_names_its_job_after_the_job_has_ended(sandbox):
    @sandbox.app.task
    async def greet(name: str) -> None: ...

    first = await greet.options(key="k").submit("Ada")
    [ended] = await sandbox.run_due()
    again = await greet.options(key="k").submit("Ada")
    assert (again.id, again.existed, ended.state) == (first.id, True, "succeeded")
    assert await sandbox.run_due() == []


async def test_namespaces_dont_share_keys(make_app):
    here, there = make_app(namespace="here"), make_app(namespace="there")
    one = await here.submit("t", {"a": 1}, key="k")
    two = await there.submit("t", {"a": 2}, key="k")
    assert one.id != two.id
    assert await there.jobs.find(one.id) is None


async def test_100_racing_submits_with_one_key_give_one_job_and_one_answer(make_app, database_url):
    apps = [make_app() for _ in range(5)]
    connections = [await asyncpg.connect(database_url) for _ in range(10)]

    async def through(connection: Any) -> list[Any]:
        answers = []
        for _ in range(5):
            async with connection.transaction():
                answers.append(await apps[0].submit("t", {"a": 1}, key="k", connection=connection))
        return answers

    try:
        handles = await asyncio.gather(
            *(app.submit("t", {"a": 1}, key="k") for app in apps for _ in range(10))
        )
        for answers in await asyncio.gather(*map(through, connections)):
            handles += answers
    finally:
        for connection in connections:
            await connection.close()
    assert len(handles) == 100
    assert len({handle.id for handle in handles}) == 1
    assert [handle.existed for handle in handles].count(False) == 1
    assert len(await everything(apps[0])) == 1


async def test_of_racing_submits_with_one_key_and_different_content_one_wins(make_app):
    apps = [make_app() for _ in range(5)]
    answers = await asyncio.gather(
        *(app.submit("t", {"a": n}, key="k") for n, app in enumerate(apps)), return_exceptions=True
    )
    conflicts = [answer for answer in answers if isinstance(answer, KeyConflict)]
    assert len(conflicts) == 4
    [job] = await everything(apps[0])
    assert {conflict.job_id for conflict in conflicts} == {str(job.id)}


async def test_batches_that_name_the_same_keys_in_opposite_order_dont_deadlock(make_app):
    stores = [await make_app().store() for _ in range(4)]
    keys = [f"k{n:02}" for n in range(40)]

    async def submit(store, order):
        # Not by submit_jobs, which would survive a deadlock by asking again.
        encoded = msgspec.json.encode([new_job(key=key) for key in order]).decode()
        return await store.database.fetch("submit_jobs", encoded, False)

    for _ in range(5):
        await asyncio.gather(
            *(submit(store, keys if n % 2 else keys[::-1]) for n, store in enumerate(stores))
        )
        keys = [f"{key}+" for key in keys]
    assert len(await stores[0].list_jobs(
        "default", state=None, task=None, queue=None, tag=None, before=None, limit=1000
    )) == 200  # fmt: skip


# -- a lost answer: asked again, nothing is doubled


@pytest.fixture
async def work(app):
    database = Database(app.settings.database_url, app.settings, hot=True)
    await database.open()
    yield WorkStore(database)
    await database.close()


NODE = uuid4()


async def still_ready(app, work, job_id):
    return "ready"


async def claimed(app, work, job_id):
    assert len(await work.claim(NODE, [LaneClaim("default/default", 9)], ["greet"])) == 1
    return "running"


async def given_back(app, work, job_id):
    [row] = await work.claim(NODE, [LaneClaim("default/default", 9)], ["greet"])
    assert await work.give_back(NODE, [Returned(job_id, row["token"])]) == 1
    return "ready"


async def succeeded(app, work, job_id):
    [row] = await work.claim(NODE, [LaneClaim("default/default", 9)], ["greet"])
    assert await work.finish_succeeded(NODE, [Succeeded(job_id, row["token"], 1, 0.0)], 0.0) == 1
    return "succeeded"


async def waiting_for_a_retry(app, work, job_id):
    [row] = await work.claim(NODE, [LaneClaim("default/default", 9)], ["greet"])
    assert await work.finish_retried(NODE, [retried(job_id, row["token"], 60)], 0.0) == 1
    return "scheduled"


async def retried_at_once(app, work, job_id):
    [row] = await work.claim(NODE, [LaneClaim("default/default", 9)], ["greet"])
    assert await work.finish_retried(NODE, [retried(job_id, row["token"], 0)], 0.0) == 1
    return "ready"


async def failed(app, work, job_id):
    [row] = await work.claim(NODE, [LaneClaim("default/default", 9)], ["greet"])
    assert await work.finish_ended(NODE, [ended(job_id, row["token"])], 0.0) == 1
    return "failed"


async def cancelled(app, work, job_id):
    await app.jobs.cancel(job_id)
    return "cancelled"


def retried(job_id, token, delay):
    return Retried(job_id, token, delay, None, 0, 1, 0.0)


def ended(job_id, token):
    return Ended(job_id, token, 6, None, None, 0, 1, 0.0)


FATES = [
    still_ready, claimed, given_back, succeeded, waiting_for_a_retry, retried_at_once, failed,
    cancelled,
]  # fmt: skip


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("fate", FATES)
async def test_a_submit_repeated_after_its_answer_was_lost_stores_nothing_again(
    app, work, fate, key
):
    store = await app.store()
    job = new_job(key=key)
    encoded = msgspec.json.encode([job]).decode()
    await store.database.fetch("submit_jobs", encoded, False)
    state = await fate(app, work, job.id)
    [before] = await everything(app)

    [answer] = await store.database.fetch("submit_jobs", encoded, True)

    assert tuple(answer) == (job.id, False, False)
    [after] = await everything(app)
    assert (after.id, after.state) == (job.id, state)
    assert after == before


async def test_a_repeated_submit_for_later_whose_job_already_runs_stores_nothing(app, work):
    store = await app.store()
    job = new_job(delay=60.0)
    encoded = msgspec.json.encode([job]).decode()
    await store.database.fetch("submit_jobs", encoded, False)
    table = f"{app.settings.schema}.future"
    async with store.database.connection() as connection:
        await connection.execute(f"update {table} set due_at = now()")
    assert await UpkeepStore(work.database).release(range(128), [None] * 128, 10) == (1, [])
    await claimed(app, work, job.id)
    await store.database.fetch("submit_jobs", encoded, True)
    [after] = await everything(app)
    assert (after.id, after.state) == (job.id, "running")


async def test_a_repeated_submit_whose_first_try_was_never_committed_stores_the_job(app):
    store = await app.store()
    job = new_job(key="k")
    await store.database.fetch("submit_jobs", msgspec.json.encode([job]).decode(), True)
    assert [each.id for each in await everything(app)] == [job.id]


# -- one job alone: its own road in SQL, to the same place

_UUID = "01890a5d-ac96-774b-bcce-b302099a8057"
ALONE = [
    {}, {"payload": {"a": [1, {"b": None}]}}, {"queue": "mail"}, {"needs": ["gpu", "eu", "gpu"]},
    {"needs": []}, {"priority": -3}, {"priority": 7, "guarantee": 2, "max_attempts": 1},
    {"guarantee": 3, "timeout": 2.5},
    {"delay": 3600}, {"delay": 0.25}, {"delay": -5}, {"at": "2031-02-03T04:05:06.789012+01:00"},
    {"at": "1999-12-31T23:59:59Z"}, {"headers": {"tags": ["x"]}, "share": "acme"},
    {"workflow_id": _UUID, "step": "second"}, {"namespace": None}, {"task": "known"}, {"id": None},
    {"task": "known", "queue": "own", "priority": 0, "needs": []}, {"key": None}, {"unknown": 1},
]  # fmt: skip
REFUSED = [
    {"task": None}, {"task": "no spaces"}, {"task": "x" * 101}, {"task": "line\n"}, {"queue": ""},
    {"needs": ["ok", "not ok"]}, {"needs": [None]}, {"payload": []}, {"payload": "text"},
    {"headers": []}, {"payload": {"v": "x" * 1_000_001}}, {"headers": {"v": "x" * 20_000}},
    {"max_attempts": 0}, {"guarantee": 4}, {"timeout": 0}, {"at": "infinity"},
    {"priority": "high"}, {"id": "none"},
    {"delay": "soon"}, {"max_attempts": 99_999}, {"namespace": "a/b"},
]  # fmt: skip


@pytest.mark.parametrize("fields", [*ALONE, *REFUSED], ids=lambda fields: str(fields)[:60])
async def test_a_job_alone_is_stored_or_refused_as_it_would_be_among_others(app, fields):
    schema = app.settings.schema
    job = {"id": _UUID, "namespace": "default", "task": "unknown", "payload": {"v": 1}, **fields}
    encoded = msgspec.json.encode([job]).decode()
    store = await app.store()
    async with store.database.connection() as connection:
        await connection.execute(
            f"insert into {schema}.task (namespace, name, queue, needs, priority, guarantee,"
            " max_attempts, timeout) values ('default', 'known', 'mail', '{smtp}', 3, 2, 9, 30)"
        )
        outcomes = []
        for function in ("submit_together", "submit_jobs"):
            outside = connection.transaction()
            await outside.start()
            outcomes.append(await _stored_by(connection, schema, function, encoded))
            await outside.rollback()
    together, alone = outcomes
    assert alone == together
    assert isinstance(together, str) == (fields in REFUSED)
    if fields.get("id", _UUID) == _UUID and not isinstance(together, str):
        assert len(together) == 4, "the job, its lane, its queue and the answer"


async def _stored_by(connection, schema, function, encoded):
    """All that it has written and said, but for the ids that it made up."""
    told: Any = []
    try:
        async with connection.transaction():
            told = await connection.fetch(f"select * from {schema}.{function}($1::json)", encoded)
    except asyncpg.PostgresError as error:
        return f"{error.sqlstate}: {error}".replace("json_to_recordset", "json_to_record")
    found = [[value for value in row.values() if not isinstance(value, UUID)] for row in told]
    for table in ("present", "future", "lane", "queue"):
        for row in await connection.fetch(f"select * from {schema}.{table}"):
            left_out = (
                ("id", "created_at", "shard") if "01890a5d" not in encoded else ("created_at",)
            )
            values = {name: value for name, value in row.items() if name not in left_out}
            if "delay" in encoded or table == "present":
                for moment in ("rank", "due_at"):
                    if '"at"' not in encoded:
                        values.pop(moment, None)  # by the clock, which has moved on
            found.append([table, values])
    return found


async def test_a_job_alone_that_is_there_already_is_not_stored_again(app):
    store = await app.store()
    encoded = msgspec.json.encode([new_job()]).decode()
    first = await store.database.fetch("submit_jobs", encoded, False)
    assert await store.database.fetch("submit_jobs", encoded, False) == first
    assert len(await everything(app)) == 1


class AnswersLost:
    """A database whose next answer gets lost after the commit."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._left = 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def _lose(self) -> None:
        if self._left:
            self._left -= 1
            raise StoreUnavailable("the line was cut")

    async def fetch(self, name: str, *arguments: Any) -> Any:
        rows = await self._database.fetch(name, *arguments)
        self._lose()
        return rows

    def transaction(self, name: str = "transaction") -> Any:
        @contextlib.asynccontextmanager
        async def transaction():
            async with self._database.transaction(name) as connection:
                yield connection
            self._lose()

        return transaction()


@pytest.mark.parametrize("count", [1, 50, 500])
async def test_a_lost_answer_is_survived_by_each_road_to_the_database(app, greet, count):
    store = await app.store()
    store.database = AnswersLost(store.database)
    if count == 1:
        ids = [(await greet.submit("Ada")).id]
    else:
        ids = [handle.id for handle in await greet.submit_many(["Ada"] * count)]
    assert {job.id for job in await everything(app)} == set(ids)
    assert len(ids) == count
    assert await app.jobs.count() == {"ready": count}


# -- many jobs


async def test_10_000_jobs_are_stored_in_one_call(app, greet):
    handles = await greet.submit_many((f"n{n}",) for n in range(10_000))
    assert len({handle.id for handle in handles}) == 10_000
    assert await app.jobs.count() == {"ready": 10_000}
    job = await handles[1234].status()
    assert job.payload == {"name": "n1234"}


async def test_10_000_jobs_for_later_are_scheduled(app, greet):
    await greet.options(delay=3600).submit_many([{"name": "Ada", "times": 3}] * 10_000)
    assert await app.jobs.count() == {"scheduled": 10_000}


@pytest.mark.parametrize("count", [3, 300])
@pytest.mark.parametrize("later", [False, True])
async def test_a_small_batch_and_a_copy_store_the_same(app, sandbox, count, later):
    app = sandbox.app

    @app.task(queue="heavy", needs=["gpu", "avx"], priority=7, timeout=5, guarantee="exactly_once")
    async def render(path: str) -> None: ...

    moment = sandbox.now() + timedelta(days=1 if later else -1)
    await render.options(at=moment, tags=["t"]).submit_many(["a"] * count)
    schema = app.settings.schema
    async with (await app.store()).database.connection() as connection:
        rows = await connection.fetch(
            f"select distinct namespace, lane, task, state, priority, guarantee, max_attempts,"
            f" timeout, due_at, created_at, key, payload::text, headers::text"
            f" from {schema}.job"
        )
        if later:
            check = f"select bool_and(shard = {schema}.shard_of(id, 128)) from {schema}.future"
        else:
            check = f"select bool_and(rank = {schema}.rank(due_at, priority)) from {schema}.present"
        assert await connection.fetchval(check) is True
        lanes = await connection.fetch(f"select lane, queue, needs from {schema}.lane")
    assert [tuple(row) for row in rows] == [
        ("default", "default/heavy+avx+gpu", "render", 2 if later else 3, 7, 3, 5, 5.0, moment,
         sandbox.now(), None, '{"path":"a"}', '{"tags":["t"]}')
    ]  # fmt: skip
    assert [tuple(row) for row in lanes] == [("default/heavy+avx+gpu", "heavy", ["avx", "gpu"])]


async def test_a_batch_with_a_bad_call_stores_none_of_it(app, greet):
    with pytest.raises(InvalidArguments, match="greet"):
        await greet.submit_many([("Ada",), ("Alan", "often")])
    assert await everything(app) == []


async def test_one_callers_bad_job_doesnt_fail_others_who_submit_at_the_same_time(app, greet):
    answers = await asyncio.gather(
        greet.submit("Ada"), app.submit("not a name"), greet.submit("Alan"), return_exceptions=True
    )
    assert isinstance(answers[1], SubmitError)
    assert {job.payload["name"] for job in await everything(app)} == {"Ada", "Alan"}


async def test_many_jobs_cant_share_one_key(greet):
    with pytest.raises(InvalidArguments, match="one key to many"):
        await greet.options(key="k").submit_many(["Ada", "Alan"])


async def test_python_and_sql_agree_on_rank_shard_and_lane(app):
    moments = [
        datetime(2000, 1, 1, tzinfo=UTC),
        datetime(1999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 10, 25, 2, 30, 0, 1, tzinfo=ZoneInfo("Europe/Berlin")),
        datetime(2150, 2, 28, 12, 0, 0, 123457, tzinfo=timezone(timedelta(hours=-9, minutes=-30))),
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
    ]
    priorities = [0, 1, -1, 1000, -1000, 37]
    ids = [new_id() for _ in range(50)] + [UUID(int=0), UUID(int=2**128 - 1)]
    needs = [(), ("gpu",), ("gpu", "avx"), ("b", "a", "b"), ("Z", "a", "_", "0", "a.b", "a-b")]
    schema = app.settings.schema
    async with (await app.store()).database.connection() as connection:
        ranks = await connection.fetch(
            f"select {schema}.rank(d, p) from unnest($1::timestamptz[], $2::int[]) as x(d, p)",
            moments, priorities,
        )  # fmt: skip
        shards = await connection.fetch(
            f"select {schema}.shard_of(i, s) from unnest($1::uuid[]) with ordinality as x(i, place)"
            ", unnest(array[1, 7, 128, 4096]) as s order by place, s",
            ids,
        )
        lanes = [
            await connection.fetchval(f"select {schema}.lane('ns', 'q', $1)", list(each))
            for each in needs
        ]
    assert [row[0] for row in ranks] == list(map(rank_of, moments, priorities))
    assert [row[0] for row in shards] == [shard_of(i, s) for i in ids for s in (1, 7, 128, 4096)]
    assert lanes == [lane_name("ns", "q", each) for each in needs]


# -- arguments


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Address:
    street: str
    since: date


class Order(msgspec.Struct):
    id: int
    total: Decimal
    address: Address


async def test_what_the_annotations_name_arrives_as_it_was(sandbox):
    received = []

    @sandbox.app.task
    async def take(
        at: datetime, day: date, uuid: UUID, price: Decimal, colour: Colour, order: Order,
        raw: bytes, pair: tuple[int, str], names: set[str], maybe: int | None, big: int, anything,
    ) -> None:  # fmt: skip
        received.append(
            (at, day, uuid, price, colour, order, raw, pair, names, maybe, big, anything)
        )

    sent = (
        datetime(2026, 5, 1, 12, 30, tzinfo=UTC), date(2026, 5, 1), uuid4(), Decimal("10.10"),
        Colour.RED, Order(1, Decimal("0.1"), Address("Rue 1", date(2020, 1, 2))), b"\x00\xff",
        (1, "é\U0001f600"), {"a", "b"}, None, 2**80, {"x": [1, 2.5, None, True]},
    )  # fmt: skip
    await take.submit(*sent)
    [job] = await sandbox.run_due(raise_errors=True)
    assert job.state == "succeeded"
    assert received == [sent]


async def test_every_kind_of_parameter_is_called_as_it_was_submitted(sandbox):
    received = []

    @sandbox.app.task
    async def positional(a, b=2, /, c=3, *rest: int, d, e=5, **more) -> None:
        received.append((a, b, c, rest, d, e, more))

    @sandbox.app.task
    def only_keywords(*, x: int, y: int = 7) -> None:
        received.append((x, y))

    @sandbox.app.task
    async def nothing() -> None:
        received.append("nothing")

    await positional.submit(1, d=4)
    await positional.submit(1, 20, 30, 31, 32, d=40, e=50, f=60)
    await only_keywords.submit(x=1)
    await nothing.submit()
    await sandbox.run_due(raise_errors=True)
    assert received == [
        (1, 2, 3, (), 4, 5, {}),
        (1, 20, 30, (31, 32), 40, 50, {"f": 60}),
        (1, 7),
        "nothing",
    ]


async def test_a_default_stays_the_functions_business(sandbox):
    @sandbox.app.task
    async def greet(name: str, times: int = 1) -> None: ...

    handle = await greet.submit("Ada")
    assert (await handle.status()).payload == {"name": "Ada"}


REFUSED_CALLS = [
    ((), {}, "name"),
    (("Ada",), {"unknown": 1}, "unknown"),
    ((), {"name": "Ada", "unknown": 1}, "unknown"),
    (("Ada", 1, 2), {}, "too many positional"),
    (("Ada",), {"name": "Alan"}, "multiple values"),
    ((5,), {}, "argument 'name': Expected `str`, got `int`"),
    (("Ada", "often"), {}, "argument 'times': Expected `int`, got `str`"),
    (("Ada", 1.5), {}, "argument 'times'"),
    ((None,), {}, "argument 'name'"),
]


@pytest.mark.parametrize(("args", "kwargs", "says"), REFUSED_CALLS)
async def test_arguments_that_dont_fit_the_signature_are_refused_by_name(
    app, greet, args, kwargs, says
):
    with pytest.raises(InvalidArguments, match=f"(?s)task 'greet'.*{says}"):
        await greet.submit(*args, **kwargs)
    assert await everything(app) == []


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


UNSTORABLE = {
    "NUL": ("a\0b", "NUL"),
    "NUL in a name": ({"a\0": 1}, "NUL"),
    "lone surrogate": ("\ud800", "surrogates"),
    "NaN": (float("nan"), "NaN and infinity"),
    "infinity, deep inside": ({"a": [1, {"b": float("-inf")}]}, "NaN and infinity"),
    "object": (object(), "objects of type builtins.object have no JSON form"),
    "function": (print, "have no JSON form"),
    "endless": (endless(), "recursion"),
}


@pytest.mark.parametrize("case", UNSTORABLE)
async def test_what_cant_travel_as_json_is_refused_and_nothing_is_stored(app, case):
    @app.task
    async def take(value) -> None: ...

    value, says = UNSTORABLE[case]
    with pytest.raises(InvalidArguments, match=f"task 'take'.*{says}"):
        await take.submit(value)
    with pytest.raises(InvalidArguments, match=f"task 'elsewhere'.*{says}"):
        await app.submit("elsewhere", {"value": value})
    with pytest.raises(InvalidArguments, match=says):
        await app.submit("elsewhere", {}, headers={"value": value})
    assert await everything(app) == []


async def test_text_about_nul_is_no_nul(app):
    handle = await app.submit("elsewhere", {"value": "\\u0000", "other": "C:\\\\u0000"})
    assert (await handle.status()).payload == {"value": "\\u0000", "other": "C:\\\\u0000"}


async def test_payloads_have_limits_of_size_and_depth(make_app):
    app = make_app(max_payload_bytes=1000, max_payload_depth=10)
    assert await app.submit("t", {"v": nested(9)})
    with pytest.raises(PayloadTooLarge, match="nested 11 levels deep, the limit is 10"):
        await app.submit("t", {"v": nested(10)})
    assert await app.submit("t", {"v": "[" * 900})  # brackets in a text are no depth
    with pytest.raises(PayloadTooLarge, match=r"1,001 bytes, the limit is 1,000.*reference"):
        await app.submit("t", {"v": "x" * (1001 - len('{"v":""}'))})
    with pytest.raises(PayloadTooLarge, match=r"header has 16,39. bytes"):
        await app.submit("t", {}, headers={"v": "x" * 16_384})
    assert len(await everything(app)) == 2


REFUSED_OPTIONS = [
    ({"at": datetime(2030, 1, 1)}, "with a time zone.*ZoneInfo"),
    ({"at": "tomorrow"}, "with a time zone"),
    ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 5}, "at or delay, not both"),
    ({"delay": -1}, "delay must be"),
    ({"delay": float("nan")}, "delay must be"),
    ({"delay": float("inf")}, "delay must be"),
    ({"delay": "5"}, "delay must be"),
    ({"queue": "no spaces"}, "queue 'no spaces' is not a usable name"),
    ({"queue": "a/b"}, "queue 'a/b'"),
    ({"queue": "a+b"}, r"queue 'a\+b'"),
    ({"queue": ""}, "queue ''"),
    ({"queue": "é"}, "queue 'é'"),
    ({"queue": "x" * 101}, "queue"),
    ({"queue": "line\n"}, "queue"),
    ({"needs": ["gpu+avx"]}, r"needs 'gpu\+avx'"),
    ({"tags": ["a b"]}, "tag 'a b'"),
    ({"key": ""}, "key must be"),
    ({"key": "x" * 256}, "key must be"),
    ({"key": 7}, "key must be"),
    ({"key": "a\0"}, "key .* can't be stored"),
    ({"key": "\ud800"}, "key .* can't be stored"),
    ({"share": "acme"}, "unknown option 'share'"),
    ({"priority": 1001}, "priority must be"),
    ({"priority": 1.5}, "priority must be"),
    ({"priority": True}, "priority must be"),
    ({"max_attempts": 0}, "max_attempts must be"),
    ({"max_attempts": 2.5}, "max_attempts must be"),
    ({"timeout": 0}, "timeout must be"),
    ({"timeout": float("nan")}, "timeout must be"),
    ({"timeout": "5"}, "timeout must be"),
    ({"headers": [1]}, "headers must be"),
    ({"colour": "red"}, "unknown option 'colour'"),
]


async def test_options_that_make_no_sense_are_refused_by_name(app):
    for options, says in REFUSED_OPTIONS:
        with pytest.raises((InvalidArguments, ConfigError), match=says):
            await app.submit("elsewhere", {}, **options)
    for name in ("not a name", "", "x" * 101):
        with pytest.raises(SubmitError, match=r"task .* is not a usable name"):
            await app.submit(name, {})
    for payload in ([1], "text", 5):
        with pytest.raises(InvalidArguments, match="must be a dict"):
            await app.submit("elsewhere", payload)
    assert await everything(app) == []


# -- plain SQL


@pytest.fixture
async def sql(app, database_url):
    connection = await asyncpg.connect(database_url)

    async def run(call: str) -> Any:
        return await connection.fetchval(f"select {app.settings.schema}.{call}")

    yield run
    await connection.close()


async def test_sql_submits_with_rotas_defaults(app, sql):
    job = await app.jobs.get(await sql("""submit('greet', '{"name": "Ada"}')"""))
    assert (job.state, job.task, job.payload) == ("ready", "greet", {"name": "Ada"})
    assert (job.queue, job.priority, job.max_attempts) == ("default", 0, 5)
    assert (job.guarantee, job.timeout, job.id.version) == ("at_least_once", None, 7)


async def test_sql_submits_with_the_tasks_registered_defaults_and_its_own_options(app, sql):
    await register(app, "resize", queue="heavy", needs="avx+gpu", priority=4, max_attempts=9)
    job = await app.jobs.get(await sql("submit('resize')"))
    assert (job.queue, job.needs, job.priority) == ("heavy", ("avx", "gpu"), 4)
    assert (job.max_attempts, job.payload) == (9, {})
    job = await app.jobs.get(
        await sql(
            "submit('resize', delay => '1 hour', priority => 1, queue => 'light', needs => '{}',"
            " max_attempts => 2, timeout => '90 seconds', guarantee => 'exactly_once',"
            """ headers => '{"tags": ["t"]}', key => 'k')"""
        )
    )
    assert (job.state, job.queue, job.needs, job.priority) == ("scheduled", "light", (), 1)
    assert (job.max_attempts, job.timeout, job.guarantee) == (2, 90.0, "exactly_once")
    assert (job.headers, job.key) == ({"tags": ["t"]}, "k")
    assert job.due_at - job.created_at == timedelta(hours=1)


async def test_sql_and_python_share_keys_and_their_notion_of_the_same_content(app, greet, sql):
    first = await greet.options(key="k").submit("Ada", times=2)
    again = await sql("""submit('greet', '{"times": 2, "name": "Ada"}', key => 'k')""")
    assert again == first.id
    with pytest.raises(asyncpg.PostgresError, match=f"already names job {first.id}") as caught:
        await sql("submit('greet', key => 'k')")
    assert caught.value.sqlstate == "RT002"
    assert len(await everything(app)) == 1


SQL_REFUSED = [
    ("submit('greet', at => now(), delay => '1 hour')", "at or delay, not both"),
    ("submit('greet', guarantee => 'twice')", "'twice' is not one of at_least_once"),
    ("submit('not a name')", "task 'not a name' is not a usable name"),
    ("submit(null)", "task NULL is not a usable name"),
    ("submit('greet', '[1]')", "payload must be a JSON object"),
    ("submit('greet', queue => 'a/b')", "queue 'a/b' is not a usable name"),
    ("submit('greet', needs => '{a+b}')", "holds something that is not a usable name"),
    ("submit('greet', key => '')", "key must be 1 to 255"),
    ("submit('greet', max_attempts => 0)", "max_attempts must be"),
    ("submit('greet', timeout => '0 seconds')", "timeout must be above 0"),
    ("submit('greet', at => 'infinity')", "the due time must be finite"),
    ("submit('greet', headers => '[]')", "headers must be a JSON object"),
    ("submit('greet', namespace => 'a/b')", "namespace 'a/b' is not a usable name"),
    ("submit('greet', jsonb_build_object('v', repeat('x', 1000000)))", "the limit is 1000000"),
]


async def test_sql_refuses_what_must_not_be_stored_and_says_why(app, sql):
    for call, says in SQL_REFUSED:
        with pytest.raises(asyncpg.PostgresError, match=says) as caught:
            await sql(call)
        assert caught.value.sqlstate == "RT001", call
    assert await everything(app) == []


@pytest.mark.parametrize("ended", ["succeeded", "failed", "scheduled"])
async def test_plain_sql_with_an_id_that_exists_already_stores_no_second_job(sandbox, ended):
    """Whoever brings an id may be repeating a submit whose answer was lost."""

    @sandbox.app.task(retry=Retry(max_attempts=1))
    async def greet() -> None:
        if ended == "failed":
            raise OSError

    options = {"delay": 3600.0} if ended == "scheduled" else {}
    first = await greet.options(**options).submit()
    await sandbox.run_due()
    store = await sandbox.app.store()
    schema = sandbox.app.settings.schema
    body = json.dumps([{"id": str(first.id), "task": "greet"}])
    async with store.database.connection() as connection:
        rows = await connection.fetch(f"select job_id from {schema}.submit_jobs($1)", body)
    assert [row["job_id"] for row in rows] == [first.id]
    assert [job.state for job in await sandbox.jobs()] == [ended]
