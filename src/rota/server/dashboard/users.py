"""The page of users. Admins see it; only admins of all namespaces change it.

A user's password and login links are good for all their namespaces. So the admin of one can't give them.
"""

from __future__ import annotations

from rota.core.access import ANYWHERE, Role
from rota.server.dashboard.commands import Copyable, cli
from rota.server.dashboard.forms import Fields, Wrong, telling_why
from rota.server.dashboard.pages import Back, Html, action, back, page, show
from rota.server.dependencies import ContextDep, PrincipalDep
from rota.server.policy import ADMIN, EVERYWHERE
from rota.server.requests import RotaRequest
from rota.store.identity import User

_ROLES = [role.label for role in Role if role is not Role.WORKER]


@page("/users", policy=ADMIN)
async def list_users(request: RotaRequest, context: ContextDep, principal: PrincipalDep) -> Html:
    return await _shown(request, context, principal)


async def _shown(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, *,
    link: tuple[str, str] | None = None, problem: str | None = None,
) -> Html:  # fmt: skip
    everywhere = principal.everywhere
    found = await context.installation.users.list(principal.reach)
    shown = [(user, _roles(user, principal.namespace, everywhere)) for user in found]
    return await show(
        request, "users.html", users=shown, roles=_ROLES, link=link, problem=problem,
        minutes=context.settings.link_minutes, status=200 if problem is None else 422,
        how=Copyable(cli="\n".join((
            cli("users", "add", "NAME", "--role", "operator", "--password"),
            cli("login", "--as", "NAME"),
        ))),
    )  # fmt: skip


def _roles(user: User, namespace: str, everywhere: bool) -> list[tuple[str, str]]:
    """Return the roles that an admin may see: not those in other namespaces."""
    return [
        (name, role) for name, role in sorted(user.memberships.items())
        if everywhere or name in (namespace, ANYWHERE)
    ]  # fmt: skip


@action("/users", policy=EVERYWHERE)
async def add_user(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep
) -> Back | Html:
    """Add a user, or change the role or password of one."""
    fields = await Fields.of(request)
    try:
        with telling_why():
            added = await context.installation.users.add(
                fields.text("name") or "", role=fields.text("role") or "viewer",
                namespace=principal.namespace, everywhere=fields.flag("everywhere"),
                password=fields.raw("password") or None,
            )  # fmt: skip
    except Wrong as wrong:
        return await _shown(request, context, principal, problem=str(wrong))
    place = "all namespaces" if added.namespace == ANYWHERE else added.namespace
    return back(request, "/users", f"{added.name} is {added.role} in {place} now.")


@action("/users/remove", policy=EVERYWHERE)
async def remove_user(request: RotaRequest, context: ContextDep) -> Back:
    name = (await Fields.of(request)).text("name") or ""
    await context.installation.users.remove(name)
    return back(request, "/users", f"{name} removed and logged out.")


@action("/users/link", policy=EVERYWHERE)
async def make_link(request: RotaRequest, context: ContextDep, principal: PrincipalDep) -> Html:
    """Create a one-time login link for a user."""
    name = (await Fields.of(request)).text("name") or ""
    link = await context.installation.sessions.create_link(user=name)
    base = context.settings.public_url or str(request.base_url)
    return await _shown(request, context, principal, link=(name, link.url(base)))


ROUTES = [list_users, add_user, remove_user, make_link]
