"""What an import costs, each in processes of their own: `python -m bench.imports`.

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
begun = time.perf_counter()
{}
print(time.perf_counter() - begun, len(sys.modules))
"""


def measure(statement: str) -> tuple[float, int]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(statement)],
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, modules = done.stdout.split()
    return float(seconds), int(modules)


def main() -> None:
    print(f"{'statement':<28}{'ms':>8}{'modules':>10}   (median of {ROUNDS})")
    for statement in STATEMENTS:
        measure(statement)  # compiles, and warms the file system's cache
        found = [measure(statement) for _ in range(ROUNDS)]
        seconds = statistics.median(each for each, _ in found)
        print(f"{statement:<28}{seconds * 1000:>8.1f}{found[0][1]:>10}")


if __name__ == "__main__":
    main()
