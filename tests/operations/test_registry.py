"""Registered tasks, as those see them who don't have the code: app.registry, REST, client and CLI."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from rota import App, InvalidArguments, NotFound
from rota.client import AsyncClient
from rota.node import Node
from tests.support.command_line import run
from tests.support.server_fixtures import serving


@dataclass
class Order:
    id: int
    tags: list[str]


def declare(app: App) -> None:
    @app.task(queue="shop", timeout=30)
    async def ship(order: Order, express: bool = False) -> Order:
        """Ship an order."""
        return order

    @app.task
    async def other() -> None: ...


async def test_everybody_can_look_up_what_a_task_takes(make_app: Callable[..., App]) -> None:
    app, elsewhere = make_app(), make_app(port=0)
    declare(app)
    async with Node(app).running(), serving(elsewhere) as live:
        ship = await elsewhere.registry.get("ship")
        assert (ship.queue, ship.timeout, ship.workers) == ("shop", 30.0, 1)
        assert ship.description == "Ship an order."
        assert ship.arguments is not None
        assert list(ship.arguments["properties"]) == ["order", "express"]
        assert ship.arguments["required"] == ["order"]
        assert ship.returns is not None
        assert ship.returns["$ref"] == "#/$defs/Order"
        assert [task.name for task in await elsewhere.registry.list()] == ["other", "ship"]
        assert [task.name for task in await elsewhere.registry.list(after="other")] == ["ship"]

        async with AsyncClient(live.url, await live.token("viewer")) as client:
            assert await client.tasks.get("ship") == ship
            assert [task.name for task in await client.tasks.list()] == ["other", "ship"]
            with pytest.raises(NotFound, match="no node has registered a task 'shop'"):
                await client.tasks.get("shop")


async def test_who_has_no_code_is_told_the_place_of_what_is_wrong(
    make_app: Callable[..., App],
) -> None:
    app, elsewhere = make_app(), make_app(port=0)
    declare(app)
    async with Node(app).running(), serving(elsewhere) as live:
        problem = "task 'ship': argument 'order': expected string, got integer (at tags[1])"
        wrong = {"order": {"id": 1, "tags": ["a", 2]}}
        with pytest.raises(InvalidArguments) as refused:
            await elsewhere.submit("ship", wrong)
        assert str(refused.value) == problem
        client = await live.client()
        answer = await client.post("/v1/jobs", json={"task": "ship", "payload": wrong})
        assert (answer.status_code, problem in answer.text) == (422, True)
        large = {"order": {"id": 1, "tags": ["a" * 70_000, 2]}}  # the function refuses it, later
        assert (await elsewhere.submit("ship", large)).warnings == ()
        assert len(await elsewhere.jobs.list()) == 1


def test_the_commands_say_that_there_is_none(environ: dict[str, str]) -> None:
    assert "No node has registered a task so far" in run("tasks").err
    assert "no node has registered a task 'nope'" in run("tasks", "show", "nope").err


async def test_the_commands_show_a_task(
    make_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()
    declare(app)
    monkeypatch.setenv("ROTA_DATABASE_URL", app.settings.database_url or "")
    monkeypatch.setenv("ROTA_SCHEMA", app.settings.schema)
    async with Node(app).running():
        listed = await asyncio.to_thread(run, "tasks", "list")
        shown = await asyncio.to_thread(run, "tasks", "show", "ship")
        whole = await asyncio.to_thread(run, "tasks", "show", "ship", "--output", "json")
    assert "order, express" in listed.out
    assert "Ship an order." in shown.out
    assert "boolean" in shown.out
    assert whole.json["arguments"]["properties"]["express"] == {"type": "boolean"}
