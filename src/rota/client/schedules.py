"""What is said about schedules: `client.schedules`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, Unpack
from urllib.parse import quote

import msgspec

from rota.client import wire
from rota.client.asking import Answer, Ask, Page, Talk, get, post, read
from rota.client.listing import Pages
from rota.client.problems import error_of
from rota.errors import NotFound
from rota.operations.ledger import OccurrenceStatus, Preview, ScheduleStatus

_PATH = "/v1/schedules"


def _path(name: str) -> Talk[str]:
    """Its place. A name with a slash in it doesn't fit into a path: then its id is looked up."""
    if "/" not in name:
        return f"{_PATH}/{quote(name, safe='')}"
    pages = listing(text=name)
    while pages.is_more:
        for found in (yield from pages.ask()):
            if found.name == name:
                return f"{_PATH}/{found.id}"
    raise NotFound(f"there is no schedule {name!r}")


def _said(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in settings.items()
        if value is not None
    }


def create(name: str, task: str, **settings: Unpack[wire.ScheduleSettings]) -> Talk[ScheduleStatus]:
    """A new schedule; `Conflict` if there is one of that name."""
    body = {"name": name, "task": task, **_said(settings)}
    return post(_PATH, ScheduleStatus, body, repeatable=True)


def put(
    name: str, task: str, *, only_version: ScheduleStatus | None = None,
    **settings: Unpack[wire.ScheduleSettings],
) -> Talk[ScheduleStatus]:  # fmt: skip
    """Create a schedule, or change it from now on. With `only_version`, as you read it before, nothing
    is changed (and `Conflict` raised) if somebody else has changed it since."""
    try:
        path = yield from _path(name)
    except NotFound:
        if only_version is not None:
            raise
        return (yield from create(name, task, **settings))
    headers = _if_match(only_version)
    body = msgspec.json.encode({"task": task, **_said(settings)})
    answer = yield Ask(method="PUT", path=path, body=body, headers=headers, repeatable=not headers)
    return read(answer, ScheduleStatus)


def _if_match(seen: ScheduleStatus | None) -> dict[str, str]:
    return {} if seen is None else {"If-Match": seen.tag}


def delete(name: str, *, only_version: ScheduleStatus | None = None) -> Talk[None]:
    """Its ledger and its jobs stay until their retention is over."""
    path = yield from _path(name)
    headers = _if_match(only_version)
    answer = yield Ask(method="DELETE", path=path, headers=headers, repeatable=True)
    assert answer is not None
    if not answer.is_good and not _done_before(answer):
        raise error_of(answer)


def _done_before(answer: Answer) -> bool:
    return answer.repeated and answer.status == 404


def fetch(name: str) -> Talk[ScheduleStatus]:
    """A schedule by its name or its id."""
    return (yield from get((yield from _path(name)), ScheduleStatus))


def listing(
    *, task: str | None = None, tag: str | None = None, paused: bool | None = None,
    text: str | None = None, limit: int | None = None, page_size: int = 100,
) -> Pages[ScheduleStatus]:  # fmt: skip
    """The schedules that match, by name."""
    query = {"task": task, "tag": tag, "paused": paused, "text": text}
    return Pages(_PATH, Page[ScheduleStatus], query, limit, page_size)


def pause(name: str, *, until: datetime | None = None) -> Talk[ScheduleStatus]:
    """No occurrence fires until it is resumed, or `until`; what runs goes on."""
    path = yield from _path(name)
    body = None if until is None else {"until": until}
    return (yield from post(f"{path}/pause", ScheduleStatus, body, repeatable=True))


def resume(name: str) -> Talk[ScheduleStatus]:
    """The catch-up policy decides about what was due during the pause."""
    path = yield from _path(name)
    return (yield from post(f"{path}/resume", ScheduleStatus, repeatable=True))


def trigger(name: str) -> Talk[wire.Triggered]:
    """Run it once, now, beside its rule. Not repeated when an answer is lost: it would run twice."""
    path = yield from _path(name)
    return (yield from post(f"{path}/trigger", wire.Triggered))


def backfill(
    name: str, first: datetime, end: datetime, *, max_parallel: int | None = None,
    dry_run: bool = False,
) -> Talk[wire.Backfilled]:  # fmt: skip
    """Run the occurrences of a past stretch of time that have no row in the ledger. Repeated when an
    answer is lost: an occurrence that is in the ledger by then isn't run, nor counted, again."""
    path = yield from _path(name)
    body = {"first": first, "end": end, "max_parallel": max_parallel, "dry_run": dry_run}
    return (yield from post(f"{path}/backfill", wire.Backfilled, body, repeatable=True))


class _Occurrences(Pages[OccurrenceStatus]):
    def __init__(self, name: str, query: Mapping[str, Any], limit: int | None, size: int) -> None:
        self._name = name
        super().__init__("", Page[OccurrenceStatus], query, limit, size)

    def ask(self) -> Talk[list[OccurrenceStatus]]:
        self._path = self._path or (yield from _path(self._name)) + "/occurrences"
        return (yield from super().ask())


def occurrences(
    name: str, *, first: datetime | None = None, end: datetime | None = None,
    state: Literal["fired", "skipped"] | None = None, limit: int | None = None,
    page_size: int = 100,
) -> Pages[OccurrenceStatus]:  # fmt: skip
    """Every occurrence of a stretch of time (the last day), and what became of it; oldest first."""
    return _Occurrences(name, {"first": first, "end": end, "state": state}, limit, page_size)


def audit(
    name: str, *, first: datetime | None = None, end: datetime | None = None
) -> Talk[wire.AuditReport]:
    """Recompute what must be in the ledger of a stretch of time (the last week), and compare."""
    path = yield from _path(name)
    return (yield from get(f"{path}/audit", wire.AuditReport, first=first, end=end))


def preview(name: str, *, count: int = 10, after: datetime | None = None) -> Talk[Preview]:
    """The next occurrences of a schedule."""
    path = yield from _path(name)
    return (yield from get(f"{path}/preview", Preview, count=count, after=after))


def preview_rule(
    *, name: str = "preview", count: int = 10, after: datetime | None = None,
    **rule: Unpack[wire.RuleSettings],
) -> Talk[Preview]:  # fmt: skip
    """The next occurrences of a rule that isn't saved."""
    body = {"name": name, "count": count, "after": after, **_said(rule)}
    return post(f"{_PATH}:preview", Preview, body, repeatable=True)


def lint(*, herd: int = 100) -> Talk[wire.Lint]:
    """What will go badly, before it does."""
    return get(f"{_PATH}:lint", wire.Lint, herd=herd)
