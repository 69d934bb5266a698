"""Run simulations from the command line. See `python -m proof.simulation --help`."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from pathlib import Path

from proof.simulation.moves import DEFAULT, MOVES, in_order, parse_moves
from proof.simulation.mutant import EXAMPLES, Mutant
from proof.simulation.run import Result
from proof.simulation.swarm import Totals, draw_seeds, fork_seed, parse_seeds, run_swarm
from proof.simulation.template import SimServer


def main() -> int:
    arguments = _parser().parse_args()
    level = logging.INFO if arguments.log else logging.CRITICAL
    logging.basicConfig(level=level, format="%(name)s: %(message)s")
    mutant = EXAMPLES[arguments.mutant] if arguments.mutant else None
    if arguments.seed is not None:
        return _run_one(arguments, mutant)
    return _run_many(arguments, mutant)


def _run_one(arguments: argparse.Namespace, mutant: Mutant | None) -> int:
    with SimServer() as server:
        folder = arguments.history
        if folder is not None:
            folder.mkdir(parents=True)
        result = fork_seed(
            server, arguments.seed, mutant=mutant, trace=arguments.trace, folder=folder,
            moves=arguments.moves,
        )  # fmt: skip
    for line in result.trace:
        print(line)
    if result.report:
        print(result.report)
    print(_summary(result))
    for violation in result.violations:
        print(f"  {violation}")
    return 1 if result.violations else 0


def _summary(result: Result) -> str:
    faults = ", ".join(f"{count} {kind}" for kind, count in result.faults.items())
    return (
        f"seed {result.seed}: {result.virtual_seconds:.1f} virtual seconds in "
        f"{result.real_seconds:.1f}, {result.statements:,} statements ({result.parkings} waited for a "
        f"lock, {result.deadlocks} deadlocks), {result.jobs} jobs, {result.starts} starts; "
        f"faults: {faults or 'none'}\ndigest {result.digest}\n{len(result.violations)} violations"
    )


def _run_many(arguments: argparse.Namespace, mutant: Mutant | None) -> int:
    totals = Totals()
    seeds = draw_seeds() if arguments.seeds == "fresh" else arguments.seeds
    print(f"seeds {seeds}", flush=True)
    named = f" --mutant {mutant.name}" if mutant else ""
    if arguments.moves != DEFAULT:
        named += f" --moves {','.join(in_order(arguments.moves)) or 'none'}"

    def done(result: Result) -> bool:
        totals.add(result)
        if result.violations:
            print(f"seed {result.seed}: {len(result.violations)} violations, the first: "
                  f"{result.violations[0]}\n  python -m proof.simulation --seed {result.seed}{named}",
                  flush=True)  # fmt: skip
        return not (result.violations and arguments.first)

    with contextlib.suppress(KeyboardInterrupt):
        run_swarm(
            parse_seeds(seeds), arguments.jobs, arguments.minutes, mutant, done,
            arguments.moves,
        )  # fmt: skip
    print(totals.text())
    return 1 if totals.failing else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m proof.simulation", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=int, help="one seed, and what it did")
    which.add_argument(
        "--seeds", default="fresh",
        help="a swarm: 1..200, 1.. with --minutes, or fresh: from a random first one on",
    )  # fmt: skip
    parser.add_argument("--minutes", type=float, help="start no further seed after so long")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--first", action="store_true", help="stop at the first violation")
    parser.add_argument("--trace", action="store_true", help="print every call (with --seed)")
    parser.add_argument("--history", type=Path, help="keep the history here (with --seed)")
    parser.add_argument("--log", action="store_true", help="what the nodes themselves log")
    parser.add_argument(
        "--moves", type=parse_moves, default=DEFAULT,
        help=f"what seeds may do: all, none (as in old histories), or some of {', '.join(MOVES)}",
    )  # fmt: skip
    parser.add_argument("--mutant", choices=sorted(EXAMPLES), help="with a bug put in on purpose")
    return parser


if __name__ == "__main__":
    sys.exit(main())
