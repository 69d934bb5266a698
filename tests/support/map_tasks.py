"""A task whose members hang, die and fail, for maps in real workers."""

from __future__ import annotations

import os
import time

from rota import App, Retry

app = App()


@app.task(retry=Retry(max_attempts=3, base=0.1), timeout=1.0)
def rough(number: int) -> int:
    if number == 13:
        time.sleep(60)
    if number == 17:
        os._exit(3)
    if number == 19:
        raise ValueError("nineteen")
    time.sleep(0.005)
    return number
