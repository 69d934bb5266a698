"""Operations on API tokens, users, their sessions and one-time login links."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias
from uuid import UUID

import msgspec

from rota.config import check_name
from rota.core.access import (
    Identity,
    Principal,
    check_label,
    check_scopes,
    check_submits,
)
from rota.core.administration import AddedUser, CreatedToken, OpenSession, TokenInfo, User
from rota.core.roles import ADMIN, ANYWHERE, SUBMIT, check_role_names, named
from rota.errors import AccessDenied, ConfigError, NotFound
from rota.lib.ids import hash_secret, new_id, new_prefix, new_secret
from rota.operations.base import InstallationOperations
from rota.operations.roles import existing_roles, roles_to_give
from rota.store.changes import changing, current_actor, local_user
from rota.store.identity import IdentityStore, NewToken

log = logging.getLogger("rota.access")

Place: TypeAlias = tuple[datetime, UUID]  # where a page of a list ends
Ids: TypeAlias = list[UUID]
TokenInfos: TypeAlias = list[TokenInfo]  # inside Tokens, `list` is its method


class _Access(InstallationOperations):
    """Access is kept in tables of the installation, apart from the jobs of namespaces."""

    async def _store(self) -> IdentityStore:
        return IdentityStore(await self._database())


class Tokens(_Access):
    """The API tokens: `rota_<prefix>_<secret>`.

    The secret is 256 random bits. Its SHA-256 is stored: against guessing 256 bits a slow hash adds
    nothing, and this one is looked up by index with each request.
    """

    async def list(
        self, namespace: str | None, *, revoked: bool = False, before: Place | None = None,
        limit: int = 1000,
    ) -> list[TokenInfo]:  # fmt: skip
        """List tokens, newest first; those of all namespaces if `namespace` is None."""
        store = await self._store()
        return await store.list_tokens(namespace, revoked=revoked, before=before, limit=limit)

    async def create(
        self, name: str, *, namespace: str, role: str, everywhere: bool = False,
        scopes: Sequence[str] = (), tasks: Sequence[str] = (), expires_at: datetime | None = None,
        expires_in: float | None = None, submits_per_second: float | None = None,
        by: Principal | None = None, queues: Sequence[str] = (),
    ) -> CreatedToken:  # fmt: skip
        """Create a token for a namespace, or with `everywhere` for all of them.

        `by`, if given, is who creates it: the token can do no more than they can, and ends no later than
        the token they used. Without it, the creator has the database, and no such limits.
        `tasks` and `queues` limit it to submitting jobs of these, to these.
        `submits_per_second`: how many jobs its requests may submit, at all servers together.
        """
        if submits_per_second is not None and not 0 < submits_per_second <= 1e9:
            raise ConfigError(
                f"submits_per_second must be above 0 and at most 1e9, not {submits_per_second!r}",
                field="submits_per_second",
            )
        check_label("token", name)
        check_name("namespace", namespace)
        role = check_role_names(role, of_user=False)
        scopes = check_scopes(scopes)
        if expires_at is not None and expires_at.tzinfo is None:
            raise ConfigError(
                "expires_at needs a UTC offset, as in 2026-12-31T23:59:59Z", field="expires_at"
            )
        if by is not None:
            by.check_may_create_token(scopes, everywhere=everywhere)
            expires_at = by.limit_expiry(expires_at)
            if (most := by.identity.submits_per_second) is not None:
                submits_per_second = min(submits_per_second or most, most)
        if expires_in is not None:
            now = await (await self._connections.opened()).store.now()
            expires_at = now + timedelta(seconds=expires_in)
        prefix = new_prefix()
        token = f"rota_{prefix}_{new_secret()}"
        store = await self._store()
        async with self._changing("create", f"token {prefix}", namespace=namespace) as change:
            roles = await roles_to_give(store, role)
            only = check_submits("tasks", tasks, scopes, roles)
            only_to = check_submits("queues", queues, scopes, roles)
            allowed = [SUBMIT] if only or only_to else scopes
            if by is not None:
                by.check_may_grant(roles, everywhere=everywhere, scopes=allowed)
            change.after = info = await store.create_token(NewToken(
                id=new_id(), prefix=prefix, hash=hash_secret(token), name=name,
                namespace=ANYWHERE if everywhere else namespace, role=role,
                created_by=by.name if by else local_user(), expires_at=expires_at, scopes=allowed,
                tasks=only, made_with=by.identity.id if by and by.identity.prefix else None,
                submits_per_second=submits_per_second, queues=only_to,
            ))  # fmt: skip
        return CreatedToken(token, info)

    async def get(self, prefix: str, *, by: Principal) -> TokenInfo:
        """Return a token that `by` may revoke; `NotFound` for any other."""
        store = await self._store()
        for namespace in (by.namespace, *([ANYWHERE] if by.everywhere else [])):
            if (found := await store.get_token(prefix, namespace)) is not None:
                return found
        raise NotFound(f"there is no token {prefix!r} in namespace {by.namespace!r}")

    async def revoke(
        self, prefix: str, *, made: bool = False, by: Principal | None = None
    ) -> TokenInfos:
        """Revoke a token; with `made`, also the tokens that were created with it.

        Every server refuses it within five seconds. The token comes first in the result.
        """
        reach: list[str | None] = [None]
        if by is not None:
            reach = [by.namespace, *([ANYWHERE] if by.everywhere else [])]
        revoked: list[TokenInfo] = []
        store, where = await self._store(), by.namespace if by else None
        async with self._changing("revoke", f"token {prefix}", namespace=where) as change:
            for namespace in reach:
                change.before = await store.get_token(prefix, namespace)
                if revoked := await store.revoke_token(prefix, namespace, made=made):
                    break
            if not revoked:
                raise NotFound(f"there is no token {prefix!r}" + (
                    f" in namespace {by.namespace!r}" if by else
                    "; `rota tokens list --all-namespaces` lists them"
                ))  # fmt: skip
            change.after = revoked if made else revoked[0]
            if by is None:
                change.namespace = revoked[0].namespace
        return revoked


class Users(_Access):
    """The users who may log in to the dashboard, by password or OpenID Connect."""

    async def list(self, namespace: str | None) -> list[User]:
        """List the users with a role in a namespace; all of them if it is None."""
        return await (await self._store()).list_users(namespace)

    async def part(self, namespace: str | None, skip: int, most: int) -> Sequence[User]:
        """Return `most` of those that `list` has, from the one after the first `skip` on."""
        return await (await self._store()).list_users(namespace, most=most, skip=skip)

    async def add(
        self, name: str, *, role: str, namespace: str, everywhere: bool = False,
        password: str | None = None, by: Principal | None = None,
    ) -> AddedUser:  # fmt: skip
        """Add a user, or change the roles or password of one.

        `by`, if given, is who does it: they can give no more than they may do themselves, and change
        nobody who may do more.
        """
        from rota.lib.passwords import hash_password  # slow to import

        check_label("user", name)
        role = check_role_names(role, of_user=True)
        if by is not None and password is not None:
            _check_may_lend_account(by)
        where = ANYWHERE if everywhere else check_name("namespace", namespace)
        # Slow on purpose: not on the loop that answers everybody else.
        hashed = await asyncio.to_thread(hash_password, password) if password is not None else None
        added = AddedUser(name, role, where, hashed is not None)
        store = await self._store()
        async with self._changing("add", f"user {name}", namespace=where, after=added):
            roles = await roles_to_give(store, role, of_user=True)
            user = await store.put_user(new_id(), name, hashed)  # locks the user
            if by is not None:
                by.check_may_grant(roles, everywhere=True)
                await _check_covers(by, store, user, name)
            await store.put_membership(user, where, role)
        return added

    async def follow_groups(
        self, issuer: str, subject: str, vouched: str | None, roles: Mapping[str, str]
    ) -> UUID | None:
        """Give somebody whom a login provider has named exactly the roles of their groups.

        Who is not known yet is added, under the e-mail address that the provider vouches for. Returns
        None for somebody without a role, whose old roles are taken away, and for who can't be added.
        """
        store = await self._store()
        async with self._changing("map", f"user {vouched or subject}") as change:
            user = await store.find_user_of_issuer(issuer, subject, vouched)
            if user is None and roles and vouched is not None:
                # Of two log-ins at once, the second finds whom the first has added.
                user = await store.add_user_of_issuer(
                    new_id(), vouched, issuer, subject
                ) or await store.find_user_of_issuer(issuer, subject, vouched)
            before = await store.memberships(user) if user is not None else {}
            existing = {where: await existing_roles(store, roles[where]) for where in sorted(roles)}
            if existing != roles:
                gone = {*",".join(roles.values()).split(",")} - {
                    *",".join(existing.values()).split(",")
                }
                log.warning(
                    "oidc_groups names roles that do not exist: %s", ", ".join(sorted(gone))
                )
            roles = {where: role for where, role in existing.items() if role}
            if user is None or before == roles:
                change.void()
            else:
                change.actor = current_actor(vouched or subject, "oidc")
                change.before, change.after = before, dict(roles)
                await store.set_memberships(user, roles)
        return user if roles else None

    async def remove(self, name: str, *, by: Principal | None = None) -> None:
        """Remove a user, and end their sessions. `by` as in `add`."""
        store = await self._store()
        async with self._changing("remove", f"user {name}"):
            found = await store.find_user(name) if by is not None else None
            if by is not None and found is not None:
                await _check_covers(by, store, found[0], name)
            if not await store.remove_user(name):
                raise NotFound(f"there is no user {name!r}; `rota users list` lists them")


def _check_may_lend_account(by: Principal) -> None:
    """Refuse those who could otherwise log in as somebody who is given more than they have, later."""
    try:
        by.check_may_grant((ADMIN,), everywhere=True)
    except AccessDenied:
        raise AccessDenied(
            "only an admin of all namespaces sets passwords and makes login links: who has them acts as "
            "that user, also with roles that the user is given later",
            field="password",
        ) from None


async def _check_covers(by: Principal, store: IdentityStore, user: UUID, name: str) -> None:
    """Refuse to change a user who may do more than the one who changes them."""
    held = await store.memberships(user)
    defined = [each.role for each in await store.list_roles()]
    try:
        for roles in held.values():
            by.check_may_grant(named(roles, defined), everywhere=True)
    except AccessDenied as error:
        raise AccessDenied(f"user {name!r} may do more than you: {error}", field="name") from None


class LoginLink(msgspec.Struct, frozen=True):
    """A link that logs a browser in, once."""

    secret: str
    seconds: float

    def url(self, base: str) -> str:
        # After the #, so that it is in no log, no history of a proxy and no Referer.
        return f"{base.rstrip('/')}/login#{self.secret}"


class BegunSession(msgspec.Struct, frozen=True):
    """A new session. `secret` is for the browser's cookie; only its hash is stored."""

    secret: str
    name: str
    seconds: int


class Sessions(_Access):
    """The sessions of browsers that are logged in, and the links that begin them."""

    async def list(
        self, namespace: str | None, *, before: Place | None = None, limit: int = 1000
    ) -> list[OpenSession]:
        """List sessions with a role in a namespace (None: in any), newest first."""
        return await (await self._store()).list_sessions(namespace, before=before, limit=limit)

    async def end(self, ids: Sequence[UUID], *, by: Principal | None = None) -> Ids:
        """End sessions: every server refuses their cookies within five seconds.

        The session of a user who also has a role in other namespaces can only be ended by an admin of
        all namespaces. Nothing is ended if one of them can't be.
        """
        subject = f"session {ids[0]}" if len(ids) == 1 else "sessions"
        store, where = await self._store(), by.namespace if by else None
        async with self._changing("end", subject, namespace=where) as change:
            ended = await store.end_sessions([*ids], by.reach if by else None)
            if missing := set(ids) - set(ended):
                raise NotFound(
                    f"there is no session {min(missing)}" + (" that you can end" if by else
                    "; `rota sessions list` lists them")
                )  # fmt: skip
            change.after = {"ended": ended}
            if not ended:
                change.void()
        return ended

    async def end_links(self) -> Ids:
        """End the sessions that were begun with a login link."""
        return await self.end([one.id for one in await self.list(None) if one.by_link])

    async def log_in(
        self, via: str, *, user: UUID | None = None, link: str | None = None
    ) -> BegunSession | None:
        """Begin a session, and record it as a login of its owner.

        It is for a user who was identified by `via`, or for the owner of a one-time link: None if the
        link was used, has expired or never existed.
        """
        store, seconds = await self._store(), self._connections.settings.session_hours * 3600
        secret, id = new_secret(), new_id()
        async with changing(await self._database(), "login", f"session {id}") as change:
            if user is not None:
                await store.create_session(hash_secret(secret), id, user, seconds)
            elif link is None or not await store.use_link(
                hash_secret(link), hash_secret(secret), id, seconds
            ):
                change.void()
                return None
            found = await store.find_session(hash_secret(secret))
            if found is None:  # the user was removed meanwhile
                change.void()
                return None
            change.actor = current_actor(found[0].name, via)
        return BegunSession(secret, found[0].name, int(seconds))

    async def log_out(self, secret: str, owner: Identity) -> None:
        """End the session of a cookie, and record it as a logout of its owner."""
        async with self._changing("logout", f"session {owner.id}") as change:
            change.actor = current_actor(owner.name, owner.via)
            await (await self._store()).end_session(hash_secret(secret))

    async def create_link(
        self, *, user: str | None = None, role: str = "admin", namespace: str = ANYWHERE,
        by: Principal | None = None,
    ) -> LoginLink:  # fmt: skip
        """Create a one-time login link: for a user, or for whoever opens it, in a role. `by` as in
        `Users.add`."""
        label = check_role_names(role, of_user=True)
        if by is not None:
            _check_may_lend_account(by)
        link = LoginLink(new_secret(), self._connections.settings.link_minutes * 60)
        subject = f"user {user}" if user else f"{role} of {namespace}"
        store = await self._store()
        async with self._changing("link", subject, namespace=namespace):
            found = await store.find_user(user) if user is not None else None
            if user is None:
                await roles_to_give(store, role, of_user=True)
            if user is not None and found is None:
                raise NotFound(f"there is no user {user!r}; `rota users add` adds one")
            await store.create_link(
                hash_secret(link.secret), user=found[0] if found else None,
                namespace=None if found else namespace, role=None if found else label,
                seconds=link.seconds,
            )  # fmt: skip
        return link
