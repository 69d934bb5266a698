"""The wire format between a process runner and its children.

A frame is four bytes of length (big-endian) and a msgpack array of messages. There are two
streams per child:

- work: the parent sends `Setup` once and then `Run`s; the child answers `Ready` or
  `ImportFailed`, and then an `Ended` for each `Run` in the order given, with `Unstarted`, `Tell`,
  `Call` and `Said` in between. End of file asks the child to exit.
- control: the parent sends `Stop`, `Recall` and `Answer`, which the child heeds even while it
  is busy. End of file means that the parent is dead.

`seq` numbers the works given to one child, rising from 1.
"""

from __future__ import annotations

import importlib
import runpy
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime
from types import ModuleType
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from rota.lib.capture import Limits, Line
from rota.model import Outcome
from rota.worker.runners.failures import CHILD_MAIN

_LENGTH_BYTES = 4
# Room in a frame for everything that is not a payload or a result.
FRAME_SLACK = 256 * 1024
HEARTBEAT = "heartbeat"  # the name of a `Tell` that is only a sign of life


class AppReference(msgspec.Struct, frozen=True):
    """The place of the app: in a module, or in the file that the parent runs."""

    module: str | None
    path: str | None
    attribute: str

    def __str__(self) -> str:
        return f"{self.module or self.path}:{self.attribute}"

    def load(self) -> Any:
        """Import it and return the app; raises whatever the import raises."""
        found: Any = importlib.import_module(self.module) if self.module else self._run_script()
        for name in self.attribute.split("."):
            found = getattr(found, name)
        return found

    def _run_script(self) -> ModuleType:
        if self.path is None:
            raise ImportError("an app reference needs a module or a path")
        module = ModuleType(CHILD_MAIN)
        module.__dict__.update(runpy.run_path(self.path, run_name=CHILD_MAIN))
        # Type hints of its classes are resolved through sys.modules, long after this.
        sys.modules[CHILD_MAIN] = module
        return module


class Setup(msgspec.Struct, array_like=True, tag=1):
    reference: AppReference
    sys_path: list[str]
    environment: dict[str, str | None]  # to restore: the child was started with other values
    max_result_bytes: int
    frame_limit: int
    log_limits: Limits


class Run(msgspec.Struct, array_like=True, tag=2, gc=False):
    seq: int
    job_id: bytes
    task: str
    payload: bytes
    token: int
    attempt: int
    max_attempts: int
    guarantee: int
    due_at: datetime | None
    key: str | None
    headers: str | None
    heartbeat_timeout: float | None = None


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


class Tell(msgspec.Struct, array_like=True, tag=14):
    seq: int
    name: str
    body: bytes


class Call(msgspec.Struct, array_like=True, tag=15):
    seq: int
    call: int
    name: str
    body: bytes


class Said(msgspec.Struct, array_like=True, tag=16):
    """Lines that a handler printed or logged."""

    seq: int
    lines: list[Line]


WorkOrder: TypeAlias = Setup | Run
ControlOrder: TypeAlias = Stop | Recall | Answer
Report: TypeAlias = Ready | ImportFailed | Ended | Unstarted | Tell | Call | Said

M = TypeVar("M")


class FrameError(Exception):
    """The other side sent something that is not a frame."""


_encoder = msgspec.msgpack.Encoder()


def pack(messages: Sequence[WorkOrder | ControlOrder | Report]) -> bytes:
    """Return one frame with these messages."""
    body = _encoder.encode(messages)
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


class FrameReader(Generic[M]):
    """Turns the bytes of a stream, as they come, into messages."""

    def __init__(self, message_type: Any, limit: int | None = None) -> None:
        self._decoder: msgspec.msgpack.Decoder[list[M]] = msgspec.msgpack.Decoder(
            list[message_type]
        )
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
                end = begin + self._size(buffer[at:begin])
                if end > len(buffer):
                    break
                at = end
                yield from self._decode(buffer[begin:end])
        finally:
            del buffer[:at]

    def _size(self, prefix: bytearray) -> int:
        size = int.from_bytes(prefix, "big")
        if self._limit is not None and size > self._limit:
            raise FrameError(f"a frame of {size} bytes, over the limit of {self._limit}")
        return size

    def _decode(self, body: bytearray) -> list[M]:
        try:
            return self._decoder.decode(body)
        except (msgspec.MsgspecError, ValueError) as error:
            raise FrameError(f"a frame that can't be read: {error}") from None
