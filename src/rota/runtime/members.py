"""The messages between the runner of a chunk and its node, as JSON."""

from __future__ import annotations

from uuid import UUID

import msgspec

from rota.model import Failure

RECORD = "chunk_record"
NULL = msgspec.Raw(b"null")


class ChunkBody(msgspec.Struct, kw_only=True):
    """The members of a chunk, which its runner is given in place of arguments."""

    first: int
    done: int
    careful: bool  # each member is recorded by itself
    timed: bool  # the node has to know when a member begins
    max_attempts: int
    item: str | None  # the argument that takes the item; None: the first that isn't given
    arguments: msgspec.Raw  # what every member gets
    items: list[msgspec.Raw]
    again: list[tuple[int, int]]  # members to be tried again, and how often they were


class RecordedMember(msgspec.Struct, kw_only=True):
    """A member that has failed at least once."""

    number: int
    state: int
    attempt: int
    result: msgspec.Raw = NULL
    error: Failure | None = None


class Record(msgspec.Struct, kw_only=True):
    """The outcomes of members since the record before."""

    done: int
    begun: int | None = None
    first: int = 0
    results: list[msgspec.Raw] | None = None  # None: nothing was returned
    members: list[RecordedMember] = []


class OpenChunk(msgspec.Struct):
    """The chunk that a work runs, as its node knows it."""

    number: int
    map_id: UUID
