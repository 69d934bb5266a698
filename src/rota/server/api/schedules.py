"""Schedules: creating, changing, steering and looking at them, and at what they did.

A schedule is named in a path by its name, or by its id (which has no slash in it). Its ETag changes with
every change of what it says; with If-Match a change is made only to what the client saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromQuery, HeaderParameter, JSONBody, PathParameter, QueryParameter

from rota.core.time.lint import Warned, lint
from rota.core.time.recurrence import Occurrence
from rota.core.time.schedule import ScheduleSpec
from rota.errors import NotFound
from rota.operations.ledger import Audit, OccurrenceStatus, ScheduleStatus, to_status, watch_all
from rota.operations.rota import Rota
from rota.operations.schedule_checks import lint_tasks, task_warnings
from rota.server.api.conditions import check_unchanged, matches
from rota.server.api.job_requests import Moment
from rota.server.api.jobs import Filter, zoned
from rota.server.api.pages import Cursor, Limit, Page, make_page, read_cursor
from rota.server.api.schedule_requests import (
    NewScheduleRequest,
    PreviewRequest,
    ScheduleRequest,
    to_spec,
)
from rota.server.calculation import Budget, off_loop, preview
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER
from rota.server.problems import Problem
from rota.store.database import Database
from rota.store.schedules import ScheduleStore

_MOST_MOMENTS = 10_000  # that one request makes us compute
_TICK = timedelta(microseconds=1)

ScheduleName = Annotated[str, PathParameter(max_length=200, description="Its name, or its id.")]
QueryMoment = Annotated[datetime | None, QueryParameter(description="With a time zone.")]


class Preview(msgspec.Struct, frozen=True):
    """The next moments of a rule. One with `excluded_by` isn't run."""

    in_words: str
    occurrences: Sequence[Occurrence]


class PauseRequest(msgspec.Struct, forbid_unknown_fields=True):
    until: Moment | None = None


class Triggered(msgspec.Struct, frozen=True):
    job_id: UUID


class BackfillRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`first` is included, `end` is not."""

    first: Moment
    end: Moment
    max_parallel: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    dry_run: bool = False


class Backfilled(msgspec.Struct, frozen=True):
    count: int
    dry_run: bool


class AuditReport(msgspec.Struct, frozen=True):
    clean: bool
    audit: Audit


class Lint(msgspec.Struct, frozen=True):
    warnings: Sequence[Warned]


def schedule_tag(version: int, id: UUID) -> str:
    """With a piece of the id: the version of one that was deleted and made again begins anew."""
    return f'"{version}.{id.hex[-8:]}"'


async def _named(tenant: Rota, name: str) -> str:
    """The schedule's own name."""
    database: Database = (await tenant.store()).database
    found: str | None = await database.fetchval("schedule_name", tenant.namespace, name)
    if found is None:
        raise NotFound(f"there is no schedule {name!r} in namespace {tenant.namespace!r}")
    return found


def _answer(status: ScheduleStatus, code: int = 200) -> Response[ScheduleStatus]:
    headers = {"ETag": schedule_tag(status.version, status.id)}
    if code == 201:
        headers["Location"] = f"/v1/schedules/{status.id}"
    return Response(status, status_code=code, headers=headers)


@get("/v1/schedules", policy=VIEWER, summary="Schedules, by name")
async def list_schedules(
    tenant: TenantDep,
    task: Filter = None,
    tag: Filter = None,
    paused: FromQuery[bool | None] = None,
    text: Filter = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[ScheduleStatus]:
    database: Database = (await tenant.store()).database
    wanted = (task, tag, paused, text or None)
    after = read_cursor(cursor, str, wanted)
    rows = await database.fetch("schedules_page", tenant.namespace, *wanted, after, limit + 1)
    opened = database.encryption.shown_spec
    return make_page([to_status(row, opened) for row in rows], limit, lambda one: one.name, wanted)


@get("/v1/schedules/{name:str}", policy=VIEWER, summary="One schedule")
async def get_schedule(tenant: TenantDep, name: ScheduleName) -> Response[ScheduleStatus]:
    return _answer(await tenant.schedules.get(await _named(tenant, name)))


@post("/v1/schedules", policy=OPERATOR, summary="Create a schedule")
async def create_schedule(
    tenant: TenantDep, data: JSONBody[NewScheduleRequest]
) -> Response[ScheduleStatus]:
    def must_be_new(row: Any) -> None:
        if row is not None:
            raise Problem(
                409, "exists", f"there is a schedule {data.name!r} already: PUT changes it",
                fields={"name": "is taken"},
            )  # fmt: skip

    spec = to_spec(data, data.name, data.task)
    await preview(tenant, spec, 1)  # what takes long to compile is refused off the loop
    await tenant.schedules.put(spec, expect=must_be_new)
    return _answer(await _made(tenant, spec), 201)


@put("/v1/schedules/{name:str}", policy=OPERATOR, summary="Change a schedule, or create it")
async def put_schedule(
    tenant: TenantDep,
    name: ScheduleName,
    data: JSONBody[ScheduleRequest],
    if_match: Annotated[str | None, HeaderParameter(name="If-Match", max_length=500)] = None,
    if_none_match: Annotated[
        str | None, HeaderParameter(name="If-None-Match", max_length=500)
    ] = None,
) -> Response[ScheduleStatus]:
    """From now on: what was due before is left to what was said before."""
    name = await _name_or_new(tenant, name)

    def as_expected(row: Any) -> None:
        _check_conditions(row, name, if_match, if_none_match)

    spec = to_spec(data, name, data.task)
    await preview(tenant, spec, 1)
    change = await tenant.schedules.put(spec, expect=as_expected)
    return _answer(await _made(tenant, spec), 201 if change == "created" else 200)


async def _made(tenant: Rota, spec: ScheduleSpec) -> ScheduleStatus:
    status = await tenant.schedules.get(spec.name)
    return msgspec.structs.replace(status, warnings=await task_warnings(tenant, spec))


async def _name_or_new(tenant: Rota, name: str) -> str:
    try:
        return await _named(tenant, name)
    except NotFound:
        return name


def _check_conditions(row: Any, name: str, if_match: str | None, if_none_match: str | None) -> None:
    if row is None:
        if if_match is not None:
            raise Problem(412, "precondition-failed", f"there is no schedule {name!r} to change")
        return
    tag = schedule_tag(row["version"], row["id"])
    check_unchanged(if_match, tag, f"schedule {name!r}")
    if matches(if_none_match, tag):
        raise Problem(
            412, "precondition-failed", f"there is a schedule {name!r} already",
            headers={"ETag": tag},
        )  # fmt: skip


@delete("/v1/schedules/{name:str}", policy=OPERATOR, summary="Delete a schedule")
async def delete_schedule(
    tenant: TenantDep,
    name: ScheduleName,
    if_match: Annotated[str | None, HeaderParameter(name="If-Match", max_length=500)] = None,
) -> None:
    """Its ledger and its jobs stay until their retention is over."""
    name = await _named(tenant, name)

    def as_expected(row: Any) -> None:
        check_unchanged(if_match, schedule_tag(row["version"], row["id"]), f"schedule {name!r}")

    await tenant.schedules.delete(name, expect=as_expected)


@post("/v1/schedules/{name:str}/pause", policy=OPERATOR, summary="Pause", status_code=200)
async def pause_schedule(
    tenant: TenantDep,
    name: ScheduleName,
    data: JSONBody[PauseRequest | None] = None,
) -> Response[ScheduleStatus]:
    """No occurrence fires until it is resumed, or `until`; what runs goes on."""
    name = await _named(tenant, name)
    until = data.until if data is not None else None
    if until is not None and until <= await (await tenant.store()).now():
        raise Problem(422, "invalid", "until: it has passed", fields={"until": "has passed"})
    await tenant.schedules.pause(name, until=until)
    return _answer(await tenant.schedules.get(name))


@post("/v1/schedules/{name:str}/resume", policy=OPERATOR, summary="Resume", status_code=200)
async def resume_schedule(tenant: TenantDep, name: ScheduleName) -> Response[ScheduleStatus]:
    """The catch-up policy decides about what was due during the pause."""
    name = await _named(tenant, name)
    await tenant.schedules.resume(name)
    return _answer(await tenant.schedules.get(name))


@post("/v1/schedules/{name:str}/trigger", policy=OPERATOR, summary="Run it once, now")
async def trigger_schedule(tenant: TenantDep, name: ScheduleName) -> Response[Triggered]:
    """Beside its rule."""
    name = await _named(tenant, name)
    job_id = await tenant.schedules.trigger(name)
    headers = {"Location": f"/v1/jobs/{job_id}"}
    return Response(Triggered(job_id), status_code=201, headers=headers)


@post("/v1/schedules/{name:str}/backfill", policy=OPERATOR, summary="Fill in", status_code=200)
async def backfill_schedule(
    tenant: TenantDep, name: ScheduleName, data: JSONBody[BackfillRequest]
) -> Backfilled:
    """Run the occurrences of a past stretch of time that have no row in the ledger."""
    name = await _named(tenant, name)
    await _check_stretch(tenant, name, data.first, data.end)
    count = await tenant.schedules.backfill(
        name, data.first, data.end, max_parallel=data.max_parallel, dry_run=data.dry_run
    )
    return Backfilled(count, data.dry_run)


@get("/v1/schedules/{name:str}/occurrences", policy=VIEWER, summary="The ledger, oldest first")
async def list_occurrences(
    tenant: TenantDep,
    name: ScheduleName,
    first: QueryMoment = None,
    end: QueryMoment = None,
    outcome: Annotated[Literal["fired", "skipped"] | None, QueryParameter(name="state")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[OccurrenceStatus]:
    """Every occurrence of a stretch of time (the last day), and what became of it."""
    name = await _named(tenant, name)
    question = (name, first, end, outcome)
    begin, close = await _stretch(tenant, first, end, timedelta(days=1))
    if (last := read_cursor(cursor, datetime, question)) is not None:
        begin = zoned("cursor", last) or begin
        begin += _TICK
    found: list[OccurrenceStatus] = []
    while len(found) <= limit:
        page = await tenant.schedules.occurrences(name, begin, close, limit + 1)
        found.extend(row for row in page if outcome in (None, row.state))
        if len(page) <= limit:
            break
        begin = page[-1].due_at + _TICK
    return make_page(found, limit, lambda row: row.due_at, question)


@get("/v1/schedules/{name:str}/audit", policy=VIEWER, summary="The ledger beside the rule")
async def audit_schedule(
    tenant: TenantDep, name: ScheduleName, first: QueryMoment = None, end: QueryMoment = None
) -> AuditReport:
    """Recompute what must be in the ledger of a stretch of time (the last week), and compare."""
    name = await _named(tenant, name)
    begin, close = await _stretch(tenant, first, end, timedelta(days=7))
    await _check_stretch(tenant, name, begin, close)
    audit = await tenant.schedules.audit(name, begin, close)
    return AuditReport(audit.is_clean, audit)


@get("/v1/schedules/{name:str}/preview", policy=VIEWER, summary="The next occurrences")
async def preview_schedule(
    tenant: TenantDep,
    name: ScheduleName,
    after: QueryMoment = None,
    count: Annotated[int, QueryParameter(ge=1, le=1000)] = 10,
) -> Preview:
    spec = (await tenant.schedules.get(await _named(tenant, name))).readable
    return await _preview(tenant, spec, count, zoned("after", after))


@post("/v1/schedules:preview", policy=VIEWER.unaudited, summary="Preview a rule", status_code=200)
async def preview_rule(tenant: TenantDep, data: JSONBody[PreviewRequest]) -> Preview:
    """Without saving it."""
    return await _preview(tenant, to_spec(data, data.name, "preview"), data.count, data.after)


async def _preview(tenant: Rota, spec: ScheduleSpec, count: int, after: datetime | None) -> Preview:
    _check_years(after)
    coming = await preview(tenant, spec, count, after=after)
    return Preview(coming.in_words, coming.occurrences)


@get("/v1/schedules:lint", policy=VIEWER, summary="What will go badly, before it does")
async def lint_schedules(
    tenant: TenantDep, herd: Annotated[int, QueryParameter(ge=2, le=100_000)] = 100
) -> Lint:
    """DST, too many at once (`herd`), too often for its duration, an end soon, an unknown task or
    arguments that its task doesn't take."""
    store = ScheduleStore((await tenant.store()).database)
    namespace = tenant.namespace
    calendars = (await store.calendars()).get(namespace, {})
    durations = await store.task_durations(namespace)

    def usual(task: str) -> float | None:
        return durations[task].p50 if task in durations else None

    stored = await tenant.schedules.list()
    now = await (await tenant.store()).now()

    def compute(budget: Budget) -> list[Warned]:
        watched, broken = watch_all(budget.spent_on(stored), calendars, usual)
        return broken + lint([one for _, one in watched], now, herd)

    found = await off_loop(compute)
    return Lint(found + await lint_tasks(tenant, [one.spec for one in stored if one.spec]))


async def _stretch(
    tenant: Rota, first: datetime | None, end: datetime | None, back: timedelta
) -> tuple[datetime, datetime]:
    """Until now, by default."""
    first, end = zoned("first", first), zoned("end", end)
    _check_years(first, end)
    close = end or await (await tenant.store()).now() + timedelta(hours=1)
    return first or close - back, close


async def _check_stretch(tenant: Rota, name: str, first: datetime, end: datetime) -> None:
    """One request may not make us compute for minutes."""
    _check_years(first, end)
    spec = (await tenant.schedules.get(name)).readable
    found = (await preview(tenant, spec, _MOST_MOMENTS, after=first - _TICK)).occurrences
    if len(found) == _MOST_MOMENTS and found[-1].nominal < end:
        raise Problem(
            422, "too-much",
            f"more than {_MOST_MOMENTS:,} occurrences are in that stretch of time: take shorter ones",
        )  # fmt: skip


def _check_years(*moments: datetime | None) -> None:
    for moment in moments:
        if moment is not None and not 1970 <= moment.year < 9999:
            raise Problem(400, "invalid", f"the year {moment.year} is not in 1970 to 9998")


ROUTES = [
    list_schedules, get_schedule, create_schedule, put_schedule, delete_schedule, pause_schedule,
    resume_schedule, trigger_schedule, backfill_schedule, list_occurrences, audit_schedule,
    preview_schedule, preview_rule, lint_schedules,
]  # fmt: skip
