"""Problems as a page, for people: what happened, and what to do next."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from litestar import Request, Response
from litestar.response import Redirect

from rota.server.dashboard.pages import show_bare
from rota.server.problems import Problem

AnyRequest = Request[Any, Any, Any]

_TITLES = {
    400: "That can't be understood", 401: "You are not logged in", 403: "That is not yours to do",
    404: "There is no such thing here", 405: "That can't be done here", 409: "Something is in the way",
    413: "That is too large", 422: "That makes no sense here", 429: "Too much, or too fast",
    503: "Not right now",
}  # fmt: skip


def wants_page(request: AnyRequest) -> bool:
    """Whether somebody looks at the answer, and not a program. The API always answers programs."""
    path: str = request.scope.get("path", "")
    return "text/html" in request.headers.get("accept", "") and not path.startswith("/v1/")


def problem_page(request: AnyRequest, problem: Problem) -> Response[Any] | None:
    if not wants_page(request):
        return None
    if problem.status == 401 and request.method in ("GET", "HEAD"):
        return Redirect(_login(request), status_code=303)
    title = _TITLES.get(problem.status, "Something broke here")
    answer = show_bare(
        "problem.html", problem.status, title=title, problem=problem,
        request_id=request.scope["state"].get("request_id", ""),
    )  # fmt: skip
    answer.headers.update(problem.headers)
    return answer


def _login(request: AnyRequest) -> str:
    path: str = request.scope["path"]
    query = request.scope.get("query_string", b"").decode("latin-1")
    target = f"{path}?{query}" if query else path
    return "/login" if target == "/" else f"/login?{urlencode({'next': target})}"
