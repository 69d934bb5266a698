"""What both shells have in common: options, and the way between our words and httpx's. No I/O."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Mapping
from datetime import datetime
from importlib.metadata import version
from typing import Any

import httpx
import msgspec

from rota.client.asking import Answer, Ask, Rules, Unheard
from rota.client.following import SILENCE
from rota.errors import ConfigError

DEFAULT_URL = "http://127.0.0.1:8400"

# Raised before a byte of the request was sent.
_NOT_SENT = (
    httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError,
    httpx.UnsupportedProtocol,
)  # fmt: skip


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Where the server is, who we are, and how patient."""

    url: str
    token: str | None
    namespace: str | None
    rules: Rules
    verify: ssl.SSLContext | bool = True

    @classmethod
    def of(
        cls, url: str | None, token: str | None, namespace: str | None, timeout: float,
        silence: float, verify: ssl.SSLContext | str | bool,
    ) -> Options:  # fmt: skip
        """What isn't given is taken from ROTA_URL, ROTA_TOKEN and ROTA_NAMESPACE."""
        url = (url or os.environ.get("ROTA_URL") or DEFAULT_URL).rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"the server's URL must begin with http:// or https://, not {url!r}")
        if isinstance(verify, str):
            verify = ssl.create_default_context(cafile=verify)
        return cls(
            url=url.removesuffix("/v1"), token=token or os.environ.get("ROTA_TOKEN"),
            namespace=namespace or os.environ.get("ROTA_NAMESPACE"),
            rules=Rules(timeout=timeout, silence=silence), verify=verify,
        )  # fmt: skip

    @property
    def headers(self) -> dict[str, str]:
        headers = {"User-Agent": f"rota-client/{version('rota')}", "Accept": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.namespace:
            headers["X-Rota-Namespace"] = self.namespace
        return headers


def request_arguments(ask: Ask, timeout: float | None) -> dict[str, Any]:
    """`timeout`: of silence; None for a stream, of which signs of life are expected."""
    headers = dict(ask.headers)
    if ask.body is not None:
        headers.setdefault("Content-Type", "application/json")
    silence = httpx.Timeout(SILENCE, connect=10.0) if timeout is None else httpx.Timeout(timeout)
    return {
        "method": ask.method, "url": ask.path, "params": list(_params(ask.query)),
        "content": ask.body, "headers": headers, "timeout": silence,
    }  # fmt: skip


def _params(query: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in query.items():
        for one in value if isinstance(value, list | tuple) else (value,):
            if one is not None:
                yield name, _text(one)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def to_answer(response: httpx.Response) -> Answer:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Answer(status=response.status_code, headers=headers, body=response.content)


def to_unheard(error: httpx.TransportError) -> Unheard:
    reason = str(error) or type(error).__name__
    distrusted = _has_cause(error, ssl.SSLCertVerificationError)
    return Unheard(
        reason, sent=not isinstance(error, _NOT_SENT),
        final=distrusted or isinstance(error, httpx.UnsupportedProtocol),
    )  # fmt: skip


def _has_cause(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False
