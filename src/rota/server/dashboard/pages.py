"""Pages and forms: how they become routes, how they are shown, and what a form is answered with."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from functools import cache, partial
from importlib import resources
from typing import Any, TypeAlias
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.response import Redirect

import rota
from rota.core.access import Policy
from rota.core.durations import format_distance
from rota.server.authorization import CSRF_FIELD, is_secure, session_secret
from rota.server.dashboard import words
from rota.server.dashboard.commands import Copyable
from rota.server.identity.sessions import csrf_token
from rota.server.policy import ADMIN, EVERYWHERE, OPERATOR, VIEWER
from rota.server.requests import RotaRequest

Html: TypeAlias = Response[str]
Back: TypeAlias = Redirect

_FLASH = "rota_flash"
_FLASH_SECONDS = 60
_LONGEST_FLASH = 1_000

# The address, the word, and the role that one needs to see it.
NAVIGATION = (
    ("/", "Overview", VIEWER), ("/jobs", "Jobs", VIEWER), ("/schedules", "Schedules", VIEWER),
    ("/calendar", "Calendar", VIEWER), ("/queues", "Queues", VIEWER),
    ("/dead", "Dead letters", VIEWER), ("/cluster", "Cluster", VIEWER),
    ("/audit", "Audit", ADMIN), ("/settings", "Settings", VIEWER),
)  # fmt: skip
SETTINGS = (
    ("/tokens", "Tokens", ADMIN), ("/users", "Users", ADMIN),
    ("/namespaces", "Namespaces", VIEWER), ("/webhooks", "Webhooks", ADMIN),
)  # fmt: skip


def page(path: str, *, policy: Policy = VIEWER) -> Callable[[Any], Any]:
    """A page. It is no part of the OpenAPI document."""
    return get(path, policy=policy, include_in_schema=False)


def action(path: str, *, policy: Policy = OPERATOR) -> Callable[[Any], Any]:
    """What a form of a page is sent to; the form carries the session's CSRF token.

    It isn't audited by itself: a first step that only counts changes nothing. What is changed is
    recorded by the verb that changes it, or by the page's own ``request.changing``.
    """
    return post(path, policy=policy.unaudited, include_in_schema=False, form=True, status_code=303)


class Told(msgspec.Struct, frozen=True):
    """What a page says of what was done just before."""

    text: str
    kind: str = "done"  # or problem


class Here:
    """Where we are and who looks, for templates."""

    def __init__(self, request: RotaRequest) -> None:
        self._request = request
        principal = request.principal
        self.path: str = request.scope["path"]
        self.namespace = principal.namespace
        self.name = principal.name
        self.role = principal.role.label
        self.everywhere = principal.everywhere
        self.is_home = principal.namespace == principal.identity.home(
            request.context.settings.namespace
        )
        secret = session_secret(request) if principal.identity.kind == "session" else None
        self.csrf = csrf_token(secret) if secret else ""
        self.csrf_field = CSRF_FIELD
        self.version = rota.__version__

    def may(self, policy: Policy) -> bool:
        return self._request.principal.may(policy)

    @property
    def operates(self) -> bool:
        return self.may(OPERATOR)

    @property
    def administers_all(self) -> bool:
        return self.may(EVERYWHERE)

    def url(self, path: str, **parameters: Any) -> str:
        """An address in the namespace that is looked at. Parameters that are None are left out."""
        given: list[tuple[str, str]] = []
        for name, value in parameters.items():
            several = value if isinstance(value, list | tuple) else [value]
            given += [(name, str(one)) for one in several if one is not None]
        if not self.is_home:
            given.append(("namespace", self.namespace))
        return quote(path, safe="/:") + (f"?{urlencode(given)}" if given else "")

    @property
    def this(self) -> str:
        """The address of this page, filters included."""
        query = self._request.scope.get("query_string", b"").decode("latin-1")
        return quote(self.path, safe="/:") + (f"?{query}" if query else "")

    @property
    def navigation(self) -> list[tuple[str, str, bool]]:
        def is_current(path: str) -> bool:
            return self.path == path or (path != "/" and self.path.startswith(path + "/"))

        in_settings = any(is_current(path) for path, _, _ in SETTINGS)
        return [
            (self.url(path), word, is_current(path) or (path == "/settings" and in_settings))
            for path, word, policy in NAVIGATION
            if self.may(policy)
        ]

    @property
    def settings(self) -> list[tuple[str, str]]:
        return [(path, word) for path, word, policy in SETTINGS if self.may(policy)]


@cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("rota.server.dashboard"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined, auto_reload=False,
    )  # fmt: skip
    made.filters.update(words.FILTERS)
    made.globals.update(
        asset=asset_url, moment=words.moment, plural=words.plural, shapes=words.SHAPES,
        distance=format_distance, copyable=Copyable,
    )  # fmt: skip
    return made


def prepare() -> None:
    """Compiles all templates: better when the server starts than when somebody waits."""
    for name in environment().list_templates():
        environment().get_template(name)
    for path in ASSETS:
        asset_url(path)


async def show(request: RotaRequest, template: str, *, status: int = 200, **given: Any) -> Html:
    """A page. Its template has, besides what is given: `here`, `url`, `now`, `ago`, `moment`, `told`."""
    here = Here(request)
    now = given.pop("now", None)
    if now is None:
        now = await (await request.context.tenants.get(here.namespace).store()).now()
    told = _told_before(request)
    html = (
        environment()
        .get_template(template)
        .render(
            here=here, url=here.url, now=now, ago=partial(words.ago, now=now), told=told, **given
        )
    )
    answer = Response(html, media_type="text/html", status_code=status)
    if told is not None:
        answer.delete_cookie(_FLASH, path="/")
    return answer


def show_bare(template: str, status: int = 200, **given: Any) -> Html:
    """A page for somebody of whom nothing is known."""
    html = environment().get_template(template).render(**given)
    return Response(html, media_type="text/html", status_code=status)


def back(request: RotaRequest, path: str, text: str, *, kind: str = "done") -> Back:
    """After a form: to a page, which will say what was done."""
    target = path if "?" in path else Here(request).url(path)
    return Redirect(target, status_code=303, cookies=[_flash(request, Told(text, kind))])


def _flash(request: RotaRequest, told: Told) -> Cookie:
    """In a cookie, and not in the address, where anybody could make us say anything."""
    cut = Told(told.text[:_LONGEST_FLASH], told.kind)
    value = base64.urlsafe_b64encode(msgspec.json.encode(cut)).decode()
    return Cookie(
        key=_FLASH, value=value, path="/", httponly=True, secure=is_secure(request),
        samesite="lax", max_age=_FLASH_SECONDS,
    )  # fmt: skip


def _told_before(request: RotaRequest) -> Told | None:
    value = request.cookies.get(_FLASH)
    if value is None:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(value), type=Told)
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        return None


# -- files of our own

ASSETS = {
    "/rota.css": "text/css", "/rota.js": "text/javascript", "/login.js": "text/javascript",
    "/icon.svg": "image/svg+xml",
}  # fmt: skip


@cache
def asset(path: str) -> bytes:
    return (resources.files("rota.server.dashboard") / "static" / path.lstrip("/")).read_bytes()


@cache
def asset_url(path: str) -> str:
    """With what is in it, so that a browser can keep it for ever."""
    return f"{path}?v={hashlib.blake2b(asset(path), digest_size=6).hexdigest()}"
