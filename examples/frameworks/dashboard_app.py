"""The dashboard inside a FastAPI service, behind its own log-in: `uvicorn frameworks.dashboard_app:api`.

The log-in of this service is a header, which a proxy would set; yours may be a session or a token.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse

from frameworks.jobs import app, confirm
from rota.integrations.fastapi import lifespan
from rota.integrations.mount import Dashboard, User

STAFF = {"ada": "admin", "bob": "viewer"}


async def who(scope: MutableMapping[str, Any]) -> User | None:
    """Return who sends a request, by what this service knows."""
    name = Request(scope).headers.get("x-forwarded-user")
    if name == "ada":
        return User(name, "admin")
    return User(name) if name in STAFF else None


dashboard = Dashboard(app, "/rota", authenticate=who, login_url="/welcome", logout_url="/goodbye")
api = FastAPI(lifespan=lifespan(app, worker=True, migrate=True, mounted=[dashboard]))
api.mount("/rota", dashboard)


@api.get("/welcome")
async def welcome() -> PlainTextResponse:
    return PlainTextResponse("please log in")


@api.post("/orders/{order_id}", status_code=202)
async def take(order_id: int) -> dict[str, str]:
    return {"job": str((await confirm.submit(order_id)).id)}
