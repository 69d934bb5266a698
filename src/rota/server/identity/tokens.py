"""API tokens: `rota_<prefix>_<secret>`, shown once.

The secret is 256 random bits. What is stored is its SHA-256: against guessing 256 bits a slow hash adds
nothing, and this one is looked up by index with each request.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from difflib import get_close_matches
from uuid import UUID

from rota.config import check_name
from rota.errors import ConfigError
from rota.lib.ids import new_id, new_prefix, new_secret
from rota.server.identity.memory import Looked, Memory
from rota.server.identity.principal import ANYWHERE, Identity
from rota.server.policy import SCOPE_NOUNS, SUBMIT_SCOPE, Role
from rota.store.identity import IdentityStore, NewToken, TokenInfo

_SCOPE = re.compile(r"[a-z]{1,30}(:(read|write))?")
_TOKEN = re.compile(r"rota_[a-z2-7]{8}_[A-Za-z0-9_-]{43}")
_MOST_SCOPES = 50
_MOST_TASKS = 100


def hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def check_scopes(scopes: Sequence[str]) -> list[str]:
    for scope in scopes:
        noun, _, what = scope.partition(":")
        if noun not in SCOPE_NOUNS or (scope != SUBMIT_SCOPE and not _SCOPE.fullmatch(scope)):
            near = get_close_matches(noun, sorted(SCOPE_NOUNS), 1, 0.5)
            meant = near[0] + (f":{what}" if what in ("read", "write") else "") if near else ""
            raise ConfigError(
                f"scopes: there is no scope {scope[:50]!r}"
                + (f"; do you mean {meant!r}? " if meant and meant != scope else ". ")
                + f"A scope is one of {', '.join(sorted(SCOPE_NOUNS))}, alone or with :read or "
                f":write; or {SUBMIT_SCOPE}"
            )
    if len(scopes) > _MOST_SCOPES:
        raise ConfigError(f"a token can have {_MOST_SCOPES} scopes at most")
    return sorted(set(scopes))


def check_tasks(tasks: Sequence[str], scopes: Sequence[str], role: str) -> list[str]:
    """What a token's limit to tasks may be. Such a token submits, and does nothing else."""
    if not tasks:
        return []
    if len(tasks) > _MOST_TASKS:
        raise ConfigError(f"tasks: a token can have {_MOST_TASKS} at most")
    for entry in tasks:
        name = entry.removesuffix("*")
        if name:
            check_name("tasks:", name)
    if not Role.parse(role).includes(Role.OPERATOR):
        raise ConfigError(
            f"role: a token for tasks submits jobs, which takes an operator, not {role}"
        )
    if set(scopes) - {SUBMIT_SCOPE}:
        raise ConfigError(
            f"scopes: a token for tasks can only submit ({SUBMIT_SCOPE}): make another for the rest"
        )
    return sorted(set(tasks))


async def create_token(
    store: IdentityStore, *, name: str, namespace: str, role: str, created_by: str,
    scopes: Sequence[str] = (), expires_at: datetime | None = None, tasks: Sequence[str] = (),
    made_with: UUID | None = None,
) -> tuple[str, TokenInfo]:  # fmt: skip
    """The token, which nobody will see again, and what is known of it."""
    if namespace != ANYWHERE:
        check_name("namespace", namespace)
    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise ConfigError("a token's name is 1 to 200 printable characters long")
    only = check_tasks(tasks, scopes, role)
    prefix = new_prefix()
    token = f"rota_{prefix}_{new_secret()}"
    info = await store.create_token(
        NewToken(
            id=new_id(), prefix=prefix, hash=hash_secret(token), name=name, namespace=namespace,
            role=Role.parse(role).label, created_by=created_by, expires_at=expires_at,
            scopes=[SUBMIT_SCOPE] if only else check_scopes(scopes), tasks=only,
            made_with=made_with,
        )
    )  # fmt: skip
    return token, info


class Tokens:
    """Says whose a token is."""

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
        """When each was last used. Called now and then: a write per request would be too much."""
        used, self._used = self._used, {}
        if used:
            now = self._clock()
            await self._store.mark_tokens_used({id: now - at for id, at in used.items()})
