"""A shard has one owner at a time, by the database's time."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

from proof.checker.facts import Facts, MoveRow
from proof.checker.report import Found, Tally, line

_SAME_MOMENT = 1e-5  # what is left of a microsecond after it was a float


def shards_have_one_owner(facts: Facts, tally: Tally) -> Found:
    moves: dict[int, list[MoveRow]] = defaultdict(list)
    for move in facts.moves:
        moves[move.shard].append(move)
    tally["takeovers"] += len(facts.moves)
    for shard, own in moves.items():
        own.sort(key=lambda move: (move.epoch, move.at))
        for move in own:
            if move.previous_until is not None and move.at < move.previous_until - _SAME_MOMENT:
                until = f"{move.previous_until:.6f}"
                sentence = f"was taken at {move.at:.6f}, and was another's until {until}"
                yield f"shard {shard}", sentence, (_line(move),)
        for before, after in pairwise(own):
            problem = _problem(facts, before, after)
            if problem:
                yield f"shard {shard}", problem, (_line(before), _line(after))
    for row in facts.shards:
        tally["shards"] += 1
        last = max(moves.get(row.shard, ()), key=lambda move: move.epoch, default=None)
        if last is not None and (row.epoch != last.epoch or row.owner not in (None, last.owner)):
            sentence = (
                f"has epoch {row.epoch} of {row.owner}, and the last takeover made it another's"
            )
            yield f"shard {row.shard}", sentence, (_line(last), line("db-shard", row))


def _problem(facts: Facts, before: MoveRow, after: MoveRow) -> str | None:
    # A clock that was set back gives a later takeover an earlier time.
    back = sum(-step.by for step in facts.meta.clock_steps if step.by < 0)
    if after.epoch == before.epoch or after.at < before.at - back:
        return f"went from epoch {after.epoch} to {before.epoch}"
    # Null: its owner had given it up.
    if after.previous not in (None, before.owner):
        return f"was taken from {after.previous}, and it was {before.owner} who had it"
    return None


def _line(move: MoveRow) -> str:
    return line("db-shard_move", move)
