"""Runs of workflows: list, read and control them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import get, post
from litestar.params import JSONBody, PathParameter, QueryParameter

from rota.client.wire import CheckpointPage, MemberPage, RunStepPage
from rota.core.explain import Explanation
from rota.model import Run, RunChanged, RunStep, Signal, SignalSent
from rota.server.api.pages import Cursor, Limit, Page, make_cursor, read_cursor
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import TenantDep

RunId = Annotated[UUID, PathParameter()]
StepName = Annotated[str, PathParameter(max_length=100)]
Name = Annotated[str | None, QueryParameter(max_length=100)]
InState = Annotated[str | None, QueryParameter(name="state", max_length=100)]


@get("/v1/runs", policy=VIEWER, summary="List runs, newest first")
async def list_runs(
    tenant: TenantDep, workflow: Name = None, in_state: InState = None, limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[Run]:  # fmt: skip
    """`state`: running, succeeded, failed or cancelled."""
    question = (workflow, in_state)
    before = read_cursor(cursor, tuple[datetime, UUID], question)
    runs = await tenant.runs.list(workflow=workflow, state=in_state, before=before, limit=limit)
    last = runs[-1] if len(runs) == limit else None
    following = None if last is None else make_cursor((last.created_at, last.id), question)
    return Page(runs, following)


@get("/v1/runs/{id:uuid}", policy=VIEWER, summary="Get a run")
async def get_run(tenant: TenantDep, id: RunId) -> Run:
    return await tenant.runs.get(id)


@get("/v1/runs/{id:uuid}/result", policy=VIEWER, summary="Get the result of a run")
async def get_run_result(tenant: TenantDep, id: RunId) -> dict[str, Any]:
    """The result of the last step, or of several last steps by name; null until they have succeeded."""
    return {"result": await tenant.runs.result(id)}


@get("/v1/runs/{id:uuid}/steps", policy=VIEWER, summary="List the steps of a run")
async def list_steps(
    tenant: TenantDep, id: RunId, in_state: InState = None, limit: Limit = 100,
    after: Annotated[int, QueryParameter(ge=-1, le=2**31 - 1)] = -1,
) -> RunStepPage:  # fmt: skip
    """By their numbers. `next`: what to pass as `after` for the next page; null on the last."""
    steps = await tenant.runs.steps(id, after=after, state=in_state, limit=limit)
    return RunStepPage(steps, steps[-1].number if len(steps) == limit else None)


@get("/v1/runs/{id:uuid}/steps/{step:str}", policy=VIEWER, summary="Get a step of a run")
async def get_step(tenant: TenantDep, id: RunId, step: StepName) -> RunStep:
    return await tenant.runs.step(id, step)


@get(
    "/v1/runs/{id:uuid}/steps/{step:str}/members",
    policy=VIEWER,
    summary="List the members of a map",
)
async def list_members(
    tenant: TenantDep, id: RunId, step: StepName, in_state: InState = None, limit: Limit = 100,
    after: Annotated[int, QueryParameter(ge=-1, le=2**62)] = -1,
) -> MemberPage:  # fmt: skip
    """By their numbers: items, results and errors. `next`: what to pass as `after` for the next page;
    null on the last."""
    found = await tenant.runs.members(id, step, after=after, state=in_state, limit=limit)
    return MemberPage(found, found[-1].number if len(found) == limit else None)


@get("/v1/runs/{id:uuid}/explain", policy=VIEWER, summary="Explain a run")
async def explain_run(tenant: TenantDep, id: RunId) -> Explanation:
    """Explain what the run waits for, and what to do."""
    return await tenant.runs.explain(id)


@get(
    "/v1/runs/{id:uuid}/steps/{step:str}/explain", policy=VIEWER, summary="Explain a step of a run"
)
async def explain_step(tenant: TenantDep, id: RunId, step: StepName) -> Explanation:
    """Explain what the step waits for, and what to do. A step with a job is explained by its job."""
    return await tenant.runs.explain(id, step)


@get("/v1/runs/{id:uuid}/history", policy=VIEWER, summary="Get the history of a durable function")
async def get_history(
    tenant: TenantDep, id: RunId, limit: Limit = 100,
    after: Annotated[int, QueryParameter(ge=0, le=2**31 - 1)] = 0,
) -> CheckpointPage:  # fmt: skip
    """List what the function has done and waits for. `next`: the `after` of the next page."""
    found = await tenant.runs.history(id, after=after, limit=limit)
    return CheckpointPage(found, found[-1].number if len(found) == limit else None)


class RunSignalRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A signal for one run. `once`: the same text again is not another signal."""

    signal: str
    payload: Any = None
    once: str | None = None


@post(
    "/v1/runs/{id:uuid}/signals", policy=OPERATOR, summary="Send a signal to a run",
    status_code=200,
)  # fmt: skip
async def send_to_run(tenant: TenantDep, id: RunId, data: JSONBody[RunSignalRequest]) -> SignalSent:
    """Its durable function takes it with `ctx.wait(signal)`."""
    return await tenant.runs.send(id, data.signal, data.payload, once=data.once)


class SignalRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A signal for whichever function waits for its name and key."""

    name: str
    key: str
    payload: Any = None
    once: str | None = None


@post("/v1/signals", policy=OPERATOR, summary="Send a signal", status_code=200)
async def send_signal(tenant: TenantDep, data: JSONBody[SignalRequest]) -> SignalSent:
    """To the durable function that has waited longest for it, or to the next that will."""
    return await tenant.signals.send(data.name, data.key, data.payload, once=data.once)


@get("/v1/signals", policy=VIEWER, summary="List signals, newest first")
async def list_signals(
    tenant: TenantDep, name: Name = None,
    key: Annotated[str | None, QueryParameter(max_length=255)] = None, limit: Limit = 100,
) -> list[Signal]:  # fmt: skip
    """Signals without `taken_at` wait for a function."""
    return await tenant.signals.list(name=name, key=key, limit=limit)


@post("/v1/runs/{id:uuid}/cancel", policy=OPERATOR, summary="Cancel a run", status_code=200)
async def cancel_run(tenant: TenantDep, id: RunId) -> RunChanged:
    """Steps that wait are closed, those that run are asked to stop; `always` steps still run."""
    return await tenant.runs.cancel(id)


@post("/v1/runs/{id:uuid}/pause", policy=OPERATOR, summary="Pause a run", status_code=200)
async def pause_run(tenant: TenantDep, id: RunId) -> RunChanged:
    """No further steps start until it is resumed. What runs goes on."""
    return await tenant.runs.pause(id)


@post("/v1/runs/{id:uuid}/resume", policy=OPERATOR, summary="Resume a run", status_code=200)
async def resume_run(tenant: TenantDep, id: RunId) -> RunChanged:
    """After a pause, or from the steps that failed or were cancelled."""
    return await tenant.runs.resume(id)


@post(
    "/v1/runs/{id:uuid}/steps/{step:str}/retry", policy=OPERATOR, summary="Run a step again",
    status_code=200,
)  # fmt: skip
async def retry_step(tenant: TenantDep, id: RunId, step: StepName) -> RunChanged:
    """Run the step again, and everything that comes after it."""
    return await tenant.runs.retry(id, step)


class MembersRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The numbers of members; null: all that have failed."""

    numbers: list[int] | None = None


@post(
    "/v1/runs/{id:uuid}/steps/{step:str}/members/retry", policy=OPERATOR,
    summary="Run failed members of a map again", status_code=200,
)  # fmt: skip
async def retry_members(
    tenant: TenantDep, id: RunId, step: StepName, data: JSONBody[MembersRequest]
) -> RunChanged:
    """All that have failed or some of them, and everything that comes after the map."""
    return await tenant.runs.retry_members(id, step, data.numbers)


class SkipRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The result that the step is given."""

    result: Any = None


@post(
    "/v1/runs/{id:uuid}/steps/{step:str}/skip", policy=OPERATOR, summary="Skip a step",
    status_code=200,
)  # fmt: skip
async def skip_step(
    tenant: TenantDep, id: RunId, step: StepName, data: JSONBody[SkipRequest]
) -> RunChanged:
    """The step counts as succeeded with this result, without running."""
    return await tenant.runs.skip(id, step, data.result)


ROUTES = [
    list_runs, get_run, get_run_result, list_steps, get_step, explain_run, explain_step, cancel_run,
    pause_run, resume_run, retry_step, skip_step, list_members, retry_members, get_history,
    send_to_run, send_signal, list_signals,
]  # fmt: skip
