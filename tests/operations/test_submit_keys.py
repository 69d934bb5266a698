"""Keys and lost answers: what is submitted again is stored once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import msgspec
import pytest

from rota import (
    KeyConflict,
    StoreUnavailable,
)
from rota.lib.ids import new_id
from rota.store import jobs
from rota.store.database import Database
from rota.store.rows import NewJob
from rota.store.work import (
    Ended,
    LaneClaim,
    Retried,
    Returned,
    Succeeded,
    UpkeepStore,
    WorkStore,
)
from tests.support.jobs import everything

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
        return await store.database.fetch("submit_jobs", encoded, False, "own")

    for _ in range(5):
        await asyncio.gather(
            *(submit(store, keys if n % 2 else keys[::-1]) for n, store in enumerate(stores))
        )
        keys = [f"{key}+" for key in keys]
    stored, _ = await stores[0].list_jobs(
        "default", state=None, task=None, queue=None, tag=None, before=None, limit=1000
    )
    assert len(stored) == 200


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
    await store.database.fetch("submit_jobs", encoded, False, "own")
    state = await fate(app, work, job.id)
    [before] = await everything(app)

    [answer] = await store.database.fetch("submit_jobs", encoded, True, "own")

    assert tuple(answer) == (job.id, False, False)
    [after] = await everything(app)
    assert (after.id, after.state) == (job.id, state)
    assert after == before


async def test_a_repeated_submit_for_later_whose_job_already_runs_stores_nothing(app, work):
    store = await app.store()
    job = new_job(delay=60.0)
    encoded = msgspec.json.encode([job]).decode()
    await store.database.fetch("submit_jobs", encoded, False, "own")
    table = f"{app.settings.schema}.future"
    async with store.database.connection() as connection:
        await connection.execute(f"update {table} set due_at = now()")
    assert await UpkeepStore(work.database).release(range(128), [None] * 128, 10) == (1, [])
    await claimed(app, work, job.id)
    await store.database.fetch("submit_jobs", encoded, True, "own")
    [after] = await everything(app)
    assert (after.id, after.state) == (job.id, "running")


async def test_a_repeated_submit_whose_first_try_was_never_committed_stores_the_job(app):
    store = await app.store()
    job = new_job(key="k")
    await store.database.fetch("submit_jobs", msgspec.json.encode([job]).decode(), True, "own")
    assert [each.id for each in await everything(app)] == [job.id]


# -- one job alone: its own road in SQL, to the same place

_UUID = "01890a5d-ac96-774b-bcce-b302099a8057"
ALONE = [
    {}, {"payload": {"a": [1, {"b": None}]}}, {"queue": "mail"}, {"needs": ["gpu", "eu", "gpu"]},
    {"needs": []}, {"priority": -3}, {"priority": 7, "guarantee": 2, "max_attempts": 1},
    {"guarantee": 3, "timeout": 2.5},
    {"delay": 3600}, {"delay": 0.25}, {"delay": -5}, {"at": "2031-02-03T04:05:06.789012+01:00"},
    {"at": "1999-12-31T23:59:59Z"}, {"headers": {"tags": ["x"]}, "share": "acme"},
    {"namespace": None}, {"task": "known"}, {"id": None},
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
            call = f"select * from {schema}.{function}($1::json, how => 'own')"
            told = await connection.fetch(call, encoded)
    except asyncpg.PostgresError as error:
        return f"{error.sqlstate}: {error}".replace("json_to_recordset", "json_to_record")
    answers = [[value for value in row.values() if not isinstance(value, UUID)] for row in told]
    return answers + await _found_in(connection, schema, encoded)


async def _found_in(connection, schema, encoded):
    found: Any = []
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


# -- a job that an application has just made: one statement, where it is plain

MADE = {
    "namespace": "default", "task": "known", "queue": "mail", "payload": '{"v": 1}',
    "headers": None, "priority": 3, "guarantee": 1, "max_attempts": 5, "timeout": None,
}  # fmt: skip
PLAIN = [
    {}, {"priority": -7, "guarantee": 3, "max_attempts": 1, "timeout": 2.5},
    {"headers": '{"tags": ["x"]}'}, {"payload": "{}"}, {"task": "unknown"},
]  # fmt: skip
MORE = [
    {"task": "no spaces"}, {"queue": "new"}, {"queue": "no spaces"}, {"task": "limited"},
    {"queue": "counted"}, {"queue": "full"}, {"queue": "laneless"}, {"namespace": "other"},
    {"headers": '{"heartbeat_timeout": 2}'}, {"headers": '{"heartbeat_timeout": 0}'},
    {"headers": "[]"}, {"headers": json.dumps({"v": "x" * 20_000})}, {"payload": "[]"},
    {"payload": ' {"v": 1}'}, {"payload": json.dumps({"v": "x" * 1_000_001})},
    {"max_attempts": 0}, {"guarantee": 4}, {"timeout": 0.0}, {"task": "rota.start"},
]  # fmt: skip


@pytest.mark.parametrize("fields", [*PLAIN, *MORE], ids=lambda fields: str(fields)[:60])
async def test_a_job_that_was_just_made_is_stored_or_refused_as_any_other(app, fields):
    schema = app.settings.schema
    made = {"id": UUID(_UUID), **MADE, **fields}
    encoded = {
        **made, "id": _UUID, "needs": [], "payload": json.loads(made["payload"]),
        "headers": json.loads(made["headers"] or "null"),
    }  # fmt: skip
    store = await app.store()
    async with store.database.connection() as connection:
        await _prepare_for_made(connection, schema)
        outside = connection.transaction()
        await outside.start()
        others = await _stored_by(connection, schema, "submit_together", json.dumps([encoded]))
        await outside.rollback()
        try:
            async with connection.transaction():
                plain = await connection.fetchval(
                    store.database.queries["submit_made"], *made.values()
                )
            stored: Any = await _found_in(connection, schema, encoded=_UUID)
        except asyncpg.PostgresError as error:
            stored, plain = f"{error.sqlstate}: {error}", False

    assert plain is (fields in PLAIN)
    if isinstance(others, str):
        assert stored == others
    else:
        assert stored == [row for row in others if isinstance(row[0], str)], "without the answer"


async def _prepare_for_made(connection, schema):
    """Tasks and queues that are known, limited, counted and full."""
    for task in ("known", "limited"):
        await connection.execute(
            f"insert into {schema}.task (namespace, name, queue, needs, priority, guarantee,"
            f" max_attempts, concurrency) values ('default', '{task}', 'mail', '{{}}', 3, 1, 5,"
            f" {'null' if task == 'known' else 2})"
        )
    for queue, depth, intake in (
        ("mail", None, None), ("counted", 5, 0), ("full", 1, 1), ("laneless", None, None)
    ):  # fmt: skip
        await connection.execute(
            f"insert into {schema}.queue (namespace, name, intake) values ('default', $1, $2)",
            queue, intake,
        )  # fmt: skip
        if queue != "laneless":
            await connection.execute(
                f"insert into {schema}.lane (lane, namespace, queue, needs)"
                " values ('default/' || $1, 'default', $1, '{}')",
                queue,
            )
        if depth is not None:
            await connection.execute(
                f"insert into {schema}.depth (namespace, queue, jobs, max_depth, shut, folded_at)"
                f" values ('default', $1, $3::int, $2, $3::int, {schema}.now())",
                queue, depth, intake,
            )  # fmt: skip


# `fingerprints` and `replacement` are there only beside a key or a wish to be unique.
TOLD_WHEN_MADE = {*MADE, "id", "fingerprints", "replacement"}


@pytest.mark.parametrize("field", sorted(set(NewJob.__struct_fields__) - TOLD_WHEN_MADE))
def test_a_job_with_anything_that_the_plain_statement_is_not_told_is_not_submitted_by_it(field):
    plain = new_job(queue="default", priority=0, guarantee=1, max_attempts=5)
    assert jobs._columns_of_made(plain) is not None
    value: Any = ("gpu",) if field == "needs" else "anything"
    assert jobs._columns_of_made(msgspec.structs.replace(plain, **{field: value})) is None


async def test_most_submits_of_an_application_are_plain(app, greet, monkeypatch):
    await greet.submit("Ada")  # its queue and its lane are known from here on
    sent = []
    fetch = Database.fetch

    async def noting(self, name, *args, **options):
        rows = await fetch(self, name, *args, **options)
        sent.append((name, rows[0][0] if rows else None))
        return rows

    monkeypatch.setattr(Database, "fetch", noting)
    await greet.submit("Alan")

    assert [each for each in sent if each[0].startswith("submit")] == [("submit_made", True)]


async def test_a_job_that_was_made_and_is_there_already_is_not_stored_again(app):
    store = await app.store()
    job = new_job(queue="default", priority=0, guarantee=1, max_attempts=5)
    assert await store.submit_jobs([job]) == await store.submit_jobs([job])
    assert len(await everything(app)) == 1


async def test_a_job_alone_that_is_there_already_is_not_stored_again(app):
    store = await app.store()
    encoded = msgspec.json.encode([new_job()]).decode()
    first = await store.database.fetch("submit_jobs", encoded, False, "own")
    assert await store.database.fetch("submit_jobs", encoded, False, "own") == first
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

    async def fetch(self, name: str, *arguments: Any, on: Any = None) -> Any:
        rows = await self._database.fetch(name, *arguments, on=on)
        if on is None:
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
