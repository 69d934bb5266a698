"""A part of docs/benchmarks.md that a program of its own measures: its arguments, what it keeps in
bench/.peers, and the gate that refuses a busy machine.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import sections
from bench.load import Busy, wait_until_idle
from bench.peers.install import ROOT

Found = dict[str, Any]
_say = Console(stderr=True, highlight=False)


class Gate:
    """Looks at the load before each measurement, and keeps the worst that it saw."""

    def __init__(self, force: bool) -> None:
        self._force = force
        self.worst = 0.0

    def wait(self) -> None:
        self.worst = max(self.worst, round(wait_until_idle(force=self._force), 2))


def main(
    name: str, doc: str | None, heading: str,
    measure: Callable[[bool, int, Gate], Found], body: Callable[[Found], str],
) -> None:  # fmt: skip
    """Measure a part and write it. `measure` is given: whether to be quick, the rounds and the gate."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="tiny numbers, one round, no page")
    parser.add_argument("--rounds", type=int)
    parser.add_argument(
        "--force", action="store_true", help="measure although others use the machine"
    )
    parser.add_argument("--no-docs", action="store_true")
    parser.add_argument("--render", action="store_true", help="only write the page again")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    results = ROOT / f"{name}.json"
    if chosen.render:
        found: Found = json.loads(results.read_text())
    else:
        gate = Gate(chosen.force or chosen.quick)
        try:
            found = measure(chosen.quick, chosen.rounds or (1 if chosen.quick else 3), gate)
        except Busy as error:
            sys.exit(str(error))
        found["load"] = gate.worst
    if chosen.quick:
        print(body(found))
        return
    _keep(results, found)
    if not chosen.no_docs:
        sections.put(heading, body(found))


def _keep(results: Path, found: Found) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(found, indent=1))


def say(text: str) -> None:
    _say.print(text, style="dim")


def measured(found: Found, command: str) -> str:
    """When, where and beside what it was measured."""
    about = found["about"]
    return (
        f"Written by `{command}` on {about['date']}, commit {about['commit']}, rounds: "
        f"{found['rounds']}; {about['cores']} cores of {about['processor']}, PostgreSQL "
        f"{about['settings']['server_version']}; others used at most {found['load']:.2f} processors."
    )
