"""Workers over HTTP, and submits through the server, under limits: as their tenant."""

from __future__ import annotations

from tests.support.remote_worker import RemoteWorker
from tests.support.server_fixtures import LiveServer


async def test_a_tenant_s_jobs_and_workers_obey_its_limits(server: LiveServer):
    operator = await server.client("operator")
    worker = await RemoteWorker.register(server)
    bodies = [{"task": "work", "concurrency_key": key} for key in ("a", "a", "b", "b")]
    for body in bodies:
        assert (await operator.post("/v1/jobs", json=body)).status_code in (200, 201, 202)
    answer = await operator.put("/v1/queues/default", json={"concurrency_per_key": 1})
    assert answer.json()["concurrency_per_key"] == 1
    jobs = await worker.claim()
    assert len(jobs) == 2
    assert await worker.claim() == []
    limits = (await operator.get("/v1/limits")).json()["items"]
    assert {(one["name"], one["running"]) for one in limits} == {
        ("queue:default/key:a", 1),
        ("queue:default/key:b", 1),
    }
    name = {"name": "queue:default/key:a"}
    holders = (await operator.get("/v1/limits/holders", params=name)).json()["items"]
    assert len(holders) == 1
    assert holders[0]["id"] in {job["job"] for job in jobs}
    for job in jobs:
        assert await worker.finish(job, result=None) == "accepted"
    await operator.put("/v1/queues/default", json={"concurrency_per_key": None, "rate": "1/hour"})
    assert len(await worker.claim()) == 1
    assert await worker.claim() == []


async def test_bad_limits_are_refused_by_field(server: LiveServer):
    operator = await server.client("operator")
    await operator.post("/v1/jobs", json={"task": "work"})
    for body in ({"concurrency": 0}, {"rate": "often"}, {"rate_burst": 3}, {"nothing": 1}):
        answer = await operator.put("/v1/queues/default", json=body)
        assert answer.status_code in (400, 422), answer.text
    answer = await operator.post("/v1/jobs", json={"task": "work", "order_key": "x" * 256})
    assert answer.status_code in (400, 422)
    assert "order_key" in answer.text
