"""The page of a job, and the form that submits one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar.params import FromPath, QueryParameter

from rota.core.explain import Explanation
from rota.core.resources import parse_pairs, said_public
from rota.errors import NotFound
from rota.model import Attempt, Guarantee, Job, State
from rota.operations.job_request import JobRequest
from rota.operations.webhooks import WEBHOOK_TASK
from rota.server.dashboard import charts, pages
from rota.server.dashboard.form_errors import NO_ERRORS, Errors
from rota.server.dashboard.forms import Fields, Reader, convert
from rota.server.dashboard.job_log import LEVELS, AttemptNumber, Find, Level, read_log
from rota.server.dashboard.remedies import Button, buttons
from rota.server.dashboard.words import pretty, span
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.store.dashboard import DashboardStore

_COLOURS = {"succeeded": "good", "running": "live", "cancelled": "idle", "returned": "idle"}


@pages.page("/jobs/{job_id:uuid}", policy=VIEWER)
async def show_job(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, job_id: FromPath[UUID],
    attempt: AttemptNumber = None, level: Level = "all", find: Find = None,
) -> pages.Html:  # fmt: skip
    job = await tenant.jobs.get(job_id)
    explanation = await tenant.jobs.explain(job_id)
    now = await (await tenant.store()).now()
    log = await read_log(tenant, job, attempt, level, find)
    names = await stats.node_names(_nodes_of(job))
    nodes = {str(id): name for id, name in names.items()}
    state = State.parse(job.state)
    return await pages.show(
        request, "job.html", now=now, job=job, asked=said_public(job.resources), explanation=explanation,
        remedies=_remedies(explanation, job, pages.Here(request)),
        tries=_tries(job, now, nodes), node_name=nodes.get(str(job.node)) if job.node else None,
        log=log, levels=[*LEVELS],
        schedule=await stats.schedule_of(job_id),
        payload=pretty(job.payload), result=None if job.result is None else pretty(job.result),
        headers=pretty(_other_headers(job)) if _other_headers(job) else None,
        tags=_tags(job), progress=_progress(job),
        started_is_known=state is not State.RUNNING or await stats.has_started(job_id),
        can_cancel=not state.is_final and job.cancel_requested_at is None,
        can_retry=state is State.FAILED or (state is State.SCHEDULED and job.attempt > 0),
        can_discard=state is State.FAILED, how=_how(job),
        can_redeliver=job.task == WEBHOOK_TASK and request.principal.holds("webhooks:write"),
    )  # fmt: skip


def _remedies(explanation: Explanation, job: Job, here: pages.Here) -> list[Button]:
    """Return the remedies, without the actions on the job itself, which are at the top of the page."""
    own = (f"/jobs/{job.id}/", f"from={job.id}")
    return [
        one for one in buttons(explanation.remedies, here) if not any(w in one.path for w in own)
    ]


def _nodes_of(job: Job) -> list[UUID]:
    """Return the nodes that have, or had, the job."""
    found = {job.node} if job.node else set()
    for one in job.attempts:
        with contextlib.suppress(ValueError):
            found.add(UUID(one.node))
    return [*found]


def _tries(job: Job, now: datetime, nodes: dict[str, str]) -> list[tuple[Attempt, str]]:
    """Return the kept attempts and the current or last one, with charts on one scale of time."""
    kept = job.attempts
    if job.started_at is not None and not (kept and kept[-1].number == job.attempt):
        current = Attempt(
            number=job.attempt, outcome=job.state, started_at=job.started_at,
            ended_at=job.finished_at, node=str(job.node or ""), token=job.token or 0,
            error=job.error,
        )  # fmt: skip
        kept = [*kept, current]
    first = min((one.started_at for one in kept if one.started_at is not None), default=now)
    last = max((one.ended_at or now for one in kept), default=now)
    whole = max((last - first).total_seconds(), 0.001)

    def bar(one: Attempt) -> str:
        if one.started_at is None:
            return ""
        begin = (one.started_at - first).total_seconds() / whole
        end = ((one.ended_at or now) - first).total_seconds() / whole
        label = f"attempt {one.number}: {one.outcome}, {span((end - begin) * whole)}"
        return charts.bar([(_COLOURS.get(one.outcome, "bad"), begin, end)], label)

    return [
        (msgspec.structs.replace(one, node=nodes.get(one.node, one.node)), bar(one)) for one in kept
    ]


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


def _again(job: Job) -> pages.Copyable:
    request: dict[str, Any] = {"task": job.task, "payload": job.payload, "queue": job.queue}
    if job.priority:
        request["priority"] = job.priority
    shown = msgspec.json.encode(job.payload).decode()
    return pages.Copyable(
        "Submit the same as a new job",
        cli=pages.cli("jobs", "submit", job.task, shown, "--queue", job.queue),
        curl=pages.curl("POST", "/v1/jobs", request),
        python=f"await app.submit({job.task!r}, {job.payload!r}, queue={job.queue!r})",
    )


def _how(job: Job) -> list[pages.Copyable]:
    show = pages.Copyable(
        "Show this job", cli=pages.cli("jobs", "show", job.id),
        curl=pages.curl("GET", f"/v1/jobs/{job.id}"), python=f"await app.jobs.get({str(job.id)!r})",
    )  # fmt: skip
    verbs = ["retry", "discard"] if job.state == "failed" else ["cancel"]
    if State.parse(job.state).is_final and job.state != "failed":
        verbs = []
    changes = [
        pages.Copyable(
            f"{verb.capitalize()} this job", cli=pages.cli("jobs", verb, job.id),
            curl=pages.curl("POST", f"/v1/jobs/{job.id}/{verb}"),
            python=f"await app.jobs.{verb}({str(job.id)!r})",
        )
        for verb in verbs
    ]  # fmt: skip
    return [show, *changes, _again(job)]


@pages.action("/jobs/{job_id:uuid}/retry", policy=OPERATOR, on_error="/jobs/{job_id}")
async def retry_job(request: RotaRequest, tenant: TenantDep, job_id: FromPath[UUID]) -> pages.Back:
    await tenant.jobs.retry(job_id)
    target = pages.returning(await Fields.of(request), f"/jobs/{job_id}")
    return pages.back(request, target, "The job will run again.")


@pages.action("/jobs/{job_id:uuid}/cancel", policy=OPERATOR, on_error="/jobs/{job_id}")
async def cancel_job(
    request: RotaRequest, tenant: TenantDep, job_id: FromPath[UUID]
) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, cancel: it can't be undone, only submitted anew."""
    if not (await Fields.of(request)).flag("sure"):
        job = await tenant.jobs.get(job_id)
        what = "It is cancelled at once."
        if job.state == "running":
            what = "It runs: it is asked to stop, and its worker stops it after a grace period."
        return await pages.confirm(
            request, "Cancel this job?", what,
            "A cancelled job does not run again; “Run again with changes” submits its copy.",
            template="job_cancel.html", path=f"/jobs/{job_id}/cancel", word="Cancel the job",
            target=pages.Here(request).url(f"/jobs/{job_id}"), job=job, how=_how(job)[1:2],
        )  # fmt: skip
    done = await tenant.jobs.cancel(job_id)
    text = "Job cancelled." if done.outcome == "cancelled" else "The job has been asked to stop."
    return pages.back(request, f"/jobs/{job_id}", text)


@pages.action("/jobs/{job_id:uuid}/discard", policy=OPERATOR, on_error="/jobs/{job_id}")
async def discard_job(
    request: RotaRequest, tenant: TenantDep, job_id: FromPath[UUID]
) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, discard the job."""
    if not (await Fields.of(request)).flag("sure"):
        job = await tenant.jobs.get(job_id)
        return await pages.confirm(
            request, "Discard this job?",
            "It is removed from the dead-letter list, and can be read until its retention ends. It "
            "can't be retried any more; “Run again with changes” submits its copy.",
            template="job_cancel.html", path=f"/jobs/{job_id}/discard", word="Discard the job",
            target=pages.Here(request).url(f"/jobs/{job_id}"), job=job, how=_how(job)[2:3],
        )  # fmt: skip
    await tenant.jobs.discard(job_id)
    return pages.back(request, f"/jobs/{job_id}", "Job discarded.")


_LABELS = {
    "task": "Task", "payload": "Payload", "queue": "Queue", "needs": "Needs", "at": "At",
    "delay": "Delay", "priority": "Priority", "max_attempts": "Maximum attempts", "timeout": "Timeout",
    "guarantee": "Guarantee", "key": "Idempotency key", "tags": "Tags",
    "resources": "Resources", "near": "Near",
}  # fmt: skip
_READERS: dict[str, Reader] = {
    "task": Fields.text, "payload": Fields.object, "queue": Fields.text, "needs": Fields.words,
    "at": Fields.moment, "delay": Fields.seconds, "priority": Fields.whole,
    "max_attempts": Fields.whole, "timeout": Fields.seconds, "guarantee": Fields.text,
    "key": Fields.text, "tags": Fields.words, "resources": Fields.words, "near": Fields.text,
}  # fmt: skip


@pages.page("/jobs/new", policy=OPERATOR)
async def new_job(
    request: RotaRequest,
    tenant: TenantDep,
    stats: StatsDep,
    source: Annotated[UUID | None, QueryParameter(name="from")] = None,
    task: Annotated[str, QueryParameter(max_length=100)] = "",
) -> pages.Html:
    values = dict.fromkeys(_LABELS, "") | {"payload": "{}", "task": task}
    if task:
        with contextlib.suppress(NotFound):
            values["payload"] = pretty(sample((await tenant.registry.get(task)).arguments or {}))
    if source is not None:
        job = await tenant.jobs.get(source)
        tags = job.headers.get("tags", [])
        values |= {
            "task": job.task, "payload": pretty(job.payload), "queue": job.queue,
            "needs": " ".join(job.needs), "priority": str(job.priority or ""),
            "max_attempts": str(job.max_attempts), "guarantee": job.guarantee,
            "timeout": f"{job.timeout:g}" if job.timeout else "",
            "resources": said_public(job.resources).replace(", ", " "),
            "near": job.near or "",
            "tags": " ".join(tags) if isinstance(tags, list) else "",
        }  # fmt: skip
    return await _form(request, stats, values, source)


_SAMPLES: dict[str, Any] = {
    "string": "", "integer": 0, "number": 0.0, "boolean": False, "array": [], "object": {}, "null": None,
}  # fmt: skip


def sample(schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments that fit a JSON Schema by their types, to be filled in."""
    found = {}
    for name, one in schema.get("properties", {}).items():
        if not isinstance(one, dict):
            continue
        kinds = [one, *one.get("anyOf", ())]
        kind = next((each["type"] for each in kinds if isinstance(each.get("type"), str)), "null")
        found[name] = one.get("default", (one.get("enum") or [_SAMPLES.get(kind)])[0])
    return found


async def _form(
    request: RotaRequest, stats: DashboardStore, values: dict[str, str], source: UUID | None,
    errors: Errors = NO_ERRORS,
) -> pages.Html:  # fmt: skip
    return await pages.show(
        request, "submit.html", values=values, source=source, errors=errors,
        tasks=await stats.tasks(), guarantees=[guarantee.label for guarantee in Guarantee],
        status=422 if errors else 200,
    )  # fmt: skip


@pages.action("/jobs/new", policy=OPERATOR)
async def submit_job(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep
) -> pages.Back | pages.Html:
    fields, errors = await Fields.of(request), Errors(_LABELS)
    values = fields.read(_READERS, errors)
    payload = values.pop("payload") or {}
    if resources := values.pop("resources", None):
        with errors.at("resources"):
            values["resources"] = parse_pairs(resources)
    values["payload"] = msgspec.Raw(msgspec.json.encode(payload))
    if not errors:
        with errors.at("payload"):
            stored = await tenant.submissions.submit_request(convert(values, JobRequest))
            return pages.back(request, f"/jobs/{stored.id}", "Job submitted.")
    return await _form(request, stats, {name: fields.raw(name) for name in _LABELS}, None, errors)


ROUTES = [show_job, retry_job, cancel_job, discard_job, new_job, submit_job]
