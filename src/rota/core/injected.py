"""Annotations of parameters that are injected."""

from __future__ import annotations

import typing
from typing import Any


class Marker:
    """In ``Annotated[Pool, Marker()]``: the parameter is no argument. See `rota.middleware.Injected`."""

    def __repr__(self) -> str:
        return "Injected"


def injected_type(annotation: Any) -> Any | None:
    """Return the type that is to be injected for a parameter; None: it is an argument."""
    if any(isinstance(each, Marker) for each in getattr(annotation, "__metadata__", ())):
        return typing.get_args(annotation)[0]
    return None
