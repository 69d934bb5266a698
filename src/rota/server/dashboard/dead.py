"""Dead letters: failed jobs in groups of the same task and error; retry or discard a group."""

from __future__ import annotations

from typing import Annotated

from litestar.params import QueryParameter

from rota.errors import NotFound
from rota.model import State
from rota.operations.jobs import MANY, Action
from rota.operations.rota import Rota
from rota.server.api.dead import Fingerprint
from rota.server.dashboard.commands import Copyable, cli, curl
from rota.server.dashboard.forms import Fields
from rota.server.dashboard.pages import Back, Html, action, back, page, show
from rota.server.dashboard.words import plural
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest
from rota.store.dashboard import DashboardStore
from rota.store.search import DeadGroup, JobFilter

_ROUNDS = 20  # of ten thousand


@page("/dead", policy=VIEWER)
async def list_dead(
    request: RotaRequest,
    tenant: TenantDep,
    task: Annotated[str | None, QueryParameter(max_length=200)] = None,
) -> Html:
    dead = await DashboardStore((await tenant.store()).database, tenant.namespace).dead_groups(
        task or None
    )
    count = await tenant.jobs.count_matching(JobFilter(states=(State.FAILED,)), quick=True)
    return await show(
        request, "dead.html", dead=dead, count=count, task=task or "",
        how=Copyable(cli=cli("jobs", "dead"), curl=curl("GET", "/v1/dead")),
    )  # fmt: skip


async def _group(tenant: Rota, fingerprint: str) -> tuple[DeadGroup, int, bool]:
    """The group, how many are in it now, and whether there are more."""
    done = await tenant.dead.retry_group(fingerprint, dry_run=True)
    groups = await DashboardStore((await tenant.store()).database, tenant.namespace).dead_groups()
    for group in groups.groups:
        if group.fingerprint == fingerprint:
            return group, done.matched, done.more
    # Not among the newest: the long way.
    for group in await tenant.dead.groups(limit=MANY):
        if group.fingerprint == fingerprint:
            return group, done.matched, done.more
    raise NotFound(f"there are no dead letters {fingerprint!r}", subject=fingerprint)


@action("/dead/{fingerprint:str}/retry", policy=OPERATOR)
async def retry_group(
    request: RotaRequest, tenant: TenantDep, fingerprint: Fingerprint
) -> Back | Html:
    return await _act(request, tenant, fingerprint, "retry")


@action("/dead/{fingerprint:str}/discard", policy=OPERATOR)
async def discard_group(
    request: RotaRequest, tenant: TenantDep, fingerprint: Fingerprint
) -> Back | Html:
    return await _act(request, tenant, fingerprint, "discard")


async def _act(request: RotaRequest, tenant: Rota, fingerprint: str, word: Action) -> Back | Html:
    """Ask for confirmation first. With `sure`, act in rounds until none is left."""
    if not (await Fields.of(request)).flag("sure"):
        group, count, more = await _group(tenant, fingerprint)
        return await show(
            request, "dead_confirm.html", group=group, count=count, more=more, word=word,
            how=Copyable(curl=curl("POST", f"/v1/dead/{fingerprint}/{word}")),
        )  # fmt: skip
    changed = 0
    for _ in range(_ROUNDS):
        try:
            done = await tenant.dead.change_group(word, fingerprint)
        except NotFound:
            if changed:
                break  # the round before took the last of them
            raise
        changed += done.changed
        if not done.more:
            break
    told = (
        "will run again" if word == "retry" else ("was" if changed == 1 else "were") + " discarded"
    )
    return back(request, "/dead", f"{plural(changed, 'job')} {told}.")


ROUTES = [list_dead, retry_group, discard_group]
