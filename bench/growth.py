"""What grows with what is stored: `make bench-growth`, `python -m bench.growth`.

Fills one embedded PostgreSQL by SQL in bulk, measures, fills on to ten times as much, measures again:

- every statement that a node runs, per call: ticks of firer, releaser, reaper, janitor, sweep,
  heartbeats and upkeep, claims and finishes, and what `/metrics` reads;
- every list and every look-up of the REST API, every page of the dashboard (`bench.pages`), and the
  commands that list.

Judged are pages: shared buffers hit and read, and temporary files, as `pg_stat_statements` counts them.
They say what was read whoever else is on the machine, and with a cache of any size. A row may need at
most 1.2 times the pages with ten times as much stored, or a few more (an index that is one level deeper
costs each look-up a page); what may grow is listed in `bench/growth_bounds.py` with the reason and the
bound. Milliseconds are shown beside them, and not judged.

    python -m bench.growth --jobs 1000000 --schedules 10000          # and ten times that
    python -m bench.growth --jobs 10000000 --schedules 1000000       # needs about 150 GB
    python -m bench.growth --quick                                   # a look at small sizes
    python -m bench.growth --publish                                 # the table into docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import msgspec

from bench import sections
from bench.growth_bounds import Bound, bound_of
from bench.growth_filling import SURROUNDINGS, NoRoom, Stored, check_room, fill
from bench.growth_probes import Costs, Probe, look_at_all
from bench.growth_reading import Cost, Reading
from bench.page_filling import fill as fill_surroundings
from bench.page_filling import names
from bench.pages import Stage
from bench.support import database
from rota import App
from rota.server.serving import Server

MOST_RATIO = 1.2
FEW_PAGES = 12.0  # that a look may need more: a level of each index that it uses
KINDS = ("statement", "route", "page", "command")
_TITLES = {
    "statement": "Statements of a node, per call", "route": "Lists and look-ups of the REST API",
    "page": "Pages of the dashboard", "command": "Commands",
}  # fmt: skip


class Row(NamedTuple):
    """Something at two sizes."""

    probe: Probe
    small: Cost
    large: Cost

    @property
    def pages(self) -> tuple[float, float]:
        """Of a call of a statement, or of a row of it where there are many; else of a look."""
        if self.probe.kind != "statement":
            return self.small.pages, self.large.pages
        each = (self.small.per(self.small.calls)[0], self.large.per(self.large.calls)[0])
        if min(self.small.rows, self.large.rows) > max(self.small.calls, self.large.calls):
            by_row = (self.small.per(self.small.rows)[0], self.large.per(self.large.rows)[0])
            return min(each, by_row, key=lambda pair: pair[1] / max(pair[0], 0.1))
        return each

    @property
    def milliseconds(self) -> tuple[float, float]:
        if self.probe.kind == "statement":
            return self.small.per(self.small.calls)[1], self.large.per(self.large.calls)[1]
        return self.small.seconds * 1000, self.large.seconds * 1000

    @property
    def ratio(self) -> float:
        small, large = self.pages
        return max(large, 0.1) / max(small, 0.1)

    @property
    def bound(self) -> Bound | None:
        return bound_of(self.probe)

    @property
    def flat(self) -> bool:
        small, large = self.pages
        return self.ratio <= MOST_RATIO or large - small <= FEW_PAGES

    @property
    def allowed(self) -> bool:
        """Whether it is flat, or grows no further than it may."""
        if self.flat:
            return True
        bound = self.bound
        if bound is None:
            return False
        return (bound.pages is None or self.pages[1] <= bound.pages) and (
            bound.ratio is None or self.ratio <= bound.ratio
        )


def rows_of(small: Costs, large: Costs) -> list[Row]:
    """Return what was measured at both sizes."""
    return [Row(probe, small[probe], large[probe]) for probe in small if probe in large]


# -- measuring


async def measure(url: str, sizes: list[Stored], kinds: set[str], around: int) -> list[Costs]:
    app = App(
        database_url=url,
        schema="growth",
        port=0,
        retention_days=30,
        dead_letter_days=90,
        ledger_days=30,
    )
    c = await asyncpg.connect(url, timeout=60, command_timeout=3600)
    try:
        await c.execute("create extension if not exists pg_stat_statements")
        await app.migrate()
        await fill_surroundings(app, url, "growth", around)
        server = Server(app)
        await server.start()
        stage = Stage(app, server, await names(app, url, "growth"))
        await stage.connect()
        found, before = [], Stored(0, 0, 0, 0, 0)
        for size in sizes:
            print(f"storing {size}", file=sys.stderr, flush=True)
            await fill(c, "growth", before, size)
            before = size
            print("measuring", file=sys.stderr, flush=True)
            found.append(await look_at_all(app, stage, Reading(c), kinds=kinds))
        await stage.close()
        return found
    finally:
        await c.close()


# -- reporting


def table(rows: list[Row], kind: str) -> list[str]:
    lines = [
        "| | pages | pages, ten times as much | ratio | ms | ms, ten times as much | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in sorted(
        (row for row in rows if row.probe.kind == kind), key=lambda row: row.probe.name
    ):
        (small, large), (soon, late) = row.pages, row.milliseconds
        name = row.probe.name.replace("|", "\\|")
        lines.append(
            f"| `{name}` | {_short(small)} | {_short(large)} | {row.ratio:.2f} | {_short(soon)} "
            f"| {_short(late)} | {_remark(row)} |"
        )
    return lines


def _remark(row: Row) -> str:
    if row.flat:
        return "" if row.ratio <= MOST_RATIO else "a level of an index more"
    if row.bound is not None and row.allowed:
        return row.bound.why
    return "**grows**"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def body(rows: list[Row], sizes: list[Stored]) -> str:
    lines = [
        f"Written by `python -m bench.growth --publish` on {datetime.now(UTC):%Y-%m-%d}.",
        "Two sizes, in one database:", "", f"- {sizes[0]};", f"- {sizes[1]}.", "",
        "Pages are what PostgreSQL read of its cache, its files and temporary files, as",
        "`pg_stat_statements` counts them, for a call or a look. They must be at most",
        f"{MOST_RATIO} times as many, or {FEW_PAGES:g} more: an index that is ten times as large is",
        "sometimes one level deeper. What may grow has its reason and its bound beside it.",
        "Milliseconds are shown for their size only.", "",
    ]  # fmt: skip
    for kind in KINDS:
        if any(row.probe.kind == kind for row in rows):
            lines += [f"### {_TITLES[kind]}", "", *table(rows, kind), ""]
    return "\n".join(lines)


def missed(rows: list[Row]) -> list[str]:
    return [
        f"{row.probe.kind} {row.probe.name}: {_short(row.pages[0])} pages, then {_short(row.pages[1])} "
        f"({row.ratio:.2f} times)"
        for row in rows if not row.allowed
    ]  # fmt: skip


def arguments(given: list[str] | None = None) -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--jobs", type=int, default=1_000_000, help="future, and past, at the small size"
    )
    parser.add_argument("--schedules", type=int, default=10_000, help="at the small size")
    parser.add_argument(
        "--times", type=int, default=10, help="how many times larger the large size is"
    )
    parser.add_argument("--only", action="append", choices=KINDS, help="only this kind")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="20,000 jobs and 1,000 schedules, beside ten times that",
    )
    parser.add_argument(
        "--quick-ground", action="store_true", help="a fifth of what stands around them"
    )
    parser.add_argument(
        "--publish", action="store_true", help="write the table into docs/benchmarks.md"
    )
    parser.add_argument("--save", type=Path, help="write the figures into this file, as JSON")
    parser.add_argument("--read", type=Path, help="report what was saved, without measuring")
    return parser.parse_args(given)


def main(argv: list[str] | None = None) -> int:
    given = arguments(argv)
    jobs, schedules = (20_000, 1_000) if given.quick else (given.jobs, given.schedules)
    if given.read:
        sizes, rows = msgspec.json.decode(
            given.read.read_bytes(), type=tuple[list[Stored], list[Row]]
        )
        return report(rows, sizes, publish=given.publish)
    sizes = [Stored.of(jobs, schedules), Stored.of(jobs * given.times, schedules * given.times)]
    try:
        check_room(sizes[1], Path(tempfile.gettempdir()))
    except NoRoom as error:
        print(error, file=sys.stderr)
        return 2
    around = SURROUNDINGS.jobs // (5 if given.quick or given.quick_ground else 1)
    with database() as url:
        small, large = asyncio.run(measure(url, sizes, set(given.only or KINDS), around))
    rows = rows_of(small, large)
    if given.save:
        given.save.write_bytes(msgspec.json.encode([sizes, rows]))
    return report(rows, sizes, publish=given.publish)


def report(rows: list[Row], sizes: list[Stored], *, publish: bool) -> int:
    """Print the table, and what missed its mark; return the exit code."""
    text = body(rows, sizes)
    print(text)
    if publish:
        sections.put(sections.GROWTH, text)
    left = missed(rows)
    print(
        "\n".join(
            ["", *(f"missed: {one}" for one in left)]
            if left
            else ["", "nothing grows that must not"]
        )
    )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
