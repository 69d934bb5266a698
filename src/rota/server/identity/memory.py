"""A cache of identities.

A revoked token or an ended session must be refused within five seconds, by every server. So nothing is
cached for longer than that, counted from before the lookup, nor longer than it is valid.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from rota.core.access import Identity

BELIEVED_SECONDS = 5.0
_ROOM = 10_000

Looked = tuple[Identity, float | None]  # with the seconds until it expires


class Memory:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._known: dict[bytes, tuple[Identity, float]] = {}

    async def recall(
        self, digest: bytes, look_up: Callable[[bytes], Awaitable[Looked | None]]
    ) -> Identity | None:
        asked = self._clock()
        known = self._known.get(digest)
        if known is not None and asked < known[1]:
            return known[0]
        self._known.pop(digest, None)
        found = await look_up(digest)
        if found is None:
            return None
        identity, seconds_left = found
        if len(self._known) >= _ROOM:
            self._known.clear()
        left = BELIEVED_SECONDS if seconds_left is None else min(BELIEVED_SECONDS, seconds_left)
        self._known[digest] = (identity, asked + left)
        return identity

    def forget(self, digest: bytes) -> None:
        self._known.pop(digest, None)

    def forget_all(self) -> None:
        self._known.clear()
