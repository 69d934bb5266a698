"""Directed wake-ups: a hint wakes as many workers as there is work, and nobody depends on it."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import pytest

from proof.simulation.heartbeats import LoopHost
from proof.waiting import eventually
from rota import App, Node
from rota.lib.ids import new_id
from rota.runtime import heartbeat
from rota.runtime.heartbeat import HeartbeatThread
from rota.runtime.listener import channel_of
from rota.store.work import LOWEST_RANK
from rota.worker.idle import IdleAdvertisement
from tests.support.cluster import Cluster
from tests.support.fake_node import FakeNode
from tests.support.plans import nodes as plan_nodes

LANE = "default/default"
# Nobody looks by himself while a test looks on.
PATIENT: dict[str, Any] = {"poll": 600.0, "concurrency": 4}


class Workers:
    """Real nodes on this test's loop; every claim is counted."""

    def __init__(self, make_app: Callable[..., App]) -> None:
        self._make_app = make_app
        self.looks: Counter[UUID | None] = Counter()
        self.ran: Counter[UUID | None] = Counter()
        self.nodes: list[Node] = []
        self.gate = asyncio.Event()

    async def start(self, count: int, *, queues: Sequence[str] = (), gpu: bool = False,
                    also: Sequence[str] = (), **settings: Any) -> list[Node]:  # fmt: skip
        started = []
        for _ in range(count):
            app = self._make_app(**{**PATIENT, **settings})
            node = Node(app, ["worker"], queues, ["gpu"] if gpu else [])
            self._give_tasks(app, node, also)
            await node.start()
            self._count_looks(node)
            started.append(node)
        self.nodes += started
        return started

    def _give_tasks(self, app: App, node: Node, also: Sequence[str]) -> None:
        async def greet() -> None:
            self.ran[node.id] += 1

        async def hold() -> None:
            self.ran[node.id] += 1
            await self.gate.wait()

        async def slow() -> None:
            self.ran[node.id] += 1
            await asyncio.sleep(0.1)  # too long to be claimed ahead of a free slot

        app.task(greet)
        app.task(hold)
        app.task(slow)
        for name in also:
            app.task(name=name)(greet)

    def _count_looks(self, node: Node) -> None:
        store = node.worker_role.worker._store
        claim = store.claim

        async def counted(*arguments: Any) -> Any:
            self.looks[node.id] += 1
            return await claim(*arguments)

        store.claim = counted

    async def rest(self, database: Any) -> None:
        """Until all of them have said that they are hungry, and nobody looks any more."""

        async def all_hungry() -> bool:
            ids = [node.id for node in self.nodes]
            return len(ids) == await database.fetchval(
                f"select count(*) from {self.schema}.node where idle_slots is not null and id = any($1)",
                ids,
            )

        await eventually(all_hungry, what="idle of all")
        await self.quiet()

    async def quiet(self) -> None:
        """Until nobody looks any more."""
        before = -1
        while before != self.looks.total():
            before = self.looks.total()
            await asyncio.sleep(
                0.6
            )  # longer than the pauses between the looks of who is newly hungry
        self.looks.clear()

    @property
    def schema(self) -> str:
        return self.nodes[0].app.settings.schema

    async def stop(self) -> None:
        self.gate.set()
        await asyncio.gather(*(node.stop() for node in self.nodes))


@pytest.fixture
async def workers(
    make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Workers]:
    # No watchdogs: on a slow machine they take this loop for blocked, and their workers look again.
    monkeypatch.setattr(heartbeat, "HeartbeatThread", LoopHost)
    workers = Workers(make_app)
    yield workers
    await workers.stop()


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


class Ears:
    """What is said on channels."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.heard: list[tuple[str, str]] = []

    async def listen(self, channel: str) -> None:
        await self._connection.add_listener(channel, self._note)

    async def listen_for(self, nodes: Sequence[Node]) -> None:
        """To what they are told, alone or with all."""
        for node in nodes:
            settings = node.settings
            await self.listen(channel_of(settings.schema, settings.namespace))
            await self.listen(channel_of(settings.schema, settings.namespace, node.id))

    def _note(self, _connection: Any, _pid: int, channel: str, payload: str) -> None:
        self.heard.append((channel, payload))

    async def settled(self) -> list[tuple[str, str]]:
        """Everything that was said before now."""
        mark = f"mark-{new_id()}"
        await self.listen("rota_mark")
        await self._connection.execute("select pg_notify('rota_mark', $1)", mark)
        await eventually(lambda: ("rota_mark", mark) in self.heard)
        return [said for said in self.heard if said[0] != "rota_mark"]


@pytest.fixture
async def ears(database_url: str) -> AsyncIterator[Ears]:
    connection = await asyncpg.connect(database_url)
    yield Ears(connection)
    await connection.close()


async def submit_holds(database: Any, app: App, count: int) -> None:
    """One batch of jobs that last."""
    jobs = msgspec.json.encode([{"task": "hold"}] * count).decode()
    await database.fetch(f"select * from {app.settings.schema}.submit_jobs($1)", jobs)


# -- how many are woken


async def test_of_twenty_idle_workers_one_looks_when_a_job_comes(workers, database, app):
    await workers.start(20)
    await workers.rest(database)
    for n in range(1, 6):
        await app.submit("greet")
        await eventually(lambda n=n: workers.ran.total() == n)
    # Each submit is one look of one worker; a sweep may be owed after two in a row.
    assert 5 <= workers.looks.total() <= 15


async def test_a_batch_wakes_as_many_as_have_room_for_it(workers, database, app):
    await workers.start(10)
    await workers.rest(database)
    await submit_holds(database, app, 20)  # five workers' worth
    await eventually(lambda: workers.ran.total() == 20)
    looked = {id for id, looks in workers.looks.items() if looks}
    assert 5 <= len(looked) <= 8


async def test_single_jobs_fill_workers_of_one_slot_each(workers, database, app):
    """Two hints may draw the same worker: the one that it can't take is passed on."""
    await workers.start(8, concurrency=1)
    await workers.rest(database)
    await asyncio.gather(*(app.submit("hold") for _ in range(8)))
    await eventually(lambda: len(workers.ran) == 8, what="work for each")


async def test_single_jobs_of_one_transaction_wake_as_many_as_have_room(
    workers, database, database_url, app
):
    """Their hints are equal, and PostgreSQL delivers equal notifications of a transaction once."""
    await workers.start(4)
    await app.submit("greet")  # makes the lane
    await eventually(lambda: workers.ran.total() == 1)
    await workers.rest(database)
    submitter = await asyncpg.connect(database_url)
    try:
        async with submitter.transaction():
            for _ in range(16):  # four each
                await submitter.execute(f"select {app.settings.schema}.submit('hold')")
        await eventually(lambda: workers.ran.total() == 17, what="work for each")
    finally:
        await submitter.close()


async def test_a_free_slot_is_no_reason_to_look_when_all_was_seen(workers, database, app):
    await workers.start(1)
    await workers.rest(database)
    await app.submit("greet")
    await eventually(lambda: workers.ran.total() == 1)
    await eventually(lambda: not workers.nodes[0].worker_role.worker.slots.busy())
    assert workers.looks.total() == 1


# -- who is woken


async def test_hints_go_to_workers_that_have_the_capability(workers, database, app, ears):
    others = await workers.start(6)
    [able] = await workers.start(1, gpu=True)
    await workers.rest(database)
    await ears.listen_for(others)
    for n in range(1, 6):
        await app.submit("greet", needs=["gpu"])
        await eventually(lambda n=n: workers.ran[able.id] == n)
    assert set(workers.looks) == {able.id}
    assert await ears.settled() == []


async def test_hints_go_to_workers_that_serve_the_queue(workers, database, app, ears):
    others = await workers.start(6, queues=["default"])
    [images] = await workers.start(1, queues=["images"])
    await workers.rest(database)
    await ears.listen_for(others)
    for n in range(1, 6):
        await app.submit("greet", queue="images")
        await eventually(lambda n=n: workers.ran[images.id] == n)
    assert set(workers.looks) == {images.id}
    assert await ears.settled() == []


async def test_workers_that_know_other_tasks_are_told_as_well(workers, database, app):
    """During a deployment only some know the new task, and a hint doesn't name it."""
    await workers.start(5)
    [new] = await workers.start(1, also=["added"])
    await workers.rest(database)
    for n in range(1, 4):
        await app.submit("added")
        await eventually(lambda n=n: workers.ran[new.id] == n)


# -- who can't hear


async def test_a_killed_worker_that_was_hungry_gets_no_hint(
    tmp_path, database_url, make_app, workers, database
):
    app = make_app()
    schema = app.settings.schema
    cluster = Cluster(tmp_path, database_url, schema, poll=600, heartbeat=30)
    hungry = f"select count(*) from {schema}.node where idle_slots is not null and state = 'live'"
    try:
        victims = [cluster.start("worker") for _ in range(2)]
        await eventually(
            lambda: _equals(database, hungry, 2), 60, "idle of those who are to be killed"
        )
        [survivor] = await workers.start(1, also=["which_process"])
        await workers.rest(database)
        for victim in victims:
            victim.send_signal(signal.SIGKILL)
            victim.wait()
        # The server has noticed, the cluster has not: their rows still say that they are hungry.
        deaf = f"select count(*) from {schema}.node as n where not {schema}.is_listening(n.id)"
        await eventually(lambda: _equals(database, deaf, 2))
        assert await database.fetchval(hungry) == 3
        for n in range(1, 11):
            await app.submit("greet")
            await eventually(lambda n=n: workers.ran[survivor.id] == n, what="a start")
    finally:
        cluster.stop()


async def _equals(connection: Any, query: str, value: Any) -> bool:
    return await connection.fetchval(query) == value


async def test_a_worker_whose_loop_is_blocked_gets_no_hint(
    workers, database, database_url, monkeypatch
):
    monkeypatch.setattr(heartbeat, "HeartbeatThread", HeartbeatThread)
    await workers.start(2)
    await workers.rest(database)
    query = f"select count(*) from {workers.schema}.node where idle_slots is not null"

    async def watch() -> None:
        connection = await asyncpg.connect(database_url)
        await eventually(lambda: _equals(connection, query, 0), what="sleep of all")
        await connection.close()

    with ThreadPoolExecutor(1) as other:
        # This test's loop is theirs, and blocked here as a handler would. Their keepers' threads go on.
        other.submit(asyncio.run, watch()).result()
    assert all(node._heartbeat.trusted for node in workers.nodes)
    await eventually(lambda: _equals(database, query, 2))  # and they say so again


async def test_a_worker_that_got_a_new_name_hears_under_it(workers, database, app):
    [node] = await workers.start(1, heartbeat=0.3)
    await workers.rest(database)
    old = node.id
    await database.execute(f"update {workers.schema}.node set state = 'dead' where id = $1", old)
    await eventually(lambda: node.id != old)
    await workers.rest(database)
    hears = f"select {workers.schema}.is_listening($1)"
    await eventually(lambda: database.fetchval(hears, node.id))
    assert not await database.fetchval(hears, old)
    await app.submit("greet")
    await eventually(lambda: workers.ran.total() == 1)


async def test_a_cut_line_is_made_anew_and_hints_arrive_again(workers, database, app):
    [node] = await workers.start(1)
    await workers.rest(database)
    listening = "select pid from pg_locks where locktype = 'advisory' and objid = any($1) limit 1"
    ear = await database.fetchval(f"select {workers.schema}.listener_lock($1)", node.id)
    pid = await database.fetchval(listening, [ear & 0xFFFFFFFF])
    await database.execute("select pg_terminate_backend($1)", pid)

    async def listens_anew() -> bool:
        return await database.fetchval(listening, [ear & 0xFFFFFFFF]) not in (None, pid)

    await eventually(listens_anew)
    await eventually(lambda: node.worker_role.worker.hints_work)
    assert await database.fetchval(f"select {workers.schema}.is_listening($1)", node.id)
    await app.submit("greet")
    await eventually(lambda: workers.ran.total() == 1)


# -- when nobody can be drawn


async def test_nobody_hungry_is_told_to_all(app, database, ears):
    await ears.listen(channel_of(app.settings.schema, "default"))
    await app.submit("greet")
    [(_, said)] = await ears.settled()
    lane, _rank, count = said.split()
    assert (lane, count) == (LANE, "1")


async def test_while_somebody_is_hungry_the_others_are_not_told(workers, app, database, ears):
    await workers.start(2)
    await workers.rest(database)
    await ears.listen(channel_of(app.settings.schema, "default"))
    await app.submit("greet")
    await eventually(lambda: workers.ran.total() == 1)
    assert await ears.settled() == []


async def test_a_resumed_queue_is_told_to_all(workers, app, database):
    await workers.start(3)
    await app.queues.pause("default")
    await workers.rest(database)
    await submit_holds(database, app, 12)
    await app.queues.resume("default")
    await eventually(lambda: workers.ran.total() == 12)


async def test_a_worker_that_gets_hungry_during_a_long_submit_is_told(
    workers, database, database_url, app
):
    await app.submit("greet")  # makes the lane
    submitter = await asyncpg.connect(database_url)
    try:
        transaction = submitter.transaction()
        await transaction.start()
        await submitter.execute(f"select {app.settings.schema}.submit('greet')")
        await workers.start(3)
        await workers.rest(database)
        await transaction.commit()
    finally:
        await submitter.close()
    await eventually(lambda: workers.ran.total() == 2)


async def test_a_worker_that_is_full_when_its_hint_comes_passes_it_on(
    workers, database, database_url, app
):
    """Drawn while it was free, told at the commit, when it isn't any more."""
    [first] = await workers.start(1, concurrency=1)
    await app.submit("greet")  # makes the lane
    await eventually(lambda: workers.ran.total() == 1)
    await workers.rest(database)
    submitter = await asyncpg.connect(database_url)
    try:
        transaction = submitter.transaction()
        await transaction.start()
        await submitter.execute(f"select {app.settings.schema}.submit('greet')")
        await app.submit("hold")
        await eventually(lambda: workers.ran[first.id] == 2)
        [second] = await workers.start(1, concurrency=1)

        async def second_alone_is_hungry() -> bool:
            rows = await database.fetch(
                f"select id from {workers.schema}.node where idle_slots is not null"
            )
            return [row[0] for row in rows] == [second.id]

        await eventually(second_alone_is_hungry)
        await workers.quiet()
        await transaction.commit()
        await eventually(lambda: workers.ran[second.id] == 1, what="a start at the other")
    finally:
        await submitter.close()


async def test_a_hint_of_a_new_lane_that_comes_while_lanes_are_read_is_not_forgotten(
    workers, database, app
):
    [node] = await workers.start(1)
    await workers.rest(database)
    worker = node.worker_role.worker
    read, told = worker._store.lanes, asyncio.Event()
    hint = worker.hint

    def noticed(*arguments: Any) -> None:
        hint(*arguments)
        told.set()

    async def read_before_the_hint(namespace: str) -> Any:
        rows = await read(namespace)
        worker._store.lanes = read
        await app.submit("greet")  # makes the lane
        await told.wait()
        return rows

    worker.hint, worker._store.lanes = noticed, read_before_the_hint
    worker._lanes_at = -1e9
    worker.wake()
    await eventually(lambda: workers.ran.total() == 1, what="a start")


async def test_a_lost_hint_costs_no_more_than_the_wait_for_the_next_look(workers, database, app):
    await workers.start(1, poll=0.5)
    await workers.rest(database)
    schema = workers.schema
    told = await database.fetchval(f"select pg_get_functiondef('{schema}.notify'::regproc)")
    await database.execute(told.replace("perform pg_notify(channel, payload);", "null;"))
    try:
        await app.submit("greet")
        await eventually(lambda: workers.ran.total() == 1, what="a look")
    finally:
        await database.execute(told)


# -- the row


async def test_a_full_worker_soon_withdraws_and_a_free_one_advertises_again(workers, database, app):
    await workers.start(1)
    await workers.rest(database)
    is_busy = f"select idle_slots is null from {workers.schema}.node"
    await submit_holds(database, app, 4)
    await eventually(lambda: database.fetchval(is_busy))
    workers.gate.set()
    await eventually(lambda: _equals(database, is_busy, False))


async def test_a_worker_that_drains_is_told_nothing(workers, database, app):
    first, second = await workers.start(2)
    await workers.rest(database)
    role = first.worker_role
    await role.drain(asyncio.Event())
    for n in range(1, 6):
        await app.submit("greet")
        await eventually(lambda n=n: workers.ran[second.id] == n)


async def test_who_is_hungry_and_full_in_turns_writes_at_most_twice_a_second(
    hot, sandbox, monkeypatch
):
    node = await FakeNode(hot, sandbox.app.settings).register()
    now = 1000.0
    monkeypatch.setattr("rota.worker.idle.monotonic", lambda: now)
    idle = IdleAdvertisement(node.store, "default", node.lease)
    row = f"select idle_slots, xmin::text from {hot.schema}.node where id = $1"
    seen: list[Any] = []
    async with hot.connection() as connection:
        for _ in range(100):
            now += 0.05
            await idle.advertise(3)
            seen.append(await connection.fetchrow(row, node.id))
            now += 0.05
            idle.pending.add(LANE, 1, 1)
            await idle.withdraw(full=True)
            seen.append(await connection.fetchrow(row, node.id))
    wanted, versions = {one["idle_slots"] for one in seen}, {one["xmin"] for one in seen}
    assert wanted == {3, None}
    assert 10 <= len(versions) <= 21  # in ten seconds


async def test_heartbeats_stay_heap_only_and_carry_signals(workers, database, app):
    [node] = await workers.start(1, heartbeat=0.2)
    await workers.rest(database)
    table = f"'{workers.schema}.node'::regclass"
    counts = f"select pg_stat_get_tuples_updated({table}) - pg_stat_get_tuples_hot_updated({table})"
    updated = f"select pg_stat_get_tuples_updated({table})"
    cold, all_updates = await database.fetchval(counts), await database.fetchval(updated)

    async def ten_more() -> bool:
        return await database.fetchval(updated) >= all_updates + 10

    await eventually(ten_more)
    assert await database.fetchval(counts) == cold
    handle = await app.submit("hold")
    await eventually(lambda: workers.ran.total() == 1)
    await handle.cancel()
    await eventually(lambda: not node.worker_role.worker.slots.busy())
    assert (await handle.status()).state in ("running", "cancelled")


async def test_pauses_between_looks_grow_with_the_number_of_workers_of_the_kind(workers, database):
    first, *_ = await workers.start(3, heartbeat=0.2)
    await workers.start(2, heartbeat=0.2, gpu=True)
    await eventually(lambda: first._heartbeat.peers == 3)
    worker = first.worker_role.worker
    await workers.rest(database)
    worker._settings = worker._settings.replace(poll=0.1)
    worker._lease.peers = 1
    assert await worker._rest(4) <= 0.1 * 1.25 + 0.25
    worker._lease.peers = 100
    assert 25 * 0.75 <= await worker._rest(4) <= 25 * 1.25
    worker._lease.peers = 10_000
    assert 60 * 0.75 <= await worker._rest(4) <= 60 * 1.25


# -- the draw itself


async def make_hungry(database: Any, schema: str, count: int) -> None:
    """Rows as of live workers; their ears are this connection's."""
    await database.execute(
        f"insert into {schema}.node (id, namespace, name, host, pid, version, roles, expires_at,"
        " queues, capabilities, tasks, slots, kind, lot, idle_slots)"
        " select gen_random_uuid(), 'default', 'n', 'h', 1, '0', '{worker}',"
        " now() + interval '1 hour', '{}', '{}', '{}', 100, 'one', (random() * 4e9 - 2e9)::int, 5"
        f" from generate_series(1, {count})"
    )
    await database.execute(
        f"select pg_advisory_lock({schema}.listener_lock(id)) from {schema}.node"
    )


@pytest.fixture
async def submitter(database_url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


async def test_the_draw_goes_around_the_ring_and_tells_each_its_share(
    app, database, submitter, ears
):
    schema = app.settings.schema
    await make_hungry(database, schema, 50)
    ids = [row[0] for row in await database.fetch(f"select id from {schema}.node")]
    for id in ids:
        await ears.listen(channel_of(schema, "default", id))
    draw = f"select {schema}.draw('default', '{LANE}', $1, $2, $3)"
    assert await submitter.fetchval(draw, 1, 12, None) == 3
    assert sorted(said.split()[2] for _, said in await ears.settled()) == ["2", "5", "5"]
    assert await submitter.fetchval(draw, 1, 10_000, None) == 50
    assert await submitter.fetchval(draw, 1, 10_000, ids[0]) == 49
    first = {await _first_told(submitter, ears, draw, rank) for rank in range(40)}
    assert len(first) > 10  # hints spread over the ring
    assert await submitter.fetchval(draw, LOWEST_RANK, 1, None) == 1


async def _first_told(submitter: Any, ears: Ears, draw: str, rank: int) -> str:
    await ears.settled()
    ears.heard.clear()
    await submitter.fetchval(draw, rank, 1, None)
    [(channel, _)] = await ears.settled()
    return channel


@pytest.mark.parametrize(
    "call",
    [f"hint('default', '{LANE}', 7, 1)", "submit('greet')", "submit('greet', needs => '{gpu}')"],
)
async def test_the_draw_reads_by_index_no_more_rows_than_it_tells(app, database, submitter, call):
    schema = app.settings.schema
    await make_hungry(database, schema, 1000)
    plans: list[Any] = []
    await submitter.execute(
        "load 'auto_explain'; set auto_explain.log_min_duration = 0;"
        " set auto_explain.log_nested_statements = on; set auto_explain.log_format = json;"
        " set auto_explain.log_analyze = on; set client_min_messages = log"
    )
    submitter.add_log_listener(lambda _, message: plans.append(_plan_in(message.message)))
    await submitter.execute(f"select {schema}.{call}")
    scans = [
        node for plan in plans if plan for node in plan_nodes(plan)
        if node.get("Relation Name") == "node"
    ]  # fmt: skip
    assert {scan["Index Name"] for scan in scans} == {"node_idle"}
    assert sum(scan["Actual Rows"] for scan in scans) <= 4


def _plan_in(message: str) -> dict[str, Any] | None:
    _, found, text = message.partition("plan:\n")
    plan: dict[str, Any] | None = msgspec.json.decode(text)["Plan"] if found else None
    return plan


async def test_many_dead_or_many_kinds_end_in_a_word_to_all(app, database, submitter, ears):
    schema = app.settings.schema
    await ears.listen(channel_of(schema, "default"))
    await make_hungry(database, schema, 100)
    await database.execute("select pg_advisory_unlock_all()")
    await submitter.execute(f"select {schema}.hint('default', '{LANE}', 7, 1)")
    assert len(await ears.settled()) == 1
    await database.execute(f"delete from {schema}.node")
    await make_hungry(database, schema, 100)
    await database.execute(f"update {schema}.node set kind = id::text, queues = '{{other}}'")
    await submitter.execute(f"select {schema}.hint('default', '{LANE}', 8, 1)")
    assert len(await ears.settled()) == 2


async def test_a_worker_with_fewer_slots_than_lanes_does_not_rest_while_one_of_them_has_jobs(
    workers, database, app, monkeypatch
):
    """It can't look into all lanes at once: that one of them is empty says nothing about the others."""
    [node] = await workers.start(1, concurrency=1)
    worker = node.worker_role.worker
    for queue in ("a", "b", "c"):
        await app.submit("greet", queue=queue)
    await eventually(lambda: workers.ran.total() == 3)
    await workers.rest(database)
    workers.ran.clear()
    await app.submit("hold", queue="b")
    await eventually(lambda: workers.ran.total() == 1)
    for _ in range(8):
        await app.submit("slow", queue="b")
    rest, rests = worker._rest, []

    async def resting(free: int) -> float:
        if workers.ran.total() < 9:
            rests.append(workers.ran.total())
        return await rest(free)

    monkeypatch.setattr(worker, "_rest", resting)
    workers.gate.set()
    await eventually(lambda: workers.ran.total() == 9)
    assert rests == []


async def test_a_worker_with_one_slot_looks_where_a_hint_says(workers, database, app):
    """And not into some other lane, which is empty: it would rest then."""
    await workers.start(1, concurrency=1)
    lanes = ("a", "b", "c", "d")
    for queue in lanes:
        await app.submit("greet", queue=queue)
    await eventually(lambda: workers.ran.total() == 4)
    for place, queue in enumerate(("a", "c", "b", "d")):
        await workers.rest(database)
        await app.submit("greet", queue=queue)
        await eventually(lambda place=place: workers.ran.total() == 5 + place)
