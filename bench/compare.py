"""`make bench`: what PostgreSQL can do, then Rota, then its peers, in rounds that take turns, so
that the machine's noise hits all alike. Prints a table and writes docs/benchmarks.md with its
plots.

python -m bench.compare [--quick] [--full] [--growth] [--only noop_async,herd] [--peers rota,pgqueuer]
                        [--rounds 3] [--no-docs] [--force] [--plan] [--render]

The default workloads take minutes for each peer; --full adds those that take a minute or more in
each round (herds, schedules, recovery, storage). --plan says how long the chosen ones take, and
measures nothing. What was measured is kept in bench/.peers/results.json, each cell with the load,
the date and the commit: another run with --only or --peers replaces only what it measures, and
--render writes the page anew from it.

Before each cell others must not use more than a few tenths of a processor; it is waited for two
minutes, and then nothing is measured: --force measures nevertheless, and the page says so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from rich.console import Console

from bench import plan, raw, report
from bench.ground import Arena, Ground, Trouble, ground
from bench.load import Busy, wait_until_idle
from bench.peers.catalogue import BY_NAME as PEERS
from bench.peers.catalogue import Peer
from bench.peers.install import ROOT, Missing, ensure
from bench.sizes import QUICK, Size, Workload
from bench.workloads import WORKLOADS

RESULTS = ROOT / "results.json"
_say = Console(stderr=True, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny numbers, one round, no page")
    parser.add_argument("--full", action="store_true", help="also what takes minutes for each peer")
    parser.add_argument("--growth", action="store_true", help="also 10 million stored jobs (Rota)")
    parser.add_argument("--only", help="workloads, with commas")
    parser.add_argument("--peers", help="peers, with commas")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--no-docs", action="store_true")
    parser.add_argument(
        "--force", action="store_true", help="measure although others use the machine"
    )
    parser.add_argument("--plan", action="store_true", help="only say how long it takes")
    parser.add_argument("--render", action="store_true", help="only write the page again")
    chosen = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)  # by an exception: what was started must be ended
    if chosen.render:
        report.write(_stored())
        return
    size = QUICK if chosen.quick else Size()
    rounds = chosen.rounds or (1 if chosen.quick else report.ROUNDS)
    before = _stored()
    if chosen.plan:
        Console(width=150).print(plan.table(before, _workloads(chosen), _peers(chosen), rounds))
        return
    keep = _unkept if chosen.quick else partial(_keep, before)
    try:
        found = measure(
            _workloads(chosen),
            _peers(chosen),
            size,
            rounds,
            keep,
            force=chosen.force or chosen.quick,
        )
    except Busy as error:
        sys.exit(f"{error}. What was measured before is kept.")
    if not chosen.quick:
        found = _merged(before, found)
    Console(width=150).print(report.table(found))
    if not (chosen.quick or chosen.no_docs):
        report.write(found)


def _stop(*_: object) -> None:
    sys.exit("stopped")


def _workloads(chosen: argparse.Namespace) -> list[Workload]:
    if chosen.only:
        wanted = chosen.only.split(",")
        unknown = set(wanted) - {each.name for each in WORKLOADS}
        if unknown:
            sys.exit(
                f"no workload {sorted(unknown)}; there are {[each.name for each in WORKLOADS]}"
            )
        return [each for each in WORKLOADS if each.name in wanted]
    tiers = (
        {"core"} | ({"full"} if chosen.full else set()) | ({"growth"} if chosen.growth else set())
    )
    return [each for each in WORKLOADS if each.tier in tiers]


def _peers(chosen: argparse.Namespace) -> list[Peer]:
    names = chosen.peers.split(",") if chosen.peers else list(PEERS)
    unknown = set(names) - set(PEERS)
    if unknown:
        sys.exit(f"no peer {sorted(unknown)}; there are {list(PEERS)}")
    return [PEERS[name] for name in names]


def _keep(before: dict[str, Any], found: dict[str, Any]) -> None:
    """After each round, so that whoever stops it loses no more than the last."""
    ROOT.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(_merged(before, found), indent=1))


def _unkept(found: dict[str, Any]) -> None:
    pass


def measure(
    workloads: list[Workload], peers: list[Peer], size: Size, rounds: int,
    keep: Callable[[dict[str, Any]], None] = _unkept, *, force: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """{"about": …, "peers": {name: version or reason}, "cells": {workload: {peer: [figures, …]}},
    "runs": {workload: {peer: how it was measured}}, "reasons": …, "ways": {workload: {way: rate}}}"""
    found: dict[str, Any] = {"peers": {}, "cells": {}, "runs": {}, "reasons": {}, "ways": {}}
    with ground() as place:
        arenas = _prepared(place, peers, found)
        found["about"] = about(place, rounds)
        limits = raw.Raw(place)
        for number in range(rounds):
            for workload in workloads:
                _say.print(f"round {number + 1} of {rounds}: {workload.title}")
                if not workload.alone:
                    _cell(found, workload, "postgres", force, limits.measure, workload.name, size)
                    found["ways"] = limits.ways
                # Each begins once: who comes first finds a machine that has rested.
                turn = number % max(len(arenas), 1)
                for arena in arenas[turn:] + arenas[:turn]:
                    _one(found, workload, arena, size, force)
                keep(found)
    return found


def _prepared(place: Ground, peers: list[Peer], found: dict[str, Any]) -> list[Arena]:
    arenas = []
    for peer in peers:
        arena = Arena(peer, place)
        try:
            ensure(peer)
            arena.prepare()
        except (Missing, Trouble) as error:
            found["peers"][peer.name] = {"missing": str(error)}
            _say.print(f"[yellow]{peer.title} is left out: {error}")
            continue
        found["peers"][peer.name] = {"version": arena.version}
        arenas.append(arena)
    return arenas


def _one(found: dict[str, Any], workload: Workload, arena: Arena, size: Size, force: bool) -> None:
    peer = arena.peer
    if workload.alone and peer.kind != "rota":
        return
    if reason := peer.cannot.get(workload.name):
        found["reasons"].setdefault(workload.name, {})[peer.name] = reason
        return
    _cell(found, workload, peer.name, force, workload.run, arena, size)


def _cell(
    found: dict[str, Any], workload: Workload, name: str, force: bool, run: Any, *arguments: Any
) -> None:
    """One round of one workload for one of them, and how it was measured."""
    load = wait_until_idle(force=force)
    began = time.monotonic()
    try:
        figures = run(*arguments)
    except (Trouble, OSError, subprocess.SubprocessError) as error:
        found["reasons"].setdefault(workload.name, {})[name] = str(error)
        _say.print(f"  [yellow]{name}: {error}")
        return
    if figures is None:
        return
    seconds = time.monotonic() - began
    found["cells"].setdefault(workload.name, {}).setdefault(name, []).append(figures)
    runs = found["runs"].setdefault(workload.name, {})
    runs[name] = run_noted(runs.get(name), load, seconds, found["about"])
    shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
    _say.print(f"  {name} ({seconds:.0f} s, load {load:.2f}): {shown}", style="dim")


def run_noted(
    before: dict[str, Any] | None, load: float, seconds: float, about: dict[str, Any]
) -> dict[str, Any]:
    """How the rounds of a cell were measured, with one more of them."""
    before = before or {"load": 0.0, "seconds": 0.0}
    return {
        "load": max(before["load"], round(load, 2)),
        "seconds": max(before["seconds"], round(seconds, 1)),
        "date": about["date"], "commit": about["commit"],
    }  # fmt: skip


def about(place: Ground, rounds: int) -> dict[str, Any]:
    names = ("server_version", "shared_buffers", "fsync", "synchronous_commit", "max_wal_size",
             "autovacuum_naptime", "wal_level")  # fmt: skip
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.processor(),
    )  # fmt: skip
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return {
        "date": time.strftime("%Y-%m-%d"), "commit": commit(), "rounds": rounds, "processor": model,
        "cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory),
        "system": f"{platform.system()} {platform.release()}", "python": platform.python_version(),
        "load": Path("/proc/loadavg").read_text().split()[0],
        "settings": {name: place.sql(f"show {name}") for name in names},
    }  # fmt: skip


def commit() -> str:
    """The commit that is measured, and whether files differ from it."""
    try:
        named, changed = (
            subprocess.run(
                ["git", *words], cwd=ROOT.parent, capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain", "../src"))
        )
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{named} with changes" if changed else named


def _stored() -> dict[str, Any]:
    kept: dict[str, Any] = {
        "peers": {},
        "cells": {},
        "runs": {},
        "reasons": {},
        "ways": {},
        "about": {},
    }
    if RESULTS.exists():
        kept.update(json.loads(RESULTS.read_text()))
    return kept


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    old = deepcopy(old)
    for part in ("cells", "runs", "reasons"):
        for workload, cells in new[part].items():
            old[part].setdefault(workload, {}).update(cells)
    old["ways"].update(new["ways"])
    for workload, cells in new["cells"].items():
        for name in cells:
            if name not in new["reasons"].get(workload, {}):
                old["reasons"].get(workload, {}).pop(name, None)
    old["peers"].update(new["peers"])
    old["about"] = new["about"]
    return old


if __name__ == "__main__":
    main()
