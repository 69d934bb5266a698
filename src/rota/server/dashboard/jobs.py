"""The pages of jobs and of dead letters.

Filters are in the address. A page begins after the last id of the page before, so that the millionth is
as quick as the first. Changes of many jobs are confirmed on a page that shows their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any
from urllib.parse import urlencode
from uuid import UUID

import msgspec
from litestar.params import QueryParameter
from litestar.response import Redirect

from rota.core.time.interval import seconds_of
from rota.errors import ConfigError, NotFound, TooMuchToRead
from rota.model import Count, JobSummary, ManyChanged, OutcomeKind, State
from rota.operations.jobs import MANY, Action
from rota.operations.rota import Rota
from rota.server.api.jobs import Fingerprint
from rota.server.api.pages import make_cursor, make_page, read_cursor
from rota.server.dashboard import pages
from rota.server.dashboard.forms import Fields
from rota.server.dashboard.search_words import is_search, read_search
from rota.server.dashboard.words import plural
from rota.server.policy import OPERATOR, VIEWER
from rota.server.requests import RotaRequest, StatsDep, TenantDep
from rota.server.targets import safe_target
from rota.store.dashboard import DashboardStore, Match
from rota.store.search import JobFilter, Looked, compact_json

_ROWS = 40
_GROUPS = 30
_MOST_ROWS = 200
_PAGE_MS = 3_000
_WITHIN = ("15m", "1h", "6h", "24h", "7d", "30d")
_LONGEST = 90 * 86_400
_COLUMNS = ("queue", "node", "attempt", "due", "took")
_ROUNDS = 20  # of ten thousand jobs of a group
# The message after an action.
_DONE: dict[Action, str] = {
    "retry": "will run again",
    "cancel": "were cancelled or asked to stop",
    "discard": "were discarded",
}
# What they do, in the question before.
_MEANS: dict[Action, str] = {
    "retry": "They run again now, and their attempts are counted from 1.",
    "cancel": "Waiting jobs are cancelled at once. Running jobs are asked to stop.",
    "discard": "They are removed from the dead-letter list, and can be read until their retention ends.",
}

Text = Annotated[str | None, QueryParameter(max_length=200)]
States = Annotated[list[str] | None, QueryParameter(name="state", max_items=8)]


class Asked(msgspec.Struct, frozen=True, omit_defaults=True):
    """The filters in the address."""

    state: list[str] = []
    task: str | None = None
    queue: str | None = None
    tag: str | None = None
    text: str | None = None
    schedule: str | None = None
    outcome: str | None = None
    within: str | None = None
    group: str | None = None
    node: str | None = None
    ended_from: str | None = None  # a moment with its offset
    ended_to: str | None = None

    @classmethod
    def made(cls, **given: Any) -> Asked:
        """Make the filters. Blank fields of the form are left out."""
        kept = {name: value for name, value in given.items() if value not in (None, "", [])}
        asked = cls(**kept)
        JobFilter.of(states=asked.state, outcome=asked.outcome)  # raises for unknown names
        if asked.within is not None and not 0 < seconds_of(asked.within, "since") <= _LONGEST:
            raise ConfigError("since: must be at most 90 days, like 15m, 2h or 7d")
        return asked

    def filter(self, now: datetime) -> JobFilter:
        since = now - timedelta(seconds=seconds_of(self.within, "within")) if self.within else None
        return JobFilter.of(
            states=self.state, task=self.task, queue=self.queue, tag=self.tag, text=self.text,
            schedule=self.schedule, since=since, outcome=self.outcome, group=self.group, node=self.node,
            ended_from=_moment(self.ended_from, "ended_from"),
            ended_to=_moment(self.ended_to, "ended_to"),
        )  # fmt: skip

    @property
    def given(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def _moment(text: str | None, name: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        found = None
    if text and (found is None or found.tzinfo is None):
        raise ConfigError(f"{name}: {text[:50]!r} is not a time like 2027-01-31T09:00:00+00:00")
    return found


@pages.page("/jobs", policy=VIEWER)
async def show_jobs(
    request: RotaRequest,
    tenant: TenantDep,
    stats: StatsDep,
    states: States = None,
    task: Text = None,
    queue: Text = None,
    tag: Text = None,
    text: Text = None,
    schedule: Text = None,
    outcome: Text = None,
    within: Text = None,
    group: Text = None,
    node: Text = None,
    ended_from: Text = None,
    ended_to: Text = None,
    limit: Annotated[int, QueryParameter(ge=1, le=_MOST_ROWS)] = _ROWS,
    cursor: Annotated[str | None, QueryParameter(max_length=500)] = None,
    deep: Annotated[str | None, QueryParameter(pattern="^(|yes)$")] = None,
) -> pages.Html | pages.Back:
    """Look at the newest jobs; with `deep`, at all, which takes longer the more there are."""
    asked = Asked.made(
        state=states, task=task, queue=queue, tag=tag, text=text, schedule=schedule,
        outcome=outcome, within=within, group=group, node=node, ended_from=ended_from, ended_to=ended_to,
    )  # fmt: skip
    if text and is_search(text):
        # As filters, in the address as well: so that what is shown can be changed and sent to somebody.
        named = asked.given | {"text": None} | read_search(text)
        here = pages.Here(request)
        return Redirect(here.url("/jobs", **named), status_code=303)
    given = asked.given | ({"limit": limit} if limit != _ROWS else {})
    store = await tenant.store()
    now = await store.now()
    wanted = asked.filter(now)
    before, looked = read_cursor(cursor, UUID, asked), Looked(())
    count, too_much, here = None, None, pages.Here(request)
    try:
        if deep:
            looked = Looked(await tenant.jobs.search(
                wanted, before=before, limit=limit + 1, patience_ms=_PAGE_MS
            ))  # fmt: skip
        else:
            looked = await tenant.jobs.look(wanted, before=before, limit=limit + 1)
    except TooMuchToRead as error:
        too_much = str(error)
    cut = make_page(looked.jobs, limit, lambda job: job.id, asked)
    items, following = cut.items, cut.next
    if following or cursor:
        count = await tenant.jobs.count_matching(wanted, quick=True)
    elif looked.until is None and not too_much:
        count = Count(len(items), exact=True)
    further = make_cursor(looked.until, asked) if looked.until else None
    return await pages.show(
        request, "jobs.html", now=now, columns=here.look.columns or _COLUMNS, asked=asked,
        jobs=items, count=count, too_much=too_much,
        next=here.url("/jobs", **given, cursor=following, deep=deep or None) if following else None,
        looked=looked, further=here.url("/jobs", **given, cursor=further, deep="yes"),
        first=here.url("/jobs", **given), cursor=cursor,
        states=[state.label for state in State], withins=_WITHIN,
        outcomes=[kind.label for kind in OutcomeKind],
        tasks=await stats.tasks(), queues=await stats.queue_names(),
        matches=await _matches(stats, items, asked.text), how=[_how(asked)],
        nodes=await stats.node_names([*{job.node for job in items if job.node}]), ended=[
            _moment(text, "ended") for text in (asked.ended_from, asked.ended_to)
        ],
    )  # fmt: skip


async def _matches(
    stats: DashboardStore, jobs: Sequence[JobSummary], text: str | None
) -> dict[UUID, Match]:
    if not text or not jobs:
        return {}
    return await stats.matches([job.id for job in jobs], text, compact_json(text))


def _how(asked: Asked) -> pages.Copyable:
    words: list[str] = ["jobs", "list"]
    for name in ("task", "queue", "tag", "outcome"):
        if value := getattr(asked, name):
            words += [f"--{name}", value]
    words += [word for state in asked.state[:1] for word in ("--state", state)]
    # `rota jobs list` has options for one state, and none for the others; the API none for these three.
    beyond_api = asked.within or asked.group or asked.node or asked.ended_from or asked.ended_to
    exact = len(asked.state) <= 1 and not (asked.text or asked.schedule or beyond_api)
    query = [(name, value) for name, value in asked.given.items() if name != "state"]
    query += [("state", state) for state in asked.state]
    address = "/v1/jobs" + (f"?{urlencode(query)}" if query else "")
    return pages.Copyable(
        "List these jobs", cli=pages.cli(*words) if exact else "",
        curl="" if beyond_api else pages.curl("GET", address),
    )  # fmt: skip


@pages.action("/jobs/bulk", policy=OPERATOR)
async def change_jobs(request: RotaRequest, tenant: TenantDep) -> pages.Back | pages.Html:
    """Ask for confirmation first, with the number of jobs. With `sure`, act."""
    fields = await Fields.of(request)
    word = next((action for action in _DONE if action == fields.text("do")), None)
    if word is None:
        raise ConfigError(f"do: must be one of {', '.join(_DONE)}", field="do")
    target = safe_target(fields.text("return"))
    asked = wanted = None
    if not fields.flag("everything") and not fields.several("id"):
        text = f"Select the jobs first that you want to {word}, or tick “all that match”."
        return pages.back(request, target, text, kind="problem")
    if fields.flag("everything"):
        asked = Asked.made(
            state=fields.several("state"),
            **{name: fields.text(name) for name in Asked.__struct_fields__ if name != "state"},
        )
        if not asked.given:
            text = (f"Set a filter first: without one, “all that match” would {word} every job of the "
                    "namespace.")  # fmt: skip
            return pages.back(request, target, text, kind="problem")
        wanted = asked.filter(await (await tenant.store()).now())
        ids = await tenant.jobs.matching(word, wanted)
    else:
        ids = await tenant.jobs.applicable(word, fields.several("id")[:MANY])
    if not ids:
        return pages.back(request, target, f"There is no job to {word} among them.", kind="problem")
    if not fields.flag("sure"):
        return await pages.confirm(
            request, f"{word.capitalize()} {plural(len(ids), 'job')}?", _MEANS[word],
            template="jobs_confirm.html", path="/jobs/bulk", target=target,
            fields=_again(word, target, asked, ids),
            word=f"{word.capitalize()} {plural(len(ids), 'job')}",
            kind="primary" if word == "retry" else "danger", do=word, count=len(ids),
            more=len(ids) == MANY, asked=asked,
            sample=await (await tenant.store()).get_jobs(tenant.namespace, ids[:5]),
        )  # fmt: skip
    if wanted is not None:
        changed = await tenant.jobs.change_matching(word, wanted, everything=True)
    else:
        changed = await tenant.jobs.change_selected(
            word, ids, f"{len(ids)} jobs", limit=MANY, dry_run=False
        )
    text = _summary(changed.changed, word)
    if left := changed.matched - changed.changed:
        text += f" {plural(left, 'other')} had changed meanwhile."
    return await _done(request, tenant, target, text, changed)


def _again(
    word: Action, target: str, asked: Asked | None, ids: Sequence[UUID]
) -> list[tuple[str, Any]]:
    """Return the fields of a change, for the form that confirms it: a filter, or ids."""
    fields: list[tuple[str, Any]] = [("do", word), ("return", target)]
    if asked is None:
        return [*fields, *(("id", id) for id in ids)]
    for name, value in asked.given.items():
        fields += [(name, one) for one in ([value] if isinstance(value, str) else value)]
    return [*fields, ("everything", "yes")]


async def _done(
    request: RotaRequest, tenant: Rota, target: str, text: str, changed: ManyChanged
) -> pages.Back:
    """Go back with a message that leads to what becomes of the jobs, and offers to undo it."""
    if changed.bulk is None:
        return pages.back(request, target, text, kind="warning")
    more = pages.Here(request).url(f"/jobs/changes/{changed.bulk}")
    can_undo = (await tenant.bulk.get(changed.bulk)).can_undo
    undo = f"/jobs/changes/{changed.bulk}/undo" if can_undo else None
    return pages.back(request, target, text, undo=undo, more=more)


# -- dead letters


@pages.page("/dead", policy=VIEWER)
async def show_dead(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, task: Text = None,
    skip: pages.Skip = 0,
) -> pages.Html:  # fmt: skip
    found = await stats.dead_groups(task or None)
    shown = pages.part(request, found.groups[skip : skip + _GROUPS + 1], skip, _GROUPS)
    if shown.next and task:
        shown = msgspec.structs.replace(
            shown, next=pages.Here(request).url("/dead", task=task, skip=skip + _GROUPS)
        )
    count = await tenant.jobs.count_matching(JobFilter(states=(State.FAILED,)), quick=True)
    return await pages.show(
        request, "dead.html", dead=found, shown=shown, count=count,
        task=task or "",
        how=[pages.Copyable(
            "List the dead letters", cli=pages.cli("jobs", "dead"), curl=pages.curl("GET", "/v1/dead")
        )],
    )  # fmt: skip


@pages.action("/dead/{fingerprint:str}/retry", policy=OPERATOR)
async def retry_group(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, fingerprint: Fingerprint
) -> pages.Back | pages.Html:
    return await _change_group(request, tenant, stats, fingerprint, "retry")


@pages.action("/dead/{fingerprint:str}/discard", policy=OPERATOR)
async def discard_group(
    request: RotaRequest, tenant: TenantDep, stats: StatsDep, fingerprint: Fingerprint
) -> pages.Back | pages.Html:
    return await _change_group(request, tenant, stats, fingerprint, "discard")


async def _change_group(
    request: RotaRequest, tenant: Rota, stats: DashboardStore, fingerprint: str, word: Action
) -> pages.Back | pages.Html:
    """Ask for confirmation first. With `sure`, change jobs in rounds until none is left."""
    if not (await Fields.of(request)).flag("sure"):
        preview = await tenant.dead.retry_group(fingerprint, dry_run=True)
        # Among the newest, which are quick to read, or among all.
        groups = [*(await stats.dead_groups()).groups]
        if all(group.fingerprint != fingerprint for group in groups):
            groups = [*await tenant.dead.groups(limit=MANY)]
        group = next((group for group in groups if group.fingerprint == fingerprint), None)
        if group is None:
            raise NotFound(f"there are no dead letters {fingerprint!r}", subject=fingerprint)
        count = preview.matched
        return await pages.confirm(
            request, f"{word.capitalize()} {plural(count, 'job')}?", _MEANS[word],
            template="dead_confirm.html", path=f"/dead/{fingerprint}/{word}",
            word=f"{word.capitalize()} {plural(count, 'job')}",
            kind="primary" if word == "retry" else "danger",
            target=pages.Here(request).url("/dead"), group=group, count=count, more=preview.more,
            how=[pages.Copyable(
                f"{word.capitalize()} this group",
                curl=pages.curl("POST", f"/v1/dead/{fingerprint}/{word}"),
            )],
        )  # fmt: skip
    changed, done = 0, None
    for _ in range(_ROUNDS):
        try:
            done = await tenant.dead.change_group(word, fingerprint)
        except NotFound:
            if changed:
                break  # the round before changed the last of them
            raise
        changed += done.changed
        if not done.more:
            break
    assert done is not None
    return await _done(request, tenant, "/dead", _summary(changed, word), done)


def _summary(changed: int, action: Action) -> str:
    return f"{plural(changed, 'job')} {_DONE[action]}.".replace("1 job were", "1 job was")


ROUTES = [show_jobs, change_jobs, show_dead, retry_group, discard_group]
