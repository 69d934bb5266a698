"""Every occurrence is in the ledger, once, with what became of it; and no other is.

The workload's schedules are due at the multiples of a number of seconds since 1970, so that the
expected set is arithmetic: for each version from when it was surely there to when it surely still was,
as far as the ledger goes: to the schedule's cursor, or to its deletion. An occurrence belongs to the
version that held at its moment, whoever decides on it, and when.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from proof.checker.facts import FIRED, SKIPPED, Facts, JobRow, OccurrenceRow, ScheduleRow
from proof.checker.lives import EVER, Life, Version
from proof.checker.report import Found, Tally, line
from proof.checker.verdicts import BY_HAND, SAME_MOMENT, reasons, run_at
from proof.history import Operation

# The first cursor is read a few statements before the creation is written: long, on a slow network.
_CREATION_SECONDS = 10.0


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
            yield from reasons(facts, life, rows)
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
            yield from range(first, int((until + SAME_MOMENT) // every) * every + 1, every)

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
            # later than that may be the next version's, also if the clock is set back meanwhile.
            over, _ = self._facts.meta.shown(version.over, later[0].over)
            own = (r.due_at for r in self._rows if r.due_at < over and self._is_own(r, version))
            until = min(until, max(own, default=0.0))
        return until

    def _is_own(self, row: OccurrenceRow, version: Version) -> bool:
        """Whether the firer came so far. What somebody triggered or filled in doesn't show that: what
        was due before it may still wait for its spread. A reason that came later hides what it was."""
        if row.reason in BY_HAND or row.due_at % version.promise.every:
            return False
        return not any(
            op.first - SAME_MOMENT <= row.due_at <= op.end
            and self._facts.at(row.decided_at) >= op.at - self._margin
            for op in self._life.backfills
        )

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
            op.first - SAME_MOMENT <= row.due_at <= op.end
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
            end = min(operation.end, created) - SAME_MOMENT
            yield from range(-int(-operation.first // every) * every, int(end) + 1, every)

    def _end(self) -> Found:
        schedule, last = self._schedule, self._life.last
        if schedule is None or self._life.ends_paused or not last.readable:
            return
        every, meta = last.promise.every, self._facts.meta
        healed = meta.database(meta.healed) - last.promise.spread
        due = int(healed // every) * every
        if self._since(last) < due and due > schedule.cursor + SAME_MOMENT:
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
    due = run_at(row)
    if abs(job.due_at - due) > SAME_MOMENT:
        return "has a job that is due at another moment"
    life = facts.lives.get(row.schedule_id)
    later = max((p.spread + p.jitter for p in life.promises), default=0.0) if life else 0.0
    if not -SAME_MOMENT <= due - row.due_at <= later + SAME_MOMENT:
        return (
            f"is to run {due - row.due_at:.3f} s after it is due: spread and jitter are {later:g} s"
        )
    return None


def _line(row: OccurrenceRow) -> str:
    return line("db-occurrence", row)
