"""`make bench`: the engine's table. Rounds are interleaved, so that noise hits all alike.

python -m bench.run [--quick]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from rich.console import Console
from rich.table import Table

from bench import cases
from bench.support import database, median, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller numbers, one round")
    quick = parser.parse_args().quick
    rounds, count = (1, 30_000) if quick else (3, 100_000)
    with database():
        from bench.app import app

        run(app.migrate)
        table = measure(rounds, count, quick)
    Console(width=120).print(table)


def measure(rounds: int, count: int, quick: bool) -> Table:
    raw, one, two, held, copy, bulk, plain = ([] for _ in range(7))
    for _ in range(rounds):
        raw.append(_run(cases.raw_claim_and_finish, count))
        one.append(_run(cases.executed, cases.noop, count, 1))
        two.append(_run(cases.executed, cases.noop, count, 2))
        held.append(_run(cases.executed, cases.noop, count, 1, hold=True))
        copy.append(_run(cases.raw_copy, count))
        bulk.append(_run(cases.submitted, count))
        plain.append(_run(cases.functions, count // 2))
    sustained = _run(cases.sustained, 10 if quick else 60)
    bare = _run(cases.bare_commits, 100 if quick else 500, 50)
    latency = _run(cases.pick_up, 100 if quick else 500, 50)
    waiting = _run(cases.with_a_million_waiting, count, 100_000 if quick else 1_000_000)

    table = Table("what", "figure", "beside", "ratio", "goal", title="Rota's engine")
    base = median(raw)
    _row(table, "raw claim + finish loop, jobs/s", base)
    _row(table, "one worker, no-op coroutines", median(one), ("raw loop", base), "≥ 0.5, aim 0.8")
    _row(table, "two workers, no-op coroutines", median(two), ("raw loop", base))
    _row(
        table,
        "one worker, a transaction held open",
        median(held),
        ("without", median(one)),
        "≥ 0.8",
    )
    _row(
        table,
        "one worker, many ready jobs waiting",
        waiting["rate"],
        ("without", median(one)),
        "≈ 1",
    )
    _row(table, "… its memory, MB", waiting["memory_mb"], None, "< 200")
    _row(table, "sustained, first half, jobs/s", sustained["first"])
    _row(table, "sustained, second half", sustained["second"], ("first", sustained["first"]), "≈ 1")
    _row(table, "… hot table with indexes, MB", sustained["size_mb"])
    _row(table, "child processes, no-op functions", median(plain), None, "≥ 5,000")
    _row(table, "raw COPY, rows/s", median(copy))
    _row(table, "submit_many", median(bulk), ("raw COPY", median(copy)), "≥ 0.6")
    p50, p99 = len(latency) // 2, int(len(latency) * 0.99)
    _row(table, "two bare commits, p50 ms", bare[p50])
    _row(table, "two bare commits, p99 ms", bare[p99])
    _row(table, "submit to start, p50 ms", latency[p50], ("commits", bare[p50]), "< 5")
    _row(table, "submit to start, p99 ms", latency[p99], ("commits", bare[p99]), "< 25")
    return table


def _run(case: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    Console(stderr=True).print(f"[dim]{case.__name__} …[/dim]")
    return run(lambda: case(*arguments, **options))


def _row(
    table: Table, what: str, figure: float, beside: tuple[str, float] | None = None, goal: str = ""
) -> None:
    shown = f"{figure:,.0f}" if figure >= 100 else f"{figure:.1f}"
    ratio = f"{figure / beside[1]:.2f}" if beside else ""
    table.add_row(what, shown, beside[0] if beside else "", ratio, goal)


if __name__ == "__main__":
    main()
