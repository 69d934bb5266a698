"""The pages of tasks, nodes and queues: statistics over time, and draining."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from proof.waiting import eventually
from rota import App
from rota.errors import Conflict
from rota.node import Node
from rota.store.run_stats import RunStatsStore
from tests.support.api import query
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import csrf_of, enter


async def run_jobs(
    server: LiveServer, count: int, *, failed: int = 0, task: str = "charge"
) -> None:
    """As if these had ended a moment ago, each after half a second."""
    columns = (
        "(id, due_at, created_at, started_at, finished_at, state, priority, guarantee, attempt, "
        "max_attempts, crashes, namespace, lane, task, payload, error)"
    )
    for table, state, number in (("past", 5, count), ("dead", 6, failed)):
        await query(
            server,
            f"insert into {{}}.{table} {columns} select gen_random_uuid(), now() - interval '1 s', "
            f"now(), now() - interval '0.5 s', now(), {state}, 0, 1, 1, 5, 0, 'default', "
            "'default/money', $1, "
            "'{}', case when $3 then json_build_object('type', 'ValueError', 'message', 'no') end "
            "from generate_series(1, $2::int)", task, number, state == 6,
        )  # fmt: skip
    await RunStatsStore((await server.app.store()).database).fold(10_000)


async def test_the_page_of_a_task_has_its_runs_errors_and_quantiles(server: LiveServer):
    await run_jobs(server, 9, failed=1)
    browser = await enter(server)
    for within in ("15m", "1h", "6h", "24h", "7d", "30d"):
        page = await browser.get(f"/tasks/charge?within={within}")
        assert page.status_code == 200, within
        figures = dict(re.findall(r"<dt>([^<]+)</dt><dd[^>]*>(?:<a[^>]*>)?([^<]+)", page.text))
        assert figures[f"Runs, {within}"] == "10"
        assert figures["Failed"] == "1"
        assert 0.35 < float(figures["Duration, p95"].split()[0]) / 1000 < 0.75, figures
        assert page.text.count('<svg class="chart"') == 4
    assert "10.0%" in page.text
    assert "ValueError" in page.text
    assert (await browser.get("/tasks/charge?within=2y")).status_code == 422
    client = await server.client("viewer")
    stats = (await client.get("/v1/tasks/charge/stats?within=1h")).json()
    assert (stats["runs"], stats["failed"], len(stats["periods"])) == (10, 1, 60)
    assert stats["lag"]["p50"] == pytest.approx(0.5, rel=0.3)


async def test_a_column_leads_to_the_jobs_that_it_counts(server: LiveServer):
    await run_jobs(server, 2, failed=1)
    await run_jobs(server, 4, task="other")
    browser = await enter(server)
    page = (await browser.get("/tasks/charge?within=15m")).text
    links = [
        html.unescape(one) for one in re.findall(r'<a href="(/jobs\?[^"]*ended_from[^"]*)"', page)
    ]
    assert len(links) in (1, 2)  # a minute may have passed
    found = {
        id
        for link in links
        for id in re.findall(r'<tr id="job-([^"]+)"', (await browser.get(link)).text)
    }
    assert len(found) == 3
    assert (await browser.get("/jobs?ended_from=soon")).status_code == 422


async def test_tasks_are_listed_with_their_runs(server: LiveServer):
    await server.app.registry.list()
    await query(
        server,
        "insert into {}.task (namespace, name, queue, priority, guarantee, max_attempts, needs) "
        "values ('default', 'charge', 'money', 0, 1, 5, '{}')",
    )
    await run_jobs(server, 3, failed=1)
    browser = await enter(server)
    row = re.search(r'<tr id="task-charge">.*?</tr>', (await browser.get("/tasks")).text)
    assert row
    assert re.findall(r'data-name="(?:runs|failed|error rate)">([^<]+)<', row[0]) == [
        "4",
        "1",
        "25.0%",
    ]


async def test_queues_have_lines_of_what_was_ready_and_ran(server: LiveServer):
    await server.context.tenant("default").submit("charge", {}, queue="money")
    await RunStatsStore((await server.app.store()).database).sample_queues(100)
    await run_jobs(server, 7)
    browser = await enter(server)
    page = (await browser.get("/queues?within=15m")).text
    row = re.search(r'<tr id="queue-money">.*?</tr>', page, re.DOTALL)
    assert row
    assert 'aria-label="Ready, 15m: at most 1"' in row[0]
    assert 'aria-label="Runs, 15m: 7"' in row[0]


async def add_node(server: LiveServer, **given: object) -> UUID:
    id = uuid4()
    await query(
        server,
        "insert into {}.node (id, namespace, name, host, pid, version, roles, expires_at, slots, "
        "running, queues, capabilities, tasks, remote) "
        "values ($1, 'default', 'n1', 'h', 1, '0', '{worker}', "
        "now() + interval '1 h', 10, 2, '{}', '{}', '{}', $2)", id, bool(given.get("remote")),
    )  # fmt: skip
    return id


async def test_a_node_is_drained_undrained_and_stopped_by_its_page(server: LiveServer):
    id = await add_node(server)
    browser = await enter(server)
    page = await browser.get(f"/nodes/{id}")
    csrf = csrf_of(page)
    assert f"rota nodes drain {id}" in page.text
    for verb, wish in (("drain", "drain"), ("undrain", None)):
        answer = await browser.post(f"/nodes/{id}/{verb}", data={"csrf": csrf})
        assert answer.status_code == 303
        assert (await server.app.nodes.get(id)).wish == wish
    asked = await browser.post(f"/nodes/{id}/stop", data={"csrf": csrf})
    assert "Stop node n1?" in asked.text
    assert (await server.app.nodes.get(id)).wish is None
    await browser.post(f"/nodes/{id}/stop", data={"csrf": csrf, "sure": "yes"})
    assert (await server.app.nodes.get(id)).wish == "stop"
    with pytest.raises(Conflict):  # it can't be taken back
        await server.app.nodes.undrain(id)
    remote = await add_node(server, remote=True)
    with pytest.raises(Conflict, match="over HTTP"):
        await server.app.nodes.drain(remote)


async def test_a_node_page_shows_what_runs_and_ran_there(server: LiveServer):
    id = await add_node(server)
    job = (await server.context.tenant("default").submit("charge", {}, queue="money")).id
    await query(
        server,
        "with taken as (update {}.present set state = 4, node = $1, token = 3, claimed_at = now(), "
        "attempt = 1 where id = $2 returning *) "
        "insert into {}.batch (token, lane, node, low, high, low_id, high_id) "
        "select token, lane, node, rank, rank, id, id from taken", id, job,
    )  # fmt: skip
    await run_jobs(server, 3)
    await query(server, "update {}.past set node = $1", id)
    browser = await enter(server)
    page = (await browser.get(f"/nodes/{id}")).text
    assert f'id="job-{job}"' in page
    gantt = page[page.index('id="gantt"') : page.index('id="running"')]
    assert gantt.count('<rect class="good"') == 3 + 1  # and the legend
    assert f"/jobs/{job}" in gantt
    listed = (await browser.get(f"/jobs?node={id}")).text
    assert listed.count('<tr id="job-') == 4
    assert f'href="/nodes/{id}"' in listed


async def test_a_drained_node_ends_what_runs_takes_nothing_and_goes_on_when_undrained(
    make_app: Callable[..., App],
):
    app: App = make_app(heartbeat=0.05, missed_heartbeats=100)
    ran: list[int] = []

    @app.task
    async def note(n: int) -> None:
        ran.append(n)

    async with Node(app).running() as node:
        await (await note.submit(1)).wait(60)
        await app.nodes.drain(node.id)

        await eventually(lambda: _is(app, node.id, "draining"))
        waiting = await note.submit(2)
        # A whole round of heartbeats and claims later it is where it was.
        seen = (await app.nodes.get(node.id)).heartbeat_age
        await eventually(lambda: _younger(app, node.id, seen))
        assert (await app.jobs.get(waiting.id)).state == "ready"
        assert ran == [1]
        await app.nodes.undrain(node.id)
        await waiting.wait(60)
        assert ran == [1, 2]
        await eventually(lambda: _is(app, node.id, "live"))


async def _is(app: App, id: UUID, state: str) -> bool:
    return (await app.nodes.get(id)).state == state


async def _younger(app: App, id: UUID, seen: float) -> bool:
    return (await app.nodes.get(id)).heartbeat_age < seen + 1


async def test_a_node_that_is_asked_to_stop_ends(make_app: Callable[..., App]):
    app: App = make_app(heartbeat=0.05, missed_heartbeats=100)
    node = Node(app, roles=("worker",))
    running = asyncio.create_task(node.run())
    await eventually(lambda: node.id is not None)

    async def registered() -> bool:
        return bool(await make_app().nodes.list())

    await eventually(registered)
    other = make_app()
    [status] = await other.nodes.list()
    await other.nodes.stop(status.id)
    await running
    assert [one.state for one in await other.nodes.list(ended=True)] == ["stopped"]
