"""Limits, fair shares, rates, depths and pools against their goals, each as a ratio or a count of one
run: what docs/benchmarks.md says of them. What is compared takes turns on one PostgreSQL.

python -m bench.limits [--quick] [--only forty,front] [--rounds 1] [--no-docs] [--render]

What was measured is kept in bench/.peers/limits.json; --only replaces only what it measures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from rich.console import Console

from bench import (
    limits_depth,
    limits_faults,
    limits_page,
    limits_peers,
    limits_pool,
    limits_rates,
    limits_resources,
    limits_shares,
)
from bench.compare import about
from bench.ground import Ground, ground
from bench.limits_ground import Figures, Size
from bench.peers.install import ROOT
from bench.trees import commit, worktree

RESULTS = ROOT / "limits.json"
_say = Console(stderr=True, highlight=False)

_CASES: dict[str, Callable[[Ground, Size], Any]] = {
    "forty": limits_rates.forty,
    "windows": limits_rates.windows,
    "meter": limits_rates.meter,
    "shares": limits_shares.shares,
    "weight": limits_shares.weight,
    "front": limits_shares.front,
    "peers": limits_peers.peers,
    "chaos": limits_faults.chaos,
    "killed": limits_faults.killed,
    "pool": limits_pool.pool,
    "resources": limits_resources.resources,
    "snapshot": limits_depth.snapshot,
    "depth": limits_depth.depth,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small numbers, no page: two minutes")
    parser.add_argument("--only", help="cases, with commas: " + ", ".join(limits_page.CASES))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-docs", action="store_true")
    parser.add_argument("--render", action="store_true", help="only write the page again")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not chosen.render:
        wanted = chosen.only.split(",") if chosen.only else list(limits_page.CASES)
        if unknown := set(wanted) - set(limits_page.CASES):
            sys.exit(f"no case {sorted(unknown)}; there are {list(limits_page.CASES)}")
        new = measure(wanted, Size(chosen.quick), chosen.rounds)
        found = new if chosen.quick else _kept(found, new)
    Console(width=150).print(limits_page.table(found))
    if not (chosen.quick or chosen.no_docs):
        limits_page.write(found)


def _kept(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """What is known now, case by case; each has the load and the commit it was measured on."""
    merged = {"cells": {**old.get("cells", {}), **new["cells"]}, "about": new["about"]}
    ROOT.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(merged, indent=1))
    return merged


def measure(wanted: list[str], size: Size, rounds: int) -> dict[str, Any]:
    """{"cells": {case: {"rounds": [figures, …], "load": …, "commit": …, "trouble": …}}, "about": …}"""
    found: dict[str, Any] = {"cells": {}}
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(ground())
        found["about"] = about(place, rounds)
        unlimited = None
        if "unlimited" in wanted:
            before = stack.enter_context(worktree(limits_rates.BEFORE))
            unlimited = limits_rates.Unlimited(place, before)
        for number in range(rounds):
            for case in wanted:
                _say.print(f"round {number + 1} of {rounds}: {limits_page.CASES[case].title}")
                run = unlimited.measure if unlimited and case == "unlimited" else None
                _note(found, case, lambda: _figures(case, place, size, number, run))  # noqa: B023
    return found


def _figures(case: str, place: Ground, size: Size, number: int, run: Any) -> Figures:
    if run is not None:
        figures: Figures = run(size, number)
    else:
        figures = asyncio.run(_CASES[case](place, size))
    return figures


def _note(found: dict[str, Any], case: str, run: Callable[[], Figures]) -> None:
    cell = found["cells"].setdefault(case, {"rounds": []})
    cell["load"] = Path("/proc/loadavg").read_text().split()[0]
    cell["commit"] = commit()
    began = time.monotonic()
    try:
        figures = run()
    except Exception as error:  # noqa: BLE001  the other cases are worth measuring
        cell["trouble"] = f"{type(error).__name__}: {error}"
        _say.print(f"  [yellow]{cell['trouble']}")
        return
    cell["rounds"].append(figures)
    shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
    _say.print(f"  ({time.monotonic() - began:.0f} s) {shown}", style="dim")


if __name__ == "__main__":
    main()
