"""Runs of workflows: each step once in a round, by its rule, nothing after a cancel, and to an end."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from proof.checker.facts import (
    CANCELLED,
    FAILED,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    Facts,
    JobRow,
    Made,
    RunRow,
    StepRow,
)
from proof.checker.report import Found, Tally, line
from proof.history import PAUSE

_ALL_SUCCEEDED, _ALL_ENDED, _ONE_SUCCEEDED, _ONE_FAILED, _ALWAYS = range(1, 6)
_TASK, _END = 1, 3
_DROPPED = "ResultDropped"
_CHUNKS = 1_000_000  # the steps of chunks' jobs begin here
_UPSTREAM_FAILED = 9
_NOT_DONE = (FAILED, CANCELLED, _UPSTREAM_FAILED)
_RAN = (SUCCEEDED, FAILED)
_REACHED = 15.0  # seconds in which the cancel of a run reaches those of its sub-workflows
_UNAWARE = 12.0  # seconds for which a durable function may not know of its cancel


def steps_run_once_in_a_round(facts: Facts, tally: Tally) -> Found:
    """As many jobs as rounds, at most."""
    for (run_id, step), rows in facts.jobs_of_steps.items():
        run = facts.runs.get(run_id)
        if step >= _CHUNKS:  # of a map: those have a rule of their own
            continue
        tally["steps"] += 1
        if run is None:
            yield f"run {run_id}", f"is gone, and has jobs of step {step}", ()
            continue
        tally["in later rounds"] += run.round > 1
        if len(rows) > run.round:
            sentence = f"had {len(rows)} jobs of step {step} in {run.round} rounds"
            evidence = (line("db-run", run), *(line("db-job", row) for row in rows))
            yield f"run {run_id}", sentence, evidence


def steps_start_by_their_rules(facts: Facts, tally: Tally) -> Found:
    """Judged by how the steps before ended, in the last round, and by what handlers wrote down. After a
    resume as well: it repeats whatever the steps that stay would not have let start."""
    for run_id, steps in facts.steps.items():
        by_number = {step.number: step for step in steps}
        for step in steps:
            if step.kind == _END or step.by_hand or not step.before:
                continue
            before = [by_number[number] for number in step.before]
            tally["steps that ran" if step.state in _RAN else "others"] += 1
            problem = _against_its_rule(step, before) or _too_early(facts, step, before)
            if problem:
                evidence = tuple(line("db-step", each) for each in (step, *before))
                yield f"run {run_id}", f"step {step.name} {problem}", evidence


def _against_its_rule(step: StepRow, before: list[StepRow]) -> str | None:
    """Whether its state can follow from theirs. Cancelled steps may follow from anything."""
    one = step.rule in (_ONE_SUCCEEDED, _ONE_FAILED)
    failed = sum(each.state in _NOT_DONE and (one or not each.optional) for each in before)
    skipped = sum(each.state == SKIPPED for each in before)
    met = {
        _ALL_SUCCEEDED: failed <= step.tolerated and not skipped,
        _ALL_ENDED: True,
        _ALWAYS: True,
        _ONE_SUCCEEDED: failed + skipped < len(before),
        _ONE_FAILED: failed > 0,
    }[step.rule]
    how = f"after {failed} failures and {skipped} skips of {len(before)}"
    if step.state in _RAN and not met and not step.unjudged:
        return f"ran against its rule, {how}"
    if step.state == _UPSTREAM_FAILED and (met or not failed):
        return f"did not run for a failure, {how}"
    if step.state == SKIPPED and met and not step.conditional:
        return f"was skipped against its rule, {how}"
    return None


def _too_early(facts: Facts, step: StepRow, before: list[StepRow]) -> str | None:
    """Whether its handler began before those of the steps before had ended."""
    starts = [attempt.start.at for attempt in facts.attempts.get(step.job_id or "", ())]
    if step.kind != _TASK or not starts or step.state not in _RAN:
        return None
    ends = [_end_of(facts, each) for each in before]
    if step.rule == _ONE_SUCCEEDED:
        # What it began after may have run again since then, if another success stayed.
        late = (
            facts.runs[step.run_id].round == 1
            and None not in ends
            and all(end > min(starts) for end in ends if end is not None)
        )
    elif step.rule == _ONE_FAILED:
        late = False
    else:
        late = any(end is not None and end > min(starts) for end in ends)
    return "began before a step that it comes after had ended" if late else None


def _end_of(facts: Facts, step: StepRow) -> float | None:
    """When the handler first ended whose success is taken. A stale handler may end after it."""
    job = facts.jobs.get(step.job_id or "")
    if job is None or step.kind != _TASK or step.state != SUCCEEDED or step.by_hand:
        return None
    return min(
        (
            attempt.end.at
            for attempt in facts.attempts.get(job.id, ())
            if attempt.end and attempt.ended_ok and attempt.token == job.token
        ),
        default=None,
    )


def nothing_starts_after_a_cancel(facts: Facts, tally: Tally) -> Found:
    """But for steps that always run."""
    rules = {(s.run_id, s.number): s.rule for steps in facts.steps.values() for s in steps}
    # What a durable function calls to clean up, or has called since it was resumed; and what a branch of
    # a gather calls after another branch was told of the cancel.
    own = {
        (c.run_id, -c.number)
        for rows in facts.checkpoints.values()
        for c in rows
        if c.name.startswith("clean") or "/" in c.name
    }
    for job in facts.jobs.values():
        run = facts.runs.get(job.run_id or "")
        if run is not None and run.cancel_at is None:
            yield from _after_the_outer(facts, run, job, rules)
        if run is None or run.cancel_at is None:
            continue
        tally["jobs of cancelled runs"] += 1
        late = job.created_at - run.cancel_at
        if (job.step or 0) < 0 and (
            (job.run_id, job.step) in own or late < _UNAWARE or _was_asked_with(facts, job)
        ):
            continue
        if late > facts.meta.clock_error and rules.get((run.id, job.step or 0)) != _ALWAYS:
            sentence = f"started step {job.step} {late:.3f} s after it was cancelled"
            yield f"run {run.id}", sentence, (line("db-run", run), line("db-job", job))


def _was_asked_with(facts: Facts, job: JobRow) -> bool:
    """Whether a function called it beside what it was told of its cancel at, as in a race, or when its
    process went on after a pause."""
    token = next(
        (c.token for c in facts.checkpoints.get(job.run_id or "", ()) if -c.number == job.step),
        None,
    )
    sights = [sight for sight in facts.sights.get(job.run_id or "", ()) if sight.token == token]
    created = facts.at(job.created_at)
    pauses = [fault for sight in sights[:1] for fault in facts.faults_of(PAUSE, sight.node)]
    if any(fault.at <= created <= fault.until + _UNAWARE for fault in pauses):
        return True  # it was stopped, and did not know what had happened since
    opened = [sight.at for sight in sights if sight.event == "open"]
    told = [sight.at for sight in sights if sight.event == "told"]
    if not opened or not told:
        return False
    soon = told[0] - opened[0] < _UNAWARE
    return soon and job.created_at < facts.meta.database(told[0]) + facts.meta.clock_error


def _after_the_outer(
    facts: Facts, run: RunRow, job: JobRow, rules: dict[tuple[str, int], int]
) -> Found:
    """A run of a sub-workflow is cancelled with the one around it."""
    outer, step = facts.runs.get(run.parent_id or ""), run.parent_step
    if outer is None or outer.cancel_at is None or step is None or step < 0:
        return
    late = job.created_at - outer.cancel_at
    if rules.get((outer.id, step)) != _ALWAYS and late > _REACHED + facts.meta.clock_error:
        sentence = f"started step {job.step} {late:.3f} s after the run around it was cancelled"
        yield f"run {run.id}", sentence, (line("db-run", outer), line("db-job", job))


def every_run_ends(facts: Facts, tally: Tally) -> Found:
    """With all of its steps, and as they did."""
    for run in facts.runs.values():
        steps = facts.steps.get(run.id, [])
        tally["runs"] += 1
        open_steps = [step for step in steps if step.state <= RUNNING]
        bad = [s for s in steps if s.kind != _END and s.state in _NOT_DONE and not s.optional]
        if run.state <= RUNNING:
            sentence, shown = "has not ended", open_steps
        elif open_steps:
            sentence, shown = "has ended, and some of its steps have not", open_steps
        elif run.state == SUCCEEDED and bad:
            sentence, shown = "succeeded, and some of its steps did not", bad
        elif run.state != SUCCEEDED and not bad and run.cancel_at is None:
            sentence, shown = "did not succeed, and nothing in it failed", []
        else:
            continue
        evidence = (line("db-run", run), *(line("db-step", step) for step in shown))
        yield f"run {run.id}", sentence, evidence


def results_are_those_of_the_steps_before(facts: Facts, tally: Tally) -> Found:
    """A step is given the result that the one before it has, of no other attempt and of no other round.
    A result that can't be stored is no success."""
    for run_id, steps in facts.steps.items():
        by_number = {step.number: step for step in steps}
        for step in steps:
            job = facts.jobs.get(step.job_id or "")
            if step.state != SUCCEEDED or step.by_hand or step.kind != _TASK or job is None:
                continue
            taken = None if step.takes is None else by_number[step.takes]
            problem = _foreign_result(step, job, tally) or _foreign_input(step, taken, tally)
            if problem:
                shown = (step,) if taken is None else (step, taken)
                evidence = (*(line("db-step", each) for each in shown), line("db-job", job))
                yield f"run {run_id}", f"step {step.name} {problem}", evidence


def _foreign_result(step: StepRow, job: JobRow, tally: Tally) -> str | None:
    if job.error is not None and job.error.type == _DROPPED:
        return "succeeded, and its result was dropped"
    if isinstance(step.result, Made):
        tally["results"] += 1
        if step.result.by != f"{job.id}/{job.token}":
            return f"has the result of {step.result.by}, and succeeded as {job.id}/{job.token}"
    return None


def _foreign_input(step: StepRow, taken: StepRow | None, tally: Tally) -> str | None:
    """With the rules about one the step before it may not have ended when it starts."""
    early = step.rule in (_ONE_SUCCEEDED, _ONE_FAILED)
    if taken is None or taken.kind != _TASK or early or not isinstance(step.result, Made):
        return None
    tally["taken"] += 1
    held = taken.result if taken.state == SUCCEEDED else None
    expected = held.by if isinstance(held, Made) else held
    if step.result.of != expected:
        return f"was given the result of {step.result.of}, and step {taken.name} has {expected}"
    return None


def runs_of_a_schedule_do_not_overlap(facts: Facts, tally: Tally) -> Found:
    """The one before has ended, whatever it waited for. One that is resumed later waits for no other."""
    started: dict[str, list[RunRow]] = defaultdict(list)
    for run in facts.runs.values():
        if run.schedule_id is not None:
            tally["runs of schedules"] += 1
            started[run.schedule_id].append(run)
    for schedule, runs in started.items():
        runs.sort(key=lambda run: run.created_at)
        for before, run in pairwise(runs):
            until = facts.meta.database(facts.meta.ended)
            until = before.ended_at if before.ended_at is not None else until
            early = until - facts.meta.clock_error - run.created_at
            if before.round == 1 and early > 0 and not facts.meta.clock_steps:
                sentence = f"started run {run.id} {early:.3f} s before run {before.id} had ended"
                yield (
                    f"schedule {schedule}",
                    sentence,
                    (line("db-run", before), line("db-run", run)),
                )
