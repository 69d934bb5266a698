"""The path of an attempt, from its claim to its finished row: one path for all kinds of workers.

| step       | native worker, `rota.testing`      | worker over HTTP                   |
| ---------- | ---------------------------------- | ---------------------------------- |
| 1. claim   | `WorkStore.claim`                  | `RemoteStore.claim`                |
| 2. decrypt | `decrypt`, on the node             | `decrypt`, on the server           |
| 3. suspect | one at a time: `worker.slots`      | one at a time: `claims`, in SQL    |
| 4. mark    | `mark`, before the runner          | `mark`, before the answer          |
| 5. start   | `worker.starter` gives it a runner | the answer to the claim            |
| 6. judge   | `Verdicts.judge`                   | `Verdicts.judge`, when it reports  |
| 7. apply   | `Verdicts`, by the finisher        | `Verdicts.write`, in a transaction |

Both claims return rows of the same columns, which become a `Work`. An HTTP endpoint is a task of a
native worker: a push is what its handler does. Attempts that nobody reports enter at step 6: the reaper
judges those of dead nodes (`Verdicts.judge_lost`), `scheduler.reaper` those that a worker over HTTP
did not end in time.

Protocol. Everything up to step 5 may be undone by giving the job back; dying there leaves a claimed
row, which the reaper returns. A job that can't be decrypted for want of a key is given back for others;
one whose payload is not authentic fails. A marked start (at_most_once, a job that was lost before, a
job of a schedule) happens only if the database has accepted the mark, under (job, token, node). Steps 6
and 7: a verdict is a pure decision (`core.lifecycle`); `Verdicts` turns each into one of four kinds of
write, and every write is guarded by (job, token, node), so that an outcome under a lease that has moved
on changes nothing. Writes are made in batches, one statement per kind. An outcome that holds a value
which the database refuses is written without it, or else as a failure, and takes no other outcome with
it (`write_apart`). Dying before a write is committed leaves the job to the reaper.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from rota.core import lifecycle
from rota.core.lifecycle import End, GiveBack, Succeed, TryAgain, Verdict, needs_mark
from rota.errors import NotAuthentic
from rota.lib.capture import storable
from rota.lib.ids import unit
from rota.model import RESULT_DROPPED, Failure, Guarantee, Outcome, OutcomeKind, Retry, State
from rota.runtime.work import Work
from rota.store.database import Connection
from rota.store.driver_errors import is_bad_value
from rota.store.encrypted import Encryption, encrypted_outcome
from rota.store.events import Noticed
from rota.store.work import Ended, Retried, Returned, Succeeded, WorkStore

log = logging.getLogger("rota.attempts")

AnyWrite: TypeAlias = Succeeded | Ended | Retried | Returned
# Writes some outcomes of a node and returns how many were accepted.
Write: TypeAlias = Callable[[UUID, Sequence[Any]], Awaitable[int]]

_GUARANTEES = {int(guarantee): guarantee for guarantee in Guarantee}
_NOW = 0.0  # monotonic, as the end of an attempt and the time of writing: the statement's own time
_MOST_MESSAGE = 300


# -- claim, decrypt, mark


def to_work(row: Any) -> Work:
    """Make a work of a claim's row."""
    (id, task, payload, token, attempt, max_attempts, guarantee, timeout, crashes, rank, priority,
     key, headers, schedule, lane, run, step, _early) = row  # fmt: skip
    return Work(
        id, task, payload.encode(), token, attempt, max_attempts, _GUARANTEES[guarantee], timeout,
        crashes, rank, priority, key, headers, schedule, lane, run, step,
    )  # fmt: skip


def to_held(row: Mapping[str, Any]) -> Work:
    """Make a work of a row that somebody holds: as much of it as a verdict needs."""
    return Work(
        row["id"], row.get("task", ""), b"", row["token"], row["attempt"], row["max_attempts"],
        _GUARANTEES[row["guarantee"]], crashes=row["crashes"],
    )  # fmt: skip


def decrypt(encryption: Encryption, work: Work) -> Failure | None:
    """Decrypt the payload if it is encrypted. Return why the job can never run, if so.

    Raises KeyMissing: the job is to be given back, for those who have the key.
    """
    try:
        text = work.payload.decode()
        work.payload, work.encryptor = encryption.opened_payload(text, work.id, work.task)
    except NotAuthentic as error:
        log.error("job %s can't run: %s", work.id, error)
        return Failure("rota.errors.NotAuthentic", str(error))
    return None


def must_mark(work: Work) -> bool:
    """Return whether its start must be accepted by the database before it happens."""
    return (
        work.schedule is not None
        or work.adopts is not None
        or needs_mark(work.guarantee, work.crashes)
    )


async def mark(store: WorkStore, node: UUID, works: Sequence[Work]) -> dict[UUID, str]:
    """Mark works as started. Return for each: start, skip, or wait for another of its schedule.

    A work that is left out is no longer this node's, or was cancelled. Options that were not known when
    the job was stored are written first: whoever finds it after a crash must know what was promised.
    """
    if adopting := {work.id: work for work in works if work.adopts is not None}:
        wanted = [
            (work.id, work.token, int(work.guarantee), work.adopts.retry.max_attempts,
             work.adopts.timeout)
            for work in adopting.values()
        ]  # fmt: skip
        for id, max_attempts, timeout in await store.adopt_options(node, wanted):
            adopting[id].max_attempts, adopting[id].timeout = max_attempts, timeout
    plain = [work for work in works if work.schedule is None]
    scheduled = [work for work in works if work.schedule is not None]
    answers: dict[UUID, str] = {}
    if plain:
        started = await store.mark_started(node, *_ids_and_tokens(plain))
        answers.update(dict.fromkeys(started, "start"))
    if scheduled:
        answers.update(await store.begin_scheduled(node, *_ids_and_tokens(scheduled)))
    return answers


def _ids_and_tokens(works: Sequence[Work]) -> tuple[list[UUID], list[int]]:
    return [work.id for work in works], [work.token for work in works]


# -- judge, apply


def retry_of(tasks: Mapping[str, Any], name: str) -> Retry:
    """Return a task's retry policy. A stored endpoint may be gone by now: then the default."""
    task = tasks.get(name)
    return task.options_.retry if task is not None else Retry()


class Verdicts:
    """Gathers the verdicts on a node's attempts as the writes that follow from them.

    Seconds (`ran`, `ended`) are by the monotonic clock of whoever writes; without `ended` the attempt
    ends when it is written.
    """

    def __init__(self, node: UUID, max_crashes: int) -> None:
        self.node = node
        self._max_crashes = max_crashes
        self.succeeded: list[Succeeded] = []
        self.steps: list[Succeeded] = []  # of workflows, which end with their jobs
        self.ended: list[Ended] = []
        self.retried: list[Retried] = []
        self.returned: list[Returned] = []
        self._all: tuple[list[Any], ...] = (
            self.succeeded, self.steps, self.ended, self.retried, self.returned
        )  # fmt: skip

    def __len__(self) -> int:
        return sum(map(len, self._all))

    def clear(self) -> None:
        for gathered in self._all:
            gathered.clear()

    def tokens(self) -> set[int]:
        return {write.token for gathered in self._all for write in gathered}

    def judge(
        self, work: Work, outcome: Outcome, retry: Retry, ran: float, ended: float = _NOW
    ) -> Verdict:
        """Decide what follows from the outcome of an attempt, and gather it."""
        outcome = _needed_by_others(work, outcome)
        if work.encryptor is not None:
            outcome = encrypted_outcome(work.encryptor, outcome)
        verdict = lifecycle.judge(work, outcome, retry, self._max_crashes, unit())
        self._apply(work, outcome, verdict, ran, ended)
        return verdict

    def judge_lost(self, work: Work, *, started: bool, cancelled: bool, ran: float) -> Verdict:
        """Decide what becomes of an attempt whose node died, and gather it."""
        verdict = lifecycle.judge_lost(
            work, started=started, cancelled=cancelled, max_crashes=self._max_crashes
        )
        failure = verdict.failure if isinstance(verdict, End) else None
        self._apply(work, Outcome(OutcomeKind.LOST, failure=failure), verdict, ran, _NOW)
        return verdict

    def give_up(self, work: Work, ran: float, *, started: bool = True) -> None:
        """Take back a job that its worker seems never to have received.

        `started`: it is marked, so that its worker may have begun it.
        """
        if work.guarantee is not Guarantee.AT_MOST_ONCE or not started:
            self.give_back(work)
            return
        message = "its worker no longer has it, and at_most_once is not run again"
        outcome = Outcome(OutcomeKind.LOST, failure=Failure("NodeLost", message))
        verdict = End(State.FAILED, work.crashes, outcome.failure)
        self._apply(work, outcome, verdict, ran, _NOW)

    def give_back(self, work: Work) -> None:
        """Return a job that never began, as if it had not been claimed."""
        self.returned.append(Returned(work.id, work.token))

    def succeed(self, work: Work, outcome: Outcome, ended: float) -> None:
        """Gather a success: the fast path of `judge`, for most attempts; most have no result."""
        gathered = self.succeeded
        if work.run is not None:
            if outcome.failure is not None or work.encryptor is not None:
                self.judge(work, outcome, Retry(), ended - work.started, ended)
                return
            gathered = self.steps
        if outcome.result is None and outcome.failure is None:
            gathered.append(Succeeded(work.id, work.token, ended - work.started, ended))
        else:
            gathered.append(succeeded(work, outcome, ended))

    def fail(self, id: UUID, token: int, crashes: int, failure: Failure, ended: float) -> None:
        """End a job of which nothing else can be said."""
        error = encode_failure(failure)
        self.ended.append(Ended(id, token, State.FAILED, None, error, crashes, 0.0, ended))

    def _apply(
        self, work: Work, outcome: Outcome, verdict: Verdict, ran: float, ended: float
    ) -> None:
        id, token = work.id, work.token
        match verdict:
            case Succeed():
                gathered = self.succeeded if work.run is None else self.steps
                gathered.append(_succeeded(work, outcome, ran, ended))
            case GiveBack():
                self.give_back(work)
            case TryAgain(delay, crashes):
                entry = self._entry(work, outcome)
                self.retried.append(Retried(id, token, delay, entry, crashes, ran, ended))
            case End(state, crashes, failure):
                entry, error = self._entry(work, outcome), encode_failure(failure)
                self.ended.append(Ended(id, token, state, entry, error, crashes, ran, ended))

    def _entry(self, work: Work, outcome: Outcome) -> str:
        """Return the attempt's entry in its job's list, as JSON; the database adds the moments."""
        entry: dict[str, object] = {
            "number": work.attempt, "outcome": outcome.kind.label, "token": work.token,
            "node": str(self.node),
        }  # fmt: skip
        if outcome.failure is not None:
            entry["error"] = outcome.failure
        return _text(entry)

    # -- writing

    def writes(
        self, store: WorkStore, now: float, connection: Connection = None,
        database_now: datetime | None = None,
    ) -> list[tuple[list[Any], Write]]:  # fmt: skip
        """Return the kinds of writes that have gathered, each with the statement for it."""
        statements: tuple[Write, ...] = (
            lambda n, part: store.finish_succeeded(n, part, now, connection, database_now),
            lambda n, part: store.finish_steps(n, part, now, connection, database_now),
            lambda n, part: store.finish_ended(n, part, now, connection),
            lambda n, part: store.finish_retried(n, part, now, connection),
            lambda n, part: store.give_back(n, part, connection),
        )
        return list(zip(self._all, statements, strict=True))

    async def write(self, store: WorkStore, connection: Any, *, apart: bool = False) -> int:
        """Write all of it in the caller's transaction, and return how many were accepted.

        `apart`: with savepoints, so that a write that the database refuses takes no other with it.
        Without, such a write fails the transaction.
        """
        accepted = 0
        for gathered, write in self.writes(store, _NOW, connection):
            if gathered and apart:
                accepted += await write_apart(
                    store, self.node, gathered, _in_savepoint(connection, write), _NOW, connection
                )
            elif gathered:
                accepted += await write(self.node, gathered)
        return accepted


async def write_apart(
    store: WorkStore, node: UUID, part: Sequence[Any], write: Write, now: float,
    connection: Connection = None,
) -> int:  # fmt: skip
    """Write outcomes together or, if the database refuses a value, by halves.

    Return how many were accepted.
    """
    try:
        return await write(node, part)
    except Exception as error:
        if not is_bad_value(error):
            raise
        if len(part) == 1:
            return await _write_without_value(store, node, part[0], error, now, connection)
        log.warning("outcomes can't be written together, writing them apart: %s", error)
    half = len(part) // 2
    first = await write_apart(store, node, part[:half], write, now, connection)
    return first + await write_apart(store, node, part[half:], write, now, connection)


async def _write_without_value(
    store: WorkStore, node: UUID, outcome: AnyWrite, error: Exception, now: float,
    connection: Connection,
) -> int:  # fmt: skip
    """Write an outcome without the value that the database refuses; if that fails, as a failure."""
    log.error("the outcome of job %s can't be written as it is: %s", outcome.id, error)
    id, token = outcome.id, outcome.token
    ran, ended = getattr(outcome, "ran", 0.0), getattr(outcome, "ended", now)
    why = f"its outcome can't be stored: {error}"
    if isinstance(outcome, Succeeded):
        dropped = encode_failure(Failure(RESULT_DROPPED, why))
        bare = Succeeded(id, token, ran, ended, error=dropped)
        finish = _in_savepoint(
            connection, lambda n, part: store.finish_succeeded(n, part, now, connection)
        )
        try:
            return await finish(node, [bare])
        except Exception as again:
            if not is_bad_value(again):
                raise
    crashes, state = getattr(outcome, "crashes", 0), getattr(outcome, "state", State.FAILED)
    text = encode_failure(Failure("OutcomeNotStored", why))
    plain = Ended(id, token, state, None, text, crashes, ran, ended)
    return await store.finish_ended(node, [plain], now, connection)


def _in_savepoint(connection: Any, write: Write) -> Write:
    """Let a refused statement leave its transaction intact. Without a connection each is its own."""
    if connection is None:
        return write

    async def write_in_savepoint(node: UUID, part: Sequence[Any]) -> int:
        async with connection.transaction():
            return await write(node, part)

    return write_in_savepoint


# -- how outcomes are written


def succeeded(work: Work, outcome: Outcome, ended: float) -> Succeeded:
    """Return the write of a success that was seen here."""
    if work.encryptor is not None:
        outcome = encrypted_outcome(work.encryptor, outcome)
    return _succeeded(work, outcome, ended - work.started, ended)


def _needed_by_others(work: Work, outcome: Outcome) -> Outcome:
    """Fail a step whose result was dropped: other steps would go on without it.

    The effect has happened, so that it is not tried again.
    """
    if work.run is None or outcome.kind is not OutcomeKind.SUCCEEDED or outcome.failure is None:
        return outcome
    failure = Failure(
        outcome.failure.type, f"{outcome.failure.message}; a step must keep its result"
    )
    return Outcome(OutcomeKind.RAISED, failure=failure, fatal=True)


def _succeeded(work: Work, outcome: Outcome, ran: float, ended: float) -> Succeeded:
    result = outcome.result.decode() if outcome.result is not None else None
    error = encode_failure(outcome.failure)
    return Succeeded(work.id, work.token, ran, ended, result, error)


def failed_once(work: Work, failure: Failure) -> Noticed:
    """Return the event of an attempt that failed and is tried again."""
    encrypted = work.encryptor is not None
    message = "(encrypted)" if encrypted else storable(failure.message[:_MOST_MESSAGE])
    detail = {"attempt": work.attempt, "error": failure.type, "message": message}
    return Noticed("failed", work.task, work.id, detail)


def encode_failure(failure: Failure | None) -> str | None:
    return None if failure is None else _text(failure)


def _text(value: object) -> str:
    # PostgreSQL's jsonb has no NUL; a message with one must not cost us the outcome.
    return msgspec.json.encode(value).decode().replace("\\u0000", "\\ufffd")
