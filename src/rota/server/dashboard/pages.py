"""Pages and forms of the dashboard: their routes, how they are rendered, and the answers to forms."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import shlex
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import resources
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote, urlencode

import jinja2
import msgspec
from litestar import Request, Response, get, post
from litestar.datastructures import Cookie
from litestar.params import QueryParameter
from litestar.response import Redirect
from litestar.types import ControllerRouterHandler

import rota
from rota.core.access import Policy
from rota.core.durations import format_distance
from rota.core.time.zones import zone as zone_of
from rota.errors import ConfigError
from rota.server.authorization import CSRF_FIELD, is_secure, session_secret
from rota.server.dashboard import words
from rota.server.dashboard.form_errors import NO_ERRORS, can_be_corrected
from rota.server.identity.credentials import csrf_token
from rota.server.policy import ADMIN, EVERYWHERE, OPERATOR, PUBLIC, VIEWER, permission_of
from rota.server.problems import Problem
from rota.server.requests import RotaRequest
from rota.server.targets import safe_target

Html: TypeAlias = Response[str]
Back: TypeAlias = Redirect
AnyRequest: TypeAlias = Request[Any, Any, Any]
Skip: TypeAlias = Annotated[int, QueryParameter(ge=0, le=1_000_000)]

ZONE_COOKIE = "rota_zone"  # also in rota.js and login.js
LOOK_COOKIE = "rota_look"
_FLASH = "rota_flash"
_FLASH_SECONDS = 60
_MOST_FLASH_CHARACTERS = 1_000

# The address, the title, and the policy of those who see it.
NAVIGATION = (
    ("/", "Overview", VIEWER), ("/jobs", "Jobs", VIEWER), ("/schedules", "Schedules", VIEWER),
    ("/runs", "Runs", VIEWER), ("/calendar", "Calendar", VIEWER), ("/queues", "Queues", VIEWER),
    ("/tasks", "Tasks", VIEWER),
    ("/dead", "Dead letters", VIEWER), ("/cluster", "Cluster", VIEWER),
    ("/audit", "Audit", ADMIN), ("/settings", "Settings", VIEWER),
)  # fmt: skip
SETTINGS = (
    ("/tokens", "Tokens", ADMIN), ("/users", "Users", ADMIN), ("/roles", "Roles", ADMIN),
    ("/namespaces", "Namespaces", VIEWER), ("/webhooks", "Webhooks", ADMIN),
    ("/endpoints", "Endpoints", VIEWER), ("/triggers", "Triggers", VIEWER),
    ("/doctor", "Check-up", EVERYWHERE),
)  # fmt: skip
ASSETS = {
    "/rota.css": "text/css", "/rota.js": "text/javascript", "/login.js": "text/javascript",
    "/palette.js": "text/javascript",
    "/icon.svg": "image/svg+xml",
}  # fmt: skip
_TITLES = {
    400: "Invalid request", 401: "You are not logged in", 403: "Not permitted", 404: "Not found",
    405: "Not possible here", 409: "Conflict", 413: "Too large", 422: "Invalid request",
    429: "Too many requests", 503: "Not available",
}  # fmt: skip


def page(path: str, *, policy: Policy = VIEWER) -> Callable[[Any], Any]:
    """Declare a page. It is not part of the OpenAPI document."""
    return get(path, policy=policy, include_in_schema=False, before_request=_use_zone, replica=True)


def action(
    path: str, *, policy: Policy = OPERATOR, on_error: str | None = None
) -> Callable[[Any], Any]:
    """Declare the target of a form, which carries the session's CSRF token.

    `on_error`: the page that shows an error of the form, with the parameters of `path`.
    """
    return post(
        path, policy=policy, include_in_schema=False, form=True, on_error=on_error, status_code=303,
        before_request=_use_zone,
    )  # fmt: skip


async def _use_zone(request: AnyRequest) -> None:
    """Format the moments of this request in the user's zone."""
    words.zone_shown.set(zone_of(zone_name(request)))


class Copyable(msgspec.Struct, frozen=True):
    """The equivalents of a page or an action for the shell, curl and Python. Empty ones are left out.

    A page gives what reads first; each action has a label of its own.
    """

    label: str
    cli: str = ""
    curl: str = ""
    python: str = ""

    @property
    def languages(self) -> list[tuple[str, str]]:
        named = (("Shell", self.cli), ("curl", self.curl), ("Python", self.python))
        return [(name, text) for name, text in named if text]


def cli(*words: Any) -> str:
    return shlex.join(["rota", *(str(word) for word in words)])


def curl(method: str, path: str, body: Any = None) -> str:
    """Return a curl command. `$ROTA` is the server's URL, `$TOKEN` a token of `rota tokens create`."""
    parts = ["curl"]
    if method != "GET":
        parts.append(f"-X {method}")
    parts.append('-H "Authorization: Bearer $TOKEN"')
    if body is not None:
        parts.append("-H 'Content-Type: application/json'")
        parts.append(f"-d {shlex.quote(json.dumps(msgspec.to_builtins(body)))}")
    return " ".join([*parts, f'"$ROTA"{shlex.quote(path)}'])


# Forms that a message may offer: a cookie that somebody else has set must not offer others.
_UNDO = re.compile(r"/(queues/[^/?#]{1,300}/undo/\d{1,19}|jobs/changes/[0-9a-f-]{36}/undo)")


class Flash(msgspec.Struct, frozen=True):
    """The message of the form that was sent before, shown once by the next page.

    `undo`: the form that undoes what it did; `more`: the page that shows what becomes of it.
    """

    text: str
    kind: str = "done"  # or warning, problem
    undo: str | None = None
    more: str | None = None


class Look(msgspec.Struct, frozen=True):
    """The look of pages that the user has chosen: in a cookie, so that the first paint is right."""

    theme: str = ""  # light, dark; empty: as the system
    compact: bool = False
    columns: tuple[str, ...] | None = None  # of the table of jobs; None: the usual ones

    @classmethod
    def of(cls, request: AnyRequest) -> Look:
        theme, _, rest = request.cookies.get(LOOK_COOKIE, "").partition(".")
        density, _, columns = rest.partition(".")
        return cls(
            theme if theme in ("light", "dark") else "", density == "compact",
            tuple(columns.split("-"))[:20] if columns else None,
        )  # fmt: skip

    @property
    def cookie(self) -> str:
        density = "compact" if self.compact else ""
        return f"{self.theme}.{density}.{'-'.join(self.columns or ())}"


# The noun that is changed by the buttons of pages about another.
_CHANGED = {
    "": "schedules", "tasks": "jobs", "find": "jobs", "views": "jobs", "cluster": "nodes",
    "calendar": "schedules", "forecast": "schedules",
}  # fmt: skip


def _noun_to_change(path: str) -> str:
    noun = path.split("/")[1]
    return _CHANGED.get(noun, noun)


class Here:
    """The request as templates see it: address, user, permissions and links."""

    def __init__(self, request: RotaRequest) -> None:
        self._request = request
        principal = request.principal
        self.path: str = request.scope["path"]
        self.namespace = principal.namespace
        self.name = principal.name
        self.role = principal.role
        self.everywhere = principal.everywhere
        self.operates = principal.holds(f"{_noun_to_change(self.path)}:write")
        self.administers_all = self.may(EVERYWHERE, self.path, "POST")
        self.is_home = principal.namespace == principal.identity.home(
            request.context.settings.namespace
        )
        secret = session_secret(request) if principal.identity.kind == "session" else None
        self.csrf = csrf_token(secret) if secret else ""
        self.csrf_field = CSRF_FIELD
        self.zone = zone_name(request)
        self.look = Look.of(request)
        self.version = rota.__version__
        # The seconds by which a read replica may be behind; None: it was read from the primary.
        self.data_age: float | None = request.scope["state"].get("data_age")

    def url(self, path: str, **parameters: Any) -> str:
        """Return an address in the namespace that is shown. Parameters that are None are left out."""
        given: list[tuple[str, str]] = []
        for name, value in parameters.items():
            several = value if isinstance(value, list | tuple) else [value]
            given += [(name, str(one)) for one in several if one is not None]
        if not self.is_home:
            given.append(("namespace", self.namespace))
        return quote(path, safe="/:") + (f"?{urlencode(given)}" if given else "")

    def may(self, policy: Policy, path: str, method: str = "GET") -> bool:
        """Return whether the user may use a route."""
        permission = permission_of(policy, method, path)
        return self._request.principal.holds(permission, everywhere=policy.everywhere)

    @property
    def this(self) -> str:
        """The address of this page, filters included."""
        return _address(self._request)

    @property
    def navigation(self) -> list[tuple[str, str, bool]]:
        def is_current(path: str) -> bool:
            return self.path == path or (path != "/" and self.path.startswith(path + "/"))

        in_settings = any(is_current(path) for path, _, _ in SETTINGS)
        return [
            (self.url(path), word, is_current(path) or (path == "/settings" and in_settings))
            for path, word, policy in NAVIGATION
            if self.may(policy, path)
        ]

    @property
    def settings(self) -> list[tuple[str, str]]:
        return [(path, word) for path, word, policy in SETTINGS if self.may(policy, path)]


@cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("rota.server.dashboard"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True, undefined=jinja2.StrictUndefined, auto_reload=False,
    )  # fmt: skip
    made.filters.update(words.FILTERS)
    made.globals.update(
        asset=asset_url, moment=words.moment, stamp=words.stamp, written=words.written,
        plural=words.plural, shapes=words.SHAPES,
        distance=format_distance, errors=NO_ERRORS,
    )  # fmt: skip
    return made


def prepare() -> None:
    """Compile all templates when the server starts, not while a user waits."""
    for name in environment().list_templates():
        environment().get_template(name)
    for path in ASSETS:
        asset_url(path)


async def show(request: RotaRequest, template: str, *, status: int = 200, **given: Any) -> Html:
    """Render a page. Its template has, besides what is given: `here`, `url`, `now`, `ago`, `flash`."""
    here = Here(request)
    tenant = request.context.tenant(here.namespace)
    if here.everywhere and not here.is_home:
        await request.context.installation.namespaces.check_known(here.namespace)
    now = given.pop("now", None)
    if now is None:
        now = await (await tenant.store()).now()
    flash = _read_flash(request)
    answer = show_bare(
        template, status, here=here, url=here.url, now=now, ago=partial(words.ago, now=now),
        flash=flash, **given,
    )  # fmt: skip
    if flash is not None:
        answer.delete_cookie(_FLASH, path="/")
    return answer


async def confirm(
    request: RotaRequest, question: str, *lines: str, path: str, word: str, target: str,
    kind: str = "danger", fields: Sequence[tuple[str, Any]] = (), template: str = "confirm.html",
    how: Sequence[Copyable] = (), **given: Any,
) -> Html:  # fmt: skip
    """Ask before something is done that can't be undone, or that concerns many.

    The form of the page sends the same to `path` again, with `fields` and with `sure`; `word` is its
    button, which names what is done, and `target` where "Back" leads.
    """
    return await show(
        request, template, question=question, lines=lines, path=path, word=word, kind=kind,
        target=target, fields=fields, how=how, **given,
    )  # fmt: skip


def show_bare(template: str, status_code: int = 200, /, **given: Any) -> Html:
    """Render a page for a user who is not logged in."""
    html = environment().get_template(template).render(**given)
    return Response(html, media_type="text/html", status_code=status_code)


class Part(msgspec.Struct, frozen=True):
    """Some rows of a list, and the page with the next ones."""

    rows: Sequence[Any]
    skip: int
    next: str | None


def part(request: RotaRequest, rows: Sequence[Any], skip: int, most: int, **asked: Any) -> Part:
    """Return a page of a list: `rows` begin after the first `skip`, and are one more than `most` if
    there is another page. Nobody counts the whole list for it."""
    following = Here(request).url(request.scope["path"], skip=skip + most, **asked)
    return Part(rows[:most], skip, following if len(rows) > most else None)


def returning(fields: Any, otherwise: str) -> str:
    """Return the page that a form names in its field `return`, if it is one of ours."""
    wanted = fields.text("return")
    return safe_target(wanted) if wanted else otherwise


def back(
    request: RotaRequest, path: str, text: str, *, kind: str = "done", undo: str | None = None,
    more: str | None = None,
) -> Back:  # fmt: skip
    """Answer a form with a redirect to a page that shows a message, with the form that undoes it."""
    target = path if "?" in path else Here(request).url(path)
    flash = msgspec.json.encode(Flash(text[:_MOST_FLASH_CHARACTERS], kind, undo, more))
    # In a cookie: if it were in the address, anybody could make a link that shows their text.
    cookie = Cookie(
        key=_FLASH, value=base64.urlsafe_b64encode(flash).decode(), path="/", httponly=True,
        secure=is_secure(request), samesite="lax", max_age=_FLASH_SECONDS,
    )  # fmt: skip
    return Redirect(target, status_code=303, cookies=[cookie])


def zone_name(request: AnyRequest) -> str:
    """Return the time zone that the user has chosen. It is in a cookie, which the script sets, too."""
    name = request.cookies.get(ZONE_COOKIE, "")
    try:
        return zone_of(name).key if name else "UTC"
    except ConfigError:
        return "UTC"


def _read_flash(request: RotaRequest) -> Flash | None:
    value = request.cookies.get(_FLASH)
    if value is None:
        return None
    try:
        flash = msgspec.json.decode(base64.urlsafe_b64decode(value), type=Flash)
    except (binascii.Error, msgspec.MsgspecError, ValueError):
        return None
    if flash.undo is not None and not _UNDO.fullmatch(flash.undo):
        flash = msgspec.structs.replace(flash, undo=None)
    if flash.more is not None and safe_target(flash.more) != flash.more:
        flash = msgspec.structs.replace(flash, more=None)
    return flash


# -- errors


def problem_page(request: AnyRequest, problem: Problem) -> Response[Any] | None:
    """Return the page of an error; None for programs and the REST API."""
    path: str = request.scope.get("path", "")
    if "text/html" not in request.headers.get("accept", "") or path.startswith("/v1/"):
        return None
    if problem.status == 401 and request.method in ("GET", "HEAD"):
        here = _address(request)
        login = "/login" if here == "/" else f"/login?{urlencode({'next': here})}"
        return Redirect(login, status_code=303)
    if (target := _page_of_form(request, problem)) is not None:
        return back(RotaRequest(request.scope), target, problem.detail, kind="problem")
    if problem.status == 404 and problem.detail == "Not Found":  # the framework's words
        problem = Problem(404, problem.code, "There is no page at this address.")
    given: dict[str, Any] = {
        "here": None, "places": () if problem.status == 401 else [each[:2] for each in NAVIGATION],
    }  # fmt: skip
    if "principal" in request.scope["state"]:
        # With the navigation. The database isn't asked: it may be what is missing.
        shown = Here(RotaRequest(request.scope))
        given = {"here": shown, "url": shown.url, "flash": None}
    answer = show_bare(
        "problem.html", problem.status, title=_TITLES.get(problem.status, "Internal error"),
        problem=problem, request_id=request.scope["state"].get("request_id", ""), **given,
    )  # fmt: skip
    answer.headers.update(problem.headers)
    return answer


def _page_of_form(request: AnyRequest, problem: Problem) -> str | None:
    """Return the page that shows the error of a form; None if the user can't correct it there."""
    handler = request.scope.get("route_handler")
    if (
        handler is None
        or "principal" not in request.scope["state"]
        or not can_be_corrected(problem)
    ):
        return None
    path: str | None = handler.opt.get("on_error")
    return None if path is None else path.format(**request.path_params)


def _address(request: AnyRequest) -> str:
    query = request.scope.get("query_string", b"").decode("latin-1")
    return quote(request.scope["path"], safe="/:") + (f"?{query}" if query else "")


# -- static files


@cache
def asset(path: str) -> bytes:
    return (resources.files("rota.server.dashboard") / "static" / path.lstrip("/")).read_bytes()


@cache
def asset_url(path: str) -> str:
    """Return a URL that changes with the content, so that browsers can cache it for ever."""
    return f"{path}?v={hashlib.blake2b(asset(path), digest_size=6).hexdigest()}"


def _asset_route(path: str, media_type: str) -> ControllerRouterHandler:
    @get(path, policy=PUBLIC, include_in_schema=False)
    async def get_asset(request: RotaRequest) -> Response[bytes]:
        versioned = request.scope["query_string"]
        kept = "public, max-age=31536000, immutable" if versioned else "no-cache"
        return Response(asset(path), media_type=media_type, headers={"Cache-Control": kept})

    return get_asset


ROUTES = [_asset_route(path, media_type) for path, media_type in ASSETS.items()]
