"""The form that submits a job: a new one, or a copy of another."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar.params import QueryParameter

from rota.errors import ConfigError
from rota.model import Guarantee
from rota.operations.job_request import JobRequest
from rota.operations.rota import Rota
from rota.server.dashboard.forms import Fields, Wrong, convert, telling_why
from rota.server.dashboard.pages import Back, Html, action, back, page, show
from rota.server.dashboard.words import pretty
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR
from rota.server.requests import RotaRequest
from rota.store.dashboard import DashboardStore

_TEXTS = ("task", "payload", "queue", "needs", "at", "delay", "priority", "max_attempts", "timeout",
          "guarantee", "key", "tags")  # fmt: skip


@page("/jobs/new", policy=OPERATOR)
async def new_job(
    request: RotaRequest,
    tenant: TenantDep,
    source: Annotated[UUID | None, QueryParameter(name="from")] = None,
) -> Html:
    values = dict.fromkeys(_TEXTS, "") | {"payload": "{}"}
    if source is not None:
        job = await tenant.jobs.get(source)
        tags = job.headers.get("tags", [])
        values |= {
            "task": job.task, "payload": pretty(job.payload), "queue": job.queue,
            "needs": " ".join(job.needs), "priority": str(job.priority or ""),
            "max_attempts": str(job.max_attempts), "guarantee": job.guarantee,
            "timeout": f"{job.timeout:g}" if job.timeout else "",
            "tags": " ".join(tags) if isinstance(tags, list) else "",
        }  # fmt: skip
    return await _form(request, tenant, values, source)


async def _form(
    request: RotaRequest, tenant: Rota, values: dict[str, str], source: UUID | None,
    problem: str | None = None,
) -> Html:  # fmt: skip
    known = DashboardStore((await tenant.store()).database, tenant.namespace)
    return await show(
        request, "submit.html", values=values, source=source, problem=problem,
        tasks=await known.tasks(), guarantees=[guarantee.label for guarantee in Guarantee],
        status=200 if problem is None else 422,
    )  # fmt: skip


@action("/jobs/new", policy=OPERATOR)
async def submit_job(request: RotaRequest, tenant: TenantDep) -> Back | Html:
    fields = await Fields.of(request)
    try:
        with telling_why():
            said = convert(_said(fields), JobRequest)
            stored = await tenant.submissions.submit_request(said)
    except Wrong as wrong:
        values = {name: fields.raw(name) for name in _TEXTS}
        return await _form(request, tenant, values, None, str(wrong))
    return back(request, f"/jobs/{stored.id}", "Job submitted.")


def _said(fields: Fields) -> dict[str, Any]:
    payload = fields.json("payload")
    if not isinstance(payload, dict | None):
        raise ConfigError("payload: must be a JSON object, argument names and values")
    at = fields.moment("at")
    return {
        "task": fields.text("task"), "queue": fields.text("queue"), "at": at,
        "payload": msgspec.Raw(msgspec.json.encode(payload or {})),
        "needs": fields.words("needs") or None, "delay": fields.seconds("delay"),
        "priority": fields.whole("priority"), "max_attempts": fields.whole("max_attempts"),
        "timeout": fields.seconds("timeout"), "guarantee": fields.text("guarantee"),
        "key": fields.text("key"), "tags": fields.words("tags"),
    }  # fmt: skip


ROUTES = [new_job, submit_job]
