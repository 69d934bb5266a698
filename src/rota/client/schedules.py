"""`client.schedules`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack
from urllib.parse import quote

from rota.client import wire
from rota.client.connections import C, Resource, call, iteration
from rota.client.exchanges import Exchange, Page, Pages, fetch, send
from rota.client.problems import error_from
from rota.client.transport import Request
from rota.core.time.calendars import NamedCalendar
from rota.core.time.status import (
    LatestOccurrence,
    LoadForecast,
    OccurrenceStatus,
    Preview,
    ScheduleStatus,
)
from rota.errors import NotFound
from rota.model import Backfilled, Triggered

_PATH = "/v1/schedules"
_NAMES = 100  # in one request


class Schedules(Resource[C]):
    """`client.schedules`"""

    @call
    def create(
        self, name: str, task: str | None = None, **settings: Unpack[wire.ScheduleSettings]
    ) -> Exchange[ScheduleStatus]:
        """Create a schedule of a task, or of a ``workflow=``. Raises `Conflict` if one of that name
        exists."""
        return _create(name, task, settings)

    @call
    def put(
        self, name: str, task: str | None = None, *, only_version: ScheduleStatus | None = None,
        **settings: Unpack[wire.ScheduleSettings],
    ) -> Exchange[ScheduleStatus]:  # fmt: skip
        """Create a schedule, or change it from now on. With `only_version`, a schedule as you read it
        before, nothing is changed and `Conflict` is raised if it has been changed since."""
        try:
            path = yield from _path(name)
        except NotFound:
            if only_version is not None:
                raise
            return (yield from _create(name, task, settings))
        headers = _if_match(only_version)
        body = {"task": task, **_encoded(settings)}
        return (
            yield from send(
                "PUT", path, ScheduleStatus, body, headers=headers, repeatable=not headers
            )
        )

    @call
    def delete(self, name: str, *, only_version: ScheduleStatus | None = None) -> Exchange[None]:
        """Delete a schedule. Its ledger and its jobs stay until their retention is over."""
        path = yield from _path(name)
        headers = _if_match(only_version)
        response = yield Request(method="DELETE", path=path, headers=headers, repeatable=True)
        assert response is not None
        deleted_before = response.repeated and response.status == 404
        if not response.is_success and not deleted_before:
            raise error_from(response)

    @call
    def get(self, name: str) -> Exchange[ScheduleStatus]:
        """Return a schedule by its name or its id."""
        return (yield from fetch((yield from _path(name)), ScheduleStatus))

    @iteration
    def list(
        self, *, task: str | None = None, tag: str | None = None, paused: bool | None = None,
        text: str | None = None, limit: int | None = None, page_size: int = 100,
    ) -> Pages[ScheduleStatus]:  # fmt: skip
        """List the schedules that match, by name."""
        query = {"task": task, "tag": tag, "paused": paused, "text": text}
        return Pages(_PATH, Page[ScheduleStatus], query, limit, page_size)

    @call
    def pause(self, name: str, *, until: datetime | None = None) -> Exchange[ScheduleStatus]:
        """Pause a schedule until it is resumed, or `until`. Running jobs continue."""
        body = None if until is None else {"until": until}
        path = yield from _path(name, "/pause")
        return (yield from send("POST", path, ScheduleStatus, body, repeatable=True))

    @call
    def resume(self, name: str) -> Exchange[ScheduleStatus]:
        """Resume a schedule. Its catch-up policy decides about occurrences during the pause."""
        path = yield from _path(name, "/resume")
        return (yield from send("POST", path, ScheduleStatus, repeatable=True))

    @call
    def trigger(self, name: str) -> Exchange[Triggered]:
        """Run a schedule once, now, beside its rule. The request is not repeated when a response is
        lost: it would run twice."""
        return (yield from send("POST", (yield from _path(name, "/trigger")), Triggered))

    @call
    def backfill(
        self, name: str, first: datetime, end: datetime, *, max_parallel: int | None = None,
        dry_run: bool = False,
    ) -> Exchange[Backfilled]:  # fmt: skip
        """Run the occurrences of a past period that the ledger doesn't have. The request is repeated
        when a response is lost: an occurrence in the ledger is neither run nor counted again."""
        body = {"first": first, "end": end, "max_parallel": max_parallel, "dry_run": dry_run}
        path = yield from _path(name, "/backfill")
        return (yield from send("POST", path, Backfilled, body, repeatable=True))

    @iteration
    def occurrences(
        self, name: str, *, first: datetime | None = None, end: datetime | None = None,
        state: Literal["fired", "skipped"] | None = None, limit: int | None = None,
        page_size: int = 100,
    ) -> Pages[OccurrenceStatus]:  # fmt: skip
        """List the occurrences of a period (the last day) with their outcomes, oldest first."""
        path = _path(name, "/occurrences")
        query = {"first": first, "end": end, "state": state}
        return Pages(path, Page[OccurrenceStatus], query, limit, page_size)

    @call
    def audit(
        self, name: str, *, first: datetime | None = None, end: datetime | None = None
    ) -> Exchange[wire.AuditReport]:
        """Compare the ledger of a period (the last week) with the rule."""
        path = yield from _path(name, "/audit")
        return (yield from fetch(path, wire.AuditReport, first=first, end=end))

    @call
    def preview(
        self, name: str, *, count: int = 10, after: datetime | None = None
    ) -> Exchange[Preview]:
        """Return the next occurrences of a schedule."""
        path = yield from _path(name, "/preview")
        return (yield from fetch(path, Preview, count=count, after=after))

    @call
    def preview_rule(
        self, *, name: str = "preview", count: int = 10, after: datetime | None = None,
        **rule: Unpack[wire.RuleSettings],
    ) -> Exchange[Preview]:  # fmt: skip
        """Return the next occurrences of a rule that isn't stored."""
        body = {"name": name, "count": count, "after": after, **_encoded(rule)}
        return send("POST", f"{_PATH}:preview", Preview, body, repeatable=True)

    @call
    def latest(
        self, name: str | None = None, limit: int = 1
    ) -> Exchange[Sequence[LatestOccurrence]]:
        """Return the newest occurrences, newest first: of one schedule, or of each."""
        found: list[LatestOccurrence] = []
        after: str | None = None
        while True:
            path, kind = f"{_PATH}:latest", wire.LatestOccurrences
            page = yield from fetch(path, kind, name=name, limit=limit, after=after)
            found += page.items
            after = page.next
            if after is None:
                return found

    @call
    def latest_of(
        self, names: Sequence[str], limit: int = 1
    ) -> Exchange[Sequence[LatestOccurrence]]:
        """Return the newest occurrences of each of these schedules, newest first."""
        found: list[LatestOccurrence] = []
        for first in range(0, len(names), _NAMES):
            asked = list(names[first : first + _NAMES])
            path, kind = f"{_PATH}:latest", wire.LatestOccurrences
            found += (yield from fetch(path, kind, name=asked, limit=limit)).items
        return found

    @call
    def calendars(self) -> Exchange[Sequence[NamedCalendar]]:
        """Return the named calendars of the namespace."""
        return (yield from fetch(f"{_PATH}:calendars", wire.CalendarList)).items

    @call
    def forecast(
        self, days: int = 7, *, slots: int | None = None,
        durations: Mapping[str, float] | None = None, assumed: float = 1.0,
    ) -> Exchange[LoadForecast]:  # fmt: skip
        """Forecast the coming days: all occurrences against the usual durations of their tasks."""
        body = {"days": days, "slots": slots, "durations": durations or {}, "assumed": assumed}
        return send("POST", f"{_PATH}:forecast", LoadForecast, body, repeatable=True)

    @call
    def check(self, schedules: Sequence[Mapping[str, Any]]) -> Exchange[wire.Lint]:
        """Check schedules that aren't stored: their tasks, and the arguments that these take."""
        body = {"schedules": schedules}
        return send("POST", f"{_PATH}:check", wire.Lint, body, repeatable=True)

    @call
    def apply(
        self, schedules: Sequence[Mapping[str, Any]], *, delete: Sequence[str] = (),
        calendars: Sequence[NamedCalendar] = (), source: str = "api",
    ) -> Exchange[Sequence[str]]:  # fmt: skip
        """Store calendars, then create, change and delete schedules in one transaction. Each schedule is
        a mapping of its `name` and the settings that `put` takes."""
        body = {"schedules": schedules, "delete": delete, "calendars": calendars, "source": source}
        sent = send("POST", f"{_PATH}:apply", wire.ScheduleChanges, body, repeatable=True)
        return (yield from sent).changes

    @call
    def lint(self, *, herd: int = 100) -> Exchange[wire.Lint]:
        """Check schedules for problems."""
        return fetch(f"{_PATH}:lint", wire.Lint, herd=herd)


def _create(name: str, task: str | None, settings: Mapping[str, Any]) -> Exchange[ScheduleStatus]:
    body = {"name": name, "task": task, **_encoded(settings)}
    return send("POST", _PATH, ScheduleStatus, body, repeatable=True)


def _path(name: str, rest: str = "") -> Exchange[str]:
    """Return the path of a schedule. A name with a slash doesn't fit into one: its id is looked up."""
    if "/" not in name:
        return f"{_PATH}/{quote(name, safe='')}{rest}"
    pages = Pages(_PATH, Page[ScheduleStatus], {"text": name}, None, 100)
    while pages.is_more:
        for found in (yield from pages.next_page()):
            if found.name == name:
                return f"{_PATH}/{found.id}{rest}"
    raise NotFound(f"there is no schedule {name!r}")


def _encoded(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in settings.items()
        if value is not None
    }


def _if_match(seen: ScheduleStatus | None) -> dict[str, str]:
    return {} if seen is None else {"If-Match": seen.tag}
