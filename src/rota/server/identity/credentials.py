"""Identify the sender of a request by API token or browser session. `rota.operations.access` creates
and ends both.

A change that is sent with a session's cookie must also carry the session's CSRF token. It is derived
from the session's secret: nothing more is stored, and another site that makes a browser send the cookie
can't compute it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Awaitable, Callable
from uuid import UUID

from rota.core.access import Identity
from rota.core.roles import BUILT_IN, named, names_of
from rota.lib.ids import hash_secret
from rota.store.identity import IdentityStore

CACHED_SECONDS = 5.0
CACHED_SECONDS_OF_OWN_ROLES = 0.5  # a role that was changed must have effect within a second
_MOST_CACHED = 10_000
_MOST_SECRET_CHARACTERS = 100
_TOKEN = re.compile(r"rota_[a-z2-7]{8}_[A-Za-z0-9_-]{43}")

Found = tuple[Identity, float | None]  # with the seconds until it expires


class IdentityCache:
    """A cache of identities, by the hash of their secret.

    A revoked token or an ended session must be refused within five seconds, by every server. So nothing
    is cached for longer than that, counted from before the lookup, nor longer than it is valid. What
    depends on a role of the installation is looked up more often, since such roles can be changed.
    """

    def __init__(
        self, look_up: Callable[[bytes], Awaitable[Found | None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._look_up = look_up
        self._clock = clock
        self._known: dict[bytes, tuple[Identity, float]] = {}

    async def find(self, secret: str) -> Identity | None:
        digest, now = hash_secret(secret), self._clock()
        known = self._known.get(digest)
        if known is not None and now < known[1]:
            return known[0]
        self._known.pop(digest, None)
        found = await self._look_up(digest)
        if found is None:
            return None
        identity, seconds_left = found
        if len(self._known) >= _MOST_CACHED:
            self._known.clear()
        most = CACHED_SECONDS_OF_OWN_ROLES if identity.has_own_roles else CACHED_SECONDS
        left = most if seconds_left is None else min(most, seconds_left)
        self._known[digest] = (identity, now + left)
        return identity

    def clear(self) -> None:
        self._known.clear()


def _has_own(roles: str) -> bool:
    """Return whether not all of these roles are built-in ones."""
    return not BUILT_IN.keys() >= set(names_of(roles))


class Tokens:
    """Identifies tokens, and remembers when each was last used."""

    def __init__(self, store: IdentityStore, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._clock = clock
        self.cache = IdentityCache(self._look_up, clock)
        self._used: dict[UUID, float] = {}

    async def identify(self, token: str) -> Identity | None:
        if not _TOKEN.fullmatch(token):
            return None
        identity = await self.cache.find(token)
        if identity is not None:
            self._used[identity.id] = self._clock()
        return identity

    async def _look_up(self, digest: bytes) -> Found | None:
        found = await self._store.find_token(digest)
        if found is None:
            return None
        info, defined, seconds_left = found
        identity = Identity(
            id=info.id, name=info.name, kind="token", prefix=info.prefix,
            memberships={info.namespace: named(info.role, defined)},
            has_own_roles=_has_own(info.role), scopes=tuple(info.scopes),
            tasks=tuple(info.tasks), expires_at=info.expires_at,
            submits_per_second=info.submits_per_second, queues=tuple(info.queues),
        )  # fmt: skip
        return identity, seconds_left

    async def save_uses(self) -> None:
        """Store when each token was last used. Called periodically: a write per request is too much."""
        used, self._used = self._used, {}
        if used:
            now = self._clock()
            await self._store.mark_tokens_used({id: now - at for id, at in used.items()})


class Sessions:
    """Identifies sessions. The browser has a secret, the table its hash."""

    def __init__(self, store: IdentityStore) -> None:
        self._store = store
        self.cache = IdentityCache(self._look_up)

    async def identify(self, secret: str) -> Identity | None:
        return await self.cache.find(secret) if len(secret) <= _MOST_SECRET_CHARACTERS else None

    async def _look_up(self, digest: bytes) -> Found | None:
        found = await self._store.find_session(digest)
        if found is None:
            return None
        info, defined, seconds_left = found
        identity = Identity(
            id=info.id, name=info.name, kind="session", expires_at=info.expires_at,
            memberships={name: named(role, defined) for name, role in info.memberships.items()},
            has_own_roles=any(_has_own(role) for role in info.memberships.values()),
        )  # fmt: skip
        return identity, seconds_left


def csrf_token(secret: str) -> str:
    return hmac.new(secret.encode(), b"rota csrf", hashlib.sha256).hexdigest()
