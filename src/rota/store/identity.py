"""Tokens, users and sessions, in the store. Only hashes of secrets are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from rota.core.administration import OpenSession, RoleInfo, SessionInfo, TokenInfo, User
from rota.core.roles import Roles, make_role
from rota.store.database import Store
from rota.store.rows import to_value


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
    submits_per_second: float | None = None
    queues: list[str] = []


def _roles_of(row: Any) -> Roles:
    """Return the roles of the installation that a row carries."""
    given = row["roles"]
    return tuple(make_role(each) for each in msgspec.json.decode(given)) if given else ()


class IdentityStore(Store):
    """One short method per query."""

    # -- tokens

    async def create_token(self, token: NewToken) -> TokenInfo:
        values = msgspec.structs.astuple(token)
        return await self._one(TokenInfo, "create_token", *values)

    async def find_token(self, digest: bytes) -> tuple[TokenInfo, Roles, float | None] | None:
        """Return a valid token, those of its roles that are not built in, and for how many seconds it
        stays valid; None: without an end."""
        rows = await self.database.fetch("find_token", digest)
        if not rows:
            return None
        return to_value(rows[0], TokenInfo), _roles_of(rows[0]), rows[0]["seconds_left"]

    async def list_tokens(
        self, namespace: str | None, *, revoked: bool = False,
        before: tuple[datetime, UUID] | None = None, limit: int = 1000,
    ) -> list[TokenInfo]:  # fmt: skip
        at, id = before or (None, None)
        return await self._all(TokenInfo, "list_tokens", namespace, revoked, at, id, limit)

    async def get_token(self, prefix: str, namespace: str | None) -> TokenInfo | None:
        return await self._first(TokenInfo, "get_token", prefix, namespace)

    async def revoke_token(
        self, prefix: str, namespace: str | None, *, made: bool = False
    ) -> list[TokenInfo]:
        """Revoke a token, and with `made` those that were made with it; the token itself comes first."""
        found = await self._all(TokenInfo, "revoke_token", prefix, namespace, made)
        return sorted(found, key=lambda info: info.prefix != prefix)

    async def mark_tokens_used(self, seconds_ago: Mapping[UUID, float]) -> None:
        await self.database.fetch("mark_tokens_used", list(seconds_ago), [*seconds_ago.values()])

    # -- users

    async def put_user(self, id: UUID, name: str, password_hash: str | None) -> UUID:
        return await self._one(UUID, "put_user", id, name, password_hash)

    async def put_membership(self, user: UUID, namespace: str, role: str) -> None:
        await self.database.fetch("put_membership", user, namespace, role)

    async def list_users(
        self, namespace: str | None, *, most: int | None = None, skip: int = 0
    ) -> list[User]:
        return await self._all(User, "list_users", namespace, most, skip)

    async def remove_user(self, name: str) -> bool:
        return bool(await self.database.fetch("remove_user", name))

    async def find_user(self, name: str) -> tuple[UUID, str, str | None] | None:
        """Return the id, the name and the password's hash."""
        return await self._first(tuple[UUID, str, str | None], "find_user", name)

    async def find_user_of_issuer(self, issuer: str, subject: str, name: str | None) -> UUID | None:
        return await self._first(UUID, "find_user_of_issuer", issuer, subject, name)

    async def add_user_of_issuer(
        self, id: UUID, name: str, issuer: str, subject: str
    ) -> UUID | None:
        """Add a user whom the provider vouches for; None if the name or the provider's id is taken."""
        return await self._first(UUID, "add_user_of_issuer", id, name, issuer, subject)

    async def memberships(self, user: UUID) -> dict[str, str]:
        """Return the roles of a user, by namespace."""
        rows = await self.database.fetch("list_memberships", user)
        return {row["namespace"]: row["role"] for row in rows}

    async def set_memberships(self, user: UUID, roles: Mapping[str, str]) -> None:
        """Give a user exactly these roles, by namespace."""
        await self.database.fetch("set_memberships", user, [*roles], [*roles.values()])

    # -- roles

    async def list_roles(self) -> list[RoleInfo]:
        return await self._all(RoleInfo, "list_roles")

    async def lock_roles(self, names: Sequence[str]) -> list[RoleInfo]:
        """Return those that exist, and keep them from being changed and deleted until the commit."""
        return await self._all(RoleInfo, "lock_roles", [*names])

    async def lock_role(self, name: str) -> RoleInfo | None:
        """Return a role, and keep it from being changed, deleted and given until the commit."""
        return await self._first(RoleInfo, "lock_role", name)

    async def put_role(self, role: RoleInfo) -> RoleInfo:
        return await self._one(
            RoleInfo, "put_role", role.name, role.permissions, role.namespaces, role.tasks,
            role.queues, role.description,
        )  # fmt: skip

    async def delete_role(self, name: str) -> None:
        await self.database.fetch("delete_role", name)

    async def uses_of_role(self, name: str) -> list[str]:
        """Return who has a role: users, tokens that are valid, open sessions and unused links."""
        return await self._all(str, "uses_of_role", name)

    # -- links and sessions

    async def create_link(
        self, digest: bytes, *, user: UUID | None, namespace: str | None, role: str | None,
        seconds: float,
    ) -> None:  # fmt: skip
        await self.database.fetch("create_link", digest, user, namespace, role, seconds)

    async def use_link(
        self, digest: bytes, session_hash: bytes, session_id: UUID, seconds: float
    ) -> bool:
        """Turn a link into a session, once."""
        values = (digest, session_hash, session_id, seconds)
        return bool(await self.database.fetch("use_link", *values))

    async def create_session(self, digest: bytes, id: UUID, user: UUID, seconds: float) -> None:
        await self.database.fetch("create_session", digest, id, user, seconds)

    async def find_session(self, digest: bytes) -> tuple[SessionInfo, Roles, float] | None:
        """Return a valid session, those of its roles that are not built in, and for how many seconds it
        stays valid."""
        rows = await self.database.fetch("find_session", digest)
        if not rows:
            return None
        return to_value(rows[0], SessionInfo), _roles_of(rows[0]), rows[0]["seconds_left"]

    async def end_session(self, digest: bytes) -> bool:
        return bool(await self.database.fetch("end_session", digest))

    async def list_sessions(
        self, namespace: str | None, *, before: tuple[datetime, UUID] | None = None,
        limit: int = 1000,
    ) -> list[OpenSession]:  # fmt: skip
        at, id = before or (None, None)
        return await self._all(OpenSession, "list_sessions", namespace, at, id, limit)

    async def end_sessions(self, ids: list[UUID], namespace: str | None) -> list[UUID]:
        """End these sessions, and return the ids of those that were open."""
        return await self._all(UUID, "end_sessions", ids, namespace)

    # -- logging in

    async def is_known_place(self, place: bytes) -> bool:
        """Return whether a user has logged in from there before."""
        return bool(await self.database.fetchval("is_known_place", place))

    async def remember_place(self, place: bytes) -> None:
        await self.database.fetch("remember_place", place)

    async def count_attempt(self, subject: bytes, free: int) -> float:
        """Count a log-in as failed, until it succeeds, and return the seconds to wait, or 0."""
        return await self._one(float, "count_attempt", subject, free)

    async def forget_failures(self, subjects: list[bytes]) -> None:
        await self.database.fetch("forget_failures", subjects)

    async def forgive_attempt(self, subject: bytes, free: int) -> None:
        """Take back the count of a log-in that didn't fail."""
        await self.database.fetch("forgive_attempt", subject, free)

    async def begin_oidc(self, state: bytes, nonce: str, verifier: str, target: str) -> None:
        await self.database.fetch("begin_oidc", state, nonce, verifier, target)

    async def end_oidc(self, state: bytes) -> tuple[str, str, str] | None:
        """Return nonce, verifier and the target of the redirect, once."""
        return await self._first(tuple[str, str, str], "end_oidc", state)

    async def sweep(self, audit_days: int) -> None:
        """Delete sessions, links and log-ins that have expired, and old rows of the audit log."""
        await self.database.fetch("sweep_identity", audit_days)
