"""Operations on queues: list, pause, resume, limit them, and decide which of their jobs start first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import Any, NamedTuple, get_args

from msgspec import UNSET, UnsetType

from rota.config import check_name
from rota.core.history_modes import ALL, check_history
from rota.core.keys import Rate, check_key, check_most, shown
from rota.core.service import service_by_key
from rota.errors import ConfigError, Conflict, NotFound, StoreUnavailable
from rota.model import (
    FairShare,
    LimitHolder,
    LimitStatus,
    QueuePolicy,
    QueueStatus,
    ShareService,
)
from rota.operations.base import Operations
from rota.store.changes import Change
from rota.store.depths import DepthStore
from rota.store.limits import LimitStore

MOST_DEPTH = 2**53
# The settings of a queue, and their values in a queue for which nobody has set them.
DEFAULTS: Mapping[str, Any] = {
    "policy": "priority", "max_run_time": None, "concurrency": None, "concurrency_per_key": None,
    "rate": None, "rate_burst": None, "max_depth": None, "history": ALL,
}  # fmt: skip
_LEAST_WEIGHT, _MOST_WEIGHT = 0.000001, 1_000_000


class Queues(Operations):
    """`app.queues`"""

    async def list(self) -> list[QueueStatus]:
        """List all queues, with how full and how late they are."""
        return await (await self._rota.store()).list_queues(self._namespace)

    async def get(self, name: str) -> QueueStatus:
        """Return one queue; `NotFound` when no job has been in it and no task declares it."""
        found = await (await self._rota.store()).list_queues(self._namespace, name)
        return found[0] if found else await self._declared(name)

    async def settings(self, name: str) -> QueueStatus:
        """Return a queue without counting its jobs: quick, however many there are."""
        store = await self._rota.store()
        found = await store.list_queues(self._namespace, name, counted=False)
        return found[0] if found else await self._declared(name)

    async def _declared(self, name: str) -> QueueStatus:
        """Return a queue without jobs, which some task declares."""
        known = await (await self._rota.store()).known_queues(self._namespace)
        if name not in known:
            raise unknown_queue(name, known)
        return QueueStatus(
            namespace=self._namespace, name=name, paused_at=None, ready=0, running=0,
            scheduled=0, lag=None,
        )  # fmt: skip

    @asynccontextmanager
    async def _changing_field(
        self, action: str, name: str, field: str, must_exist: bool
    ) -> AsyncIterator[Change]:
        """Open the transaction of a change, and record the value of `field` before it."""
        check_name("queue", name)
        async with self._changing(action, f"queue {name}") as change:
            try:
                change.before = {field: getattr(await self.get(name), field)}
            except NotFound:
                if must_exist:
                    raise
            yield change

    async def pause(self, name: str, *, must_exist: bool = False) -> QueueStatus:
        """Start no job of this queue until it is resumed. Running jobs are not affected.

        With `must_exist`, a queue that has had no job and that no task declares is refused.
        """
        store = await self._rota.store()
        async with self._changing_field("pause", name, "paused_at", must_exist) as change:
            change.after = {"paused_at": await store.pause_queue(self._namespace, name)}
        return await self.get(name)

    async def resume(self, name: str) -> QueueStatus:
        """Start the jobs of a paused queue again."""
        store = await self._rota.store()
        async with self._changing_field("resume", name, "paused_at", True):
            if not await store.resume_queue(self._namespace, name):
                raise unknown_queue(name)
        return await self.get(name)

    async def set_max_run_time(
        self, name: str, seconds: float | None, *, must_exist: bool = False
    ) -> QueueStatus:
        """Set how long an attempt of this queue's jobs may run when the job has no timeout.

        An attempt that runs longer is stopped as after a timeout. None: the installation's
        `max_run_time` applies.
        """
        check_run_time(seconds)
        store = await self._rota.store()
        async with self._changing_field("set", name, "max_run_time", must_exist) as change:
            await store.set_max_run_time(self._namespace, name, seconds)
            change.after = {"max_run_time": seconds}
        return await self.get(name)

    async def set_max_depth(
        self, name: str, most: int | None, *, must_exist: bool = False
    ) -> QueueStatus:
        """Set how many jobs of this queue there may be that have not ended; None: no limit.

        Above it submits raise `QueueFull`, until a fifth of it is free again. In your own transactions
        they are only warned up to twice the limit. What retries, schedules and workflows bring is
        counted, and never refused.
        """
        check_depth(most)
        store = DepthStore((await self._rota.store()).database)
        async with self._changing_field("set", name, "max_depth", must_exist) as change:
            await store.set_max_depth(self._namespace, name, most)
            change.after = {"max_depth": most}
        if most is not None:
            await count_soon(store, self._namespace, name)
        return await self.get(name)

    async def set_history(self, name: str, mode: str, *, must_exist: bool = False) -> QueueStatus:
        """Set what is kept of this queue's jobs that succeed. Workers know it within seconds.

        Jobs that fail are in the dead-letter list, and cancelled ones are kept, whatever is set here.
        So are steps of workflows and jobs of schedules.

        Args:
            name: of the queue.
            mode: ``all`` (the default); ``failures``: those of which an attempt had failed;
                ``sample:1%``: these, and a hundredth of the others; ``none``: none of them.
            must_exist: refuse a queue that has had no job and that no task declares.
        """
        check_history(mode)
        store = await self._rota.store()
        async with self._changing_field("set", name, "history", must_exist) as change:
            await store.set_queue_history(self._namespace, name, mode)
            change.after = {"history": mode}
        return await self.get(name)

    async def set_limits(
        self,
        name: str,
        *,
        concurrency: int | UnsetType | None = UNSET,
        concurrency_per_key: int | UnsetType | None = UNSET,
        rate: str | UnsetType | None = UNSET,
        rate_burst: int | None = None,
        must_exist: bool = False,
    ) -> QueueStatus:
        """Set the limits of this queue in the whole cluster. What is left out stays as it is.

        What runs already goes on, and counts; what waits obeys at once.

        Args:
            name: of the queue.
            concurrency: how many of its jobs may run at a time; None: no limit.
            concurrency_per_key: how many of those with the same `concurrency_key`; None: no limit.
            rate: how many of its jobs may start in a period, such as ``100/minute``; None: no limit.
            rate_burst: how many of them may start at once; a tenth of a second's worth by default.
            must_exist: refuse a queue that has had no job and that no task declares.
        """
        if concurrency is not UNSET:
            check_most("concurrency", concurrency)
        if concurrency_per_key is not UNSET:
            check_most("concurrency_per_key", concurrency_per_key)
        given = Rate.parse(rate, rate_burst) if isinstance(rate, str) else None
        if given is None and rate_burst is not None:
            raise ConfigError("rate_burst needs a rate", field="rate_burst")
        check_name("queue", name)
        store = await self._rota.store()
        async with self._changing("set", f"queue {name}") as change:
            now = _Limits()
            try:
                now = _limits_of(await self.get(name))
                change.before = _record(now)
            except NotFound:
                if must_exist:
                    raise
            after = _Limits(
                now.concurrency if concurrency is UNSET else concurrency,
                now.per_key if concurrency_per_key is UNSET else concurrency_per_key,
                now.rate if rate is UNSET else given,
            )
            await LimitStore(store.database).set_queue_limits(
                self._namespace, name, after.concurrency, after.per_key, after.rate
            )
            change.after = _record(after)
        return await self.get(name)

    async def configure(
        self,
        name: str,
        *,
        policy: QueuePolicy | UnsetType = UNSET,
        max_run_time: float | UnsetType | None = UNSET,
        concurrency: int | UnsetType | None = UNSET,
        concurrency_per_key: int | UnsetType | None = UNSET,
        rate: str | UnsetType | None = UNSET,
        rate_burst: int | UnsetType | None = UNSET,
        max_depth: int | UnsetType | None = UNSET,
        history: str | UnsetType = UNSET,
        must_exist: bool = False,
    ) -> QueueStatus:
        """Change several settings at once: all of them, or none. What is left out stays as it is.

        See `set_policy`, `set_max_run_time`, `set_limits`, `set_max_depth` and `set_history`.
        """
        check_name("queue", name)
        async with self._changing("set", f"queue {name}") as change:
            before: dict[str, Any] = {}
            try:
                before = settings_of(await self.get(name))
            except NotFound:
                if must_exist:
                    raise
            if policy is not UNSET:
                await self.set_policy(name, policy)
            if max_run_time is not UNSET:
                await self.set_max_run_time(name, max_run_time)
            if history is not UNSET:
                await self.set_history(name, history)
            limits = concurrency, concurrency_per_key, rate
            if any(one is not UNSET for one in limits) or rate_burst not in (UNSET, None):
                burst = rate_burst if isinstance(rate_burst, int) and rate is not None else None
                await self.set_limits(
                    name, concurrency=concurrency, concurrency_per_key=concurrency_per_key,
                    rate=rate, rate_burst=burst,
                )  # fmt: skip
            depths = DepthStore((await self._rota.store()).database)
            if max_depth is not UNSET:
                check_depth(max_depth)
                await depths.set_max_depth(self._namespace, name, max_depth)
            queue = await self.get(name)
            after = settings_of(queue)
            changed = [field for field in after if before.get(field) != after[field]]
            change.before = {field: before[field] for field in changed if field in before} or None
            change.after = {field: after[field] for field in changed}
            change.happened = bool(changed)
        if not isinstance(max_depth, int):
            return queue
        await count_soon(depths, self._namespace, name)
        return await self.get(name)

    async def set_policy(
        self, name: str, policy: QueuePolicy, *, must_exist: bool = False
    ) -> QueueStatus:
        """Set which jobs of this queue start first. It acts at once, also on jobs that wait.

        Args:
            name: of the queue.
            policy: ``priority`` (the default): by priority and due time; ``fair``: slots are shared
                between the fairness keys of its jobs, by their weights, in seconds of run time. Inside
                a share by priority and due time; ``fifo``: by due time alone; ``edf``: by deadline,
                which is the `deadline` of a job's task after its due time, or an hour without one.
            must_exist: refuse a queue that has had no job and that no task declares.
        """
        if policy not in get_args(QueuePolicy):
            known = ", ".join(get_args(QueuePolicy))
            raise ConfigError(f"policy must be one of {known}, not {policy!r:.300}", field="policy")
        store = await self._rota.store()
        async with self._changing_field("set", name, "policy", must_exist) as change:
            await LimitStore(store.database).set_queue_policy(self._namespace, name, policy)
            change.after = {"policy": policy}
        return await self.get(name)

    async def set_weight(self, name: str, key: str, weight: float | None) -> None:
        """Set the weight of a fairness key in a queue: what it gets in relation to others.

        It acts at once, also on jobs that wait. None: the default, 1. An empty key: jobs without one.
        """
        check_name("queue", name)
        if key != "":
            check_key("fairness_key", key)
        check_weight(weight)
        limits = LimitStore((await self._rota.store()).database)
        async with self._changing("set", f"queue {name}") as change:
            before = await limits.fair_weight(self._namespace, name, key)
            change.before = {"fairness_key": key, "weight": before}
            await limits.set_fair_weight(self._namespace, name, key, weight)
            change.after = {"fairness_key": key, "weight": weight}

    async def undo(self, name: str, entry: int) -> QueueStatus:
        """Undo a change of a queue: a pause, a resume, a setting or a weight.

        Refused with `Conflict` if what it changed has been changed since, and for other kinds of change.

        Args:
            name: of the queue.
            entry: the id of the change in the audit log.
        """
        done = await self._rota.audit.get(self._namespace, entry)
        if done.subject != f"queue {name}" or done.action not in ("pause", "resume", "set"):
            raise Conflict(
                f"entry {entry} of the audit log is no change of queue {name!r} that can be undone",
                code="not-undoable", subject=entry,
            )  # fmt: skip
        async with self._changing("undo", f"queue {name}") as change:
            change.before, change.after = done.after, done.before
            if done.action in ("pause", "resume"):
                paused = (await self.get(name)).paused_at is not None
                self._check_unchanged(entry, paused == (done.action == "pause"))
                await (self.resume(name) if paused else self.pause(name))
            else:
                await self._undo_setting(name, entry, done.before or {}, done.after or {})
        return await self.get(name)

    async def _undo_setting(
        self, name: str, entry: int, before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        if "weight" in after:
            limits = LimitStore((await self._rota.store()).database)
            key = after["fairness_key"]
            weight = await limits.fair_weight(self._namespace, name, key)
            self._check_unchanged(entry, weight == after["weight"])
            await self.set_weight(name, key, before.get("weight"))
            return
        now = settings_of(await self.get(name))
        self._check_unchanged(entry, all(now[field] == after[field] for field in after))
        given = {field: before.get(field, DEFAULTS[field]) for field in after}
        await self.configure(name, **given)

    @staticmethod
    def _check_unchanged(entry: int, unchanged: bool) -> None:
        if not unchanged:
            raise Conflict(
                f"change {entry} can't be undone: what it set has been changed since",
                code="changed", subject=entry,
            )  # fmt: skip

    async def service(self, name: str) -> Sequence[ShareService]:
        """Return the seconds that the fairness keys of a queue were served, by minute, of the last hour.

        The keys that were served most come first, 12 at most; the others are together under `None`.
        """
        store = await self._rota.store()
        rows = await LimitStore(store.database).service(self._namespace, name)
        return service_by_key(rows, await store.now())

    async def shares(self, name: str) -> Sequence[FairShare]:
        """List the shares of a fair queue, the one that is served next first."""
        await self.get(name)
        store = await self._rota.store()
        return await LimitStore(store.database).list_shares(self._namespace, name)

    async def limits(self, name: str | None = None) -> Sequence[LimitStatus]:
        """List the limits that are in use, or the one of this name: how many jobs run, and wait."""
        store = await self._rota.store()
        return await LimitStore(store.database).list_limits(self._namespace, name)

    async def holders(self, limit: str) -> Sequence[LimitHolder]:
        """List the jobs that run under a limit, as `limits` names it; those that run longest first."""
        store = await self._rota.store()
        return await LimitStore(store.database).holders(self._namespace, limit)


def check_run_time(seconds: float | None) -> None:
    if seconds is not None and (isinstance(seconds, bool) or not 1 <= seconds < 1e9):
        raise ConfigError(
            f"max_run_time must be 1 second or more, or None, not {seconds!r}", field="max_run_time"
        )


def check_weight(weight: float | None) -> None:
    if weight is not None and (
        isinstance(weight, bool)
        or not isinstance(weight, int | float)
        or not _LEAST_WEIGHT <= weight <= _MOST_WEIGHT
    ):
        raise ConfigError(
            f"weight must be a number from {_LEAST_WEIGHT:f} to {_MOST_WEIGHT:,}, "
            f"not {shown(weight)}",
            field="weight",
        )


def check_depth(most: int | None) -> None:
    if most is None:
        return
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_DEPTH:
        raise ConfigError(
            f"max_depth must be a whole number from 1 to 2**53, or None, not {shown(most)}",
            field="max_depth",
        )


async def count_soon(store: DepthStore, namespace: str, queue: str) -> None:
    """Count what is in a queue that has got a limit. If that takes too long, a scheduler does it."""
    try:
        await store.recount(namespace, queue)
    except StoreUnavailable as error:
        if not error.answered:
            raise


def unknown_queue(name: str, known: Sequence[str] = ()) -> NotFound:
    near = get_close_matches(name, known, 1)
    meant = f"; do you mean {near[0]!r}?" if near else "; `rota queues` lists them"
    return NotFound(f"there is no queue {name!r}{meant}", subject=name)


class _Limits(NamedTuple):
    concurrency: int | None = None
    per_key: int | None = None
    rate: Rate | None = None


def rate_of(queue: QueueStatus) -> Rate | None:
    if queue.rate_count is None:
        return None
    return Rate(queue.rate_count, queue.rate_period or 1.0, queue.rate_burst or 1)


def _limits_of(queue: QueueStatus) -> _Limits:
    return _Limits(queue.concurrency, queue.concurrency_per_key, rate_of(queue))


def settings_of(queue: QueueStatus) -> dict[str, Any]:
    """Return the settings of a queue, as `configure` takes them."""
    limits = _record(_limits_of(queue))
    return {
        "policy": queue.policy, "max_run_time": queue.max_run_time, **limits,
        "max_depth": queue.max_depth, "history": queue.history,
    }  # fmt: skip


def _record(limits: _Limits) -> dict[str, Any]:
    rate = limits.rate
    return {
        "concurrency": limits.concurrency,
        "concurrency_per_key": limits.per_key,
        "rate": None if rate is None else str(rate),
        "rate_burst": None if rate is None else rate.burst,
    }
