"""Comparing: two jobs, or two attempts, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from difflib import SequenceMatcher
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar.params import QueryParameter

from rota.model import Attempt, Job
from rota.operations.rota import Rota
from rota.server.dashboard import pages
from rota.server.dashboard.words import NOTHING, pretty, span, stamp
from rota.server.policy import VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import DashboardStore
from rota.store.search import JobFilter

_LINES = 300  # of a text that is compared
_LOG = 200
_CANDIDATES = 12

OptionalId = Annotated[UUID | None, QueryParameter()]
AttemptA = Annotated[int | None, QueryParameter(name="attempt_a", ge=1, le=100_000)]
AttemptB = Annotated[int | None, QueryParameter(name="attempt_b", ge=1, le=100_000)]


class Side(msgspec.Struct, frozen=True):
    """One of the two: a job, and the attempt of it that is compared."""

    job: Job
    attempt: int
    outcome: str
    started_at: datetime | None
    ended_at: datetime | None
    node: str
    release: str
    error: str
    log: Sequence[str]

    @property
    def took(self) -> float | None:
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


class Fact(msgspec.Struct, frozen=True):
    name: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        return self.left != self.right


class Line(msgspec.Struct, frozen=True):
    """A line of both texts. `kind`: same, changed, left (only there) or right."""

    kind: str
    left: str = ""
    right: str = ""


@pages.page("/jobs/compare", policy=VIEWER)
async def compare(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, a: Annotated[UUID, QueryParameter()],
    b: OptionalId = None, attempt_a: AttemptA = None, attempt_b: AttemptB = None,
) -> pages.Html:  # fmt: skip
    """Show both; with one only, what it can be compared with."""
    first = await tenant.jobs.get(a)
    if b is None:
        found = (await tenant.jobs.look(JobFilter(task=first.task), limit=_CANDIDATES + 1)).jobs
        others = [job for job in found if job.id != first.id][:_CANDIDATES]
        return await pages.show(request, "compare_with.html", job=first, others=others)
    second = await tenant.jobs.get(b)
    left = await _side(tenant, stats, first, attempt_a)
    right = await _side(tenant, stats, second, attempt_b)
    return await pages.show(
        request, "compare.html", left=left, right=right, facts=_facts(left, right),
        payload=diff(_lines(first.payload), _lines(second.payload)),
        result=diff(_lines(first.result), _lines(second.result)),
        error=diff(left.error.splitlines(), right.error.splitlines()),
        log=diff(left.log, right.log),
    )  # fmt: skip


async def _side(tenant: Rota, stats: DashboardStore, job: Job, number: int | None) -> Side:
    number = number or job.attempt
    kept = next((one for one in job.attempts if one.number == number), None)
    if kept is None or (number == job.attempt and job.finished_at is not None):
        kept = Attempt(
            number=number, outcome=job.state, started_at=job.started_at, ended_at=job.finished_at,
            node=str(job.node or ""), token=job.token or 0, error=job.error,
        )  # fmt: skip
    name, release = await stats.node_release(kept.node)
    error = ""
    if kept.error is not None:
        error = f"{kept.error.type}: {kept.error.message}\n{kept.error.traceback or ''}"
    lines = await tenant.jobs.log_lines(job.id, attempt=number, read={}, limit=_LOG)
    return Side(
        job, number, kept.outcome, kept.started_at, kept.ended_at, name or kept.node or NOTHING,
        release or NOTHING, error, [f"{line.stream} {line.text}" for line in lines],
    )  # fmt: skip


def _facts(left: Side, right: Side) -> list[Fact]:
    return [Fact(name, *(text(side) for side in (left, right))) for name, text in _SHOWN]


def _late(side: Side) -> str:
    if side.started_at is None or side.attempt != 1:
        return NOTHING
    return span(max((side.started_at - side.job.due_at).total_seconds(), 0.0))


_SHOWN: tuple[tuple[str, Any], ...] = (
    ("State", lambda side: side.job.state),
    ("Attempt", lambda side: f"{side.attempt} of {side.job.max_attempts}: {side.outcome}"),
    ("Task", lambda side: side.job.task),
    ("Queue", lambda side: side.job.queue),
    ("Due", lambda side: stamp(side.job.due_at)),
    ("Started", lambda side: stamp(side.started_at) if side.started_at else NOTHING),
    ("Start lag", _late),
    ("Took", lambda side: span(side.took)),
    ("Node", lambda side: side.node),
    ("Release", lambda side: side.release),
    ("Priority", lambda side: str(side.job.priority)),
    ("Guarantee", lambda side: side.job.guarantee.replace("_", " ")),
    ("Timeout", lambda side: span(side.job.timeout, "none")),
    ("Key", lambda side: side.job.key or NOTHING),
)


def _lines(value: Any) -> list[str]:
    return [] if value is None else pretty(value).splitlines()


def diff(left: Sequence[str], right: Sequence[str]) -> list[Line]:
    """Put two texts side by side, as far as their first lines go."""
    left, right = left[:_LINES], right[:_LINES]
    found: list[Line] = []
    for kind, a, b, c, d in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if kind == "equal":
            found += [Line("same", text, text) for text in left[a:b]]
            continue
        for n in range(max(b - a, d - c)):
            one = left[a + n] if a + n < b else None
            other = right[c + n] if c + n < d else None
            if one is not None and other is not None:
                found.append(Line("changed", one, other))
            else:
                found.append(
                    Line("left", one) if one is not None else Line("right", "", other or "")
                )
    return found


ROUTES = [compare]
