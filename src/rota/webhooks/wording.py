"""An event in one sentence, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.core.durations import format_duration


def sentence(event: Mapping[str, Any]) -> str:
    """``report: dead_lettered: ValueError: no luck (attempt 5)``, and the like."""
    detail: Mapping[str, Any] = event.get("detail") or {}
    task = event.get("task") or "a task"
    attempt, schedule = detail.get("attempt"), detail.get("schedule")
    match event.get("kind"):
        case "dead_lettered":
            return f"{task} has failed for good at attempt {attempt}: {_error(detail)}"
        case "failed":
            return f"{task} failed at attempt {attempt}, and is tried again: {_error(detail)}"
        case "slow":
            return f"{task} ran {_time(detail, 'ran')}, expected {_time(detail, 'expected')}"
        case "late":
            return f"{task} started {_time(detail, 'late')} late"
        case "deadline_missed":
            was = f"; it was {state}" if (state := detail.get("state")) else ""
            return f"{task} was not done {_time(detail, 'deadline')} after it was due{was}"
        case "missed":
            return f"{_times(detail)} of schedule {schedule} missed, and not made up for"
        case "overran":
            return f"{_times(detail)} of schedule {schedule} left out: the run before was not over"
        case "node_dead":
            return (
                f"node {detail.get('name')} on {detail.get('host')} is dead: its jobs go to others"
            )
        case "test":
            return "This is a test: webhooks of Rota arrive here."
        case other:
            return f"{task}: {other}"


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
