"""One POST to a target that was checked: bounded in time and size, and never redirected.

A small HTTP/1.1 client of our own, because it must connect to the address that was checked while the
certificate and the Host header go by the name.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping

import msgspec

from rota.net.guard import Target

_HEAD_BYTES = 16_384
_BODY_BYTES = 65_536


class RequestFailed(Exception):
    """No answer: it could not be sent, or nothing that makes sense came back."""


class Answer(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes  # its beginning

    @property
    def retry_after(self) -> float | None:
        """Seconds that the other side asked us to wait; dates are not understood."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdecimal() and len(text) < 7 else None


async def post(
    target: Target, body: bytes, headers: Mapping[str, str], timeout: float = 10.0
) -> Answer:
    try:
        async with asyncio.timeout(timeout):
            return await _exchange(target, body, headers)
    except TimeoutError:
        raise RequestFailed(f"{target.authority} did not answer within {timeout:g} s") from None
    except ssl.SSLError as error:
        raise RequestFailed(f"{target.authority}: {error.reason or error}") from None
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
        what = str(error) or type(error).__name__
        raise RequestFailed(f"{target.authority} could not be spoken to: {what}") from None


async def _exchange(target: Target, body: bytes, headers: Mapping[str, str]) -> Answer:
    context = ssl.create_default_context() if target.secure else None
    reader, writer = await asyncio.open_connection(
        target.address, target.port, ssl=context, limit=_HEAD_BYTES,
        server_hostname=target.host if target.secure else None,
    )  # fmt: skip
    try:
        writer.write(_request(target, body, headers))
        await writer.drain()
        return await _read(reader)
    finally:
        writer.close()
        with contextlib.suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()


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
            raise ValueError(f"header {name!r} can't be sent")
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {target.path} HTTP/1.1\r\n{head}\r\n".encode() + body


async def _read(reader: asyncio.StreamReader) -> Answer:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status_line, *lines = head.split("\r\n")
    version, status, *_ = [*status_line.split(" ", 2), "", ""]
    if not version.startswith("HTTP/1.") or not (status.isdecimal() and len(status) == 3):
        raise ValueError("what came back is not HTTP")
    if status.startswith("1"):
        return await _read(reader)  # 100 Continue, and the like
    fields = [line.partition(":") for line in lines if ":" in line]
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    return Answer(int(status), headers, await _body(reader, headers))


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    """Its beginning: enough to tell what was said. The rest is not read."""
    length = headers.get("content-length", "")
    if length.isdecimal() and "transfer-encoding" not in headers:
        wanted = min(int(length), _BODY_BYTES)
        return await reader.readexactly(wanted)
    parts: list[bytes] = []
    while sum(map(len, parts)) < _BODY_BYTES and (part := await reader.read(_BODY_BYTES)):
        parts.append(part)
    return b"".join(parts)[:_BODY_BYTES]
