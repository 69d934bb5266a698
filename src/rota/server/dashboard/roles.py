"""The page of roles: the built-in ones, and those of the installation, which can be edited there."""

from __future__ import annotations

from typing import Annotated

import msgspec
from litestar.params import QueryParameter

from rota.core.administration import RoleInfo
from rota.errors import ConfigError, NotFound
from rota.server.api.roles import RoleRequest
from rota.server.dashboard import pages
from rota.server.dashboard.form_errors import NO_ERRORS, Errors
from rota.server.dashboard.forms import Fields, convert
from rota.server.policy import ADMIN, EVERYWHERE
from rota.server.requests import ContextDep, PrincipalDep, RotaRequest

_LABELS = {
    "name": "Name", "permissions": "Permissions", "namespaces": "Only in these namespaces",
    "tasks": "Only these tasks", "queues": "Only these queues", "description": "Description",
}  # fmt: skip


def _grouped(permissions: list[str]) -> list[tuple[str, list[str]]]:
    """Return permissions by noun."""
    nouns: dict[str, list[str]] = {}
    for each in sorted(permissions):
        nouns.setdefault(each.partition(":")[0], []).append(each)
    return list(nouns.items())


@pages.page("/roles", policy=ADMIN)
async def show_roles(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep,
    edit: Annotated[str | None, QueryParameter(max_length=100)] = None,
) -> pages.Html:  # fmt: skip
    """Show the roles; `edit` names the one that the form has."""
    return await _show_roles(request, context, principal, edit=edit)


async def _show_roles(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, *, edit: str | None = None,
    fields: Fields | None = None, errors: Errors = NO_ERRORS,
) -> pages.Html:  # fmt: skip
    roles = await context.installation.roles.list(visible_to=principal)
    edited: RoleInfo | None = None
    if edit is not None:
        edited = next((role for role in roles if role.name == edit and not role.built_in), None)
        if edited is None:
            raise NotFound(f"there is no role {edit!r} that can be changed")
    said = fields or Fields(_fields_of(edited))
    permissions = list(context.installation.roles.permissions())
    return await pages.show(
        request, "roles.html", roles=roles, edited=edited, said=said, errors=errors,
        status=422 if errors else 200, chosen=said.several("permission"),
        permissions=_grouped(permissions),
        how=[
            pages.Copyable("List the roles", cli=pages.cli("roles", "list"),
                           curl=pages.curl("GET", "/v1/roles")),
            pages.Copyable(
                "Define a role",
                cli=pages.cli("roles", "set", "NAME", "--permission", "queues:write"),
                curl=pages.curl("PUT", "/v1/roles/NAME", {"permissions": ["queues:write"]}),
            ),
        ],
    )  # fmt: skip


def _fields_of(role: RoleInfo | None) -> dict[str, list[str]]:
    if role is None:
        return {}
    return {
        "name": [role.name], "description": [role.description], "permission": role.permissions,
        "namespaces": [" ".join(role.namespaces)], "tasks": [" ".join(role.tasks)],
        "queues": [" ".join(role.queues)],
    }  # fmt: skip


@pages.action("/roles", policy=EVERYWHERE)
async def set_role(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep
) -> pages.Html | pages.Back:
    """Define a role, or replace its definition."""
    fields, errors = await Fields.of(request), Errors(_LABELS)
    with errors.at("permissions"):
        if not fields.several("permission"):
            raise ConfigError("choose at least one")
        values = convert(
            {"permissions": fields.several("permission"), "namespaces": fields.words("namespaces"),
             "tasks": fields.words("tasks"), "queues": fields.words("queues"),
             "description": fields.text("description") or ""},
            RoleRequest,
        )  # fmt: skip
        role = await context.installation.roles.set(
            fields.text("name") or "", **msgspec.structs.asdict(values), by=principal
        )
        return pages.back(request, "/roles", f"Role {role.name} saved.")
    return await _show_roles(request, context, principal, fields=fields, errors=errors)


@pages.action("/roles/remove", policy=EVERYWHERE, on_error="/roles")
async def remove_role(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep
) -> pages.Html | pages.Back:
    """Ask for confirmation first. With `sure`, delete the role."""
    fields = await Fields.of(request)
    name = fields.text("name") or ""
    if not fields.flag("sure"):
        return await pages.confirm(
            request, f"Delete role {name}?", "A role that somebody has can't be deleted.",
            path="/roles/remove", word="Delete the role", fields=[("name", name)],
            target=pages.Here(request).url("/roles"),
        )  # fmt: skip
    await context.installation.roles.delete(name, by=principal)
    return pages.back(request, "/roles", f"Role {name} deleted.")


ROUTES = [show_roles, set_role, remove_role]
