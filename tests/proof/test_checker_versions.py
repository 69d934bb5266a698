"""The checker on schedules that are updated, and on clocks that are set back while they are made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proof.checker import check
from proof.history import ClockStep, SchedulePromise
from tests.support.checker_stories import DATABASE_MINUS_AT, Row, Story


def _sentences(story: Story, folder: Path) -> list[str]:
    return [violation.sentence for violation in check(story.write(folder)).violations]


def _row(story: Story, due: float) -> Row:
    return next(r for r in story.tables["occurrence"] if r["due_at"] == due + DATABASE_MINUS_AT)


def _updated(*, catch_up: Any = "latest") -> Story:
    """Due every ten seconds and run 8 s later, until an update at 1041; then every four, without spread.
    Nobody fires between 1014 and 1055: by then 1020 and 1030 are missed by the old version, and 1044 is
    by the new one. 1040 is on time, as it is to run at 1048."""
    story = Story()
    made = SchedulePromise("tick", "cron", 10, catch_up=catch_up, spread=8.0)
    changed = SchedulePromise("tick", "cron", 4)
    id = "schedule-tick"
    story.meta["horizon"] = 0.5
    story.operate("create", "tick", 1003, schedule=made, id=id)
    story.operate("update", "tick", 1041, schedule=changed)
    story.tables["schedule"].append(
        {"id": id, "name": "tick", "created_at": 1003 + DATABASE_MINUS_AT,
         "cursor": 1100 + DATABASE_MINUS_AT, "next_due": 1104 + DATABASE_MINUS_AT}
    )  # fmt: skip
    story._happen(id, "tick", 1010, 1018, 1010)
    for due in (1020, 1030):
        story.tables["occurrence"].append(
            {"schedule_id": id, "schedule": "tick", "due_at": due + DATABASE_MINUS_AT, "state": 2,
             "run_at": due + 8 + DATABASE_MINUS_AT, "reason": "catch_up", "caught_up": False,
             "job_id": None, "decided_at": 1055 + DATABASE_MINUS_AT}
        )  # fmt: skip
    story._happen(id, "tick", 1040, 1048, 1055)
    for due in range(1044, 1101, 4):
        story._happen(id, "tick", due, due, max(due, 1055.5))
    _row(story, 1044)["caught_up"] = True
    return story


def test_what_is_missed_may_be_skipped_for_a_missed_one_of_a_later_version(tmp_path: Path):
    """Between the two there is one of the old version that runs on time, by its spread."""
    assert _sentences(_updated(), tmp_path) == []


def test_somebody_has_to_be_the_latest_in_a_later_version_too(tmp_path: Path):
    story = _updated()
    _row(story, 1044)["caught_up"] = False

    skipped = "was skipped for a later one, and no later one was caught up with"
    assert [skipped in sentence for sentence in _sentences(story, tmp_path)] == [True, True]


def test_a_later_version_without_missed_ones_at_that_time_is_no_reason_to_skip(tmp_path: Path):
    """1044 was missed only when it was decided about, long after the ones that were skipped."""
    story = _updated()
    for due in (1020, 1030):
        _row(story, due)["decided_at"] = 1050 + DATABASE_MINUS_AT
    _row(story, 1040)["decided_at"] = 1050 + DATABASE_MINUS_AT

    skipped = "was skipped for a later one, and no later one was caught up with"
    assert [skipped in sentence for sentence in _sentences(story, tmp_path)] == [True, True]


def test_a_later_version_is_no_reason_for_one_that_catches_up_with_all(tmp_path: Path):
    told = _sentences(_updated(catch_up="all"), tmp_path)
    assert ["catches up with all" in sentence for sentence in told] == [True, True]


@pytest.mark.parametrize("asked", [1007.95, 1008.05])
def test_a_schedule_begins_at_the_time_before_when_the_clock_is_set_back_as_it_is_made(
    asked: float, tmp_path: Path
):
    """At 1008 the database's clock is set back by seven seconds, from 1015. A schedule that was made
    before that has no occurrence at 1010, which had passed; one that was made after it has."""
    story = Story()
    story.meta |= {"clock_steps": [ClockStep(1008.0, -7.0)], "clock_error": 7.01}
    story.schedule(overlap="allow")
    for table, name in (("occurrence", "job_id"), ("job", "id")):
        story.tables[table] = [row for row in story.tables[table] if row[name] != "tick-1010"]
    story.beats = [beat for beat in story.beats if beat.job != "tick-1010"]
    story.operate("create", "tick", asked, schedule=story.schedules[0], id="schedule-tick")

    told = _sentences(story, tmp_path)

    assert told == ([] if asked < 1008 else ["the occurrence at 1700000010 has no rows"])


@pytest.mark.parametrize("latest", [True, False])
def test_what_was_triggered_is_not_the_latest_that_is_asked_for(latest: bool, tmp_path: Path):
    """At 1035.5 somebody triggers it, among the missed ones, and there is no place for that job."""
    story = Story()
    story.schedule(overlap="queue")
    story.operate("create", "tick", 1003, schedule=story.schedules[0], id="schedule-tick")
    story.operate("trigger", "tick", 1035.4, id="tick-1035.5", count=1)
    job = story.row("tick-1035.5", "cron", 1035.5, schedule_id="schedule-tick", token=None)
    story._note("schedule-tick", 1035.5, 1035.5, job)
    _row(story, 1035.5).update(state=2, reason="overlap_queue_full")
    story.finish(job, 1036, 8)
    _row(story, 1040)["caught_up"] = latest

    skipped = "was skipped for a later one, and no later one was caught up with"
    told = [skipped in sentence for sentence in _sentences(story, tmp_path)]
    assert told == ([] if latest else [True, True])
