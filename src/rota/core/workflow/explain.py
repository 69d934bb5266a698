"""Explains what a run, or a step of one, waits for, in one exact sentence, and what to do."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from rota.core.durations import format_duration
from rota.core.explain import Explanation
from rota.core.workflow.model import CheckpointKind, StepState
from rota.model import MapProgress, Run, RunStep

_NAMED = 3  # steps that a sentence names
_OPEN = (StepState.WAITING.label, StepState.RUNNING.label)
_FAILED = (StepState.FAILED.label, StepState.UPSTREAM_FAILED.label, StepState.CANCELLED.label)


class Before(msgspec.Struct, frozen=True):
    """A step that comes before the one to explain."""

    name: str
    state: str
    optional: bool = False


def explain_ended_step(run: Run, step: RunStep, before: Sequence[Before]) -> Explanation:
    """Explain a step that has ended."""
    when = "" if step.ended_at is None else f" at {_moment(step.ended_at)}"
    match step.state:
        case "succeeded":
            how = f": {step.note}" if step.note else ""
            return Explanation("succeeded", f"It succeeded{when}{how}.")
        case "failed":
            error = _message(step.error)
            return Explanation("failed", f"It failed{when}{error}. {_again(run, step.name)}")
        case "upstream_failed":
            failed = [each for each in before if each.state in _FAILED and not each.optional]
            return Explanation(
                "upstream_failed",
                f"It did not run: its rule {step.rule} can't be met after {_listed(failed)}. "
                f"`rota runs resume {run.id}` runs what failed again, and then this.",
            )
        case "skipped":
            skipped = [each for each in before if each.state == StepState.SKIPPED.label]
            if step.rule == "one_failed":
                why = "none of the steps before it failed"
            elif skipped:
                why = f"{_listed(skipped)} before it"
            else:
                why = f"its condition {step.when!r} did not hold"
            return Explanation("skipped", f"It was skipped{when}: {why}.")
        case _:
            return Explanation("cancelled", f"It was cancelled{when}, with its run.")


def progress_text(progress: MapProgress) -> str:
    """Return how far a map has come, in words."""
    done = progress.succeeded + progress.failed + progress.under_way
    known = "" if progress.closed else " so far"
    failed = f", {progress.failed:,} failed" if progress.failed else ""
    return f"{done:,} of {_count(progress.members, 'member')}{known}{failed}"


def explain_running_map(run: Run, step: RunStep, progress: MapProgress) -> Explanation:
    """Explain a map whose step runs."""
    jobs, window = progress.running_jobs, progress.at_once
    said = f"It calls task {step.task!r} for each item of its list: {progress_text(progress)}"
    unit = "member" if progress.each == "job" else "chunk"
    left = progress.chunks - progress.ended_chunks - jobs
    if run.paused_at is not None and not jobs:
        return Explanation("run_paused", f"{said}. {_paused(run).sentence}")
    if left > 0 and jobs >= window:
        return Explanation(
            "window_full",
            f"{said}; {_count(left, unit)} wait for a place among the {_count(window, 'job')} that may "
            "exist at once.",
        )
    if jobs:
        return Explanation("members_running", f"{said}; {_count(jobs, unit)} under way.")
    if not progress.closed:
        return Explanation(
            "list_open",
            f"{said}; the list of its members is still open. The same app.map() with the same key "
            f"continues it; `rota runs cancel {run.id}` ends it.",
        )
    return Explanation("ending", f"{said}; its end is about to be seen.")


def explain_waiting_step(
    run: Run, step: RunStep, before: Sequence[Before], schedulers: int
) -> Explanation:
    """Explain a step that has not started."""
    waits = [each for each in before if each.state in _OPEN]
    early = _may_start_early(step, before)
    if waits and not early:
        ended = len(before) - len(waits)
        return Explanation(
            "waiting_for_steps",
            f"It waits, by its rule {step.rule}, for {_listed(waits)}; {ended} of the "
            f"{len(before)} before it {'has' if ended == 1 else 'have'} ended.",
        )
    if run.paused_at is not None:
        return _paused(run)
    if not schedulers:
        return Explanation(
            "no_scheduler",
            "Nothing more comes before it, but no live node has the scheduler role to decide about it; "
            "start one with `rota start --role scheduler`.",
        )
    condition = f" its condition {step.when!r} and" if step.when else ""
    return Explanation(
        "being_decided",
        f"Nothing more comes before it;{condition} its start are about to be decided.",
    )


class OpenWait(msgspec.Struct, frozen=True):
    """Something that a suspended durable function waits for. `key` is None for a signal to the run."""

    kind: CheckpointKind
    name: str
    attempt: int
    job_id: UUID | None
    wake_at: datetime | None
    signal: str | None
    key: str | None


def explain_suspended(
    run: Run, waits: Sequence[OpenWait], count: int, now: datetime, inner: Explanation | None
) -> Explanation:
    """Explain a durable function that waits for some of `count` things. `inner`: explains what it has
    called, if that is all."""
    named = ", and for ".join(_wait(each, now) for each in waits)
    more = f", and for {_count(count - len(waits), 'other')}" if count > len(waits) else ""
    said = f"It waits, without a worker, for {named}{more}."
    if count > 1:
        return Explanation("suspended", f"{said} `rota runs history {run.id}` lists them.")
    [only] = waits
    if only.kind is CheckpointKind.SIGNAL:
        send = f"runs send {run.id} {only.signal}"
        if only.key is not None:
            send = f"signals send {only.signal} {shlex.quote(only.key)}"
        return Explanation("waiting_for_signal", f"{said} `rota {send}` sends it.")
    if only.kind is CheckpointKind.SLEEP:
        return Explanation("sleeping", said)
    if inner is not None:
        return Explanation(inner.code, f"{said} {inner.sentence}")
    return Explanation("suspended", said)


def _wait(wait: OpenWait, now: datetime) -> str:
    at = "" if wait.wake_at is None else f"{_moment(wait.wake_at)} ({_until(wait.wake_at, now)})"
    name = wait.name.rpartition("/")[2]
    match wait.kind:
        case CheckpointKind.SIGNAL:
            to = "to this run" if wait.key is None else f"with key {wait.key!r}"
            return f"signal {wait.signal!r} {to}" + (f", until {at}" if at else "")
        case CheckpointKind.SLEEP:
            return f"the end of its sleep at {at}"
        case CheckpointKind.CALL:
            return f"job {wait.job_id} ({name!r})"
        case CheckpointKind.RUN:
            return f"run {wait.job_id} ({name!r})"
        case _:
            return f"try {wait.attempt + 1} of step {name!r} at {at}"


def _may_start_early(step: RunStep, before: Sequence[Before]) -> bool:
    states = {each.state for each in before}
    if step.rule == "one_succeeded":
        return StepState.SUCCEEDED.label in states
    return step.rule == "one_failed" and not states.isdisjoint(_FAILED)


def explain_run(
    run: Run, now: datetime, under_way: Sequence[tuple[str, Explanation]], running: int
) -> Explanation:
    """Explain a run. `under_way`: explanations of its first open steps, those that run first; `running`:
    how many steps run."""
    if run.ended_at is not None:
        took = format_duration((run.ended_at - run.created_at).total_seconds())
        sentence = f"It {_ended(run)} at {_moment(run.ended_at)}, {took} after its start"
        if run.state == "succeeded":
            return Explanation(run.state, f"{sentence}.")
        advice = f"`rota runs resume {run.id}` continues from the steps that did not succeed."
        return Explanation(run.state, f"{sentence}{_message(run.error)}. {advice}")
    counts = f"{run.ended_steps or 0:,} of {_count(run.steps or 0)} {_have(run.steps or 0)} ended"
    first = f" {_first(*under_way[0])}" if under_way else ""
    if run.cancel_requested_at is not None:
        since = _moment(run.cancel_requested_at)
        return Explanation(
            "cancelling",
            f"It has been cancelled since {since}; {_count(running)} still to end.{first}",
        )
    if run.paused_at is not None:
        paused = _paused(run)
        still = (
            f" {_count(running)} started before, and {_have(running)} not ended." if running else ""
        )
        return Explanation(paused.code, f"{paused.sentence}{still}")
    deadline = ""
    if run.deadline_at is not None:
        deadline = (
            f" Its deadline is at {_moment(run.deadline_at)} ({_until(run.deadline_at, now)})."
        )
    if not under_way:
        return Explanation("ending", f"{counts}; its end is about to be written.{deadline}")
    code = under_way[0][1].code
    return Explanation(code, f"{counts}, {running:,} under way.{first}{deadline}")


def _first(name: str, explanation: Explanation) -> str:
    return f"Step {name!r}: {explanation.sentence}"


def _paused(run: Run) -> Explanation:
    assert run.paused_at is not None
    problem = run.problem.get("message") if isinstance(run.problem, dict) else None
    why = f": {problem}" if problem else ""
    return Explanation(
        "run_paused",
        f"The run has been paused since {_moment(run.paused_at)}{why}; `rota runs resume {run.id}` "
        "resumes it.",
    )


def _again(run: Run, step: str) -> str:
    if run.ended_at is not None:
        return f"`rota runs resume {run.id}` continues from there."
    return f"`rota runs retry {run.id} {step}` runs it again."


def _ended(run: Run) -> str:
    return "was cancelled" if run.state == "cancelled" else run.state


def _message(error: object) -> str:
    message = error.get("message") if isinstance(error, dict) else None
    return f": {str(message).rstrip('.')}" if message else ""


def _listed(steps: Sequence[Before]) -> str:
    named = [f"{each.name!r} ({each.state})" for each in steps[:_NAMED]]
    more = len(steps) - len(named)
    rest = f" and {_count(more, 'other')}" if more else ""
    return f"{'step' if len(steps) == 1 else 'steps'} {', '.join(named)}{rest}"


def _count(number: int, noun: str = "step") -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


def _moment(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _until(due: datetime, now: datetime) -> str:
    span = format_duration(abs((due - now).total_seconds()))
    return f"in {span}" if due > now else f"{span} ago"
