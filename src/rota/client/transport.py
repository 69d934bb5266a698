"""Requests and responses, and their translation to and from httpx. No I/O."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Literal

import httpx
import msgspec

from rota.config import check_name
from rota.errors import ConfigError
from rota.lib.installed import installed_version
from rota.lib.text import is_text

DEFAULT_URL = "http://127.0.0.1:8400"

_MOST_TEXT = 8_000  # characters of a value in a URL; servers take no more
_STREAM_SILENCE = 45.0  # seconds: three keep-alive comments of the server
# Raised before a byte of the request was sent.
_NOT_SENT = (
    httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError,
    httpx.UnsupportedProtocol,
)  # fmt: skip


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `repeatable`: sending it twice has the effect of sending it once.

    `timeout`: seconds without any data after which it fails; None for a stream.
    """

    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
    path: str
    query: Mapping[str, Any] = {}
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    repeatable: bool
    timeout: float | None = None


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """A response. `repeated`: an earlier attempt of the request may have taken effect already."""

    status: int
    headers: Mapping[str, str]  # their names in lower case
    body: bytes
    repeated: bool = False

    @property
    def is_success(self) -> bool:
        return self.status < 400


class NoResponse(msgspec.Struct, frozen=True):
    """The reason that there was no response. `sent`: the request may have reached a server."""

    reason: str
    sent: bool
    permanent: bool = False  # another attempt would fail in the same way


def http_settings(
    url: str | None, token: str | None, namespace: str | None, verify: ssl.SSLContext | str | bool
) -> dict[str, Any]:
    """Return the arguments of an httpx client. Defaults are ROTA_URL, ROTA_TOKEN and ROTA_NAMESPACE."""
    url = (url or os.environ.get("ROTA_URL") or DEFAULT_URL).rstrip("/")
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"the server's URL must begin with http:// or https://, not {url!r}")
    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        raise ConfigError(f"the server's URL {url!r} can't be read: {error}") from None
    headers = {"User-Agent": f"rota-client/{installed_version()}", "Accept": "application/json"}
    if token := (token or os.environ.get("ROTA_TOKEN") or "").strip():
        if not token.isascii() or not token.isprintable():
            raise ConfigError("the token holds characters that no token has")
        headers["Authorization"] = f"Bearer {token}"
    if namespace := namespace or os.environ.get("ROTA_NAMESPACE"):
        headers["X-Rota-Namespace"] = check_name("namespace", namespace)
    if isinstance(verify, str):
        verify = ssl.create_default_context(cafile=verify)
    return {"base_url": url.removesuffix("/v1"), "headers": headers, "verify": verify}


def request_arguments(request: Request) -> dict[str, Any]:
    """Return the arguments of `httpx.Client.request` and `stream`."""
    headers = dict(request.headers)
    if request.body is not None:
        headers.setdefault("Content-Type", "application/json")
    timeout = httpx.Timeout(request.timeout or _STREAM_SILENCE)
    if request.timeout is None:
        timeout.connect = 10.0
    return {
        "method": request.method, "url": request.path, "params": list(_params(request.query)),
        "content": request.body, "headers": headers, "timeout": timeout,
    }  # fmt: skip


def _params(query: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in query.items():
        for one in value if isinstance(value, list | tuple) else (value,):
            if one is not None:
                yield name, _text(one)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    text = value.isoformat() if isinstance(value, datetime) else str(value)
    if len(text) > _MOST_TEXT or not is_text(text):
        raise ConfigError(
            f"{text[:60]!r} can't be sent in a URL: it has {len(text):,} characters"
            + ("" if is_text(text) else ", and half of a surrogate pair among them")
        )
    return text


def to_response(response: httpx.Response) -> Response:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Response(status=response.status_code, headers=headers, body=response.content)


def to_no_response(error: httpx.RequestError) -> NoResponse:
    reason = str(error) or type(error).__name__
    distrusted = _has_cause(error, ssl.SSLCertVerificationError)
    return NoResponse(
        reason, sent=not isinstance(error, _NOT_SENT),
        permanent=distrusted or isinstance(error, httpx.UnsupportedProtocol),
    )  # fmt: skip


def _has_cause(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False
