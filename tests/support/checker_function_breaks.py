"""Ways to break what durable functions are promised, in the story of `Story.functions`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proof.history import Sight
from tests.support.checker_stories import DATABASE_MINUS_AT, Row, Story


def _sees(
    event: Any, at: float, place: str, value: str, token: int = 902
) -> Callable[[Story], None]:
    return lambda story: story.sights.append(
        Sight(at, event, "walks", 1, token, "w2", place, value)
    )


def _changed(table: str, place: int, **changes: Any) -> Callable[[Story], None]:
    def change(story: Story) -> None:
        rows = [row for row in story.tables[table] if _is_ours(row)]
        rows[place].update(changes)

    return change


def _is_ours(row: Row) -> bool:
    ours = ("walks", "called", "returns")
    return row.get("run_id") in ours or row.get("id") in ours


def _passed_over(story: Story) -> None:
    story.tables["signal"].append(
        {"id": "s0", "name": "go", "key": "k1", "payload": "signal-0",
         "sent_at": 900 + DATABASE_MINUS_AT, "taken_at": None}
    )  # fmt: skip


def _went_on(story: Story) -> None:
    for row in story.tables["job"]:
        if row["id"] == "lost":
            row.update(state=5, finished_at=1059 + DATABASE_MINUS_AT)


def _called_again(story: Story) -> None:
    called = next(row for row in story.tables["run"] if row["id"] == "called")
    story.tables["run"].append({**called, "id": "again", "state": 5})


BROKEN_FUNCTIONS: list[tuple[int, str, Callable[[Story], None]]] = [
    (23, "did step 0 again after its result was recorded", _sees("try", 1005.8, "0", "value-9")),
    (23, "which no try of that step returned", _sees("saw", 1006.15, "3", "value-9")),
    (23, "under which its function did not return",
     lambda s: s.sights.remove(next(each for each in s.sights if each.value == "ok"))),
    (24, "saw 'other' at 0, and a replay before it saw 'value-4'",
     lambda s: s.sights.append(Sight(1039.1, "saw", "called", 1, 906, "w2", "0", "other"))),
    (24, "did 5 before 0, which an earlier replay had done", _sees("try", 1005.45, "5", "value-9")),
    (25, "slept 0.700 s at 1 in place of 2.0", _sees("saw", 1004.0, "1", "None", 901)),
    (25, "has a sleep of 7.000 s, which it did not ask for",
     _changed("checkpoint", 1, wake_at=1013 + DATABASE_MINUS_AT)),
    (26, "was taken by 2 waits", _sees("saw", 1006.15, "4", "signal-1")),
    (26, "was taken, and nobody has sent it", _sees("saw", 1006.15, "4", "signal-5")),
    (27, "was acknowledged, and is not in the database",
     lambda s: s.operate("send", "go/k2", 1004, id="signal-77")),
    (27, "signal-0 had been sent before", _passed_over),
    (28, "began step 3 after it was told", _sees("try", 1013.5, "3", "value-7", 903)),
    (29, "its code has not been changed", _sees("left", 1003.5, "", "Mismatch", 901)),
    (29, "had come further since: to 2", lambda s: s.record("called", 2, 905)),
    (30, "after it had lost a race", _went_on),
    (31, "has a later deadline",
     _changed("run", 1, deadline_at=1061 + DATABASE_MINUS_AT)),
    (31, "has started run again again", _called_again),
]  # fmt: skip
