"""A task whose members hang, die and fail, for maps in real workers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from rota import App, Retry

app = App()


@app.generator
def letters(count: int) -> Iterator[str]:
    for number in range(count):
        yield "abc"[number % 3]


@app.task
def upper(letter: str) -> str:
    return letter.upper()


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
