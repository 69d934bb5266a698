"""Workflows and runs over HTTP."""

from __future__ import annotations

import httpx
import pytest

from proof.waiting import eventually
from rota import App, Retry
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.node import Node
from tests.support.server_fixtures import LiveServer


def declare(app: App) -> None:
    @app.task(retry=Retry(max_attempts=1))
    async def add(a: int, b: int = 1) -> int:
        if a < 0:
            raise ValueError("below zero")
        return a + b

    flow = app.workflow("sums")
    first = flow.step(add, name="first")
    flow.step(add, first, name="second", b=flow.input("b"))


@pytest.fixture
async def live(server: LiveServer) -> LiveServer:
    declare(server.app)
    await server.app.workflows.declare()
    return server


async def test_a_run_over_http(live: LiveServer) -> None:
    http = await live.client("operator")
    assert [each["name"] for each in (await http.get("/v1/workflows")).json()["items"]] == ["sums"]
    assert (await http.get("/v1/workflows/sums")).json()["version"] == 1
    body = {"input": {"a": -1, "b": 2}, "key": "one"}
    started = await http.post("/v1/workflows/sums/runs", json=body)
    assert started.status_code == 201, started.text
    again = (await http.post("/v1/workflows/sums/runs", json=body)).json()
    assert (again["id"], again["existed"]) == (started.json()["id"], True)
    run = f"/v1/runs/{started.json()['id']}"
    async with Node(live.app).running():
        await ended(http, run)
        steps = (await http.get(f"{run}/steps")).json()["items"]
        assert [(step["name"], step["state"]) for step in steps] == [
            ("first", "failed"), ("second", "upstream_failed")
        ]  # fmt: skip
        assert (await http.get(f"{run}/explain")).json()["code"] == "failed"
        why = (await http.get(f"{run}/steps/second/explain")).json()
        assert why["code"] == "upstream_failed"
        assert "after step 'first' (failed)" in why["sentence"]
        assert (await http.get(f"{run}/steps/none/explain")).status_code == 404
        skipped = await http.post(f"{run}/steps/first/skip", json={"result": 40})
        assert skipped.json()["outcome"] == "skipped"
        await ended(http, run)
    assert (await http.get(run)).json()["state"] == "succeeded"
    assert (await http.get(f"{run}/result")).json() == {"result": 42}
    assert (await http.post(f"{run}/cancel")).status_code == 409
    listed = (await http.get("/v1/runs?state=succeeded&limit=1")).json()
    assert [each["id"] for each in listed["items"]] == [started.json()["id"]]
    following = await http.get(f"/v1/runs?state=succeeded&limit=1&cursor={listed['next']}")
    assert following.json()["items"] == []


async def ended(http: httpx.AsyncClient, run: str) -> None:
    async def has_ended() -> bool:
        return bool((await http.get(run)).json()["state"] != "running")

    await eventually(has_ended)


async def test_bad_requests_are_refused(live: LiveServer) -> None:
    http = await live.client("operator")
    for body, status in [
        ({"input": {}}, 422), ({"input": {"a": 1, "b": 1, "c": 1}}, 422), ({"input": []}, 400),
        ({"input": {"a": 1, "b": 1}, "unknown": 1}, 400),
    ]:  # fmt: skip
        answer = await http.post("/v1/workflows/sums/runs", json=body)
        assert answer.status_code in (status, 422), answer.text
    assert (await http.post("/v1/workflows/none/runs", json={})).status_code == 404
    assert (await http.get("/v1/workflows/sums?version=7")).status_code == 404
    assert (await http.get("/v1/runs?state=odd")).status_code in (400, 422)
    assert (await http.get("/v1/runs/01890a5d-ac96-774b-bcce-b302099a8057")).status_code == 404
    viewer = await live.client("viewer")
    assert (await viewer.post("/v1/workflows/sums/runs", json={})).status_code == 403


async def test_a_run_belongs_to_its_namespace(live: LiveServer) -> None:
    http = await live.client("operator")
    run = (await http.post("/v1/workflows/sums/runs", json={"input": {"a": 1, "b": 1}})).json()
    other = await live.client("operator", "acme")
    assert (await other.get("/v1/workflows")).json()["items"] == []
    assert (await other.get(f"/v1/runs/{run['id']}")).status_code == 404
    assert (await other.post(f"/v1/runs/{run['id']}/cancel")).status_code == 404
    assert (await other.get("/v1/runs")).json()["items"] == []


async def test_a_run_is_in_the_trace_of_the_request_that_started_it(live: LiveServer) -> None:
    http = await live.client("operator")
    given = f"00-{'a' * 32}-{'b' * 16}-01"
    started = await http.post(
        "/v1/workflows/sums/runs", json={"input": {"a": 1, "b": 2}}, headers={"traceparent": given}
    )
    async with Node(live.app).running():
        await ended(http, f"/v1/runs/{started.json()['id']}")
    jobs = await live.app.jobs.list()
    assert [job.headers for job in jobs] == [{"traceparent": given}] * 2


async def test_a_set_of_workflows_is_stored_as_a_whole_or_refused(server: LiveServer):
    client = await server.client("operator")
    good = {"name": "good", "steps": [{"name": "only", "task": "greet"}]}
    tenant = server.context.tenant("default")
    await tenant.workflows.put(
        Graph(Definition(name="coded", steps=[StepDefinition(name="only", task="greet")]))
    )
    for bad, status in (
        ({"name": "bad", "steps": [{"name": "only", "task": "rota.webhook"}]}, 422),  # internal
        ({**good, "name": "bad", "code_version": 1}, 422),  # a durable function
        ({**good, "name": "inline:bad"}, 422),
        ({**good, "name": "coded"}, 409),
    ):
        answer = await client.post("/v1/workflows:apply", json={"definitions": [good, bad]})
        assert answer.status_code == status, answer.text
        assert [each["name"] for each in (await client.get("/v1/workflows")).json()["items"]] == [
            "coded"
        ]
    answer = await client.post("/v1/workflows:apply", json={"definitions": [good]})
    assert [each["version"] for each in answer.json()["items"]] == [1]
    assert (
        await (await server.client("viewer")).post("/v1/workflows:apply", json={})
    ).status_code == 403
