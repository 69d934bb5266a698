"""Events as sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rota.core.durations import format_duration

Detail = Mapping[str, Any]


def sentence(event: Mapping[str, Any]) -> str:
    """Return an event as a sentence: ``report has failed for good at attempt 5: ValueError: no``."""
    task, kind = event.get("task") or "a task", str(event.get("kind"))
    write = _SENTENCES.get(kind)
    return write(task, event.get("detail") or {}) if write else f"{task}: {kind}"


def slack(event: Mapping[str, Any]) -> dict[str, str]:
    """Return an event in the format of Slack's incoming webhooks, which Mattermost and others share."""
    job = f" (job {event['job_id']})" if event.get("job_id") else ""
    if run := (event.get("detail") or {}).get("run"):
        job = f" (run {run})"
    # What users wrote must not become a mention or a link.
    text = f"[{event.get('namespace')}] {sentence(event)}{job}"
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return {"text": text[:3000]}


def _time(detail: Detail, field: str) -> str:
    seconds = detail.get(field)
    return format_duration(seconds) if isinstance(seconds, int | float) else "an unknown time"


def _error(detail: Detail) -> str:
    return f"{detail.get('error') or 'unknown'}: {detail.get('message') or ''}".rstrip(": ")


def _occurrences(detail: Detail) -> str:
    count = detail.get("occurrences", 1)
    counted = "An occurrence" if count == 1 else f"{count} occurrences"
    return f"{counted} of schedule {detail.get('schedule')}"


def _place(detail: Detail) -> str:
    queue = detail.get("queue")
    return f"queue {queue}" if queue else "the namespace"


def _deadline_missed(task: str, detail: Detail) -> str:
    was = f"; it was {state}" if (state := detail.get("state")) else ""
    return f"{task} was not done {_time(detail, 'deadline')} after it was due{was}"


def _run_failed(workflow: str, detail: Detail) -> str:
    where = f" at step {step}" if (step := detail.get("step")) else ""
    return f"a run of {workflow} has failed{where}: {_error(detail)}"


_SENTENCES: dict[str, Callable[[str, Detail], str]] = {
    "dead_lettered": lambda task, d: (
        f"{task} has failed for good at attempt {d.get('attempt')}: {_error(d)}"
    ),
    "failed": lambda task, d: (
        f"{task} failed at attempt {d.get('attempt')}, and is tried again: {_error(d)}"
    ),
    "timed_out": lambda task, d: (
        f"{task} was stopped at attempt {d.get('attempt')}: it {d.get('message') or d.get('reason')}"
    ),
    "slow": lambda task, d: f"{task} ran {_time(d, 'ran')}, expected {_time(d, 'expected')}",
    "slower": lambda task, d: (
        f"{task} has become slower: its runs take {_time(d, 'recent')}, expected {_time(d, 'expected')}"
    ),
    "late": lambda task, d: f"{task} started {_time(d, 'late')} late",
    "deadline_missed": _deadline_missed,
    "queue_lag": lambda _, d: (
        f"queue {d.get('queue')}: its oldest ready job has been due for {_time(d, 'lag')}"
        f"{'; it is paused' if d.get('paused') else ''}"
    ),
    "queue_full": lambda _, d: (
        f"{_place(d)} is full: it has {d.get('depth')} jobs that have not ended, and its max_depth is "
        f"{d.get('max_depth')}. Submits are refused until there are fewer"
    ),
    "queue_open": lambda _, d: f"{_place(d)} takes jobs again: it has {d.get('depth')}",
    "missed": lambda _, d: f"{_occurrences(d)} missed, and not made up for",
    "overran": lambda _, d: f"{_occurrences(d)} left out: the run before was not over",
    "set_aside": lambda _, d: (
        f"schedule {d.get('schedule')} can't be planned on {d.get('node')}, and doesn't fire there: "
        f"{d.get('reason')}"
    ),
    "node_dead": lambda _, d: (
        f"node {d.get('name')} on {d.get('host')} is dead: its jobs go to others"
    ),
    "task_unknown": lambda task, _: (
        f"a job of task {task} was submitted, and no node has registered that task"
    ),
    "run_failed": _run_failed,
    "run_late": lambda workflow, d: (
        f"a run of {workflow} was not done {_time(d, 'deadline')} after its start, and is being stopped"
    ),
    "run_parked": lambda workflow, d: (
        f"a run of {workflow} was paused, because its code contradicts its history: {d.get('message')}"
    ),
    "test": lambda _, d: "This is a test: webhooks of Rota arrive here.",
}
