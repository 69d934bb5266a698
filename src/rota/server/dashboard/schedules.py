"""The pages of schedules: their rules in words, their history and their next occurrences."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar.params import QueryParameter

from rota.core.time.plan import REASONS
from rota.core.time.recurrence import Occurrence
from rota.core.time.status import OccurrenceStatus, ScheduleStatus
from rota.errors import ConfigError
from rota.model import State
from rota.operations.ledger import to_occurrence
from rota.operations.preconditions import Precondition
from rota.operations.rota import Rota
from rota.server.api.pages import make_page, read_cursor
from rota.server.api.schedules import BackfillRequest, ScheduleName
from rota.server.dashboard import pages
from rota.server.dashboard.form_errors import NO_ERRORS, Errors
from rota.server.dashboard.forms import Fields, Reader, convert
from rota.server.dashboard.words import SHAPES, number, plural, stamp, written
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import DashboardStore

_LATE = 10.0  # seconds after which a start is called late
_MOST_COUNTED = 1_000
_LOOKED = 2_000  # names that a filter looks at before it asks whether to go on
_ROWS = 20  # each has a strip of occurrences
_STRIP = 10
_LONG_STRIP = 60
_NEXT = 10
_COUNTED = 5_000  # occurrences of a schedule that are counted by what became of them
_LABELS = {"first": "From", "end": "To", "max_parallel": "At a time", "until": "Pause until"}
_RESERVED = ("new", "preview")  # other pages have these words in the place of a name
_MARKS = {
    "gap_next": "the clocks go forward: first moment after the gap",
    "gap_shift": "the clocks go forward: moved by the gap",
    "fold_first": "the clocks go back: the first of two",
    "fold_second": "the clocks go back: the second of two",
}

_BACKFILL: dict[str, Reader] = {
    "first": Fields.moment, "end": Fields.moment, "max_parallel": Fields.whole,
}  # fmt: skip

Text = Annotated[str | None, QueryParameter(max_length=200)]


class Cell(msgspec.Struct, frozen=True):
    """An occurrence in the strip of a schedule's history. `kind` is the state of its job, or: on time,
    late, backfilled, skipped, gone."""

    due_at: datetime
    kind: str
    why: str
    job_id: UUID | None
    occurrence: OccurrenceStatus

    @property
    def css(self) -> str:
        return self.kind.replace(" ", "-")

    @property
    def shape(self) -> str:
        return SHAPES.get(self.kind, "·")

    @property
    def label(self) -> str:
        """The text for those who don't see colours."""
        return f"{stamp(self.due_at)}: {self.kind}" + (f", {self.why}" if self.why else "")


def to_cells(rows: Sequence[Any]) -> list[Cell]:
    found = [to_occurrence(row) for row in rows]
    return [Cell(one.due_at, *_judge(one), one.job_id, one) for one in found]


def _judge(one: OccurrenceStatus) -> tuple[str, str]:
    """Return the kind of an occurrence, and why it is so."""
    why = REASONS.get(one.reason or "", (one.reason or "").replace("_", " "))
    if one.state == "skipped":
        return "skipped", why
    if one.job_state is None:
        return "gone", "its job's retention is over"
    if one.job_state != State.SUCCEEDED.label:
        return one.job_state, why
    if one.reason == "backfilled":
        return "backfilled", why
    if one.lag is not None and one.lag > _LATE:
        return "late", f"started {one.lag:,.0f} s after it was due"
    return "on time", "caught up" if one.caught_up and not why else why


@pages.page("/schedules", policy=VIEWER)
async def show_schedules(
    request: RotaRequest,
    tenant: TenantDep,
    stats: StatsDep,
    text: Text = None,
    task: Text = None,
    tag: Text = None,
    paused: Annotated[str | None, QueryParameter(pattern="^(|yes|no)$")] = None,
    cursor: Annotated[str | None, QueryParameter(max_length=500)] = None,
    further: Annotated[str | None, QueryParameter(pattern="^(|yes)$")] = None,
) -> pages.Html:
    given = {"text": text, "task": task, "tag": tag, "paused": paused}
    asked = {name: value or None for name, value in given.items()}
    wanted = {**asked, "paused": {"yes": True, "no": False}.get(paused or "")}
    after = read_cursor(cursor, str, wanted)
    among = _LOOKED if any(asked.values()) and not further else None
    found = await tenant.schedules.page(**wanted, after=after, limit=_ROWS + 1, among=among)  # type: ignore[arg-type]
    cut = make_page(found, _ROWS, lambda one: one.name, wanted)
    until = await stats.schedule_after(after, _LOOKED) if among and not cut.next else None
    rest = {**asked, "further": further or None}
    strips = await stats.strips([one.id for one in cut.items], _STRIP)
    here = pages.Here(request)
    return await pages.show(
        request, "schedules.html", schedules=cut.items, asked=asked,
        strips={id: to_cells(cells) for id, cells in strips.items()}, path_of=path_of,
        next=here.url("/schedules", **rest, cursor=cut.next) if cut.next else None,
        until=until, looked=_LOOKED,
        further=here.url("/schedules", **asked, cursor=cursor, further="yes"),
        count=await stats.schedule_count(_MOST_COUNTED + 1), most=_MOST_COUNTED, cursor=cursor,
        how=[pages.Copyable(
            "List the schedules", cli=pages.cli("schedules", "list"),
            curl=pages.curl("GET", "/v1/schedules"), python="await app.schedules.list()",
        )],
    )  # fmt: skip


def path_of(status: Any, rest: str = "") -> str:
    """Return the address of a schedule: by its name, or by its id if the name can't be in a path."""
    by_id = "/" in status.name or status.name in _RESERVED
    return f"/schedules/{status.id if by_id else status.name}{rest}"


@pages.page("/schedules/{name:str}", policy=VIEWER)
async def show_schedule(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, name: ScheduleName
) -> pages.Html:
    status = await tenant.schedules.get(await tenant.schedules.resolve(name))
    return await _show_schedule(request, tenant, stats, status)


async def _show_schedule(
    request: RotaRequest, tenant: Rota, stats: DashboardStore, status: ScheduleStatus, *,
    values: dict[str, str] | None = None, errors: Errors = NO_ERRORS,
) -> pages.Html:  # fmt: skip
    now = await (await tenant.store()).now()
    values = values or {
        "first": written(now - timedelta(days=7)), "end": written(now), "max_parallel": "", "until": "",
    }  # fmt: skip
    strip = to_cells((await stats.strips([status.id], _LONG_STRIP))[status.id])
    # Occurrences within the horizon may have fired already.
    after = status.next_due - timedelta(microseconds=1) if status.next_due else now
    coming: Sequence[Occurrence] = ()  # none of a schedule that can't be planned
    with contextlib.suppress(ConfigError):
        preview = await tenant.schedules.preview(status.readable, _NEXT, after=max(now, after))
        coming = preview.occurrences
    return await pages.show(
        request, "schedule.html", now=now, schedule=status, strip=strip,
        coming=with_marks(coming), path_of=path_of, tag=status.tag,
        how=_how(status), values=values, errors=errors, status=422 if errors else 200,
        counts=await stats.ledger_counts(status.id, _COUNTED), counted=_COUNTED,
        stored=None if status.spec else await stats.stored_spec(status.id),
    )  # fmt: skip


def with_marks(found: Sequence[Occurrence]) -> list[tuple[Occurrence, str]]:
    """Return occurrences, each with what is special about it."""
    return [
        (one, f"excluded: {one.excluded_by}" if one.excluded_by else _MARKS.get(one.mark or "", ""))
        for one in found
    ]


def _how(status: ScheduleStatus) -> list[pages.Copyable]:
    name, path = status.name, f"/v1/schedules/{status.id if '/' in status.name else status.name}"
    show = pages.Copyable(
        "Show this schedule", cli=pages.cli("schedules", "show", name), curl=pages.curl("GET", path),
        python=f"await app.schedules.get({name!r})",
    )  # fmt: skip
    verb = "resume" if status.paused_at else "pause"
    changes = [
        pages.Copyable(
            label, cli=pages.cli("schedules", verb, name), curl=pages.curl("POST", f"{path}/{verb}"),
            python=f"await app.schedules.{verb}({name!r})",
        )
        for label, verb in (("Trigger it now", "trigger"), (f"{verb.capitalize()} it", verb))
    ]  # fmt: skip
    return [show, *changes]


@pages.action("/schedules/{name:str}/pause", policy=OPERATOR)
async def pause(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, name: ScheduleName
) -> pages.Back | pages.Html:
    fields, errors = await Fields.of(request), Errors(_LABELS)
    resolved = await tenant.schedules.resolve(name)
    with errors.at("until"):
        until = fields.moment("until")
        status = await tenant.schedules.pause(resolved, until=until)
        end = f" until {stamp(until)}" if until else ""
        return pages.back(request, path_of(status), f"Schedule {status.name} paused{end}.")
    return await _show_schedule(
        request,
        tenant,
        stats,
        await tenant.schedules.get(resolved),
        values=_raw(fields),
        errors=errors,
    )


def _raw(fields: Fields) -> dict[str, str]:
    return {name: fields.raw(name) for name in _LABELS}


@pages.action("/schedules/{name:str}/resume", policy=OPERATOR)
async def resume(request: RotaRequest, tenant: TenantDep, name: ScheduleName) -> pages.Back:
    status = await tenant.schedules.resume(await tenant.schedules.resolve(name))
    return pages.back(request, path_of(status), f"Schedule {status.name} resumed.")


@pages.action("/schedules/{name:str}/trigger", policy=OPERATOR)
async def trigger(request: RotaRequest, tenant: TenantDep, name: ScheduleName) -> pages.Back:
    triggered = await tenant.schedules.trigger(await tenant.schedules.resolve(name))
    return pages.back(request, f"/jobs/{triggered.job_id}", "Triggered: this is its job.")


@pages.action("/schedules/{name:str}/backfill", policy=OPERATOR)
async def backfill(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, name: ScheduleName
) -> pages.Back | pages.Html:
    """Ask for confirmation first, with the number of occurrences. With `sure`, run them."""
    status = await tenant.schedules.get(await tenant.schedules.resolve(name))
    fields, errors = await Fields.of(request), Errors(_LABELS)
    sure = fields.flag("sure")
    given = fields.read(_BACKFILL, errors)
    for side in ("first", "end"):
        if given[side] is None and not errors.of(side):
            errors.add(ConfigError("give both ends of the period"), side)
    if not errors:
        with errors.at():
            asked: BackfillRequest = convert(given, BackfillRequest)
            if asked.first >= asked.end:
                raise ConfigError("The period is empty: From must be before To", field="first")
            backfilled = await tenant.schedules.backfill(
                status.name,
                asked.first,
                asked.end,
                max_parallel=asked.max_parallel,
                dry_run=not sure,
            )
    if errors:
        return await _show_schedule(
            request, tenant, stats, status, values=_raw(fields), errors=errors
        )
    count = backfilled.count
    if sure:
        text = f"{plural(count, 'occurrence')} will be run, the oldest first."
        return pages.back(request, path_of(status), text)
    if not count:
        text = "Every occurrence of that period is in the ledger: there is nothing to backfill."
        return pages.back(request, path_of(status), text)
    words = ["schedules", "backfill", status.name, "--from", asked.first.isoformat(),
             "--to", asked.end.isoformat()]  # fmt: skip
    return await pages.confirm(
        request, f"Backfill {plural(count, 'occurrence')} of {status.name}?", template="backfill.html",
        path=path_of(status, "/backfill"), word=f"Run {plural(count, 'occurrence')}", kind="primary",
        target=pages.Here(request).url(path_of(status)), schedule=status, asked=asked, count=count,
        fields=[
            ("first", asked.first.isoformat()), ("end", asked.end.isoformat()),
            ("max_parallel", asked.max_parallel or ""),
        ],
        how=[pages.Copyable("Backfill this period", cli=pages.cli(*words), curl=pages.curl(
            "POST", f"/v1/schedules/{status.id}/backfill", {"first": asked.first, "end": asked.end}
        ))],
    )  # fmt: skip


@pages.action("/schedules/{name:str}/delete", policy=OPERATOR, on_error="/schedules/{name}")
async def delete(
    request: RotaRequest, tenant: TenantDep, name: ScheduleName
) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, delete the schedule."""
    status = await tenant.schedules.get(await tenant.schedules.resolve(name))
    fields = await Fields.of(request)
    if not fields.flag("sure"):
        return await pages.confirm(
            request, f"Delete schedule {status.name}?",
            f"It runs {status.runs} {status.in_words}, and has fired {number(status.fired)} times. "
            "Its ledger and its jobs are kept until their retention ends.",
            "This can't be undone; Pause can.",
            path=path_of(status, "/delete"), word="Delete the schedule", fields=[("tag", status.tag)],
            target=pages.Here(request).url(path_of(status)),
        )  # fmt: skip
    expect = Precondition(if_match=fields.text("tag"))
    await tenant.schedules.delete(status.name, expect=expect)
    return pages.back(request, "/schedules", f"Schedule {status.name} deleted.")


ROUTES = [show_schedules, show_schedule, pause, resume, trigger, backfill, delete]
