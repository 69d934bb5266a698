"""Maps whose task only workers over HTTP have."""

from __future__ import annotations

from uuid import UUID

from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.operations.run_advance import RunAdvance
from tests.support.remote_worker import RemoteWorker
from tests.support.server_fixtures import LiveServer


async def start(server: LiveServer, **options: object) -> UUID:
    step = StepDefinition(name="parts", map="work", over=["a", "b"], item="row", **options)  # type: ignore[arg-type]
    await server.app.workflows.put(Graph(Definition(name="mapped", steps=[step])))
    id = (await server.app.runs.start("mapped")).id
    await RunAdvance((await server.app.store()).database).advance(id)
    return id


async def test_members_that_are_jobs_run_over_http(server: LiveServer) -> None:
    worker = await RemoteWorker.register(server, "work")
    run = await start(server, each="job")
    jobs = await worker.claim()
    assert sorted(job["payload"]["row"] for job in jobs) == ["a", "b"]
    for job in jobs:
        assert await worker.finish(job, result=job["payload"]["row"] * 2) == "accepted"
    await RunAdvance((await server.app.store()).database).advance(run)
    assert (await server.app.runs.get(run)).state == "succeeded"
    members = await server.app.runs.members(run, "parts")
    assert [member.result for member in members] == ["aa", "bb"]


async def test_chunks_fail_with_an_error_that_says_what_to_do(server: LiveServer) -> None:
    worker = await RemoteWorker.register(server, "work")
    run = await start(server)
    assert await worker.claim() == []
    await RunAdvance((await server.app.store()).database).advance(run)
    assert (await server.app.runs.get(run)).state == "failed"
    members = await server.app.runs.members(run, "parts", state="failed")
    assert [member.number for member in members] == [0, 1]
    assert 'each="job"' in members[0].error["message"]
