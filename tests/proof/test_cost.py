"""What a request costs the server's loop grows with its size and no faster, whatever it holds."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time

import asyncpg
import pytest

from proof.cost.__main__ import document_of
from proof.cost.bodies import HOSTILE, JSON, Kind
from proof.cost.measure import STRANGERS_LIMIT, Cost, Fuzzer, make_names, objections
from rota import App
from rota.core import payloads
from rota.node import Node
from rota.server.problems import Problem
from rota.server.strict import check_json
from tests.support.server_fixtures import LiveServer

_SIZE = 64_000


async def fuzzer_of(server: LiveServer) -> Fuzzer:
    tokens = {role: await server.token(role, "*") for role in ("admin", "worker")}
    fuzzer = Fuzzer(server.server.asgi, tokens, await make_names(server.app))
    fuzzer.document = document_of(server.server)
    return fuzzer


async def judged(fuzzer: Fuzzer, *given: object, plain: float, **named: bool) -> list[str]:
    """What is wrong with it, eight times in a row: other programs may be in the way."""
    found: list[str] = []
    for _ in range(8):
        cost: Cost = await fuzzer.cost(*given, **named)  # type: ignore[arg-type]
        if not (found := list(objections(cost, plain))):
            break
    return found


@pytest.mark.proof  # it measures, for every route: about half a minute of one core
async def test_no_route_costs_more_than_the_size_of_what_it_is_sent(server: LiveServer):
    fuzzer = await fuzzer_of(server)
    plain = await fuzzer.plain_cost(_SIZE)
    wrong: list[str] = []
    routes = fuzzer.routes()
    assert len(routes) > 100
    for route in routes:
        public = route.policy.role is None
        size = STRANGERS_LIMIT if public else _SIZE
        for kind in fuzzer.kinds_for(route, few=True):
            wrong += await judged(fuzzer, route, kind, size, plain=plain, token=not public)
        stranger = (route, HOSTILE[0], STRANGERS_LIMIT)
        wrong += await judged(fuzzer, *stranger, plain=plain, token=False)
    assert not wrong, "\n".join(wrong)


@pytest.mark.proof  # it measures, too
async def test_a_quadratic_scan_would_be_found(server: LiveServer, monkeypatch: pytest.MonkeyPatch):
    """As there was one: a string had to end, so that each escaped quote began another search."""
    monkeypatch.setattr(payloads, "_STRINGS", re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL))
    fuzzer = await fuzzer_of(server)
    [route] = [each for each in fuzzer.routes() if each.path == "/login/link"]
    plain = await fuzzer.plain_cost(8_000)
    found = await judged(fuzzer, route, HOSTILE[0], 8_000, plain=plain, token=False)
    assert any("eight times the size" in each for each in found), found


async def test_a_failure_would_be_found(server: LiveServer):
    fuzzer = await fuzzer_of(server)
    cost = await fuzzer.cost(fuzzer.routes()[0], Kind("x", JSON, lambda _: b""), 8, token=False)
    broken = Cost(
        **{field: getattr(cost, field) for field in cost.__struct_fields__} | {"status": 500}
    )
    assert any("answered 500" in each for each in objections(broken, 1.0))


class Heartbeats(threading.Thread):
    """Sees the heartbeats of a node from a thread and connection of its own."""

    def __init__(self, app: App, enough: int) -> None:
        super().__init__(daemon=True)
        self._app = app
        self._enough = enough
        self.seen: set[object] = set()
        self.ids: set[object] = set()
        self.done = threading.Event()

    def run(self) -> None:
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        connection = await asyncpg.connect(self._app.settings.database_url)
        query = f"select id, expires_at from {self._app.settings.schema}.node where state = 'live'"
        while len(self.seen) < self._enough and not self.done.is_set():
            for id, expires_at in await connection.fetch(query):
                self.ids.add(id)
                self.seen.add(expires_at)
            await asyncio.sleep(0.05)
        self.done.set()
        await connection.close()


async def test_heartbeats_go_on_while_a_core_is_busy_parsing(make_app):
    """The loop does nothing but judge the largest bodies, one after the other, without a pause."""
    app: App = make_app(heartbeat=0.5, missed_heartbeats=60)
    bodies = [kind.make(app.settings.max_body_bytes) for kind in HOSTILE[:4]]
    async with Node(app, roles=["scheduler"]).running():
        watch = Heartbeats(app, enough=6)
        watch.start()
        parsed, end = 0, time.monotonic() + 120
        while not watch.done.is_set() and time.monotonic() < end:
            with contextlib.suppress(Problem):
                parsed += 1
                check_json(bodies[parsed % len(bodies)], 80)
        watch.done.set()
        assert len(watch.seen) >= 6, "the heartbeats stopped"
        assert len(watch.ids) == 1, "the node was declared dead"
        assert parsed >= 6
