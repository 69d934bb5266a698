"""What a job costs here and at other revisions: `python -m bench.against REVISION...`.

Prints microseconds of processor time a job, of the server and of the workers or the client, for no-
ops, 5 ms jobs, single submits and bulk submits; and PostgreSQL's own time a job in each statement,
which says where a difference is. Rounds are many and small, and the trees take turns in them: what
others do on the machine meanwhile makes all of them dearer. Figures are medians; `of here` is the
median of the rounds' ratios, of the processor time of server and workers together (below 1: that
revision was cheaper).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import asyncpg

from bench import workloads
from bench.ground import Arena, Trouble, ground
from bench.peers.catalogue import BY_NAME
from bench.peers.install import launch
from bench.sizes import Size, Stats

ROOT = Path(__file__).parent.parent
CASES: dict[str, Callable[[Arena, Size], Stats]] = {
    "noop": workloads.noop_async,
    "hold": workloads.hold_5ms,
    "single": workloads.submit_single,
    "bulk": workloads.submit_bulk,
}

_STATEMENTS = """
    select regexp_replace(left(query, 3000), '\\s+', ' ', 'g') as query,
           total_exec_time * 1000 as us
    from pg_stat_statements
    where toplevel and dbid = (select oid from pg_database where datname = current_database())
      and query not like '%pg_stat_statements%'
      and query not ilike 'create %' and query not ilike 'alter %'
    order by total_exec_time desc limit 12
"""
_COUNT = "create extension if not exists pg_stat_statements"
_MARKS = {
    "copy": "COPY", "skip locked": "claim", "with gone as": "finish", "from rota.submit_jobs": "submit",
    "delete from rota.batch": "close batches", "expires_at": "heartbeat",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("revisions", nargs="+")
    parser.add_argument("--only", default=",".join(CASES), help="cases, with commas")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="that a round is to take")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    size = Size(seconds=chosen.seconds)
    with ground() as place, contextlib.ExitStack() as stack:
        arenas = {"here": Arena(BY_NAME["rota"], place, label="here")}
        for number, revision in enumerate(chosen.revisions):
            tree = stack.enter_context(_tree(revision))
            arenas[revision] = _Elsewhere(
                BY_NAME["rota"], place, label=f"at-{number}", tree=tree,
                extra={"PYTHONPATH": str(tree / "src")},
            )  # fmt: skip
        for arena in arenas.values():
            arena.prepare()
            for database in (None, f"{arena.database}_template"):
                place.sql(_COUNT, "select 1", database=database)
        for case in chosen.only.split(","):
            _compare(case, arenas, size, chosen.rounds)


@dataclass
class _Elsewhere(Arena):
    """Rota as another revision has it, with its own adapter."""

    tree: Path = ROOT

    def _program(self, command: str, wish: dict[str, Any]) -> list[str]:
        program = self.tree / "bench" / "peers" / "rota" / "adapter.py"
        return [*launch(self.peer)[:1], str(program), command, json.dumps(wish)]


@contextlib.contextmanager
def _tree(revision: str) -> Iterator[Path]:
    """The sources of another revision; a folder is taken as it is."""
    if (Path(revision) / "src").is_dir():
        yield Path(revision)
        return
    with tempfile.TemporaryDirectory(prefix="rota-at-") as folder:
        Path(folder).chmod(0o755)
        archive = subprocess.run(
            ["git", "archive", revision, "src", "bench"], cwd=ROOT, check=True, capture_output=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder)


def _compare(case: str, arenas: dict[str, Arena], size: Size, rounds: int) -> None:
    seen: dict[str, list[Stats]] = {name: [] for name in arenas}
    spent: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in arenas}
    for number in range(rounds):
        names = list(arenas)
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            arena = arenas[name]
            with contextlib.suppress(Trouble):
                arena.ground.sql("select pg_stat_statements_reset()")
                seen[name].append(CASES[case](arena, size))
                for what, us in asyncio.run(_statements(arena)).items():
                    spent[name][what].append(us / seen[name][-1]["jobs"])
    print(f"\n{case}: medians of {rounds} rounds, µs a job")
    whole = {name: [_whole(stats) for stats in found] for name, found in seen.items()}
    for name, found in seen.items():
        parts = {
            key: statistics.median(stats[key] for stats in found)
            for key in ("store_cpu_us", "worker_cpu_us", "client_cpu_us", "rate")
            if found and key in found[0]
        }
        of_here = statistics.median(
            one / other for one, other in zip(whole[name], whole["here"], strict=False)
        )
        told = ", ".join(f"{key.removesuffix('_us')} {value:,.1f}" for key, value in parts.items())
        print(f"  {name:12} {told}; of here {of_here:.3f} ({len(found)} rounds)")
        statements = sorted(
            ((statistics.median(values), what) for what, values in spent[name].items()),
            reverse=True,
        )
        print("      " + ", ".join(f"{what} {us:.2f}" for us, what in statements[:6]))


def _whole(stats: Stats) -> float:
    return sum(stats.get(key, 0.0) for key in ("store_cpu_us", "worker_cpu_us", "client_cpu_us"))


async def _statements(arena: Arena) -> dict[str, float]:
    """PostgreSQL's own time in each kind of statement, in microseconds."""
    connection = await asyncpg.connect(arena.ground.url_of(arena.database))
    found: dict[str, float] = defaultdict(float)
    for row in await connection.fetch(_STATEMENTS):
        found[_name(row)] += row["us"]
    await connection.close()
    return found


def _name(row: Any) -> str:
    text = row["query"].lower()
    known = (name for mark, name in _MARKS.items() if mark in text)
    return next(known, re.sub(r"[^a-z_. ]", "", text)[:24])


if __name__ == "__main__":
    main()
