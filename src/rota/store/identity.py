"""Tokens, users and sessions, in the store. Secrets come here only in hashed form."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rota.store.database import Database


class TokenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A token as people may see it: without its secret."""

    id: UUID
    prefix: str
    name: str
    namespace: str
    role: str
    scopes: list[str]
    tasks: list[str]  # empty: all
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    prefix: str
    hash: bytes
    name: str
    namespace: str
    role: str
    scopes: list[str]
    created_by: str
    expires_at: datetime | None
    tasks: list[str] = []
    made_with: UUID | None = None  # the token that it was made with


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    name: str
    expires_at: datetime
    memberships: dict[str, str]  # roles by namespace


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as admins see it: without its secret. `by_link`: nobody's in particular."""

    id: UUID
    name: str
    by_link: bool
    created_at: datetime
    expires_at: datetime
    memberships: dict[str, str]  # roles by namespace


class User(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    created_at: datetime
    disabled_at: datetime | None
    has_password: bool
    issuer: str | None
    memberships: dict[str, str]


class IdentityStore:
    """One short method per query."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- tokens

    async def create_token(self, token: NewToken) -> TokenInfo:
        rows = await self._database.fetch(
            "create_token", token.id, token.prefix, token.hash, token.name, token.namespace,
            token.role, token.scopes, token.created_by, token.expires_at, token.tasks,
            token.made_with,
        )  # fmt: skip
        return TokenInfo(**rows[0])

    async def find_token(self, digest: bytes) -> tuple[TokenInfo, float | None] | None:
        """One that is good now, and for how many seconds more; None: without an end."""
        rows = await self._database.fetch("find_token", digest)
        if not rows:
            return None
        fields = dict(rows[0])
        seconds_left: float | None = fields.pop("seconds_left")
        return TokenInfo(**fields), seconds_left

    async def list_tokens(
        self, namespace: str | None, *, revoked: bool = False,
        before: tuple[datetime, UUID] | None = None, limit: int = 1000,
    ) -> list[TokenInfo]:  # fmt: skip
        at, id = before or (None, None)
        rows = await self._database.fetch("list_tokens", namespace, revoked, at, id, limit)
        return [TokenInfo(**row) for row in rows]

    async def get_token(self, prefix: str, namespace: str | None) -> TokenInfo | None:
        rows = await self._database.fetch("get_token", prefix, namespace)
        return TokenInfo(**rows[0]) if rows else None

    async def revoke_token(
        self, prefix: str, namespace: str | None, *, made: bool = False
    ) -> list[TokenInfo]:
        """It first; with `made`, also those that were made with it. None of them: there is no such."""
        rows = await self._database.fetch("revoke_token", prefix, namespace, made)
        return sorted((TokenInfo(**row) for row in rows), key=lambda info: info.prefix != prefix)

    async def mark_tokens_used(self, seconds_ago: Mapping[UUID, float]) -> None:
        await self._database.fetch("mark_tokens_used", list(seconds_ago), [*seconds_ago.values()])

    # -- users

    async def put_user(self, id: UUID, name: str, password_hash: str | None) -> UUID:
        user: UUID = await self._database.fetchval("put_user", id, name, password_hash)
        return user

    async def put_membership(self, user: UUID, namespace: str, role: str) -> None:
        await self._database.fetch("put_membership", user, namespace, role)

    async def list_users(self, namespace: str | None) -> list[User]:
        return [_with_memberships(User, row)
                for row in await self._database.fetch("list_users", namespace)]  # fmt: skip

    async def remove_user(self, name: str) -> bool:
        return bool(await self._database.fetch("remove_user", name))

    async def find_user(self, name: str) -> tuple[UUID, str, str | None] | None:
        """Id, name and password's hash."""
        rows = await self._database.fetch("find_user", name)
        return tuple(rows[0]) if rows else None

    async def find_user_of_issuer(self, issuer: str, subject: str, name: str | None) -> UUID | None:
        rows = await self._database.fetch("find_user_of_issuer", issuer, subject, name)
        return rows[0]["id"] if rows else None

    # -- links and sessions

    async def create_link(
        self, digest: bytes, *, user: UUID | None, namespace: str | None, role: str | None,
        seconds: float,
    ) -> None:  # fmt: skip
        await self._database.fetch("create_link", digest, user, namespace, role, seconds)

    async def use_link(
        self, digest: bytes, session_hash: bytes, session_id: UUID, seconds: float
    ) -> bool:
        """Turns a link into a session, once."""
        return bool(
            await self._database.fetch("use_link", digest, session_hash, session_id, seconds)
        )

    async def create_session(self, digest: bytes, id: UUID, user: UUID, seconds: float) -> None:
        await self._database.fetch("create_session", digest, id, user, seconds)

    async def find_session(self, digest: bytes) -> tuple[SessionInfo, float] | None:
        """One that is good now, and for how many seconds more."""
        rows = await self._database.fetch("find_session", digest)
        if not rows:
            return None
        fields = dict(rows[0])
        seconds_left: float = fields.pop("seconds_left")
        return _with_memberships(SessionInfo, fields), seconds_left

    async def end_session(self, digest: bytes) -> bool:
        return bool(await self._database.fetch("end_session", digest))

    async def list_sessions(
        self, namespace: str | None, *, before: tuple[datetime, UUID] | None = None,
        limit: int = 1000,
    ) -> list[OpenSession]:  # fmt: skip
        at, id = before or (None, None)
        rows = await self._database.fetch("list_sessions", namespace, at, id, limit)
        return [_with_memberships(OpenSession, row) for row in rows]

    async def end_sessions(self, ids: list[UUID], namespace: str | None) -> list[UUID]:
        """Those that it ended."""
        rows = await self._database.fetch("end_sessions", ids, namespace)
        return [row["id"] for row in rows]

    # -- logging in

    async def is_known_place(self, place: bytes) -> bool:
        """Whether somebody has logged in from there before."""
        return bool(await self._database.fetchval("is_known_place", place))

    async def remember_place(self, place: bytes) -> None:
        await self._database.fetch("remember_place", place)

    async def count_attempt(self, subject: bytes, free: int) -> float:
        """Counts a log-in as failed, until it is known better; the seconds to wait, or 0."""
        rows = await self._database.fetch("count_attempt", subject, free)
        wait: float = rows[0]["wait"]
        return wait

    async def forget_failures(self, subjects: list[bytes]) -> None:
        await self._database.fetch("forget_failures", subjects)

    async def forgive_attempt(self, subject: bytes, free: int) -> None:
        """It was counted, and didn't fail."""
        await self._database.fetch("forgive_attempt", subject, free)

    async def begin_oidc(self, state: bytes, nonce: str, verifier: str, target: str) -> None:
        await self._database.fetch("begin_oidc", state, nonce, verifier, target)

    async def end_oidc(self, state: bytes) -> tuple[str, str, str] | None:
        """Nonce, verifier and where to go then; once."""
        rows = await self._database.fetch("end_oidc", state)
        return tuple(rows[0]) if rows else None

    async def sweep(self, audit_days: int) -> None:
        """Takes away what is over."""
        await self._database.fetch("sweep_identity", audit_days)


def _with_memberships(kind: Any, row: Any) -> Any:
    fields = dict(row)
    fields["memberships"] = msgspec.json.decode(fields["memberships"])
    return kind(**fields)
