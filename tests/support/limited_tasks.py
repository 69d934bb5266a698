"""Plain functions that wait for a limit, in a module that child processes can import."""

from __future__ import annotations

import time

from rota import App, SyncContext

app = App()


def hold(ctx: SyncContext) -> list[float]:
    with ctx.limit("one-by-one", concurrency=1):
        began = time.monotonic()
        time.sleep(0.05)
        return [began, time.monotonic()]


in_a_process = app.task(name="in_a_process")(hold)
in_a_thread = app.task(name="in_a_thread", runner="thread")(hold)
