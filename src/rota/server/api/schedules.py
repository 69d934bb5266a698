"""REST routes of schedules and their ledgers.

A path names a schedule by its name, or by its id (which has no slash in it). Its ETag changes with every
change of its definition; with If-Match a change is made only to the version that the client read.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, delete, get, post, put
from litestar.params import FromQuery, HeaderParameter, JSONBody, PathParameter, QueryParameter
from msgspec import UNSET, Meta, UnsetType

from rota.client.wire import AuditReport, Lint
from rota.core.time.schedule import (
    Calendar,
    CatchUp,
    Cron,
    Every,
    Overlap,
    RRule,
    ScheduleSpec,
    check_length,
    make_spec,
)
from rota.core.time.status import OccurrenceStatus, Preview, ScheduleStatus
from rota.core.time.zones import Fold, Gap
from rota.errors import ConfigError, NotFound
from rota.model import Backfilled, Triggered
from rota.operations.job_request import Moment, Name
from rota.operations.preconditions import Precondition
from rota.operations.rota import Rota
from rota.operations.schedule_reads import check_years
from rota.server.api.jobs import Filter, QueryMoment, zoned
from rota.server.api.pages import Cursor, Limit, Page, make_cursor, make_page, read_cursor
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import TenantDep

Duration = Annotated[str, Meta(max_length=50, description="Such as 15m, 1h30m.")] | float

CalendarNames = Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=50)]


class RuleRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One of `cron`, `every`, `calendar`, `rrule` and `rule` (as in answers), and its options."""

    cron: Annotated[str, Meta(max_length=500)] | UnsetType = UNSET
    every: Duration | UnsetType = UNSET
    calendar: Annotated[str, Meta(max_length=500)] | UnsetType = UNSET
    rrule: Annotated[str, Meta(max_length=2000)] | UnsetType = UNSET
    rule: Cron | Every | Calendar | RRule | UnsetType = UNSET
    anchor: Moment | UnsetType = UNSET
    tz: Annotated[str, Meta(max_length=100)] | UnsetType = UNSET
    gap: Gap | UnsetType = UNSET
    fold: Fold | UnsetType = UNSET
    starts: Moment | UnsetType | None = UNSET
    ends: Moment | UnsetType | None = UNSET
    max_occurrences: int | UnsetType | None = UNSET
    jitter: Duration | UnsetType = UNSET
    spread: Duration | UnsetType = UNSET
    exclude: CalendarNames | UnsetType = UNSET
    include: CalendarNames | UnsetType = UNSET


class ScheduleRequest(RuleRequest, forbid_unknown_fields=True, kw_only=True):
    """A schedule: its rule, its task or workflow, and the options of its runs.

    `payload` holds the task's arguments, or the input of the workflow's runs.
    """

    task: Annotated[str, Meta(max_length=100)] | UnsetType | None = UNSET
    workflow: Name | UnsetType | None = UNSET
    payload: dict[str, Any] | UnsetType | None = UNSET
    options: dict[str, Any] | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    max_queued: int | UnsetType = UNSET
    drop: Literal["oldest", "newest"] | UnsetType = UNSET
    max_running: int | UnsetType | None = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    description: Annotated[str, Meta(max_length=2000)] | UnsetType = UNSET
    tags: Annotated[list[Name], Meta(max_length=50)] | UnsetType = UNSET
    paused: bool | UnsetType = UNSET


class NewScheduleRequest(ScheduleRequest, forbid_unknown_fields=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=200)]


class PreviewRequest(RuleRequest, forbid_unknown_fields=True, kw_only=True):
    """A rule to preview. `name`: the name of the schedule, on which `spread` and `H` depend."""

    name: Annotated[str, Meta(min_length=1, max_length=200)] = "preview"
    count: Annotated[int, Meta(ge=1, le=1000)] = 10
    after: Moment | None = None


_NOT_OF_THE_RULE = ("name", "task", "rule", "count", "after")


def to_spec(request: RuleRequest, name: str, task: str | UnsetType | None) -> ScheduleSpec:
    given = {
        field: value
        for field in request.__struct_fields__
        if field not in _NOT_OF_THE_RULE
        and (value := getattr(request, field)) is not UNSET
        and value is not None
    }
    check_years(**{field: given.get(field) for field in ("starts", "ends", "anchor")})
    if request.rule is UNSET:
        return make_spec(name, task or "", **given)
    if others := [rule for rule in ("cron", "every", "calendar", "rrule") if rule in given]:
        raise ConfigError(f"{others[0]}: give either this or `rule`")
    check_length(request.rule)
    check_years(anchor=getattr(request.rule, "anchor", None))
    spec = make_spec(name, task or "", cron="@daily", **given)  # its rule is replaced below
    return msgspec.structs.replace(spec, rule=request.rule)


_TICK = timedelta(microseconds=1)

ScheduleName = Annotated[
    str, PathParameter(max_length=200, description="The name or the id of a schedule.")
]


class PauseRequest(msgspec.Struct, forbid_unknown_fields=True):
    until: Moment | None = None


class BackfillRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`first` is included, `end` is not."""

    first: Moment
    end: Moment
    max_parallel: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    dry_run: bool = False


def _answer(status: ScheduleStatus, code: int = 200) -> Response[ScheduleStatus]:
    headers = {"ETag": status.tag}
    if code == 201:
        headers["Location"] = f"/v1/schedules/{status.id}"
    return Response(status, status_code=code, headers=headers)


@get("/v1/schedules", policy=VIEWER, summary="List schedules, by name")
async def list_schedules(
    tenant: TenantDep,
    task: Filter = None,
    tag: Filter = None,
    paused: FromQuery[bool | None] = None,
    text: Filter = None,
    cursor: Cursor = None,
    limit: Limit = 50,
) -> Page[ScheduleStatus]:
    """A page with filters is of the next 10,000 names: it may have fewer items than `limit`, or none,
    while `next` goes on."""
    wanted = (task, tag, paused, text or None)
    after = read_cursor(cursor, str, wanted)
    found, until = await tenant.schedules.look(
        task=task, tag=tag, paused=paused, text=text, after=after, limit=limit
    )
    return Page(list(found), None if until is None else make_cursor(until, wanted))


@get("/v1/schedules/{name:str}", policy=VIEWER, summary="Get a schedule")
async def get_schedule(tenant: TenantDep, name: ScheduleName) -> Response[ScheduleStatus]:
    return _answer(await tenant.schedules.get(await tenant.schedules.resolve(name)))


@post("/v1/schedules", policy=OPERATOR, summary="Create a schedule")
async def create_schedule(
    tenant: TenantDep, data: JSONBody[NewScheduleRequest]
) -> Response[ScheduleStatus]:
    spec = to_spec(data, data.name, data.task)
    saved = await tenant.schedules.put(spec, expect=Precondition(must_be_new=True))
    return _answer(saved.status, 201)


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
    """The change applies from now on: the old rule decides what was due before."""
    with contextlib.suppress(NotFound):  # a new one
        name = await tenant.schedules.resolve(name)
    expect = Precondition(if_match=if_match, if_none_match=if_none_match)
    saved = await tenant.schedules.put(to_spec(data, name, data.task), expect=expect)
    return _answer(saved.status, 201 if saved.change == "created" else 200)


@delete("/v1/schedules/{name:str}", policy=OPERATOR, summary="Delete a schedule")
async def delete_schedule(
    tenant: TenantDep,
    name: ScheduleName,
    if_match: Annotated[str | None, HeaderParameter(name="If-Match", max_length=500)] = None,
) -> None:
    """Its ledger and its jobs stay until their retention is over."""
    name = await tenant.schedules.resolve(name)
    await tenant.schedules.delete(name, expect=Precondition(if_match=if_match))


@post(
    "/v1/schedules/{name:str}/pause", policy=OPERATOR, summary="Pause a schedule", status_code=200
)
async def pause_schedule(
    tenant: TenantDep, name: ScheduleName, data: JSONBody[PauseRequest | None] = None
) -> Response[ScheduleStatus]:
    """Fire no occurrence until it is resumed, or `until`. Running jobs are not affected."""
    name = await tenant.schedules.resolve(name)
    return _answer(await tenant.schedules.pause(name, until=data.until if data else None))


@post(
    "/v1/schedules/{name:str}/resume", policy=OPERATOR, summary="Resume a schedule", status_code=200
)
async def resume_schedule(tenant: TenantDep, name: ScheduleName) -> Response[ScheduleStatus]:
    """The catch-up policy decides about what was due during the pause."""
    return _answer(await tenant.schedules.resume(await tenant.schedules.resolve(name)))


@post("/v1/schedules/{name:str}/trigger", policy=OPERATOR, summary="Run a schedule once, now")
async def trigger_schedule(tenant: TenantDep, name: ScheduleName) -> Response[Triggered]:
    """The run is independent of its rule."""
    name = await tenant.schedules.resolve(name)
    triggered = await tenant.schedules.trigger(name)
    headers = {"Location": f"/v1/jobs/{triggered.job_id}"}
    return Response(triggered, status_code=201, headers=headers)


@post(
    "/v1/schedules/{name:str}/backfill",
    policy=OPERATOR,
    summary="Backfill a schedule",
    status_code=200,
)
async def backfill_schedule(
    tenant: TenantDep, name: ScheduleName, data: JSONBody[BackfillRequest]
) -> Backfilled:
    """Run the occurrences of a past period that have no row in the ledger."""
    name = await tenant.schedules.resolve(name)
    return await tenant.schedules.backfill(
        name, data.first, data.end, max_parallel=data.max_parallel, dry_run=data.dry_run
    )


@get(
    "/v1/schedules/{name:str}/occurrences", policy=VIEWER, summary="List occurrences, oldest first"
)
async def list_occurrences(
    tenant: TenantDep,
    name: ScheduleName,
    first: QueryMoment = None,
    end: QueryMoment = None,
    outcome: Annotated[Literal["fired", "skipped"] | None, QueryParameter(name="state")] = None,
    cursor: Cursor = None,
    limit: Limit = 100,
) -> Page[OccurrenceStatus]:
    """List every occurrence of a period (by default the last day), fired or skipped."""
    name = await tenant.schedules.resolve(name)
    question = (name, first, end, outcome)
    begin, close = await _period(tenant, first, end, timedelta(days=1))
    if (last := read_cursor(cursor, datetime, question)) is not None:
        begin = zoned("cursor", last) or begin
        begin += _TICK
    found = await tenant.schedules.occurrences(name, begin, close, limit + 1, state=outcome)
    return make_page(found, limit, lambda row: row.due_at, question)


@get("/v1/schedules/{name:str}/audit", policy=VIEWER, summary="Compare the ledger with the rule")
async def audit_schedule(
    tenant: TenantDep, name: ScheduleName, first: QueryMoment = None, end: QueryMoment = None
) -> AuditReport:
    """Recompute what must be in the ledger of a period (by default the last week), and compare."""
    name = await tenant.schedules.resolve(name)
    begin, close = await _period(tenant, first, end, timedelta(days=7))
    audit = await tenant.schedules.audit(name, begin, close)
    return AuditReport(audit.is_clean, audit)


@get("/v1/schedules/{name:str}/preview", policy=VIEWER, summary="Preview a schedule")
async def preview_schedule(
    tenant: TenantDep,
    name: ScheduleName,
    after: QueryMoment = None,
    count: Annotated[int, QueryParameter(ge=1, le=1000)] = 10,
) -> Preview:
    spec = (await tenant.schedules.get(await tenant.schedules.resolve(name))).readable
    return await tenant.schedules.preview(spec, count, after=zoned("after", after))


@post("/v1/schedules:preview", policy=VIEWER, summary="Preview a rule", status_code=200)
async def preview_rule(tenant: TenantDep, data: JSONBody[PreviewRequest]) -> Preview:
    """Compute the next occurrences of a rule without storing it."""
    spec = to_spec(data, data.name, "preview")
    return await tenant.schedules.preview(spec, data.count, after=data.after)


@get("/v1/schedules:lint", policy=VIEWER, summary="Lint all schedules")
async def lint_schedules(
    tenant: TenantDep, herd: Annotated[int, QueryParameter(ge=2, le=100_000)] = 100
) -> Lint:
    """Warn of DST, of too many occurrences at once (`herd`), of too many for their duration, of an end
    soon, of unknown tasks, and of arguments that a task doesn't take."""
    return Lint(await tenant.schedules.lint(herd))


async def _period(
    tenant: Rota, first: datetime | None, end: datetime | None, back: timedelta
) -> tuple[datetime, datetime]:
    """Return both ends of a period. By default it ends now."""
    first, end = zoned("first", first), zoned("end", end)
    close = end or await (await tenant.store()).now() + timedelta(hours=1)
    return first or close - back, close


ROUTES = [
    list_schedules,
    get_schedule,
    create_schedule,
    put_schedule,
    delete_schedule,
    pause_schedule,
    resume_schedule,
    trigger_schedule,
    backfill_schedule,
    list_occurrences,
    audit_schedule,
    preview_schedule,
    preview_rule,
    lint_schedules,
]
