"""Judges a run of `proof.workload` with the checker: for the sweep and the failover."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

from proof import workload
from proof.checker import check
from proof.history import Meta, Recorder, SchedulePromise, dump_database, write_meta
from proof.operators import Operator
from rota import App

# These runs measure by themselves how soon work goes on; a busy machine is late in calm moments as well.
_NEVER = 1e9


def make_operator(app: App, folder: Path) -> Operator:
    """Creates the schedules of a run and pauses them at its end. The checker needs to know when."""
    note = Recorder(folder, "operations").write
    return Operator(app, Random(0), time.monotonic, note, pace=1.0, tasks=())


async def judge(
    url: str, schema: str, folder: Path, schedules: Sequence[SchedulePromise], *,
    started: float, healed: float, lease: float, max_crashes: int, note: str,
) -> list[str]:  # fmt: skip
    """Write down how the database looks, and return every promise that was broken, in sentences."""
    asked = time.monotonic()
    now = await dump_database(url, schema, folder)
    meta = Meta(
        "sweep", workload.promises(), list(schedules), started, healed, asked, now - asked, lease,
        max_crashes, note=note, calm_after=_NEVER,
    )  # fmt: skip
    write_meta(folder, meta)
    return [f"{found.rule}: {found.subject} {found.sentence}" for found in check(folder).violations]
