"""Jobs: finding them, and doing the same to many.

Filters are in the address. A page goes on below the last id of the page before, so that a million of
them are as quick as ten. Whatever is done to many is first shown as a number on a page of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence, Sized
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar.params import QueryParameter

from rota.core.time.interval import seconds_of
from rota.errors import ConfigError
from rota.model import OutcomeKind, State
from rota.operations.rota import Rota
from rota.server.api.jobs import parse_outcome, parse_states
from rota.server.api.login import safe_target
from rota.server.api.pages import make_page, read_cursor
from rota.server.dashboard.commands import Copyable, cli, curl
from rota.server.dashboard.forms import Fields
from rota.server.dashboard.pages import Back, Here, Html, action, back, page, show
from rota.server.dashboard.words import plural
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER
from rota.server.problems import Problem
from rota.server.requests import RotaRequest
from rota.store.changes import changing
from rota.store.dashboard import DashboardStore
from rota.store.search import Count, JobFilter, JobSearch, JobSummary, TooMuchToRead

_ROWS = 50
_PAGE_MS = 3_000
_MANY = 10_000
_NAMED_IN_AUDIT = 100
_WITHIN = ("15m", "1h", "24h", "7d")
_OPEN = (State.WAITING, State.SCHEDULED, State.READY, State.RUNNING)
# What each needs of a job, and what is said when it is done.
_ACTIONS = {
    "retry": ((State.FAILED,), "will run again"),
    "cancel": (_OPEN, "were cancelled or asked to stop"),
    "discard": ((State.FAILED,), "were taken off the dead-letter list"),
}

Text = Annotated[str | None, QueryParameter(max_length=200)]
States = Annotated[list[str] | None, QueryParameter(name="state", max_items=8)]


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """The filters as the address has them."""

    state: list[str] = []
    task: str | None = None
    queue: str | None = None
    tag: str | None = None
    text: str | None = None
    schedule: str | None = None
    outcome: str | None = None
    within: str | None = None

    @classmethod
    def made(cls, **given: Any) -> Asked:
        """Blank fields of the form mean nothing."""
        kept = {name: value for name, value in given.items() if value not in (None, "", [])}
        asked = cls(**kept)
        parse_states(asked.state)
        parse_outcome(asked.outcome)
        if asked.within is not None and asked.within not in _WITHIN:
            raise ConfigError(f"within: is one of {', '.join(_WITHIN)}")
        return asked

    def filter(self, now: datetime) -> JobFilter:
        since = now - timedelta(seconds=seconds_of(self.within, "within")) if self.within else None
        return JobFilter(
            states=parse_states(self.state), task=self.task, queue=self.queue, tag=self.tag,
            text=self.text, schedule=self.schedule, since=since,
            outcome=parse_outcome(self.outcome),
        )  # fmt: skip

    @property
    def given(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


@page("/jobs", policy=VIEWER)
async def list_jobs(
    request: RotaRequest,
    tenant: TenantDep,
    states: States = None,
    task: Text = None,
    queue: Text = None,
    tag: Text = None,
    text: Text = None,
    schedule: Text = None,
    outcome: Text = None,
    within: Text = None,
    cursor: Annotated[str | None, QueryParameter(max_length=500)] = None,
) -> Html:
    asked = Asked.made(
        state=states,
        task=task,
        queue=queue,
        tag=tag,
        text=text,
        schedule=schedule,
        outcome=outcome,
        within=within,
    )
    store = await tenant.store()
    now = await store.now()
    wanted = asked.filter(now)
    search = JobSearch(store.database)
    namespace = tenant.namespace
    items: Sequence[JobSummary] = ()
    following, count, too_much = None, None, None
    try:
        found = await search.page(
            namespace, wanted, read_cursor(cursor, UUID, asked), _ROWS + 1, patience_ms=_PAGE_MS
        )
        cut = make_page(found, _ROWS, lambda job: job.id, asked)
        items, following = cut.items, cut.next
        count = await _count(
            search, namespace, wanted, len(items) if not cut.next else None, cursor
        )
    except TooMuchToRead as error:
        too_much = str(error)
    here = Here(request)
    known = DashboardStore(store.database, namespace)
    return await show(
        request, "jobs.html", now=now, asked=asked, jobs=items, count=count, too_much=too_much,
        next=here.url("/jobs", **asked.given, cursor=following) if following else None,
        cursor=cursor, states=[state.label for state in State], withins=_WITHIN,
        outcomes=[kind.label for kind in OutcomeKind],
        tasks=await known.tasks(), queues=await store.database.fetch("queue_names", namespace),
        how=_how(asked),
    )  # fmt: skip


async def _count(
    search: JobSearch, namespace: str, wanted: JobFilter, all_here: int | None, cursor: str | None
) -> Count:
    if all_here is not None and cursor is None:
        return Count(all_here, exact=True)
    return await search.quick_count(namespace, wanted)


def _how(asked: Asked) -> Copyable:
    words: list[str] = ["jobs", "list"]
    for name in ("task", "queue", "tag", "outcome"):
        if value := getattr(asked, name):
            words += [f"--{name}", value]
    words += [word for state in asked.state[:1] for word in ("--state", state)]
    # The shell asks for one state, and knows no text, schedule or time.
    exact = len(asked.state) <= 1 and not (asked.text or asked.schedule or asked.within)
    query = [
        (name, value) for name, value in asked.given.items() if name not in ("within", "state")
    ]
    query += [("state", state) for state in asked.state]
    address = "/v1/jobs" + ("?" + "&".join(f"{n}={v}" for n, v in query) if query else "")
    return Copyable(cli=cli(*words) if exact else "", curl=curl("GET", address))


# -- many at once


@action("/jobs/bulk", policy=OPERATOR)
async def act_on_many(request: RotaRequest, tenant: TenantDep) -> Back | Html:
    """Asked once: how many. Asked again with `sure`: done."""
    fields = await Fields.of(request)
    word = fields.text("do") or ""
    if word not in _ACTIONS:
        raise Problem(422, "invalid", f"do: is one of {', '.join(_ACTIONS)}")
    target = safe_target(fields.text("return"))
    asked = None
    if fields.flag("everything"):
        asked = Asked.made(
            state=fields.several("state"),
            **{name: fields.text(name) for name in Asked.__struct_fields__ if name != "state"},
        )
        ids = await _matching(tenant, asked, word)
    else:
        ids = await _chosen(tenant, fields.several("id"), word)
    if not ids:
        can = " or ".join(state.label for state in _ACTIONS[word][0])
        return back(request, target, f"Nothing to {word}: none of them is {can}.", kind="problem")
    if not fields.flag("sure"):
        return await show(
            request, "jobs_confirm.html", word=word, count=len(ids), more=len(ids) == _MANY,
            asked=asked, ids=ids if asked is None else (), target=target,
            sample=await (await tenant.store()).get_jobs(tenant.namespace, ids[:5]),
        )  # fmt: skip
    done = await _do(request, tenant, word, ids, asked)
    told = f"{plural(done, 'job')} {_ACTIONS[word][1]}."
    left = len(ids) - done
    if left:
        told += f" {plural(left, 'other')} had changed meanwhile."
    return back(request, target, told.replace("1 job were", "1 job was"))


async def _chosen(tenant: Rota, given: Sequence[str], word: str) -> list[UUID]:
    try:
        ids = [UUID(id) for id in given[:_MANY]]
    except ValueError:
        raise Problem(422, "invalid", "that is not a job's id") from None
    jobs = await (await tenant.store()).get_jobs(tenant.namespace, ids)
    return [job.id for job in jobs if State.parse(job.state) in _ACTIONS[word][0]]


async def _matching(tenant: Rota, asked: Asked, word: str) -> list[UUID]:
    """Of those that match the filter, the ones that this can be done to."""
    store = await tenant.store()
    wanted = asked.filter(await store.now())
    can = _ACTIONS[word][0]
    states = tuple(state for state in can if not wanted.states or state in wanted.states)
    if not states:
        return []
    narrowed = msgspec.structs.replace(wanted, states=states)
    return await JobSearch(store.database).ids(tenant.namespace, narrowed, _MANY)


async def _do(
    request: RotaRequest, tenant: Rota, word: str, ids: Sequence[UUID], asked: Asked | None
) -> int:
    """What can't be done to a job any more is passed over by the guarded transitions themselves."""
    jobs = tenant.jobs
    act: Callable[[Sequence[UUID]], Awaitable[Sized]]
    act = {"cancel": jobs.cancel_many, "retry": jobs.retry_many}.get(word, jobs.discard)
    subject = "jobs by filter" if asked is not None else "jobs by hand"
    before = asked.given if asked is not None else {"ids": list(ids[:_NAMED_IN_AUDIT])}
    database = (await tenant.store()).database
    async with changing(database, word, subject, before=before) as change:
        done = len(await act(ids))
        change.after = {"matched": len(ids), "changed": done}
    return done


ROUTES = [list_jobs, act_on_many]
