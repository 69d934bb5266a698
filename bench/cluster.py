"""What more nodes do to the store, measured with 1, 2 and 4 of them, and what 100,000 and 1,000,000 jobs
a second would take by that: the part of docs/benchmarks.md about clusters.

python -m bench.cluster [--quick] [--rounds 3] [--force] [--no-docs] [--render]
"""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from bench import part
from bench.compare import about
from bench.ground import Arena, ground
from bench.part import Found, Gate
from bench.peers.catalogue import BY_NAME
from bench.sizes import Stats
from bench.svg import figure
from bench.workloads import drain, preload

HEADING = "## Clusters"
NODES = (1, 2, 4)
_TARGETS = (100_000, 1_000_000)
_MOST = 100_000  # jobs a second that the arithmetic gives one PostgreSQL
_USED = 0.5  # of the processors that the arithmetic buys
_COMMAND = "python -m bench.cluster"

_ABOUT = """No-op jobs that were submitted before, by 1, 2 and 4 nodes of Rota beside their
PostgreSQL on these {cores} cores. Rates with the lowest and the highest round; the rest are
medians."""
_HEAD = (
    "| nodes | jobs/s | lowest to highest | store, CPU µs/job | of one node's | workers, CPU µs/job "
    "| processors used | WAL, bytes/job |"
)
_BENT = """It bends at {nodes} nodes: they gave less than half of what they would have given on
machines of their own. All share {cores} cores here, so that the rate ends where the processors do.
What more nodes cost the store is the column of its processor time."""
_COMPUTED = """What larger rates take **is computed from the row of {nodes} nodes and was not
measured**: {store_us} µs of the store for a job and {submit_us} µs for its submit in bulk,
{worker_us} µs of a worker, {wal_bytes} bytes of WAL; processors half used; at most {most} jobs a
second in one PostgreSQL. Several databases are several clusters: Rota does not route jobs between
them. Handlers come on top."""


def measure(quick: bool, rounds: int, gate: Gate) -> Found:
    """{"about": …, "nodes": {"1": [figures, …], …}}"""
    found: Found = {"rounds": rounds, "nodes": {str(nodes): [] for nodes in NODES}}
    count = 10_000 if quick else 200_000
    with ground() as place:
        arena = Arena(BY_NAME["rota"], place)
        arena.prepare()
        found["about"] = about(place, rounds)
        for number in range(rounds):
            for nodes in NODES[:: -1 if number % 2 else 1]:
                gate.wait()
                figures = _drained(arena, nodes, count)
                found["nodes"][str(nodes)].append(figures)
                shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
                part.say(f"round {number + 1} of {rounds}, {nodes} nodes: {shown}")
    return found


def _drained(arena: Arena, nodes: int, count: int) -> Stats:
    """Submit so many no-ops and let the nodes run them; what the store wrote for each is WAL of both."""
    arena.refresh()
    wal, used = _wal(arena), arena.store_cpu()
    preload(arena, "noop", count)
    submit = (arena.store_cpu() - used) / count * 1e6
    figures = drain(arena, count, patience=180, processes=nodes)
    figures["submit_cpu_us"] = submit
    figures["wal_bytes"] = (_wal(arena) - wal) / count
    return figures


def _wal(arena: Arena) -> float:
    return float(arena.ground.sql("select pg_current_wal_lsn() - '0/0'::pg_lsn"))


# -- the arithmetic


@dataclass(frozen=True)
class Costs:
    """Of one job, by measurement."""

    store_us: float
    submit_us: float
    worker_us: float
    wal_bytes: float


@dataclass(frozen=True)
class Needs:
    """Of so many jobs a second."""

    databases: int
    store_cores: float  # of each database
    worker_cores: float  # of all
    wal_mb: float  # a second, of each database


def needs(rate: float, costs: Costs) -> Needs:
    """What a rate takes when processors are half used and no database has too much."""
    databases = max(math.ceil(rate / _MOST), 1)
    each = rate / databases
    return Needs(
        databases,
        each * (costs.store_us + costs.submit_us) / 1e6 / _USED,
        rate * costs.worker_us / 1e6 / _USED,
        each * costs.wal_bytes / 1e6,
    )


def bend(rates: dict[int, float]) -> int | None:
    """The first number of nodes that gave less than half of the growth that they should have given."""
    steps = sorted(rates)
    for fewer, more in itertools.pairwise(steps):
        if rates[more] / rates[fewer] - 1 < (more / fewer - 1) / 2:
            return more
    return None


# -- the page


def body(found: Found) -> str:
    middle = {
        nodes: {key: statistics.median(each[key] for each in found["nodes"][str(nodes)])
                for key in found["nodes"][str(nodes)][0]}
        for nodes in NODES
    }  # fmt: skip
    cores = found["about"]["cores"]
    lines = [
        part.measured(found, _COMMAND), "",
        _ABOUT.format(cores=cores), "", _HEAD, "| ---: |" + " ---: |" * 7,
    ]  # fmt: skip
    for nodes, seen in middle.items():
        rates = [each["rate"] for each in found["nodes"][str(nodes)]]
        used = seen["rate"] * (seen["store_cpu_us"] + seen["worker_cpu_us"]) / 1e6
        ratio = seen["store_cpu_us"] / (middle[1]["store_cpu_us"] or 1)
        lines.append(
            f"| {nodes} | {figure(seen['rate'])} | {figure(min(rates))} to {figure(max(rates))} "
            f"| {figure(seen['store_cpu_us'])} | {figure(ratio)} | {figure(seen['worker_cpu_us'])} "
            f"| {figure(used)} of {cores} | {figure(seen['wal_bytes'])} |"
        )
    lines += [
        "",
        _said_of_bend(bend({nodes: seen["rate"] for nodes, seen in middle.items()}), cores),
    ]
    return "\n".join([*lines, "", *_arithmetic(middle[max(NODES)])])


def _said_of_bend(nodes: int | None, cores: int) -> str:
    if nodes is None:
        return f"The rate still grew with {max(NODES)} nodes."
    return _BENT.format(nodes=nodes, cores=cores)


def _arithmetic(seen: Stats) -> list[str]:
    costs = Costs(
        seen["store_cpu_us"], seen["submit_cpu_us"], seen["worker_cpu_us"], seen["wal_bytes"]
    )
    lines = [
        _COMPUTED.format(
            nodes=max(NODES), most=f"{_MOST:,}",
            **{name: figure(value) for name, value in vars(costs).items()},
        ), "",
        "| jobs/s | databases | cores of each store | WAL of each, MB/s | cores of all workers |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for rate in _TARGETS:
        need = needs(rate, costs)
        lines.append(
            f"| {rate:,} | {need.databases} | {figure(need.store_cores)} | {figure(need.wal_mb)} "
            f"| {figure(need.worker_cores)} |"
        )
    return lines


if __name__ == "__main__":
    part.main("cluster", __doc__, HEADING, measure, body)
