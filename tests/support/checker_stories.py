"""Histories made by hand, for the tests of the checker: lives that are as they should be, to be spoilt.

On the history's clock the run goes from 1000 to 1100, healed at 1070. The nodes: `w1` is killed at 1020,
`w3` is paused from 1030 to 1045, `w4` is shut down at 1050, `w5` and `w6` are killed at 1035 and 1052;
`w2` lives through it all. What happens before 1010 and after 1075 is away from all faults.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from proof.history import (
    ACCEPTED,
    FAILED,
    INTERRUPTED,
    KILL,
    OK,
    PAUSE,
    REFUSED,
    SHUTDOWN,
    Beat,
    Fault,
    Member,
    Meta,
    Operation,
    Recorder,
    SchedulePromise,
    Sight,
    Submission,
    TaskPromise,
    write_meta,
)

DATABASE_MINUS_AT = 1_699_999_000.0
STARTED, HEALED, ENDED, LEASE = 1000.0, 1070.0, 1100.0, 5.0
GUARANTEES = {
    "plain": 1, "flaky": 1, "hopeless": 1, "at_most": 2, "exactly": 3, "cron": 1, "hung": 1,
    "lively": 1, "few": 1, "by_customer": 1, "in_order": 1, "share": 1, "paced": 1, "once_waiting": 1,
    "once_unfinished": 1, "once_in_a_while": 1, "debounced": 1, "narrow": 1,
    "spared": 1, "spared_exact": 3,
    "one_gpu": 1, "most_gpus": 1,
}  # fmt: skip
LIMIT = 2.0  # of the last two tasks

Row = dict[str, Any]

# What the replays of three durable functions saw: event, run, token, moment, place, value, seconds.
_SIGHTS: list[tuple[Any, str, int, float, str, str, float]] = [
    ("open", "walks", 901, 1003.0, "", "2 patched", 7),
    ("try", "walks", 901, 1003.1, "0", "value-1", 0),
    ("done", "walks", 901, 1003.2, "0", "value-1", 0),
    ("saw", "walks", 901, 1003.3, "0", "value-1", 0),
    ("asked", "walks", 901, 1003.3, "1", "", 2.0),
    ("left", "walks", 901, 1003.4, "", "Suspended", 0),
    ("open", "walks", 902, 1005.5, "", "1 patched", 7),
    ("saw", "walks", 902, 1005.5, "0", "value-1", 0),
    ("asked", "walks", 902, 1005.5, "1", "", 2.0),
    ("saw", "walks", 902, 1005.6, "1", "None", 0),
    ("saw", "walks", 902, 1006.1, "2", "signal-1", 0),
    ("left", "walks", 902, 1006.2, "", "Mismatch", 0),
    ("told", "walks", 903, 1013.0, "", "", 0),
    ("try", "walks", 903, 1013.1, "clean.0", "value-2", 0),
    ("open", "returns", 907, 1003.1, "", "1 none", 8),
    ("left", "returns", 907, 1003.9, "value-3", "ok", 0),
    ("open", "called", 904, 1020.0, "", "1 none", 9),
    ("try", "called", 904, 1020.1, "0", "value-4", 0),
    ("done", "called", 904, 1020.2, "0", "value-4", 0),
    ("saw", "called", 904, 1020.3, "0", "value-4", 0),
    ("open", "called", 905, 1030.0, "", "1 none", 9),
    ("saw", "called", 905, 1030.1, "0", "value-4", 0),
    ("open", "called", 906, 1039.0, "", "1 none", 9),
]
_CHECKPOINTS: list[tuple[int, int, int, str, Row]] = [
    (1, 1, 5, "a", {}),
    (2, 4, 5, "sleep", {"wake_at": 1008 + DATABASE_MINUS_AT}),
    (3, 5, 5, "go", {"signal": "go", "signal_key": "k1", "job_id": "s1"}),
    (5, 2, 8, "race.1/fn_long", {"job_id": "lost"}),
    (6, 6, 5, "race.closed", {}),
]


class Story:
    def __init__(self) -> None:
        self.submissions: list[Submission] = []
        self.beats: list[Beat] = []
        self.schedules: list[SchedulePromise] = []
        self.operations: list[Operation] = []
        self.sights: list[Sight] = []
        self._made: dict[
            tuple[str, int], str
        ] = {}  # by which attempts the results of steps were made
        self.members: list[Member] = []
        self.tables: dict[str, list[Row]] = {
            name: []
            for name in (
                "job", "occurrence", "schedule", "shard", "shard_move", "node", "batch",
                "submit_key", "app_effect", "gate", "run", "step",
                "checkpoint", "signal", "map", "depth", "trace",
            )
        }  # fmt: skip
        self.faults = [
            Fault(1020, 1020, KILL, "w1"),
            Fault(1030, 1045, PAUSE, "w3"),
            Fault(1035, 1035, KILL, "w5"),
            Fault(1050, 1051, SHUTDOWN, "w4"),
            Fault(1052, 1052, KILL, "w6"),
            Fault(1052, 1064, "partition", "w7", "up+down"),
            Fault(1055, 1060, "database restart", "postgres"),
        ]
        self.meta: Row = {}
        self._tokens = count(1)
        self._ids = count(1)

    # -- parts

    def submit(self, task: str, at: float, *, key: str | None = None, **row: Any) -> Row:
        """A job that a client asked for and was told of; its row, as it is before it ran."""
        id = f"job-{next(self._ids)}"
        self.tell(id, task, "asked", at, key=key)
        self.tell(id, task, "acknowledged", at + 0.01, key=key)
        if key is not None:
            self.tables["submit_key"].append({"key": key, "job_id": id})
        return self.row(id, task, at, key=key, **row)

    def tell(self, job: str, task: str, answer: Any, at: float, **more: Any) -> None:
        self.submissions.append(Submission(at, job, task, answer, **more))

    def row(self, id: str, task: str, due: float, **more: Any) -> Row:
        moment = due + DATABASE_MINUS_AT
        row = {
            "id": id, "task": task, "state": 3, "token": 0, "attempt": 0, "max_attempts": 3,
            "guarantee": GUARANTEES[task], "key": None, "crashes": 0, "schedule_id": None,
            "due_at": moment, "created_at": moment, "started_at": None, "finished_at": None,
            "attempts": None, "error": None, **more,
        }  # fmt: skip
        self.tables["job"].append(row)
        return row

    def start(self, row: Row, at: float, node: str = "w2", *, attempt: int | None = None) -> Beat:
        row["attempt"] = row["attempt"] + 1 if attempt is None else attempt
        row["token"] = next(self._tokens)
        beat = Beat(at, "start", row["id"], row["task"], row["token"], row["attempt"], node)
        self.beats.append(beat)
        return beat

    def end(self, start: Beat, at: float, outcome: str = OK) -> None:
        self.beats.append(msgspec.structs.replace(start, at=at, event="end", outcome=outcome))

    def guard(self, start: Beat, at: float, outcome: str, order: int = 0) -> None:
        self.beats.append(
            msgspec.structs.replace(start, at=at, event="guarded", outcome=outcome, order=order)
        )

    def finish(self, row: Row, at: float, state: int = 5, error: str | None = None) -> Row:
        row["state"] = state
        row["finished_at"] = at + DATABASE_MINUS_AT
        row["error"] = {"type": error, "message": "as it is"} if error else None
        return row

    def run(self, row: Row, at: float, node: str = "w2", *, seconds: float = 0.5) -> Row:
        start = self.start(row, at, node)
        self.end(start, at + seconds)
        if row["guarantee"] == 3:
            self.tables["app_effect"].append({"job": row["id"], "token": row["token"]})
        return self.finish(row, at + seconds)

    # -- lives that are as they should be

    def succeeds(self, at: float = 1005.0, task: str = "plain") -> Row:
        return self.run(self.submit(task, at), at + 0.1)

    def retries(self, at: float = 1005.0) -> Row:
        row = self.submit("flaky", at)
        start = self.start(row, at + 0.1)
        self.end(start, at + 0.2, FAILED)
        row["attempts"] = [{"token": start.token, "number": 1, "outcome": "raised"}]
        row["due_at"] += 1
        return self.run(row, at + 1.2)

    def fails(self, at: float = 1005.0) -> Row:
        row = self.submit("hopeless", at)
        for attempt in range(3):
            self.end(self.start(row, at + attempt), at + attempt + 0.1, FAILED)
        row["due_at"] += 2
        return self.finish(row, at + 2.1, 6, "ValueError")

    def has_keys(self) -> None:
        """Two at a time, one for each customer, and one after the other."""
        for at in (1005.1, 1005.2, 1006.1):
            self.run(self.submit("few", 1005.0, share="t=few"), at, seconds=0.8)
        for customer in ("a", "b"):
            row = self.submit("by_customer", 1005.0, share=f"c={customer}&t=by_customer")
            self.run(row, 1005.1)
        for at in (1005.1, 1005.7):
            self.run(self.submit("in_order", 1005.0, share="o=1"), at)
        self.run(self.submit("narrow", 1004.0), 1004.1)
        depth = {"queue": "narrow", "jobs": 0, "unfolded": 0, "max_depth": 2, "shut": 0}
        self.tables["depth"].append(depth)

    def has_shares(self) -> None:
        """Four keys wait for nineteen seconds, and get one slot by their weights."""
        if any(row["task"] == "share" for row in self.tables["job"]):
            return  # only so many may run at a time
        at = 1080.1
        for _ in range(12):
            for key in "abbccccd":
                id = f"share-{next(self._ids)}"
                self.run(self.row(id, "share", 1080.0, share=f"f={key}"), at, seconds=0.2)
                at += 0.2

    def is_paced(self) -> None:
        for at in (1080.1, 1085.1, 1090.1):
            self.run(self.row(f"paced-{next(self._ids)}", "paced", 1080.0), at, seconds=0.1)

    def is_unique(self) -> None:
        """Each is stored once, and stands for a second submit."""
        key = f"{next(self._ids)}"
        for task in ("once_waiting", "once_unfinished", "once_in_a_while", "debounced"):
            row = self.row(f"{task}-{key}", task, 1076.0, unique_key=key)
            if task == "debounced":
                row["due_at"] += 2.5
            for at, existed in ((1076.0, 0), (1076.2, 1)):
                told = {"id": row["id"], "first": at, "count": existed}
                self.operate("submit unique", f"{task}/{key}", at, **told)
            self.run(row, 1079.0)
            self.run(self.row(f"{task}-{key}-2", task, 1090.0, unique_key=key), 1090.1)

    def is_drained(self) -> None:
        self.operate("drain", "node-8", 1080, detail="w8")
        self.operate("undrain", "node-8", 1095, detail="w8")

    def has_machines(self) -> None:
        """Machine 2 has six, and makes room for a job that takes all of them."""
        for at in (1080.2, 1080.4, 1081.0):
            self.run(self.submit("one_gpu", 1080.0), at, "w2", seconds=2.0)
        self.run(self.submit("most_gpus", 1080.0), 1086.0, "w2")

    def is_mapped(self) -> None:
        times = {"created_at": 1080 + DATABASE_MINUS_AT, "ended_at": 1082 + DATABASE_MINUS_AT}
        id = f"map-{next(self._ids)}"
        self._run_of(id, 5, round=1, **times)
        self.operate("start map", id, 1080, id=id, count=2)
        self.tables["map"].append({"run_id": id, "members": 2, "succeeded": 2, "failed": 0})
        for item in range(2):
            for event in ("start", "ok"):
                self.members.append(Member(1081 + item, event, id, item, "chunk", 1, "w2"))

    def is_spared(self) -> None:
        """Two that their queue doesn't keep, of which one is submitted again, and one that it does."""
        if any(operation.kind == "switch history" for operation in self.operations):
            return  # only one of them tells what the queue keeps
        self._spare("spared-1", "spared", 1003.0)
        self.operate("switch history", "spared", 1007.0, detail="none")
        for number, task in ((2, "spared"), (3, "spared_exact")):
            self._spare(f"spared-{number}", task, 1076.0)
        self.operate("submit spared", "spared-2", 1080.0, detail="spared")

    def _spare(self, id: str, task: str, at: float) -> None:
        self.operate("submit spared", id, at, detail=task)
        token = next(self._tokens)
        for event in ("start", "ok"):
            self.members.append(Member(at + 0.1, event, task, 0, id, token, "w2"))
        if at < 1007:
            row = self.row(id, task, at)
            row |= {"token": token, "attempt": 1}
            self.finish(row, at + 0.2)
            return
        if task == "spared_exact":
            self.tables["app_effect"].append({"job": id, "token": token})
        ended = at + 0.2 + DATABASE_MINUS_AT
        self.tables["trace"].append({"id": id, "queue": "spared", "ended_at": ended})

    def is_lost(self, task: str = "plain") -> Row:
        """Its node dies, and another takes it over."""
        row = self.submit(task, 1019.0)
        self.start(row, 1019.5, "w1")
        row["crashes"] = 1
        return self.run(row, 1026.0)

    def is_lost_for_good(self) -> Row:
        row = self.submit("at_most", 1019.0)
        self.start(row, 1019.5, "w1")
        return self.finish(row, 1026.0, 6, "NodeLost")

    def is_quarantined(self) -> Row:
        row = self.submit("plain", 1019.0)
        for at, node in ((1019.5, "w1"), (1034.5, "w5"), (1051.5, "w6")):
            self.start(row, at, node)
        row["crashes"] = 3
        return self.finish(row, 1058.0, 6, "Quarantined")

    def oversleeps(self, task: str = "plain") -> Row:
        """Its node wakes up when another has done the job, and ends well: refused."""
        row = self.submit(task, 1029.0)
        stale = self.start(row, 1029.5, "w3")
        self.guard(stale, 1045.05, ACCEPTED, 1)  # paused between the write and this line
        row["crashes"] = 1
        self.run(row, 1037.0)
        newer = next(beat for beat in self.beats if beat.token == row["token"])
        self.guard(newer, 1037.1, ACCEPTED, 2)
        self.guard(stale, 1045.1, REFUSED)
        self.end(stale, 1045.2)
        return row

    def starts_late(self) -> Row:
        """Paused between the look at its lease and its first line."""
        row = self.submit("plain", 1029.0)
        late = self.start(row, 1045.1, "w3")
        self.end(late, 1045.3)
        row["crashes"] = 1
        return self.run(row, 1037.0)

    def is_given_back(self) -> Row:
        row = self.submit("plain", 1049.0)
        self.end(self.start(row, 1049.5, "w4"), 1050.5, INTERRUPTED)
        row["attempt"] = 0
        return self.run(row, 1051.0)

    def is_cancelled(self, at: float = 1005.0) -> Row:
        row = self.submit("plain", at)
        self.tell(row["id"], "plain", "acknowledged", at + 0.02, cancelled=True)
        row["token"] = None
        return self.finish(row, at + 0.03, 7)

    def keyed(self, at: float = 1005.0) -> Row:
        """Submitted twice under one key, and once more with other content."""
        key = f"key-{next(self._ids)}"
        row = self.submit("plain", at, key=key)
        self.tell(key, "plain", "asked", at + 1, key=key)
        self.tell(row["id"], "plain", "acknowledged", at + 1.1, key=key)
        other = f"job-{next(self._ids)}"
        self.tell(other, "plain", "asked", at + 2, key=key)
        self.tell(other, "plain", "refused", at + 2.1, key=key)
        return self.run(row, at + 0.2)

    def unanswered(self, at: float = 1056.0) -> Row:
        """Two that nobody answered for: one is there, one isn't. And one that was refused."""
        for answer in ("unknown", "refused"):
            id = f"job-{next(self._ids)}"
            self.tell(id, "plain", "asked", at)
            self.tell(id, "plain", answer, at + 1)
        id = f"job-{next(self._ids)}"
        self.tell(id, "plain", "asked", at)
        return self.run(self.row(id, "plain", at), at + 6)

    def schedule(
        self,
        name: str = "tick",
        *,
        every: int = 10,
        overlap: Any = "skip",
        catch_up: Any = "latest",
    ) -> list[Row]:
        """From 1003 on; nobody fires between 1014 and 1054, and what runs at 1090 takes too long."""
        self.schedules.append(SchedulePromise(name, "cron", every, overlap, catch_up))
        id = f"schedule-{name}"
        self.tables["schedule"].append(
            {"id": id, "name": name, "created_at": 1003 + DATABASE_MINUS_AT,
             "cursor": 1100 + DATABASE_MINUS_AT, "next_due": 1110 + DATABASE_MINUS_AT}
        )  # fmt: skip
        return [self._occur(id, name, due, overlap) for due in range(1010, 1101, every)]

    def _occur(self, id: str, name: str, due: int, overlap: str) -> Row:
        missed = 1014 < due < 1044
        row: Row = {
            "schedule_id": id, "schedule": name, "due_at": due + DATABASE_MINUS_AT, "state": 1,
            "reason": None, "caught_up": missed, "job_id": None,
            "decided_at": (1054 if missed else due - 1) + DATABASE_MINUS_AT,
        }  # fmt: skip
        self.tables["occurrence"].append(row)
        if missed and due < 1040:
            return row | self._skip(row, "catch_up", caught_up=False)
        job = self.row(f"{name}-{due}", "cron", float(due), schedule_id=id)
        row["job_id"] = job["id"]
        if due == 1100 and overlap == "skip":
            self._skip(row, "overlap")
            job["token"] = None
            self.finish(job, due + 0.1, 8)
        else:
            at = 1054.5 if missed else due + 0.1
            self.run(job, at, seconds=10.5 if due == 1090 and overlap == "skip" else 0.5)
        return row

    def _skip(self, row: Row, reason: str, **more: Any) -> Row:
        row.update(state=2, reason=reason, **more)
        return row

    def is_steered(self, name: str = "moved") -> None:
        """Made at 1003, changed at 1046, triggered, paused for a while, backfilled, and
        deleted at 1079 while a job of it waits."""
        made = SchedulePromise(name, "cron", 10)
        changed = SchedulePromise(name, "cron", 4, spread=0.5)
        id = f"schedule-{name}"
        self.operate("create", name, 1003, schedule=made, id=id)
        self.operate("create", "never", 1004, "refused", schedule=made, absurd=True)
        self.operate("update", name, 1046, schedule=changed)
        self.operate("trigger", name, 1061.3, id=f"{name}-1061.31", count=1)
        self.operate("pause", name, 1063)
        self.operate("resume", name, 1069)
        past = {"first": 960 + DATABASE_MINUS_AT, "end": 976 + DATABASE_MINUS_AT}
        self.operate("backfill", name, 1075, count=4, **past)
        self.operate("delete", name, 1079)
        for due in (1010, 1020, 1030, 1040):
            self._happen(id, name, due, due)
        for due in (1048, 1052, 1056, 1060, 1064, 1068, 1072):
            self._happen(id, name, due, due + 0.3, max(due, 1069.2 if 1063 < due < 1069 else 0))
        self._give_up(id, name, 1076, 1079.05)
        self._happen(id, name, 1061.31, 1061.31, reason="triggered")
        self.tables["schedule"].append(
            {"id": "line", "name": f"{name}:backfill", "created_at": 1075 + DATABASE_MINUS_AT,
             "cursor": 1075 + DATABASE_MINUS_AT, "next_due": None}
        )  # fmt: skip
        for due in (960, 964, 968, 972):
            job = self._happen(id, name, due, 1075.1, 1075.1, reason="backfilled")
            job["schedule_id"] = "line"
        waiting = self.row(f"{name}-waits", "cron", 1095.0, state=1, schedule_id="line", token=None)
        self._note(id, 976, 1075.1, waiting, "backfilled")

    def is_spoilt(self, name: str = "bad") -> None:
        """From 1004 on nobody can read its row: it decides on nothing."""
        id = f"schedule-{name}"
        self.operate("create", name, 1003, schedule=SchedulePromise(name, "cron", 10), id=id)
        self.operate("spoil", name, 1004)
        self.tables["schedule"].append(
            {"id": id, "name": name, "created_at": 1003 + DATABASE_MINUS_AT,
             "cursor": 1003 + DATABASE_MINUS_AT, "next_due": 1010 + DATABASE_MINUS_AT}
        )  # fmt: skip

    def operate(
        self, kind: Any, subject: str, at: float, answer: Any = "done", **more: Any
    ) -> None:
        self.operations.append(Operation(at, at + 0.1, kind, subject, answer, **more))

    def _happen(
        self, id: str, name: str, due: float, run: float, decided: float = 0.0,
        reason: str | None = None,
    ) -> Row:  # fmt: skip
        job = self.row(f"{name}-{due:g}", "cron", run, schedule_id=id)
        job["occurrence"] = f"{name} {due:g}"
        self._note(id, due, run, job, reason, decided or due)
        return self.run(job, max(run, decided) + 0.1)

    def _give_up(self, id: str, name: str, due: float, at: float) -> None:
        """It waited in line when its schedule was deleted."""
        job = self.row(f"{name}-{due:g}", "cron", due + 0.3, schedule_id=id, token=None)
        self._note(id, due, due + 0.3, job, decided=due)
        self._skip(self.tables["occurrence"][-1], "deleted")
        self.finish(job, at, 8)

    def _note(
        self, id: str, due: float, run: float, job: Row, reason: str | None = None,
        decided: float = 0.0,
    ) -> None:  # fmt: skip
        self.tables["occurrence"].append(
            {"schedule_id": id, "schedule": None, "due_at": due + DATABASE_MINUS_AT, "state": 1,
             "run_at": run + DATABASE_MINUS_AT, "reason": reason, "caught_up": False,
             "job_id": job["id"], "decided_at": (decided or run) + DATABASE_MINUS_AT}
        )  # fmt: skip

    def has_effect(self, at: float = 1005.0) -> Row:
        """Guarded by `once`: it happens in the first attempt, and not again in the second."""
        row = self.retries(at)
        first = next(beat for beat in self.beats if beat.job == row["id"])
        self.beats.append(msgspec.structs.replace(first, at=first.at + 0.05, event="effect"))
        return row

    def has_places(self) -> None:
        self.tables["gate"].append({"schedule_id": "schedule-tick", "job_id": "tick-1090"})

    def is_retried(self, at: float = 1005.0) -> Row:
        """By an operator, after it had failed for good."""
        row = self.fails(at)
        self.operate("retry", row["id"], at + 4)
        self.end(self.start(row, at + 4.2, attempt=1), at + 4.3)
        return self.finish(row, at + 4.3, 6, "ValueError")

    def is_discarded(self, at: float = 1005.0) -> Row:
        """Off the list of dead letters, and kept as cancelled."""
        row = self.fails(at)
        self.operate("discard", row["id"], at + 4)
        return self.finish(row, at + 4, 7, "ValueError")

    def hangs(self, at: float = 1076.0, seconds: float = LIMIT, task: str = "hung") -> Row:
        """It says nothing until it is stopped, at its limit, and then succeeds."""
        row = self.submit(task, at)
        first = self.start(row, at + 0.1)
        self.end(first, at + 0.1 + seconds, INTERRUPTED)
        entry = {"token": first.token, "number": 1, "outcome": "heartbeat_timeout"}
        row["attempts"] = [entry]
        return self.run(row, at + seconds + 2)

    def runs(self) -> None:
        """One in its second round that was cancelled, and cleaned up; and one that succeeded. Two that a
        schedule has started, one after the other."""
        self._run_of("cancelled", 7, round=2, cancel_at=1008 + DATABASE_MINUS_AT)
        self._step("cancelled", 0, 5, at=1005)
        self._step("cancelled", 1, 7, before=[0])
        self._step("cancelled", 2, 5, before=[1], rule=5, at=1010)
        self._run_of("fine", 5, round=1)
        self._step("fine", 0, 5, at=1005)
        self._step("fine", 1, 5, before=[0], takes=0, at=1006)
        self._step("fine", 2, 8, before=[0], conditional=True)

        for number in range(2):
            began = 1010 + 5 * number + DATABASE_MINUS_AT
            self._run_of(
                f"due-{number}", 5, round=1, schedule_id="due", created_at=began, ended_at=began + 4
            )

    def _run_of(self, id: str, state: int, **more: Any) -> None:
        self.tables["run"].append({"id": id, "name": id, "state": state, **more})

    def _step(
        self, run: str, number: int, state: int, *, before: Sequence[int] = (),
        at: float | None = None, rule: int = 1, **more: Any,
    ) -> None:  # fmt: skip
        job = f"{run}-{number}"
        if at is not None:
            row = self.run(self.row(job, "plain", at, run_id=run, step=number), at + 0.1)
            of = self._made.get((run, more.get("takes", -1)))
            self._made[run, number] = f"{job}/{row['token']}"
            more["result"] = {"by": self._made[run, number], "of": of}
        self.tables["step"].append(
            {"run_id": run, "number": number, "name": f"s{number}", "kind": 1, "rule": rule,
             "state": state, "job_id": job if at else None, "before": before, **more}
        )  # fmt: skip

    def record(self, run: str, number: int, token: int) -> None:
        """A step of a durable function, by one of its attempts."""
        self.tables["checkpoint"].append(
            {"run_id": run, "number": number, "kind": 1, "state": 5, "attempt": 1, "token": token,
             "name": f"{number}", "created_at": 1020 + DATABASE_MINUS_AT}
        )  # fmt: skip

    def functions(self) -> None:
        """One that was replayed, cancelled and parked, and one that it has called."""
        deadline = 1060 + DATABASE_MINUS_AT
        self._run_of("walks", 7, round=1, deadline_at=deadline, cancel_at=1012 + DATABASE_MINUS_AT)
        self._run_of("called", 6, round=1, deadline_at=deadline, parent_id="walks", parent_step=-9)
        self._run_of("returns", 5, round=1)
        job = self.row("returns-0", "plain", 1003, run_id="returns", step=0)
        job |= {"state": 5, "token": 907, "finished_at": 1004 + DATABASE_MINUS_AT}
        crashed = self.row("called-0", "plain", 1003, run_id="called", step=0)
        crashed |= {"state": 6, "crashes": 3, "finished_at": 1040 + DATABASE_MINUS_AT,
                    "error": {"type": "Quarantined"},
                    "attempts": [{"token": t, "outcome": "lost"} for t in (904, 905, 906)]}  # fmt: skip
        self._step("called", 0, 6)
        for event, run, token, at, place, value, seconds in _SIGHTS:
            self.sights.append(Sight(at, event, run, 1, token, "w2", place, value, seconds))
        for number, kind, state, name, more in _CHECKPOINTS:
            self.tables["checkpoint"].append(
                {"run_id": "walks", "number": number, "kind": kind, "state": state, "attempt": 1,
                 "token": 902, "name": name, "created_at": 1006 + DATABASE_MINUS_AT, **more}
            )  # fmt: skip
        self.record("called", 1, 904)
        self.run(self.row("lost", "plain", 1006, run_id="walks", step=-5), 1006.1)
        self.tables["job"][-1] |= {"task": "fn_long", "state": 7}
        self.operate("cancel run", "walks", 1012)
        self.operate("send", "go/k1", 1004, id="signal-1")
        self.tables["signal"].append(
            {"id": "s1", "name": "go", "key": "k1", "payload": "signal-1", "run_id": "walks",
             "sent_at": 1004 + DATABASE_MINUS_AT, "taken_at": 1006 + DATABASE_MINUS_AT}
        )  # fmt: skip

    def shards(self) -> None:
        for shard in range(2):
            for epoch, owner, previous, at in ((1, "w1", None, 1001), (2, "w2", "w1", 1026)):
                until = None if previous is None else at - 0.5 + DATABASE_MINUS_AT
                self.tables["shard_move"].append(
                    {"shard": shard, "epoch": epoch, "owner": owner, "previous": previous,
                     "at": at + DATABASE_MINUS_AT, "previous_until": until}
                )  # fmt: skip
            self.tables["shard"].append(
                {"shard": shard, "owner": "w2", "epoch": 2, "expires_at": 1105 + DATABASE_MINUS_AT}
            )

    def nodes(self) -> None:
        for name, ended in (("w1", 1026), ("w2", None), ("w4", 1051)):
            self.tables["node"].append(
                {"id": name, "name": name, "state": "dead" if ended else "live",
                 "ended_at": ended and ended + DATABASE_MINUS_AT}
            )  # fmt: skip
        self.tables["batch"].append({"token": 1, "lane": "default/default", "node": "w2"})

    # -- the folder

    def write(self, folder: Path) -> Path:
        folder.mkdir(exist_ok=True, parents=True)
        ends: dict[str, Any] = {"hopeless": "failed"}
        promises: dict[int, Any] = {1: "at_least_once", 2: "at_most_once", 3: "exactly_once"}
        meta: Row = {
            "kind": "nemesis", "schedules": self.schedules, "started": STARTED, "healed": HEALED,
            "ended": ENDED, "database_minus_at": DATABASE_MINUS_AT, "lease_seconds": LEASE,
            "max_crashes": 3, "stuck_after": 10.0, "seed": 7, **self.meta,
            "tasks": {
                task: TaskPromise(
                    promises[number], 3, ends.get(task, "succeeded"),
                    LIMIT if task in ("hung", "lively") else None, task == "hung",
                )
                for task, number in GUARANTEES.items()
            },
        }  # fmt: skip
        write_meta(folder, Meta(**meta))
        for node in {beat.node for beat in self.beats}:
            record(folder, f"journal-{node}", [beat for beat in self.beats if beat.node == node])
        record(folder, "functions-w2", sorted(self.sights, key=lambda sight: sight.at))
        record(folder, "members-w2", self.members)
        record(folder, "clients", self.submissions)
        record(folder, "operations", self.operations)
        record(folder, "faults", self.faults)
        for name, rows in self.tables.items():
            text = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
            (folder / f"db-{name}.jsonl").write_bytes(text)
        return folder


def record(folder: Path, name: str, lines: list[Any]) -> None:
    recorder = Recorder(folder, name)
    for line in lines:
        recorder.write(line)
    recorder.close()


LIVES = (
    Story.succeeds, Story.retries, Story.fails, Story.is_lost, Story.is_lost_for_good,
    Story.is_quarantined, Story.oversleeps, Story.starts_late, Story.is_given_back,
    Story.is_cancelled, Story.keyed, Story.unanswered, Story.shards, Story.nodes, Story.schedule,
    Story.is_steered, Story.is_spoilt, Story.has_effect, Story.has_places, Story.is_retried,
    Story.is_discarded, Story.hangs, Story.runs, Story.functions, Story.has_keys, Story.has_shares,
    Story.is_paced, Story.is_unique, Story.is_drained, Story.is_spared, Story.is_mapped,
    Story.has_machines,
)  # fmt: skip


def full_story() -> Story:
    """Every kind of life, so that every rule has something to see."""
    story = Story()
    for live in LIVES:
        live(story)
    for task in ("at_most", "exactly"):
        story.succeeds(task=task)
    story.is_lost("exactly")
    story.oversleeps("exactly")
    for at in range(1080, 1090):
        story.succeeds(float(at))
    return story
