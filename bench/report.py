"""The table in the terminal, and the page docs/benchmarks.md with its plots, from what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.table import Table

from bench import goals, load, sections
from bench.goals import EARLY
from bench.peers.catalogue import BY_NAME as PEERS
from bench.raw import YARDSTICKS
from bench.sections import DOCS
from bench.sizes import Workload
from bench.svg import Bar, bars, figure
from bench.workloads import WORKLOADS

_BARE = "bare statements"
_LIMIT = "PostgreSQL's limit"
ROUNDS = 3  # that a figure of this page should be the median of

Found = dict[str, Any]


def _rounds(found: Found, workload: str, name: str, key: str) -> list[float]:
    cells = found["cells"].get(workload, {}).get(name, [])
    return [figures[key] for figures in cells if key in figures]


def middle(found: Found, workload: str, name: str, key: str) -> float | None:
    """The median of the rounds."""
    values = _rounds(found, workload, name, key)
    return statistics.median(values) if values else None


def _names(found: Found) -> list[str]:
    return [name for name in PEERS if "version" in found["peers"].get(name, {})]


def _title(found: Found, workload: str, name: str) -> str:
    return _yardstick(found, workload) if name == "postgres" else PEERS[name].title


def _yardstick(found: Found, workload: str) -> str:
    """What bare statements are to be called: a limit only if nothing of ours is above it."""
    if workload in YARDSTICKS:
        return YARDSTICKS[workload]
    bare, ours = (middle(found, workload, name, "rate") for name in ("postgres", "rota"))
    return _LIMIT if bare and bare >= (ours or 0) else _BARE


# -- the terminal


def table(found: Found) -> Table:
    names = ["postgres", *_names(found)]
    drawn = Table(
        "",
        *(_BARE if name == "postgres" else PEERS[name].title for name in names),
        title="medians; ± half the spread of the rounds",
    )
    for workload in _measured(found):
        shown = workload.title + (f", {workload.unit}" if workload.unit else "")
        drawn.add_row(shown, *(_cell(found, workload, name) for name in names))
    return drawn


def _measured(found: Found) -> list[Workload]:
    return [workload for workload in WORKLOADS if found["cells"].get(workload.name)]


def _cell(found: Found, workload: Workload, name: str) -> str:
    values = _rounds(found, workload.name, name, workload.headline)
    if not values:
        return "-" if found["reasons"].get(workload.name, {}).get(name) else ""
    spread = (max(values) - min(values)) / 2 / (statistics.median(values) or 1)
    shown = figure(statistics.median(values))
    return f"{shown} ±{spread:.0%}" if len(values) > 1 else shown


# -- the page


def write(found: Found, docs: Path = DOCS) -> None:
    """docs/benchmarks.md, and a plot for each workload in docs/images/bench."""
    images = docs / "images" / "bench"
    images.mkdir(parents=True, exist_ok=True)
    written = []
    for workload in _measured(found):
        (images / f"{workload.name}.svg").write_text(_plot(found, workload))
        written.append(_section(found, workload))
    parts = [_head(found), _doubts(found), _goals(found), *written, _setups(found)]
    sections.replace_rest("\n".join(part for part in parts if part), _mine, docs)


def _mine(heading: str) -> bool:
    """Whether a heading of the page is written here; the others stay as they are."""
    titles = {workload.title for workload in WORKLOADS} | {
        "Goals",
        "What is not settled",
        "How each was set up",
    }
    return heading.removeprefix("## ") in titles


def _head(found: Found) -> str:
    if not found["about"]:
        return _UNMEASURED
    about, settings = found["about"], found["about"]["settings"]
    shown = ", ".join(
        f"`{name}` {value}" for name, value in settings.items() if name != "server_version"
    )
    return f"""# Benchmarks

Written by `make bench`; run it on your own machine, and it is about yours. For each workload all
systems were measured in one run, in rounds in which they took turns, on the same PostgreSQL (or the
same Redis, without persistence), each in a database of its own. Figures are medians of the rounds,
and beside them are the lowest and the highest; the thin line in a bar goes from the one to the
other. Every handler recorded its start: the figures are of jobs that ran, and the tables say if any
ran twice or not at all. Rows and bars are sorted by the figure that the heading names.

| | |
| --- | --- |
| machine | {about["cores"]} cores of {about["processor"]}, {about["memory_gb"]} GB, {about["system"]} |
| last measured | {about["date"]}, commit {about.get("commit", "not recorded")} |
| PostgreSQL | {settings.get("server_version", "")}: {shown} |
| Python | {about["python"]} |

Processor time is that of the whole server, and of all processes of a worker, from `/proc`. On a machine
with few cores it says more than the rate: it is what a job costs.

*PostgreSQL's limit* is the best of several ways to move the same rows, which are listed under their
table: Rota's own statements in a loop and a bare prototype that claims, deletes and keeps a history
and nothing else, in several sizes of batch, on one connection and on two. No handler is run. Where
Rota is quicker than all of them, the row is called *bare statements*, for it is no limit then.

Before each measurement others may use at most {load.LIMIT:g} processors of the machine, or the run
waits, and then ends. Each table says what was seen, of which commit it is and on which day, because
parts can be measured by themselves. All of it again: `make bench ARGS="--full --growth"`; how long
that takes: `make bench ARGS="--full --growth --plan"`.
"""


def _doubts(found: Found) -> str:
    """What of this page should be measured again, and why."""
    lines = [
        f"- {workload.title}: {'; '.join(doubts)}."
        for workload in _measured(found)
        if (doubts := _doubts_of(found, workload))
    ]
    if not found["about"] or not lines:
        return ""
    said = (
        "These are not of three rounds on an idle machine: take the order of magnitude from them."
    )
    return "\n".join(["## What is not settled", "", said, "", *lines, ""])


def _doubts_of(found: Found, workload: Workload) -> list[str]:
    cells, runs = found["cells"][workload.name], found["runs"].get(workload.name, {})
    doubts = []
    fewest = min(len(rounds) for rounds in cells.values())
    if fewest < ROUNDS:
        doubts.append("one round" if fewest == 1 else f"{fewest} rounds")
    if any(name not in runs for name in cells):
        doubts.append("the load was not recorded")
    elif (most := max(run["load"] for run in runs.values())) > load.LIMIT:
        doubts.append(f"others used up to {most:.1f} processors")
    if len({run["commit"] for run in runs.values()}) > 1:
        doubts.append("its rows are of several commits")
    return doubts


_UNMEASURED = """# Benchmarks

Nothing has been measured into this page yet: `make bench` writes it, with a table and a plot for each
workload, of Rota and its peers on your machine.
"""


def _goals(found: Found) -> str:
    rows = goals.judge(
        lambda workload, name, key: middle(found, workload, name, key), _names(found)
    )
    if not rows:
        return ""
    lines = [f"| {row.goal} | {row.seen} | {row.verdict} |" for row in rows]
    return "\n".join(["## Goals", "", "| goal | seen | |", "| --- | --- | --- |", *lines, ""])


def _plot(found: Found, workload: Workload) -> str:
    rows = []
    for name in ["postgres", *_names(found)]:
        values = _rounds(found, workload.name, name, workload.headline)
        if values:
            rows.append(
                Bar(
                    _title(found, workload.name, name),
                    statistics.median(values),
                    min(values),
                    max(values),
                    name == "rota",
                )
            )
    rows.sort(key=lambda row: row.value, reverse=workload.higher_is_better)
    log = max(row.value for row in rows) > 50 * max(min(row.value for row in rows), 1e-9)
    note = "more is better" if workload.higher_is_better else "less is better"
    note += "; logarithmic scale" if log else ""
    return bars(workload.title, workload.unit, rows, note=note, log=log)


_COLUMNS = {
    "rate": "jobs/s", "p50": "p50 ms", "p99": "p99 ms", "last": "last ms", "seconds": "s",
    "unaccounted": "unaccounted for",
    "spread_ms": "first to last ms", "mb_per_million": "MB per million", "ratio": "ratio",
    "store_cpu_us": "store, CPU µs/job", "worker_cpu_us": "workers, CPU µs/job",
    "client_cpu_us": "client, CPU µs/job", "worker_mb": "workers, MB", "idle_mb": "workers, MB",
}  # fmt: skip


def _section(found: Found, workload: Workload) -> str:
    cells = found["cells"][workload.name]
    names = _sorted(found, workload)
    keys = [key for key in _COLUMNS if any(key in cells[name][0] for name in names)]
    keys.sort(key=lambda key: key != workload.headline)
    lines = [
        f"## {workload.title}", "",
        f"![{workload.title}: the figures are in the table below](images/bench/{workload.name}.svg)", "",
        " ".join([_doc(workload), _how_often(cells), _measured_when(found, workload)]).strip(), "",
        f"| | {_COLUMNS[keys[0]]} | lowest to highest | "
        + "".join(f"{_COLUMNS[key]} | " for key in keys[1:]) + "jobs | |",
        "| --- |" + " ---: |" * (len(keys) + 2) + " --- |",
    ]  # fmt: skip
    for name in names:
        first, *rest = (_number(middle(found, workload.name, name, key)) for key in keys)
        spread = _spread(_rounds(found, workload.name, name, keys[0]))
        jobs = middle(found, workload.name, name, "jobs")
        shown = [first, spread, *rest, f"{jobs:,.0f}" if jobs else ""]
        title = _title(found, workload.name, name)
        lines.append(f"| {title} | {' | '.join(shown)} | {_remark(cells[name])} |")
    reasons = found["reasons"].get(workload.name, {})
    lines += [
        f"| {_title(found, workload.name, name)} |"
        + " |" * (len(keys) + 2)
        + f" {_plain(reasons[name])} |"
        for name in _names(found)
        if name not in cells and name in reasons
    ]
    return "\n".join([*lines, "", *_ways(found, workload)])


def _sorted(found: Found, workload: Workload) -> list[str]:
    """Who was measured, the best first."""
    there = [
        name for name in ["postgres", *_names(found)] if found["cells"][workload.name].get(name)
    ]
    value = {name: middle(found, workload.name, name, workload.headline) or 0.0 for name in there}
    return sorted(there, key=lambda name: value[name], reverse=workload.higher_is_better)


def _spread(values: list[float]) -> str:
    return f"{figure(min(values))} to {figure(max(values))}" if len(values) > 1 else ""


def _how_often(cells: dict[str, list[Any]]) -> str:
    rounds = max(len(figures) for figures in cells.values())
    return f"Medians of {rounds} rounds." if rounds > 1 else "One round."


def _ways(found: Found, workload: Workload) -> list[str]:
    ways = found["ways"].get(workload.name, {})
    if not ways or "postgres" not in found["cells"][workload.name]:
        return []
    best = sorted(ways.items(), key=lambda way: -way[1])
    said = "; ".join(f"{way}: {figure(rate)}" for way, rate in best)
    return [f"The ways that were tried of PostgreSQL alone, rates of the last round: {said}.", ""]


def _measured_when(found: Found, workload: Workload) -> str:
    """When, of which commit and beside what load, and the command that measures it again."""
    runs = found["runs"].get(workload.name, {})
    again = f'Again: `make bench ARGS="--only {workload.name}"`.'
    if not runs:
        return again
    days, commits = (_listed(run[key] for run in runs.values()) for key in ("date", "commit"))
    most = max(run["load"] for run in runs.values())
    minutes = sum(run["seconds"] for run in runs.values()) / 60
    return (
        f"Measured on {days}, commit {commits}; others used at most {most:.2f} processors before each. "
        f"A round of all takes {minutes:.0f} min. {again}"
    )


def _listed(values: Iterable[str]) -> str:
    return ", ".join(sorted(set(values)))


def _doc(workload: Workload) -> str:
    return " ".join((workload.run.__doc__ or "").split())


def _number(value: float | None) -> str:
    return "" if value is None else figure(value)


def _remark(rounds: list[dict[str, float]]) -> str:
    """What of it can't be passed over: jobs that ran twice, too early, or never."""
    twice = sum(figures.get("twice", 0) for figures in rounds)
    missing = sum(
        max(figures["jobs"] - figures["ran"], 0) for figures in rounds if "ran" in figures
    )
    early = max(-figures.get("earliest", 0.0) for figures in rounds)
    said = [f"{twice:,.0f} ran twice"] if twice else []
    said += [f"started up to {figure(early)} ms early"] if early > EARLY else []
    said += [f"{missing:,.0f} did not run in time"] if missing else []
    said += ["not all completed in time"] if any(one.get("unfinished") for one in rounds) else []
    return "; ".join(said)


def _setups(found: Found) -> str:
    lines = [
        "## How each was set up",
        "",
        "Whoever knows one of them better and sees something to tune: it is in `bench/peers`.",
        "",
    ]
    for name, peer in PEERS.items():
        known = found["peers"].get(name, {"version": peer.version})
        if "missing" in known:
            lines += [f"**{peer.title}** was left out: {_plain(known['missing'])}.", ""]
        else:
            first, _, rest = peer.tuning().partition(": ")
            said = rest[0].upper() + rest[1:] if len(first.split()) <= 3 else f"{first}: {rest}"
            lines += [f"**{peer.title}{' ' + known['version']}**: {said}".replace(" **", "**"), ""]
    return "\n".join(lines)


def _plain(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ").replace("<", "(").rstrip(".")
