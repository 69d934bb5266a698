"""Where claims begin in a lane: what was passed isn't read again, what comes behind it is found."""

from __future__ import annotations

from rota.lib.ids import new_id
from rota.store.work import LOWEST_RANK
from rota.worker.cursors import Cursors

LANE = "default/default"


def look(cursors: Cursors, now: float, *found: int) -> int:
    """Claim one or more at a time. Return the rank from which."""
    wish = cursors.wish(LANE, 5, now)
    rows = [(LANE, rank, new_id()) for rank in found]
    cursors.advance([wish], rows[-1:], {LANE: len(found)}, now, now)
    return wish.rank


def test_a_sweep_that_finds_nothing_leaves_the_cursor_where_it_was() -> None:
    """Or each claim of an empty lane would read all that an old snapshot keeps from being removed."""
    cursors = Cursors()
    assert look(cursors, 0.0, 10, 20) == LOWEST_RANK
    assert look(cursors, 0.1) == 20
    assert look(cursors, 2.0) == LOWEST_RANK, "a sweep"
    assert look(cursors, 2.1) == 20
    assert look(cursors, 4.0) == LOWEST_RANK, "the next one"


def test_a_sweep_that_was_not_made_is_begun_again() -> None:
    cursors = Cursors()
    look(cursors, 0.0, 10, 20)
    cursors.wish(LANE, 5, 2.0)
    assert look(cursors, 2.0) == LOWEST_RANK
    assert look(cursors, 2.1) == 20


def test_what_a_hint_names_is_looked_for_also_after_an_empty_sweep() -> None:
    cursors = Cursors()
    look(cursors, 0.0, 10, 20)
    look(cursors, 2.0)
    cursors.lower(LANE, 15)
    assert look(cursors, 2.1, 15) == 14
    cursors.lower(LANE, 12)
    assert look(cursors, 4.0) == LOWEST_RANK
    assert look(cursors, 4.1) == 11, "the hint lowered the cursor before the sweep"


def test_a_sweep_goes_on_from_what_it_has_found() -> None:
    cursors = Cursors()
    look(cursors, 0.0, 10, 20)
    assert look(cursors, 2.0, 3, 4) == LOWEST_RANK
    assert look(cursors, 2.1) == 4
