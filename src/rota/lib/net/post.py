"""One POST to a target that was checked: bounded in time and size, and never redirected.

The request goes through httpx's transport, without a client, so that nothing is added to it and no
redirect is followed. It connects to the address that was checked, while the Host header and the
certificate go by the name.

The status decides: when it was read, the other side has answered. If the rest of the response doesn't
arrive whole, or is larger than the limit, the answer is marked as `cut`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from rota.lib.net.guard import Target

if TYPE_CHECKING:
    import httpx

_BODY_BYTES = 65_536


class RequestFailed(Exception):
    """Raised when there is no answer: the request could not be sent, or no HTTP response came back."""


class Answer(msgspec.Struct):
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes = b""
    cut: bool = True  # the body isn't whole: it is too large, or ended too soon

    def asked_to_wait(self, now: datetime) -> float | None:
        """Return the seconds that the other side asked us to wait (Retry-After), from now on."""
        text = self.headers.get("retry-after", "")
        if text.isascii() and text.isdecimal() and len(text) < 10:
            return float(text)
        moment = _moment(text)
        if moment is None:
            return None
        # By the other side's own clock, if it sends its time.
        began = _moment(self.headers.get("date", "")) or now
        return max((moment - began).total_seconds(), 0.0)


def _moment(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


async def post(
    target: Target,
    body: bytes,
    headers: Mapping[str, str],
    timeout: float = 10.0,
    limit: int = _BODY_BYTES,
) -> Answer:
    """Send a request, and return its answer with at most `limit` bytes of the body."""
    import httpx  # here, because `import rota` must not take its time

    answer: Answer | None = None
    try:
        async with asyncio.timeout(timeout), httpx.AsyncHTTPTransport(verify=_tls()) as transport:
            response = await transport.handle_async_request(_request(target, body, headers))
            answer = Answer(response.status_code, dict(response.headers.items()))
            await _read_body(response, answer, limit)
    except TimeoutError:
        if answer is None:
            raise RequestFailed(f"{target.authority} did not answer within {timeout:g} s") from None
    except (httpx.HTTPError, OSError, ValueError) as error:
        if answer is None:
            what = str(error) or type(error).__name__
            raise RequestFailed(f"request to {target.authority} failed: {what}") from None
    assert answer is not None
    return answer


def _request(target: Target, body: bytes, headers: Mapping[str, str]) -> httpx.Request:
    import httpx

    fields = {"Host": target.authority, "Connection": "close", "User-Agent": "rota", **headers}
    for name, value in fields.items():
        if any(character in "\r\n\0" for character in f"{name}{value}"):
            raise RequestFailed(f"header {name!r} can't be sent")
    url = httpx.URL(
        scheme="https" if target.secure else "http", host=target.address, port=target.port
    )
    # The path is sent as it was checked: httpx would quote it anew.
    extensions = {"target": target.path.encode(), "sni_hostname": target.host}
    return httpx.Request("POST", url, headers=fields, content=body, extensions=extensions)


async def _read_body(response: httpx.Response, answer: Answer, limit: int) -> None:
    """Read the body up to the limit. The rest of a larger one is not read."""
    async for part in response.aiter_raw():
        answer.body += part
        if len(answer.body) > limit:
            answer.body = answer.body[:limit]
            return
    answer.cut = False
