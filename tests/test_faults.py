"""Real processes, killed, stopped and cut off in the middle of their work."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from proof.waiting import eventually
from rota import App
from rota.store.embedded import open_embedded
from tests.support import fault_tasks
from tests.support.cluster import Cluster, all_ended

FAST = {"heartbeat": 0.4, "missed_heartbeats": 3, "kill_grace": 1, "grace": 5}


@pytest.fixture
async def app(make_app: Callable[..., App], database_url: str) -> AsyncIterator[App]:
    """The fault tasks' app on the test's own schema."""
    own = make_app(**FAST)
    async with fault_tasks.app.using(own.settings) as app:
        store = await app.store()
        async with store.database.connection() as connection:
            await connection.execute(
                "drop table if exists public.fault_effect;"
                "create table public.fault_effect (number int not null)"
            )
        yield app


@pytest.fixture
def cluster(app: App, tmp_path: Path) -> Any:
    settings = app.settings
    cluster = Cluster(tmp_path, settings.database_url or "", settings.schema, **FAST)
    yield cluster
    cluster.stop()


async def effects(app: App) -> Counter[int]:
    async with (await app.store()).database.connection() as connection:
        return Counter(
            row[0] for row in await connection.fetch("select number from public.fault_effect")
        )


@pytest.mark.proof
async def test_killed_workers_lose_nothing_and_double_nothing_they_promised_not_to(
    app: App, cluster: Cluster
) -> None:
    counts = {"at_least": 400, "at_most": 200, "exactly": 200, "exactly_in_a_child": 200}
    handles = {
        name: await app.require_task(name).submit_many([(n,) for n in range(count)])
        for name, count in counts.items()
    }
    kinds = ("at_least", "at_most", "exactly", "child")
    victim = cluster.start("worker")
    await eventually(
        lambda: all(cluster.entries(kind) for kind in kinds),
        what="the victim's being busy with everything",
    )
    victim.kill()
    cluster.start("worker", "scheduler")
    jobs = await all_ended(app, [handle.id for group in handles.values() for handle in group])

    states = {
        name: Counter(jobs[handle.id].state for handle in group) for name, group in handles.items()
    }
    begun = {kind: Counter(number for number, _, _ in cluster.entries(kind)) for kind in kinds}
    assert states["at_least"] == {"succeeded": 400}
    assert set(begun["at_least"]) == set(range(400))
    assert states["exactly"] == {"succeeded": 200}
    assert states["exactly_in_a_child"] == {"succeeded": 200}
    assert await effects(app) == dict.fromkeys(range(200), 2)  # one by each of the two tasks
    assert max(begun["at_most"].values()) == 1
    for number, handle in enumerate(handles["at_most"]):
        job = jobs[handle.id]
        # Either it ran and that is known, or it may have run and that is known.
        assert (job.state == "succeeded") <= (begun["at_most"][number] == 1)
        assert job.state == "succeeded" or (job.error and job.error.type == "NodeLost")


async def test_tokens_rise_with_every_claim_of_a_job(app: App, cluster: Cluster) -> None:
    handles = await app.require_task("at_least").submit_many([(n,) for n in range(300)])
    victim = cluster.start("worker")
    await eventually(lambda: len(cluster.entries("at_least")) > 20)
    victim.kill()
    cluster.start("worker", "scheduler")
    await all_ended(app, [handle.id for handle in handles])
    tokens: dict[int, list[int]] = {}
    for number, token, _ in cluster.entries("at_least"):
        tokens.setdefault(number, []).append(token)
    assert any(len(own) > 1 for own in tokens.values()), "the kill interrupted nothing"
    assert all(own == sorted(set(own)) for own in tokens.values())


async def test_a_worker_that_slept_past_its_lease_is_refused_and_recovers_by_itself(
    app: App, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    sleeper = cluster.start("worker")
    handle = await app.require_task("wait_for_file").submit(str(gate))
    await eventually(lambda: cluster.entries("waiting"))
    os.kill(sleeper.pid, signal.SIGSTOP)
    other = cluster.start("worker", "scheduler")
    await eventually(lambda: len(cluster.entries("waiting")) == 2, what="the job's second start")
    gate.touch()
    assert await handle.result(30) == other.pid

    os.kill(sleeper.pid, signal.SIGCONT)

    async def live_names() -> list[str]:
        return [node.name for node in await app.nodes.list() if node.state == "live"]

    await eventually(
        lambda: "was declared dead" in cluster.logs(), what="the sleeper's noticing it"
    )
    name = f":{sleeper.pid}"
    await eventually(
        lambda: _any_ends_with(live_names, name), what="the sleeper's return under a new identity"
    )
    job = await handle.status()
    assert (job.state, job.result) == ("succeeded", other.pid)
    other.terminate()
    other.wait()
    assert await (await app.require_task("which_process").submit()).result(30) == sleeper.pid


async def _any_ends_with(names: Callable[[], Any], end: str) -> bool:
    return any(name.endswith(end) for name in await names())


async def test_code_that_won_t_stop_is_stopped_and_crashes_take_down_one_job(
    app: App, cluster: Cluster
) -> None:
    cluster.start("worker", "scheduler")
    endless = [await app.require_task(name).submit() for name in ("spin", "block_the_loop")]
    crash = await app.require_task("segfault").submit()
    neighbours = await app.require_task("double").submit_many([(n,) for n in range(300)])
    for handle in endless:
        job = await handle.wait(30)
        assert job.state == "failed"
        assert [attempt.outcome for attempt in job.attempts] == ["timed_out"]
    job = await crash.wait(30)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.type == "Quarantined"
    assert [attempt.outcome for attempt in job.attempts] == ["crashed"] * 3
    assert "SIGSEGV" in job.error.message
    assert await app.jobs.dead_letters(task="segfault") == [crash.id]
    results = [await handle.result(30) for handle in neighbours]
    assert results == [2 * n for n in range(300)]


@pytest.mark.proof
async def test_a_poison_pill_that_kills_its_node_is_quarantined_and_the_innocent_survive(
    app: App, cluster: Cluster
) -> None:
    cluster.start("scheduler")
    pill = await app.require_task("kill_the_node").submit()
    innocent = await app.require_task("at_least").submit_many([(n,) for n in range(30)])

    async def keep_one_worker_alive() -> None:
        worker = cluster.start("worker")
        while True:
            if worker.poll() is not None:
                worker = cluster.start("worker")
            await asyncio.sleep(0.05)

    keeping = asyncio.create_task(keep_one_worker_alive())
    try:
        job = await pill.wait(60)
        jobs = await all_ended(app, [handle.id for handle in innocent])
    finally:
        keeping.cancel()
    assert job.state == "failed"
    assert job.error is not None
    assert job.error.type == "Quarantined"
    assert [attempt.outcome for attempt in job.attempts] == ["lost"] * 3
    assert {job.state for job in jobs.values()} == {"succeeded"}


async def test_sigterm_gives_back_what_has_not_started_and_lets_the_rest_end(
    app: App, cluster: Cluster, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    worker = cluster.start("worker")
    running = await app.require_task("wait_for_file").submit(str(gate))
    await eventually(lambda: cluster.entries("waiting"))
    worker.terminate()
    later = await app.require_task("which_process").submit()

    async def draining() -> bool:
        return [node.state for node in await app.nodes.list()] == ["draining"]

    await eventually(draining, what="the drain")
    gate.touch()
    assert await running.result(30) == worker.pid
    assert worker.wait(30) == 0
    job = await later.status()
    assert (job.state, job.attempt) == ("ready", 0)
    assert await app.nodes.list() == []


async def test_a_second_signal_returns_what_runs_at_once(
    app: App, cluster: Cluster, tmp_path: Path
) -> None:
    worker = cluster.start("worker")
    running = await app.require_task("wait_for_file").submit(str(tmp_path / "never"))
    await eventually(lambda: cluster.entries("waiting"))
    worker.terminate()
    await eventually(lambda: _is_draining(app))
    worker.terminate()
    assert worker.wait(60) == 0
    job = await running.status()
    assert (job.state, job.attempt) == ("ready", 0)


async def _is_draining(app: App) -> bool:
    return [node.state for node in await app.nodes.list()] == ["draining"]


@pytest.mark.proof
async def test_a_database_that_was_away_costs_no_job_and_no_restart(tmp_path: Path) -> None:
    """A server of its own, stopped for longer than a lease and started again."""
    data_dir = tmp_path / "db"
    server = open_embedded(data_dir)
    settings = fault_tasks.app.settings.replace(database_url=server.url, **FAST)
    cluster = Cluster(tmp_path, server.url, "rota", **FAST)
    try:
        async with fault_tasks.app.using(settings) as app:
            await app.migrate()
            await _run_through_an_outage(app, cluster, server, data_dir)
    finally:
        cluster.stop()
        server.close()


async def _run_through_an_outage(app: App, cluster: Cluster, server: Any, data_dir: Path) -> None:
    nodes = [cluster.start("worker", "scheduler"), cluster.start("worker")]

    async def both_are_up() -> bool:
        return len(await app.nodes.list()) == 2

    await eventually(both_are_up, what="the start of both nodes")
    before = await app.require_task("at_least").submit_many([(n,) for n in range(1500)])
    due_meanwhile = [
        await app.require_task("at_least").options(delay=2).submit(number)
        for number in range(1500, 1520)
    ]
    await eventually(lambda: len(cluster.entries("at_least")) > 50)
    postmaster = int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0])
    os.kill(postmaster, signal.SIGINT)
    await eventually(lambda: not _alive(postmaster), what="the server's end")
    with pytest.raises((OSError, asyncpg.PostgresError)):
        await asyncpg.connect(server.url)
    outage = float(os.environ.get("ROTA_TEST_OUTAGE", "4"))
    await asyncio.sleep(outage)  # the outage itself: longer than a lease
    again = open_embedded(data_dir)
    try:
        jobs = await all_ended(app, [handle.id for handle in (*before, *due_meanwhile)])
        assert {job.state for job in jobs.values()} == {"succeeded"}
        assert [node.poll() for node in nodes] == [None, None]
        assert set(range(1520)) == {number for number, _, _ in cluster.entries("at_least")}
    finally:
        again.close()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_durable_function_goes_on_after_its_worker_was_killed(
    app: App, cluster: Cluster
) -> None:
    """What is recorded isn't done again; only what was under way may be."""
    runs = [await fault_tasks.journey.start(number) for number in range(10)]
    victim = cluster.start("worker")
    await eventually(lambda: len(cluster.entries("step")) > 12, what="the victim's being busy")
    victim.kill()
    recorded = {
        each.result
        for run in runs
        for each in await app.runs.history(run.id)
        if each.kind == "step"
    }
    cluster.start("worker", "scheduler")
    for number, run in enumerate(runs):
        steps = [number * 10 + place for place in range(3)]
        assert await run.result(90) == [*steps, 2, number * 10 + 9]
    begun = Counter(number for number, _, _ in cluster.entries("step"))
    assert set(begun) == {n * 10 + place for n in range(10) for place in (0, 1, 2, 9)}
    assert {number for number, count in begun.items() if count > 1} <= set(begun) - recorded
    called = Counter(number for number, _, _ in cluster.entries("at_least"))
    assert called == dict.fromkeys([1000 + n * 10 + k for n in range(10) for k in range(2)], 1)
