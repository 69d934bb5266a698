"""The pages of the settings (tokens, users, namespaces and webhooks) and of the audit log."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from litestar.datastructures import Cookie
from litestar.params import FromPath, QueryParameter
from litestar.response import Redirect

from rota.core.administration import CreatedToken, Limits
from rota.core.roles import ANYWHERE, NOUNS, SUBMIT, WORKER, label_of
from rota.core.time.zones import zone as zone_of
from rota.errors import ConfigError
from rota.operations.rota import Rota
from rota.operations.webhooks import KINDS
from rota.server.api.access import TokenRequest, audit_page, token_page
from rota.server.api.endpoints import WebhookRequest
from rota.server.dashboard import pages
from rota.server.dashboard.form_errors import NO_ERRORS, Errors
from rota.server.dashboard.forms import Fields, convert
from rota.server.policy import ADMIN, EVERYWHERE, VIEWER
from rota.server.requests import ContextDep, PrincipalDep, RotaRequest, StatsDep, TenantDep
from rota.server.targets import safe_target
from rota.store.dashboard import DashboardStore

_ROWS = 50
_PART = 30  # users, namespaces, webhooks
_YEAR = 365 * 86_400
_TOKEN_LABELS = {
    "name": "Name", "role": "Role", "scopes": "Scopes", "tasks": "Only these tasks",
    "queues": "Only these queues",
    "expires_at": "Expires", "everywhere": "In all namespaces",
}  # fmt: skip
_WEBHOOK_LABELS = {"url": "URL", "kinds": "Events", "format": "Format"}
# Scopes that only pages need, and every token has.
_NOT_OFFERED = {"root", "live", "session", "settings", "calendar", "cluster", "find", "forecast"}
Text = Annotated[str | None, QueryParameter(max_length=500)]


@pages.page("/settings", policy=VIEWER)
async def settings(request: RotaRequest) -> Redirect:
    here = pages.Here(request)
    return Redirect(here.url(here.settings[0][0]), status_code=303)


@pages.action("/session/zone", policy=VIEWER)
async def choose_zone(request: RotaRequest) -> pages.Back:
    """Show and read times in another zone. It is a preference of this browser, and stored only there."""
    fields = await Fields.of(request)
    target, name = safe_target(fields.text("return")), fields.text("choose") or "UTC"
    try:
        key = zone_of(name).key
    except ConfigError as error:
        return pages.back(request, target, str(error), kind="problem")
    answer = pages.back(request, target, f"Times are shown in {key} now.")
    answer.cookies.append(
        Cookie(key=pages.ZONE_COOKIE, value=key, path="/", samesite="lax", max_age=_YEAR)
    )
    return answer


# -- tokens


@pages.page("/tokens", policy=ADMIN)
async def show_tokens(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, cursor: Text = None
) -> pages.Html:
    return await _show_tokens(request, context, principal, cursor=cursor or None)


async def _show_tokens(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, *,
    cursor: str | None = None, made: CreatedToken | None = None, fields: Fields | None = None,
    errors: Errors = NO_ERRORS,
) -> pages.Html:  # fmt: skip
    said = fields or Fields({"role": ["operator"]})
    found = await token_page(context, principal.namespace, _ROWS, cursor)
    here = pages.Here(request)
    return await pages.show(
        request, "tokens.html", tokens=found.items, made=made, errors=errors,
        status=422 if errors else 201 if made else 200, said=said, chosen=said.several("scope"),
        scopes=_scopes(),
        next=here.url("/tokens", cursor=found.next) if found.next else None,
        roles=[role.name for role in await context.installation.roles.list(visible_to=principal)],
        how=[
            pages.Copyable("List the tokens", cli=pages.cli("tokens", "list"),
                           curl=pages.curl("GET", "/v1/tokens")),
            pages.Copyable(
                "Create a token", cli=pages.cli("tokens", "create", "NAME", "--role", "operator"),
                curl=pages.curl("POST", "/v1/tokens", {"name": "NAME", "role": "operator"}),
            ),
        ],
    )  # fmt: skip


def _scopes() -> list[tuple[str, list[str]]]:
    """Return the scopes to choose from, by noun."""
    found = [(noun, [f"{noun}:read", f"{noun}:write"]) for noun in sorted(NOUNS - _NOT_OFFERED)]
    return [(noun, [*each, SUBMIT] if noun == "jobs" else each) for noun, each in found]


@pages.action("/tokens", policy=ADMIN)
async def create_token(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep
) -> pages.Html:
    """Create a token. The answer is the only page that ever shows it."""
    fields, errors = await Fields.of(request), Errors(_TOKEN_LABELS)
    made, expires_at = None, None
    with errors.at("expires_at"):
        expires_at = fields.moment("expires_at")
    if not errors:
        with errors.at():
            values = convert(
                {"name": fields.text("name") or "", "role": fields.text("role"),
                 "scopes": fields.several("scope"), "tasks": fields.words("tasks"),
                 "queues": fields.words("queues"),
                 "expires_at": expires_at, "everywhere": fields.flag("everywhere")},
                TokenRequest,
            )  # fmt: skip
            made = await context.installation.tokens.create(
                **msgspec.structs.asdict(values), namespace=principal.namespace, by=principal
            )
    shown = fields if errors else None
    return await _show_tokens(request, context, principal, made=made, fields=shown, errors=errors)


@pages.action("/tokens/{prefix:str}/revoke", policy=ADMIN)
async def revoke_token(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, prefix: FromPath[str]
) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, revoke the token."""
    if not (await Fields.of(request)).flag("sure"):
        token = await context.installation.tokens.get(prefix, by=principal)
        return await pages.confirm(
            request, f"Revoke token {prefix}?", f"{token.name}, {token.role}.",
            "Every server refuses it within five seconds. This can't be undone.",
            path=f"/tokens/{prefix}/revoke", word="Revoke the token",
            target=pages.Here(request).url("/tokens"),
        )  # fmt: skip
    await context.installation.tokens.revoke(prefix, by=principal)
    text = f"Token {prefix} revoked. Every server refuses it within five seconds."
    return pages.back(request, "/tokens", text)


# -- users. Their passwords and login links are valid in all their namespaces: so only admins of all
# namespaces change them.


@pages.page("/users", policy=ADMIN)
async def show_users(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, skip: pages.Skip = 0
) -> pages.Html:
    return await _show_users(request, context, principal, skip=skip)


async def _show_users(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, *,
    link: tuple[str, str] | None = None, skip: int = 0,
) -> pages.Html:  # fmt: skip
    seen = (principal.namespace, ANYWHERE)  # not the roles in other namespaces
    users = [
        (user, [role for role in sorted(user.memberships.items())
                if principal.everywhere or role[0] in seen])
        for user in await context.installation.users.part(principal.reach, skip, _PART + 1)
    ]  # fmt: skip
    return await pages.show(
        request, "users.html", users=pages.part(request, users, skip, _PART), link=link,
        minutes=context.settings.link_minutes,
        roles=[role.name for role in await context.installation.roles.list(visible_to=principal)
               if role.name != WORKER.name],
        how=[
            pages.Copyable("List the users", cli=pages.cli("users", "list")),
            pages.Copyable("Add a user",
                           cli=pages.cli("users", "add", "NAME", "--role", "operator", "--password")),
            pages.Copyable("Create a one-time login link", cli=pages.cli("login", "--as", "NAME")),
        ],
    )  # fmt: skip


@pages.action("/users", policy=EVERYWHERE, on_error="/users")
async def add_user(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep
) -> pages.Back:
    """Add a user, or change the role or password of one."""
    fields = await Fields.of(request)
    added = await context.installation.users.add(
        fields.text("name") or "", role=fields.text("role") or "viewer",
        namespace=principal.namespace, everywhere=fields.flag("everywhere"),
        password=fields.raw("password") or None, by=principal,
    )  # fmt: skip
    place = "all namespaces" if added.namespace == ANYWHERE else added.namespace
    return pages.back(request, "/users", f"{added.name} is {added.role} in {place} now.")


@pages.action("/users/remove", policy=EVERYWHERE)
async def remove_user(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep
) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, remove the user."""
    fields = await Fields.of(request)
    name = fields.text("name") or ""
    if not fields.flag("sure"):
        return await pages.confirm(
            request, f"Remove user {name}?",
            "They are logged out everywhere, and their roles are gone. This can't be undone.",
            path="/users/remove", word="Remove the user", fields=[("name", name)],
            target=pages.Here(request).url("/users"),
        )  # fmt: skip
    await context.installation.users.remove(name, by=principal)
    return pages.back(request, "/users", f"{name} removed and logged out.")


@pages.action("/users/link", policy=EVERYWHERE)
async def create_link(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep
) -> pages.Html:
    """Create a one-time login link for a user."""
    name = (await Fields.of(request)).text("name") or ""
    link = await context.installation.sessions.create_link(user=name, by=principal)
    base = context.settings.public_url or str(request.base_url)
    return await _show_users(request, context, principal, link=(name, link.url(base)))


# -- namespaces


@pages.page("/namespaces", policy=VIEWER)
async def show_namespaces(
    request: RotaRequest, context: ContextDep, principal: PrincipalDep, skip: pages.Skip = 0
) -> pages.Html:
    installation, identity = context.installation, principal.identity
    # Those of the user, which may be without a row, and all others for whom has a role everywhere.
    own = {principal.namespace, context.settings.namespace, *identity.memberships} - {ANYWHERE}
    own = {name for name in own if identity.roles_in(name)}
    found = await installation.namespaces.part(
        own, skip, _PART + 1, others=bool(identity.roles_in(ANYWHERE))
    )
    roles = {one.name: label_of(held) for one in found if (held := identity.roles_in(one.name))}
    return await pages.show(
        request, "namespaces.html", roles=roles,
        namespaces=pages.part(request, [(one.name, one) for one in found], skip, _PART),
        how=[
            pages.Copyable("List the namespaces", cli=pages.cli("namespaces", "list"),
                           curl=pages.curl("GET", "/v1/namespaces")),
            pages.Copyable(
                "Limit a namespace", cli=pages.cli("namespaces", "limit", "NAME", "--max-jobs", 100_000),
                curl=pages.curl("PUT", "/v1/namespaces/NAME", {"max_jobs": 100_000}),
            ),
        ],
    )  # fmt: skip


@pages.action("/namespaces/{name:str}/limits", policy=EVERYWHERE, on_error="/namespaces")
async def set_limits(request: RotaRequest, context: ContextDep, name: FromPath[str]) -> pages.Back:
    """Set all limits at once: a blank field is no limit."""
    fields = await Fields.of(request)
    limits = convert(
        {"max_jobs": fields.whole("max_jobs"),
         "max_payload_bytes": fields.whole("max_payload_bytes"),
         "submits_per_second": fields.decimal("submits_per_second"),
         "max_depth": fields.whole("max_depth")},
        Limits,
    )  # fmt: skip
    await context.installation.namespaces.set_limits(name, limits)
    return pages.back(request, "/namespaces", f"Limits of {name} set.")


# -- webhooks


@pages.page("/webhooks", policy=ADMIN)
async def show_webhooks(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, skip: pages.Skip = 0
) -> pages.Html:
    return await _show_webhooks(request, tenant, stats, skip=skip)


async def _show_webhooks(
    request: RotaRequest, tenant: Rota, stats: DashboardStore, secret: str | None = None, *,
    fields: Fields | None = None, errors: Errors = NO_ERRORS, skip: int = 0,
) -> pages.Html:  # fmt: skip
    said = fields or Fields({})
    found = await stats.webhooks(skip=skip, most=_PART + 1)
    hooks = pages.part(request, found, skip, _PART)
    return await pages.show(
        request, "webhooks.html", webhooks=hooks, kinds=KINDS, secret=secret,
        errors=errors, status=422 if errors else 201 if secret else 200, said=said,
        chosen=said.several("kind"),
        allowed=await tenant.webhooks.allowed(),
        how=[
            pages.Copyable("List the webhooks", cli=pages.cli("webhooks", "list"),
                           curl=pages.curl("GET", "/v1/webhooks"), python="await app.webhooks.list()"),
            pages.Copyable(
                "Add a webhook",
                cli=pages.cli("webhooks", "add", "https://example.org/hook", "--kind", "failed"),
                curl=pages.curl("POST", "/v1/webhooks", {"url": "https://example.org/hook"}),
                python='await app.webhooks.add("https://example.org/hook", kinds=["failed"])',
            ),
        ],
    )  # fmt: skip


@pages.action("/webhooks", policy=ADMIN)
async def add_webhook(request: RotaRequest, tenant: TenantDep, stats: StatsDep) -> pages.Html:
    """Add a webhook. The answer is the only page that ever shows its secret."""
    fields, errors = await Fields.of(request), Errors(_WEBHOOK_LABELS)
    with errors.at("url"):
        values = convert(
            {"url": fields.text("url") or "", "kinds": fields.several("kind"),
             "format": fields.text("format")},
            WebhookRequest,
        )  # fmt: skip
        made = await tenant.webhooks.add(values.url, kinds=values.kinds, form=values.format)
        return await _show_webhooks(request, tenant, stats, made.secret)
    return await _show_webhooks(request, tenant, stats, fields=fields, errors=errors)


@pages.page("/webhooks/{webhook_id:uuid}", policy=ADMIN)
async def show_webhook(
    request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]
) -> pages.Html:
    hook = await tenant.webhooks.get(webhook_id)
    wanted = await tenant.webhooks.deliveries_filter(webhook_id)
    looked = await tenant.jobs.look(wanted, limit=_ROWS)
    return await pages.show(
        request, "webhook.html", hook=hook, looked=looked, wanted=wanted, how=[
            pages.Copyable("List the deliveries", cli=pages.cli("webhooks", "deliveries", hook.id),
                           curl=pages.curl("GET", f"/v1/webhooks/{hook.id}/deliveries")),
            pages.Copyable("Send a test event", cli=pages.cli("webhooks", "test", hook.id),
                           curl=pages.curl("POST", f"/v1/webhooks/{hook.id}/test")),
        ],
    )  # fmt: skip


@pages.action("/webhooks/deliveries/{job_id:uuid}/redeliver", policy=ADMIN, on_error="/webhooks")
async def redeliver(request: RotaRequest, tenant: TenantDep, job_id: FromPath[UUID]) -> pages.Back:
    handle = await tenant.webhooks.redeliver(job_id)
    return pages.back(request, f"/jobs/{handle.id}", "This job sends the event once more.")


@pages.action("/webhooks/{webhook_id:uuid}/pause", policy=ADMIN)
async def pause_webhook(
    request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]
) -> pages.Back:
    await tenant.webhooks.pause(webhook_id)
    text = "Webhook paused. Events that happen during the pause are not sent later."
    return pages.back(request, "/webhooks", text)


@pages.action("/webhooks/{webhook_id:uuid}/resume", policy=ADMIN)
async def resume_webhook(
    request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]
) -> pages.Back:
    await tenant.webhooks.resume(webhook_id)
    return pages.back(request, "/webhooks", "Webhook resumed.")


@pages.action("/webhooks/{webhook_id:uuid}/test", policy=ADMIN)
async def test_webhook(
    request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]
) -> pages.Back:
    job = await tenant.webhooks.test(webhook_id)
    return pages.back(request, f"/jobs/{job.id}", "This job sends the test event.")


@pages.action("/webhooks/{webhook_id:uuid}/remove", policy=ADMIN)
async def remove_webhook(
    request: RotaRequest, tenant: TenantDep, webhook_id: FromPath[UUID]
) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, remove the webhook."""
    if not (await Fields.of(request)).flag("sure"):
        hook = await tenant.webhooks.get(webhook_id)
        return await pages.confirm(
            request, "Remove this webhook?", hook.url,
            "No more events are sent to it. This can't be undone; Pause can.",
            path=f"/webhooks/{webhook_id}/remove", word="Remove the webhook",
            target=pages.Here(request).url("/webhooks"),
        )  # fmt: skip
    await tenant.webhooks.remove(webhook_id)
    return pages.back(request, "/webhooks", "Webhook removed.")


# -- the audit log


@pages.page("/audit", policy=ADMIN)
async def show_audit(
    request: RotaRequest, tenant: TenantDep, action: Text = None, actor: Text = None,
    subject: Text = None, cursor: Text = None,
) -> pages.Html:  # fmt: skip
    asked = {"action": action or None, "actor": actor or None, "subject": subject or None}
    found = await audit_page(tenant, _ROWS, cursor or None, **asked)
    here = pages.Here(request)
    return await pages.show(
        request, "audit.html", entries=found.items, asked=asked, cursor=cursor,
        next=here.url("/audit", **asked, cursor=found.next) if found.next else None,
        how=[pages.Copyable(
            "List the changes", cli=pages.cli("audit"), curl=pages.curl("GET", "/v1/audit")
        )],
    )  # fmt: skip


ROUTES = [
    settings, choose_zone, show_tokens, create_token, revoke_token, show_users, add_user, remove_user,
    create_link,
    show_namespaces, set_limits, show_webhooks, add_webhook, pause_webhook, resume_webhook,
    test_webhook, remove_webhook, show_webhook, redeliver, show_audit,
]  # fmt: skip
