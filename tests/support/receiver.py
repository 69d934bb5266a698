"""A real HTTP server on the loopback that keeps what it was sent, and answers as the test says."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest


class Received(msgspec.Struct):
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    def __init__(self) -> None:
        self.received: list[Received] = []
        # To come: status, headers and, if there is one, body; then 204.
        self.answers: list[tuple[int, dict[str, str]] | tuple[int, dict[str, str], bytes]] = []
        self.before_answer: Callable[[Received], Awaitable[None]] | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def bodies(self) -> list[Any]:
        return [msgspec.json.decode(each.body) for each in self.received]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._answer(reader, writer)
        finally:  # also when the test ends in the middle
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        request, *lines = head.strip().split("\r\n")
        fields = [line.split(": ", 1) for line in lines]
        headers = {name.lower(): value for name, value in fields}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        got = Received(request.split(" ")[1], headers, body)
        self.received.append(got)
        status, extra, *rest = self.answers.pop(0) if self.answers else (204, {})
        if self.before_answer is not None:
            await self.before_answer(got)
        said = rest[0] if rest else b""
        extra = {"content-length": str(len(said)), **extra}
        more = "".join(f"{name}: {value}\r\n" for name, value in extra.items())
        writer.write(f"HTTP/1.1 {status} x\r\n{more}\r\n".encode() + said)
        await writer.drain()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Receiver]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver().running() as receiver:
        yield receiver
