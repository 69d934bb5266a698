"""The wire format between a process runner and its children.

A frame is four bytes of length (big-endian) and a msgpack array of messages. There are two
streams per child:

- work: the parent sends `Setup` once and then `Run`s; the child answers `Ready` or
  `ImportFailed`, and then an `Ended` for each `Run` in the order given, with `Unstarted`, `Alive`,
  `Call` and `Output` in between. End of file asks the child to exit.
- control: the parent sends `Stop`, `Recall` and `Answer`, which the child obeys even while it
  is busy. End of file means that the parent is dead.

`seq` numbers the works given to one child, rising from 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from rota.lib.capture import Limits, Line
from rota.model import Guarantee, Outcome
from rota.worker.runners.reference import AppReference

_LENGTH_BYTES = 4
# Room in a frame for everything that is not a payload or a result.
FRAME_SLACK = 256 * 1024


class Setup(msgspec.Struct, array_like=True, tag=1):
    reference: AppReference
    sys_path: list[str]
    python_path: str | None  # PYTHONPATH to restore: the child was started with another
    max_result_bytes: int
    frame_limit: int
    log_limits: Limits
    memory: str = "none"  # how works are limited: none, rlimit, or the folder of its cgroup


class Run(msgspec.Struct, array_like=True, tag=2, gc=False):
    """A work; the fields from `id` on are those of `Work`."""

    seq: int
    id: UUID
    task: str
    payload: bytes
    token: int
    attempt: int
    max_attempts: int
    guarantee: Guarantee
    due_at: datetime | None
    key: str | None
    headers: str | None
    heartbeat_timeout: float | None = None
    chunk: bool = False  # its payload is a chunk of a map
    lane: str = ""  # of a job that asks for resources


class Stop(msgspec.Struct, array_like=True, tag=3):
    """Interrupt this work if it runs, drop it if it has not begun, nothing if it has ended."""

    seq: int


class Recall(msgspec.Struct, array_like=True, tag=4):
    """Give back those of these works that have not begun."""

    seqs: list[int]


class Answer(msgspec.Struct, array_like=True, tag=5):
    call: int
    body: bytes
    error: str | None = None  # the name of its class; `body` is then its message


class Ready(msgspec.Struct, array_like=True, tag=10):
    pass


class ImportFailed(msgspec.Struct, array_like=True, tag=11):
    traceback: str


class Ended(msgspec.Struct, array_like=True, tag=12, gc=False):
    seq: int
    seconds: float
    result: bytes | None
    outcome: Outcome | None = None  # None: succeeded with `result`
    stopped: bool = False  # it ended because it was asked to


class Unstarted(msgspec.Struct, array_like=True, tag=13):
    seqs: list[int]


class Alive(msgspec.Struct, array_like=True, tag=14):
    """A sign of life of a handler, with the progress that it reports, if any."""

    seq: int
    progress: bytes | None = None
    member: bool = False  # the next member of a chunk begins


class Call(msgspec.Struct, array_like=True, tag=15):
    seq: int
    call: int
    name: str
    body: bytes


class Output(msgspec.Struct, array_like=True, tag=16):
    """Lines that a handler printed or logged."""

    seq: int
    lines: list[Line]


WorkOrder: TypeAlias = Setup | Run
ControlOrder: TypeAlias = Stop | Recall | Answer
Report: TypeAlias = Ready | ImportFailed | Ended | Unstarted | Alive | Call | Output

M = TypeVar("M")


class FrameError(Exception):
    """Raised when the other side sent something that is not a frame."""


_encoder = msgspec.msgpack.Encoder(uuid_format="bytes")


def pack(messages: Sequence[WorkOrder | ControlOrder | Report]) -> bytes:
    """Return one frame with these messages."""
    body = _encoder.encode(messages)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


class FrameReader(Generic[M]):
    """Turns the bytes of a stream, as they come, into messages."""

    def __init__(self, message_type: Any, limit: int | None = None) -> None:
        decoder: msgspec.msgpack.Decoder[list[M]] = msgspec.msgpack.Decoder(list[message_type])
        self._decoder = decoder
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[M]:
        """Return the messages that are complete now. Raises FrameError at a bad frame."""
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= _LENGTH_BYTES:
                begin = at + _LENGTH_BYTES
                size = int.from_bytes(buffer[at:begin], "big")
                if self._limit is not None and size > self._limit:
                    raise FrameError(f"a frame of {size} bytes, over the limit of {self._limit}")
                if begin + size > len(buffer):
                    break
                at = begin + size
                yield from self._decode(buffer[begin:at])
        finally:
            del buffer[:at]

    def _decode(self, body: bytearray) -> list[M]:
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError) as error:
            raise FrameError(f"a frame that can't be read: {error}") from None
