"""Decides what follows from how an attempt ended. Pure: `rota.runtime.attempts` applies the verdicts."""

from __future__ import annotations

from typing import Protocol

import msgspec

from rota.model import Failure, Guarantee, Outcome, OutcomeKind, Retry, State

# A job with so many crashes is a prime suspect: see `runs_alone`.
PRIME_SUSPECT_CRASHES = 2
LONGEST_DELAY = 366 * 86_400.0


class Tried(Protocol):
    """The facts about a job that a verdict depends on, when one of its attempts has ended."""

    attempt: int  # the number of the attempt that ended
    max_attempts: int
    guarantee: Guarantee
    crashes: int  # the number of times that it went down with its process before


class Succeed(msgspec.Struct, frozen=True):
    pass


class GiveBack(msgspec.Struct, frozen=True):
    """Back to the queue, as if it had never been claimed."""


class TryAgain(msgspec.Struct, frozen=True):
    delay: float
    crashes: int


class End(msgspec.Struct, frozen=True):
    state: State
    crashes: int
    failure: Failure | None = None


Verdict = Succeed | GiveBack | TryAgain | End


def judge(tried: Tried, outcome: Outcome, retry: Retry, max_crashes: int, noise: float) -> Verdict:
    """Decide what becomes of the job. `noise` spreads the retries: a random number in [0, 1)."""
    match outcome.kind:
        case OutcomeKind.SUCCEEDED:
            return Succeed()
        case OutcomeKind.CANCELLED:
            return End(State.CANCELLED, tried.crashes, outcome.failure)
        case OutcomeKind.RETURNED if tried.guarantee is Guarantee.AT_MOST_ONCE:
            # It had begun: running it again would break the promise.
            failure = Failure("Interrupted", "stopped by a shutdown; at_most_once is not run again")
            return End(State.FAILED, tried.crashes, failure)
        case OutcomeKind.RETURNED:
            return GiveBack()
        case kind:
            crashes = tried.crashes + (kind is OutcomeKind.CRASHED)
            return _judge_failure(tried, outcome, retry, crashes, max_crashes, noise)


def _judge_failure(
    tried: Tried, outcome: Outcome, retry: Retry, crashes: int, max_crashes: int, noise: float
) -> Verdict:
    final = (
        outcome.fatal
        or tried.guarantee is Guarantee.AT_MOST_ONCE
        or tried.attempt >= tried.max_attempts
        or not may_retry(retry, outcome.failure)
    )
    if final:
        return End(State.FAILED, crashes, outcome.failure)
    if crashes >= max_crashes:
        return End(State.FAILED, crashes, _quarantined(crashes, outcome.failure))
    if outcome.retry_after is not None:
        return TryAgain(bounded_delay(outcome.retry_after), crashes)
    return TryAgain(retry_delay(retry, tried.attempt, noise), crashes)


def judge_lost(tried: Tried, *, started: bool, cancelled: bool, max_crashes: int) -> Verdict:
    """Decide what becomes of a job whose node died.

    `started` is known only of jobs that are marked before they begin (see `needs_mark`). A loss is
    not the handler's failure: it never uses up the last attempt. It only counts as a crash, and a
    job that was there at `max_crashes` crashes is taken for their cause.
    """
    if cancelled:
        return End(State.CANCELLED, tried.crashes)
    if needs_mark(tried.guarantee, tried.crashes) and not started:
        return GiveBack()
    if tried.guarantee is Guarantee.AT_MOST_ONCE:
        failure = Failure("NodeLost", "its node died while it ran; at_most_once is not run again")
        return End(State.FAILED, tried.crashes, failure)
    crashes = tried.crashes + 1
    if crashes >= max_crashes:
        lost = Failure("NodeLost", "its node died while it ran")
        return End(State.FAILED, crashes, _quarantined(crashes, lost))
    return TryAgain(0.0, crashes)


def needs_mark(guarantee: Guarantee, crashes: int) -> bool:
    """Return whether the start must be recorded before it happens.

    For at_most_once, so that what was only held can be given back, and a node whose lease has expired
    can't begin. For a job that was lost before, so that it is blamed for another loss only if it ran.
    """
    return guarantee is Guarantee.AT_MOST_ONCE or crashes > 0


def runs_alone(crashes: int) -> bool:
    """Return whether it is a prime suspect: such jobs run one at a time on a node.

    Otherwise other jobs would be blamed for the crashes that it causes.
    """
    return crashes >= PRIME_SUSPECT_CRASHES


def _quarantined(crashes: int, failure: Failure | None) -> Failure:
    cause = f" (the last time: {failure.message})" if failure else ""
    message = f"went down with its process {crashes} times{cause}; quarantined"
    return Failure("Quarantined", message, failure.traceback if failure else "")


def retry_delay(retry: Retry, attempt: int, noise: float) -> float:
    """Return the seconds before the attempt after this one. `noise` is a random number in [0, 1)."""
    # The exponent is bounded before it is used: factor ** 30000 is not a float.
    steps = min(max(attempt - 1, 0), 64)
    try:
        growth = retry.factor**steps
    except OverflowError:
        growth = 1e300
    delay = min(retry.base * growth, retry.cap)
    return bounded_delay(delay * (1 + retry.jitter * (2 * noise - 1)))


def bounded_delay(seconds: float) -> float:
    """Return a delay that the database can add to its time, whatever a handler asked for."""
    return min(seconds, LONGEST_DELAY) if seconds > 0 else 0.0  # also without NaN


def may_retry(retry: Retry, failure: Failure | None) -> bool:
    """Return whether the policy's per-exception rules allow another try."""
    lineage = set(failure.lineage) if failure else set()
    if any(_matches(rule, lineage) for rule in retry.never_on):
        return False
    return not retry.only_on or any(_matches(rule, lineage) for rule in retry.only_on)


def _matches(rule: type[BaseException] | str, lineage: set[str]) -> bool:
    """`lineage` has the dotted names of an exception's class and its bases."""
    if isinstance(rule, str):
        return rule in lineage or f"builtins.{rule}" in lineage
    return f"{rule.__module__}.{rule.__qualname__}" in lineage
