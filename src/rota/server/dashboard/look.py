"""The look of pages for a user: the theme, the density, and the columns of the table of jobs."""

from __future__ import annotations

import msgspec
from litestar.datastructures import Cookie
from litestar.response import Redirect

from rota.server.authorization import is_secure
from rota.server.dashboard import pages
from rota.server.dashboard.forms import Fields
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest
from rota.server.targets import safe_target

_COLUMNS = ("queue", "node", "attempt", "priority", "created", "due", "took")


@pages.action("/session/look", policy=VIEWER)
async def choose_look(request: RotaRequest) -> Redirect:
    """Choose theme, density and columns. What the form doesn't have stays as it is."""
    fields = await Fields.of(request)
    look = pages.Look.of(request)
    if fields.text("theme") is not None:
        theme = fields.text("theme") or ""
        look = msgspec.structs.replace(
            look, theme=theme if theme in ("light", "dark") else "",
            compact=fields.text("density") == "compact",
        )  # fmt: skip
    if fields.flag("columns"):
        chosen = tuple(one for one in _COLUMNS if one in fields.several("column"))
        look = msgspec.structs.replace(look, columns=chosen or ("due",))
    cookie = Cookie(
        key=pages.LOOK_COOKIE, value=look.cookie, path="/", samesite="lax", max_age=31_536_000,
        httponly=True, secure=is_secure(request),
    )  # fmt: skip
    return Redirect(safe_target(fields.text("return")), status_code=303, cookies=[cookie])


ROUTES = [choose_look]
