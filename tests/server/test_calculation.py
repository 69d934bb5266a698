"""Schedules are compiled and expanded beside the server's loop, whichever route asks for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pytest

from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import make_spec
from rota.server import calculation
from tests.support.api import query
from tests.support.server_fixtures import LiveServer

NOW = datetime.now(UTC).replace(microsecond=0)
STRETCH = {
    "first": (NOW - timedelta(hours=2)).isoformat(),
    "end": (NOW - timedelta(hours=1)).isoformat(),
}
RULE = {"cron": "*/5 * * * *", "task": "work"}
BY_HTTP: dict[str, tuple[str, str, Any]] = {
    "overview": ("GET", "/", None),
    "calendar of a week": ("GET", "/calendar", None),
    "calendar of a month": ("GET", "/calendar?view=month", None),
    "list page": ("GET", "/schedules", None),
    "page": ("GET", "/schedules/often", None),
    "edit page": ("GET", "/schedules/often/edit", None),
    "create": ("POST", "/v1/schedules", {"name": "new", **RULE}),
    "update": ("PUT", "/v1/schedules/often", RULE),
    "delete": ("DELETE", "/v1/schedules/often", None),
    "trigger": ("POST", "/v1/schedules/often/trigger", None),
    "backfill": ("POST", "/v1/schedules/often/backfill", STRETCH),
    "audit": ("GET", f"/v1/schedules/often/audit?{urlencode(STRETCH)}", None),
    "preview": ("GET", "/v1/schedules/often/preview", None),
    "preview of a rule": ("POST", "/v1/schedules:preview", {"cron": "*/5 * * * *"}),
    "lint": ("GET", "/v1/schedules:lint", None),
}
# Those that only read what is stored.
READERS = {"list page"}


@pytest.fixture
def computed_in(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the threads in which a rule is compiled, or asked for its next occurrence."""
    threads: list[str] = []
    walk, init = Recurrence._walk, Recurrence.__init__

    def seen_init(self: Recurrence, *args: Any, **named: Any) -> None:
        threads.append(threading.current_thread().name)
        init(self, *args, **named)

    def seen_walk(self: Recurrence, *args: Any, **named: Any) -> Iterator[Any]:
        for found in walk(self, *args, **named):
            threads.append(threading.current_thread().name)
            yield found

    monkeypatch.setattr(Recurrence, "__init__", seen_init)
    monkeypatch.setattr(Recurrence, "_walk", seen_walk)
    return threads


async def with_schedules(server: LiveServer) -> None:
    for name, task in (("often", "work"), ("other", "work")):
        await server.app.schedules.put(make_spec(name, task, cron="* * * * *"))
    # As if they were there since three hours, and nobody had fired them for two minutes.
    await query(server, "update {}.schedule set cursor = cursor - interval '2 minutes'")
    await query(
        server, "update {}.schedule_version set valid_from = valid_from - interval '3 hours'"
    )


@pytest.mark.parametrize("what", BY_HTTP)
async def test_no_route_computes_a_schedule_on_the_loop(
    server: LiveServer, computed_in: list[str], what: str
):
    await with_schedules(server)
    admin = await server.client("admin", "*")
    computed_in.clear()
    method, path, body = BY_HTTP[what]
    answer = await admin.request(method, path, **({"json": body} if body is not None else {}))
    assert answer.is_success, answer.text
    assert bool(computed_in) is (what not in READERS)
    assert threading.current_thread().name not in computed_in
    assert {name.partition("_")[0] for name in computed_in} <= {"rota-previews", "rota-changes"}


@pytest.mark.parametrize("what", ["audit", "preview of a rule", "lint"])
async def test_what_takes_longer_than_its_budget_is_refused(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch, what: str
):
    await with_schedules(server)
    monkeypatch.setattr(calculation, "BUDGET", -1.0)
    admin = await server.client("admin", "*")
    method, path, body = BY_HTTP[what]
    answer = await admin.request(method, path, **({"json": body} if body is not None else {}))
    assert (answer.status_code, answer.json()["code"]) == (422, "too-much"), answer.text


async def test_the_calendar_tells_what_it_did_not_get_to(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    await with_schedules(server)
    monkeypatch.setattr("rota.operations.schedule_forecasts._SECONDS", -1.0)
    admin = await server.client("admin", "*")
    answer = await admin.get("/calendar")
    assert answer.status_code == 200
    assert "2 schedules" in answer.text, answer.text
