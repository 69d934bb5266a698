"""The form that creates or changes a schedule, with a preview of its next occurrences."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeAlias

from rota.config import is_internal_task
from rota.core.time.schedule import Calendar, Cron, Every, RRule, ScheduleSpec
from rota.errors import ConfigError, RotaError
from rota.operations.ledger import ScheduleStatus
from rota.operations.preconditions import Precondition
from rota.operations.rota import Rota
from rota.server.api.schedules import (
    NewScheduleRequest,
    PreviewRequest,
    ScheduleName,
    ScheduleRequest,
    to_spec,
)
from rota.server.dashboard.forms import Fields, convert, explain
from rota.server.dashboard.pages import Back, Html, action, back, page, show
from rota.server.dashboard.schedules import path_of, with_marks
from rota.server.dashboard.words import pretty
from rota.server.policy import OPERATOR, VIEWER
from rota.server.problems import Problem
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import DashboardStore

Reader: TypeAlias = Callable[[Fields, str], Any]

_NEXT = 12
_CHOICES = {
    "rules": ("cron", "every", "calendar", "rrule"), "overlaps": ("skip", "queue", "allow", "kill"),
    "catch_ups": ("none", "latest", "all"), "gaps": ("next", "shift", "skip"),
    "folds": ("first", "second", "both"),
}  # fmt: skip
# The fields that are read and shown alike, by the method of `Fields` that reads them.
_RULE: dict[str, Reader] = {
    "tz": Fields.text, "gap": Fields.text, "fold": Fields.text, "starts": Fields.moment,
    "ends": Fields.moment, "max_occurrences": Fields.whole, "jitter": Fields.text,
    "spread": Fields.text, "exclude": Fields.words, "include": Fields.words,
}  # fmt: skip
_REST: dict[str, Reader] = {
    "task": Fields.text, "workflow": Fields.text, "payload": Fields.object, "options": Fields.object,
    "overlap": Fields.text, "max_running": Fields.whole, "max_queued": Fields.whole, "drop": Fields.text,
    "description": Fields.text, "tags": Fields.words,
}  # fmt: skip
_BLANK = dict.fromkeys([*_RULE, *_REST], "") | {
    "name": "", "kind": "cron", "rule": "", "anchor": "", "tz": "UTC", "payload": "{}",
    "overlap": "skip", "catch_up": "none", "catch_up_within": "", "gap": "next", "fold": "first",
    "options": "{}", "paused": "",
}  # fmt: skip


@page("/schedules/new", policy=OPERATOR)
async def new_schedule(request: RotaRequest, tenant: TenantDep, stats: StatsDep) -> Html:
    return await _form(request, tenant, stats, _BLANK, None)


@page("/schedules/{name:str}/edit", policy=OPERATOR)
async def edit_schedule(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, name: ScheduleName
) -> Html:
    status = await tenant.schedules.get(await tenant.schedules.resolve(name))
    return await _form(request, tenant, stats, _stored(status), status)


async def _form(
    request: RotaRequest, tenant: Rota, stats: DashboardStore, values: dict[str, str],
    status: ScheduleStatus | None, problem: str | None = None, tag: str | None = None,
) -> Html:  # fmt: skip
    preview = await _preview(tenant, Fields({name: [value] for name, value in values.items()}))
    return await show(
        request, "schedule_edit.html", values=values, schedule=status, problem=problem,
        tag=tag or (status.tag if status else ""), path_of=path_of, tasks=await stats.tasks(),
        status=200 if problem is None else 422, **preview, **_CHOICES,
    )  # fmt: skip


@action("/schedules/preview", policy=VIEWER)
async def preview(request: RotaRequest, tenant: TenantDep) -> Html:
    """Show the next occurrences of the rule in the form. Changes nothing."""
    fields = await Fields.of(request)
    tz = fields.text("tz") or "UTC"
    return await show(request, "schedule_preview.html", tz=tz, **await _preview(tenant, fields))


async def _preview(tenant: Rota, fields: Fields) -> dict[str, Any]:
    """Return the rule in words and its next occurrences, or what is wrong with it."""
    try:
        rule = convert(_rule(fields), PreviewRequest)
        spec = to_spec(rule, fields.text("name") or "preview", "preview")
        coming = await tenant.schedules.preview(spec, _NEXT)
    except (Problem, RotaError) as error:
        wrong = explain(error)
        return {"in_words": "", "coming": [], "wrong": wrong if fields.text("rule") else None}
    return {
        "in_words": coming.in_words, "coming": with_marks(coming.occurrences), "wrong": None,
    }  # fmt: skip


@action("/schedules/new", policy=OPERATOR)
async def create(request: RotaRequest, tenant: TenantDep, stats: StatsDep) -> Back | Html:
    fields = await Fields.of(request)
    try:
        values = {**_rule(fields), **_rest(fields), "name": fields.text("name")}
        data = convert(values, NewScheduleRequest)
        spec = to_spec(data, data.name, data.task)
        saved = await tenant.schedules.put(spec, expect=Precondition(must_be_new=True))
    except (Problem, RotaError) as error:
        return await _form(request, tenant, stats, _raw(fields), None, explain(error))
    status = saved.status
    return back(request, path_of(status), f"Schedule {status.name} created: {status.in_words}.")


@action("/schedules/{name:str}/edit", policy=OPERATOR)
async def change(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, name: ScheduleName
) -> Back | Html:
    """Change a schedule, if it is still the version that the form showed (`tag`)."""
    status = await tenant.schedules.get(await tenant.schedules.resolve(name))
    fields = await Fields.of(request)
    tag = fields.text("tag")
    try:
        data = convert({**_rule(fields), **_rest(fields)}, ScheduleRequest)
        spec = to_spec(data, status.name, data.task)
        status = (await tenant.schedules.put(spec, expect=Precondition(if_match=tag))).status
    except (Problem, RotaError) as error:
        values = _raw(fields) | {"name": status.name}
        return await _form(request, tenant, stats, values, status, explain(error), tag)
    return back(request, path_of(status), f"Schedule {status.name} changed: {status.in_words}.")


def _raw(fields: Fields) -> dict[str, str]:
    return {name: fields.raw(name) for name in _BLANK}


def _rule(fields: Fields) -> dict[str, Any]:
    kind = fields.text("kind") or "cron"
    if kind not in _CHOICES["rules"]:
        raise ConfigError(f"kind: must be one of {', '.join(_CHOICES['rules'])}")
    if (rule := fields.text("rule")) is None:
        raise ConfigError("rule: is missing")
    return _read(fields, _RULE) | {
        kind: rule, "anchor": fields.moment("anchor") if kind == "every" else None,
    }  # fmt: skip


def _rest(fields: Fields) -> dict[str, Any]:
    kind, within = fields.text("catch_up"), fields.seconds("catch_up_within")
    return _read(fields, _REST) | {
        "paused": fields.flag("paused") or None,
        "catch_up": kind and {"kind": kind, "within": within},
    }


def _read(fields: Fields, table: dict[str, Reader]) -> dict[str, Any]:
    values = {name: read(fields, name) for name, read in table.items()}
    return {name: None if value == [] else value for name, value in values.items()}


def _stored(status: ScheduleStatus) -> dict[str, str]:
    """Return the fields of a stored schedule; if it can't be read, only its name and task."""
    spec = status.spec
    if spec is None:
        task = "" if is_internal_task(status.task) else status.task
        return {**_BLANK, "name": status.name, "task": task}
    kind, rule, anchor = _rule_text(spec)
    values = {name: _text(getattr(spec, name)) for name in (*_RULE, *_REST)}
    return _BLANK | values | {
        "name": spec.name, "kind": kind, "rule": rule, "anchor": anchor,
        "payload": pretty(spec.payload or {}), "options": pretty(spec.options),
        "catch_up": spec.catch_up.kind, "catch_up_within": _text(spec.catch_up.within),
        "max_queued": str(spec.max_queued), "paused": "yes" if spec.paused else "",
    }  # fmt: skip


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return " ".join(value)
    return f"{value:g}" if isinstance(value, float) and value else str(value or "")


def _rule_text(spec: ScheduleSpec) -> tuple[str, str, str]:
    match spec.rule:
        case Cron(expression):
            return "cron", expression, ""
        case Every(seconds, anchor):
            return "every", f"{seconds:g}", anchor.isoformat() if anchor else ""
        case Calendar(phrase):
            return "calendar", phrase, ""
        case RRule(text):
            return "rrule", text, ""


ROUTES = [new_schedule, edit_schedule, preview, create, change]
