"""Jobs: finding them, and doing the same to many.

Filters are in the address. A page goes on below the last id of the page before, so that a million of
them are as quick as ten. Whatever is done to many is first shown as a number on a page of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar.params import QueryParameter

from rota.core.time.interval import seconds_of
from rota.errors import ConfigError, TooMuchToRead
from rota.model import OutcomeKind, State
from rota.operations.jobs import MANY, Action
from rota.server.api.login import safe_target
from rota.server.api.pages import make_page, read_cursor
from rota.server.dashboard.commands import Copyable, cli, curl
from rota.server.dashboard.forms import Fields
from rota.server.dashboard.pages import Back, Here, Html, action, back, page, show
from rota.server.dashboard.words import plural
from rota.server.dependencies import TenantDep
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest
from rota.store.dashboard import DashboardStore
from rota.store.search import Count, JobFilter, JobSummary

_ROWS = 50
_PAGE_MS = 3_000
_WITHIN = ("15m", "1h", "24h", "7d")
# What is said when an action is done.
_DONE: dict[Action, str] = {
    "retry": "will run again",
    "cancel": "were cancelled or asked to stop",
    "discard": "were discarded",
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
        JobFilter.of(states=asked.state, outcome=asked.outcome)  # refuses unknown names
        if asked.within is not None and asked.within not in _WITHIN:
            raise ConfigError(f"within: is one of {', '.join(_WITHIN)}")
        return asked

    def filter(self, now: datetime) -> JobFilter:
        since = now - timedelta(seconds=seconds_of(self.within, "within")) if self.within else None
        return JobFilter.of(
            states=self.state, task=self.task, queue=self.queue, tag=self.tag, text=self.text,
            schedule=self.schedule, since=since, outcome=self.outcome,
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
    items: Sequence[JobSummary] = ()
    following, count, too_much = None, None, None
    try:
        before = read_cursor(cursor, UUID, asked)
        found = await tenant.jobs.search(
            wanted, before=before, limit=_ROWS + 1, patience_ms=_PAGE_MS
        )
        cut = make_page(found, _ROWS, lambda job: job.id, asked)
        items, following = cut.items, cut.next
        if cut.next is None and cursor is None:
            count = Count(len(items), exact=True)
        else:
            count = await tenant.jobs.count_matching(wanted, quick=True)
    except TooMuchToRead as error:
        too_much = str(error)
    here = Here(request)
    known = DashboardStore(store.database, tenant.namespace)
    return await show(
        request, "jobs.html", now=now, asked=asked, jobs=items, count=count, too_much=too_much,
        next=here.url("/jobs", **asked.given, cursor=following) if following else None,
        cursor=cursor, states=[state.label for state in State], withins=_WITHIN,
        outcomes=[kind.label for kind in OutcomeKind],
        tasks=await known.tasks(), queues=await store.database.fetch("queue_names", tenant.namespace),
        how=_how(asked),
    )  # fmt: skip


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
    """Ask for confirmation first, with the number of jobs. With `sure`, act."""
    fields = await Fields.of(request)
    word = next((action for action in _DONE if action == fields.text("do")), None)
    if word is None:
        raise ConfigError(f"do: must be one of {', '.join(_DONE)}", field="do")
    target = safe_target(fields.text("return"))
    asked = wanted = None
    if fields.flag("everything"):
        asked = Asked.made(
            state=fields.several("state"),
            **{name: fields.text(name) for name in Asked.__struct_fields__ if name != "state"},
        )
        wanted = asked.filter(await (await tenant.store()).now())
        ids = await tenant.jobs.matching(word, wanted)
    else:
        ids = await tenant.jobs.applicable(word, fields.several("id")[:MANY])
    if not ids:
        return back(request, target, f"There is no job to {word} among them.", kind="problem")
    if not fields.flag("sure"):
        return await show(
            request, "jobs_confirm.html", word=word, count=len(ids), more=len(ids) == MANY,
            asked=asked, ids=ids if asked is None else (), target=target,
            sample=await (await tenant.store()).get_jobs(tenant.namespace, ids[:5]),
        )  # fmt: skip
    if wanted is not None:
        changed = await tenant.jobs.change_matching(word, wanted, everything=True)
        done, left = changed.changed, changed.matched - changed.changed
    else:
        done = len(await tenant.jobs.change_many(word, ids))
        left = len(ids) - done
    told = f"{plural(done, 'job')} {_DONE[word]}."
    if left:
        told += f" {plural(left, 'other')} had changed meanwhile."
    return back(request, target, told.replace("1 job were", "1 job was"))


ROUTES = [list_jobs, act_on_many]
