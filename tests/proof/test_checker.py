"""The checker: histories as they should be pass, and each way to break a promise is told by its rule."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proof.checker import RULES, check
from proof.checker.__main__ import main
from proof.checker.facts import Spans
from proof.checker.timing import percentile
from proof.history import INTERRUPTED, PAUSE, WITHDRAWAL, ClockStep, Fault, Meta
from tests.support.checker_breaks import BROKEN as BROKEN_OTHERS
from tests.support.checker_breaks import Spoil, nobody_was_latest
from tests.support.checker_function_breaks import BROKEN_FUNCTIONS
from tests.support.checker_stories import DATABASE_MINUS_AT, LIVES, Story, full_story
from tests.support.places import ROOT

BROKEN = [*BROKEN_OTHERS, *BROKEN_FUNCTIONS]

# -- histories as they should be


def test_a_full_history_passes_and_every_rule_has_seen_something(tmp_path: Path):
    report = check(full_story().write(tmp_path))
    assert report.ok, report.text()
    assert report.unseen == []
    assert [finding.rule.number for finding in report.findings] == list(range(48))
    assert "Every promise was kept" in report.text()


ANY_TIME = (
    Story.succeeds, Story.retries, Story.fails, Story.is_cancelled, Story.keyed, Story.has_effect,
    Story.is_retried, Story.is_discarded,
)  # fmt: skip
ONCE = (Story.has_machines,
    Story.shards, Story.nodes, Story.schedule, Story.is_steered, Story.is_spoilt, Story.has_places,
    Story.runs, Story.functions, Story.has_keys,
)  # fmt: skip
MOMENTS = st.floats(1001, 1085)


@st.composite
def stories(draw: Any) -> Story:
    story = Story()
    for live in draw(st.lists(st.sampled_from([life for life in LIVES if life not in ONCE]))):
        live(story, draw(MOMENTS)) if live in ANY_TIME else live(story)
    for live in draw(st.permutations(ONCE)):
        live(story)
    return story


@given(story=stories())
def test_whatever_is_put_together_from_lives_as_they_should_be_passes(
    story: Story, tmp_path_factory: Any
):
    report = check(story.write(tmp_path_factory.mktemp("history")))
    assert report.ok, report.text()


@given(story=stories(), choice=st.integers(0))
def test_an_acknowledged_job_that_is_gone_is_missed_in_any_history(
    story: Story, choice: int, tmp_path_factory: Any
):
    acknowledged = {r.job for r in story.submissions if r.answer == "acknowledged"}
    rows = [row for row in story.tables["job"] if row["id"] in acknowledged]
    rows = rows or [story.succeeds()]
    gone = rows[choice % len(rows)]
    story.tables["job"].remove(gone)
    report = check(story.write(tmp_path_factory.mktemp("history")))
    lost = [v.subject for v in report.violations if v.rule == "no acknowledged job is lost"]
    assert lost == [f"job {gone['id']}"]


@pytest.mark.parametrize(("kind", "early"), [("nemesis", False), ("simulation", True)])
def test_a_limit_counts_from_before_the_first_line_of_a_real_handler(
    kind: str, early: bool, tmp_path: Path
):
    story = full_story()
    story.meta["kind"] = kind
    story.hangs(seconds=1.5)
    broken = [violation.sentence for violation in check(story.write(tmp_path)).violations]
    assert broken == (["was stopped after 1.500 s: its limit is 2 s"] if early else [])


@pytest.mark.parametrize(
    ("ended", "died", "crowded"),
    [(1035.0, None, False), (None, None, True), (1037.5, None, True), (1037.5, 1036.0, False)],
)
def test_a_place_is_free_when_the_database_has_ended_the_attempt_or_its_node(
    ended: float | None, died: float | None, crowded: bool, tmp_path: Path
):
    """The job that lost its lease waits for its next attempt, and others run meanwhile."""
    story = Story()
    lost = story.submit("few", 1029.0, share="t=few")
    stale = story.start(lost, 1029.5, "w3")
    entry = {"token": stale.token, "number": 1, "outcome": "lost"}
    if ended is not None:
        moment = datetime.fromtimestamp(ended + DATABASE_MINUS_AT, UTC)
        entry["ended_at"] = moment.isoformat()
    if died is not None:
        entry["node"] = "node-3"
        node = {"id": "node-3", "name": "w3", "state": "dead", "ended_at": died + DATABASE_MINUS_AT}
        story.tables["node"].append(node)
    lost["attempts"], lost["crashes"] = [entry], 1
    for _ in range(2):
        story.run(story.submit("few", 1029.0, share="t=few"), 1037.0)
    story.run(lost, 1038.0)
    story.end(stale, 1045.0)
    broken = [violation.rule for violation in check(story.write(tmp_path)).violations]
    assert broken == (["limits are kept"] if crowded else [])


@pytest.mark.parametrize(("submit", "served"), [(1050.7, True), (1051.2, False)])
def test_a_job_that_was_given_back_waits_again_and_serves_who_submits_then(
    submit: float, served: bool, tmp_path: Path
):
    story = Story()
    row = story.row("once_waiting-1", "once_waiting", 1049.0, unique_key="1")
    story.operate("submit unique", "once_waiting/1", 1049.0, id=row["id"], first=1049.0, count=0)
    story.end(story.start(row, 1049.5, "w4"), 1050.5, INTERRUPTED)
    row["attempt"] = 0
    story.operate("submit unique", "once_waiting/1", submit, id=row["id"], first=submit, count=1)
    story.run(row, 1051.0)
    broken = [violation.rule for violation in check(story.write(tmp_path)).violations]
    assert broken == ([] if served else ["unique jobs serve all submits"])


@pytest.mark.parametrize(("slots", "late"), [(1, False), (2, True), (0, True)])
def test_a_late_start_is_excused_when_no_worker_had_a_free_slot(
    slots: int, late: bool, tmp_path: Path
):
    """One handler runs on the only worker all the time that the other job waits. 0: nobody knows."""
    story = Story()
    story.meta["slots"] = slots
    story.run(story.submit("plain", 1072), 1072.1, seconds=14)
    story.run(story.submit("plain", 1080), 1086.2)
    broken = [violation.rule for violation in check(story.write(tmp_path)).violations]
    assert broken == (["starts are on time"] if late else [])


@pytest.mark.parametrize(("due", "late"), [(1076, False), (1081, True)])
def test_a_job_waits_for_those_before_it_and_not_for_those_after_it(
    due: float, late: bool, tmp_path: Path
):
    """A worker with a free slot begins other jobs: due before the one that waits, or after it."""
    story = Story()
    story.meta["slots"] = 2
    story.run(story.submit("plain", 1070), 1070.5, seconds=0.1)
    for begin in (1081.5, 1083.0, 1085.0):
        row = story.row(f"other-{begin}", "plain", due)
        story.tell(row["id"], "plain", "asked", due)
        story.run(row, begin, seconds=0.2)
    story.run(story.submit("plain", 1080), 1086.2)
    broken = [v for v in check(story.write(tmp_path)).violations if v.subject.endswith("job-2")]
    assert [violation.rule for violation in broken] == (["starts are on time"] if late else [])


@pytest.mark.parametrize(("start", "early"), [(1075.8, False), (1075.2, True)])
def test_what_the_machine_does_to_its_clock_is_no_early_start(
    start: float, early: bool, tmp_path: Path
):
    """Wanted in nine seconds; meanwhile the database's clock is set forward by 3.3."""
    story = Story()
    story.meta["clock_steps"] = [ClockStep(1072.0, 3.3)]
    row = story.row("delayed", "plain", 1079 - 3.3)
    story.tell("delayed", "plain", "asked", 1070, due_in=9)
    story.tell("delayed", "plain", "acknowledged", 1070.01, due_in=9)
    story.run(row, start)

    report = check(story.write(tmp_path))

    told = [v.subject for v in report.violations if "before it was due" in v.sentence]
    assert told == ["job delayed"] * early


def test_a_clock_that_is_set_back_while_a_client_waits_for_its_answer_makes_no_early_start(
    tmp_path: Path,
):
    """The question was asked before the step, and the database reckoned after it."""
    story = Story()
    story.meta["clock_steps"] = [ClockStep(1070.005, -4.0)]
    row = story.row("delayed", "plain", 1079.01)
    story.tell("delayed", "plain", "asked", 1070, due_in=9)
    story.tell("delayed", "plain", "acknowledged", 1070.01, due_in=9)
    story.run(row, 1079.02)

    assert check(story.write(tmp_path)).violations == []


@pytest.mark.parametrize(("step", "early"), [(1070.0, False), (1001.0, True)])
def test_a_node_notices_with_its_next_heartbeat_that_the_clock_was_set_back(
    step: float, early: bool, tmp_path: Path
):
    """Wanted in two seconds by the clock that was just set back, and started by the one before."""
    story = Story()
    story.meta["clock_steps"] = [ClockStep(step, -2.3)]
    row = story.row("delayed", "plain", 1072.1)
    story.tell("delayed", "plain", "asked", 1070.1, due_in=2)
    story.tell("delayed", "plain", "acknowledged", 1070.11, due_in=2)
    story.run(row, 1070.3)

    report = check(story.write(tmp_path))

    told = [v.subject for v in report.violations if "before it was due" in v.sentence]
    assert told == ["job delayed"] * early


@pytest.mark.parametrize("moment", [1054.0, 1060.0])
def test_what_was_missed_may_be_on_time_when_the_clock_was_set_back(moment: float, tmp_path: Path):
    """1020 and 1030 were skipped for 1040, which was not a missed one any more, a moment later."""
    story = Story()
    story.meta["clock_steps"] = [ClockStep(moment, -0.01)]
    story.schedule(overlap="allow")
    nobody_was_latest(story)

    broken = [violation.sentence for violation in check(story.write(tmp_path)).violations]

    assert len([each for each in broken if "no later one" in each]) == (2 if moment > 1054 else 0)


@pytest.mark.parametrize("back", [0.5, 2.0])
def test_a_takeover_may_be_earlier_by_as_much_as_the_clock_was_set_back(
    back: float, tmp_path: Path
):
    story = Story()
    story.meta["clock_steps"] = [ClockStep(1050.0, -back)]
    story.tables["shard"] = [{"shard": 1, "epoch": 2, "owner": "b"}]
    story.tables["shard_move"] = [
        {"shard": 1, "epoch": epoch, "owner": owner, "at": at + DATABASE_MINUS_AT}
        for epoch, owner, at in ((1, "a", 1050.0), (2, "b", 1049.0))
    ]

    broken = [violation.sentence for violation in check(story.write(tmp_path)).violations]

    assert broken == ([] if back > 1 else ["went from epoch 2 to 1"])


MOMENT = st.floats(0, 2000)
STEPS = st.lists(st.tuples(MOMENT, st.floats(0.02, 60)), max_size=4).map(
    lambda found: [ClockStep(at, by) for at, by in sorted(found)]
)


@given(at=MOMENT, steps=STEPS)
def test_moments_of_the_database_are_found_again_however_its_clock_was_set(
    at: float, steps: list[ClockStep]
):
    meta = Meta(
        kind="nemesis", tasks={}, schedules=[], started=0, healed=0, ended=0, lease_seconds=1,
        database_minus_at=DATABASE_MINUS_AT, max_crashes=3, clock_steps=steps,
    )  # fmt: skip
    assert meta.at(meta.database(at)) == pytest.approx(at, abs=0.001)
    for step in steps:
        before = meta.database(step.at - 0.0001)
        assert meta.at(before + step.by / 2) == pytest.approx(step.at, abs=0.001)


def test_what_goes_on_without_a_lease_does_not_count_as_overlap(tmp_path: Path):
    """A job of a schedule oversleeps, is run by another node, and goes on beside the schedule's next."""
    story = full_story()
    story.faults.append(Fault(1060.5, 1069.5, PAUSE, "w9"))
    story.beats = [beat for beat in story.beats if beat.job != "tick-1060"]
    row = next(row for row in story.tables["job"] if row["id"] == "tick-1060")
    row.update(attempt=0, crashes=1)
    zombie = story.start(row, 1060.1, "w9")
    story.run(row, 1067.0)
    story.end(zombie, 1071.0)
    report = check(story.write(tmp_path))
    assert report.ok, report.text()


@pytest.mark.parametrize("gave_up", [True, False])
def test_an_attempt_is_given_back_by_a_node_that_gives_its_start_up(gave_up: bool, tmp_path: Path):
    """Its worker had begun a job before the rest of it failed, and ended after all was healed."""
    story = full_story()
    if gave_up:
        story.faults.append(Fault(1066, 1073, WITHDRAWAL, "w9"))
    row = story.submit("plain", 1068)
    story.end(story.start(row, 1069, "w9"), 1072, INTERRUPTED)
    row["attempt"] = 0
    story.run(row, 1074)

    broken = [violation.sentence for violation in check(story.write(tmp_path)).violations]

    again = "was started twice in attempt 1, and w9 was not shut down in between"
    assert broken == ([] if gave_up else [again])


def test_the_latest_is_one_by_the_version_that_held_then_and_not_by_the_last(tmp_path: Path):
    """What was missed is caught up with at 1040; later an update makes it due every 25 seconds."""
    story = Story()
    story.schedule(overlap="allow")
    made = story.schedules[0]
    story.operate("create", "tick", 1003, schedule=made, id="schedule-tick")
    changed = msgspec.structs.replace(made, every=25)
    story.operate("update", "tick", 1085, schedule=changed)
    for table, name in (("occurrence", "job_id"), ("job", "id")):
        story.tables[table] = [row for row in story.tables[table] if row[name] != "tick-1090"]
    story.beats = [beat for beat in story.beats if beat.job != "tick-1090"]

    report = check(story.write(tmp_path))

    assert report.ok, report.text()


@pytest.mark.parametrize("reason", ["deleted", "overlap_queue_full"])
def test_the_latest_may_be_one_that_was_deleted_before_it_was_caught_up_with(
    reason: str, tmp_path: Path
):
    """1020 and 1030 were skipped for 1040, and then somebody deleted the schedule."""
    story = Story()
    story.schedule(overlap="queue")
    gone = {f"tick-{due}" for due in (1040, 1060, 1070, 1080, 1090, 1100)}
    latest = next(row for row in story.tables["occurrence"] if row["job_id"] == "tick-1040")
    latest.update(state=2, reason=reason, caught_up=False, job_id=None)
    for table, name in (("occurrence", "job_id"), ("job", "id")):
        story.tables[table] = [row for row in story.tables[table] if row[name] not in gone]
    story.beats = [beat for beat in story.beats if beat.job not in gone]
    made = story.schedules[0]
    story.operate("create", "tick", 1003, schedule=made, id="schedule-tick")
    story.operate("delete", "tick", 1054)
    story.tables["schedule"].clear()

    broken = [violation.sentence for violation in check(story.write(tmp_path)).violations]

    skipped = "was skipped for a later one, and no later one was caught up with"
    assert len(broken) == (0 if reason == "deleted" else 2), broken
    assert all(skipped in sentence for sentence in broken)


@pytest.mark.parametrize("spoilt", [True, False])
def test_what_was_due_before_a_row_was_spoilt_may_be_unknown(spoilt: bool, tmp_path: Path):
    """Nobody had decided about 1080 by then, and what is due at 1081 is the next version's."""
    story = Story()
    story.schedule(overlap="allow")
    for table, name in (("occurrence", "job_id"), ("job", "id")):
        story.tables[table] = [
            row
            for row in story.tables[table]
            if row[name] not in ("tick-1080", "tick-1090", "tick-1100")
        ]
    story.beats = [beat for beat in story.beats if beat.at < 1080]
    made = story.schedules[0]
    story.operate("create", "tick", 1003, schedule=made, id="schedule-tick")
    if spoilt:
        story.operate("spoil", "tick", 1080.5)
    changed = msgspec.structs.replace(made, every=1)
    story.operate("update", "tick", 1080.7, schedule=changed)
    for due in range(1081, 1101):
        story._happen("schedule-tick", "tick", due, due)

    broken = [violation.sentence for violation in check(story.write(tmp_path)).violations]

    assert broken == ([] if spoilt else ["the occurrence at 1700000080 has no rows"])


@pytest.mark.parametrize("filled", [True, False])
def test_a_row_that_a_later_backfill_made_does_not_show_how_far_a_spoilt_version_went(
    filled: bool, tmp_path: Path
):
    """Nobody had decided about 1070 and 1080 when the row was spoilt. The backfill by the next version
    made the row of 1080, and its job was given up, which is the reason of the row since."""
    story = Story()
    story.schedule(overlap="allow")
    for table, name in (("occurrence", "job_id"), ("job", "id")):
        story.tables[table] = [
            row
            for row in story.tables[table]
            if row[name] not in ("tick-1070", "tick-1080", "tick-1090", "tick-1100")
        ]
    story.beats = [beat for beat in story.beats if beat.at < 1070]
    made = story.schedules[0]
    story.operate("create", "tick", 1003, schedule=made, id="schedule-tick")
    story.operate("spoil", "tick", 1080.5)
    changed = msgspec.structs.replace(made, every=20)
    story.operate("update", "tick", 1081.5, schedule=changed)
    if filled:
        story.operate(
            "backfill",
            "tick",
            1090,
            first=DATABASE_MINUS_AT + 1075,
            end=DATABASE_MINUS_AT + 1085,
            count=1,
        )
    story._happen("schedule-tick", "tick", 1080, 1090, decided=1090)
    story._happen("schedule-tick", "tick", 1100, 1100)

    broken = [violation.sentence for violation in check(story.write(tmp_path)).violations]

    assert ("the occurrence at 1700000070 has no rows" in broken) is not filled


@pytest.mark.parametrize("by_hand", ["trigger", "backfill", None])
def test_what_waits_for_its_spread_when_a_row_is_spoilt_may_be_unknown(
    by_hand: str | None, tmp_path: Path
):
    """1080 is to run 15 s later, and 1090 was decided on before it: by hand, or by the firer, which
    takes them in their order. Its job found no place, which is the reason of the row since."""
    story = Story()
    story.schedule(overlap="skip")
    gone = ("tick-1080", "tick-1090", "tick-1100")
    for table, name in (("occurrence", "job_id"), ("job", "id")):
        story.tables[table] = [row for row in story.tables[table] if row[name] not in gone]
    story.beats = [beat for beat in story.beats if beat.job not in gone]
    made = story.schedules[0] = msgspec.structs.replace(story.schedules[0], spread=15.0)
    story.operate("create", "tick", 1003, schedule=made, id="schedule-tick")
    due = 1090.0
    if by_hand == "trigger":
        due = 1083.5
        story.operate("trigger", "tick", 1083.4, id="tick-1083.5")
    elif by_hand == "backfill":
        end = DATABASE_MINUS_AT + 1090
        story.operate("backfill", "tick", 1090.1, first=end - 5, end=end, count=1)
    decided = due if by_hand == "trigger" else 1090.2
    story._happen("schedule-tick", "tick", due, due, decided=decided)
    story.tables["occurrence"][-1].update(state=2, reason="overlap")
    job = story.finish(story.tables["job"][-1], decided + 0.1, 8)
    job.update(attempt=0, token=None)
    story.beats = [beat for beat in story.beats if beat.job != job["id"]]
    story.operate("spoil", "tick", 1090.5)
    story.operate("update", "tick", 1092, schedule=msgspec.structs.replace(made, every=50))
    story._happen("schedule-tick", "tick", 1100, 1100)

    broken = [violation.sentence for violation in check(story.write(tmp_path)).violations]

    assert broken == ([] if by_hand else ["the occurrence at 1700000080 has no rows"])


def test_a_clock_that_is_set_back_while_a_row_is_spoilt_shows_the_next_version_s_times_again(
    tmp_path: Path,
):
    """Nobody had decided about 1080 when the row was spoilt, at 1091 by the clock of then. It was set
    back by 2 s, and the next version, in force from 1089.4 on, has an occurrence before that moment."""
    story = Story()
    story.schedule(overlap="allow")
    gone = ("tick-1080", "tick-1090", "tick-1100")
    for table, name in (("occurrence", "job_id"), ("job", "id")):
        story.tables[table] = [row for row in story.tables[table] if row[name] not in gone]
    story.beats = [beat for beat in story.beats if beat.job not in gone]
    made = story.schedules[0]
    story.operate("create", "tick", 1003, schedule=made, id="schedule-tick")
    story.operate("spoil", "tick", 1089.0)
    story.meta["clock_steps"] = [ClockStep(1089.2, -2.0)]
    story.operate("update", "tick", 1089.4, schedule=made)
    for due in (1090, 1100):
        story._happen("schedule-tick", "tick", due, due)

    broken = [violation.sentence for violation in check(story.write(tmp_path)).violations]

    assert not any("1700000080" in sentence for sentence in broken), broken


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_success_that_depended_on_what_a_resume_repeats_does_not_stay(
    rounds: int, tmp_path: Path
):
    """s1 ran after s0 had failed, and s2 after s1. A resume repeats s0, and s1, which fails now."""
    story = Story()
    story._run_of("resumed", 6, round=rounds)
    story._step("resumed", 0, 5, at=1005)
    story._step("resumed", 1, 6, before=[0], rule=2)
    story._step("resumed", 2, 5, before=[1], at=1010)

    broken = [violation.sentence for violation in check(story.write(tmp_path)).violations]

    assert any("step s2 ran against its rule" in each for each in broken)


# -- and as they should not be


@pytest.mark.parametrize(("number", "sentence", "spoil"), BROKEN, ids=[b[1] for b in BROKEN])
def test_a_broken_promise_is_told_by_its_rule_and_by_no_other(
    number: int, sentence: str, spoil: Spoil, tmp_path: Path
):
    story = full_story()
    spoil(story)
    report = check(story.write(tmp_path))
    assert {v.rule for v in report.violations} == {RULES[number].name}, report.text()
    assert any(sentence in v.sentence for v in report.violations), report.text()


def test_every_rule_has_a_history_that_breaks_it():
    assert {number for number, _, _ in BROKEN} == {rule.number for rule in RULES}


# -- the report


def test_a_rule_that_saw_nothing_says_so_loudly(tmp_path: Path):
    report = check(Story().write(tmp_path))
    assert report.ok
    assert "a key names one job: acknowledged keys" in report.unseen
    assert (
        "!!  2  a key names one job                   EXAMINED 0: acknowledged keys"
        in report.text()
    )


def test_a_violation_is_printed_with_its_sentence_and_its_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    story = full_story()
    row = story.is_lost("at_most")
    assert main([str(story.write(tmp_path))]) == 1
    printed = capsys.readouterr().out
    assert f"job {row['id']}: is at_most_once, and was started 2 times" in printed
    assert '      journal: {"at":1019.5,"event":"start"' in printed
    assert '      db-job: {"id":' in printed
    assert "NOT KEPT: 1 violation of 1 rule." in printed


def test_exit_codes_of_a_good_history_and_of_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main([str(full_story().write(tmp_path / "good"))]) == 0
    assert main([str(tmp_path)]) == 2
    assert "usage" in capsys.readouterr().err


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path):
    folder = full_story().write(tmp_path)
    with (folder / "clients.jsonl").open("ab") as clients:
        clients.write(b'{"at": 1, "torn\n')
    with pytest.raises(ValueError, match=r"clients\.jsonl, line \d+: "):
        check(folder)


def test_figures_count_what_happened(tmp_path: Path):
    story = Story()
    story.succeeds()
    story.retries()
    story.is_lost()
    story.oversleeps()
    figures = check(story.write(tmp_path)).figures
    assert figures["jobs"] == "4 succeeded"
    assert figures["starts"] == "7, of 4 jobs; 3 more than once"
    assert figures["second starts"] == "1 retries, 2 takeovers"
    assert figures["refused successes"] == "1"
    assert figures["faults"] == "7: 3 kill, 1 pause, 1 shutdown, 1 partition, 1 database restart"


# -- its parts


def test_the_checker_imports_nothing_of_rota():
    code = """
import importlib, pkgutil, sys
import proof.checker
for module in pkgutil.iter_modules(proof.checker.__path__, "proof.checker."):
    importlib.import_module(module.name)
print(sorted(name for name in sys.modules if name.partition(".")[0] == "rota"))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


@given(
    spans=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5))),
    first=st.integers(-5, 40),
    length=st.integers(0, 5),
)
def test_spans_overlap_as_one_by_one(spans: list[tuple[int, int]], first: int, length: int):
    stretches = [(start, start + more) for start, more in spans]
    naive = any(start <= first + length and end >= first for start, end in stretches)
    assert Spans(stretches).overlap(first, first + length) == naive


def test_percentiles_are_values_that_were_measured():
    assert [percentile([1.0, 2.0, 3.0, 4.0], share) for share in (0, 0.5, 0.51, 0.99, 1)] == [
        1.0, 2.0, 3.0, 4.0, 4.0,
    ]  # fmt: skip
