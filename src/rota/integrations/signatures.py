"""Functions that stand in for those of other frameworks, with their signatures.

Rota checks arguments by a function's signature, and gives its context to the parameter ``ctx``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any


def with_signature(
    function: Any, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]
) -> Any:
    """Give a function these parameters, annotated by what is known of their types."""
    listed = [p.replace(annotation=hints.get(p.name, Any)) for p in parameters.values()]
    function.__signature__ = inspect.Signature(listed)
    function.__annotations__ = {p.name: p.annotation for p in listed}
    return function


def with_context(
    function: Any, original: Callable[..., Any], parameters: Mapping[str, inspect.Parameter],
    hints: Mapping[str, Any], context: type,
) -> Any:  # fmt: skip
    """Give a function these parameters and ``ctx``, and the names of the original."""
    own = inspect.Parameter("ctx", inspect.Parameter.KEYWORD_ONLY)
    ordered = sorted([*parameters.values(), own], key=lambda p: p.kind)  # stable: their own order
    with_signature(function, {p.name: p for p in ordered}, {**hints, "ctx": context})
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(function, name, getattr(original, name, None))
    return function
