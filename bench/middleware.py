"""What middlewares cost a job, and what their absence costs: `python -m bench.middleware [REVISION]`.

Prints microseconds of an attempt in the loop runner: without middlewares, with one and with three. With
a revision from before middlewares existed, the same attempt there, and the ratio of the two: what isn't
used must cost nothing. Rounds of both are interleaved, each in a process of its own; the best counts,
since whatever else the machine does only adds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROUNDS = 5

# In a process of its own, on whichever tree is in its path.
_PROGRAM = """
import asyncio, json, sys, timeit
from uuid import uuid4
from rota import App
from rota.core.arguments import Limits
from rota.runtime.work import Work
from rota.worker.runners.base import NodeParts
from rota.worker.runners.loop import LoopRunner

app = App()

@app.task
async def plain(order_id: int, name: str, tags: list[str]) -> None: ...

def count_in(context):
    assert context.job.attempt
    yield

def drive(coroutine):
    try:
        coroutine.send(None)
    except StopIteration:
        return

async def main():
    runner = LoopRunner(app.tasks, 1, NodeParts(app.settings, lambda work, outcome: None, None))
    payload = plain.arguments.encode((7, "Ada", []), {}, Limits(1_000_000, 64))
    work = Work(uuid4(), "plain", payload, 1, 1, 5)
    found = {}
    for count in json.loads(sys.argv[1]):
        if count:
            app.middlewares = [count_in] * count
            app.wrap(plain)
        once = lambda: drive(runner._attempt(work, plain))
        found[count] = min(timeit.repeat(once, number=500, repeat=60)) / 500 * 1e6
    print(json.dumps(found))

asyncio.run(main())
"""


def measure(tree: Path, counts: list[int]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(counts)], capture_output=True, text=True,
        env={"PYTHONPATH": str(tree / "src"), "PATH": "/usr/bin:/bin"}, cwd=tree, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    revision = sys.argv[1] if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory() as folder:
        before = Path(folder)
        if revision is not None:
            archive = subprocess.run(
                ["git", "archive", revision, "src"], cwd=ROOT, check=True, capture_output=True
            )
            subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        rounds = [
            (measure(ROOT, [0, 1, 3]), measure(before, [0]) if revision else {})
            for _ in range(ROUNDS)
        ]
    best = {count: min(own[count] for own, _ in rounds) for count in ("0", "1", "3")}
    print(f"no middleware     {best['0']:6.2f} µs")
    print(f"one middleware    {best['1']:6.2f} µs  (+{best['1'] - best['0']:.2f})")
    print(f"three middlewares {best['3']:6.2f} µs  (+{best['3'] - best['0']:.2f}, goal under 3)")
    if revision is not None:
        old = min(other["0"] for _, other in rounds)
        print(f"at {revision:<14} {old:6.2f} µs  (speed without: {old / best['0']:.2f}, goal 0.99)")


if __name__ == "__main__":
    main()
