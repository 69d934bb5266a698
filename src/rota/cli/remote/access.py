"""Tokens, users, sessions, namespaces and the audit log of a server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from rota.cli.remote.noun import PAGE, Noun, collect, needs_database
from rota.client import AsyncClient
from rota.core.administration import (
    AddedUser,
    AuditEntry,
    CreatedToken,
    Namespace,
    OpenSession,
    RoleInfo,
    TokenInfo,
    User,
)
from rota.core.roles import PERMISSIONS
from rota.operations.access import LoginLink

Tokens = list[TokenInfo]
Sessions = list[OpenSession]
Users = Sequence[User]
Namespaces = Sequence[Namespace]
Entries = list[AuditEntry]


class RemoteInstallation:
    """The operations of `rota.operations.installation.Installation`."""

    def __init__(self, client: AsyncClient, now: Callable[[], Awaitable[datetime]]) -> None:
        self.tokens = RemoteTokens(client, now)
        self.users = RemoteUsers(client)
        self.roles = RemoteRoles(client)
        self.sessions = RemoteSessions(client)
        self.namespaces = RemoteNamespaces(client)
        self.audit = RemoteAudit(client)


class RemoteTokens(Noun):
    def __init__(self, client: AsyncClient, now: Callable[[], Awaitable[datetime]]) -> None:
        super().__init__(client)
        self._now = now

    async def list(self, namespace: str | None, *, revoked: bool = False) -> Tokens:
        found = self._client.tokens.list(
            revoked=revoked, everywhere=namespace is None, limit=1000, page_size=PAGE
        )
        return await collect(found)

    async def create(
        self, name: str, *, namespace: str, role: str, everywhere: bool = False,
        scopes: Sequence[str] = (), tasks: Sequence[str] = (), expires_in: float | None = None,
        submits_per_second: float | None = None, queues: Sequence[str] = (),
    ) -> CreatedToken:  # fmt: skip
        expires = None
        if expires_in is not None:
            expires = await self._now() + timedelta(seconds=expires_in)
        return await self._client.tokens.create(
            name, role=role, scopes=scopes, tasks=tasks, expires_at=expires, everywhere=everywhere,
            submits_per_second=submits_per_second, queues=queues,
        )  # fmt: skip

    async def revoke(self, prefix: str, *, made: bool = False) -> Tokens:
        return [await self._client.tokens.revoke(prefix, made=made)]


class RemoteUsers(Noun):
    async def list(self, namespace: str | None) -> Users:
        return (await self._client.users.list()).items

    async def add(
        self, name: str, *, role: str, namespace: str, everywhere: bool = False,
        password: str | None = None,
    ) -> AddedUser:  # fmt: skip
        return await self._client.users.add(
            name, role=role, everywhere=everywhere, password=password
        )


class RemoteRoles(Noun):
    async def list(self) -> Sequence[RoleInfo]:
        return (await self._client.roles.list()).items

    def permissions(self) -> Sequence[str]:
        return sorted(PERMISSIONS)


class RemoteSessions(Noun):
    async def list(self, namespace: str | None) -> Sessions:
        return await collect(self._client.sessions.list(limit=1000, page_size=PAGE))

    async def end(self, ids: Sequence[UUID]) -> Sequence[UUID]:
        for id in ids:
            await self._client.sessions.end(id)
        return ids

    async def end_links(self) -> Sequence[UUID]:
        return (await self._client.sessions.end_links()).ids

    async def create_link(self, **given: Any) -> LoginLink:
        needs_database("login links")


class RemoteNamespaces(Noun):
    async def list(self) -> Namespaces:
        return (await self._client.namespaces.list()).items

    async def encrypted(self) -> frozenset[str]:
        return frozenset((await self._client.namespaces.list()).encrypted)


class RemoteAudit(Noun):
    async def list(self, namespace: str | None, **filters: Any) -> Entries:
        found = self._client.audit.list(**filters, everywhere=namespace is None, page_size=PAGE)
        return await collect(found)
