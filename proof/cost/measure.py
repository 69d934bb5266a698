"""Asks a server's application, on this thread's own loop, and counts what that costs the thread."""

from __future__ import annotations

import asyncio
import gc
import math
import re
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from proof.cost.bodies import FEW, HOSTILE, PLAIN, Kind, of_schema
from rota import App
from rota.server.policy import RouteInfo, route_table

GROWTH = 8  # times the size
MOST_GROWTH = 24  # times the cost; a quadratic scan makes it 64
MOST_ABOVE_PLAIN = 100  # times what plain JSON costs
LEAST_KILOBYTES = 32  # what a request may cost before its size counts
STRANGERS_LIMIT = 16_000  # bytes; more is refused unread
_PIECE = 65_536  # as it comes from a socket
_PATIENCE = 60.0


class Cost(msgspec.Struct, frozen=True):
    """What one kind of body cost a route."""

    route: str
    kind: str
    token: bool
    status: int
    kilobytes: float
    seconds: float
    growth: float  # how many times as much as an eighth of it

    @property
    def per_kilobyte(self) -> float:
        """Of a small body, what the request costs is no matter of its size."""
        return self.seconds / max(self.kilobytes, LEAST_KILOBYTES)


class Fuzzer:
    """`asgi` is the application of a running server; `tokens` has one by role."""

    def __init__(self, asgi: Any, tokens: dict[str, str], names: dict[str, str]) -> None:
        self._asgi = asgi
        self._tokens = tokens
        self._names = names  # what is there, by the name of a path's parameter
        self.document: dict[str, Any] = {}

    def routes(self) -> list[RouteInfo]:
        return list(route_table(self._asgi))

    def kinds_for(self, route: RouteInfo, few: bool) -> Iterator[Kind]:
        """A route that changes nothing reads no body: one kind shows it."""
        if not route.is_change:
            yield HOSTILE[0]
            return
        yield from FEW if few else HOSTILE
        operation = self.document["paths"].get(route.path, {}).get(route.method.lower(), {})
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if content:
            yield from of_schema(content["schema"], self.document["components"]["schemas"])

    async def plain_cost(self, size: int) -> float:
        """Of a kilobyte that nothing is wrong with, above what the request itself costs."""
        asked = ("POST", "/v1/jobs")
        route = next(each for each in self.routes() if (each.method, each.path) == asked)
        # A small difference, by which everything is judged: so both are asked for many times, in turns.
        nothing, seconds = math.inf, math.inf
        for _ in range(10):
            empty, _ = await self._best(route, PLAIN.media_type, b"{}", token=True)
            full, _ = await self._best(route, PLAIN.media_type, PLAIN.make(size), token=True)
            nothing, seconds = min(nothing, empty), min(seconds, full)
        return max(seconds - nothing, 1e-6) / (size / 1000)

    async def cost(self, route: RouteInfo, kind: Kind, size: int, *, token: bool) -> Cost:
        small, large = kind.make(size // GROWTH), kind.make(size)
        nothing, _ = await self._best(route, kind.media_type, b"", token=token)
        first, _ = await self._best(route, kind.media_type, small, token=token)
        last, status = await self._best(route, kind.media_type, large, token=token)
        # What is lost in the noise has no growth.
        least = max(first - nothing, nothing / 4, 50e-6)
        growth = max(last - nothing, 0.0) / least * (GROWTH * len(small) / max(len(large), 1))
        return Cost(
            route=f"{route.method} {route.path}", kind=kind.name, token=token, status=status,
            kilobytes=max(len(large), 1) / 1000, seconds=max(last - nothing, 0.0), growth=growth,
        )  # fmt: skip

    async def _best(
        self, route: RouteInfo, media_type: str, body: bytes, *, token: bool, times: int = 3
    ) -> tuple[float, int]:
        found = [await self.ask(route, media_type, body, token=token) for _ in range(times)]
        return min(seconds for seconds, _ in found), max(status for _, status in found)

    async def ask(
        self, route: RouteInfo, media_type: str, body: bytes, *, token: bool
    ) -> tuple[float, int]:
        """CPU seconds of this thread, and the status. An answer that goes on is left."""
        scope = self._scope(route, media_type, len(body), token)
        pieces = [body[at : at + _PIECE] for at in range(0, len(body), _PIECE)] or [b""]
        answer: dict[str, Any] = {}
        told = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if not pieces:
                await told.wait()
                return {"type": "http.disconnect"}
            piece = pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(pieces)}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.update(message)
                if b"text/event-stream" in dict(message["headers"]).get(b"content-type", b""):
                    told.set()
            elif not message.get("more_body"):
                told.set()

        gc.disable()  # what it does in between depends on all that there is, not on this body
        begun = time.thread_time()
        asking = asyncio.ensure_future(self._asgi(scope, receive, send))
        waiting = asyncio.ensure_future(told.wait())
        await asyncio.wait([asking, waiting], timeout=_PATIENCE, return_when="FIRST_COMPLETED")
        seconds = time.thread_time() - begun
        gc.enable()
        waiting.cancel()
        asking.cancel()
        await asyncio.gather(asking, waiting, return_exceptions=True)
        return seconds, answer.get("status", 599)  # 599: no answer at all

    def _scope(self, route: RouteInfo, media_type: str, length: int, token: bool) -> dict[str, Any]:
        path = re.sub(r"{(\w+)[^}]*}", lambda found: self._names.get(found[1], "none"), route.path)
        headers = [(b"host", b"localhost"), (b"content-type", media_type.encode()),
                   (b"content-length", b"%d" % length)]  # fmt: skip
        if token:
            role = "worker" if route.policy.role == "worker" else "admin"
            headers.append((b"authorization", f"Bearer {self._tokens[role]}".encode()))
        return {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": route.method,
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
            "root_path": "", "headers": headers, "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80), "state": {},
        }  # fmt: skip


async def make_names(app: App) -> dict[str, str]:
    """Something of what paths speak of; for the rest, an id that nobody has."""
    job = await app.submit("work", {})
    await app.schedule("nightly", "work", cron="0 3 * * *")
    nobody = "0199f3b2-7c11-7d44-9d0a-5a0e6f1f2b3c"
    return {
        "job_id": str(job.id), "name": "nightly", "fingerprint": "0" * 16, "prefix": "abcdefgh",
        "worker_id": nobody, "node_id": nobody, "webhook_id": nobody, "session_id": nobody,
    }  # fmt: skip


def objections(cost: Cost, plain: float) -> Iterator[str]:
    """What is wrong with it; `plain` is what a kilobyte of plain JSON costs there or elsewhere."""
    what = f"{cost.route}, {'with' if cost.token else 'without'} a token, {cost.kind}"
    if cost.status >= 500 and not (cost.status == 503 and cost.route.endswith("/readyz")):
        yield f"{what}: answered {cost.status}"
    if cost.growth > MOST_GROWTH:
        yield f"{what}: eight times the size cost {cost.growth:.0f} times as much"
    most = MOST_ABOVE_PLAIN * (10 if cost.route.endswith(":bulk") else 1)
    if cost.seconds > most * plain * max(cost.kilobytes, LEAST_KILOBYTES):
        yield (
            f"{what}: {cost.per_kilobyte * 1e6:.0f} us a kilobyte, "
            f"{cost.per_kilobyte / plain:.0f} times that of plain JSON"
        )
