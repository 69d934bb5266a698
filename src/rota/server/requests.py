"""A request: its body judged before it is parsed, and what it changed."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from functools import cached_property
from typing import Any
from urllib.parse import parse_qs

from litestar import Request
from litestar.datastructures import Headers
from litestar.exceptions import ClientException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from rota.core.access import Principal
from rota.server.context import ServerContext, context_of
from rota.server.limits import check_json
from rota.server.problems import Problem
from rota.server.strict import body_decoder, decode_strictly
from rota.store.changes import Actor, Change, changing

_ROOM_AROUND_A_PAYLOAD = 16  # levels
_NOBODY = "nobody"
_FORM = "application/x-www-form-urlencoded"
_MOST_FIELDS = 12_000  # as many jobs as can be acted on at once, and some
_MOST_BYTES_OF_STRANGERS = 16_384
_JSON_KINDS = ("", "application/json", "application/x-ndjson")


def kind_of(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _check_kind(content_type: str) -> None:
    kind = kind_of(content_type)
    if kind not in _JSON_KINDS and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Problem(415, "unsupported-media-type", f"send application/json, not {kind[:100]!r}")


class RotaRequest(Request[Any, Any, Any]):
    """What handlers get as `request`."""

    @cached_property
    def headers(self) -> Headers:
        """They are looked at a dozen times; the framework looks them up each time."""
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
        """Whole, and judged, once: it must be JSON. A form is read by `fields()`."""
        state = self.scope["state"]
        if "judged" not in state:
            _check_kind(self.headers.get("content-type", ""))
            if body := await self._raw_body():
                depth = self.context.settings.max_payload_depth + _ROOM_AROUND_A_PAYLOAD
                check_json(body, depth)
            state["judged"] = True
        return await self._raw_body()

    async def json(self) -> Any:
        """As the type that the route declares. Not the framework's way, which makes things fit."""
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
                    f"the body is encoded as {encoding[:50]!r}: send it as it is",
                )  # fmt: skip
            # Under the framework's name for it as well: its own ways to the body end there.
            state["body"] = self._body = self._connection_state.body = await self._whole_body()
        known: bytes = state["body"]
        return known

    def trust_body(self) -> None:
        """Of somebody who has shown that we know them: bodies of theirs may be of full size."""
        self.scope["state"]["trusted_body"] = True

    @property
    def _most_bytes(self) -> int:
        """Of somebody who has shown no token, no more than a name and a password need."""
        most = self.context.settings.max_body_bytes
        state = self.scope["state"]
        known = "principal" in state or "trusted_body" in state
        return most if known else min(most, _MOST_BYTES_OF_STRANGERS)

    async def _whole_body(self) -> bytes:
        """Most bodies are one message; the framework's stream costs more than the rest of a request."""
        most = self._most_bytes
        if (self.content_length or 0) > most:
            raise RequestEntityTooLarge
        parts: list[bytes] = []
        size = 0
        more = True
        while more:
            message: Any = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientException("the client went away")
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
            if size > most:
                raise RequestEntityTooLarge
        return b"".join(parts)

    async def fields(self) -> dict[str, list[str]]:
        """What a form says; of anything else, nothing. Not the framework's way, which guesses types."""
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
            raise Problem(400, "nul", "the form holds a NUL character, which can't be stored")
        return found

    def actor(self, name: str = _NOBODY, via: str = _NOBODY) -> Actor:
        """Who asks, for the audit log: the principal, or before there is one, who is named here."""
        principal: Principal | None = self.scope["state"].get("principal")
        if principal is not None:
            name, via = principal.name, principal.identity.via
        return Actor(
            name=name, via=via, request_id=self.id,
            interface="rest" if self.scope["path"].startswith("/v1/") else "dashboard",
            address=self.client.host if self.client else None,
        )  # fmt: skip

    def changing(
        self, action: str, subject: str, *, before: Any = None, after: Any = None,
        namespace: str | None = None,
    ) -> AbstractAsyncContextManager[Change]:  # fmt: skip
        """The transaction of a change of the server's own tables; see `rota.store.changes`."""
        principal: Principal | None = self.scope["state"].get("principal")
        space = namespace or (principal.namespace if principal is not None else None)
        return changing(
            self.context.database, action, subject, namespace=space, before=before, after=after
        )
