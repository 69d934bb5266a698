"""Encrypted at rest: a canary that goes in by every door is nowhere to be found in the database."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

from rota import App, Job, JobHandle, KeyConflict, Settings
from rota.core.administration import Limits
from rota.errors import (
    ConfigError,
    InvalidArguments,
    KeyMissing,
    NotAuthentic,
    SubmitError,
)
from rota.lib.encryption import ENVELOPE, Keyring, keyring_of, token_of
from rota.node import Node
from rota.store.quotas import QuotaStore
from rota.store.reencryption import Reencryption
from tests.support import secret_tasks
from tests.support.server_fixtures import serving

CANARY = "canary-4711-of-the-payroll"
OLD = f"old:{base64.b64encode(b'o' * 32).decode()}"
NEW = f"new:{base64.b64encode(b'n' * 32).decode()}"


async def set_encrypted(app: App, encrypted: bool = True, namespace: str = "default") -> None:
    database = (await app.store()).database
    await database.fetch("set_encrypted", namespace, encrypted)
    database.encryption.learn(encrypted)
    app.connector.encryption.learn(encrypted)


@pytest.fixture
async def encrypted(make_app) -> App:
    """An app of an encrypted namespace, with its key."""
    app = make_app(encryption_keys=OLD, port=0)
    await set_encrypted(app)
    return app


@pytest.fixture
async def tasks(make_app) -> AsyncIterator[App]:
    """The same with tasks, to be run by a node."""
    settings = make_app(encryption_keys=OLD, poll=0.2, port=0).settings
    async with secret_tasks.app.using(settings):
        await set_encrypted(secret_tasks.app)
        yield secret_tasks.app


async def dump(app: App) -> str:
    """Everything that is stored, as text."""
    schema = app.settings.schema
    async with (await app.store()).database.connection() as c:
        tables = await c.fetch(
            "select c.oid::regclass::text as name from pg_class as c where c.relkind = 'r'"
            " and c.relnamespace = $1::regnamespace",
            schema,
        )  # fmt: skip
        parts = [
            str(await c.fetchval(f"select json_agg(t) from {table['name']} as t"))
            for table in tables
        ]
    return "\n".join(parts)


async def raw(app: App, id: UUID, column: str = "payload") -> Any:
    async with (await app.store()).database.connection() as c:
        return await c.fetchval(f"select {column} from {app.settings.schema}.job where id = $1", id)


def test_what_is_sealed_is_opened_only_where_it_belongs():
    ring, other = Keyring([("k", b"k" * 32)]), Keyring([("k", b"x" * 32)])
    id = uuid4()
    token = ring.encryptor("ns", "j", id).token("payload", b"{}", "task")
    assert ring.open(token, "ns", id, "payload", "task") == b"{}"
    wrong: list[tuple[Keyring, tuple[Any, ...]]] = [
        (other, ("ns", id, "payload", "task")), (ring, ("other", id, "payload", "task")),
        (ring, ("ns", uuid4(), "payload", "task")), (ring, ("ns", id, "result", "task")),
        (ring, ("ns", id, "payload", "another")),
    ]  # fmt: skip
    for keys, place in wrong:
        with pytest.raises(NotAuthentic):
            keys.open(token, *place)
    for at in range(len(token)):
        changed = token[:at] + ("A" if token[at] != "A" else "B") + token[at + 1 :]
        with pytest.raises((NotAuthentic, KeyMissing)):
            ring.open(changed, "ns", id, "payload", "task")
    assert ring.encryptor("ns", "j", id).token("payload", b"{}", "task") != token


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("k", "NAME:BASE64"), ("k:!!!", "no base64"), ("k:AAAA", "must have 32"), (" , ", "no key"),
        (f"{OLD},{OLD}", "same name"), ("a b:AAAA", "NAME:BASE64"),
    ],
)  # fmt: skip
def test_keys_that_are_none_are_refused_without_being_shown(make_app_settings, text, told):
    with pytest.raises(ConfigError, match=told) as caught:
        keyring_of(make_app_settings(encryption_keys=text))
    assert base64.b64encode(b"o" * 32).decode() not in str(caught.value)


@pytest.fixture
def make_app_settings():
    return lambda **given: Settings(**given)


def test_keys_may_come_from_a_file(make_app_settings, tmp_path):
    path = tmp_path / "keys"
    path.write_text(f"# the newest first\n{NEW}\n{OLD}  # until March\n")
    ring = keyring_of(make_app_settings(encryption_keys_file=path))
    assert ring is not None
    assert (ring.current, ring.names) == ("new", ["new", "old"])
    assert "nnnn" not in repr(ring)
    with pytest.raises(ConfigError, match="not both"):
        keyring_of(make_app_settings(encryption_keys_file=path, encryption_keys=OLD))
    with pytest.raises(ConfigError, match="No such file"):
        keyring_of(make_app_settings(encryption_keys_file=tmp_path / "none"))


# -- doors


async def test_the_canary_is_nowhere_whatever_door_it_came_by(encrypted: App, database_url):
    app = encrypted

    @app.task
    async def work(secret: str) -> None: ...

    payload = {"secret": CANARY}
    ids = [(await app.submit("work", payload)).id, (await app.submit("else", payload, key="k")).id]
    ids += [job.id for job in await work.submit_many([payload] * 3)]
    ids += [job.id for job in await work.submit_many([payload] * 250)][:2]
    ids += [(await work.options(delay=3600).submit(**payload)).id]
    async with (await app.store()).database.connection() as c, c.transaction():
        ids += [(await work.options(connection=c).submit(**payload)).id]
        ids += [job.id for job in await work.options(connection=c).submit_many([payload] * 2)]
    with psycopg.connect(database_url) as connection:
        ids += [work.options(connection=connection).submit_sync(**payload).id]
    engine = create_async_engine(database_url.replace("postgresql://", "postgresql+asyncpg://"))
    async with engine.begin() as connection:
        ids += [(await work.options(connection=connection).submit(**payload)).id]
    await engine.dispose()
    plain = sqlalchemy.create_engine(database_url.replace("postgresql://", "postgresql+psycopg://"))
    with plain.begin() as connection:
        ids += [work.options(connection=connection).submit_sync(**payload).id]
    plain.dispose()
    for id in ids:
        job = await app.jobs.get(id)
        assert job.payload == payload
        assert (await raw(app, id)).startswith(ENVELOPE)
    assert CANARY not in await dump(app)


async def test_the_canary_is_nowhere_when_it_came_over_http(encrypted: App):
    async with serving(encrypted) as live:
        client = await live.client("admin")
        body = {"task": "work", "payload": {"secret": CANARY}}
        id = (await client.post("/v1/jobs", json={**body, "key": "k"})).json()["id"]
        again = await client.post("/v1/jobs", json={**body, "key": "k"})
        assert (again.json()["id"], again.headers["idempotent-replayed"]) == (id, "true")
        lines = "\n".join(
            json.dumps({**body, **more}) for more in ({}, {"key": "k2"}, {"delay": 9})
        )
        assert (await client.post("/v1/jobs:bulk", content=lines)).json()["stored"] == 3
        schedule = {"name": "pay", "cron": "@yearly", **body}
        made = (await client.post("/v1/schedules", json=schedule)).json()
        assert made["spec"]["payload"] == {"secret": CANARY}
        changed = {**body, "cron": "@daily"}
        assert (await client.put("/v1/schedules/pay", json=changed)).status_code == 200
        triggered = (await client.post("/v1/schedules/pay/trigger")).json()["job_id"]
        for each in (id, triggered):
            found = (await client.get(f"/v1/jobs/{each}")).json()
            assert found["payload"] == {"secret": CANARY}
        listed = (await client.get("/v1/schedules")).json()["items"][0]
        assert listed["spec"]["payload"] == {"secret": CANARY}
        await client.delete("/v1/schedules/pay")
        assert CANARY not in await dump(encrypted)


async def test_a_schedule_s_jobs_run_with_what_only_workers_can_read(tasks: App):
    now = await (await tasks.store()).now()
    pay = {"every": "1s", "payload": {"secret": CANARY}, "overlap": "allow"}
    await tasks.schedule("pay", "echo", **pay)
    assert await tasks.schedule("pay", "echo", **pay) == "unchanged"
    assert (await tasks.schedules.get("pay")).spec.payload == {"secret": CANARY}
    # The scheduler has no key, and needs none.
    keyless = App(tasks.settings.replace(encryption_keys=None, namespace="schedulers"))
    async with Node(keyless, ["scheduler"]).running(), Node(tasks, ["worker"]).running():
        found = (await tasks.schedules.trigger("pay")).job_id
        for id in (found, await fired(tasks, "pay", now)):
            assert (await ended(tasks, id)).result == CANARY
        await tasks.schedules.delete("pay")
    await keyless.close()
    assert CANARY not in await dump(tasks)


async def fired(app: App, name: str, since: datetime) -> UUID:
    async with asyncio.timeout(60):
        while True:
            end = since + timedelta(days=1)
            for row in await app.schedules.occurrences(name, since, end):
                if row.job_id is not None and row.reason is None:
                    return row.job_id
            await asyncio.sleep(0.05)


async def ended(app: App, id: UUID) -> Job:
    return await JobHandle(app.jobs, id).wait(60)


async def test_a_backfill_s_jobs_run_too(tasks: App):
    await tasks.schedule("pay", "echo", cron="@daily", payload={"secret": CANARY})
    end = datetime(2026, 1, 3, tzinfo=UTC)
    assert (await tasks.schedules.backfill("pay", end - timedelta(days=1), end)).count == 1
    row = (await tasks.schedules.occurrences("pay", end - timedelta(days=1), end))[0]
    async with Node(tasks).running():
        assert (await ended(tasks, row.job_id)).result == CANARY
    assert CANARY not in await dump(tasks)


# -- what comes of a job


async def test_results_errors_progress_effects_and_logs_are_encrypted_too(tasks: App):
    names = ["echo", "echo_in_process", "talk", "exactly", "exactly_in_process"]
    jobs = {name: await tasks.submit(name, {"secret": CANARY}) for name in names}
    jobs["fail"] = await tasks.submit("fail", {"secret": CANARY})
    async with Node(tasks).running():
        for name in names:
            assert await jobs[name].result(60) == CANARY, name
        failed = await jobs["fail"].wait(60)
        again = await tasks.submit("talk", {"secret": CANARY})  # finds its effect done
        assert await again.result(60) == CANARY
    assert failed.error is not None
    assert failed.error.message == f"no luck with {CANARY}"
    assert failed.attempts[0].error == failed.error
    talk = await jobs["talk"].status()
    assert talk.progress["done"] == {"so far": CANARY}
    lines = [line.text async for line in tasks.jobs.logs(talk.id)]
    assert lines == [CANARY, f"app: so it is: {CANARY}"]
    assert CANARY in str(await tasks.jobs.explain(failed.id))
    assert CANARY not in await dump(tasks)
    async with serving(tasks) as live:
        client = await live.client()
        page = (await client.get("/v1/jobs?state=failed")).json()["items"]
        assert page[0]["error_message"] == f"no luck with {CANARY}"
        groups = (await client.get("/v1/dead")).json()["items"]
        assert [group["message"] for group in groups] == ["(encrypted)"]


async def test_dead_letters_of_one_kind_are_one_group(tasks: App):
    await tasks.tasks["fail"].submit_many([{"secret": f"{CANARY} {n}"} for n in range(3)])
    async with Node(tasks).running():
        for job in await tasks.jobs.list(task="fail"):
            await ended(tasks, job.id)
    async with serving(tasks) as live:
        groups = (await (await live.client()).get("/v1/dead")).json()["items"]
    assert [group["count"] for group in groups] == [3]


# -- keys of idempotency


async def test_a_key_knows_its_content_again_without_being_able_to_read_it(
    encrypted: App, make_app
):
    first = await encrypted.submit("work", {"a": 1, "b": [2.50, {"c": "d"}]}, key="k")
    again = await encrypted.submit("work", {"b": [2.50, {"c": "d"}], "a": 1}, key="k")
    assert (again.id, again.existed) == (first.id, True)
    with pytest.raises(KeyConflict):
        await encrypted.submit("work", {"a": 2}, key="k")
    rotated = make_app(encryption_keys=f"{NEW},{OLD}")
    assert (await rotated.submit("work", {"a": 1, "b": [2.50, {"c": "d"}]}, key="k")).existed
    with pytest.raises(KeyConflict):
        await rotated.submit("work", {"a": 2}, key="k")


async def test_a_unique_job_that_is_changed_is_encrypted_for_the_job_that_it_changes(
    encrypted: App,
):
    database = (await encrypted.store()).database
    first = await encrypted.submit("work", {"a": 1}, debounce=60, unique_key="k")
    again = await encrypted.submit("work", {"a": 2}, debounce=60, unique_key="k")
    assert (again.id, (await first.status()).payload) == (first.id, {"a": 2})
    async with database.transaction() as connection:
        options = {"debounce": 60, "unique_key": "k", "connection": connection}
        await encrypted.submit("work", {"a": 3}, **options)
    assert (await first.status()).payload == {"a": 3}
    by_arguments = await encrypted.submit("work", {"a": 4}, unique="waiting")
    assert (await encrypted.submit("work", {"a": 4}, unique="waiting")).id == by_arguments.id
    assert not (await encrypted.submit("work", {"a": 5}, unique="waiting")).existed


# -- forgery


async def test_a_payload_that_looks_sealed_is_refused(encrypted: App, app: App):
    for each in (encrypted, app):
        with pytest.raises(InvalidArguments, match="Rota's own"):
            await each.submit("work", {"$rota-encrypted": "1.old.j.AAAA"})
        with pytest.raises(InvalidArguments, match="Rota's own"):
            await each.schedule("s", "work", cron="@daily", payload={"$rota-encrypted": "x"})


async def test_a_result_that_looks_sealed_is_what_it_is(tasks: App):
    await set_encrypted(tasks, False)
    job = await tasks.submit("lookalike")
    async with Node(tasks).running():
        assert await job.result(60) == {"$rota-encrypted": "1.k.j.AAAA"}


async def test_what_was_moved_or_changed_never_runs(tasks: App):
    one, two, three = [await tasks.submit("echo", {"secret": CANARY}) for _ in range(3)]
    schema = tasks.settings.schema
    text = await raw(tasks, three.id)
    forged = text[:-8] + ("A" if text[-8] != "A" else "B") + text[-7:]
    async with (await tasks.store()).database.connection() as c:
        move = f"update {schema}.present set payload = $2 where id = $1"
        await c.execute(move, two.id, await raw(tasks, one.id))
        await c.execute(move, three.id, forged)
    async with Node(tasks).running():
        assert await one.result(60) == CANARY
        for job in (two, three):
            failed = await job.wait(60)
            assert failed.state == "failed"
            assert failed.error is not None
            assert failed.error.type == "rota.errors.NotAuthentic"
            assert "changed, or belongs elsewhere" in failed.error.message
            assert "$rota-encrypted" in failed.payload


# -- without the key


async def test_a_process_without_the_key_neither_submits_nor_works(encrypted: App, make_app):
    keyless = make_app()

    @keyless.task
    async def work() -> None: ...

    job = await encrypted.submit("work")
    with pytest.raises(KeyMissing, match="ROTA_ENCRYPTION_KEYS"):
        await keyless.submit("work")
    with pytest.raises(KeyMissing):
        await work.submit_many([{}] * 300)
    database = (await keyless.store()).database
    async with database.connection() as c, c.transaction():
        with pytest.raises(KeyMissing):
            await work.options(connection=c).submit()
    with pytest.raises(KeyMissing):
        await keyless.schedule("s", "other", cron="@daily", payload={"a": 1})
    with pytest.raises(KeyMissing, match="'default' is encrypted"):
        await Node(keyless).start()
    assert "is not here" in str((await make_app(encryption_keys=NEW).jobs.get(job.id)).payload)
    assert "has none" in str((await keyless.jobs.get(job.id)).payload)


async def test_a_worker_with_another_key_gives_jobs_back_unharmed(tasks: App, make_app):
    wrong = make_app(encryption_keys=NEW, poll=0.2)

    @wrong.task
    async def echo(secret: str) -> None: ...

    job = await tasks.submit("echo", {"secret": CANARY})
    async with Node(wrong).running() as node:
        worker = node.worker_role.worker
        async with asyncio.timeout(60):
            while not worker.starter.keyless or (await job.status()).state != "ready":
                await asyncio.sleep(0.02)
        told = await wrong.jobs.explain(job.id)
        assert (told.code, "'old'" in told.sentence) == ("key_missing", True)
        assert (await job.status()).attempt == 0
        async with Node(tasks).running():
            assert await job.result(60) == CANARY


async def test_plain_sql_is_refused_in_an_encrypted_namespace(encrypted: App):
    schema = encrypted.settings.schema
    async with (await encrypted.store()).database.connection() as c:
        with pytest.raises(asyncpg.PostgresError, match="plain SQL can't"):
            await c.fetchval(f"select {schema}.submit('work')")
        assert await c.fetchval(f"select {schema}.submit('work', namespace => 'clear')")


async def test_a_payload_at_the_limit_fits_encrypted_and_one_over_it_does_not(make_app):
    app = make_app(encryption_keys=OLD, max_payload_bytes=10_000)
    await app.migrate()
    await set_encrypted(app)
    room = 10_000 - len('{"a":""}')
    job = await app.submit("work", {"a": "x" * room})
    assert len((await app.jobs.get(job.id)).payload["a"]) == room
    with pytest.raises(SubmitError):
        await app.submit("work", {"a": "x" * (room + 1)})
    await make_app().migrate()


# -- rotation


async def test_everything_is_rewritten_with_the_new_key_and_then_the_old_one_can_go(
    tasks: App, make_app
):
    await tasks.schedule("pay", "echo", cron="@daily", payload={"secret": CANARY})
    jobs = [await tasks.submit(name, {"secret": CANARY}) for name in ("echo", "talk", "fail")]
    async with Node(tasks).running():
        for job in jobs:
            await job.wait(60)
    jobs.append(await tasks.submit("echo", {"secret": CANARY}, delay=3600, key="k"))
    jobs.append(await tasks.submit("echo", {"secret": CANARY}))
    triggered = (await tasks.schedules.trigger("pay")).job_id
    both = make_app(encryption_keys=f"{NEW},{OLD}")
    done = await Reencryption((await both.store()).database).run()
    assert (done.encrypted > 8, done.left) == (True, 0)
    assert (await Reencryption((await both.store()).database).run()).encrypted == 0
    assert "1.old." not in await dump(both)
    only = make_app(encryption_keys=NEW)
    assert (await only.submit("echo", {"secret": CANARY}, key="k")).existed
    for id in [job.id for job in jobs] + [triggered]:
        assert (await only.jobs.get(id)).payload == {"secret": CANARY}
    found = [await only.jobs.get(job.id) for job in jobs]
    assert (found[0].result, found[1].progress["done"]) == (CANARY, {"so far": CANARY})
    assert found[2].error is not None
    assert CANARY in found[2].error.message
    assert CANARY in [line.text async for line in only.jobs.logs(jobs[1].id)]
    assert (await only.schedules.get("pay")).spec.payload == {"secret": CANARY}
    assert CANARY not in await dump(only)


async def test_what_was_stored_before_is_sealed_when_a_namespace_becomes_encrypted(make_app):
    app = make_app(encryption_keys=OLD)
    before = await app.submit("work", {"secret": CANARY}, key="k")
    await app.schedule("pay", "work", cron="@daily", payload={"secret": CANARY})
    await app.submit("work", {"secret": CANARY}, delay=3600)
    assert (
        await Reencryption((await app.store()).database).run()
    ).encrypted == 0  # nobody asked for it
    await set_encrypted(app)
    assert (await Reencryption((await app.store()).database).run()).encrypted >= 4
    assert CANARY not in await dump(app)
    again = await app.submit("work", {"secret": CANARY}, key="k")
    assert (again.id, again.existed) == (before.id, True)
    assert (await app.schedules.get("pay")).spec.payload == {"secret": CANARY}


async def test_what_cannot_be_opened_is_left_and_counted(encrypted: App, make_app):
    job = await encrypted.submit("work", {"secret": CANARY})
    before = await raw(encrypted, job.id)
    done = await Reencryption((await make_app(encryption_keys=NEW).store()).database).run()
    assert (done.encrypted, done.left) == (0, 1)
    assert await raw(encrypted, job.id) == before
    with pytest.raises(KeyMissing):
        Reencryption((await make_app().store()).database)


async def test_a_row_that_somebody_holds_is_passed_over_and_found_by_the_next_walk(
    encrypted: App, make_app, database_url
):
    held, free = [await encrypted.submit("work", {"secret": CANARY}) for _ in range(2)]
    both = make_app(encryption_keys=f"{NEW},{OLD}")
    reencryption = Reencryption((await both.store()).database)
    other = await asyncpg.connect(database_url)
    async with other.transaction():
        lock = f"select from {both.settings.schema}.present where id = $1 for update"
        await other.execute(lock, held.id)
        assert (await reencryption.run()).encrypted == 1
    await other.close()
    assert token_of(await raw(both, free.id)).startswith("1.new.")
    assert (await reencryption.run()).encrypted == 1


async def test_limits_that_are_taken_away_leave_a_namespace_encrypted(encrypted: App):
    store = QuotaStore((await encrypted.store()).database)
    await store.put_namespace("default", Limits(max_jobs=5))
    removed = await store.remove_namespace("default")
    assert removed is not None
    assert removed.limits.max_jobs == 5
    kept = await store.get_namespace("default")
    assert kept is not None
    assert kept.limits == Limits()
    assert await (await encrypted.store()).database.fetchval("is_encrypted", "default")
