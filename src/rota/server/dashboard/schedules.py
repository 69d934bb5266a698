"""Schedules: what they say in words, what they did, and what they do next."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any

from litestar.params import QueryParameter

from rota.core.time.recurrence import Occurrence
from rota.errors import ConfigError
from rota.operations.ledger import ScheduleStatus
from rota.operations.preconditions import Precondition
from rota.operations.rota import Rota
from rota.server.api.pages import make_page, read_cursor
from rota.server.api.schedules import BackfillRequest, ScheduleName
from rota.server.dashboard.commands import Copyable, cli, curl, python
from rota.server.dashboard.forms import Fields, Wrong, convert, telling_why
from rota.server.dashboard.pages import Back, Here, Html, action, back, page, show
from rota.server.dashboard.strips import to_cells
from rota.server.dashboard.words import plural
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest
from rota.store.dashboard import DashboardStore

_ROWS = 40
_STRIP = 14
_LONG_STRIP = 60
_NEXT = 10
_WORDS = ("new", "preview")  # what else is in that place of an address
_MARKS = {
    "gap_next": "the clocks go forward: first moment after the gap",
    "gap_shift": "the clocks go forward: moved by the gap",
    "fold_first": "the clocks go back: the first of two",
    "fold_second": "the clocks go back: the second of two",
}

Text = Annotated[str | None, QueryParameter(max_length=200)]


@page("/schedules", policy=VIEWER)
async def list_schedules(
    request: RotaRequest,
    tenant: TenantDep,
    text: Text = None,
    task: Text = None,
    tag: Text = None,
    paused: Annotated[str | None, QueryParameter(pattern="^(|yes|no)$")] = None,
    cursor: Annotated[str | None, QueryParameter(max_length=500)] = None,
) -> Html:
    store = await tenant.store()
    asked = {
        "text": text or None,
        "task": task or None,
        "tag": tag or None,
        "paused": paused or None,
    }
    wanted = (task or None, tag or None, {"yes": True, "no": False}.get(paused or ""), text or None)
    after = read_cursor(cursor, str, wanted)
    found = await tenant.schedules.page(
        task=task, tag=tag, paused=wanted[2], text=text, after=after, limit=_ROWS + 1
    )
    cut = make_page(found, _ROWS, lambda one: one.name, wanted)
    known = DashboardStore(store.database, tenant.namespace)
    strips = await known.strips([one.id for one in cut.items], _STRIP)
    here = Here(request)
    return await show(
        request, "schedules.html", schedules=cut.items, asked=asked,
        strips={id: to_cells(cells) for id, cells in strips.items()}, path_of=path_of,
        next=here.url("/schedules", **asked, cursor=cut.next) if cut.next else None,
        count=await known.schedule_count(), cursor=cursor,
        how=Copyable(
            cli=cli("schedules", "list"), curl=curl("GET", "/v1/schedules"),
            python=python("await app.schedules.list()"),
        ),
    )  # fmt: skip


def path_of(status: Any, rest: str = "") -> str:
    """By its name, or by its id where the name can't stand in a path."""
    by_id = "/" in status.name or status.name in _WORDS
    return f"/schedules/{status.id if by_id else status.name}{rest}"


@page("/schedules/{name:str}", policy=VIEWER)
async def show_schedule(request: RotaRequest, tenant: TenantDep, name: ScheduleName) -> Html:
    status = await tenant.schedules.get(await tenant.schedules.resolve(name))
    store = await tenant.store()
    now = await store.now()
    known = DashboardStore(store.database, tenant.namespace)
    strip = to_cells((await known.strips([status.id], _LONG_STRIP))[status.id])
    coming = await _coming(tenant, status, now)
    return await show(
        request, "schedule.html", now=now, schedule=status, strip=strip,
        coming=[(one, mark_of(one)) for one in coming], path_of=path_of,
        tag=status.tag,
        week_ago=now - timedelta(days=7), how=_how(status),
        stored=None if status.spec else await known.stored_spec(status.id),
    )  # fmt: skip


async def _coming(tenant: Rota, status: ScheduleStatus, now: datetime) -> Sequence[Occurrence]:
    """The next occurrences; none of one that can't be planned."""
    try:
        after = max(now, _cursor(status, now))
        return (await tenant.schedules.preview(status.readable, _NEXT, after=after)).occurrences
    except ConfigError:
        return []


def _cursor(status: ScheduleStatus, now: datetime) -> datetime:
    """What is due within the horizon may have fired already."""
    return status.next_due - timedelta(microseconds=1) if status.next_due else now


def mark_of(one: Occurrence) -> str:
    """What is special about a moment."""
    if one.excluded_by is not None:
        return f"excluded: {one.excluded_by}"
    return _MARKS.get(one.mark or "", "")


def _how(status: ScheduleStatus) -> Copyable:
    path = f"/v1/schedules/{status.id if '/' in status.name else status.name}"
    return Copyable(
        cli="\n".join((cli("schedules", "show", status.name), cli("schedules", "trigger", status.name),
                       cli("schedules", "resume" if status.paused_at else "pause", status.name))),
        curl="\n".join((curl("GET", path), curl("POST", f"{path}/trigger"))),
        python=python(f"await app.schedules.trigger({status.name!r})"),
    )  # fmt: skip


# -- doing something about it


@action("/schedules/{name:str}/pause", policy=OPERATOR)
async def pause(request: RotaRequest, tenant: TenantDep, name: ScheduleName) -> Back:
    fields = await Fields.of(request)
    try:
        with telling_why():
            until = fields.moment("until")
            own_name = await tenant.schedules.resolve(name)
            status = await tenant.schedules.pause(own_name, until=until)
    except Wrong as wrong:
        return back(request, f"/schedules/{name}", str(wrong), kind="problem")
    told = f" until {until:%Y-%m-%d %H:%M %Z}" if until else ""
    return back(request, path_of(status), f"Schedule {status.name} paused{told}.")


@action("/schedules/{name:str}/resume", policy=OPERATOR)
async def resume(request: RotaRequest, tenant: TenantDep, name: ScheduleName) -> Back:
    status = await tenant.schedules.resume(await tenant.schedules.resolve(name))
    return back(request, path_of(status), f"Schedule {status.name} resumed.")


@action("/schedules/{name:str}/trigger", policy=OPERATOR)
async def trigger(request: RotaRequest, tenant: TenantDep, name: ScheduleName) -> Back:
    triggered = await tenant.schedules.trigger(await tenant.schedules.resolve(name))
    return back(request, f"/jobs/{triggered.job_id}", "Triggered: this is its job.")


@action("/schedules/{name:str}/backfill", policy=OPERATOR)
async def backfill(request: RotaRequest, tenant: TenantDep, name: ScheduleName) -> Back | Html:
    """First what it would do; with `sure`, it is done."""
    status = await tenant.schedules.get(await tenant.schedules.resolve(name))
    fields = await Fields.of(request)
    sure = fields.flag("sure")
    try:
        with telling_why():
            first, end = fields.moment("first"), fields.moment("end")
            if first is None or end is None:
                raise ConfigError("first and end: give both ends of the stretch of time")
            asked = convert(
                {"first": first, "end": end, "max_parallel": fields.whole("max_parallel"),
                 "dry_run": not sure},
                BackfillRequest,
            )  # fmt: skip
            backfilled = await tenant.schedules.backfill(
                status.name, asked.first, asked.end, max_parallel=asked.max_parallel,
                dry_run=asked.dry_run,
            )  # fmt: skip
    except Wrong as wrong:
        return back(request, path_of(status), str(wrong), kind="problem")
    count = backfilled.count
    if sure:
        told = f"{plural(count, 'occurrence')} will be run, the oldest first."
        return back(request, path_of(status), told)
    if not count:
        told = "Every occurrence of that time is in the ledger: there is nothing to fill in."
        return back(request, path_of(status), told)
    words = ["schedules", "backfill", status.name, "--from", asked.first.isoformat(),
             "--to", asked.end.isoformat()]  # fmt: skip
    return await show(
        request, "backfill.html", schedule=status, asked=asked, count=count, path_of=path_of,
        how=Copyable(cli=cli(*words), curl=curl(
            "POST", f"/v1/schedules/{status.id}/backfill", {"first": asked.first, "end": asked.end}
        )),
    )  # fmt: skip


@action("/schedules/{name:str}/delete", policy=OPERATOR)
async def delete(request: RotaRequest, tenant: TenantDep, name: ScheduleName) -> Back | Html:
    """Asked once: shown. Asked again with `sure`: gone."""
    status = await tenant.schedules.get(await tenant.schedules.resolve(name))
    fields = await Fields.of(request)
    if not fields.flag("sure"):
        return await show(
            request, "schedule_delete.html", schedule=status, path_of=path_of,
            tag=status.tag,
        )  # fmt: skip
    try:
        with telling_why():
            expect = Precondition(if_match=fields.text("tag"))
            await tenant.schedules.delete(status.name, expect=expect)
    except Wrong as wrong:
        return back(request, path_of(status), str(wrong), kind="problem")
    return back(
        request,
        "/schedules",
        f"Schedule {status.name} deleted.",
    )


def coming_marks(found: Sequence[Occurrence]) -> list[tuple[Occurrence, str]]:
    return [(one, mark_of(one)) for one in found]


ROUTES = [list_schedules, show_schedule, pause, resume, trigger, backfill, delete]
