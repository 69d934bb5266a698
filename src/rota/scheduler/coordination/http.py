"""Sends requests to the first of a service's servers that answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from rota.lib.addresses import Address
from rota.scheduler.coordination import CoordinatorUnavailable

_LONGEST_CALL = 2.0  # seconds: shared by all servers that are asked


class Servers:
    """The servers of a coordinator with an HTTP API. The one that answered last is asked first.

    `transport`: for tests, which record conversations and replay them.
    """

    def __init__(
        self,
        address: Address,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._name = address.scheme
        scheme = "https" if address.tls else "http"
        self._urls = [f"{scheme}://{host}" for host in address.hosts]
        self._client = httpx.AsyncClient(
            verify=address.ssl_context("coordination") or False,
            timeout=_LONGEST_CALL / len(self._urls),
            headers=headers,
            trust_env=False,
            transport=transport,
        )

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> httpx.Response:
        """Return an answer that is not a server's failure. What is sent must be safe to repeat."""
        content = raw if body is None else msgspec.json.encode(body)
        failure = ""
        for _ in range(len(self._urls)):
            url = self._urls[0]
            try:
                response = await self._client.request(
                    method, url + path, content=content, headers=headers
                )
                if response.status_code < 500:
                    return response
                failure = f"{url} answered {response.status_code}: {response.text[:200].strip()}"
            except httpx.TransportError as error:
                failure = f"{url}: {type(error).__name__} {error}".rstrip()
            self._urls.append(self._urls.pop(0))
        raise CoordinatorUnavailable(f"{self._name}: {failure}")

    async def close(self) -> None:
        await self._client.aclose()
