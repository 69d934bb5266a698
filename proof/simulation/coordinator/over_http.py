"""httpx's transport to a model: requests go over the simulated network, and time out by virtual time."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import httpx
import msgspec

from proof.simulation.coordinator.service import Refused, Service
from proof.simulation.loop import Process


class Asked(NamedTuple):
    method: str
    path: str
    query: str
    body: bytes

    def __repr__(self) -> str:
        return f"{self.method} {self.path}?{self.query} {self.body.decode()}"


class Answered(NamedTuple):
    status: int
    body: Any

    def __repr__(self) -> str:
        return f"{self.status} {self.body}"


class ModelTransport(httpx.AsyncBaseTransport):
    def __init__(self, service: Service, process: Process) -> None:
        self._service, self._process = service, process

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = Asked(
            request.method, request.url.path, request.url.query.decode(), await request.aread()
        )
        limit = request.extensions["timeout"]["read"]
        try:
            async with asyncio.timeout(limit):
                answer: Answered = await self._service.call(self._process, asked)
        except TimeoutError:
            raise httpx.ReadTimeout("no answer", request=request) from None
        except Refused as error:
            raise httpx.ConnectError(str(error), request=request) from None
        return httpx.Response(answer.status, content=msgspec.json.encode(answer.body))
