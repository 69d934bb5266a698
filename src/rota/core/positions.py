"""Positions of streams that have several partitions: `TOPIC'S ID/0:41,1:17`.

Each partition has the offset of the last message of it that was read; -1: none. A position without an
id, or without some of the partitions, is one that a person gives to go back: what it doesn't name stays.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Vector(msgspec.Struct, frozen=True):
    """A position in each partition of a topic."""

    topic: str  # the id that the broker gave to the topic; "": not said
    offsets: Mapping[int, int]  # by partition

    def __str__(self) -> str:
        each = ",".join(f"{number}:{self.offsets[number]}" for number in sorted(self.offsets))
        return f"{self.topic}/{each}" if self.topic else each


def parse_vector(text: str) -> Vector:
    """Read a position. Raises `ValueError` if it is none."""
    topic, _, parts = text.rpartition("/")
    offsets = {}
    for part in parts.split(",") if parts else ():
        number, _, offset = part.partition(":")
        offsets[int(number)] = int(offset)
    if any(number < 0 or offset < -1 for number, offset in offsets.items()):
        raise ValueError("partitions and offsets are not negative")
    return Vector(topic, offsets)


def merged(source: str, before: str | None, given: str) -> str:
    """Return the position to which a rewind leads: partitions that it doesn't name stay where they are.

    What is no position is returned as it is, for the reader to refuse.
    """
    if not source.startswith("kafka") or before is None:
        return given
    try:
        old, new = parse_vector(before), parse_vector(given)
    except ValueError:
        return given
    if new.topic not in ("", old.topic):
        return given
    return str(Vector(old.topic, {**old.offsets, **new.offsets}))
