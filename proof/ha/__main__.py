"""Run the faults with synchronous and asynchronous replication, and print the tables: `make ha`."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from proof.ha.cluster import TIMES, missing
from proof.ha.figures import Figures
from proof.ha.trial import FAULTS, run

_HEAD = "| fault | leader after | no submit for | no start for | lost | run again |"


def show(figures: Figures, *, synchronous: bool) -> str:
    """Return a trial's figures as a table, for the documentation."""
    mode = "synchronous" if synchronous else "asynchronous"
    rows = [
        f"| {cost.kind} | {cost.led_after:.1f} s | {cost.silent:.1f} s | {cost.idle:.1f} s "
        f"| {cost.lost} | {cost.run_again} |"
        for cost in figures.costs
    ]
    lost = (
        f"lost: {figures.lost} of {figures.accepted} accepted jobs; run again after their end: "
        f"{figures.run_again}; at_most_once jobs begun twice: {figures.at_most_once_twice}; "
        f"doubled effects of exactly_once jobs: {figures.effects_doubled}"
    )
    available = (
        f"available: {figures.available} of {figures.seconds} seconds "
        f"({figures.available / figures.seconds:.2%}) with {len(figures.costs)} faults; "
        f"punctual: {figures.punctual} of {figures.due} occurrences "
        f"({figures.punctual / figures.due:.2%})"
    )
    return "\n".join(
        [f"{mode} replication:", "", _HEAD, "| --- " * 6 + "|", *rows, "", lost, available]
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.ha", description=__doc__)
    parser.add_argument("--mode", choices=["sync", "async", "both"], default="both")
    parser.add_argument("--front", choices=["haproxy", "pgbouncer", "hosts"], default="haproxy")
    parser.add_argument("--faults", nargs="*", choices=list(FAULTS), default=list(FAULTS))
    parser.add_argument("--rate", type=float, default=60.0, help="jobs a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="of work between two faults")
    parser.add_argument("--keep", action="store_true", help="leave the history where it is")
    options = parser.parse_args()
    if reason := missing():
        sys.exit(f"error: {reason}")
    # Asked to end, it leaves no server and no namespace behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    print(f"Patroni with {TIMES}, front: {options.front}", flush=True)
    failed = False
    for mode in ("sync", "async") if options.mode == "both" else (options.mode,):
        folder = Path(tempfile.mkdtemp(prefix="rota-ha-"))
        folder.chmod(0o711)  # the servers run as another user, who must be able to pass
        figures, broken = asyncio.run(
            run(folder, options.faults, synchronous=mode == "sync", front=options.front,
                rate=options.rate, seconds=options.seconds)
        )  # fmt: skip
        print(show(figures, synchronous=mode == "sync"), flush=True)
        for sentence in broken[:10] if mode == "sync" else []:
            print("BROKEN:", sentence)
        # Asynchronous replication promises nothing across a failover: its losses are the figure.
        failed = failed or (mode == "sync" and bool(broken))
        if options.keep or failed:
            print("history:", folder)
        else:
            shutil.rmtree(folder)
    sys.exit(failed)


if __name__ == "__main__":
    main()
