"""People: who may log in, and with which role. Shown to admins; changed by those who are it everywhere.

A person's password and links are for all their namespaces. So the admin of one can't give them.
"""

from __future__ import annotations

import asyncio

from rota.config import check_name
from rota.errors import ConfigError, NotFound
from rota.lib.ids import new_id
from rota.server.dashboard.commands import Copyable, cli
from rota.server.dashboard.forms import Fields, Wrong, telling_why
from rota.server.dashboard.pages import Back, Html, action, back, page, show
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.identity.links import create_link, link_url
from rota.server.identity.passwords import hash_password
from rota.server.identity.principal import ANYWHERE
from rota.server.policy import ADMIN, EVERYWHERE, Role
from rota.server.requests import RotaRequest
from rota.store.identity import PersonInfo

_ROLES = [role.label for role in Role if role is not Role.WORKER]


@page("/users", policy=ADMIN)
async def list_users(request: RotaRequest, context: ContextDep, principal: PrincipalDep) -> Html:
    return await _shown(request, context, principal)


async def _shown(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, *,
    link: tuple[str, str] | None = None, problem: str | None = None,
) -> Html:  # fmt: skip
    everywhere = principal.everywhere
    found = await context.identity.list_users(None if everywhere else principal.namespace)
    shown = [(person, _roles(person, principal.namespace, everywhere)) for person in found]
    return await show(
        request, "users.html", people=shown, roles=_ROLES, link=link, problem=problem,
        minutes=context.settings.link_minutes, status=200 if problem is None else 422,
        how=Copyable(cli="\n".join((
            cli("people", "add", "NAME", "--role", "operator", "--password"),
            cli("login", "--as", "NAME"),
        ))),
    )  # fmt: skip


def _roles(person: PersonInfo, namespace: str, everywhere: bool) -> list[tuple[str, str]]:
    """Those in other namespaces are none of this one's business."""
    return [
        (name, role) for name, role in sorted(person.memberships.items())
        if everywhere or name in (namespace, ANYWHERE)
    ]  # fmt: skip


@action("/users", policy=EVERYWHERE)
async def add_person(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep
) -> Back | Html:
    """Add a person, or give one another role or password."""
    fields = await Fields.of(request)
    try:
        with telling_why():
            name, role = fields.text("name") or "", fields.text("role") or "viewer"
            if not 1 <= len(name) <= 200 or not name.isprintable():
                raise ConfigError("a person's name is 1 to 200 printable characters long")
            if Role.parse(role) is Role.WORKER:
                raise ConfigError("people are viewer, operator or admin; workers have tokens")
            where = ANYWHERE if fields.flag("everywhere") else principal.namespace
            if where != ANYWHERE:
                check_name("namespace", where)
            password = fields.raw("password") or None
            # Slow on purpose: not on the loop that answers everybody else.
            hashed = await asyncio.to_thread(hash_password, password) if password else None
    except Wrong as wrong:
        return await _shown(request, context, principal, problem=str(wrong))
    after = {"role": role, "namespace": where, "password": password is not None}
    async with request.changing("add", f"person {name}", after=after, namespace=where):
        person = await context.identity.put_person(new_id(), name, hashed)
        await context.identity.put_membership(person, where, role)
    context.sessions.memory.forget_all()
    place = "all namespaces" if where == ANYWHERE else where
    return back(request, "/users", f"{name} is {role} in {place} now.")


@action("/users/remove", policy=EVERYWHERE)
async def remove_person(request: RotaRequest, context: ContextDep) -> Back:
    name = (await Fields.of(request)).text("name") or ""
    async with request.changing("remove", f"person {name}"):
        if not await context.identity.remove_person(name):
            raise NotFound(f"there is no person {name!r}")
    context.sessions.memory.forget_all()
    return back(request, "/users", f"{name} can't log in any more, and is logged out.")


@action("/users/link", policy=EVERYWHERE)
async def make_link(request: RotaRequest, context: ContextDep, principal: PrincipalDep) -> Html:
    """A link that logs a browser in as this person: once, and soon."""
    name = (await Fields.of(request)).text("name") or ""
    settings = context.settings
    seconds = settings.link_minutes * 60
    async with request.changing("link", f"person {name}"):
        secret = await create_link(context.identity, seconds=seconds, person=name)
    base = (settings.public_url or str(request.base_url)).rstrip("/")
    return await _shown(request, context, principal, link=(name, link_url(base, secret)))


ROUTES = [list_users, add_person, remove_person, make_link]
