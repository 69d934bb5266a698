"""Every occurrence is in the ledger, once, with what became of it; and no other is.

The workload's schedules are due at the multiples of a number of seconds since 1970, so that the
expected set is arithmetic: for each version from when it was surely there to when it surely still was,
as far as the ledger goes: to the schedule's cursor, or to its deletion. An occurrence belongs to the
version that held at its moment, whoever decides on it, and when.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from proof.checker.facts import FIRED, SKIPPED, Facts, JobRow, OccurrenceRow, ScheduleRow
from proof.checker.lives import EVER, Life, Version
from proof.checker.report import Found, Tally, line
from proof.history import Operation, SchedulePromise

# Overdue by more than this when first looked at, an occurrence is a missed one: catch-up decides.
MISSED_AFTER = 10.0
# The first cursor is read a few statements before the creation is written: long, on a slow network.
_CREATION_SECONDS = 10.0
_SAME_MOMENT = 1e-5  # what is left of a microsecond after it was a float

_REASONS_OF_OVERLAP = {
    "allow": set(), "skip": {"overlap"},
    "queue": {"overlap_queue_full"}, "kill": {"overlap_queue_full"},
}  # fmt: skip
_BY_HAND = {"triggered", "backfilled"}


def every_occurrence_is_in_the_ledger(facts: Facts, tally: Tally) -> Found:
    ledger: dict[str, list[OccurrenceRow]] = defaultdict(list)
    for row in facts.occurrences:
        ledger[row.schedule_id].append(row)
    known = {row.id: row for row in facts.schedules}
    names = {life.name for life in facts.lives.values()}
    for promise in facts.meta.schedules:
        if promise.name not in names:
            yield f"schedule {promise.name}", "isn't in the database", ()
    for life in facts.lives.values():
        tally["schedules"] += 1
        rows = sorted(ledger.pop(life.id, []), key=lambda row: row.due_at)
        tally["occurrences"] += len(rows)
        schedule = known.get(life.id)
        if schedule is None and life.deleted is None:
            yield f"schedule {life.name}", "isn't in the database", ()
        elif schedule is not None and life.deleted is not None:
            yield f"schedule {life.name}", "was deleted, and is in the database", ()
        else:
            yield from _Ledger(facts, life, schedule, rows).compare()
            yield from _reasons(facts, life, rows)
    for rows in ledger.values():
        name = rows[0].schedule or rows[0].schedule_id
        yield f"schedule {name}", "has occurrences, and nobody made it", (_line(rows[0]),)
    yield from _jobs_and_rows(facts, tally)


class _Ledger:
    """The rows of one schedule, held against what its operators said."""

    def __init__(
        self, facts: Facts, life: Life, schedule: ScheduleRow | None, rows: Sequence[OccurrenceRow]
    ) -> None:
        self._facts = facts
        self._life = life
        self._schedule = schedule
        self._rows = rows
        self._margin = facts.meta.horizon + facts.meta.clock_error
        self._subject = f"schedule {life.name}"
        self._found: dict[float, list[OccurrenceRow]] = defaultdict(list)
        for row in rows:
            self._found[round(row.due_at, 5)].append(row)

    def compare(self) -> Found:
        for version in self._life.versions:
            for moment in self._required(version):
                own = self._found.get(moment, [])
                if len(own) != 1:
                    sentence = f"the occurrence at {moment} has {len(own) or 'no'} rows"
                    yield self._subject, sentence, self._evidence(own)
        for due, rows in self._found.items():
            expected = any(due % v.promise.every == 0 for v in self._allowing(due))
            if not expected and not all(self._by_hand(row) for row in rows):
                sentence = f"the ledger has an occurrence at {due:.6f}, which isn't due"
                yield self._subject, sentence, self._evidence(rows)
        yield from self._triggers()
        yield from self._backfills()
        yield from self._end()

    def _required(self, version: Version) -> Iterator[int]:
        """Every multiple from when it surely held to when it surely still did."""
        every = version.promise.every
        since = self._since(version)
        until = min(self._reach(), self._until(version))
        if version.readable:
            first = (int(since // every) + 1) * every
            yield from range(first, int((until + _SAME_MOMENT) // every) * every + 1, every)

    def _since(self, version: Version) -> float:
        """From when on it surely held, by the database's clock. When that is set back after a schedule
        was made, what comes a second time is before its beginning, as it was the first time."""
        _, since = self._facts.meta.shown(version.since, version.surely)
        return since if version is self._life.versions[0] else since + self._margin

    def _until(self, version: Version) -> float:
        if version.until == EVER:
            return EVER
        later = self._life.versions[self._life.versions.index(version) + 1 :]
        until = self._facts.meta.database(version.until) - self._facts.meta.clock_error
        if later and not later[0].readable:
            # What nobody can read can't be settled: it is complete as far as it goes. What is due
            # later than that may be the next version's.
            over = self._facts.meta.database(version.over)
            own = (r.due_at for r in self._rows if r.due_at < over and r.reason not in _BY_HAND)
            until = min(until, max(own, default=0.0))
        return until

    def _reach(self) -> float:
        """How far the ledger goes, by the database's clock."""
        paused = self._life.ends_paused
        reach = EVER
        if self._schedule is not None:
            reach = self._schedule.cursor
        if paused is not None:
            reach = min(reach, self._facts.meta.shown(paused.since, paused.surely)[0])
        return reach

    def _allowing(self, due: float) -> Iterator[Version]:
        at = self._facts.at(due)
        for version in self._life.versions:
            first = version is self._life.versions[0]
            early = _CREATION_SECONDS if first else self._facts.meta.clock_error
            if version.since - early <= at <= version.over + self._margin:
                yield version

    def _by_hand(self, row: OccurrenceRow) -> bool:
        """Triggered at that moment, or a backfill's."""
        at, error = self._facts.at(row.due_at), self._margin
        if any(op.at - error <= at <= op.until + error for op in self._life.triggers):
            return True
        return any(
            op.first - _SAME_MOMENT <= row.due_at <= op.end
            and any(
                row.due_at % version.promise.every == 0
                for version in self._life.versions
                if version.since <= op.until and version.over >= op.at
            )
            for op in self._life.backfills
        )

    def _triggers(self) -> Found:
        jobs = {row.job_id for row in self._rows}
        for operation in self._life.triggers:
            if operation.id not in jobs:
                sentence = f"was triggered, and its ledger has no row of job {operation.id}"
                yield self._subject, sentence, (line("operations", operation),)

    def _backfills(self) -> Found:
        """After one, the range has no gap, by what the schedule said then."""
        for operation in self._life.backfills:
            for moment in self._filled(operation):
                if not self._found.get(moment):
                    sentence = f"was backfilled, and the occurrence at {moment} has no row"
                    yield self._subject, sentence, (line("operations", operation),)

    def _filled(self, operation: Operation) -> Iterator[int]:
        surely = [
            version
            for version in self._life.versions
            if version.readable
            and version.surely <= operation.at
            and operation.until <= version.until
        ]
        first = self._life.versions[0]
        created = self._facts.meta.shown(first.since, first.surely)[0] - _CREATION_SECONDS
        for version in surely:
            every = version.promise.every
            # What was due shortly before wasn't missing yet.
            end = min(operation.end, created) - _SAME_MOMENT
            yield from range(-int(-operation.first // every) * every, int(end) + 1, every)

    def _end(self) -> Found:
        schedule, last = self._schedule, self._life.last
        if schedule is None or self._life.ends_paused or not last.readable:
            return
        every, meta = last.promise.every, self._facts.meta
        healed = meta.database(meta.healed) - last.promise.spread
        due = int(healed // every) * every
        if self._since(last) < due and due > schedule.cursor + _SAME_MOMENT:
            sentence = (
                f"its ledger ends at {schedule.cursor:.3f}, before all was healed at {healed:.3f}"
            )
            yield self._subject, sentence, (line("db-schedule", schedule),)

    def _evidence(self, rows: Sequence[OccurrenceRow]) -> tuple[str, ...]:
        changes = [op for op in self._facts.operations if op.subject == self._life.name]
        lines = [line("operations", op) for op in changes]
        if self._schedule is not None:
            lines.append(line("db-schedule", self._schedule))
        return (*lines, *map(_line, rows))


def _reasons(facts: Facts, life: Life, rows: Sequence[OccurrenceRow]) -> Found:
    """From the newest to the oldest: what comes after a row says whether it was the latest."""
    after: OccurrenceRow | None = None
    for row in reversed(rows):
        problem = _problem_of_row(facts, life, row, after, rows)
        if problem:
            evidence = (_line(row), *([_line(after)] if after else []))
            yield f"schedule {life.name}", f"the occurrence at {row.due_at:.0f} {problem}", evidence
        if row.reason != "catch_up" and row.reason not in _BY_HAND:
            after = row


def _problem_of_row(
    facts: Facts, life: Life, row: OccurrenceRow, after: OccurrenceRow | None,
    rows: Sequence[OccurrenceRow],
) -> str | None:  # fmt: skip
    """By the version that decided, if it is certain which one that was."""
    margin = facts.meta.horizon + facts.meta.clock_error
    due, decided = facts.at(row.due_at), facts.at(row.decided_at)
    if row.reason in _BY_HAND:
        return None
    if row.reason == "paused":
        paused = life.may_be_paused(due, margin)
        return None if paused else "was skipped as paused, and nobody had paused it"
    if row.reason == "deleted":
        return None if life.deleted else "was skipped as deleted, and nobody had deleted it"
    ruling = life.holding(due, margin)
    if len(ruling) != 1 or row.due_at % ruling[0].promise.every or not ruling[0].readable:
        return None
    fired = row.state == FIRED and not row.caught_up
    if fired and life.surely_paused(decided, margin) and life.surely_paused(due, margin):
        return "fired while the schedule was paused"
    if row.state != FIRED and row.reason != "catch_up":
        return _problem_of_overlap(life, row)
    if after is not None and life.holding(facts.at(after.due_at), margin) != ruling:
        return None
    if _set_between(facts, row, after or row):
        return None
    if row.reason == "catch_up" and after is not None and not _is_latest(after):
        others = (r for r in rows if life.holding(facts.at(r.due_at), margin) != ruling)
        skipped = [r for r in rows if row.due_at <= r.due_at < after.due_at]
        after = _latest_of_others(skipped, others) or after
    certain = life.deleted is None and len(life.versions) == 1
    return _problem(ruling[0].promise, row, after, certain=certain)


def _latest_of_others(
    skipped: Sequence[OccurrenceRow], others: Iterable[OccurrenceRow]
) -> OccurrenceRow | None:
    """The one of a later version that these were skipped for, each for the next one, and the last one
    because that version had missed ones, too, when the last one was decided on. Those that fire on time,
    beside the latest, may be in between: an occurrence that is spread runs after later ones that
    aren't."""
    last = [row for row in skipped if row.reason == "catch_up"][-1]
    later = [row for row in others if row.due_at > last.due_at and row.reason not in _BY_HAND]
    if not any(_run_at(row) < last.decided_at - MISSED_AFTER for row in later):
        return None
    return next((row for row in later if _is_latest(row)), None)


def _set_between(facts: Facts, row: OccurrenceRow, after: OccurrenceRow) -> bool:
    """The database's clock was set between the two decisions, or at one of them: what was missed by the
    time before may be on time by the time after it."""
    margin = facts.meta.clock_error
    first, last = sorted((facts.at(row.decided_at), facts.at(after.decided_at)))
    return any(first - margin <= step.at <= last + margin for step in facts.meta.clock_steps)


def _problem_of_overlap(life: Life, row: OccurrenceRow) -> str | None:
    """By what it said when the job was to start: at any time."""
    reasons: set[str] = set()
    for promise in life.promises:
        reasons |= _REASONS_OF_OVERLAP[promise.overlap]
        if promise.overlap == "allow" and promise.max_running is not None:
            reasons.add("overlap")
    if row.reason in reasons:
        return None
    said = " or ".join(sorted({promise.overlap for promise in life.promises}))
    return (
        f"was skipped for {row.reason or 'no reason'}, which isn't one of a schedule with "
        f"overlap {said} and catch-up {life.last.promise.catch_up}"
    )


def _problem(
    promise: SchedulePromise, row: OccurrenceRow, after: OccurrenceRow | None, *, certain: bool
) -> str | None:
    """`after` is the next one that wasn't passed over by catch-up."""
    due = _run_at(row)
    late = row.decided_at - due
    missed = late > MISSED_AFTER - _SAME_MOMENT
    if row.caught_up and (promise.catch_up == "none" or not missed):
        why = "the schedule catches up with none" if missed else "it wasn't missed"
        return f"counts as caught up, and {why}"
    if row.state == FIRED:
        return f"fired, with a reason not to: {row.reason}" if row.reason else None
    if promise.within is not None and late > promise.within - _SAME_MOMENT and missed:
        return None
    if after is None and not certain:
        return None
    return _problem_of_catch_up(promise, missed, after)


def _problem_of_catch_up(
    promise: SchedulePromise, missed: bool, after: OccurrenceRow | None
) -> str | None:
    if promise.catch_up == "all":
        return "was skipped by a schedule that catches up with all"
    if not missed:
        return f"was skipped as missed less than {MISSED_AFTER:.0f} s after it was due"
    # Missed ones come in a row, of which the last one runs, unless the schedule is deleted before that.
    if promise.catch_up == "latest" and (after is None or not _is_latest(after)):
        return "was skipped for a later one, and no later one was caught up with"
    return None


def _run_at(row: OccurrenceRow) -> float:
    return row.due_at if row.run_at is None else row.run_at


def _is_latest(row: OccurrenceRow) -> bool:
    return row.caught_up or row.reason == "deleted"


def _jobs_and_rows(facts: Facts, tally: Tally) -> Found:
    """A row that fired has one job, and a job of a schedule has one row."""
    for row in facts.occurrences:
        job = facts.jobs.get(row.job_id) if row.job_id else None
        problem = _mismatch(facts, row, job)
        if problem:
            evidence: tuple[str, ...] = (_line(row), *([line("db-job", job)] if job else []))
            sentence = f"the occurrence at {row.due_at:.0f} {problem}"
            yield f"schedule {row.schedule}", sentence, evidence
    rows_of = Counter(row.job_id for row in facts.occurrences if row.job_id)
    for id, count in rows_of.items():
        if count > 1:
            evidence = tuple(_line(row) for row in facts.occurrences if row.job_id == id)
            yield f"job {id}", f"is the job of {count} occurrences", evidence
    yield from _doubled(facts)
    for job in facts.jobs.values():
        if job.schedule_id is not None:
            tally["jobs of schedules"] += 1
            if not rows_of[job.id]:
                sentence = "was made by a schedule, and has no occurrence in its ledger"
                yield f"job {job.id}", sentence, (line("db-job", job),)


def _doubled(facts: Facts) -> Found:
    """By what their handlers are told: not even after the ledger has forgotten it, nor by a backfill."""
    jobs: dict[str, list[JobRow]] = defaultdict(list)
    for job in facts.jobs.values():
        if job.occurrence is not None:
            jobs[job.occurrence].append(job)
    for occurrence, own in jobs.items():
        if len(own) > 1:
            evidence = tuple(line("db-job", job) for job in own)
            yield f"occurrence {occurrence}", f"has {len(own)} jobs", evidence


def _mismatch(facts: Facts, row: OccurrenceRow, job: JobRow | None) -> str | None:
    if job is None:
        return "fired, and its job isn't in the database" if row.state == FIRED else None
    life = facts.lives.get(row.schedule_id)
    # A backfill's jobs wait in a line of their own. Deleting the schedule skips them, and says so.
    backfilled = row.reason == "backfilled" or (
        row.reason == "deleted" and life is not None and bool(life.backfills)
    )
    if job.schedule_id != row.schedule_id and not backfilled:
        return "has a job of another schedule"
    if (row.state == FIRED) == (job.state == SKIPPED):
        return "and its job disagree whether it was skipped"
    # Unless it was tried again, or waited in a backfill's line, it is due when its occurrence is.
    waited = backfilled or job.id in facts.steered["retry"]
    if job.attempt <= 1 and not job.attempts and not waited:
        return _wrong_moment(facts, row, job)
    return None


def _wrong_moment(facts: Facts, row: OccurrenceRow, job: JobRow) -> str | None:
    due = _run_at(row)
    if abs(job.due_at - due) > _SAME_MOMENT:
        return "has a job that is due at another moment"
    life = facts.lives.get(row.schedule_id)
    later = max((p.spread + p.jitter for p in life.promises), default=0.0) if life else 0.0
    if not -_SAME_MOMENT <= due - row.due_at <= later + _SAME_MOMENT:
        return (
            f"is to run {due - row.due_at:.3f} s after it is due: spread and jitter are {later:g} s"
        )
    return None


def _line(row: OccurrenceRow) -> str:
    return line("db-occurrence", row)
