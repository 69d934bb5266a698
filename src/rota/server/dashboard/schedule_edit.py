"""Making and changing a schedule, with its next occurrences beside it while one writes."""

from __future__ import annotations

from typing import Any

from rota.core.time.schedule import Calendar, Cron, Every, RRule, ScheduleSpec
from rota.errors import ConfigError
from rota.operations.ledger import ScheduleStatus
from rota.operations.preconditions import Precondition
from rota.operations.rota import Rota
from rota.server.api.schedule_requests import (
    NewScheduleRequest,
    PreviewRequest,
    ScheduleRequest,
    to_spec,
)
from rota.server.api.schedules import ScheduleName
from rota.server.dashboard.forms import Fields, Wrong, convert, telling_why
from rota.server.dashboard.pages import Back, Html, action, back, page, show
from rota.server.dashboard.schedules import coming_marks, path_of
from rota.server.dashboard.words import pretty
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest
from rota.store.dashboard import DashboardStore

_NEXT = 12
_RULES = ("cron", "every", "calendar", "rrule")
_OVERLAPS = ("skip", "queue", "allow", "kill")
_CATCH_UPS = ("none", "latest", "all")
_GAPS = ("next", "shift", "skip")
_FOLDS = ("first", "second", "both")
_TEXTS = ("name", "task", "kind", "rule", "tz", "payload", "overlap", "max_running", "max_queued",
          "drop", "catch_up", "catch_up_within", "starts", "ends", "max_occurrences", "jitter",
          "spread", "gap", "fold", "exclude", "include", "description", "tags", "options", "paused",
          "anchor")  # fmt: skip
_BLANK = dict.fromkeys(_TEXTS, "") | {
    "kind": "cron", "tz": "UTC", "payload": "{}", "overlap": "skip", "catch_up": "none",
    "gap": "next", "fold": "first", "options": "{}",
}  # fmt: skip


@page("/schedules/new", policy=OPERATOR)
async def new_schedule(request: RotaRequest, tenant: TenantDep) -> Html:
    return await _form(request, tenant, dict(_BLANK), None)


@page("/schedules/{name:str}/edit", policy=OPERATOR)
async def edit_schedule(request: RotaRequest, tenant: TenantDep, name: ScheduleName) -> Html:
    status = await tenant.schedules.get(await tenant.schedules.resolve(name))
    return await _form(request, tenant, _values_of(status), status)


def _values_of(status: ScheduleStatus) -> dict[str, str]:
    """What is stored; of one that can't be read, only its name and its task."""
    if status.spec is None:
        return {**_BLANK, "name": status.name, "task": status.task}
    return _values(status.spec)


async def _form(
    request: RotaRequest, tenant: Rota, values: dict[str, str], status: Any,
    problem: str | None = None, tag: str | None = None,
) -> Html:  # fmt: skip
    known = DashboardStore((await tenant.store()).database, tenant.namespace)
    words, coming, wrong = await _look(tenant, Fields({n: [v] for n, v in values.items()}))
    return await show(
        request, "schedule_edit.html", values=values, schedule=status, problem=problem,
        tag=tag or (status.tag if status else ""), path_of=path_of,
        in_words=words, coming=coming, wrong=wrong if values["rule"] else None,
        tasks=await known.tasks(), rules=_RULES, overlaps=_OVERLAPS, catch_ups=_CATCH_UPS,
        gaps=_GAPS, folds=_FOLDS, status=200 if problem is None else 422,
    )  # fmt: skip


@action("/schedules/preview", policy=VIEWER)
async def preview(request: RotaRequest, tenant: TenantDep) -> Html:
    """What the form says so far. It changes nothing."""
    fields = await Fields.of(request)
    words, coming, wrong = await _look(tenant, fields)
    return await show(
        request, "schedule_preview.html", in_words=words, coming=coming,
        wrong=wrong if fields.text("rule") else None, tz=fields.text("tz") or "UTC",
    )  # fmt: skip


async def _look(tenant: Rota, fields: Fields) -> tuple[str, list[Any], str | None]:
    """In words, the next moments, or what is wrong with it."""
    try:
        with telling_why():
            said = convert(_rule_said(fields), PreviewRequest)
            spec = to_spec(said, fields.text("name") or "preview", "preview")
            coming = await tenant.schedules.preview(spec, _NEXT)
            return coming.in_words, coming_marks(coming.occurrences), None
    except Wrong as wrong:
        return "", [], str(wrong)


@action("/schedules/new", policy=OPERATOR)
async def create(request: RotaRequest, tenant: TenantDep) -> Back | Html:
    fields = await Fields.of(request)
    try:
        with telling_why():
            said = convert(
                {**_rule_said(fields), **_rest_said(fields), "name": fields.text("name")},
                NewScheduleRequest,
            )
            spec = to_spec(said, said.name, said.task)
            saved = await tenant.schedules.put(spec, expect=Precondition(must_be_new=True))
            status = saved.status
    except Wrong as wrong:
        return await _form(request, tenant, _raw(fields), None, str(wrong))
    return back(request, path_of(status), f"Schedule {status.name} created: {status.in_words}.")


@action("/schedules/{name:str}/edit", policy=OPERATOR)
async def change(request: RotaRequest, tenant: TenantDep, name: ScheduleName) -> Back | Html:
    """Only what the form was made from is changed: see `tag`."""
    status = await tenant.schedules.get(await tenant.schedules.resolve(name))
    fields = await Fields.of(request)
    tag = fields.text("tag")
    try:
        with telling_why():
            said = convert({**_rule_said(fields), **_rest_said(fields)}, ScheduleRequest)
            spec = to_spec(said, status.name, said.task)
            status = (await tenant.schedules.put(spec, expect=Precondition(if_match=tag))).status
    except Wrong as wrong:
        values = _raw(fields) | {"name": status.name}
        return await _form(request, tenant, values, status, str(wrong), tag)
    return back(request, path_of(status), f"Schedule {status.name} changed: {status.in_words}.")


def _raw(fields: Fields) -> dict[str, str]:
    return {name: fields.raw(name) for name in _TEXTS}


def _rule_said(fields: Fields) -> dict[str, Any]:
    kind = fields.text("kind") or "cron"
    if kind not in _RULES:
        raise ConfigError(f"kind: is one of {', '.join(_RULES)}")
    rule = fields.text("rule")
    if rule is None:
        raise ConfigError("rule: say when it is to run")
    return {
        kind: rule, "tz": fields.text("tz"), "gap": fields.text("gap"), "fold": fields.text("fold"),
        "starts": fields.moment("starts"), "ends": fields.moment("ends"),
        "anchor": fields.moment("anchor") if kind == "every" else None,
        "max_occurrences": fields.whole("max_occurrences"), "jitter": fields.text("jitter"),
        "spread": fields.text("spread"), "exclude": fields.words("exclude") or None,
        "include": fields.words("include") or None,
    }  # fmt: skip


def _rest_said(fields: Fields) -> dict[str, Any]:
    for name in ("payload", "options"):
        if not isinstance(fields.json(name), dict | None):
            raise ConfigError(f"{name}: must be a JSON object")
    return {
        "task": fields.text("task"), "payload": fields.json("payload"),
        "options": fields.json("options"), "overlap": fields.text("overlap"),
        "max_running": fields.whole("max_running"), "max_queued": fields.whole("max_queued"),
        "drop": fields.text("drop"), "description": fields.text("description"),
        "catch_up": _catch_up(fields), "tags": fields.words("tags") or None,
        "paused": True if fields.flag("paused") else None,
    }  # fmt: skip


def _catch_up(fields: Fields) -> dict[str, Any] | None:
    kind = fields.text("catch_up")
    if kind is None:
        return None
    return {"kind": kind, "within": fields.seconds("catch_up_within")}


def _values(spec: ScheduleSpec) -> dict[str, str]:
    """The form's fields for what is stored."""
    kind, rule, anchor = _rule_text(spec)
    seconds = spec.catch_up.within
    return _BLANK | {
        "name": spec.name, "task": spec.task, "kind": kind, "rule": rule, "tz": spec.tz,
        "anchor": anchor, "payload": pretty(spec.payload or {}), "overlap": spec.overlap,
        "max_running": str(spec.max_running or ""), "max_queued": str(spec.max_queued),
        "drop": spec.drop, "catch_up": spec.catch_up.kind,
        "catch_up_within": f"{seconds:g}" if seconds is not None else "",
        "starts": spec.starts.isoformat() if spec.starts else "",
        "ends": spec.ends.isoformat() if spec.ends else "",
        "max_occurrences": str(spec.max_occurrences or ""), "gap": spec.gap, "fold": spec.fold,
        "jitter": f"{spec.jitter:g}" if spec.jitter else "",
        "spread": f"{spec.spread:g}" if spec.spread else "", "exclude": " ".join(spec.exclude),
        "include": " ".join(spec.include), "description": spec.description,
        "tags": " ".join(spec.tags), "options": pretty(spec.options),
        "paused": "yes" if spec.paused else "",
    }  # fmt: skip


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
