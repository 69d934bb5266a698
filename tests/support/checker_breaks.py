"""Ways to break a promise: the rule that must tell, a part of its sentence, and what spoils a story."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from proof.history import (
    ACCEPTED,
    FAILED,
    KILL,
    PAUSE,
    REFUSED,
    SHUTDOWN,
    Fault,
    Member,
    Operation,
    SchedulePromise,
)
from tests.support.checker_stories import DATABASE_MINUS_AT, Row, Story

Spoil = Callable[[Story], object]


def without_row(story: Story, table: str, **wanted: Any) -> Row:
    rows = story.tables[table]
    found = next(row for row in rows if wanted.items() <= row.items())
    rows.remove(found)
    return found


def with_row(story: Story, table: str, changes: Row, **wanted: Any) -> None:
    next(row for row in story.tables[table] if wanted.items() <= row.items()).update(changes)


def edit_beat(story: Story, job: str, event: str, **changes: Any) -> None:
    """Changes the last such beat of a job, or takes it out if there is nothing to change."""
    place = max(n for n, b in enumerate(story.beats) if (b.job, b.event) == (job, event))
    beat = story.beats.pop(place)
    if changes:
        story.beats.append(msgspec.structs.replace(beat, **changes))


def db(at: float) -> float:
    return at + DATABASE_MINUS_AT


def end_without_start(story: Story) -> None:
    row = story.succeeds()
    story.beats.append(msgspec.structs.replace(story.beats[-1], token=row["token"] + 1))


def began_again(story: Story) -> None:
    story.members.append(Member(1085.0, "start", "spared", 1, "spared-2", 10**6, "w2"))


def never_succeeded(story: Story) -> None:
    story.members = [m for m in story.members if (m.job, m.event) != ("spared-2", "ok")]


def kept_all(story: Story) -> None:
    story.operate("switch history", "spared", 1010.0, detail="all")


def spared_and_kept(story: Story) -> None:
    story.finish(story.row("spared-2", "spared", 1076.0, token=None), 1076.2)


def over_the_limit(story: Story) -> None:
    story.run(story.submit("few", 1005.0, share="t=few"), 1005.3)


def out_of_turn(story: Story) -> None:
    story.run(story.submit("in_order", 1005.0, share="o=1"), 1005.3)


def too_deep(story: Story) -> None:
    for _ in range(10):
        story.run(story.submit("narrow", 1005.0), 1005.3)


def forgotten(story: Story) -> None:
    story.run(story.submit("few", 1080.0, share="t=few"), 1096.0)


def served_more_than_its_share(story: Story) -> None:
    for second in range(12):
        row = story.row(f"more-{second}", "share", 1080.0, share="f=a")
        story.run(row, 1080.1 + second, seconds=1.0)


def faster_than_its_rate(story: Story) -> None:
    for number in range(12):
        story.run(story.row(f"fast-{number}", "paced", 1080.0), 1080.1 + number / 10, seconds=0.1)


def over_the_limit_of_a_queue(story: Story) -> None:
    for number in range(3):
        row = story.row(f"crowd-{number}", "share", 1080.0, share="f=b")
        story.run(row, 1085.0, seconds=0.3)


def stored_beside_one_that_runs(story: Story) -> None:
    for number, due in ((3, 1091.0), (4, 1092.0)):
        row = story.row(f"beside-{number}", "once_unfinished", due, unique_key="2")
        story.run(row, due + 0.1, seconds=8.0 if number == 3 else 0.5)


def stored_beside_one_that_waits(story: Story) -> None:
    for due in (1084.0, 1085.0):
        row = story.row(f"beside-{due}", "once_waiting", due, unique_key="2")
        row["due_at"] += 8.0
        story.run(row, due + 8.1, seconds=0.1)


def stored_within_the_window(story: Story) -> None:
    for due in (1084.0, 1085.0):
        story.run(story.row(f"again-{due}", "once_in_a_while", due, unique_key="2"), due + 0.1)


def _first_of(story: Story, task: str) -> str:
    return next(row["id"] for row in story.tables["job"] if row["task"] == task)


def answered_with_one_that_has_begun(story: Story) -> None:
    told = {"id": _first_of(story, "once_waiting"), "first": 1079.5, "count": 1}
    story.operate("submit unique", "once_waiting/1", 1079.5, **told)


def begun_before_it_was_quiet(story: Story) -> None:
    told = {"id": _first_of(story, "debounced"), "first": 1078.0, "count": 1}
    story.operate("submit unique", "debounced/1", 1078.0, **told)


def answered_with_nothing(story: Story) -> None:
    story.operate("submit unique", "once_waiting/1", 1079.5, id="nowhere", first=1079.5)


def started_on_a_drained_node(story: Story) -> None:
    story.run(story.submit("plain", 1090.0), 1090.1, "w8")


def more_than_it_has(story: Story) -> None:
    story.run(story.submit("one_gpu", 1086.0), 1086.2, "w2")


def starved(story: Story) -> None:
    story.run(story.submit("most_gpus", 1084.0), 1099.5, "w2")


def member_forgotten(story: Story) -> None:
    story.members = [member for member in story.members if member.item == 0]


def member_called_twice(story: Story) -> None:
    story.members.append(story.members[-1])


def members_miscounted(story: Story) -> None:
    story.tables["map"][0]["succeeded"] = 3


def stored_though_refused(story: Story) -> None:
    story.tell("no", "plain", "asked", 1005)
    story.tell("no", "plain", "refused", 1006)
    story.run(story.row("no", "plain", 1005), 1005.1)


def one_key_two_jobs(story: Story) -> None:
    for at in (1005, 1006):
        story.run(story.submit("plain", at, key="twice"), at + 0.1)


def one_key_two_rows(story: Story) -> None:
    story.run(story.submit("plain", 1005, key="twice"), 1005.1)
    story.tell("twice", "plain", "asked", 1006, key="twice")
    story.run(story.row("second", "plain", 1006, key="twice"), 1006.1)


def forgotten_key(story: Story) -> None:
    story.run(story.submit("plain", 1005, key="gone"), 1005.1)
    without_row(story, "submit_key", key="gone")


def key_of_another_job(story: Story) -> None:
    story.run(story.submit("plain", 1005, key="mine"), 1005.1)
    with_row(story, "submit_key", {"job_id": "another"}, key="mine")


def unaccounted_occurrence(story: Story) -> None:
    row = without_row(story, "occurrence", due_at=db(1080))
    without_row(story, "job", id=row["job_id"])


def occurrence_twice(story: Story) -> None:
    row = without_row(story, "occurrence", due_at=db(1080))
    twin = story.row("twin", "cron", 1080, schedule_id="schedule-tick")
    story.run(twin, 1081)
    story.tables["occurrence"] += [row, {**row, "job_id": "twin"}]


def ledger_behind(story: Story) -> None:
    with_row(story, "schedule", {"cursor": db(1060)}, name="tick")
    for row in [row for row in story.tables["occurrence"] if row["due_at"] > db(1060)]:
        story.tables["occurrence"].remove(row)
        without_row(story, "job", id=row["job_id"])


def skipped_by_all(story: Story) -> None:
    story.schedule("eager", catch_up="all")


def skipped_by_allow(story: Story) -> None:
    story.schedule("loose", overlap="allow")
    with_row(story, "occurrence", {"state": 2, "reason": "overlap"}, job_id="loose-1080")
    with_row(story, "job", {"state": 8}, id="loose-1080")


def nobody_was_latest(story: Story) -> None:
    with_row(story, "occurrence", {"caught_up": False}, job_id="tick-1040")


def caught_up_in_time(story: Story) -> None:
    with_row(story, "occurrence", {"caught_up": True}, job_id="tick-1080")


def job_of_two_occurrences(story: Story) -> None:
    with_row(story, "occurrence", {"job_id": "tick-1080"}, job_id="tick-1090")


def occurrence_of_nothing(story: Story) -> None:
    row = without_row(story, "occurrence", due_at=db(1020))
    story.tables["occurrence"] += [row, {**row, "schedule_id": "x", "schedule": None}]


def job_without_occurrence(story: Story) -> None:
    story.run(story.row("extra", "cron", 1085, schedule_id="schedule-tick"), 1085.1)


def job_of_another_schedule(story: Story) -> None:
    story.schedule("second", overlap="allow")
    with_row(story, "job", {"schedule_id": "schedule-second"}, id="tick-1080")


def skipped_and_run(story: Story) -> None:
    with_row(story, "occurrence", {"state": 2, "reason": "overlap"}, job_id="tick-1080")


def undeclared_task(story: Story) -> None:
    row = story.succeeds()
    start = next(beat for beat in story.beats if beat.job == row["id"])
    story.guard(msgspec.structs.replace(start, task="other"), 1005.2, ACCEPTED)


def too_many_attempts(story: Story) -> None:
    row = story.submit("hopeless", 1005)
    for at in range(1005, 1009):
        story.end(story.start(row, at), at + 0.1, FAILED)
    row["due_at"] += 3
    story.finish(row, 1008.1, 6, "ValueError")


def twice_under_one_token(story: Story) -> None:
    row = story.is_lost()
    story.beats.append(msgspec.structs.replace(story.beats[-1], event="start", outcome=""))
    story.beats[-1] = msgspec.structs.replace(story.beats[-1], at=1026.2)
    assert row["token"] == story.beats[-1].token


def attempt_goes_back(story: Story) -> None:
    row = story.submit("plain", 1019)
    story.start(row, 1019.5, "w1", attempt=2)
    story.end(story.start(row, 1026, attempt=1), 1026.5)
    story.finish(row, 1026.5)


def same_attempt_without_shutdown(story: Story) -> None:
    row = story.submit("plain", 1019)
    story.start(row, 1019.5, "w1")
    row["attempt"] = 0
    story.run(row, 1026)


def shut_down_at_another_time(at: float) -> Spoil:
    def spoil(story: Story) -> None:
        story.faults.append(Fault(at, at + 1, SHUTDOWN, "w1"))
        same_attempt_without_shutdown(story)

    return spoil


def paused_at_another_time(at: float) -> Spoil:
    def spoil(story: Story) -> None:
        story.faults.append(Fault(at, at + 1, PAUSE, "w9"))
        late_start_without_pause(story)

    return spoil


def late_start_without_pause(story: Story) -> None:
    row = story.starts_late()
    story.beats = [
        msgspec.structs.replace(b, node="w9") if b.job == row["id"] and b.node == "w3" else b
        for b in story.beats
    ]


def token_of_two_nodes(story: Story) -> None:
    rows = [story.succeeds(1080.0), story.succeeds(1080.0)]
    for event in ("start", "end"):
        edit_beat(story, rows[1]["id"], event, node="w9", token=rows[0]["token"])
    rows[1]["token"] = rows[0]["token"]


def loss_not_counted(story: Story) -> None:
    row = story.is_lost()
    row["attempts"] = [{"number": 1, "token": row["token"] - 1, "outcome": "lost"}]
    row["crashes"] = 0


def one_end_told_twice(story: Story) -> None:
    """The reaper's entry, and after it that of the node which was taken for dead."""
    row = story.succeeds()
    lost = {"number": 1, "token": row["token"] - 1, "outcome": "lost"}
    row["attempts"] = [lost, {**lost, "outcome": "failed"}]
    row["crashes"] = 1


def ends_out_of_order(story: Story) -> None:
    row = story.succeeds()
    row["attempts"] = [
        {"number": number, "token": row["token"] - number, "outcome": "failed"} for number in (1, 2)
    ]


def begun_without_a_lease(story: Story) -> None:
    """Cut off for longer than its lease, awake, and it goes on as if nothing were."""
    story.run(story.submit("plain", 1050), 1062, "w7")


def stale_success(story: Story) -> None:
    row = story.oversleeps()
    row["token"] -= 1  # the one that overslept
    row["finished_at"] = db(1045.2)


def success_of_nobody(story: Story) -> None:
    edit_beat(story, story.is_lost()["id"], "end")


def stale_write_taken(story: Story) -> None:
    row = story.oversleeps()
    edit_beat(story, row["id"], "guarded", outcome=ACCEPTED, order=3)


def newest_write_refused(story: Story) -> None:
    row = story.succeeds()
    start = next(beat for beat in story.beats if beat.job == row["id"])
    story.guard(start, 1005.2, REFUSED)


def effect_twice(story: Story) -> None:
    row = story.succeeds(task="exactly")
    story.tables["app_effect"].append({"job": row["id"], "token": row["token"]})


def effect_missing(story: Story) -> None:
    without_row(story, "app_effect", job=story.succeeds(task="exactly")["id"])


def effect_of_stale(story: Story) -> None:
    row = story.oversleeps("exactly")
    with_row(story, "app_effect", {"token": row["token"] - 1}, job=row["id"])


def effect_of_quarantined(story: Story) -> None:
    row = story.is_quarantined()
    row.update(task="exactly", guarantee=3)
    story.beats = [
        msgspec.structs.replace(b, task="exactly") if b.job == row["id"] else b for b in story.beats
    ]
    story.submissions = [
        msgspec.structs.replace(r, task="exactly") if r.job == row["id"] else r
        for r in story.submissions
    ]
    story.tables["app_effect"].append({"job": row["id"], "token": row["token"]})


def overlapping(story: Story) -> None:
    edit_beat(story, "tick-1070", "end", at=1081)
    with_row(story, "job", {"finished_at": db(1081)}, id="tick-1070")


def overlapping_between_retries(story: Story) -> None:
    """The first attempt of one, the run of the next, the second attempt of the first."""
    row = next(row for row in story.tables["job"] if row["id"] == "tick-1070")
    edit_beat(story, "tick-1070", "end", outcome=FAILED)
    row["due_at"] += 12
    story.run(row, 1082)


def wrong_failure(story: Story) -> None:
    row = story.submit("plain", 1005)
    story.end(story.start(row, 1005.1), 1005.2, FAILED)
    story.finish(row, 1005.2, 6, "ValueError")


def lost_without_a_fault(story: Story) -> None:
    row = story.submit("at_most", 1080)
    story.start(row, 1080.1)
    story.finish(row, 1086, 6, "NodeLost")


def hopeless_success(story: Story) -> None:
    story.run(story.submit("hopeless", 1005), 1005.1)


def cancelled_by_nobody(story: Story) -> None:
    row = story.submit("plain", 1005, token=None)
    story.finish(row, 1005.5, 7)


def open_batch(story: Story) -> None:
    story.tables["batch"].append({"token": 2, "lane": "default/default", "node": "w1"})


def run_after_success(story: Story) -> None:
    row = story.succeeds()
    token = row["token"]
    story.end(story.start(row, 1021.0), 1021.1)
    row["token"] = token


def second_run_in_calm(story: Story) -> None:
    row = story.submit("plain", 1080)
    story.start(row, 1080.1)
    row["crashes"] = 1
    story.run(row, 1086)


def early(story: Story) -> None:
    story.run(story.submit("plain", 1080), 1079)


def early_for_its_client(story: Story) -> None:
    row = story.succeeds(1080.0)
    story.tell(row["id"], "plain", "asked", 1080, due_in=9)
    story.submissions = [
        r for r in story.submissions if (r.job, r.answer, r.due_in) != (row["id"], "asked", 0)
    ]


def late(story: Story) -> None:
    story.run(story.submit("plain", 1080), 1086)


def two_owners(story: Story) -> None:
    with_row(story, "shard_move", {"previous_until": db(1027)}, shard=1, epoch=2)


def epoch_goes_back(story: Story) -> None:
    with_row(story, "shard_move", {"epoch": 3}, shard=1, epoch=1)
    with_row(story, "shard", {"epoch": 3, "owner": "w1"}, shard=1)


def taken_from_another(story: Story) -> None:
    with_row(story, "shard_move", {"previous": "w7"}, shard=1, epoch=2)


def unaccounted_after_update(story: Story) -> None:
    """The old version's last one, which the update passed over."""
    without_row(story, "occurrence", job_id="moved-1040")
    without_row(story, "job", id="moved-1040")
    story.beats = [beat for beat in story.beats if beat.job != "moved-1040"]


def old_rule_goes_on(story: Story) -> None:
    with_row(story, "occurrence", {"due_at": db(1070)}, job_id="moved-1072")


def fired_while_paused(story: Story) -> None:
    for kind in ("pause", "resume"):
        story.operations = [op for op in story.operations if op.kind != kind]
    story.operations.insert(3, Operation(1055, 1055.1, "pause", "moved", "done"))
    story.operations.insert(4, Operation(1072.5, 1072.6, "resume", "moved", "done"))


def nobody_paused(story: Story) -> None:
    changes = {"state": 2, "reason": "paused", "job_id": None}
    with_row(story, "occurrence", changes, job_id="moved-1056")
    without_row(story, "job", id="moved-1056")
    story.beats = [beat for beat in story.beats if beat.job != "moved-1056"]


def trigger_without_row(story: Story) -> None:
    story.operate("trigger", "moved", 1065.0, id="nothing", count=1)
    story.operations.sort(key=lambda operation: operation.at)


def gap_after_backfill(story: Story) -> None:
    without_row(story, "occurrence", job_id="moved-964")
    without_row(story, "job", id="moved-964")
    story.beats = [beat for beat in story.beats if beat.job != "moved-964"]


def occurrence_run_again(story: Story) -> None:
    row = story.row("again", "cron", 1066, schedule_id="line", occurrence="moved 1060")
    story._note("schedule-moved", 980, 1066, row, "backfilled")
    with_row(story, "occurrence", {"due_at": db(956)}, job_id="again")
    place = next(n for n, op in enumerate(story.operations) if op.kind == "backfill")
    wider = msgspec.structs.replace(story.operations[place], first=db(955))
    story.operations[place] = wider
    story.run(row, 1076)


def too_many_at_a_time(story: Story) -> None:
    place = next(n for n, op in enumerate(story.operations) if op.kind == "update")
    update = story.operations[place]
    assert update.schedule is not None
    limited = msgspec.structs.replace(update.schedule, max_running=1)
    story.operations[place] = msgspec.structs.replace(update, schedule=limited)
    edit_beat(story, "moved-1052", "end", at=1056.9)
    with_row(story, "job", {"finished_at": db(1056.9)}, id="moved-1052")


def effect_again(story: Story) -> None:
    row = story.has_effect()
    last = next(b for b in reversed(story.beats) if (b.job, b.event) == (row["id"], "start"))
    story.beats.append(msgspec.structs.replace(last, at=last.at + 0.05, event="effect"))


def waits_for_the_deleted(story: Story) -> None:
    with_row(story, "job", {"schedule_id": "schedule-moved"}, id="moved-waits")


def step_twice_in_a_round(story: Story) -> None:
    story.run(story.row("again", "plain", 1007, run_id="fine", step=0), 1007.1)


def step_before_its_turn(story: Story) -> None:
    edit_beat(story, "fine-0", "end", at=1006.3)
    with_row(story, "job", {"finished_at": db(1006.3)}, id="fine-0")


def sent_twice_with_one_once(story: Story) -> None:
    story.operate("send", "go/k9", 1004, id="signal-8", detail="once-1")
    story.operate("send", "go/k9", 1005, id="signal-9", detail="once-1")
    for number in (8, 9):
        story.tables["signal"].append(
            {"id": f"s{number}", "name": "go", "key": "k9", "payload": f"signal-{number}",
             "sent_at": db(1004)}
        )  # fmt: skip


def given_nothing(story: Story) -> None:
    steps = story.tables["step"]
    taker = next(row for row in steps if (row["run_id"], row["number"]) == ("fine", 1))
    taker["result"] = {**taker["result"], "of": None}


def of_step(run: str, number: int, **changes: Any) -> Spoil:
    return lambda story: with_row(story, "step", changes, run_id=run, number=number)


BROKEN: list[tuple[int, str, Spoil]] = [
    (0, "end without a start", end_without_start),
    (0, "goes on with its journal", lambda s: s.run(s.submit("plain", 1024), 1024.1, "w1")),
    (0, "after all was healed", lambda s: s.faults.append(Fault(1069, 1071, KILL, "w8"))),
    (0, "not in this order", lambda s: s.meta.update(started=1200.0)),
    (0, "meta.json doesn't declare it", undeclared_task),
    (1, "was acknowledged, and is not", lambda s: s.tables["job"].remove(s.succeeds())),
    (1, "was refused, and is in", stored_though_refused),
    (1, "neither a client nor a schedule", lambda s: s.run(s.row("x", "plain", 1005), 1005.1)),
    (1, "is in the database twice", lambda s: s.tables["job"].append(s.succeeds())),
    (1, "was submitted as plain", lambda s: s.succeeds().update(task="flaky")),
    (2, "as 2 different jobs", one_key_two_jobs),
    (2, "has 2 jobs in the database", one_key_two_rows),
    (2, "is forgotten", forgotten_key),
    (2, "as another job than the database has", key_of_another_job),
    (3, "at 1700000080 has no rows", unaccounted_occurrence),
    (3, "at 1700000080 has 2 rows", occurrence_twice),
    (3, "1700000075.000000, which isn't due",
     lambda s: with_row(s, "occurrence", {"due_at": db(1075)}, job_id="tick-1080")),
    (3, "before all was healed", ledger_behind),
    (3, "at 1700000040 has no rows", unaccounted_after_update),
    (3, "1700000070.000000, which isn't due", old_rule_goes_on),
    (3, "fired while the schedule was paused", fired_while_paused),
    (3, "nobody had paused it", nobody_paused),
    (3, "its ledger has no row of job nothing", trigger_without_row),
    (3, "was backfilled, and the occurrence at 1699999964 has no row", gap_after_backfill),
    (3, "has 2 jobs", occurrence_run_again),
    (3, "spread and jitter are 0.5 s",
     lambda s: [with_row(s, t, {c: db(1055.5)}, **{i: "moved-1056"})
                for t, c, i in (("job", "due_at", "id"), ("occurrence", "run_at", "job_id"))]),
    (8, "held its place until", too_many_at_a_time),
    (14, "nobody should see: OverflowError",
     lambda s: s.operate("create", "x", 1050, "failed", detail="OverflowError: no")),
    (14, "nothing speaks against it: there is no schedule",
     lambda s: s.operate("pause", "moved", 1050, "refused", detail="there is no schedule 'moved'")),
    (15, "in a schedule that is deleted", waits_for_the_deleted),
    (15, "keeps a place for job x",
     lambda s: s.tables["gate"].append({"schedule_id": "schedule-moved", "job_id": "x"})),
    (16, "had its effect 2 times", effect_again),
    (17, "at 1700000080 was decided 5.500 s after it was due",
     lambda s: with_row(s, "occurrence", {"decided_at": db(1085.5)}, job_id="tick-1080")),
    (3, "its job isn't in the database", lambda s: without_row(s, "job", id="tick-1080")),
    (3, "isn't in the database", lambda s: s.schedules.append(SchedulePromise("x", "cron", 9))),
    (3, "has occurrences, and nobody made it", occurrence_of_nothing),
    (3, "less than 10 s after it was due",
     lambda s: with_row(s, "occurrence", {"decided_at": db(1025)}, due_at=db(1020))),
    (3, "has no occurrence in its ledger", job_without_occurrence),
    (3, "has a job of another schedule", job_of_another_schedule),
    (3, "disagree whether it was skipped", skipped_and_run),
    (3, "has a job that is due at another moment",
     lambda s: with_row(s, "job", {"due_at": db(1079)}, id="tick-1080")),
    (3, "catches up with all", skipped_by_all),
    (3, "was skipped for overlap, which isn't one", skipped_by_allow),
    (3, "no later one was caught up with", nobody_was_latest),
    (3, "it wasn't missed", caught_up_in_time),
    (3, "is the job of 2 occurrences", job_of_two_occurrences),
    (4, "is at_most_once, and was started 2 times", lambda s: s.is_lost("at_most")),
    (5, "was started in attempt 4: it may have 3, and 0 more", too_many_attempts),
    (5, "was started twice under token", twice_under_one_token),
    (5, "went back from attempt 2 to 1", attempt_goes_back),
    (5, "w1 was not shut down", same_attempt_without_shutdown),
    (5, "w1 was not shut down", shut_down_at_another_time(1011)),
    (5, "w1 was not shut down", shut_down_at_another_time(1028)),
    (5, "w9 had not been paused", paused_at_another_time(1030)),
    (5, "w9 had not been paused", paused_at_another_time(1046)),
    (5, "w9 had not been paused", late_start_without_pause),
    (5, "was given to two nodes, w2 and w9", token_of_two_nodes),
    (6, "had started before", stale_success),
    (6, "under which its handler never ended well", success_of_nobody),
    (5, "was lost with its node 1 times, of which 0 were counted", loss_not_counted),
    (6, "was written down twice", one_end_told_twice),
    (6, "was written down after that of", ends_out_of_order),
    (6, "was taken after one under", stale_write_taken),
    (6, "was refused, and no newer token", newest_write_refused),
    (7, "succeeded, and has 2 effects", effect_twice),
    (7, "succeeded, and has no effects", effect_missing),
    (7, "its effect is of token", effect_of_stale),
    (7, "has not succeeded, and has 1 effects", effect_of_quarantined),
    (7, "isn't in the database", lambda s: s.tables["app_effect"].append({"job": "x", "token": 1})),
    (8, "while job tick-1070 held its place until 1081", overlapping),
    (8, "while job tick-1070 held its place until 1082.5", overlapping_between_retries),
    (9, "is still ready, 20.0 s after", lambda s: s.submit("plain", 1080)),
    (9, "its node w1 is dead", open_batch),
    (9, "belongs to no node",
     lambda s: s.tables["batch"].append({"token": 2, "lane": "x", "node": "nobody"})),
    (9, "failed for ValueError, though its handler succeeds", wrong_failure),
    (9, "though nothing was broken in its life", lost_without_a_fault),
    (9, "succeeded, though its handler always fails", hopeless_success),
    (9, "is cancelled, and nobody", cancelled_by_nobody),
    (10, "was started again after that", run_after_success),
    (10, "was started 2 times, though nothing was broken", second_run_in_calm),
    (11, "started 1.000 s before it was due", early),
    (11, "started 8.900 s before it was due", early_for_its_client),
    (11, "started 6.000 s after it was due", late),
    (13, "was started by w7, which had been cut off for 10.", begun_without_a_lease),
    (12, "and was another's until", two_owners),
    (12, "went from epoch 3 to 2", epoch_goes_back),
    (12, "was taken from w7, and it was w1", taken_from_another),
    (12, "has epoch 1 of w2", lambda s: with_row(s, "shard", {"epoch": 1}, shard=0)),
    (18, "went on for 8.0 s in one attempt: its limit is 2 s", lambda s: s.hangs(seconds=8)),
    (18, "was stopped after 0.900 s: its limit is 2 s", lambda s: s.hangs(seconds=0.9)),
    (18, "was stopped for its limit, which it keeps to", lambda s: s.hangs(task="lively")),
    (19, "had 2 jobs of step 0 in 1 rounds", step_twice_in_a_round),
    (20, "step s1 began before a step that it comes after had ended", step_before_its_turn),
    (20, "step s1 ran against its rule, after 0 failures", of_step("fine", 1, rule=4)),
    (20, "step s2 was skipped against its rule", of_step("fine", 2, conditional=False)),
    (20, "step s1 did not run for a failure", of_step("cancelled", 1, state=9)),
    (21, "started step 2 2.000 s after it was cancelled", of_step("cancelled", 2, rule=2)),
    (22, "has not ended", lambda s: with_row(s, "run", {"state": 4}, id="fine")),
    (22, "some of its steps have not", of_step("fine", 1, state=4)),
    (22, "some of its steps did not", of_step("fine", 2, state=6)),
    (32, "3 run, and 2 may", over_the_limit),
    (33, "held its place until", out_of_turn),
    (34, "there was a place for it from 1080.000 to 1091.000", forgotten),
    (32, "4 run, and 3 may", over_the_limit_of_a_queue),
    (35, "a got 1", served_more_than_its_share),
    (36, "was stored while job beside-3 had not ended", stored_beside_one_that_runs),
    (36, "was stored while job beside-1084.0 waited", stored_beside_one_that_waits),
    (36, "was stored 1.000 s after job again-1084.0", stored_within_the_window),
    (37, "which had started 0.500 s too early", answered_with_one_that_has_begun),
    (37, "which had started 0.750 s too early", begun_before_it_was_quiet),
    (37, "which is not in the database", answered_with_nothing),
    (38, "was asked to drain at 1080.100, and started a job at 1090.100", started_on_a_drained_node),
    (46, "its jobs held 7 gpu, and it has 6", more_than_it_has),
    (47, "it could have been the next from 1086.000 on", starved),
    (39, "succeeded, and member 1 was never done", member_forgotten),
    (39, "did member 1 more than once", member_called_twice),
    (39, "counted 3 members of 2", members_miscounted),
    (40, "jobs started from 1080.100 to 1081.", faster_than_its_rate),
    (41, "jobs were there at", too_deep),
    (42, "its depth is 3 and +0, and it has 0 jobs",
     lambda s: with_row(s, "depth", {"jobs": 3}, queue="narrow")),
    (45, "has 0 rows and 0 traces", lambda s: without_row(s, "trace", id="spared-2")),
    (45, "has 1 rows and 1 traces", spared_and_kept),
    (45, "no attempt of it had succeeded", never_succeeded),
    (45, "began again after it had ended", began_again),
    (45, "was not kept by a queue that keeps all", kept_all),
    (45, "and has 0 effects", lambda s: without_row(s, "app_effect", job="spared-3")),
    (45, "under which no attempt had succeeded",
     lambda s: with_row(s, "job", {"token": 0}, id="spared-1")),
    (42, "has room, and is shut", lambda s: with_row(s, "depth", {"shut": 1}, queue="narrow")),
    (26, "was sent again as signal-9, under the same once", sent_twice_with_one_once),
    (43, "was given the result of None, and step s0 has fine-0/", given_nothing),
    (43, "has the result of fine-0/1, and succeeded as fine-0",
     of_step("fine", 0, result={"by": "fine-0/1", "of": None})),
    (43, "succeeded, and its result was dropped",
     lambda s: with_row(s, "job", {"error": {"type": "ResultDropped"}}, id="fine-0")),
    (44, "started run due-1 1.000 s before run due-0 had ended",
     lambda s: with_row(s, "run", {"ended_at": db(1016.25)}, id="due-0")),
    (22, "nothing in it failed", lambda s: with_row(s, "run", {"state": 6}, id="fine")),
]  # fmt: skip
