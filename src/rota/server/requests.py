"""A request: its body judged before it is parsed, and what it changed."""

from __future__ import annotations

from typing import Any

from litestar import Request

from rota.server.context import ServerContext, context_of
from rota.server.identity.principal import Principal
from rota.server.limits import check_json
from rota.server.problems import Problem
from rota.store.audit import Changed

_ROOM_AROUND_A_PAYLOAD = 16  # levels
_NOBODY = "nobody"


class RotaRequest(Request[Any, Any, Any]):
    """What handlers get as `request`."""

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
        if (encoding := self.headers.get("content-encoding", "identity")) != "identity":
            raise Problem(
                415, "unsupported-media-type",
                f"the body is encoded as {encoding[:50]!r}: send it as it is",
            )  # fmt: skip
        body = await super().body()
        if body and "rota_checked" not in self.scope["state"]:
            if self.content_type[0] not in (
                "application/x-www-form-urlencoded",
                "multipart/form-data",
            ):
                depth = self.context.settings.max_payload_depth + _ROOM_AROUND_A_PAYLOAD
                check_json(body, depth)
            self.scope["state"]["rota_checked"] = True
        return body

    def audit(
        self, action: str, subject: str, *, before: Any = None, after: Any = None,
        actor: str | None = None, via: str | None = None, namespace: str | None = None,
    ) -> None:  # fmt: skip
        """Record a change. It is written before the answer is sent, whatever that is."""
        principal: Principal | None = self.scope["state"].get("principal")
        if principal is not None:
            actor = actor or principal.name
            via = via or principal.identity.via
            namespace = namespace or principal.namespace
        changed = Changed(
            namespace=namespace or self.context.settings.namespace, actor=actor or _NOBODY,
            via=via or _NOBODY, action=action, subject=subject, before=before, after=after,
            request_id=self.id, address=self.client.host if self.client else None,
        )  # fmt: skip
        self.scope["state"].setdefault("changes", []).append(changed)
