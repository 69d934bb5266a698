"""Leases of workers over HTTP: who falls silent, overruns or leaves, and what becomes of its jobs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

import rota.testing
from rota import App
from rota.scheduler.reaper import Overruns, Reaper
from rota.store.database import Database
from rota.store.work import UpkeepStore
from tests.support.api import query
from tests.support.remote_worker import RemoteWorker, submit, ticket, with_guarantee
from tests.support.sandboxes import isolated
from tests.support.server_fixtures import LiveServer, serving


class StillServer:
    """A server on a schema whose time the test moves."""

    def __init__(self, live: LiveServer, sandbox: rota.testing.Sandbox, hot: Database) -> None:
        self.live = live
        self.app = sandbox.app
        self.sandbox = sandbox
        self.upkeep = UpkeepStore(hot)

    async def reap(self) -> None:
        await Reaper(self.upkeep, self.app.settings).tick()

    async def end_overruns(self) -> None:
        await Overruns(self.upkeep, self.app.tasks, self.app.settings).tick()


@pytest.fixture
async def still(database_url: str) -> AsyncIterator[StillServer]:
    app = App(database_url=database_url, node_name="test", port=0)
    async with isolated(app) as sandbox, serving(sandbox.app) as live:
        settings = sandbox.app.settings
        hot = Database(settings.database_url or "", settings, hot=True)
        await hot.open()
        yield StillServer(live, sandbox, hot)
        await hot.close()


async def test_a_worker_that_falls_silent_is_dead_and_its_jobs_are_another_s(still: StillServer):
    worker = await RemoteWorker.register(still.live)
    id = await submit(still)
    job = await worker.claim_one()
    await still.sandbox.advance(seconds=still.app.settings.lease_seconds + 1)
    other = await RemoteWorker.register(still.live)
    await still.reap()
    again = await other.claim_one()
    assert (again["job"], again["attempt"]) == (str(id), 2)
    assert await worker.finish(job) == "stale"
    assert await worker.say("logs", job, first=1, lines=["late"]) == "stale"
    for what in ("heartbeat", "claim"):
        answer = await worker.ask(what, {})
        assert (answer.status_code, answer.json()["code"]) == (410, "worker-gone")
        assert "declared dead" in answer.json()["detail"]
    assert await other.finish(again) == "accepted"


async def test_heartbeats_and_claims_keep_a_worker_alive(still: StillServer):
    worker = await RemoteWorker.register(still.live)
    await submit(still)
    job = await worker.claim_one()
    for _ in range(3):
        await still.sandbox.advance(seconds=10)
        await still.reap()
        assert (await worker.heartbeat(job))["lost"] == []
        await still.sandbox.advance(seconds=10)
        await still.reap()
        assert await worker.claim() == []
    assert await worker.finish(job) == "accepted"


async def test_a_heartbeat_tells_what_to_stop(server: LiveServer):
    worker = await RemoteWorker.register(server)
    id = await submit(server)
    job = await worker.claim_one()
    assert await worker.heartbeat(job) == {
        "cancel": [], "lost": [], "heartbeat_seconds": 5.0, "lease_seconds": 15.0,
    }  # fmt: skip
    await server.app.jobs.cancel(id)
    assert (await worker.heartbeat(job))["cancel"] == [ticket(job)]
    assert await worker.finish(job, "cancelled") == "accepted"
    assert (await server.app.jobs.get(id)).state == "cancelled"
    answer = await worker.heartbeat(job)
    assert (answer["cancel"], answer["lost"]) == ([], [ticket(job)])


async def test_cancelled_is_no_way_to_lose_a_job_that_nobody_cancelled(server: LiveServer):
    worker = await RemoteWorker.register(server)
    id = await submit(server)
    assert await worker.finish(await worker.claim_one(), "cancelled") == "accepted"
    assert (await server.app.jobs.get(id)).state == "ready"


async def test_what_a_worker_never_heard_of_is_given_back_by_its_heartbeats(still: StillServer):
    worker = await RemoteWorker.register(still.live)
    lost, unsafe, known = await submit(still), None, await submit(still)
    client = await still.live.client("operator")
    said = {"task": "work", "guarantee": "at_most_once"}
    unsafe = (await client.post("/v1/jobs", json=said)).json()["id"]
    jobs = {job["job"]: job for job in await worker.claim()}
    mine = jobs[str(known)]
    await worker.heartbeat(mine)  # the answer may still be on its way
    assert (await still.app.jobs.get(lost)).state == "running"
    await still.sandbox.advance(seconds=8)
    await worker.heartbeat(mine)
    await still.sandbox.advance(seconds=8)
    await worker.heartbeat(mine)
    job = await still.app.jobs.get(lost)
    assert (job.state, job.attempt) == ("ready", 0)
    assert (await still.app.jobs.get(unsafe)).state == "failed"
    assert await worker.finish(mine) == "accepted"


async def test_what_overruns_its_timeout_is_ended_whatever_the_worker_says(still: StillServer):
    retry = {"max_attempts": 2, "base": 60, "jitter": 0}
    worker = await RemoteWorker.register(still.live, {"name": "work", "timeout": 8, "retry": retry})
    id = await submit(still)
    endless = await submit(still)
    await query(still.live, "update {}.present set timeout = null where id = $1", endless)
    job, other = await worker.claim()
    await still.sandbox.advance(seconds=12)
    await worker.heartbeat(job, other)
    await still.end_overruns()
    assert (await still.app.jobs.get(id)).state == "running"  # the worker may still end it itself
    await still.sandbox.advance(seconds=2)
    await still.end_overruns()
    stored = await still.app.jobs.get(id)
    assert (stored.state, stored.attempts[0].outcome) == ("scheduled", "timed_out")
    assert (stored.due_at - still.sandbox.now()).total_seconds() == pytest.approx(60)
    assert (await worker.heartbeat(job, other))["lost"] == [ticket(job)]
    assert await worker.finish(job) == "stale"
    assert await worker.finish(other) == "accepted"


async def test_an_attempt_that_gives_no_sign_of_life_is_ended_whatever_its_worker_says(
    still: StillServer,
):
    task = {"name": "work", "heartbeat_timeout": 20, "retry": {"max_attempts": 2, "base": 60}}
    worker = await RemoteWorker.register(still.live, task)
    ids = [await submit(still) for _ in range(3)]
    jobs = {job["job"]: job for job in await worker.claim()}
    silent, beating, progressing = (jobs[str(id)] for id in ids)
    for _ in range(4):
        await still.sandbox.advance(seconds=7)
        await worker.heartbeat(*jobs.values(), alive=[ticket(beating)])
        await worker.say("progress", progressing, done=1)
        await still.end_overruns()
    outcomes = [(await still.app.jobs.get(id)).state for id in ids]
    assert outcomes == ["scheduled", "running", "running"]
    job = await still.app.jobs.get(ids[0])
    assert job.attempts[0].outcome == "heartbeat_timeout"
    assert (
        "no sign of life for longer than its heartbeat_timeout of 20 s"
        in job.attempts[0].error.message
    )
    assert (await worker.heartbeat(*jobs.values()))["lost"] == [ticket(silent)]
    assert await worker.finish(silent) == "stale"
    sentence = (await still.app.jobs.explain(ids[1])).sentence
    assert "when it gives no sign of life for 20 s. Its last sign of life was" in sentence
    [event] = await still.app.events.list(kind="timed_out")
    assert (event.job_id, event.detail["reason"]) == (ids[0], "heartbeat")


async def test_a_worker_that_knows_nothing_of_signs_of_life_goes_on_as_before(still: StillServer):
    new = {"name": "work", "heartbeat_timeout": 20}
    await RemoteWorker.register(still.live, new)
    old = await RemoteWorker.register(still.live, "work")
    id = await submit(still)
    job = await old.claim_one()
    for _ in range(6):
        await still.sandbox.advance(seconds=7)
        await old.heartbeat(job)
        await still.end_overruns()
    assert (await still.app.jobs.get(id)).state == "running"
    assert await old.finish(job) == "accepted"


async def test_an_attempt_at_a_worker_over_http_ends_at_the_maximum_run_time(still: StillServer):
    await still.app.queues.set_max_run_time("default", 30)
    worker = await RemoteWorker.register(still.live)
    id = await submit(still)
    job = await worker.claim_one()
    for seconds in (14, 14, 14):
        await still.sandbox.advance(seconds=seconds)
        await worker.heartbeat(job)
        await still.end_overruns()
    stored = await still.app.jobs.get(id)
    assert stored.attempts[0].outcome == "timed_out"
    assert "the maximum run time of queue 'default', 30 s" in stored.attempts[0].error.message


async def test_who_leaves_gives_back_what_it_holds(server: LiveServer):
    worker = await RemoteWorker.register(server)
    id = await submit(server)
    unsafe = await with_guarantee(server, "at_most_once")
    jobs = await worker.claim()
    assert (await worker.leave()).json() == {"returned": 2}
    job = await server.app.jobs.get(id)
    assert (job.state, job.attempt) == ("ready", 0)
    assert (await server.app.jobs.get(unsafe)).state == "failed"  # it may have begun
    assert await query(server, "select * from {}.batch") == []
    again = await worker.leave()
    assert (again.status_code, again.json()) == (200, {"returned": 0})
    assert await worker.finish(jobs[0]) == "accepted"  # given back, and nobody's: nothing changes
    assert (await server.app.jobs.get(id)).state == "ready"
    assert (await worker.ask("claim", {})).status_code == 410


async def test_who_drains_is_given_nothing_more(server: LiveServer):
    worker = await RemoteWorker.register(server)
    await submit(server)
    job = await worker.claim_one()
    await worker.heartbeat(job, draining=True)
    [node] = await server.app.nodes.list()
    assert (node.state, node.running) == ("draining", 1)
    answer = await worker.ask("claim", {})
    assert (answer.status_code, answer.json()["code"]) == (409, "worker-draining")
    assert await worker.finish(job) == "accepted"


async def test_any_server_answers_any_call(make_app: Callable[..., App]):
    async with serving(make_app(port=0)) as one, serving(make_app(port=0)) as two:
        worker = await RemoteWorker.register(one)
        elsewhere = RemoteWorker(await two.client("worker"), worker.id)
        await submit(one)
        first = await worker.claim(request="r")
        [again] = await elsewhere.claim(request="r")
        assert await worker.finish(first[0]) == "stale"
        assert (await worker.heartbeat(again))["lost"] == []
        assert await worker.say("progress", again, done=1) == "accepted"
        assert await worker.finish(again) == "accepted"
        assert await elsewhere.finish(again) == "accepted"
