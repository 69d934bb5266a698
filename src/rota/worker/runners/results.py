"""Makes outcomes of what handlers return or raise, and of stops."""

from __future__ import annotations

import importlib
import logging
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from types import AsyncGeneratorType, CoroutineType, GeneratorType, TracebackType
from typing import Any

import msgspec

from rota import errors
from rota.context import ErrorHook, JobInfo, SyncContext
from rota.core.codec import encode_hook
from rota.core.durations import format_duration
from rota.core.lifecycle import bounded_delay
from rota.errors import Fatal, JobStopped, RetryAfter
from rota.lib.capture import message_of, storable
from rota.lib.encryption import mark_unencrypted
from rota.model import RESULT_DROPPED, Failure, Outcome, OutcomeKind
from rota.runtime.work import StopReason, Work
from rota.store.events import Noticed, timed_out
from rota.store.sync_effects import SyncEffects, TransactionTerms, result_needed

log = logging.getLogger("rota.jobs")

MESSAGE_LIMIT = 2_000
TRACEBACK_LIMIT = 16_000
NAME_LIMIT = 200
# An app defined in a script is called __main__ by the parent and this by its children.
CHILD_MAIN = "__rota_child__"

STOP_KINDS: dict[StopReason, OutcomeKind] = {
    "timeout": OutcomeKind.TIMED_OUT,
    "maximum": OutcomeKind.TIMED_OUT,
    "heartbeat": OutcomeKind.HEARTBEAT_TIMEOUT,
    "cancel": OutcomeKind.CANCELLED,
    "shutdown": OutcomeKind.RETURNED,
    "lease": OutcomeKind.RETURNED,
}

# The names by which a retry's `only_on` and `never_on` match, as for exceptions.
STOP_LINEAGES: dict[StopReason, tuple[str, ...]] = {
    "timeout": ("rota.errors.TimedOut",),
    "maximum": ("rota.errors.TimedOut",),
    "heartbeat": ("rota.errors.HeartbeatTimeout", "rota.errors.TimedOut"),
}

_TRACEBACK_HEAD = 4_000
# Rota's own, and the import system's, which Python leaves out as well.
_NOT_THEIRS = (f"{Path(__file__).parent.parent}/", "<frozen importlib", importlib.__file__)
_SUCCEEDED = Outcome.succeeded()
_NEVER_RUN = (CoroutineType, GeneratorType, AsyncGeneratorType)


# -- results


def call_in_transaction(
    effects: SyncEffects, task: Any, payload: bytes, context: SyncContext, limit: int
) -> Outcome:
    """Call a plain function, and commit what it writes together with the end of its job."""
    answer, job = context._channel.call("transaction", b"null"), context.job
    terms = msgspec.json.decode(answer, type=TransactionTerms)
    effects = task.effects or effects
    began = monotonic()
    with effects.transaction(terms, job.id, job.token) as context._connection:
        outcome = encode_result(task.call(payload, context), limit)
        if terms.step and outcome.failure is not None:
            raise result_needed(outcome.failure)
        if outcome.kind is OutcomeKind.SUCCEEDED:
            effects.finish(terms, job.id, job.token, monotonic() - began, outcome.result)
    return outcome


def encode_result(value: Any, limit: int) -> Outcome:
    """Make an outcome of a result. A result that can't be kept is dropped, and the outcome says so.

    Failing the attempt instead would repeat its effects.
    """
    if value is None:
        return _SUCCEEDED
    if isinstance(value, Outcome):
        return value  # of a task of our own, which has more to report than a result
    try:
        encoded = msgspec.json.encode(value, enc_hook=encode_hook)
    except JobStopped:
        raise
    except BaseException as error:  # noqa: BLE001 - user types may raise anything
        if isinstance(value, _NEVER_RUN):
            return _never_run(value)
        reason = f"{type(error).__name__}: {message_of(error)}"
        return result_dropped(f"the result can't be encoded as JSON: {reason}")
    if len(encoded) > limit:
        return result_dropped(
            f"the result has {len(encoded):,} bytes, over max_result_bytes ({limit:,}): "
            "store it elsewhere and return a reference"
        )
    return Outcome.succeeded(mark_unencrypted(encoded))


def _never_run(value: Any) -> Outcome:
    """Fail an attempt that did no work, such as by a decorator that isn't a coroutine itself."""
    if isinstance(value, CoroutineType):
        value.close()  # or Python would warn that it was never awaited
    message = (
        f"the task returned a {type(value).__name__} that nothing runs; is it wrapped by a decorator "
        "that isn't a coroutine? Await it, or return its value"
    )
    return Outcome(OutcomeKind.RAISED, failure=Failure("NeverRun", message), fatal=True)


def result_dropped(reason: str) -> Outcome:
    return Outcome(OutcomeKind.SUCCEEDED, failure=Failure(RESULT_DROPPED, reason))


# -- exceptions


def failure_outcome(error: BaseException) -> Outcome:
    """Make an outcome of a handler's exception. Works with any exception, however odd."""
    kind = type(error)
    seconds = getattr(error, "seconds", None) if isinstance(error, RetryAfter) else None
    failure = Failure(
        type=_dotted_name(kind).removeprefix("builtins."),
        message=_cut(message_of(error), MESSAGE_LIMIT),
        traceback=_cut_middle(_traceback(error)),
        lineage=tuple(_dotted_name(each) for each in kind.__mro__ if each is not object),
    )
    return Outcome(
        OutcomeKind.RAISED,
        failure=failure,
        fatal=isinstance(error, Fatal),
        retry_after=bounded_delay(seconds) if isinstance(seconds, int | float) else None,
    )


def call_hooks(hooks: Sequence[ErrorHook], job: JobInfo, error: BaseException) -> None:
    """Call the app's `on_error` hooks. An exception of a hook is logged, and changes nothing."""
    for hook in hooks:
        try:
            hook(job, error)
        except BaseException:  # a hook must never break the worker
            log.exception("an on_error hook failed for job %s (%s)", job.id, job.task)


def named_error(name: str, message: str) -> Exception:
    """Make an exception of this class of `rota.errors`, or else a JobError."""
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return errors.JobError(f"{name}: {message}")
    error: Exception = kind.__new__(kind, message)  # some take other arguments to __init__
    return error


def _dotted_name(kind: type) -> str:
    module = "__main__" if kind.__module__ == CHILD_MAIN else kind.__module__
    return _cut(storable(f"{module}.{kind.__qualname__}"), NAME_LIMIT)


def _traceback(error: BaseException) -> str:
    """Format a traceback as Python does, without Rota's own frames."""
    try:
        report = traceback.TracebackException.from_exception(error, compact=True)
        _clean(report, error)
        return storable("".join(report.format()))
    except BaseException as broken:  # noqa: BLE001 - formatting runs the handler's code too
        return f"<its traceback could not be formatted: {type(broken).__name__}>"


def _clean(report: traceback.TracebackException | None, error: BaseException | None) -> None:
    """Drop Rota's own frames, from linked exceptions too.

    Instructions that the compiler added have no line: they get the last line before them.
    """
    seen: set[int] = set()
    pending = [(report, error)]
    while pending:
        report, error = pending.pop()
        if report is None or error is None or id(report) in seen:
            continue
        seen.add(id(report))
        for frame, line in zip(report.stack, _lines(error.__traceback__), strict=False):
            if frame.lineno is None:
                frame.lineno = line
        theirs = [frame for frame in report.stack if not frame.filename.startswith(_NOT_THEIRS)]
        report.stack = traceback.StackSummary.from_list(theirs)
        pending += [(report.__cause__, error.__cause__), (report.__context__, error.__context__)]
        if isinstance(error, BaseExceptionGroup):
            pending += zip(report.exceptions or (), error.exceptions, strict=False)


def _lines(trace: TracebackType | None) -> Iterator[int]:
    while trace is not None:
        code, at = trace.tb_frame.f_code, trace.tb_lasti
        known = [line for start, _, line in code.co_lines() if line is not None and start <= at]
        yield known[-1] if known else code.co_firstlineno
        trace = trace.tb_next


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _cut_middle(text: str) -> str:
    """Cut the middle out: the head shows where it began, the tail what happened."""
    if len(text) <= TRACEBACK_LIMIT:
        return text
    note = f"\n… {len(text) - TRACEBACK_LIMIT} characters or more left out …\n"
    tail = TRACEBACK_LIMIT - _TRACEBACK_HEAD - len(note)
    return text[:_TRACEBACK_HEAD] + note + text[-tail:]


# -- stops


def stopped_outcome(reason: StopReason, message: str = "", traceback: str = "") -> Outcome:
    """Make an outcome of a stop. Only timeouts are failures."""
    lineage = STOP_LINEAGES.get(reason)
    failure = None
    if lineage is not None:
        failure = Failure(lineage[0].rpartition(".")[2], message, traceback, lineage)
    return Outcome(STOP_KINDS[reason], failure=failure)


def outcome_of_stop(work: Work, seen: Failure | None = None, note: str = "") -> Outcome:
    """Make an outcome of a work that was stopped. `seen`: the failure that its handler ended with."""
    assert work.stopping is not None
    traceback = seen.traceback if seen is not None else ""
    return stopped_outcome(work.stopping, stop_message(work) + note, traceback)


def stop_event(work: Work) -> Noticed:
    """Return the event of an attempt that was stopped for taking too long."""
    reason = work.stopping or "timeout"
    return timed_out(work.task, work.id, work.attempt, reason, stop_message(work))


def describe_maximum(seconds: float, queue: str | None = None) -> str:
    """Describe the maximum run time of a queue, or else of the installation."""
    whose = "the installation" if queue is None else f"queue {queue!r}"
    return f"the maximum run time of {whose}, {format_duration(seconds)}"


def stop_message(work: Work) -> str:
    """Return why an attempt was stopped, in words."""
    match work.stopping:
        case "timeout" if work.timeout is not None:
            return f"ran longer than its timeout of {format_duration(work.timeout)}"
        case "heartbeat" if work.heartbeat_timeout is not None:
            allowed = format_duration(work.heartbeat_timeout)
            return f"gave no sign of life for longer than its heartbeat_timeout of {allowed}"
        case "maximum":
            return f"ran longer than {work.maximum}"
    return "stopped"
