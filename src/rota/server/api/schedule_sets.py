"""REST routes of all schedules of a namespace together: for files of them, and for forecasts."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from litestar import get, post
from litestar.params import JSONBody, QueryParameter
from msgspec import Meta

from rota.client.wire import CalendarList, LatestOccurrences, Lint, ScheduleChanges
from rota.core.time.calendars import NamedCalendar
from rota.core.time.schedule import ScheduleSpec
from rota.core.time.status import LoadForecast
from rota.server.api.schedules import NewScheduleRequest, to_spec
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import TenantDep

_MOST = 10_000  # schedules in one request
Name = Annotated[str, Meta(min_length=1, max_length=200)]


@get("/v1/schedules:latest", policy=VIEWER, summary="List the newest occurrences of schedules")
async def list_latest(
    tenant: TenantDep,
    names: Annotated[
        list[Annotated[str, QueryParameter(max_length=200)]] | None,
        QueryParameter(name="name", description="Only of these. Repeatable.", max_items=100),
    ] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=100, description="Of each schedule.")] = 1,
    after: Annotated[
        str | None,
        QueryParameter(
            max_length=200, description="Only of schedules whose names come after this."
        ),
    ] = None,
) -> LatestOccurrences:
    """Newest first, by schedule: of 500 schedules. `next` is the name to go on after."""
    if names:
        return LatestOccurrences(await tenant.schedules.latest_of(names, limit))
    return LatestOccurrences(*await tenant.schedules.latest_page(limit, after=after))


@get("/v1/schedules:calendars", policy=VIEWER, summary="List the named calendars")
async def list_calendars(tenant: TenantDep) -> CalendarList:
    """The calendars that schedules exclude or include by name."""
    return CalendarList(list((await tenant.schedules.calendars()).values()))


class ForecastRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`slots`: of workers, by default those that are alive. `durations`: seconds by task, in place of
    those that were measured. `assumed`: seconds of tasks that were never measured."""

    days: Annotated[int, Meta(ge=1, le=92)] = 7
    slots: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    durations: Annotated[
        dict[Name, Annotated[float, Meta(ge=0, le=1e9)]], Meta(max_length=1000)
    ] = {}
    assumed: Annotated[float, Meta(ge=0, le=1e9)] = 1.0


@post("/v1/schedules:forecast", policy=VIEWER, summary="Forecast the load", status_code=200)
async def forecast_load(tenant: TenantDep, data: JSONBody[ForecastRequest]) -> LoadForecast:
    """All occurrences of the coming days, against the usual durations of their tasks."""
    return await tenant.schedules.forecast(
        data.days, slots=data.slots, durations=data.durations, assumed=data.assumed
    )


class ScheduleSet(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Schedules to store and to delete, and calendars that they name."""

    schedules: Annotated[list[NewScheduleRequest], Meta(max_length=_MOST)] = []
    calendars: Annotated[list[NamedCalendar], Meta(max_length=1000)] = []
    delete: Annotated[list[Name], Meta(max_length=_MOST)] = []
    source: Literal["api", "cli", "file", "crontab"] = "api"

    def specs(self) -> list[ScheduleSpec]:
        return [to_spec(each, each.name, each.task) for each in self.schedules]


@post("/v1/schedules:check", policy=VIEWER, summary="Check schedules", status_code=200)
async def check_schedules(tenant: TenantDep, data: JSONBody[ScheduleSet]) -> Lint:
    """Warn of tasks that no node has registered, and of arguments that a task doesn't take. Nothing is
    stored."""
    return Lint(await tenant.schedules.check_tasks(data.specs()))


@post("/v1/schedules:apply", policy=OPERATOR, summary="Apply many schedules", status_code=200)
async def apply_schedules(tenant: TenantDep, data: JSONBody[ScheduleSet]) -> ScheduleChanges:
    """Store the calendars, then all schedules in one transaction: all of them, or none."""
    specs = data.specs()
    for calendar in data.calendars:
        await tenant.schedules.put_calendar(calendar)
    for spec in specs:  # refuse a rule that takes too long, before anything is locked
        await tenant.schedules.preview(spec, 1)
    changes = await tenant.schedules.put_all(specs, delete=data.delete, source=data.source)
    return ScheduleChanges(changes)


ROUTES = [list_latest, list_calendars, forecast_load, check_schedules, apply_schedules]
