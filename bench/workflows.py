"""Workflows and durable functions beside their peers, and beside plain jobs: what docs/benchmarks.md
says of them. Every ratio is of one round, in which both were measured; rounds take turns.

python -m bench.workflows [--quick] [--only chain_noop,functions] [--rounds 3] [--no-docs] [--render]

What was measured is kept in bench/.peers/workflows.json, each case with its commit, date and the load
when each of its rounds began; --only replaces only what it measures, and installs only whom that needs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from rich.console import Console

from bench import flow_cases as cases
from bench import flow_page
from bench.compare import about
from bench.ground import Arena, Ground, Trouble, ground
from bench.peers.catalogue import BY_NAME as PLAIN
from bench.peers.catalogue import FLOW_PEERS
from bench.peers.install import ROOT, Missing, ensure
from bench.trees import worktree
from rota.config import Settings

RESULTS = ROOT / "workflows.json"
BEFORE = "f66613c"  # the last commit without workflows
_CHAINS = "rota temporal prefect"
# Whom a case measures, of those in the catalogue; `plain` and `before` run jobs without workflows.
WHO = {
    "chain_noop": _CHAINS, "chain_10ms": _CHAINS, "functions": "rota dbos absurd", "one_step": "rota",
    "fan": "rota celery plain", "join": "rota plain", "map": "rota plain", "before": "plain before",
    "sleeping": "rota", "killed": "rota",
}  # fmt: skip
_say = Console(stderr=True, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny numbers, one round, no page")
    parser.add_argument("--only", help="cases, with commas: " + ", ".join(flow_page.CASES))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--no-docs", action="store_true")
    parser.add_argument("--render", action="store_true", help="only write the page again")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not chosen.render:
        wanted = chosen.only.split(",") if chosen.only else list(flow_page.CASES)
        if unknown := set(wanted) - set(flow_page.CASES):
            sys.exit(f"no case {sorted(unknown)}; there are {list(flow_page.CASES)}")
        rounds = chosen.rounds or (1 if chosen.quick else 3)
        keep = _unkept if chosen.quick else partial(_keep, found)
        new = measure(wanted, cases.FlowSize(chosen.quick), rounds, keep)
        found = new if chosen.quick else _merged(found, new)
    Console(width=150).print(flow_page.table(found))
    if not (chosen.quick or chosen.no_docs):
        flow_page.write(found)


def _keep(before: dict[str, Any], found: dict[str, Any]) -> None:
    """After each case, so that whoever stops it loses no more than the last."""
    RESULTS.write_text(json.dumps(_merged(before, found), indent=1))


def _unkept(found: dict[str, Any]) -> None:
    pass


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    new = dict(new)
    for part in ("cells", "peers", "reasons", "taken"):
        kept = old.get(part, {})
        if part == "reasons":
            kept = {case: said for case, said in kept.items() if case not in new["cells"]}
        new[part] = {**kept, **new[part]}
    return new


def measure(
    wanted: list[str], size: cases.FlowSize, rounds: int, keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """{"cells": {case: {who: [figures of a round, …]}}, "peers": …, "reasons": …, "taken": …,
    "about": …}"""
    found: dict[str, Any] = {"cells": {}, "peers": {}, "reasons": {}, "taken": {}}
    with ground() as place, _tree_before(wanted) as before:
        arenas = _arenas(place, before, found, wanted)
        found["about"] = about(place, rounds)
        for number in range(rounds):
            for case in wanted:
                load = round(os.getloadavg()[0], 1)
                title = flow_page.CASES[case].title
                _say.print(f"round {number + 1} of {rounds}, load {load}: {title}")
                taken = found["taken"].setdefault(case, {**_now(), "loads": []})
                taken["loads"].append(load)
                runs = list(_runs(case, arenas, size).items())
                for who, run in runs[::-1] if number % 2 else runs:
                    _note(found, case, who, run)
                keep(found)
    return found


def _now() -> dict[str, str]:
    """The commit that is measured, and the day."""
    home = Path(__file__).parent
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        capture_output=True, text=True, cwd=home, check=False,
    )  # fmt: skip
    return {"commit": said.stdout.strip() or "no commit", "date": time.strftime("%Y-%m-%d")}


def _arenas(
    place: Ground, before: Path | None, found: dict[str, Any], wanted: list[str]
) -> dict[str, Arena]:
    asked = {"rota", *" ".join(WHO[case] for case in wanted).split()}
    arenas = {"plain": Arena(PLAIN["rota"], place, label="plain")}
    if before is not None:
        path = {"PYTHONPATH": str(before / "src")}
        arenas["before"] = Arena(PLAIN["rota"], place, label="before", extra=path)
    arenas |= {peer.name: Arena(peer, place, label=f"{peer.name}-flows") for peer in FLOW_PEERS}
    for name, arena in list(arenas.items()):
        if name not in asked:
            del arenas[name]
            continue
        try:
            ensure(arena.peer)
            arena.prepare()
            found["peers"][name] = {"version": arena.version}
        except (Missing, Trouble) as error:
            del arenas[name]
            found["peers"][name] = {"missing": str(error)}
            _say.print(f"[yellow]{arena.peer.title} is left out: {error}")
    return arenas


_Run = Callable[[], dict[str, float]]


def _runs(case: str, arenas: dict[str, Arena], size: cases.FlowSize) -> dict[str, _Run]:
    """What is measured in one round of a case, by who it is."""
    rota, plain = arenas["rota"], arenas.get("plain")

    def each(run: Callable[..., dict[str, float]], *more: Any) -> dict[str, _Run]:
        there = [name for name in WHO[case].split() if name in arenas]
        return {name: partial(run, arenas[name], size, *more) for name in there}

    if case in {"chain_noop", "chain_10ms"}:
        hold = 0.0 if case == "chain_noop" else 0.01
        graph = partial(cases.chain, rota, size, hold, "graph")
        return {**each(cases.chain, hold), "graph": graph}
    if case == "functions":
        return each(cases.functions)
    if case in {"fan", "map"}:
        own = cases.fan if case == "fan" else cases.members
        return {**each(own), "plain": partial(cases.plain, plain, size)}
    if case == "before":
        return each(cases.plain)
    alone: dict[str, _Run] = {
        "one_step": partial(cases.one_step, rota, size),
        "join": partial(cases.join, rota, plain, size),
        "sleeping": partial(cases.sleeping, rota, size),
        "killed": partial(cases.killed, rota, size, Settings().lease_seconds),
    }
    return {"rota": alone[case]}


def _note(found: dict[str, Any], case: str, who: str, run: Callable[[], dict[str, float]]) -> None:
    try:
        figures = run()
    except (Trouble, OSError, subprocess.SubprocessError) as error:
        found["reasons"].setdefault(case, {})[who] = str(error)
        _say.print(f"  [yellow]{who}: {error}")
        return
    found["cells"].setdefault(case, {}).setdefault(who, []).append(figures)
    shown = ", ".join(f"{key} {value:,.4g}" for key, value in figures.items())
    _say.print(f"  {who}: {shown}", style="dim")


@contextlib.contextmanager
def _tree_before(wanted: list[str]) -> Iterator[Path | None]:
    """A worktree of the last commit without workflows, if there is one in this clone's history."""
    if "before" not in wanted:
        yield None
        return
    with worktree(BEFORE) as path:
        yield path


if __name__ == "__main__":
    main()
