"""Tasks for children that are limited and recycled (tests/worker/test_memory.py)."""

from __future__ import annotations

import os
import time

from rota import App

app = App(pool_size=2)


@app.task(resources={"memory": "256MB"})
def fill(megabytes: int) -> int:
    block = bytearray(megabytes << 20)
    return len(block)


@app.task(resources={"memory": "256MB"})
def swallow(megabytes: int) -> str:
    try:
        bytearray(megabytes << 20)
    except MemoryError:
        return "swallowed"
    return "none"


@app.task
def free(megabytes: int) -> int:
    return len(bytearray(megabytes << 20))


@app.task
def pid(seconds: float = 0.0) -> int:
    time.sleep(seconds)
    return os.getpid()


kept: list[bytearray] = []


@app.task
def keep(megabytes: int) -> int:
    kept.append(bytearray(os.urandom(1 << 20) * megabytes))
    return os.getpid()
