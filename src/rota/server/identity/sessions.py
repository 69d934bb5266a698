"""Sessions of browsers, in the database. The browser has a secret, the table its hash.

A change that comes with a cookie must also carry the session's CSRF token: it follows from the secret,
so that nothing more is stored, and another site that makes a browser send the cookie can't know it.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable
from uuid import UUID

from rota.core.access import Identity, Role
from rota.lib.ids import hash_secret, new_id, new_secret
from rota.server.identity.memory import Looked, Memory
from rota.store.identity import IdentityStore

_LONGEST = 100


def csrf_token(secret: str) -> str:
    return hmac.new(secret.encode(), b"rota csrf", hashlib.sha256).hexdigest()


class Sessions:
    def __init__(
        self, store: IdentityStore, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self.seconds = seconds
        self.memory = Memory(clock)

    async def begin(self, user: UUID) -> str:
        """Begin a session, and return its secret for the cookie."""
        secret = new_secret()
        await self._store.create_session(hash_secret(secret), new_id(), user, self.seconds)
        return secret

    async def begin_by_link(self, link: str) -> str | None:
        """Begin a session by a login link; None if the link was used, has expired or never existed."""
        secret = new_secret()
        used = await self._store.use_link(
            hash_secret(link[:_LONGEST]), hash_secret(secret), new_id(), self.seconds
        )
        return secret if used else None

    async def identify(self, secret: str) -> Identity | None:
        if len(secret) > _LONGEST:
            return None
        return await self.memory.recall(hash_secret(secret), self._look_up)

    async def _look_up(self, digest: bytes) -> Looked | None:
        found = await self._store.find_session(digest)
        if found is None:
            return None
        info, seconds_left = found
        memberships = {name: Role.parse(role) for name, role in info.memberships.items()}
        identity = Identity(
            id=info.id, name=info.name, kind="session", memberships=memberships,
            expires_at=info.expires_at,
        )  # fmt: skip
        return identity, seconds_left

    async def end(self, secret: str) -> None:
        digest = hash_secret(secret)
        self.memory.forget(digest)
        await self._store.end_session(digest)
