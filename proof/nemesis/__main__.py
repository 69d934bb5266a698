"""``python -m proof.nemesis``: see the package's own page."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from proof.nemesis.figures import describe
from proof.nemesis.plan import RECIPES
from proof.nemesis.run import Options, run


def main() -> int:
    options = _options()
    print(f"history: {options.folder}", flush=True)
    result = asyncio.run(run(options))
    text, report = describe(result)
    print(text)
    print(f"judge it again: python -m proof.checker {options.folder}")
    return 0 if report.ok and not result.left and not result.operator_stuck else 1


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m proof.nemesis", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long things are broken")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=400, help="jobs offered a second")
    parser.add_argument("--faults", default="", help=f"only these: {','.join(RECIPES)}")
    parser.add_argument("--skewed", action="store_true",
                        help="one node an hour ahead and one an hour behind all the time")  # fmt: skip
    parser.add_argument("--calm", type=float, default=15, help="and how long they are fine then")
    parser.add_argument(
        "--max-lag", type=float, default=5, help="seconds a start may be late in calm"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where the history goes")
    given = parser.parse_args()
    kinds = frozenset(given.faults.split(",")) if given.faults else frozenset(RECIPES)
    if unknown := sorted(kinds - set(RECIPES)):
        parser.error(f"no fault is called {unknown[0]!r}; there are: {', '.join(RECIPES)}")
    folder = (given.folder or Path(tempfile.mkdtemp(prefix="rota-chaos-"))).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)  # root's server is another user, who must be able to pass
    return Options(given.seconds, given.seed, given.rate, kinds, folder, given.calm, given.max_lag,
                   given.skewed)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
