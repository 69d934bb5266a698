"""The pages of events, endpoints and named calendars."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Annotated
from urllib.parse import quote

import msgspec
from litestar.params import QueryParameter

from rota.core.time.calendar_text import calendar_from_lines
from rota.core.time.calendars import NamedCalendar, calendar_from_holidays, calendar_from_ics
from rota.errors import ConfigError
from rota.model import Event
from rota.operations.endpoints import shown_endpoint
from rota.operations.event_text import sentence
from rota.operations.rota import Rota
from rota.operations.webhooks import KINDS
from rota.server.api.endpoints import EndpointName, EndpointRequest
from rota.server.dashboard import pages
from rota.server.dashboard.form_errors import NO_ERRORS, Errors
from rota.server.dashboard.forms import Fields, convert
from rota.server.policy import ADMIN, OPERATOR, VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import DashboardStore
from rota.store.search import JobFilter

_ROWS = 100
_JOBS = 20
_ENDPOINTS = 50
_YEARS = range(1971, 2200)
_MOST_TEXT = 200_000
Kind = Annotated[str | None, QueryParameter(max_length=50)]

# -- events


class ShownEvent(msgspec.Struct, frozen=True):
    event: Event
    sentence: str


@pages.page("/events", policy=VIEWER)
async def show_events(request: RotaRequest, tenant: TenantDep, kind: Kind = None) -> pages.Html:
    events = await tenant.events.list(kind=kind or None, limit=_ROWS)
    shown = [
        ShownEvent(one, sentence({"kind": one.kind, "task": one.task, "detail": one.detail}))
        for one in events
    ]
    address = "/v1/events" + (f"?kind={quote(kind)}" if kind else "")
    return await pages.show(
        request, "events.html", events=shown, kind=kind or "", kinds=KINDS, full=len(events) == _ROWS,
        how=[pages.Copyable(
            "List these events", cli=pages.cli("events", *(("--kind", kind) if kind else ())),
            curl=pages.curl("GET", address), python=f"await app.events.list(kind={kind!r})",
        )],
    )  # fmt: skip


# -- endpoints

_ENDPOINT_LABELS = {
    "name": "Name", "url": "URL", "queue": "Queue", "timeout": "Timeout", "guarantee": "Guarantee",
    "callback_timeout": "Callback timeout", "secret": "Secret",
}  # fmt: skip


@pages.page("/endpoints", policy=VIEWER)
async def show_endpoints(request: RotaRequest, stats: StatsDep, skip: pages.Skip = 0) -> pages.Html:
    return await _show_endpoints(request, stats, skip=skip)


async def _show_endpoints(
    request: RotaRequest, stats: DashboardStore, secret: str | None = None, *,
    fields: Fields | None = None, errors: Errors = NO_ERRORS, skip: int = 0,
) -> pages.Html:  # fmt: skip
    rows = await stats.endpoints(skip=skip, most=_ENDPOINTS + 1)
    found = pages.part(request, [shown_endpoint(row) for row in rows], skip, _ENDPOINTS)
    return await pages.show(
        request, "endpoints.html", endpoints=found, secret=secret,
        said=fields or Fields({}), errors=errors, status=422 if errors else 201 if secret else 200,
        may_change=request.principal.holds("endpoints:manage"), how=[
            pages.Copyable("List the endpoints", cli=pages.cli("endpoints", "list"),
                           curl=pages.curl("GET", "/v1/endpoints")),
        ],
    )  # fmt: skip


@pages.action("/endpoints", policy=ADMIN)
async def add_endpoint(request: RotaRequest, tenant: TenantDep, stats: StatsDep) -> pages.Html:
    """Add an endpoint. The answer is the only page that ever shows its secret."""
    fields, errors = await Fields.of(request), Errors(_ENDPOINT_LABELS)
    values = fields.read(
        {"name": Fields.text, "url": Fields.text, "queue": Fields.text, "guarantee": Fields.text,
         "timeout": Fields.seconds, "callback_timeout": Fields.seconds}, errors,
    )  # fmt: skip
    if not errors:
        with errors.at("url"):
            body = convert({"name": "", "url": "", **{k: v for k, v in values.items() if v}},
                           EndpointRequest)  # fmt: skip
            made = await tenant.endpoints.add(
                body.name, body.url, queue=body.queue, guarantee=body.guarantee,
                timeout=body.timeout, callback_timeout=body.callback_timeout,
            )  # fmt: skip
            return await _show_endpoints(request, stats, made.secret)
    return await _show_endpoints(request, stats, fields=fields, errors=errors)


@pages.page("/endpoints/{name:str}", policy=VIEWER)
async def show_endpoint(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, name: EndpointName
) -> pages.Html:
    endpoint = await tenant.endpoints.get(name)
    looked = await tenant.jobs.look(JobFilter(task=name), limit=_JOBS)
    return await pages.show(
        request, "endpoint.html", endpoint=endpoint, looked=looked,
        errors_by_kind=(await stats.dead_groups(name)).groups[:8],
        may_change=request.principal.holds("endpoints:manage"), how=[
            pages.Copyable("Show this endpoint", curl=pages.curl("GET", f"/v1/endpoints/{name}")),
        ],
    )  # fmt: skip


@pages.action("/endpoints/{name:str}/change", policy=ADMIN, on_error="/endpoints/{name}")
async def change_endpoint(
    request: RotaRequest, tenant: TenantDep, name: EndpointName
) -> pages.Back:
    fields = await Fields.of(request)
    await tenant.endpoints.get(name)  # raises NotFound
    given = {
        "url": fields.text("url"), "queue": fields.text("queue"),
        "timeout": fields.seconds("timeout"), "callback_timeout": fields.seconds("callback_timeout"),
    }  # fmt: skip
    await tenant.endpoints.change(name, **{key: value for key, value in given.items() if value})
    text = f"Endpoint {name} changed: it holds for pushes from a few seconds later on."
    return pages.back(request, f"/endpoints/{name}", text)


@pages.action("/endpoints/{name:str}/remove", policy=ADMIN)
async def remove_endpoint(
    request: RotaRequest, tenant: TenantDep, name: EndpointName
) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, remove the endpoint."""
    if not (await Fields.of(request)).flag("sure"):
        endpoint = await tenant.endpoints.get(name)
        return await pages.confirm(
            request, f"Remove endpoint {name}?", endpoint.url,
            "Its jobs stay in their queue, and wait until there is an endpoint or a worker for them. "
            "This can't be undone.",
            path=f"/endpoints/{name}/remove", word="Remove the endpoint",
            target=pages.Here(request).url(f"/endpoints/{name}"),
        )  # fmt: skip
    await tenant.endpoints.remove(name)
    text = f"Endpoint {name} removed. Its jobs stay in their queue."
    return pages.back(request, "/endpoints", text)


# -- named calendars

_CALENDAR_LABELS = {"name": "Name", "text": "Days", "country": "Country", "year": "Year"}


class MonthOf(msgspec.Struct, frozen=True):
    name: str
    before: int  # blanks before the first day, of a week that begins on Monday
    days: Sequence[tuple[date, bool]]


@pages.page("/calendars", policy=VIEWER)
async def show_calendars(
    request: RotaRequest, tenant: TenantDep,
    name: Annotated[str | None, QueryParameter(max_length=200)] = None,
    year: Annotated[int | None, QueryParameter(ge=_YEARS[0], le=_YEARS[-1])] = None,
) -> pages.Html:  # fmt: skip
    return await _show_calendars(request, tenant, name, year)


async def _show_calendars(
    request: RotaRequest, tenant: Rota, name: str | None = None, year: int | None = None, *,
    fields: Fields | None = None, errors: Errors = NO_ERRORS,
) -> pages.Html:  # fmt: skip
    calendars = await tenant.schedules.calendars()
    now = await (await tenant.store()).now()
    chosen = calendars.get(name) if name else next(iter(calendars.values()), None)
    if name and chosen is None and not errors:
        raise ConfigError(f"name: there is no calendar {name!r}", field="name")
    shown = year or now.year
    return await pages.show(
        request, "calendars.html", now=now, calendars=[*calendars.values()], chosen=chosen, year=shown,
        months=_months(chosen, shown) if chosen else (), said=fields or Fields({}), errors=errors,
        status=422 if errors else 200, how=[pages.Copyable(
            "List the calendars", curl=pages.curl("GET", "/v1/schedules:calendars"),
            python="await app.schedules.calendars()",
        )],
    )  # fmt: skip


def _months(calendar: NamedCalendar, year: int) -> list[MonthOf]:
    found = []
    for month in range(1, 13):
        first = date(year, month, 1)
        end = date(year + month // 12, month % 12 + 1, 1)
        days = [first + timedelta(days=n) for n in range((end - first).days)]
        found.append(
            MonthOf(f"{first:%B}", first.weekday(), [(d, calendar.covers(d)) for d in days])
        )
    return found


@pages.action("/calendars", policy=OPERATOR)
async def put_calendar(request: RotaRequest, tenant: TenantDep) -> pages.Back | pages.Html:
    """Create or replace a calendar, from lines of days, an iCalendar text or a country's holidays."""
    fields, errors = await Fields.of(request), Errors(_CALENDAR_LABELS)
    name, text = fields.text("name") or "", fields.raw("text")[:_MOST_TEXT]
    with errors.at("text"):
        made = _made(name, text, fields, (await (await tenant.store()).now()).year)
        replaced = name in await tenant.schedules.calendars()
        if replaced and not fields.flag("replace"):
            raise ConfigError(
                f"name: there is a calendar {name!r}: tick “replace” to change it", field="name"
            )
        await tenant.schedules.put_calendar(made)
        word = "replaced" if replaced else "created"
        return pages.back(request, pages.Here(request).url("/calendars", name=name),
                          f"Calendar {name} {word}.")  # fmt: skip
    return await _show_calendars(request, tenant, fields=fields, errors=errors)


def _made(name: str, text: str, fields: Fields, year: int) -> NamedCalendar:
    if not name or len(name) > 200 or not name.isprintable():
        raise ConfigError("name: must have 1 to 200 printable characters", field="name")
    if country := fields.text("country"):
        return calendar_from_holidays(name, country.upper()[:10], range(year, year + 10))
    if "BEGIN:VCALENDAR" in text.upper():
        return calendar_from_ics(name, text)
    return calendar_from_lines(name, text)


ROUTES = [
    show_events, show_endpoints, add_endpoint, show_endpoint, change_endpoint, remove_endpoint,
    show_calendars, put_calendar,
]  # fmt: skip
