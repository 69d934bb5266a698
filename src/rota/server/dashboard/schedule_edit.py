"""The form that creates or changes a schedule, with a preview of its next occurrences."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any

from rota.config import is_internal_task
from rota.core.time.schedule import (
    Calendar,
    Cron,
    Every,
    RRule,
    ScheduleSpec,
    check_schedule_name,
)
from rota.core.time.status import ScheduleStatus
from rota.errors import ConfigError
from rota.operations.preconditions import Precondition
from rota.operations.rota import Rota
from rota.server.api.schedules import (
    NewScheduleRequest,
    PreviewRequest,
    ScheduleName,
    ScheduleRequest,
    to_spec,
)
from rota.server.dashboard.form_errors import NO_ERRORS, Errors
from rota.server.dashboard.forms import Fields, Reader, convert
from rota.server.dashboard.pages import Back, Html, action, back, page, show, zone_name
from rota.server.dashboard.schedules import path_of, with_marks
from rota.server.dashboard.words import pretty, written
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import DashboardStore

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


# As the form calls them. The rule is one field, whatever its kind.
_LABELS = {
    "name": "Name", "task": "Task", "workflow": "Workflow", "description": "Description",
    "payload": "Payload", "kind": "Kind of rule", "rule": "Rule", "tz": "Time zone", "starts": "From",
    "ends": "To", "max_occurrences": "Maximum occurrences", "overlap": "Overlap",
    "max_running": "Maximum running", "max_queued": "Maximum waiting", "catch_up": "Catch up",
    "catch_up_within": "Catch up within", "gap": "Skipped hour", "fold": "Repeated hour",
    "jitter": "Jitter", "spread": "Spread", "exclude": "Not on", "include": "Only on",
    "anchor": "Counted from", "tags": "Tags", "options": "Options of its jobs",
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
    status: ScheduleStatus | None, errors: Errors = NO_ERRORS, tag: str | None = None,
) -> Html:  # fmt: skip
    fields = Fields({name: [value] for name, value in values.items()}, zone_name(request))
    return await show(
        request, "schedule_edit.html", values=values, schedule=status, errors=errors,
        tag=tag or (status.tag if status else ""), path_of=path_of, tasks=await stats.tasks(),
        status=422 if errors else 200, **await _preview(tenant, fields), **_CHOICES,
    )  # fmt: skip


@action("/schedules/preview", policy=VIEWER)
async def preview(request: RotaRequest, tenant: TenantDep) -> Html:
    """Show the next occurrences of the rule in the form. Changes nothing."""
    fields = await Fields.of(request)
    tz = fields.text("tz") or "UTC"
    return await show(request, "schedule_preview.html", tz=tz, **await _preview(tenant, fields))


async def _preview(tenant: Rota, fields: Fields) -> dict[str, Any]:
    """Return the rule in words and its next occurrences, or what is wrong with it."""
    errors = Errors(_LABELS)
    rule = _rule(fields, errors)
    if not errors:
        with errors.at("rule"):
            # A name that is wrong must not hide what is wrong with the rule.
            name = fields.text("name") or "preview"
            with contextlib.suppress(ConfigError):
                check_schedule_name(name)
                rule["name"] = name
            request = convert(rule, PreviewRequest)
            spec = to_spec(request, request.name, "preview")
            coming = await tenant.schedules.preview(spec, _NEXT)
            found = with_marks(coming.occurrences)
            return {"in_words": coming.in_words, "coming": found, "wrong": None}
    wrong = "; ".join(errors.lines) if fields.text("rule") else None
    return {"in_words": "", "coming": [], "wrong": wrong}


@action("/schedules/new", policy=OPERATOR)
async def create(request: RotaRequest, tenant: TenantDep, stats: StatsDep) -> Back | Html:
    fields, errors = await Fields.of(request), Errors(_LABELS)
    name = fields.text("name") or ""
    with errors.at("name"):
        check_schedule_name(name)
    values = await _checked(tenant, fields, errors)
    if not errors:
        with errors.at():
            data = convert({**values, "name": name}, NewScheduleRequest)
            spec = to_spec(data, data.name, data.task)
            saved = await tenant.schedules.put(spec, expect=Precondition(must_be_new=True))
            return _saved(request, saved.status, "created")
    return await _form(request, tenant, stats, _raw(fields), None, errors)


@action("/schedules/{name:str}/edit", policy=OPERATOR)
async def change(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, name: ScheduleName
) -> Back | Html:
    """Change a schedule, if it is still the version that the form showed (`tag`)."""
    status = await tenant.schedules.get(await tenant.schedules.resolve(name))
    fields, errors = await Fields.of(request), Errors(_LABELS)
    tag = fields.text("tag")
    values = await _checked(tenant, fields, errors)
    if not errors:
        with errors.at():
            data = convert(values, ScheduleRequest)
            spec = to_spec(data, status.name, data.task)
            saved = await tenant.schedules.put(spec, expect=Precondition(if_match=tag))
            return _saved(request, saved.status, "changed")
    return await _form(
        request, tenant, stats, _raw(fields) | {"name": status.name}, status, errors, tag
    )


def _saved(request: RotaRequest, status: ScheduleStatus, word: str) -> Back:
    text = f"Schedule {status.name} {word}: {status.in_words}."
    if not status.warnings:
        return back(request, path_of(status), text)
    return back(
        request, path_of(status), f"{text} But: {'; '.join(status.warnings)}", kind="warning"
    )


async def _checked(tenant: Rota, fields: Fields, errors: Errors) -> dict[str, Any]:
    """Read the form, and check its rule by itself: no other error may hide what is wrong with it."""
    rule = _rule(fields, errors)
    values = {**rule, **_rest(fields, errors)}
    if not any(errors.of(name) for name in (*rule, "rule", "kind")):
        with errors.at("rule"):
            spec = to_spec(convert(rule, PreviewRequest), "preview", "preview")
            await tenant.schedules.preview(spec, 1)
    return values


def _raw(fields: Fields) -> dict[str, str]:
    return {name: fields.raw(name) for name in _BLANK}


def _rule(fields: Fields, errors: Errors) -> dict[str, Any]:
    kind = fields.text("kind") or "cron"
    values = fields.read(_RULE, errors)
    with errors.at("kind"):
        if kind not in _CHOICES["rules"]:
            raise ConfigError(f"must be one of {', '.join(_CHOICES['rules'])}")
        if (rule := fields.text("rule")) is None:
            raise ConfigError("is missing", field="rule")
        values[kind] = rule
    with errors.at("anchor"):
        values["anchor"] = fields.moment("anchor") if kind == "every" else None
    return values


def _rest(fields: Fields, errors: Errors) -> dict[str, Any]:
    within = None
    with errors.at("catch_up_within"):
        within = fields.seconds("catch_up_within")
    kind = fields.text("catch_up")
    return fields.read(_REST, errors) | {
        "paused": fields.flag("paused") or None,
        "catch_up": kind and {"kind": kind, "within": within},
    }


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
        # To the minute if that is all of it, otherwise exactly.
        return value.isoformat() if value.second or value.microsecond else written(value)
    if isinstance(value, list | tuple):
        return " ".join(value)
    return f"{value:g}" if isinstance(value, float) and value else str(value or "")


def _rule_text(spec: ScheduleSpec) -> tuple[str, str, str]:
    match spec.rule:
        case Cron(expression):
            return "cron", expression, ""
        case Every(seconds, anchor):
            return "every", f"{seconds:g}", _text(anchor)
        case Calendar(phrase):
            return "calendar", phrase, ""
        case RRule(text):
            return "rrule", text, ""


ROUTES = [new_schedule, edit_schedule, preview, create, change]
