"""The lives of schedules, as their operators wrote them down: versions, pauses, what was done by hand.

An operation took effect at some moment between its question and its answer. So a version is valid for
sure from the answer to the operation that made it to the question of the one that ended it, and may be
valid from that question to that answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from proof.history import Operation, SchedulePromise

EVER = float("inf")


class Version(msgspec.Struct):
    """What a schedule says for a while. All moments are on the history's clock."""

    promise: SchedulePromise
    since: float  # may be valid from here on
    surely: float  # and is from here on
    until: float = EVER  # for sure until here
    over: float = EVER  # and not any more from here on
    readable: bool = True  # nobody has spoilt its row

    def may_hold(self, at: float, margin: float) -> bool:
        return self.since - margin <= at <= self.over + margin


class Pause(msgspec.Struct):
    since: float
    surely: float
    until: float = EVER
    over: float = EVER


class Life:
    """From its creation to its deletion. One that is made again under the same name is another."""

    def __init__(self, id: str, name: str, first: Version) -> None:
        self.id = id
        self.name = name
        self.versions = [first]
        self.pauses: list[Pause] = []
        self.triggers: list[Operation] = []
        self.backfills: list[Operation] = []
        self.deleted: Operation | None = None
        if first.promise.paused:
            self.pauses.append(Pause(first.since, first.surely))

    @property
    def last(self) -> Version:
        return self.versions[-1]

    @property
    def promises(self) -> list[SchedulePromise]:
        return [version.promise for version in self.versions]

    @property
    def ends_paused(self) -> Pause | None:
        return self.pauses[-1] if self.pauses and self.pauses[-1].over == EVER else None

    def holding(self, at: float, margin: float) -> list[Version]:
        """Those that may have been valid then."""
        return [version for version in self.versions if version.may_hold(at, margin)]

    def may_be_paused(self, at: float, margin: float) -> bool:
        return any(p.since - margin <= at <= p.over + margin for p in self.pauses)

    def surely_paused(self, at: float, margin: float) -> bool:
        return any(p.surely + margin < at < p.until - margin for p in self.pauses)

    # -- what was done to it

    def change(self, operation: Operation) -> None:
        match operation.kind:
            case "update":
                assert operation.schedule is not None
                if self.last.promise.paused and not operation.schedule.paused:
                    self._resume(operation)
                self._next(operation, operation.schedule)
            case "spoil":
                self._next(operation, self.last.promise).readable = False
            case "pause":
                if self.ends_paused is None:
                    self.pauses.append(Pause(operation.at, operation.until))
            case "resume":
                self._resume(operation)
            case "trigger":
                self.triggers.append(operation)
            case "backfill":
                self.backfills.append(operation)
            case "delete" | "rename":
                self.deleted = operation
                self.last.until, self.last.over = operation.at, operation.until
                self._resume(operation)

    def _next(self, operation: Operation, promise: SchedulePromise) -> Version:
        self.last.until, self.last.over = operation.at, operation.until
        self.versions.append(Version(promise, operation.at, operation.until))
        return self.last

    def _resume(self, operation: Operation) -> None:
        pause = self.ends_paused
        if pause is not None:
            pause.until, pause.over = operation.at, operation.until


def lives_of(operations: Iterable[Operation]) -> list[Life]:
    """One operator's records, in the order of its doing."""
    lives: list[Life] = []
    current: dict[str, Life] = {}
    for operation in operations:
        if operation.answer != "done":
            continue
        life = current.get(operation.subject)
        if life is not None:
            life.change(operation)
            if life.deleted is not None:
                del current[operation.subject]
        if operation.kind in ("create", "rename") and operation.schedule is not None:
            version = Version(operation.schedule, operation.at, operation.until)
            made = Life(operation.id, operation.schedule.name, version)
            lives.append(made)
            current[made.name] = made
    return lives


def unchanged_lives(
    promises: Sequence[SchedulePromise], made: dict[str, tuple[str, float]], known: set[str]
) -> list[Life]:
    """Schedules that nobody touched: by name, their ids and the moments of their creation."""
    return [
        Life(*_origin(promise, *made[promise.name]))
        for promise in promises
        if promise.name in made and promise.name not in known
    ]


def _origin(promise: SchedulePromise, id: str, created: float) -> tuple[str, str, Version]:
    return id, promise.name, Version(promise, created, created)
