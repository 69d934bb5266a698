"""Which event loop a process of Rota's own runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rota.errors import ConfigError


def loop_maker(choice: str) -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes the loop of this choice; `auto` is uvloop's where that is installed."""
    if choice == "asyncio":
        return asyncio.new_event_loop
    try:
        import uvloop
    except ImportError:
        if choice == "auto":
            return asyncio.new_event_loop
        raise ConfigError(
            "event_loop is 'uvloop', which is not installed: pip install 'rota[uvloop]', or set "
            "event_loop (ROTA_EVENT_LOOP) to 'asyncio'"
        ) from None
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make
