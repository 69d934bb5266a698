"""Copies and restored backups: they run nothing until `rota recover`, which says what they would run.

The last test is the runbook: a region is lost, and a point in time is restored from base backup and log.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest

from proof import barman
from proof.barman import Barman
from proof.replicas import Replica
from rota import App
from rota.core.time.schedule import All
from rota.errors import DatabaseNotRecovered
from rota.node import Node
from tests.support.command_line import run


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture
async def original(database_url: str) -> AsyncIterator[str]:
    """The URL of a database of its own, on which a node has run."""
    name = f"original_{uuid4().hex[:8]}"
    await execute(database_url, f"create database {name}")
    url = _named(database_url, name)
    app = shop(url)
    await app.migrate()
    async with Node(app).running():
        pass
    await app.close()
    yield url
    await execute(database_url, f"drop database {name} with (force)")


def _named(url: str, name: str) -> str:
    before, _, query = url.partition("?")
    return f"{before.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")


def shop(url: str, **settings: str) -> App:
    app = App(database_url=url, processes=1, **settings)

    @app.task(guarantee="at_most_once", queue="payments")
    async def pay(order: int) -> int:
        return order

    @app.task
    async def greet(name: str = "") -> str:
        return name

    return app


async def test_a_copy_runs_nothing_until_it_is_told_to(original: str, database_url: str):
    app = shop(original)
    paid = await app.submit("pay", {"order": 1})
    greeted = await app.submit("greet", {"name": "Ada"})
    token = await _last_token(original)
    await app.close()
    name = f"copy_{uuid4().hex[:8]}"
    source = original.partition("?")[0].rpartition("/")[2]
    await execute(database_url, f"create database {name} template {source}")
    copy = shop(_named(database_url, name))
    try:
        with pytest.raises(DatabaseNotRecovered, match=r"is a copy.*rota recover --dry-run"):
            await Node(copy).start()
        assert (await copy.jobs.get(greeted.id)).state == "ready"
        assert not await copy.nodes.list(ended=False)  # it didn't even register
        looked = await copy.connector.recover(dry_run=True)
        assert looked.copied
        assert [job.id for job in looked.may_have_run] == [paid.id]
        assert [(each.queue, each.jobs) for each in looked.will_run] == [("default", 1)]
        with pytest.raises(DatabaseNotRecovered):
            await Node(copy).start()  # looking has changed nothing
        done = await copy.connector.recover()
        assert done.paused == ["default/payments"]
        assert await _last_token(copy.settings.database_url or "") > token + 1_000_000_000
        async with Node(copy).running():
            await _wait(copy, greeted.id)
            assert (await copy.jobs.get(paid.id)).state == "ready"
    finally:
        await copy.close()
        await execute(database_url, f"drop database {name} with (force)")


async def _wait(app: App, id: UUID) -> None:
    async with asyncio.timeout(60):
        while (await app.jobs.get(id)).state != "succeeded":
            await asyncio.sleep(0.05)


async def _last_token(url: str) -> int:
    connection = await asyncpg.connect(url)
    try:
        found: int = await connection.fetchval("select last_value from rota.token")
    finally:
        await connection.close()
    return found


async def test_a_node_of_another_installation_is_refused(original: str):
    production = shop(original, installation="production")
    async with Node(production).running():
        pass
    await production.close()
    for name, said in (("staging", "'staging'"), ("", "without a name")):
        other = shop(original, installation=name)
        with pytest.raises(DatabaseNotRecovered, match=f"belongs to .*'production'.*{said}"):
            await Node(other).start()
        await other.close()
    staging = shop(original, installation="staging")
    await staging.connector.recover()
    async with Node(staging).running():
        pass
    await staging.close()


async def test_a_failover_that_nodes_lived_through_is_none_of_it(original: str):
    """The timeline is another, and a node was seen a moment ago."""
    await execute(original, "update rota.installation set timeline = timeline + 1")
    app = shop(original)
    async with Node(app).running():
        pass
    await execute(original, "update rota.installation set timeline = timeline + 1",
                  "update rota.node set heartbeat_at = heartbeat_at - interval '1 hour'")  # fmt: skip
    with pytest.raises(DatabaseNotRecovered, match="was restored from a backup"):
        await Node(app).start()
    await app.close()


async def test_a_database_on_which_no_node_has_run_was_not_copied_from_anywhere(app: App):
    found = await app.connector.recover(dry_run=True)
    assert (found.copied, found.restored, found.last_seen) == (False, False, None)


async def test_recovering_is_recorded_with_it_or_not_done(original: str):
    await execute(original, "update rota.installation set timeline = timeline + 1",
                  "update rota.node set heartbeat_at = heartbeat_at - interval '1 hour'",
                  "alter table rota.audit add constraint full_disk check (false) not valid")  # fmt: skip
    app = shop(original)
    with pytest.raises(Exception, match="full_disk"):
        await app.connector.recover()
    with pytest.raises(DatabaseNotRecovered):
        await Node(app).start()
    await execute(original, "alter table rota.audit drop constraint full_disk")
    await app.connector.recover()
    assert "recover" in {entry.action for entry in await app.rota.audit.list(None)}
    async with Node(app).running():
        pass
    await app.close()


async def test_queues_are_paused_however_many_jobs_may_have_run(
    original: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.operations.recovery._MOST", 2)
    app = shop(original)
    for order in range(3):
        await app.submit("pay", {"order": order})
    await app.submit("pay", {"order": 3}, queue="later")
    found = await app.connector.recover()
    assert len(found.may_have_run) == 2
    assert found.may_have_run_count == 4
    assert found.paused == ["default/later", "default/payments"]
    await app.close()


def test_the_command_asks_and_shows(environ: dict[str, str]):
    shown = run("recover", "--dry-run")
    assert shown.code == 0
    assert "may have run, at most once: 0 jobs" in shown.out
    assert run("recover", "--json").code == 2
    assert run("recover", "--yes", "--json").json["tokens_from"] > 0


# -- the runbook


@pytest.mark.proof
class BaseBackup:
    """pg_basebackup, and the log in a folder."""

    def __init__(self, folder: Path, primary: Replica) -> None:
        self._archive, self._primary = folder / "archive", primary
        self._archive.mkdir()
        primary.account.give(self._archive)
        self._copy = Replica(folder, "restored")

    async def backup(self) -> None:
        await self._copy.copy_of(self._primary)

    async def keep_up(self) -> None:
        connection = await self._primary.connect()
        await connection.execute("select pg_switch_wal()")
        await _archived(connection)
        await connection.close()

    async def restore(self, replica: Replica, point: str) -> None:
        replica.data.rmdir()
        self._copy.data.rename(replica.data)
        await replica.restore(self._archive, point)


def by_hand(folder: Path) -> str:
    archive = folder / "archive"
    return f"archive_mode = on\narchive_command = 'test -d {archive} && cp %p {archive}/%f'\n"


TOOLS = {"pg_basebackup": (BaseBackup, by_hand), "barman": (Barman, barman.settings)}


@pytest.mark.parametrize("tool", list(TOOLS))
async def test_a_lost_region_comes_back_from_a_point_in_time_with_every_job_accounted_for(
    tool: str,
):
    if tool == "barman" and not (barman.PROGRAM.exists() and shutil.which("rsync")):
        pytest.skip("there is no Barman, or no rsync: make test installs them")
    folder = Path(tempfile.mkdtemp(prefix="rota-recovery-"))
    folder.chmod(0o711)
    make, settings = TOOLS[tool]
    primary = Replica(folder, "primary")
    restored = Replica(folder, "back")
    try:
        await primary.make(f"{settings(folder)}fsync = off\n")
        backups = make(folder, primary)
        app = shop(primary.url)
        await app.migrate()
        await app.schedule("hourly", "greet", every="1h", catch_up=All())
        # Ran before the backup.
        async with Node(app).running():
            before = await app.submit("greet", {"name": "before"})
            await before.result(timeout=60)
        await backups.backup()
        # Submitted before the point in time, ran after it: the restored database doesn't know.
        waiting = await app.submit("greet", {"name": "waiting"})
        paid = await app.submit("pay", {"order": 7})
        connection = await primary.connect()
        await connection.fetchval("select pg_create_restore_point('monday')")
        async with Node(app).running():
            await waiting.result(timeout=60)
            await paid.result(timeout=60)
        gone = await app.submit("greet", {"name": "gone"})
        await connection.close()
        await backups.keep_up()
        await app.close()
        primary.kill()  # the region
        await backups.restore(restored, "monday")
        # An hour passes until somebody has restored it.
        await execute(
            restored.url, "update rota.node set heartbeat_at = heartbeat_at - interval '1 hour'"
        )
        app = shop(restored.url)
        with pytest.raises(DatabaseNotRecovered, match="was restored from a backup"):
            await Node(app).start()
        found = await app.connector.recover()
        assert found.restored
        assert [job.id for job in found.may_have_run] == [paid.id]  # it has: held back
        assert found.paused == ["default/payments"]
        assert [(each.queue, each.jobs) for each in found.will_run] == [("default", 1)]
        async with Node(app).running():
            await _wait(app, waiting.id)  # runs again, as at_least_once may
            assert (await app.jobs.get(before.id)).state == "succeeded"
            assert (await app.jobs.get(paid.id)).state == "ready"
            assert await app.jobs.find(gone.id) is None  # submitted after the point in time
        await app.close()
    finally:
        await restored.stop()
        await primary.stop()
        shutil.rmtree(folder, ignore_errors=True)


async def _archived(connection: asyncpg.Connection) -> None:
    """Wait until the whole log is in the archive."""
    ready = "select count(*) from pg_ls_archive_statusdir() where name like '%.ready'"
    async with asyncio.timeout(60):
        while await connection.fetchval(ready):
            await asyncio.sleep(0.05)
