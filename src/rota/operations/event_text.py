"""An event in one sentence, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.core.durations import format_duration


def sentence(event: Mapping[str, Any]) -> str:
    """``report has failed for good at attempt 5: ValueError: no luck``, and the like."""
    detail: Mapping[str, Any] = event.get("detail") or {}
    task, kind = event.get("task") or "a task", event.get("kind")
    told = _SENTENCES.get(str(kind))
    return told(task, detail) if told else f"{task}: {kind}"


def slack(event: Mapping[str, Any]) -> dict[str, str]:
    """As Slack's incoming webhooks take it (Mattermost's and others' as well)."""
    job = f" (job {event['job_id']})" if event.get("job_id") else ""
    # What people wrote must not become a mention or a link.
    text = f"[{event.get('namespace')}] {sentence(event)}{job}"
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, entity)
    return {"text": text[:3000]}


def _time(detail: Mapping[str, Any], field: str) -> str:
    seconds = detail.get(field)
    return format_duration(seconds) if isinstance(seconds, int | float) else "an unknown time"


def _error(detail: Mapping[str, Any]) -> str:
    return f"{detail.get('error') or 'unknown'}: {detail.get('message') or ''}".rstrip(": ")


def _times(detail: Mapping[str, Any]) -> str:
    count = detail.get("occurrences", 1)
    return "An occurrence" if count == 1 else f"{count} occurrences"


def _dead_lettered(task: str, detail: Mapping[str, Any]) -> str:
    return f"{task} has failed for good at attempt {detail.get('attempt')}: {_error(detail)}"


def _failed(task: str, detail: Mapping[str, Any]) -> str:
    attempt = detail.get("attempt")
    return f"{task} failed at attempt {attempt}, and is tried again: {_error(detail)}"


def _timed_out(task: str, detail: Mapping[str, Any]) -> str:
    why = detail.get("message") or detail.get("reason")
    return f"{task} was stopped at attempt {detail.get('attempt')}: it {why}"


def _slow(task: str, detail: Mapping[str, Any]) -> str:
    return f"{task} ran {_time(detail, 'ran')}, expected {_time(detail, 'expected')}"


def _slower(task: str, detail: Mapping[str, Any]) -> str:
    recent, expected = _time(detail, "recent"), _time(detail, "expected")
    return f"{task} has become slower: its runs take {recent}, expected {expected}"


def _late(task: str, detail: Mapping[str, Any]) -> str:
    return f"{task} started {_time(detail, 'late')} late"


def _deadline_missed(task: str, detail: Mapping[str, Any]) -> str:
    was = f"; it was {state}" if (state := detail.get("state")) else ""
    return f"{task} was not done {_time(detail, 'deadline')} after it was due{was}"


def _queue_lag(_task: str, detail: Mapping[str, Any]) -> str:
    paused = "; it is paused" if detail.get("paused") else ""
    lag = _time(detail, "lag")
    return f"queue {detail.get('queue')}: its oldest ready job has been due for {lag}{paused}"


def _missed(_task: str, detail: Mapping[str, Any]) -> str:
    schedule = detail.get("schedule")
    return f"{_times(detail)} of schedule {schedule} missed, and not made up for"


def _overran(_task: str, detail: Mapping[str, Any]) -> str:
    schedule = detail.get("schedule")
    return f"{_times(detail)} of schedule {schedule} left out: the run before was not over"


def _set_aside(task: str, detail: Mapping[str, Any]) -> str:
    schedule, where, why = (detail.get(name) for name in ("schedule", "node", "reason"))
    return f"schedule {schedule} can't be planned on {where}, and doesn't fire there: {why}"


def _node_dead(_task: str, detail: Mapping[str, Any]) -> str:
    return f"node {detail.get('name')} on {detail.get('host')} is dead: its jobs go to others"


def _test(_task: str, _detail: Mapping[str, Any]) -> str:
    return "This is a test: webhooks of Rota arrive here."


_SENTENCES = {
    "dead_lettered": _dead_lettered, "failed": _failed, "timed_out": _timed_out, "slow": _slow,
    "slower": _slower, "late": _late, "deadline_missed": _deadline_missed, "queue_lag": _queue_lag,
    "missed": _missed, "overran": _overran, "set_aside": _set_aside, "node_dead": _node_dead,
    "test": _test,
}  # fmt: skip
