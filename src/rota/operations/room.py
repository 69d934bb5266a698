"""Waiting for room in a full queue: submits with `block=True`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TypeVar

from rota.errors import QueueFull
from rota.lib.ids import unit
from rota.task import SubmitOptions

T = TypeVar("T")

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0


async def submit_when_there_is_room(
    options: SubmitOptions, attempt: Callable[[], Awaitable[T]]
) -> T:
    """Call `attempt`; with `block`, again until the queue has room or `block_timeout` is over.

    The pauses grow, up to what the refusal says, and differ between producers, so that many of them
    don't come back at once. A refusal that no wait would change is raised.
    """
    if not options.block:
        return await attempt()
    limit = options.block_timeout
    end = None if limit is None else monotonic() + limit
    pause = _FIRST_PAUSE
    while True:
        try:
            return await attempt()
        except QueueFull as error:
            if error.retry_after is None:
                raise
            wait = min(pause, error.retry_after, _LONGEST_PAUSE) * (0.5 + unit())
            if end is not None:
                if (left := end - monotonic()) <= 0:
                    raise
                wait = min(wait, left)
        await asyncio.sleep(wait)
        pause *= 2
