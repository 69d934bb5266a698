"""One POST to a target that was checked: bounded in time and size, and never redirected.

A small HTTP/1.1 client of our own, because it must connect to the address that was checked while the
certificate and the Host header go by the name.

What counts is the status: once it was read, the other side has decided. If the rest of the answer
doesn't come whole, or is larger than wanted, the answer is `cut`, and is an answer all the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from rota.lib.net.guard import Target

_HEAD_BYTES = 16_384
_BODY_BYTES = 65_536
_BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)


class RequestFailed(Exception):
    """No answer: it could not be sent, or nothing that makes sense came back."""


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes = b""
    cut: bool = True  # the body isn't whole: too large, or it ended too soon

    def asked_to_wait(self, now: datetime) -> float | None:
        """Seconds that the other side asked us to wait (Retry-After), from now on."""
        text = self.headers.get("retry-after", "")
        if text.isascii() and text.isdecimal() and len(text) < 10:
            return float(text)
        moment = _moment(text)
        if moment is None:
            return None
        # By their own clock, if they tell it.
        began = _moment(self.headers.get("date", "")) or now
        return max((moment - began).total_seconds(), 0.0)


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


async def post(
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    timeout: float = 10.0,
    limit: int = _BODY_BYTES,
) -> Answer:
    """`limit`: of the answer's body, so many bytes are kept."""
    exchange = _Exchange(target, limit)
    try:
        async with asyncio.timeout(timeout):
            await exchange.run(_request(target, body, headers))
    except TimeoutError:
        if exchange.answer is None:
            raise RequestFailed(f"{target.authority} did not answer within {timeout:g} s") from None
    except ssl.SSLError as error:
        if exchange.answer is None:
            raise RequestFailed(f"{target.authority}: {error.reason or error}") from None
    except _BROKEN as error:
        if exchange.answer is None:
            what = str(error) or type(error).__name__
            raise RequestFailed(f"{target.authority} could not be spoken to: {what}") from None
    assert exchange.answer is not None
    return exchange.answer


def _request(target: Target, body: bytes, headers: Mapping[str, str]) -> bytes:
    fields = {
        "Host": target.authority,
        "Content-Length": str(len(body)),
        "Connection": "close",
        "User-Agent": "rota",
        **headers,
    }
    for name, value in fields.items():
        if any(character in "\r\n\0" for character in f"{name}{value}"):
            raise RequestFailed(f"header {name!r} can't be sent")
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {target.path} HTTP/1.1\r\n{head}\r\n".encode() + body


class _Exchange:
    """One request and what came back of its answer."""

    def __init__(self, target: Target, limit: int) -> None:
        self._target = target
        self._limit = limit
        self.answer: Answer | None = None  # from the moment on that its head was read

    async def run(self, request: bytes) -> None:
        target = self._target
        context = ssl.create_default_context() if target.secure else None
        reader, writer = await asyncio.open_connection(
            target.address, target.port, ssl=context, limit=_HEAD_BYTES,
            server_hostname=target.host if target.secure else None,
        )  # fmt: skip
        try:
            writer.write(request)
            # Who refuses a request may answer before all of it was sent, and close.
            with contextlib.suppress(ConnectionError):
                await writer.drain()
            self.answer = await _read_head(reader)
            await self._read_body(reader, self.answer)
        finally:
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _read_body(self, reader: asyncio.StreamReader, answer: Answer) -> None:
        """No more than its beginning, when it is too large. The rest is not read."""
        length = answer.headers.get("content-length", "")
        if answer.status in (204, 304):
            answer.cut = False
        elif "chunked" in answer.headers.get("transfer-encoding", "").lower():
            await self._read_chunks(reader, answer)
        elif length.isdecimal():
            answer.body = await reader.readexactly(min(int(length), self._limit))
            answer.cut = int(length) > self._limit
        else:
            await self._read_rest(reader, answer)

    async def _read_chunks(self, reader: asyncio.StreamReader, answer: Answer) -> None:
        parts: list[bytes] = []
        room = self._limit
        while room > 0:
            size = int((await reader.readuntil(b"\r\n")).partition(b";")[0].strip(), 16)
            if size == 0:
                answer.body, answer.cut = b"".join(parts), False
                return
            parts.append(await reader.readexactly(min(size, room)))
            room -= size
            if room >= 0:
                await reader.readexactly(2)
        answer.body = b"".join(parts)

    async def _read_rest(self, reader: asyncio.StreamReader, answer: Answer) -> None:
        parts: list[bytes] = []
        room = self._limit + 1
        while room > 0 and (part := await reader.read(room)):
            parts.append(part)
            room -= len(part)
        whole = b"".join(parts)
        answer.body, answer.cut = whole[: self._limit], len(whole) > self._limit


async def _read_head(reader: asyncio.StreamReader) -> Answer:
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status_line, *lines = head.split("\r\n")
        version, status, *_ = [*status_line.split(" ", 2), "", ""]
        if not version.startswith("HTTP/1.") or not (status.isdecimal() and len(status) == 3):
            raise ValueError("what came back is not HTTP")
        if not status.startswith("1"):  # 100 Continue, and the like
            fields = [line.partition(":") for line in lines if ":" in line]
            return Answer(int(status), {n.strip().lower(): v.strip() for n, _, v in fields})
