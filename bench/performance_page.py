"""docs/performance.md, from what `bench.profile` has found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# What each step is made of, and why there is no less of it.
_WHY = {
    "submit": (
        "encode the arguments, make an id, hand a row to COPY",
        "an id and a row per job must be made and sent; nothing else is done per job",
    ),
    "claim": (
        "read the claimed rows off the wire, make a `Work` of each, give it a place or let it wait",
        "asyncpg decodes sixteen columns of each row, most of them empty; each row is read once",
    ),
    "run": (
        "a context of its own, the handler's arguments and call, the verdict, the next one's start",
        (
            "handlers that never wait share a task and cost no turn of the event loop; one that "
            "waits has a task for itself, which costs about two microseconds more"
        ),
    ),
    "finish": (
        "gather outcomes, send their ids, tokens and durations as arrays",
        "six values a job cross the wire in one statement per thousand jobs",
    ),
}

_SQL_WHY = {
    "COPY into present": "a row and its index entries; a bare COPY of the same rows costs as much",
    "claim": (
        "a heap-only update: no index mentions what it changes, so that none is written; what remains "
        "is the row's new version, its lock, and the row on the wire"
    ),
    "finish": (
        "the delete of the hot row and the insert into history, guarded by the token: a job that "
        "leaves no history would need half"
    ),
    "close batches": "one row for each claim, once a second",
    "commit": "the wait for the disk is not in it, and is shared by the whole batch",
    "hint": "once for each batch",
}

_NOT_THERE = """What is *not* there is as telling: no statement, no timer, no log record and no lock
per job. Timeouts are found by looking over what runs, due jobs wait in a timing wheel, and outcomes
gather while the last batch is being written."""

_THREE_WRITES = """These are three writes of a row: it comes, it is taken, it goes. Fewer are only
possible without knowing who runs what (then a crash loses or repeats it), or without history."""

_TRIED = """Measured one by one in a loop of claims and finishes of 500 no-ops on one connection, in processor
time of its backend, with PostgreSQL 18 (claim 4.1 to 4.7 µs a job, finish 4.8 to 5.1):

| part | µs a job | why it is as it is |
| --- | ---: | --- |
| statistics of runs | 0.8 to 1.1 | charts never read the history |
| the index on past's id | 0.7 | a job is found by its id at once; a BRIN index would read all ranges of a day that jobs with late ends have widened |
| the row of the batch | 0.3 to 0.4 | by it a reaper finds what a dead node held |
| finishing by the row's place instead of its id | 0.3 | saved in PostgreSQL, and half of it spent on carrying the place; rows that moved need a second way |
| fewer columns in the claim's answer | 0.2 | most are empty, and cost a few bytes |
| partitions of the past | 0.0 | |

A statement has a price of its own, of which most is its commit: about 200 µs for a claim, and 300 for a finish. With 20
jobs in it, as when jobs take milliseconds, that is most of what they cost."""  # noqa: E501

_SHARES = """Own time under cProfile while claiming, running and finishing. The profiler about doubles
what it watches: read it as shares."""


def _tried() -> str:
    return f"## What parts of it cost\n\n{_TRIED}\n"


def write(found: dict[str, Any], path: Path) -> None:
    path.write_text(
        "\n".join(
            [_intro(), _python(found), _sql(found), _tried(), _functions(found), _flame(found)]
        )
    )


def _intro() -> str:
    return """# Performance

Where the time of a job goes. Written by `make profile` (`python -m bench.profile`), which steps a
worker's services by hand and measures each step: its own processor time, and PostgreSQL's account of
its statements. The handler is an empty coroutine, jobs are submitted in bulk and claimed a thousand at
a time, history, fencing and logs are on. How that compares with others is told by
[Benchmarks](benchmarks.md); what it means for a server of yours by [Sizing](guide/sizing.md).

A test (`tests/proof/test_budget.py`) keeps it so: processor time per job against a stored budget, in
units of a loop of plain Python measured beside it; the number of statements exactly; and the moments in
which the event loop stood still, which is how a `time.sleep` or a lock shows that costs no processor
time at all.
"""


def _python(found: dict[str, Any]) -> str:
    rows = [
        f"| {name} | {us:.1f} | {_WHY[name][0]} | {_WHY[name][1]} |"
        for name, us in found["python"].items()
    ]
    total = sum(found["python"].values())
    return "\n".join(
        [
            "## In Python", "",
            f"Microseconds of processor time a job, over {found['jobs']:,} jobs:", "",
            "| step | µs | what it is | why not less |", "| --- | ---: | --- | --- |", *rows,
            f"| together | {total:.1f} | | |", "",
            _NOT_THERE, "",
        ]
    )  # fmt: skip


def _sql(found: dict[str, Any]) -> str:
    rows = [
        f"| {row['name']} | {row['calls']:,} | {row['us']:.1f} | {row['wal']:,.0f} | "
        f"{_SQL_WHY.get(row['name'], '')} |"
        for row in found["statements"]
        if row["us"] >= 0.05
    ]
    return "\n".join(
        [
            "## In PostgreSQL", "",
            "By `pg_stat_statements`, per job. Time, not processor time: on a busy machine more.", "",
            "| statement | calls | µs | bytes of WAL | why not less |",
            "| --- | ---: | ---: | ---: | --- |", *rows, "",
            _THREE_WRITES, "",
        ]
    )  # fmt: skip


def _functions(found: dict[str, Any]) -> str:
    rows = [f"| `{name}` | {us:.2f} |" for name, us in found["functions"]]
    return "\n".join(
        [
            "## The dearest functions", "",
            _SHARES, "",
            "| function | µs a job |", "| --- | ---: |", *rows, "",
        ]
    )  # fmt: skip


def _flame(found: dict[str, Any]) -> str:
    if found["flame"]:
        return ""
    return """## A worker under load

As py-spy sees it, 500 times a second; [by itself](images/bench/worker-flame.svg) it can be searched:

![Flame graph of a busy worker](images/bench/worker-flame.svg)
"""
