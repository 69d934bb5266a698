"""The part of docs/benchmarks.md about limits: goals, a plot of each ratio beside its goal, and the
figures."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from bench import sections
from bench.svg import Bar, bars, figure

HEADING = "## Limits, fair shares and pools"
Found = dict[str, Any]


@dataclass(frozen=True)
class Goal:
    what: str
    key: str
    bound: float
    at_most: bool = True
    as_much_as: str = ""  # the figure that is the bound


@dataclass(frozen=True)
class Case:
    title: str
    goals: tuple[Goal, ...]
    about: str


CASES = {
    "unlimited": Case(
        "No-ops without limits, before there were any and now",
        (
            Goal("rate", "rate_ratio", 0.98, at_most=False),
            Goal("WAL a job", "wal_ratio", 1.02),
            Goal("reads of the tables of limits, a thousand jobs", "reads", 0),
        ),
        "Two nodes without a scheduler, in processes of their own. Everything that was added since "
        "then counts, not limits alone: statistics of runs and modes of history, too. `other_reads`, a "
        "thousand jobs: of the tables of depths and of new lanes, once for each bulk and every two "
        "seconds.",
    ),
    "shares": Case(
        "Weights 1:2:5 over many shares, jobs that take 10:1, one share very deep",
        (
            Goal("slot-seconds of a weight, off by", "off", 0.05),
            Goal("Jain's index of all shares", "jain", 0.99, at_most=False),
        ),
        "100 slots of one node; every share has a backlog. `used`: the part of the slots' time that "
        "jobs had.",
    ),
    "weight": Case(
        "A weight changed on a backlog",
        (Goal("seconds until it acts", "seconds", 1.0),),
        "From 1 to 9, of two shares, until four fifths of the last fifty starts are its own.",
    ),
    "front": Case(
        "Jobs of a full key in front, from submit to start of another key's",
        (Goal("p99, of that with none in front", "ratio", 1.2),),
        "One node for each of two databases, jobs one by one in turns.",
    ),
    "peers": Case(
        "The same of others: jobs of a full key in front",
        (),
        "pg-boss by groups, DBOS by partitions of a queue, one process with 8 slots each, 20 jobs a "
        "second of another key, of which one may run at a time, too. With so many in front "
        "(`in_front`: as many as it stores in about 20 seconds) and with the one that runs alone. Oban "
        "for Python has limits by key in its paid edition only, which was not measured.",
    ),
    "chaos": Case(
        "Limited jobs while nodes are killed, stopped and cut off",
        (Goal("starts above a limit", "over", 0), Goal("places leaked", "leaked", 0),
         Goal("jobs lost", "lost", 0)),
        "Four nodes, a limit of 24 of a queue and of 3 for each of ten keys; a fault every two seconds.",
    ),
    "killed": Case(
        "kill -9 of who holds the only place",
        (Goal("seconds after the lease until another has it", "late", 1.0),),
        "Places under a limit of a queue and of a key, in turns; the worst of all.",
    ),
    "forty": Case(
        "A limit of 40 on 40 slots, no-ops",
        (Goal("rate, of that without a limit", "ratio", 0.98, at_most=False),),
        "One node that is warm, a queue that has the limit and has none in turns. `cpu_ratio`: "
        "processor time of the node and of PostgreSQL for each job.",
    ),
    "windows": Case(
        "Starts under a rate of 200/s with a burst of 20, two nodes",
        (Goal("starts above rate x w + burst in any window", "over", 0),
         Goal("of the rate in the long run", "reached", 0.97, at_most=False)),
        "Windows of 0.1, 0.5, 1, 2 and 5 seconds, by the moments at which the database granted them. "
        "`started_over`: by the handlers' own clocks, which on a busy machine are later, one more than "
        "another.",
    ),
    "meter": Case(
        "A rate of 1,000/s",
        (Goal("writes of its meter for each start", "writes", 0.05),),
        "By `pg_stat_user_tables`.",
    ),
    "snapshot": Case(
        "Claims under an old snapshot",
        (Goal("buffers for each claimed job, of those without", "ratio", 1.5),),
        "Without a limit, with one of the queue, and with keys; the worst of them. By "
        "`pg_stat_statements`.",
    ),
    "depth": Case(
        "Submits into a limited queue, very deep against a thousand jobs",
        (Goal("one by one, of the rate", "alone", 0.9, at_most=False),
         Goal("in bulk, of the rate", "bulk", 0.9, at_most=False)),
        "`limit_alone` and `limit_bulk`: with a limit of depth against none.",
    ),
    "resources": Case(
        "Memory of nodes, a job that takes a whole one among small ones",
        (
            Goal("gigabytes above a node's capacity", "over", 0),
            Goal("seconds that the largest job waits", "waited", 0, as_much_as="allowed"),
        ),
        "Nodes of 8 and 16 GB with a backlog of jobs of 1 and 2 GB that take 0.2 to 1 s, and one job "
        "after the other that takes 16 GB. `allowed`: the patience of 3 s and the longest run that was "
        "seen. `full`: the most that was held at a time, of what a node has.",
    ),
    "pool": Case(
        "`rota pool`, load x10",
        (Goal("seconds until the lag is under 2 s for good", "seconds", 0, as_much_as="allowed"),
         Goal("reversals", "reversals", 2), Goal("jobs interrupted", "interrupted", 0)),
        "6 jobs a second, then 60, then 6, of 0.2 s each; workers with 2 slots. `allowed`: start-up "
        "and drain target. The load rises once and falls once: one reversal is the fall.",
    ),
}  # fmt: skip


def _middle(found: Found, case: str, key: str) -> float | None:
    rounds = found["cells"].get(case, {}).get("rounds", [])
    values = [figures[key] for figures in rounds if key in figures]
    return statistics.median(values) if values else None


def judged(found: Found) -> list[tuple[str, str, str, str]]:
    """(case, goal, seen, verdict) of each goal."""
    rows = []
    for name, case in CASES.items():
        for goal in case.goals:
            seen = _middle(found, name, goal.key)
            bound = (_middle(found, name, goal.as_much_as) if goal.as_much_as else goal.bound) or 0
            wanted = f"{goal.what}: at {'most' if goal.at_most else 'least'} {figure(bound)}"
            if seen is None:
                rows.append((case.title, wanted, "", "not measured"))
                continue
            reached = seen <= bound if goal.at_most else seen >= bound
            rows.append(
                (case.title, wanted, figure(seen), "reached" if reached else "**not reached**")
            )
    return rows


def table(found: Found) -> Table:
    drawn = Table("", "goal", "seen", "", title="limits")
    for row in judged(found):
        drawn.add_row(*row)
    return drawn


def write(found: Found, docs: Path = sections.DOCS) -> None:
    """Write this part of docs/benchmarks.md anew, and its plot. The rest of the page stays."""
    images = docs / "images" / "bench"
    images.mkdir(parents=True, exist_ok=True)
    (images / "limits.svg").write_text(_plot(found))
    parts = [_head(found), *(_section(found, name) for name in CASES)]
    sections.put(HEADING, "\n\n".join(part for part in parts if part), docs)


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _head(found: Found) -> str:
    about = found["about"]
    settings = about["settings"]
    machine = f"{about['cores']} cores of {about['processor']}, {about['memory_gb']} GB"
    shown = ", ".join(f"`{name}` {settings[name]}" for name in ("fsync", "synchronous_commit"))
    version = settings["server_version"]
    said = f"""Written by `python -m bench.limits` on {about["date"]}; {machine}, PostgreSQL {version},
{shown}. A ratio is of two figures that were measured in turns, on one PostgreSQL."""
    rows = [f"| {' | '.join(row)} |" for row in judged(found)]
    header = ["| | goal | seen | |", "| --- | --- | ---: | --- |"]
    plot = "![Each goal's part that was used up: the figures are above](images/bench/limits.svg)"
    return "\n".join([said, "", *header, *rows, "", plot])


def _plot(found: Found) -> str:
    """How much of each goal is used up: 1 is the bound. Goals of nothing at all have no part."""
    rows = []
    for name, case in CASES.items():
        for goal in case.goals:
            seen = _middle(found, name, goal.key)
            bound = _middle(found, name, goal.as_much_as) if goal.as_much_as else goal.bound
            if seen and bound:
                part = max(seen / bound if goal.at_most else bound / seen, 0.0)
                rows.append(Bar(f"{name}: {goal.key}", part, part, part, part <= 1))
    return bars(
        "Limits: what was seen, of the goal", "", rows, note="1 is the goal; less is better"
    )


def _section(found: Found, name: str) -> str:
    cell, case = found["cells"].get(name), CASES[name]
    if not cell:
        return ""
    lines = [f"### {case.title}", "", case.about, ""]
    rounds = cell["rounds"]
    if rounds:
        keys = list(rounds[0])
        lines += [
            f"| {' | '.join(keys)} | load | commit |", "|" + " ---: |" * (len(keys) + 1) + " --- |",
            *(_row([figure(each[key]) for key in keys] + [cell["load"], cell.get("commit", "")])
              for each in rounds),
        ]  # fmt: skip
    if trouble := cell.get("trouble"):
        lines.append(f"\nIt could not be measured: {trouble.replace('|', '/')}")
    return "\n".join(lines)
