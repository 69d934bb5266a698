"""The status page: server/status.py."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from rota import App
from rota.node import Node
from rota.server import status
from rota.server.api.health import Check
from tests.support.server_fixtures import LiveServer, serving

MakeApp = Callable[..., App]


async def test_there_is_no_status_page_unless_it_is_switched_on(server: LiveServer) -> None:
    client = await server.client(None)
    for path in ("/status", "/status.json"):
        assert (await client.get(path)).status_code == 404


async def test_everybody_sees_what_works(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "FRESH", 0.0)
    async with serving(make_app(port=0, status_page=True)) as live:
        client = await live.client(None)
        found = (await client.get("/status.json")).json()
        assert found["status"] == "degraded"  # nobody would run a job
        assert found["parts"] == [
            {"name": "Submitting jobs", "works": True}, {"name": "Schedules", "works": False},
            {"name": "Running jobs", "works": False},
        ]  # fmt: skip
        assert "Some things don&#39;t work" in (await client.get("/status")).text
        async with Node(make_app()).running():
            found = (await client.get("/status.json")).json()
            assert (found["status"], found["maintenance"]) == ("up", [])
            page = await client.get("/status")
            assert page.status_code == 200
            assert page.headers["content-type"].startswith("text/html")
            assert "Everything works" in page.text


async def test_without_the_database_it_is_down(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(context: object) -> list[Check]:
        return [Check("database", False, "secret-host can't be reached")]

    monkeypatch.setattr(status, "check_readiness", away)
    async with serving(make_app(port=0, status_page=True)) as live:
        client = await live.client(None)
        answer = await client.get("/status.json")
        assert (answer.status_code, answer.json()["status"]) == (200, "down")
        page = (await client.get("/status")).text
        assert "Out of order" in page
        assert "secret-host" not in page


async def test_windows_are_shown_as_times_alone(make_app: MakeApp) -> None:
    app = make_app(port=0, status_page=True)
    window = await app.maintenance.put("secret-move", time="2h", note="the password is hunter2")
    later = await (await app.store()).now() + timedelta(days=1)
    await app.maintenance.put("some", start=later, kinds=["missed"])
    await app.maintenance.put("far", start=later + timedelta(days=30))
    async with serving(app) as live:
        client = await live.client(None)
        [shown] = (await client.get("/status.json")).json()["maintenance"]
        assert set(shown) == {"starts_at", "ends_at"}
        page = (await client.get("/status")).text
        assert window.ends_at.strftime("%Y-%m-%d %H:%M") in page
        assert "secret" not in page
        assert "hunter2" not in page


async def test_the_database_is_asked_once_for_many(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    original = status.look

    async def counted(context: object) -> status.InstallationStatus:
        nonlocal looks
        looks += 1
        return await original(context)  # type: ignore[arg-type]

    monkeypatch.setattr(status, "FRESH", 3600.0)
    monkeypatch.setattr(status, "look", counted)
    async with serving(make_app(port=0, status_page=True)) as live:
        client = await live.client(None)
        for _ in range(5):
            assert (await client.get("/status.json")).status_code == 200
    assert looks == 1
