"""A request, with its body checked before it is parsed, and what handlers can ask for by name."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias
from urllib.parse import parse_qs

from litestar import Request
from litestar.datastructures import Headers
from litestar.di import NamedDependency, Provide
from litestar.exceptions import ClientException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from rota.core.access import Principal
from rota.operations.rota import Rota
from rota.server.context import ServerContext, context_of
from rota.server.problems import Problem
from rota.server.remote_workers.workers import RemoteWorkers
from rota.server.strict import body_decoder, check_json, decode_strictly
from rota.store.changes import Actor
from rota.store.dashboard import DashboardStore

_LEVELS_AROUND_PAYLOAD = 16
_NOBODY = "nobody"
_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 12_000  # more than the jobs that can be changed at once
_MOST_BYTES_WITHOUT_TOKEN = 16_384
_JSON_KINDS = ("", "application/json", "application/x-ndjson")


def kind_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _check_kind(content_type: str) -> None:
    kind = kind_of(content_type)
    if kind not in _JSON_KINDS and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Problem(415, "unsupported-media-type", f"send application/json, not {kind[:100]!r}")


class RotaRequest(Request[Any, Any, Any]):
    """The `request` of handlers."""

    @cached_property
    def headers(self) -> Headers:
        """The headers, parsed once: the framework would parse them each time they are read."""
        return Headers.from_scope(self.scope)

    @property
    def context(self) -> ServerContext:
        return context_of(self.app)

    @property
    def id(self) -> str:
        request_id: str = self.scope["state"]["request_id"]
        return request_id

    @property
    def principal(self) -> Principal:
        principal: Principal = self.scope["state"]["principal"]
        return principal

    async def body(self) -> bytes:
        """Return the whole body, checked once. It must be JSON; `fields()` reads a form."""
        state = self.scope["state"]
        if "checked" not in state:
            _check_kind(self.headers.get("content-type", ""))
            if body := await self._raw_body():
                depth = self.context.settings.max_payload_depth + _LEVELS_AROUND_PAYLOAD
                check_json(body, depth)
            state["checked"] = True
        return await self._raw_body()

    async def json(self) -> Any:
        """Decode the body as the type that the route declares, without the framework's conversions."""
        decoder = body_decoder(self.route_handler)
        if decoder is None:
            return await super().json()
        return decode_strictly(decoder, await self.body() or b"null")

    async def _raw_body(self) -> bytes:
        state = self.scope["state"]
        if "body" not in state:
            if (encoding := self.headers.get("content-encoding", "identity")) != "identity":
                raise Problem(
                    415, "unsupported-media-type",
                    f"the body is encoded as {encoding[:50]!r}: send it without encoding",
                )  # fmt: skip
            # Also under the framework's name for it, so that the framework doesn't read the body again.
            state["body"] = self._body = self._connection_state.body = await self._whole_body()
        known: bytes = state["body"]
        return known

    def trust_body(self) -> None:
        """Accept a body of full size: the sender has proved who they are."""
        self.scope["state"]["trusted_body"] = True

    def allow_body(self, most: int) -> None:
        """Accept a body of some size without a token: what it says is checked by its signature."""
        self.scope["state"]["most_bytes"] = most

    async def raw_body(self) -> bytes:
        """Return the whole body as it came, which need not be JSON."""
        return await self._raw_body()

    @property
    def _most_bytes(self) -> int:
        """The limit of the body. Without a token, it is what a name and a password need."""
        most = self.context.settings.max_body_bytes
        state = self.scope["state"]
        if "most_bytes" in state:
            return int(min(most, state["most_bytes"]))
        known = "principal" in state or "trusted_body" in state
        return most if known else min(most, _MOST_BYTES_WITHOUT_TOKEN)

    async def _whole_body(self) -> bytes:
        """Read the whole body. Most are one message, for which the framework's stream is slow."""
        most = self._most_bytes
        if (self.content_length or 0) > most:
            raise RequestEntityTooLarge
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message: Any = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientException("the client disconnected")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > most:
                raise RequestEntityTooLarge
        return b"".join(parts)

    async def fields(self) -> dict[str, list[str]]:
        """Return the fields of a form, and {} for other bodies. The framework would guess types."""
        if kind_of(self.headers.get("content-type", "")) != _FORM:
            return {}
        try:
            found = parse_qs(
                (await self._raw_body()).decode(), keep_blank_values=True, errors="strict",
                max_num_fields=_MOST_FIELDS,
            )  # fmt: skip
        except ValueError as error:
            raise Problem(400, "invalid", f"the form can't be read: {error}") from None
        if any("\0" in text for name, texts in found.items() for text in (name, *texts)):
            raise Problem(400, "nul", "the form contains a NUL character, which can't be stored")
        return found

    def actor(self) -> Actor:
        """Return the sender of the request, as the audit log names them."""
        principal: Principal | None = self.scope["state"].get("principal")
        return Actor(
            name=principal.name if principal else _NOBODY,
            via=principal.identity.via if principal else _NOBODY, request_id=self.id,
            interface="rest" if self.scope["path"].startswith("/v1/") else "dashboard",
            address=self.client.host if self.client else None,
        )  # fmt: skip


# The dependencies that handlers can declare, by name.
ContextDep: TypeAlias = NamedDependency[ServerContext]
PrincipalDep: TypeAlias = NamedDependency[Principal]
TenantDep: TypeAlias = NamedDependency[Rota]
StatsDep: TypeAlias = NamedDependency[DashboardStore]
WorkersDep: TypeAlias = NamedDependency[RemoteWorkers]


def provide_context(request: RotaRequest) -> ServerContext:
    return request.context


def provide_principal(request: RotaRequest) -> Principal:
    return request.principal


def provide_tenant(request: RotaRequest) -> Rota:
    context = request.context
    if context.reading is not None:
        return context.reading.rota_for(request)
    return context.tenant(request.principal.namespace)


async def provide_stats(request: RotaRequest) -> DashboardStore:
    tenant = provide_tenant(request)
    return DashboardStore((await tenant.store()).database, tenant.namespace)


def provide_workers(request: RotaRequest) -> RemoteWorkers:
    return request.context.remote_workers(request.principal.namespace)


DEPENDENCIES = {
    "context": Provide(provide_context, sync_to_thread=False),
    "principal": Provide(provide_principal, sync_to_thread=False),
    "tenant": Provide(provide_tenant, sync_to_thread=False),
    "stats": Provide(provide_stats),
    "workers": Provide(provide_workers, sync_to_thread=False),
}
