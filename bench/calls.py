"""What a call of a task costs besides its work: arguments to JSON and back, and middlewares.

``python -m bench.calls`` prints microseconds, the best of several rounds: whatever else the machine does
only adds to them.
"""

from __future__ import annotations

import asyncio
import timeit
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import uuid4

from rota import App
from rota.core.payloads import Limits
from rota.runtime.work import Work
from rota.worker.runners.base import NodeParts
from rota.worker.runners.loop import LoopRunner

LIMITS = Limits(1_000_000, 64)
ROUNDS, CALLS = 300, 500

app = App()


@dataclass
class Invoice:
    number: int
    total: Decimal
    due: date


@app.task
async def plain(order_id: int, name: str, tags: list[str]) -> None: ...


@app.task
async def typed(invoice: Invoice) -> None: ...


@app.task
async def empty() -> None: ...


def microseconds(function: Callable[[], Any]) -> float:
    return min(timeit.repeat(function, number=CALLS, repeat=ROUNDS)) / CALLS * 1e6


def drive(coroutine: Any) -> None:
    """Run a coroutine that never waits, as a worker's driver does."""
    try:
        coroutine.send(None)
    except StopIteration:
        return


def measure() -> dict[str, float]:
    calls = {
        "plain JSON": (plain, (7, "Ada", ["a", "b"])),
        "a dataclass": (typed, (Invoice(7, Decimal("19.90"), date(2030, 1, 31)),)),
        "nothing": (empty, ()),
    }
    found: dict[str, float] = {}
    for words, (task, args) in calls.items():
        payload = task.arguments.encode(args, {}, LIMITS)
        found[f"encode {words}"] = microseconds(
            lambda task=task, args=args: task.arguments.encode(args, {}, LIMITS)
        )
        found[f"call with {words}"] = microseconds(
            lambda task=task, payload=payload: drive(task.call(payload, None))
        )
    return found


def count_in(context: Any) -> Iterator[None]:
    """A middleware that looks at its job, as most do."""
    assert context.job.attempt
    yield


def measure_attempts() -> dict[str, float]:
    """Return what an attempt costs in the loop runner, without and with three middlewares."""
    runner = LoopRunner(app.tasks, 1, NodeParts(app.settings, lambda work, outcome: None, None))
    work = Work(uuid4(), "plain", plain.arguments.encode((7, "Ada", []), {}, LIMITS), 1, 1, 5)
    found = {}
    for count in (0, 1, 3):
        app.middlewares = [count_in] * count
        if count:
            app.wrap(plain)
        found[f"an attempt, {count} middlewares"] = microseconds(
            lambda: drive(runner._attempt(work, plain))
        )
    return found


async def main() -> None:
    for words, cost in (measure() | measure_attempts()).items():
        print(f"{words:28} {cost:7.3f} µs")


if __name__ == "__main__":
    asyncio.run(main())
