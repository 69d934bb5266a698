"""Schedules of a server. Rules are computed here, with the server's calendars."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.cli.remote.noun import PAGE, Noun, collect
from rota.core.time.calendars import NamedCalendar
from rota.core.time.lint import Warned
from rota.core.time.recurrence import Recurrence
from rota.core.time.schedule import ScheduleSpec, compile_schedule
from rota.core.time.status import (
    Audit,
    OccurrenceStatus,
    ScheduleStatus,
)
from rota.operations.schedules import Saved

Schedules = list[ScheduleStatus]


class RemoteSchedules(Noun):
    async def list(self) -> Schedules:
        return await collect(self._client.schedules.list(page_size=PAGE))

    async def pages(
        self, *, task: str | None = None, tag: str | None = None
    ) -> AsyncIterator[Schedules]:
        page: Schedules = []
        async for one in self._client.schedules.list(task=task, tag=tag, page_size=PAGE):
            page.append(one)
            if len(page) == PAGE:
                yield page
                page = []
        if page:
            yield page

    async def calendars(self) -> dict[str, NamedCalendar]:
        return {each.name: each for each in await self._client.schedules.calendars()}

    async def compile_spec(self, spec: ScheduleSpec) -> Recurrence:
        calendars = await self.calendars() if spec.exclude or spec.include else {}
        return compile_schedule(spec, calendars)

    async def occurrences(
        self, name: str, first: datetime, end: datetime, limit: int = 1000, *,
        state: Any = None,
    ) -> Sequence[OccurrenceStatus]:  # fmt: skip
        found = self._client.schedules.occurrences(
            name, first=first, end=end, state=state, limit=limit, page_size=PAGE
        )
        return await collect(found)

    async def audit(self, name: str, first: datetime, end: datetime) -> Audit:
        return (await self._client.schedules.audit(name, first=first, end=end)).audit

    async def lint(self, herd: int = 100) -> Sequence[Warned]:
        return (await self._client.schedules.lint(herd=herd)).warnings

    async def check_tasks(self, specs: Iterable[ScheduleSpec]) -> Sequence[Warned]:
        return (await self._client.schedules.check([_to_request(spec) for spec in specs])).warnings

    async def put(self, spec: ScheduleSpec, *, source: str = "api") -> Saved:
        [change] = await self._client.schedules.apply([_to_request(spec)], source=source)
        status = await self._client.schedules.get(spec.name)
        about = f"schedule {spec.name!r}: "
        warnings = tuple(
            each.message.removeprefix(about) for each in await self.check_tasks([spec])
        )
        status = msgspec.structs.replace(status, warnings=warnings)
        return msgspec.convert({"change": change, "status": status}, Saved)

    async def put_calendar(self, calendar: NamedCalendar) -> None:
        await self._client.schedules.apply([], calendars=[calendar])

    async def put_all(
        self, specs: Sequence[ScheduleSpec], *, delete: Sequence[str] = (), source: str = "api"
    ) -> Sequence[str]:
        requests = [_to_request(spec) for spec in specs]
        return await self._client.schedules.apply(requests, delete=delete, source=source)


def _to_request(spec: ScheduleSpec) -> dict[str, Any]:
    """Return a schedule as the server reads it."""
    fields = msgspec.to_builtins(spec)
    return {name: value for name, value in fields.items() if value is not None}
