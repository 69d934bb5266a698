"""The pages of runs: of workflows and durable functions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from litestar.params import FromPath, PathParameter, QueryParameter
from markupsafe import Markup

from rota.core.workflow.explain import progress_text
from rota.errors import ConfigError
from rota.model import GraphStep, Run, RunCheckpoint
from rota.server.api.pages import make_cursor, read_cursor
from rota.server.dashboard import charts, graphs, pages
from rota.server.dashboard.forms import Fields
from rota.server.dashboard.words import pretty, span
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, TenantDep

_PAGE = 50
_ROWS = 200  # steps, or things of a history, that a page lists
_FAILURES = 20  # failed members of a map that a page lists
_MAPS = 10
_COLOURS = {"succeeded": "good", "running": "live", "failed": "bad", "waiting": "warn"}
STATES = ("running", "succeeded", "failed", "cancelled")

RunId = FromPath[UUID]
StepName = Annotated[str, PathParameter(max_length=100)]
Text = Annotated[str | None, QueryParameter(max_length=200)]


class Shown(msgspec.Struct, frozen=True):
    """A row of a run: a step, or something in a history, and when it was under way."""

    name: str
    state: str
    what: str
    note: str
    started_at: datetime | None
    ended_at: datetime | None
    job_id: UUID | None
    bar: Markup | str
    is_run: bool = False


@pages.page("/runs", policy=VIEWER)
async def show_runs(
    request: RotaRequest, tenant: TenantDep, workflow: Text = None,
    in_state: Annotated[str | None, QueryParameter(name="state", max_length=20)] = None,
    cursor: Text = None,
) -> pages.Html:  # fmt: skip
    question = (workflow, in_state)
    before = read_cursor(cursor, tuple[datetime, UUID], question)
    found = await tenant.runs.list(
        workflow=workflow or None, state=in_state or None, before=before, limit=_PAGE + 1
    )
    runs = found[:_PAGE]
    following = None
    if len(found) > _PAGE:
        last = make_cursor((runs[-1].created_at, runs[-1].id), question)
        following = pages.Here(request).url(
            "/runs", workflow=workflow or None, state=in_state or None, cursor=last
        )
    given = (("--workflow", workflow), ("--state", in_state))
    flags = [word for name, value in given if value for word in (name, value)]
    return await pages.show(
        request, "runs.html", runs=[(run, _state(run)) for run in runs], workflow=workflow or "",
        chosen=in_state or "", states=STATES, next=following,
        how=[pages.Copyable(
            "List these runs",
            cli=pages.cli("runs", "list", *flags), curl=pages.curl("GET", "/v1/runs"),
            python="await app.runs.list()",
        )],
    )  # fmt: skip


def _state(run: Run) -> str:
    if run.state == "running" and run.cancel_requested_at is not None:
        return "cancelling"
    return "paused" if run.state == "running" and run.paused_at is not None else run.state


@pages.page("/runs/{run_id:uuid}", policy=VIEWER)
async def show_run(request: RotaRequest, tenant: TenantDep, run_id: RunId) -> pages.Html:
    run = await tenant.runs.get(run_id)
    now = await (await tenant.store()).now()
    steps = await tenant.runs.graph(run_id)
    history = await tenant.runs.history(run_id, limit=_ROWS)
    is_function = any(step.kind == "function" for step in steps)
    maps = [
        (step, await tenant.runs.members(run_id, step.name, state="failed", limit=_FAILURES))
        for step in steps
        if step.progress is not None and step.progress.failed
    ][:_MAPS]
    rows = _history(history, run, now) if is_function else _steps(steps, run, now)
    path = graphs.critical_path(steps) if run.ended_at is not None else frozenset[int]()
    explanation = await tenant.runs.explain(run_id)
    return await pages.show(
        request, "run.html", now=now, run=run, maps=maps, shown=_state(run), rows=rows[:_ROWS],
        more=max(len(rows) - _ROWS, 0), explanation=explanation, is_function=is_function,
        graph=None if is_function else graphs.draw(steps, path), steps=len(steps),
        given=pretty(run.input), error=_message(run.error), problem=_message(run.problem),
        reported=None if run.status is None else pretty(run.status),
        result=pretty(await tenant.runs.result(run_id)) if run.state == "succeeded" else None,
        can_cancel=run.ended_at is None, can_pause=_state(run) == "running",
        can_resume=_state(run) in ("paused", "failed", "cancelled"), how=_how(run),
    )  # fmt: skip


def _message(error: object) -> str | None:
    return str(error.get("message")) if isinstance(error, dict) else None


def _bar(
    state: str, began: datetime | None, ended: datetime | None, run: Run, now: datetime
) -> Markup | str:
    """Draw when something was under way, on the line of the whole run."""
    if began is None:
        return ""
    last = run.ended_at or now
    whole = max((last - run.created_at).total_seconds(), 0.001)
    first = (began - run.created_at).total_seconds() / whole
    end = ((ended or now) - run.created_at).total_seconds() / whole
    first, end = min(max(first, 0.0), 1.0), min(max(end, 0.0), 1.0)
    label = f"{state}, {span(max(end - first, 0.0) * whole)}"
    return charts.bar([(_COLOURS.get(state, "idle"), first, end)], label)


def _steps(steps: Sequence[GraphStep], run: Run, now: datetime) -> list[Shown]:
    """Return the rows of steps: what needs somebody first, else in their order."""
    order = {"failed": 0, "running": 1}
    several = sorted(steps, key=lambda step: (order.get(step.state, 2), step.number))
    chosen = list(steps) if len(steps) <= _ROWS else several
    return [
        Shown(
            step.name, step.state, step.task or "",
            "" if step.progress is None else progress_text(step.progress), step.started_at,
            step.ended_at, None if step.kind == "map" else step.job_id,
            _bar(step.state, step.started_at, step.ended_at, run, now), step.kind == "workflow",
        )
        for step in chosen
    ]  # fmt: skip


def _history(history: Sequence[RunCheckpoint], run: Run, now: datetime) -> list[Shown]:
    return [
        Shown(
            each.name, each.state, each.kind, _note(each), each.created_at, each.ended_at,
            each.job_id if each.kind in ("call", "run") else None,
            _bar(each.state, each.created_at, each.ended_at, run, now), each.kind == "run",
        )
        for each in history
        if each.kind != "note"
    ]  # fmt: skip


def _note(each: RunCheckpoint) -> str:
    if isinstance(each.error, dict):
        return str(each.error.get("message", ""))
    if each.state == "waiting" and each.signal is not None:
        return f"waits for signal {each.signal}, key {each.signal_key}"
    if each.state == "waiting" and each.wake_at is not None:
        return f"until {each.wake_at:%Y-%m-%d %H:%M:%S} UTC"
    return f"try {each.attempt}" if each.attempt > 1 else ""


def _how(run: Run) -> list[pages.Copyable]:
    verb = "cancel" if run.ended_at is None else "resume"
    return [
        pages.Copyable(
            "Show this run", cli=pages.cli("runs", "show", run.id),
            curl=pages.curl("GET", f"/v1/runs/{run.id}"), python=f"await app.runs.get({str(run.id)!r})",
        ),
        pages.Copyable(
            f"{verb.capitalize()} this run", cli=pages.cli("runs", verb, run.id),
            curl=pages.curl("POST", f"/v1/runs/{run.id}/{verb}"),
            python=f"await app.runs.{verb}({str(run.id)!r})",
        ),
    ]  # fmt: skip


@pages.action("/runs/{run_id:uuid}/cancel", policy=OPERATOR, on_error="/runs/{run_id}")
async def cancel_run(
    request: RotaRequest, tenant: TenantDep, run_id: RunId
) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, cancel the run."""
    if not (await Fields.of(request)).flag("sure"):
        run = await tenant.runs.get(run_id)
        return await pages.confirm(
            request, f"Cancel this run of {run.workflow}?",
            "Its steps that wait are cancelled, and those that run are asked to stop. Resume continues "
            "from the steps that did not succeed.",
            path=f"/runs/{run_id}/cancel", word="Cancel the run",
            target=pages.Here(request).url(f"/runs/{run_id}"),
        )  # fmt: skip
    await tenant.runs.cancel(run_id)
    return pages.back(request, f"/runs/{run_id}", "The run is being cancelled.")


@pages.action("/runs/{run_id:uuid}/pause", policy=OPERATOR, on_error="/runs/{run_id}")
async def pause_run(request: RotaRequest, tenant: TenantDep, run_id: RunId) -> pages.Back:
    await tenant.runs.pause(run_id)
    return pages.back(request, f"/runs/{run_id}", "The run is paused: no further step starts.")


@pages.action("/runs/{run_id:uuid}/resume", policy=OPERATOR, on_error="/runs/{run_id}")
async def resume_run(request: RotaRequest, tenant: TenantDep, run_id: RunId) -> pages.Back:
    await tenant.runs.resume(run_id)
    return pages.back(request, f"/runs/{run_id}", "Run resumed.")


@pages.action(
    "/runs/{run_id:uuid}/steps/{step:str}/retry", policy=OPERATOR, on_error="/runs/{run_id}"
)
async def retry_step(
    request: RotaRequest, tenant: TenantDep, run_id: RunId, step: StepName
) -> pages.Back:
    await tenant.runs.retry(run_id, step)
    return pages.back(
        request, f"/runs/{run_id}", f"Step {step} runs again, and what comes after it."
    )


@pages.action(
    "/runs/{run_id:uuid}/steps/{step:str}/skip", policy=OPERATOR, on_error="/runs/{run_id}"
)
async def skip_step(
    request: RotaRequest, tenant: TenantDep, run_id: RunId, step: StepName
) -> pages.Back:
    await tenant.runs.skip(run_id, step)
    return pages.back(request, f"/runs/{run_id}", f"Step {step} counts as succeeded.")


@pages.action(
    "/runs/{run_id:uuid}/steps/{step:str}/members/retry", policy=OPERATOR,
    on_error="/runs/{run_id}",
)  # fmt: skip
async def retry_failed(
    request: RotaRequest, tenant: TenantDep, run_id: RunId, step: StepName
) -> pages.Back:
    changed = await tenant.runs.retry_members(run_id, step)
    message = f"{changed.steps:,} members of {step} run again."
    return pages.back(request, f"/runs/{run_id}", message)


@pages.action(
    "/runs/{run_id:uuid}/steps/{step:str}/members/{number:str}/retry", policy=OPERATOR,
    on_error="/runs/{run_id}",
)  # fmt: skip
async def retry_member(
    request: RotaRequest, tenant: TenantDep, run_id: RunId, step: StepName,
    number: Annotated[str, PathParameter(max_length=40)],
) -> pages.Back:  # fmt: skip
    await tenant.runs.get(run_id)
    if not number.isdecimal():
        raise ConfigError(f"{number!r} is not the number of a member", field="number")
    await tenant.runs.retry_members(run_id, step, [int(number)])
    return pages.back(request, f"/runs/{run_id}", f"Member {number} of {step} runs again.")


ROUTES = [
    show_runs, show_run, cancel_run, pause_run, resume_run, retry_step, skip_step, retry_failed,
    retry_member,
]  # fmt: skip
