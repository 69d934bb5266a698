"""Rota as a dependency of FastAPI's routes."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import Depends
from fastapi.requests import HTTPConnection

from rota.app import App
from rota.errors import ConfigError
from rota.integrations.asgi import STATE, lifespan, running

__all__ = ["RotaApp", "lifespan", "rota_app", "running"]


def rota_app(connection: HTTPConnection) -> App:
    """Return the app that the lifespan has opened."""
    found = getattr(connection.state, STATE, None)
    if found is None:
        raise ConfigError(
            "this application has no Rota: make it with FastAPI(lifespan=lifespan(app)), from "
            "rota.integrations.fastapi"
        )
    return cast("App", found)


RotaApp = Annotated[App, Depends(rota_app)]
