"""What an import costs, each in processes of their own: `python -m bench.imports`.

Prints the time by the clock, in the middle, and the CPU time, at its least: what else the machine does
adds to the former.

The goal is `import rota` under 150 ms. A bare `import asyncio` stands beside it, since most programs
that use Rota load it anyway.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

STATEMENTS = (
    "import asyncio",
    "import rota",
    "from rota import App",
    "import rota.client",
    "import rota.pytest_plugin",
    "import rota.testing",
    "import rota.cli",
)
ROUNDS = 9
_PROGRAM = """
import sys, time
begun, used = time.perf_counter(), time.process_time()
{}
print(time.perf_counter() - begun, time.process_time() - used, len(sys.modules))
"""


def measure(statement: str) -> tuple[float, float, int]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(statement)],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, used, modules = done.stdout.split()
    return float(seconds), float(used), int(modules)


def main() -> None:
    print(f"{'statement':<28}{'ms':>8}{'ms of CPU':>12}{'modules':>10}   ({ROUNDS} rounds)")
    for statement in STATEMENTS:
        measure(statement)  # compiles, and warms the file system's cache
        found = [measure(statement) for _ in range(ROUNDS)]
        seconds = statistics.median(each for each, _, _ in found)
        used = min(each for _, each, _ in found)
        print(f"{statement:<28}{seconds * 1000:>8.1f}{used * 1000:>12.1f}{found[0][2]:>10}")


if __name__ == "__main__":
    main()
