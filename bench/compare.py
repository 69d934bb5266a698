"""`make bench`: bare statements as a yardstick, then Rota, then its peers, in rounds that take turns,
so that the machine's noise hits all alike. Prints a table and writes docs/benchmarks.md with its plots.

python -m bench.compare [--quick] [--full] [--growth] [--only noop_async,herd] [--peers rota,pgqueuer]
                        [--rounds 3] [--no-docs] [--render]

The default workloads take a few minutes when the peers are installed; --full adds those that take a
minute or more for each peer (herd, schedules, recovery, storage). What was measured is kept in
bench/.peers/results.json: another run with --only or --peers replaces only what it measures, and
--render writes the page anew from it.
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

from bench import raw, report
from bench.ground import Arena, Ground, Trouble, ground
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
    parser.add_argument("--render", action="store_true", help="only write the page again")
    chosen = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)  # by an exception: what was started must be ended
    if chosen.render:
        report.write(_stored())
        return
    size = QUICK if chosen.quick else Size()
    rounds = chosen.rounds or (1 if chosen.quick else 3)
    before = _stored()
    keep = _unkept if chosen.quick else partial(_keep, before)
    found = measure(_workloads(chosen), _peers(chosen), size, rounds, keep)
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
    RESULTS.write_text(json.dumps(_merged(before, found), indent=1))


def _unkept(found: dict[str, Any]) -> None:
    pass


def measure(
    workloads: list[Workload], peers: list[Peer], size: Size, rounds: int,
    keep: Callable[[dict[str, Any]], None] = _unkept,
) -> dict[str, Any]:  # fmt: skip
    """{"about": …, "peers": {name: version or reason}, "cells": {workload: {peer: [figures, …]}}}"""
    found: dict[str, Any] = {"peers": {}, "cells": {}, "reasons": {}}
    with ground() as place:
        arenas = _prepared(place, peers, found)
        found["about"] = about(place, rounds)
        limits = raw.Raw(place)
        for number in range(rounds):
            for workload in workloads:
                _say.print(f"round {number + 1} of {rounds}: {workload.title}")
                _note(found, workload.name, "postgres", limits.measure, workload.name, size)
                # Each begins once: who comes first finds a machine that has rested.
                turn = number % max(len(arenas), 1)
                for arena in arenas[turn:] + arenas[:turn]:
                    _one(found, workload, arena, size)
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


def _one(found: dict[str, Any], workload: Workload, arena: Arena, size: Size) -> None:
    peer = arena.peer
    reason = peer.cannot.get(workload.name)
    if workload.name == "growth" and peer.kind != "rota":
        reason = "measured of Rota alone"
    if reason:
        found["reasons"].setdefault(workload.name, {})[peer.name] = reason
        return
    _note(found, workload.name, peer.name, workload.run, arena, size)


def _note(found: dict[str, Any], workload: str, name: str, run: Any, *arguments: Any) -> None:
    began = time.monotonic()
    try:
        figures = run(*arguments)
    except (Trouble, OSError, subprocess.SubprocessError) as error:
        found["reasons"].setdefault(workload, {})[name] = str(error)
        _say.print(f"  [yellow]{name}: {error}")
        return
    if figures is None:
        return
    found["cells"].setdefault(workload, {}).setdefault(name, []).append(figures)
    shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
    _say.print(f"  {name} ({time.monotonic() - began:.0f} s): {shown}", style="dim")


def about(place: Ground, rounds: int) -> dict[str, Any]:
    names = ("server_version", "shared_buffers", "fsync", "synchronous_commit", "max_wal_size",
             "autovacuum_naptime", "wal_level")  # fmt: skip
    model = next(
        (line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
         if line.startswith("model name")), platform.processor(),
    )  # fmt: skip
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    return {
        "date": time.strftime("%Y-%m-%d"), "rounds": rounds, "processor": model,
        "cores": len(os.sched_getaffinity(0)), "memory_gb": round(memory),
        "system": f"{platform.system()} {platform.release()}", "python": platform.python_version(),
        "load": Path("/proc/loadavg").read_text().split()[0],
        "settings": {name: place.sql(f"show {name}") for name in names},
    }  # fmt: skip


def _stored() -> dict[str, Any]:
    if RESULTS.exists():
        kept: dict[str, Any] = json.loads(RESULTS.read_text())
        return kept
    return {"peers": {}, "cells": {}, "reasons": {}, "about": {}}


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    old = deepcopy(old)
    for part in ("cells", "reasons"):
        for workload, cells in new[part].items():
            old[part].setdefault(workload, {}).update(cells)
    for workload, cells in new["cells"].items():
        for name in cells:
            if name not in new["reasons"].get(workload, {}):
                old["reasons"].get(workload, {}).pop(name, None)
    old["peers"].update(new["peers"])
    old["about"] = new["about"]
    return old


if __name__ == "__main__":
    main()
