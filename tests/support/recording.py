"""Records a conversation with a real server over HTTP, and replays it where there is none.

A replay answers a request with the recorded answer to the same method, address and body, in the order in
which they were recorded. One that was never recorded fails the test.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from pathlib import Path

import httpx
import msgspec


class Exchange(msgspec.Struct):
    method: str
    path: str
    body: str
    status: int
    answer: str


class Recorder(httpx.AsyncBaseTransport):
    """Passes requests on, and keeps what was said."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._real = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = await request.aread()
        response = await self._real.handle_async_request(request)
        answer = await response.aread()
        await response.aclose()
        self.exchanges.append(
            Exchange(request.method, request.url.raw_path.decode(), b64encode(body).decode(),
                     response.status_code, b64encode(answer).decode())
        )  # fmt: skip
        return httpx.Response(response.status_code, content=answer)

    async def aclose(self) -> None:
        await self._real.aclose()


class Replay(httpx.AsyncBaseTransport):
    def __init__(self, exchanges: list[Exchange]) -> None:
        self._left = list(exchanges)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = b64encode(await request.aread()).decode()
        asked = (request.method, request.url.raw_path.decode(), body)
        for place, each in enumerate(self._left):
            if (each.method, each.path, each.body) == asked:
                del self._left[place]
                return httpx.Response(each.status, content=b64decode(each.answer))
        raise AssertionError(f"nobody has recorded an answer to {asked[0]} {asked[1]}")


def load(path: Path) -> dict[str, list[Exchange]]:
    if not path.exists():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=dict[str, list[Exchange]])


def save(path: Path, conversations: dict[str, list[Exchange]]) -> None:
    lines = [
        f"{msgspec.json.encode(name).decode()}: [\n"
        + ",\n".join(msgspec.json.encode(each).decode() for each in exchanges)
        + "\n]"
        for name, exchanges in sorted(conversations.items())
    ]
    path.write_text("{" + ",\n".join(lines) + "}\n")
