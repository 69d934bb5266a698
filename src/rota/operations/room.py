"""Waiting for room in a full queue: submits with `block=True`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rota.errors import QueueFull
from rota.lib.patience import Patience
from rota.task import SubmitOptions

T = TypeVar("T")


async def submit_when_there_is_room(
    options: SubmitOptions, attempt: Callable[[], Awaitable[T]]
) -> T:
    """Call `attempt`; with `block`, again until the queue has room or `block_timeout` is over.

    A refusal that no wait would change is raised.
    """
    if not options.block:
        return await attempt()
    patience = Patience(options.block_timeout)
    while True:
        try:
            return await attempt()
        except QueueFull as error:
            if (wait := patience.pause(error.retry_after)) is None:
                raise
        await asyncio.sleep(wait)
