"""Failpoints: named points at every boundary of a transaction, where tests make a process fail.

Protocol. While no point is armed, passing one reads a boolean. A named query has two points,
``<query>:before`` (nothing was sent yet) and ``<query>:after`` (it is committed, and the caller has no
answer yet); a named transaction has ``<name>:begun``, ``<name>:before_commit`` and
``<name>:after_commit``. Armed from the environment when a process first opens its database,

    ROTA_FAILPOINTS="claim:after=kill@3, fire:before_commit=error@1"

or by `arm` in a test. After ``@`` stands at which of its times it acts (counted in each process);
without it, every time. The actions:

- ``kill``: SIGKILL to this process;
- ``stop``: SIGSTOP to this process, until somebody sends SIGCONT;
- ``delay:SECONDS``: a slow line;
- ``error``: as if the line was cut. At ``:after`` and ``:after_commit``: the answer to a commit is lost.

With ROTA_FAILPOINTS_REACHED naming a file, a line is added to it before each action: a test that never
reached its failpoint has tested nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import msgspec

from rota.errors import ConfigError, StoreUnavailable

VARIABLE = "ROTA_FAILPOINTS"
REACHED_VARIABLE = "ROTA_FAILPOINTS_REACHED"

# The names that `Database.transaction` is called with; a test compares them with the code.
TRANSACTIONS = (
    "advance_run", "bulk", "cancel_run", "change", "copy", "declare_schedules", "estimate",
    "finish_deletions",
    "finish_remote", "fire", "forgive", "give_back_unknown", "leave", "overrun", "put_schedules",
    "put_workflows", "reap", "reencrypt", "schedule_by_hand", "search", "stop_called", "stop_run",
    "submit", "sync_transact", "transact", "transaction", "trigger",
)  # fmt: skip
QUERY_POINTS = ("before", "after")
TRANSACTION_POINTS = ("begun", "before_commit", "after_commit")
ACTIONS = ("kill", "stop", "delay", "error")

armed = False  # read at every point; the rest of this module is used only when it is true


class Failpoint(msgspec.Struct):
    """One armed point, and how often it was passed in this process."""

    name: str
    action: str
    seconds: float = 0.0
    at: int | None = None
    passed: int = 0


_points: dict[str, Failpoint] = {}
_queries: set[str] = set()
_lock = threading.Lock()
_environment_was_read = False


def arm(text: str) -> None:
    """Arm these points beside those that are armed already; the same grammar as the environment's."""
    global armed  # noqa: PLW0603 - a boolean is the quickest thing to look at
    points = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    _check_names(points)
    _points.update({point.name: point for point in points})
    armed = bool(_points)


def disarm() -> None:
    """Disarm all points."""
    global armed  # noqa: PLW0603 - a boolean is the quickest thing to look at
    armed = False
    _points.clear()


@contextmanager
def armed_with(text: str) -> Iterator[None]:
    """Arm points within the block, for a test."""
    arm(text)
    try:
        yield
    finally:
        disarm()


def know(queries: Collection[str]) -> None:
    """Add the names of the store's queries; the first time, arm the points of the environment."""
    global _environment_was_read  # noqa: PLW0603 - as above
    _queries.update(queries)
    _check_names(_points.values())
    if not _environment_was_read:
        arm(os.environ.get(VARIABLE, ""))
        _environment_was_read = True


def every_name(queries: Collection[str]) -> list[str]:
    """Return the names of all failpoints, with these queries."""
    return [
        *(f"{query}:{point}" for query in sorted(queries) for point in QUERY_POINTS),
        *(f"{name}:{point}" for name in TRANSACTIONS for point in TRANSACTION_POINTS),
    ]


async def reach(name: str) -> None:
    """Pass a point on an event loop. Called where `armed` is true."""
    if seconds := _act(name):
        await asyncio.sleep(seconds)


def reach_in_thread(name: str) -> None:
    """Pass a point in synchronous code. Called where `armed` is true."""
    time.sleep(_act(name))


def _act(name: str) -> float:
    """Act if the point is armed for this time; return the seconds that the caller has to wait."""
    point = _points.get(name)
    if point is None:
        return 0.0
    with _lock:  # the heartbeat passes some of them in a thread of its own
        point.passed += 1
        if point.at is not None and point.passed != point.at:
            return 0.0
    if path := os.environ.get(REACHED_VARIABLE):
        with open(path, "ab", buffering=0) as file:  # one write, appended whole
            file.write(f"{point.name} {point.action} {os.getpid()}\n".encode())
    if point.action == "error":
        raise StoreUnavailable(f"failpoint {point.name}: as if the line had been cut")
    if point.action != "delay":
        os.kill(os.getpid(), signal.SIGKILL if point.action == "kill" else signal.SIGSTOP)
    return point.seconds


def _parse(text: str) -> Failpoint:
    name, equals, rest = text.partition("=")
    what, at_sign, count = rest.partition("@")
    action, colon, seconds = what.strip().partition(":")
    if not equals or action not in ACTIONS or (action == "delay") != bool(colon):
        raise ConfigError(
            f"{VARIABLE}: {text!r} is not a failpoint: it looks like claim:after=kill@3, with one of "
            "the actions kill, stop, error and delay:SECONDS"
        )
    return Failpoint(
        name.strip(),
        action,
        _number(text, seconds) if colon else 0.0,
        int(_number(text, count, whole=True)) if at_sign else None,
    )


def _number(text: str, number: str, *, whole: bool = False) -> float:
    try:
        value = int(number) if whole else float(number)
    except ValueError:
        value = -1
    if not 0 <= value < 86_400 or (whole and value < 1):
        wanted = "a whole number from 1 on after '@'" if whole else "seconds after 'delay:'"
        raise ConfigError(f"{VARIABLE}: {text!r} needs {wanted}, not {number!r}")
    return value


def _check_names(points: Collection[Failpoint]) -> None:
    """Refuse unknown names, if the queries were loaded: a test may arm points before that."""
    known = set(every_name(_queries))
    for point in points:
        if _queries and point.name not in known:
            raise ConfigError(
                f"{VARIABLE}: there is no failpoint {point.name!r}. They are <query>:before, "
                "<query>:after for each named query of src/rota/store/queries, and :begun, "
                f":before_commit, :after_commit of the transactions {', '.join(TRANSACTIONS)}"
            )
