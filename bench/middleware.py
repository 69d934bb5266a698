"""What middlewares cost a job, and what their absence costs: `python -m bench.middleware [REVISION]`.

Prints microseconds of CPU time of an attempt in the loop runner: without middlewares, with one and with
three, for a handler that returns nothing and for one that returns a number. With a revision from before
middlewares existed, the same attempt there, and the ratio of the two: what isn't used must cost nothing.
Rounds of both are interleaved, each in a process of its own; the best counts, since whatever else the
machine does only adds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROUNDS = 7

# In a process of its own, on whichever tree is in its path.
_PROGRAM = """
import asyncio, json, sys, time, timeit
from uuid import uuid4
from rota import App
from rota.core.payloads import Limits
from rota.runtime.work import Work
from rota.worker.runners.base import NodeParts
from rota.worker.runners.loop import LoopRunner

app = App()

@app.task
async def plain(order_id: int, name: str, tags: list[str]) -> None: ...

@app.task
async def number(order_id: int, name: str, tags: list[str]) -> int:
    return order_id

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
    found = {}
    for count in json.loads(sys.argv[1]):
        for task in (plain, number):
            if count:
                app.middlewares = [count_in] * count
                app.wrap(task)
            work = Work(uuid4(), task.name, payload, 1, 1, 5)
            once = lambda: drive(runner._attempt(work, task))
            took = timeit.repeat(once, number=500, repeat=60, timer=time.process_time)
            found[f"{task.name} {count}"] = min(took) / 500 * 1e6
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
    best = {case: min(own[case] for own, _ in rounds) for case in rounds[0][0]}
    for task, returns in (("plain", "nothing"), ("number", "a number")):
        none, one, three = (best[f"{task} {count}"] for count in (0, 1, 3))
        print(f"a handler that returns {returns}")
        print(f"  no middleware     {none:6.2f} µs")
        print(f"  one middleware    {one:6.2f} µs  (+{one - none:.2f})")
        print(f"  three middlewares {three:6.2f} µs  (+{three - none:.2f}, goal under 3)")
        if revision is not None:
            old = min(other[f"{task} 0"] for _, other in rounds)
            print(
                f"  at {revision:<14} {old:6.2f} µs  (speed without: {old / none:.2f}, goal 0.99)"
            )


if __name__ == "__main__":
    main()
