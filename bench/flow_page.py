"""The part of docs/benchmarks.md about workflows: goals, a table and a plot for each comparison."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from bench import sections
from bench.peers.catalogue import FLOW_PEERS
from bench.svg import Bar, bars, figure

HEADING = "## Workflows and durable functions"

Found = dict[str, Any]

_TITLES = {
    **{peer.name: peer.title for peer in FLOW_PEERS},
    "temporal": "Temporal (SQLite)",
    "graph": "Rota, as a graph",
    "plain": "Rota, plain jobs",
    "before": "Rota before workflows",
}
_OURS = {"rota", "graph", "plain"}


@dataclass(frozen=True)
class Case:
    title: str
    key: str  # the figure that the plot shows
    unit: str
    higher_is_better: bool = True


CASES = {
    "chain_noop": Case("A chain of 40 no-op steps", "ms", "ms", False),
    "chain_10ms": Case("A chain of 40 steps of 10 ms", "ms", "ms", False),
    "functions": Case("100 durable functions of 20 steps", "rate", "steps/s"),
    "one_step": Case("A step of one function, of a bare commit", "ratio", ""),
    "fan": Case("A group of 10,000 steps and one after it", "rate", "steps/s"),
    "join": Case("From the last of a group to the step after it", "p50", "ms", False),
    "map": Case("A map over a million members", "rate", "members/s"),
    "before": Case("No-op jobs, with and before workflows", "rate", "jobs/s"),
    "sleeping": Case("10,000 functions asleep, PostgreSQL's processor time", "ratio", "", False),
    "killed": Case("kill -9 inside a step, until the next step", "seconds", "s", False),
}


@dataclass(frozen=True)
class _Goal:
    case: str
    what: str
    bound: float
    at_most: bool
    ratios: Callable[[dict[str, list[dict[str, float]]]], list[float]]


def _between(key: str, ours: str, *theirs: str) -> Any:
    """Ratios of the rounds, of the best of theirs (the least, for a time)."""

    def ratios(cells: dict[str, list[dict[str, float]]]) -> list[float]:
        others = [cells[name] for name in theirs if cells.get(name)]
        if not others or not cells.get(ours):
            return []
        best = max if key == "rate" else min
        return [
            mine[key] / best(other[key] for other in rest)
            for mine, *rest in zip(cells[ours], *others, strict=False)
        ]

    return ratios


def _own(key: str = "ratio") -> Any:
    return lambda cells: [figures[key] for figures in cells.get("rota", [])]


_RUNNERS = ("temporal", "prefect")
_GOALS = [
    _Goal("chain_noop", "No-op chain, as a function, of the best of Temporal and Prefect", 0.5, True,
          _between("ms", "rota", *_RUNNERS)),
    _Goal("chain_noop", "No-op chain, as a graph, of the same", 0.5, True,
          _between("ms", "graph", *_RUNNERS)),
    _Goal("chain_10ms", "10 ms chain, as a function, of the same", 0.5, True,
          _between("ms", "rota", *_RUNNERS)),
    _Goal("chain_10ms", "10 ms chain, as a graph, of the same", 0.5, True,
          _between("ms", "graph", *_RUNNERS)),
    _Goal("functions", "Steps a second of 100 functions, of DBOS", 10, False,
          _between("rate", "rota", "dbos")),
    _Goal("functions", "Steps a second of 100 functions, of Absurd", 5, False,
          _between("rate", "rota", "absurd")),
    _Goal("one_step", "p50 of one function's step, of a bare commit", 1.5, True, _own()),
    _Goal("fan", "10,000 wide, of our plain no-ops", 0.5, False, _between("rate", "rota", "plain")),
    _Goal("fan", "10,000 wide, of a Celery chord", 10, False, _between("rate", "rota", "celery")),
    _Goal("join", "From the last finish to the join, of idle pick-up p50", 3, True, _own()),
    _Goal("map", "Map over a million members, of our plain no-ops", 3, False,
          _between("rate", "rota", "plain")),
    _Goal("before", "Plain no-ops, of those before workflows", 0.97, False,
          _between("rate", "plain", "before")),
    _Goal("sleeping", "PostgreSQL beside 10,000 sleeping functions, of idle", 1.1, True, _own()),
    _Goal("killed", "kill -9 until the next step, of the lease", 1.5, True, _own()),
]  # fmt: skip


def _judged(found: Found) -> list[tuple[str, str, str, str]]:
    """(goal, seen, verdict, when it was taken) of each goal."""
    rows = []
    for goal in _GOALS:
        wanted = f"{goal.what}: at {'most' if goal.at_most else 'least'} {goal.bound:g}"
        ratios = goal.ratios(found["cells"].get(goal.case, {}))
        if not ratios:
            rows.append((wanted, "", "not measured", ""))
            continue
        ratio = statistics.median(ratios)
        reached = ratio <= goal.bound if goal.at_most else ratio >= goal.bound
        spread = f" ({min(ratios):.3g} to {max(ratios):.3g})" if len(ratios) > 1 else ""
        verdict = "reached" if reached else "**not reached**"
        rows.append((wanted, f"{ratio:.3g}{spread}", verdict, _taken(found, goal.case)))
    return rows


def _taken(found: Found, case: str) -> str:
    """The commit that a case was measured at, and the load when its rounds began."""
    if (taken := found.get("taken", {}).get(case)) is None:
        return ""
    low, high = min(taken["loads"]), max(taken["loads"])
    load = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    return f"{taken['commit']}, load {load}"


def table(found: Found) -> Table:
    drawn = Table("goal", "median of the rounds' ratios", "", "taken at", title="workflows")
    for row in _judged(found):
        drawn.add_row(*row)
    return drawn


def write(found: Found, docs: Path = sections.DOCS) -> None:
    """Write this part of docs/benchmarks.md anew, and its plots. The rest of the page stays."""
    images = docs / "images" / "bench"
    images.mkdir(parents=True, exist_ok=True)
    cases = []
    for name, case in CASES.items():
        cells = found["cells"].get(name)
        if not cells:
            continue
        if len(cells) > 1:
            (images / f"flow_{name}.svg").write_text(_plot(case, cells))
        cases.append(_section(name, case, cells, found["reasons"].get(name, {})))
    sections.put(HEADING, "\n".join([_head(found), *cases, _setups(found)]), docs)


def _head(found: Found) -> str:
    about = found["about"]
    lines = [f"| {' | '.join(row)} |" for row in _judged(found)]
    settings = about["settings"]
    machine = f"{about['cores']} cores of {about['processor']}, {about['memory_gb']} GB"
    shown = ", ".join(f"`{name}` {settings[name]}" for name in ("fsync", "synchronous_commit"))
    said = f"""Written by `python -m bench.workflows` on {about["date"]}, rounds:
{about["rounds"]}; {machine}, load

{about["load"]} when its last part began, PostgreSQL {settings["server_version"]}, {shown}. A ratio is of
two figures of one round; what is shown is the median of the rounds, with the lowest and the highest
where there were several. Steps record the moment at which they end, so that how a client learns of the
end of a run plays no part."""
    header = ["| goal | seen | | taken at |", "| --- | --- | --- | --- |"]
    return "\n".join([said, "", *header, *lines, ""])


def _median(rounds: list[dict[str, float]], key: str) -> float:
    return statistics.median(figures[key] for figures in rounds)


def _plot(case: Case, cells: dict[str, list[dict[str, float]]]) -> str:
    rows = []
    for who, rounds in cells.items():
        values = [figures[case.key] for figures in rounds]
        middle = statistics.median(values)
        rows.append(Bar(_TITLES[who], middle, min(values), max(values), who in _OURS))
    rows.sort(key=lambda row: row.value, reverse=case.higher_is_better)
    log = max(row.value for row in rows) > 50 * max(min(row.value for row in rows), 1e-9)
    note = "more is better" if case.higher_is_better else "less is better"
    return bars(
        case.title, case.unit, rows, note=note + ("; logarithmic scale" if log else ""), log=log
    )


_COLUMNS = {
    "rate": "a second", "ms": "ms", "p50": "p50 ms", "commit_p50": "bare commit, p50 ms",
    "idle_p50": "idle pick-up, p50 ms", "join_ms": "last to join, ms", "idle_ms": "idle, CPU ms/s",
    "seconds": "s", "lease": "lease, s", "ratio": "ratio", "store_cpu_us": "store, CPU µs each",
    "worker_cpu_us": "workers, CPU µs each", "submitter_mb": "submitter, MB",
    "workers_mb": "workers, MB",
}  # fmt: skip


def _section(
    name: str, case: Case, cells: dict[str, list[dict[str, float]]], reasons: dict[str, str]
) -> str:
    keys = [key for key in _COLUMNS if any(key in rounds[0] for rounds in cells.values())]
    lines = [f"### {case.title}", ""]
    if len(cells) > 1:
        lines += [f"![{case.title}: the figures are below](images/bench/flow_{name}.svg)", ""]
    lines += [
        "| | " + " | ".join(_COLUMNS[key] for key in keys) + " | |",
        "| --- |" + " ---: |" * len(keys) + " --- |",
    ]
    for who, rounds in cells.items():
        shown = [figure(_median(rounds, key)) if key in rounds[0] else "" for key in keys]
        lines.append(f"| {_TITLES[who]} | {' | '.join(shown)} | |")
    lines += [
        f"| {_TITLES[who]} |" + " |" * len(keys) + f" {said.replace('|', '/')} |"
        for who, said in reasons.items()
        if who not in cells
    ]
    return "\n".join([*lines, ""])


def _setups(found: Found) -> str:
    lines = ["### How each was set up for workflows", ""]
    for peer in FLOW_PEERS:
        known = found["peers"].get(peer.name, {"missing": "it was not asked for"})
        if "missing" in known:
            lines += [f"**{peer.title}** was left out: {known['missing'].replace('|', '/')}.", ""]
        else:
            said = peer.tuning().partition(": ")[2]
            lines += [f"**{peer.title} {known['version']}**: {said[0].upper()}{said[1:]}", ""]
    return "\n".join(lines)
