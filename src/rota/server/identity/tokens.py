"""Identify the bearer of an API token. `rota.operations.access` creates and revokes them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from uuid import UUID

from rota.core.access import Identity, Role
from rota.lib.ids import hash_secret
from rota.server.identity.memory import Looked, Memory
from rota.store.identity import IdentityStore

_TOKEN = re.compile(r"rota_[a-z2-7]{8}_[A-Za-z0-9_-]{43}")


class Tokens:
    """Identifies tokens, and remembers when each was last used."""

    def __init__(self, store: IdentityStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self.memory = Memory(clock)
        self._used: dict[UUID, float] = {}

    async def identify(self, token: str) -> Identity | None:
        if not _TOKEN.fullmatch(token):
            return None
        identity = await self.memory.recall(hash_secret(token), self._look_up)
        if identity is not None:
            self._used[identity.id] = self._clock()
        return identity

    async def _look_up(self, digest: bytes) -> Looked | None:
        found = await self._store.find_token(digest)
        if found is None:
            return None
        info, seconds_left = found
        identity = Identity(
            id=info.id, name=info.name, kind="token", prefix=info.prefix,
            memberships={info.namespace: Role.parse(info.role)}, scopes=tuple(info.scopes),
            tasks=tuple(info.tasks), expires_at=info.expires_at,
        )  # fmt: skip
        return identity, seconds_left

    async def save_uses(self) -> None:
        """Store when each token was last used. Called periodically: a write per request is too much."""
        used, self._used = self._used, {}
        if used:
            now = self._clock()
            await self._store.mark_tokens_used({id: now - at for id, at in used.items()})
