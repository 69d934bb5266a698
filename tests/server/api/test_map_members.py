"""Members of maps over HTTP, and on the dashboard's page of a run."""

from __future__ import annotations

from typing import Any

import pytest

from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.operations.run_advance import RunAdvance
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import enter


@pytest.fixture
async def run(server: LiveServer) -> str:
    """A run with a map of three members, of which the second has failed."""
    step = StepDefinition(name="parts", map="load", over=["a", "b", "c"], item="row", size=3)
    app = server.app
    await app.workflows.put(Graph(Definition(name="mapped", steps=[step])))
    id = (await app.runs.start("mapped")).id
    database = (await app.store()).database
    await RunAdvance(database).advance(id)
    async with database.connection() as connection:
        schema = database.schema
        await connection.execute(f"delete from {schema}.present where run_id = $1", id)
        for change in (
            "update {0}.map_chunk set state = 5, done = 3, failed = 1 where run_id = $1",
            (
                "update {0}.map set running = 0, ended = 1, failed = 1, succeeded = 2, job_id = null"
                " where run_id = $1"
            ),
            "update {0}.step set state = 6 where run_id = $1",
            "update {0}.run set state = 6, ended_at = {0}.now() where id = $1",
            "insert into {0}.map_result values ($1, 0, 0, 3, '[1, null, 3]')",
            (
                "insert into {0}.map_member (run_id, step, number, state, attempt, error)"
                """ values ($1, 0, 1, 6, 5, '{{"type": "ValueError", "message": "b is broken"}}')"""
            ),
        ):
            await connection.execute(change.format(schema), id)
    return str(id)


async def test_members_are_listed_in_pages_and_retried(server: LiveServer, run: str) -> None:
    client = await server.client("operator")
    path = f"/v1/runs/{run}/steps/parts/members"
    page: Any = (await client.get(path, params={"limit": 2})).json()
    assert page["next"] == 1
    assert [(each["number"], each["item"], each["state"]) for each in page["items"]] == [
        (0, "a", "succeeded"), (1, "b", "failed"),
    ]  # fmt: skip
    assert page["items"][0]["result"] == 1
    rest: Any = (await client.get(path, params={"after": 1})).json()
    assert [(each["number"], each["result"]) for each in rest["items"]] == [(2, 3)]
    [failed] = (await client.get(path, params={"state": "failed"})).json()["items"]
    assert failed["error"]["message"] == "b is broken"
    step: Any = (await client.get(f"/v1/runs/{run}/steps/parts")).json()
    assert (step["kind"], step["progress"]["failed"]) == ("map", 1)
    assert (await client.post(f"{path}/retry", json={"numbers": [2]})).status_code == 409
    assert (await client.get(path, params={"state": "odd"})).status_code == 422
    answer = await client.post(f"{path}/retry", json={"numbers": [1]})
    assert (answer.status_code, answer.json()["steps"]) == (200, 1)
    assert (await client.get(f"/v1/runs/{run}")).json()["state"] == "running"


async def test_the_page_of_a_run_lists_failed_members(server: LiveServer, run: str) -> None:
    browser = await enter(server)
    page = (await browser.get(f"/runs/{run}")).text
    assert "Failed members of parts" in page
    assert "b is broken" in page
    assert f"/runs/{run}/steps/parts/members/1/retry" in page
    assert "3 of 3, 1 failed" in page  # the map's box
