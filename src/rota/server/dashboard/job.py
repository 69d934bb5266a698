"""One job: what it is, why it isn't running or what it did, and what can be done about it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from litestar.params import FromPath

from rota.model import Failure, Job, State
from rota.server.dashboard import charts
from rota.server.dashboard.commands import Copyable, cli, curl, python
from rota.server.dashboard.forms import Wrong, telling_why
from rota.server.dashboard.pages import Back, Html, action, back, page, show
from rota.server.dashboard.words import pretty, span
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest
from rota.store.dashboard import DashboardStore

_LINES = 300
_COLOURS = {"succeeded": "good", "running": "live", "cancelled": "idle", "returned": "idle"}


class Try(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt as the page shows it."""

    number: int
    outcome: str
    started_at: datetime | None
    ended_at: datetime | None
    node: str
    token: int | None
    error: Failure | None
    bar: str

    @property
    def took(self) -> float | None:
        if self.started_at is None or self.ended_at is None:
            return None
        return (self.ended_at - self.started_at).total_seconds()


@page("/jobs/{job_id:uuid}", policy=VIEWER)
async def show_job(request: RotaRequest, tenant: TenantDep, job_id: FromPath[UUID]) -> Html:
    store = await tenant.store()
    namespace = tenant.namespace
    job = await tenant.jobs.get(job_id)
    explanation = await tenant.jobs.explain(job_id)
    now = await store.now()
    lines = await tenant.jobs.log_lines(job_id, read={}, limit=_LINES + 1)
    nodes = {str(node.id): node.name for node in await tenant.nodes.list(ended=True)}
    state = State.parse(job.state)
    return await show(
        request, "job.html", now=now, job=job, explanation=explanation,
        tries=_tries(job, now, nodes), node_name=nodes.get(str(job.node)) if job.node else None,
        lines=lines[:_LINES], more_lines=len(lines) > _LINES,
        schedule=await DashboardStore(store.database, namespace).schedule_of(job_id),
        payload=pretty(job.payload), result=None if job.result is None else pretty(job.result),
        headers=pretty(_other_headers(job)) if _other_headers(job) else None,
        tags=_tags(job), progress=_progress(job),
        can_cancel=not state.is_final and job.cancel_requested_at is None,
        can_retry=state is State.FAILED or (state is State.SCHEDULED and job.attempt > 0),
        can_discard=state is State.FAILED, again=_again(job), how=_how(job),
    )  # fmt: skip


def _tries(job: Job, now: datetime, nodes: dict[str, str]) -> list[Try]:
    """Those that are kept with the job, and the current or last one, on one scale of time."""
    kept: list[dict[str, Any]] = [
        {"number": one.number, "outcome": one.outcome, "started_at": one.started_at,
         "ended_at": one.ended_at, "node": nodes.get(one.node, one.node), "token": one.token,
         "error": one.error}
        for one in job.attempts
    ]  # fmt: skip
    if job.started_at is not None and not (kept and kept[-1]["number"] == job.attempt):
        node = nodes.get(str(job.node), str(job.node)) if job.node else ""
        kept.append(
            {"number": job.attempt, "outcome": job.state, "started_at": job.started_at,
             "ended_at": job.finished_at, "node": node, "token": job.token, "error": job.error}
        )  # fmt: skip
    begins = [one["started_at"] for one in kept if one["started_at"] is not None]
    if not begins:
        return [Try(**one, bar="") for one in kept]
    first = min(begins)
    last = max(one["ended_at"] or now for one in kept)
    whole = max((last - first).total_seconds(), 0.001)
    return [Try(**one, bar=_bar(one, first, whole, now)) for one in kept]


def _bar(one: dict[str, Any], first: datetime, whole: float, now: datetime) -> str:
    if one["started_at"] is None:
        return ""
    begin = (one["started_at"] - first).total_seconds() / whole
    end = ((one["ended_at"] or now) - first).total_seconds() / whole
    took = span((end - begin) * whole)
    kind = _COLOURS.get(one["outcome"], "bad")
    return charts.bar([(kind, begin, end)], f"attempt {one['number']}: {one['outcome']}, {took}")


def _tags(job: Job) -> Sequence[str]:
    found = job.headers.get("tags", [])
    return [tag for tag in found if isinstance(tag, str)] if isinstance(found, list) else []


def _other_headers(job: Job) -> dict[str, Any]:
    return {name: value for name, value in job.headers.items() if name != "tags"}


class Progress(msgspec.Struct, frozen=True):
    done: float
    total: float | None = None
    message: str = ""


def _progress(job: Job) -> Progress | None:
    try:
        return msgspec.convert(job.progress, Progress, strict=False)
    except msgspec.ValidationError:
        return None


def _again(job: Job) -> Copyable:
    """The same job, submitted anew."""
    said: dict[str, Any] = {"task": job.task, "payload": job.payload, "queue": job.queue}
    if job.priority:
        said["priority"] = job.priority
    shown = msgspec.json.encode(job.payload).decode()
    return Copyable(
        cli=cli("jobs", "submit", job.task, shown, "--queue", job.queue),
        curl=curl("POST", "/v1/jobs", said),
        python=python(f"await app.submit({job.task!r}, {job.payload!r}, queue={job.queue!r})"),
    )


def _how(job: Job) -> Copyable:
    ended = State.parse(job.state).is_final
    if job.state == "failed":
        return Copyable(
            cli=cli("jobs", "retry", job.id), curl=curl("POST", f"/v1/jobs/{job.id}/retry"),
            python=python(f"await app.jobs.retry({str(job.id)!r})"),
        )  # fmt: skip
    if not ended:
        return Copyable(
            cli=cli("jobs", "cancel", job.id), curl=curl("POST", f"/v1/jobs/{job.id}/cancel"),
            python=python(f"await app.jobs.cancel({str(job.id)!r})"),
        )  # fmt: skip
    return Copyable(
        cli=cli("jobs", "show", job.id), curl=curl("GET", f"/v1/jobs/{job.id}"),
        python=python(f"await app.jobs.get({str(job.id)!r})"),
    )  # fmt: skip


# -- doing something about it


@action("/jobs/{job_id:uuid}/retry", policy=OPERATOR)
async def retry_job(request: RotaRequest, tenant: TenantDep, job_id: FromPath[UUID]) -> Back:
    try:
        with telling_why():
            await tenant.jobs.retry(job_id)
    except Wrong as wrong:
        return back(request, f"/jobs/{job_id}", str(wrong), kind="problem")
    return back(request, f"/jobs/{job_id}", "The job will run again.")


@action("/jobs/{job_id:uuid}/cancel", policy=OPERATOR)
async def cancel_job(request: RotaRequest, tenant: TenantDep, job_id: FromPath[UUID]) -> Back:
    try:
        with telling_why():
            done = await tenant.jobs.cancel(job_id)
    except Wrong as wrong:
        return back(request, f"/jobs/{job_id}", str(wrong), kind="problem")
    told = "Job cancelled." if done.outcome == "cancelled" else "The job has been asked to stop."
    return back(request, f"/jobs/{job_id}", told)


@action("/jobs/{job_id:uuid}/discard", policy=OPERATOR)
async def discard_job(request: RotaRequest, tenant: TenantDep, job_id: FromPath[UUID]) -> Back:
    try:
        with telling_why():
            await tenant.jobs.discard(job_id)
    except Wrong as wrong:
        return back(request, f"/jobs/{job_id}", str(wrong), kind="problem")
    return back(request, f"/jobs/{job_id}", "Job discarded.")


ROUTES = [show_job, retry_job, cancel_job, discard_job]
