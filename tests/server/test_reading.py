"""Reads from a streaming standby: what they show, how old it is, and what happens when it is away."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from proof.replicas import Replica
from proof.waiting import eventually
from rota import App
from rota.server.policy import route_table
from rota.server.reading import PATHS
from tests.support.server_fixtures import LiveServer, serving
from tests.support.sessions import enter

pytestmark = pytest.mark.timeout(400)
AGE = "rota-data-age"


class Pair:
    """A primary, its standby, and a server that reads from the standby."""

    def __init__(self, primary: Replica, standby: Replica, live: LiveServer) -> None:
        self.primary, self.standby, self.live = primary, standby, live

    async def execute(self, statement: str, *, standby: bool = False) -> Any:
        connection = await (self.standby if standby else self.primary).connect()
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    async def reads_from_replica(self) -> bool:
        return bool(self.live.context.replica.serves(None))


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    primary, standby = Replica(folder, "primary"), Replica(folder, "standby")
    await primary.make("wal_level = replica\nhot_standby = on\nfsync = off\n")
    await standby.follow(primary)
    await primary_alone(primary)
    app = App(database_url=primary.url, read_url=standby.url, port=0, read_max_lag=5)
    await app.migrate()
    try:
        async with serving(app) as live:
            pair = Pair(primary, standby, live)
            await eventually(pair.reads_from_replica)
            yield pair
    finally:
        await app.close()
        await standby.stop()
        await primary.stop()


async def primary_alone(primary: Replica) -> None:
    """Commits don't wait for the standby: it may be behind."""
    connection = await primary.connect()
    await connection.execute("alter system set synchronous_standby_names = ''")
    await connection.execute("select pg_reload_conf()")
    await connection.close()


async def test_lists_and_pages_come_from_the_replica_and_say_how_old_they_are(pair: Pair):
    client = await pair.live.client("admin")
    job = await pair.live.app.submit("greet", {})

    async def listed() -> Any:
        answer = await client.get("/v1/jobs")
        return answer if AGE in answer.headers and str(job.id) in answer.text else None

    answer = await eventually(listed)
    assert 0 <= float(answer.headers[AGE]) < 60
    now = await client.get("/v1/jobs", headers={"Cache-Control": "no-cache"})
    assert AGE not in now.headers
    assert str(job.id) in now.text
    browser = await enter(pair.live)
    page = await eventually(lambda: _page(browser))
    assert "From a read replica, at most" in page


async def _page(browser: Any) -> str | None:
    answer = await browser.get("/jobs")
    assert answer.status_code == 200
    return answer.text if AGE in answer.headers else None


async def test_a_server_shows_its_own_changes_and_finds_jobs_that_the_replica_lacks(pair: Pair):
    client = await pair.live.client("admin")
    await pair.execute("select pg_wal_replay_pause()", standby=True)
    made = (await client.post("/v1/jobs", json={"task": "greet", "queue": "slow"})).json()["id"]
    for path in ("/v1/jobs", f"/v1/jobs/{made}"):
        answer = await client.get(path)
        assert (answer.status_code, AGE in answer.headers) == (200, False)
        assert made in answer.text
    # Somebody else's is looked up on the primary when the replica doesn't have it.
    pair.live.context.reading._changed.clear()
    other = await pair.live.app.submit("greet", {})
    answer = await client.get(f"/v1/jobs/{other.id}")
    assert answer.status_code == 200
    await client.post("/v1/queues/slow/pause")
    paused = (await client.get("/v1/queues")).json()
    assert "slow" in [each["name"] for each in paused["items"] if each["paused_at"]]
    await pair.execute("select pg_wal_replay_resume()", standby=True)

    async def shown() -> bool:
        answer = await client.get("/v1/jobs")
        return AGE in answer.headers and str(other.id) in answer.text

    await eventually(shown)


async def test_tenants_that_share_connections_to_the_replica_see_only_their_own(pair: Pair):
    ids = {}
    for name in ("acme", "zeta"):
        async with App(database_url=pair.primary.url, namespace=name) as app:
            ids[name] = str((await app.submit("greet", {})).id)
    clients = {name: await pair.live.client("viewer", name) for name in ids}

    async def shown() -> bool:
        answers = {name: await clients[name].get("/v1/jobs") for name in ids}
        return all(AGE in answers[name].headers and ids[name] in answers[name].text for name in ids)

    await eventually(shown)
    for _ in range(5):
        for name, other in (("acme", "zeta"), ("zeta", "acme")):
            answer = await clients[name].get("/v1/jobs")
            assert ids[name] in answer.text
            assert ids[other] not in answer.text


async def test_a_replica_that_is_behind_or_away_is_not_used(pair: Pair):
    client = await pair.live.client("admin")
    await pair.execute("select pg_wal_replay_pause()", standby=True)
    job = await pair.live.app.submit("greet", {})

    async def from_primary() -> bool:
        answer = await client.get("/v1/jobs")
        assert answer.status_code == 200
        return AGE not in answer.headers and str(job.id) in answer.text

    await eventually(from_primary, 90)  # after read_max_lag
    await pair.execute("select pg_wal_replay_resume()", standby=True)
    await eventually(pair.reads_from_replica)
    pair.standby.kill()
    for _ in range(3):  # also the request that finds out
        answer = await client.get("/v1/jobs")
        assert answer.status_code == 200, answer.text
        assert str(job.id) in answer.text
    await eventually(from_primary)
    await pair.standby._start()
    await eventually(pair.reads_from_replica, 90)


async def test_a_database_that_is_no_replica_is_refused(
    database_url: str, pair: Pair, caplog: pytest.LogCaptureFixture
):
    app = App(database_url=pair.primary.url, read_url=database_url, port=0)
    async with serving(app) as live:
        await eventually(lambda: "another database cluster" in caplog.text)
        answer = await (await live.client("admin")).get("/v1/jobs")
        assert (answer.status_code, AGE in answer.headers) == (200, False)
    await app.close()


async def test_without_a_replica_nothing_is_asked(server: LiveServer):
    assert server.context.reading is None
    answer = await (await server.client("admin")).get("/v1/jobs")
    assert AGE not in answer.headers
    known = {route.path.replace(":uuid}", "}").replace(":str}", "}") for route in
             route_table(server.server.asgi) if route.method == "GET"}  # fmt: skip
    assert known >= PATHS
