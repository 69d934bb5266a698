"""The table in the terminal, and the page docs/benchmarks.md with its plots, from what was measured."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from rich.table import Table

from bench import flow_page, goals, limits_page
from bench.peers.catalogue import BY_NAME as PEERS
from bench.sections import DOCS, GROWTH, NODES, SOAK, kept
from bench.sizes import Workload
from bench.svg import Bar, bars, figure
from bench.workloads import WORKLOADS

_BARE = "bare statements"

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


def _title(name: str) -> str:
    return _BARE if name == "postgres" else PEERS[name].title


# -- the terminal


def table(found: Found) -> Table:
    names = ["postgres", *_names(found)]
    drawn = Table(
        "", *(_title(name) for name in names), title="medians; ± half the spread of the rounds"
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
    sections = []
    for workload in _measured(found):
        (images / f"{workload.name}.svg").write_text(_plot(found, workload))
        sections.append(_section(found, workload))
    headings = (flow_page.HEADING, limits_page.HEADING, GROWTH, NODES, SOAK)
    others = [kept(heading, docs) for heading in headings]
    page = "\n".join([_head(found), _goals(found), *sections, _setups(found), *others])
    (docs / "benchmarks.md").write_text(page.rstrip() + "\n")


def _head(found: Found) -> str:
    if not found["about"]:
        return _UNMEASURED
    about, settings = found["about"], found["about"]["settings"]
    shown = ", ".join(
        f"`{name}` {value}" for name, value in settings.items() if name != "server_version"
    )
    return f"""# Benchmarks

Written by `make bench` on {about["date"]}; run it on your own machine, and it is about yours. For each
workload all systems were measured in one run, in rounds in which they took turns, on the same PostgreSQL
(or the same Redis, without persistence), each in a database of its own. Stats are medians of the
rounds; the thin line in a bar goes from the lowest to the highest. Every handler recorded its start:
the figures are of jobs that ran, and the tables say if any ran twice or not at all.

| | |
| --- | --- |
| machine | {about["cores"]} cores of {about["processor"]}, {about["memory_gb"]} GB, {about["system"]} |
| load when it began | {about["load"]} |
| PostgreSQL | {settings.get("server_version", "")}: {shown} |
| Python | {about["python"]} |

Processor time is that of the whole server, and of all processes of a worker, from `/proc`. On a machine
with few cores it says more than the rate: it is what a job costs.

How to read them. *Bare statements* are a yardstick and no limit: Rota's own claim and finish (or COPY,
single inserts, commits) in a loop on one connection, with no handler. More connections can be faster,
and Rota's no-ops here are. Each table says how many rounds it is of; of one round, take the order of
magnitude. If the load says that the machine was busy, compare systems within a table, which shared it,
and not with figures from elsewhere.
"""


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
                    _title(name),
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
    "spread_ms": "first to last ms", "mb_per_million": "MB per million", "ratio": "ratio",
    "store_cpu_us": "store, CPU µs/job", "worker_cpu_us": "workers, CPU µs/job",
    "client_cpu_us": "client, CPU µs/job", "worker_mb": "workers, MB", "idle_mb": "workers, MB",
}  # fmt: skip


def _section(found: Found, workload: Workload) -> str:
    cells = found["cells"][workload.name]
    names = [name for name in ["postgres", *_names(found)] if cells.get(name)]
    keys = [key for key in _COLUMNS if any(key in cells[name][0] for name in names)]
    lines = [
        f"## {workload.title}", "",
        f"![{workload.title}: the figures are in the table below](images/bench/{workload.name}.svg)", "",
        " ".join([_doc(workload), _how_often(cells)]).strip(), "",
        "| | " + " | ".join(_COLUMNS[key] for key in keys) + " | jobs | |",
        "| --- |" + " ---: |" * len(keys) + " ---: | --- |",
    ]  # fmt: skip
    for name in names:
        shown = [_number(middle(found, workload.name, name, key)) for key in keys]
        jobs = middle(found, workload.name, name, "jobs")
        counted = f"{jobs:,.0f}" if jobs else ""
        remark = _remark(cells[name])
        lines.append(f"| {_title(name)} | {' | '.join(shown)} | {counted} | {remark} |")
    reasons = found["reasons"].get(workload.name, {})
    lines += [
        f"| {_title(name)} |" + " |" * (len(keys) + 1) + f" {_plain(reasons[name])} |"
        for name in _names(found)
        if name not in cells and name in reasons
    ]
    return "\n".join([*lines, ""])


def _how_often(cells: dict[str, list[Any]]) -> str:
    rounds = max(len(figures) for figures in cells.values())
    return f"Medians of {rounds} rounds." if rounds > 1 else "One round."


def _doc(workload: Workload) -> str:
    return " ".join((workload.run.__doc__ or "").split())


def _number(value: float | None) -> str:
    return "" if value is None else figure(value)


def _remark(rounds: list[dict[str, float]]) -> str:
    """What of it can't be passed over: jobs that ran twice, or never."""
    twice = sum(figures.get("twice", 0) for figures in rounds)
    missing = sum(
        max(figures["jobs"] - figures["ran"], 0) for figures in rounds if "ran" in figures
    )
    said = [f"{twice:,.0f} ran twice"] if twice else []
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
