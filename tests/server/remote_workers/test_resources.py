"""Workers over HTTP tell their resources and labels, and get only what fits."""

from __future__ import annotations

from tests.support.remote_worker import RemoteWorker
from tests.support.server_fixtures import LiveServer


async def submit(operator, count=1, **body) -> list[str]:
    ids = []
    for _ in range(count):
        answer = await operator.post("/v1/jobs", json={"task": "work", **body})
        assert answer.status_code in (200, 201, 202), answer.text
        ids.append(answer.json()["id"])
    return ids


async def test_a_worker_gets_only_what_fits_beside_what_it_holds(server: LiveServer):
    operator = await server.client("operator")
    worker = await RemoteWorker.register(server, resources={"gpu": 3, "memory": "4GB"})
    await submit(operator, 5, resources={"gpu": 1, "memory": "1GB"})
    await submit(operator, 1, resources={"gpu": 2})
    held = await worker.claim(10)
    held += await worker.claim(10)
    held += await worker.claim(10)
    gpus = await taken(operator, held)
    assert 2 <= gpus <= 3
    assert await worker.claim(10) == []
    for job in held:
        assert await worker.finish(job, result=None) == "accepted"
    assert await worker.claim(10) != []


async def test_several_claims_at_once_take_no_more_than_there_is(server: LiveServer):
    import asyncio

    operator = await server.client("operator")
    worker = await RemoteWorker.register(server, resources={"gpu": 2})
    await submit(operator, 8, resources={"gpu": 1})
    claimed = await asyncio.gather(*(worker.claim(4) for _ in range(4)))
    assert sum(len(jobs) for jobs in claimed) == 2


async def test_a_worker_that_tells_nothing_gets_jobs_without_resources(server: LiveServer):
    operator = await server.client("operator")
    worker = await RemoteWorker.register(server)
    (big,) = await submit(operator, 1, resources={"gpu": 1})
    plain = await submit(operator, 2)
    jobs = await worker.claim(10)
    assert {job["job"] for job in jobs} == set(plain)
    why = (await operator.get(f"/v1/jobs/{big}/explain")).json()
    assert why["code"] == "resources_unfit"
    assert "needs gpu=1; no node has gpu" in why["sentence"]


async def test_a_worker_with_the_label_claims_at_once_and_others_later(server: LiveServer):
    operator = await server.client("operator")
    near = await RemoteWorker.register(server, labels=["model7"])
    far = await RemoteWorker.register(server)
    await submit(operator, 2, near="model7", near_patience=600)
    assert await far.claim(10) == []
    assert len(await near.claim(1)) == 1
    (later,) = await submit(operator, 1, near="model8", near_patience=0)
    assert [job["job"] for job in await far.claim(10)] == [later]


async def test_bodies_are_refused_by_field(server: LiveServer):
    operator = await server.client("operator")
    for body in ({"resources": {"memory": "lots"}}, {"near": "two words"}, {"near_patience": 3}):
        answer = await operator.post("/v1/jobs", json={"task": "work", **body})
        assert answer.status_code in (400, 422), answer.text
        assert next(iter(body)) in answer.text


async def taken(operator, jobs) -> int:
    total = 0
    for job in jobs:
        found = (await operator.get(f"/v1/jobs/{job['job']}")).json()
        total += found["resources"]["gpu"]
    return int(total)
