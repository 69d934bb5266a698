"""Runs a durable function: what its history knows is not done again, what is new is recorded.

Protocol. The function runs from its beginning after each wait and each crash. Whatever it does through
its context has a name: its branch, what it is called, and how often that was asked for before in that
branch. A name that the history knows gives the recorded result; another one is done, and recorded under
the token of the function's job, before the function goes on. So what happened before a crash happens
again only if it was not recorded: an effect and its record are two things, unless they are one
transaction.

When every branch of the function waits for something outside of it (a sleep, a signal, a job), its job
is suspended: the node asks the database, which refuses if one of the waits is over. Then an exception
that no `except Exception` catches leaves the function, and the worker's slot is free.

A function that does something new where the history has something else, or asks for something under a
name that the history knows as something else, or ends without having asked for all that the history
knows, isn't the function that wrote the history. It is parked: the run is paused, and says what differs.
Inside a branch things happen one after the other, so that this is known before anything new is done.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
from collections import Counter
from collections.abc import Collection, Coroutine
from datetime import UTC, datetime
from time import monotonic
from typing import Any, TypeVar, cast

import msgspec

from rota.core.workflow.model import CheckpointKind, StepState
from rota.durable import wire
from rota.durable.branches import Branch, Interrupted, Left, Mismatch, Suspended, Wait, failed_at
from rota.durable.wire import Checkpoint, History, NewCheckpoint
from rota.errors import LeaseLost, RunCancelled, StoreUnavailable
from rota.model import Failure

T = TypeVar("T")
_branch: contextvars.ContextVar[str] = contextvars.ContextVar("rota_branch", default="")
# The gather whose operation this branch is, and nothing else: the function goes on when all have ended.
_joined_by: contextvars.ContextVar[str | None] = contextvars.ContextVar("rota_join", default=None)


class Replay:
    """One attempt of a function, from its beginning."""

    def __init__(self, channel: Any, history: History) -> None:
        self._channel = channel
        self.branches: set[Branch] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.get_running_loop()
        self._looking: asyncio.Handle | None = None
        self._suspending: asyncio.Task[None] | None = None
        self._leaving: Left | None = None
        self._waits: dict[int, Wait] = {}
        self._asking: set[asyncio.Future[Any]] = set()  # what the node was asked for
        self._counts: Counter[str] = Counter()
        self._notes: list[NewCheckpoint] = []  # to be written with what is recorded next
        self._asked: set[str] = set()
        self.unseen: set[str] = set()  # what was asked for, and whose result nobody was given
        self._ended_branches: dict[str, asyncio.Task[Any]] = {}  # that have won a race
        # Branches that lost a race: their checkpoints aren't asked for.
        self._left_out: list[str] = []
        self._read(history)
        self.next_number = max([each.number for each in history.checkpoints], default=0) + 1
        self._unheard: set[str] = set()
        # What has a higher number was begun after the function was told of its cancel.
        self._told_at = self._last_told()
        self._told_in: str | None = None  # the gather whose operation it was told in place of

    def _read(self, history: History) -> None:
        self.history = history
        self.cancelled = history.cancelled
        self._known = {each.name: each for each in history.checkpoints}
        # By branch, what the function has not asked for yet. Notes may be left out.
        self._unasked: dict[str, dict[str, Checkpoint]] = {}
        for each in history.checkpoints:
            if each.name not in self._asked and each.kind is not CheckpointKind.NOTE:
                branch = each.name[: each.name.rfind("/") + 1]
                self._unasked.setdefault(branch, {})[each.name] = each
        self._read_at = monotonic()

    def now(self) -> datetime:
        """Return the time by the database's clock, as far as it is known here."""
        return datetime.fromtimestamp(
            self.history.now.timestamp() + monotonic() - self._read_at, UTC
        )

    # -- names

    def name_of(self, name: str) -> str:
        """Return the name of the next thing that is called so in this branch."""
        full = f"{_branch.get()}{name}"
        self._counts[full] += 1
        if (count := self._counts[full]) > 1:
            full = f"{full}#{count}"
        self._asked.add(full)
        if self._unasked:
            self._unasked.get(_branch.get(), {}).pop(full, None)
        return full

    def random_bytes(self) -> bytes:
        """Return 32 bytes that look random: in the same place of the code, at every replay the same."""
        place = self.name_of("random")
        # Not of the round: a run that is resumed goes on with the keys that it has given to others.
        seed = f"{self.history.run}/{self.history.restarts}/{place}"
        return hashlib.sha256(seed.encode()).digest()

    # -- asking the history

    def find(self, name: str, kind: CheckpointKind, digest: str | None = None) -> Checkpoint | None:
        """Return what the history has under a name. Leaves the function if that is something else."""
        if self._leaving is not None:
            raise self._leaving
        found = self._known.get(name)
        if found is None:
            return None
        if found.kind is not kind:
            raise self._mismatch(
                f"{_where(found)} is a {found.kind.label} in the history, and the code asks for a "
                f"{kind.label} in its place"
            )
        if digest is not None and found.digest is not None and digest != found.digest:
            raise self._mismatch(
                f"{_where(found)} was recorded with other arguments than the code gives it now"
            )
        return found

    def _lost(self, names: Collection[str], branches: Collection[str]) -> list[int]:
        """Return what nobody waits for any more, of these names and in these branches. Also what was
        closed before: perhaps it was not asked to stop."""
        return [
            each.number
            for name, each in self._known.items()
            if (name in names or any(map(name.startswith, branches)))
            and each.state in (StepState.WAITING, StepState.SKIPPED)
        ]

    def number_of(self, name: str) -> set[int]:
        """Return the number of what has this name, if it is known."""
        return {self._known[name].number} if name in self._known else set()

    def numbers_by_branch(self, gather: str) -> dict[str, set[int]]:
        """Return the numbers of what the branches of a gather have done."""
        found: dict[str, set[int]] = {}
        for name, each in self._known.items():
            if name.startswith(f"{gather}."):
                branch = name[: name.find("/", len(gather)) + 1]
                found.setdefault(branch, set()).add(each.number)
        return found

    def _unseen_signals(self, names: Collection[str], branches: Collection[str]) -> list[int]:
        """Return the waits that are over without that somebody has seen their signals."""
        return [
            each.number
            for name, each in self._known.items()
            if each.kind is CheckpointKind.SIGNAL
            and each.state is StepState.SUCCEEDED
            and (name in names or (name in self.unseen and any(map(name.startswith, branches))))
        ]

    async def end_race(
        self, race: str, winner: int, names: Collection[str], branches: Collection[str], *,
        cancel: bool,
    ) -> None:  # fmt: skip
        """Note who has won, and let go of the losers, in one transaction. Then those are stopped: if
        the function goes down before that is noted, too, at the next replay."""
        note, closed = f"{race}.winner", f"{race}.closed"
        if closed in self._known:
            return
        found = self._known.get(note)
        lost = self._lost(names, branches)
        if found is None:
            lost += self._unseen_signals(names, branches)
        if found is None and not lost:
            self.note(note, winner)
            self.note(closed, True)
            await self.flush_notes()
        if not lost:
            return
        await self.flush_notes()
        new = NewCheckpoint(
            number=self.make_room() if found is None else found.number, kind=CheckpointKind.NOTE,
            state=StepState.SUCCEEDED, name=note, result=msgspec.Raw(msgspec.json.encode(winner)),
        )  # fmt: skip
        await self.call(wire.CLOSE, wire.RaceEnd(winner=new, losers=lost, cancel=cancel), bool)
        self._keep(new)
        self.note(closed, True)

    def not_asked_for(self) -> Checkpoint | None:
        """Return the first thing in this branch's history that the function hasn't asked for yet."""
        return next(iter(self._unasked.get(_branch.get(), {}).values()), None)

    def check_new(self, name: str, kind: CheckpointKind) -> None:
        """Leave the function if it does something new where the history has something else."""
        if (other := self.not_asked_for()) is not None:
            raise self._mismatch(
                f"the code asks for a {kind.label} {name!r} where the history has {_where(other)}"
            )

    def leave_out(self, branch: str) -> None:
        self._left_out.append(branch)

    def check_all_asked(self) -> None:
        """Leave the function if the history has something that the code never asked for."""
        if (left := self.left_over()) is not None:
            raise self._mismatch(f"the history has {left}, which the code did not ask for")

    def left_over(self) -> str | None:
        """Return something in the history that the code never asked for, in words."""
        for branch, left in self._unasked.items():
            if left and not any(map(branch.startswith, self._left_out)):
                return _where(next(iter(left.values())))
        return None

    def _mismatch(self, problem: str) -> Left:
        return self._leave(
            Mismatch(
                f"{problem}. The code was changed while the run was under way: deploy the code that "
                "began it, or handle both with ctx.version or ctx.patched(), then resume the run"
            )
        )

    def make_room(self) -> int:
        number = self.next_number
        self.next_number += 1
        return number

    # -- recording

    async def call(self, name: str, body: Any, answer: type[T]) -> T:
        """Ask the node for something. Leaves the function if it can't go on here."""
        if self._leaving is not None:
            raise self._leaving
        asked = self._loop.create_task(self._channel.call(name, msgspec.json.encode(body)))
        self._asking.add(asked)
        asked.add_done_callback(self._asking.discard)
        try:
            # Also if this branch loses a race meanwhile: what is under way is written to its end.
            return msgspec.json.decode(await asyncio.shield(asked), type=answer)
        except (LeaseLost, StoreUnavailable) as error:
            raise self._leave(Interrupted(str(error))) from error

    def _leave(self, left: Left) -> Left:
        """From now on nothing more is done here: also the branches that wait are left."""
        if self._leaving is None:
            self._leaving = left
        for wait in self._waits.values():
            if not wait.done():
                wait.set_exception(self._leaving)
        return self._leaving

    async def check_cancelled(self, name: str, kind: CheckpointKind) -> None:
        """Tell the function once that its run is being cancelled, in place of something new.

        All operations of a gather that have not begun are one thing: none of them begins any more.
        """
        gather = _joined_by.get()
        if self.cancelled and (
            self._told_at is None or (gather is not None and gather == self._told_in)
        ):
            self._told_in = gather
            number = self._told_at = self.make_room()
            told = NewCheckpoint(number=number, kind=kind, state=StepState.CANCELLED, name=name)
            # Before the answer: if its branch loses a race meanwhile, the function was not told.
            self._keep(told)
            await self.record(told)
            raise RunCancelled("the run is being cancelled")

    async def check_begun(self, begun: Checkpoint) -> None:
        """The same in place of another try of a step that was begun before the cancel."""
        if not self.cancelled or (self._told_at is not None and begun.number > self._told_at):
            return
        told = NewCheckpoint(
            number=begun.number, kind=begun.kind, state=StepState.CANCELLED, name=begun.name,
            digest=begun.digest, attempt=begun.attempt,
        )  # fmt: skip
        if self._told_at is None:
            # What has a higher number than this note is begun to clean up. It is of this branch, which
            # may lose a race: then the function was not told.
            number = self._told_at = self.make_room()
            note = msgspec.structs.replace(
                told, number=number, kind=CheckpointKind.NOTE, name=f"{_branch.get()}cancelled"
            )
            self._notes.append(note)
            self._keep(note)
        self._keep(told)
        await self.record(told)
        raise RunCancelled("the run is being cancelled")

    def cancel_found(self) -> None:
        """Note that a cancel closed what the function waited for, so that the function is told."""
        self._told_in = _joined_by.get() or self._told_in
        if self._told_at is None:
            self._told_at = self.next_number - 1

    def untell(self, names: Collection[str], branches: Collection[str]) -> None:
        """Tell the function of the cancel again if only losers of a race were told of it."""
        lost = {
            name
            for name, each in self._known.items()
            if each.state is StepState.CANCELLED
            and (name in names or any(map(name.startswith, branches)))
        }
        if lost:
            self._unheard |= lost
            self._told_at = self._last_told()

    def _last_told(self) -> int | None:
        told = (
            each.number
            for each in self._known.values()
            if each.state is StepState.CANCELLED and each.name not in self._unheard
        )
        return max(told, default=None)

    def note(self, name: str, value: Any) -> None:
        """Keep a value, to be written with what is recorded next."""
        result = msgspec.Raw(msgspec.json.encode(value))
        new = NewCheckpoint(
            number=self.make_room(), kind=CheckpointKind.NOTE, state=StepState.SUCCEEDED, name=name,
            result=result,
        )  # fmt: skip
        self._notes.append(new)
        self._keep(new)

    async def record(self, new: NewCheckpoint) -> Checkpoint:
        notes, self._notes = self._notes, []
        cancelled = await self._write([*notes, new])
        self.cancelled = self.cancelled or cancelled
        return self._keep(new)

    async def _write(self, new: list[NewCheckpoint]) -> bool:
        """As `call`, for what is written most often."""
        if self._leaving is not None:
            raise self._leaving
        asked = self._channel.record(new)
        self._asking.add(asked)
        try:
            cancelled: bool = await asyncio.shield(asked)
        except (LeaseLost, StoreUnavailable) as error:
            raise self._leave(Interrupted(str(error))) from error
        finally:
            if asked.done():
                self._asking.discard(asked)
            else:
                asked.add_done_callback(self._asking.discard)
        return cancelled

    def end_later(self, waiting: Checkpoint) -> Checkpoint:
        """End a wait whose time has come here. It is written with what is recorded next: else a cancel
        would find it open, and the function would be told of it in a place that it has passed."""
        new = NewCheckpoint(
            number=waiting.number, kind=waiting.kind, state=StepState.SUCCEEDED, name=waiting.name
        )
        self._notes.append(new)
        return self._keep(new)

    async def flush_notes(self) -> None:
        if self._notes:
            notes, self._notes = self._notes, []
            await self._write(notes)

    def _keep(self, new: NewCheckpoint) -> Checkpoint:
        kept = self._known[new.name] = Checkpoint(
            number=new.number, kind=new.kind, state=new.state, name=new.name, digest=new.digest,
            attempt=new.attempt, result=new.result, error=new.error,
        )  # fmt: skip
        if new.delay is not None:
            kept.wake_at = datetime.fromtimestamp(self.now().timestamp() + new.delay, UTC)
        return kept

    async def begin(self, waiting: Checkpoint, name: str, body: Any, answer: type[T]) -> T:
        """Ask the node to begin something. It is known from now on, also if its branch loses a race
        before the answer: then it is closed with the others."""
        self._known[waiting.name] = waiting
        try:
            return await self.call(name, body, answer)
        except Exception:
            del self._known[waiting.name]  # it was refused
            raise

    # -- waiting

    async def wait(self, checkpoint: Checkpoint) -> Checkpoint:
        """Wait until something outside of the function has ended, or its time has come."""
        if self._leaving is not None:
            raise self._leaving
        wait = self._waits[checkpoint.number] = Wait(loop=self._loop)
        wait.is_step = checkpoint.kind is CheckpointKind.STEP
        wait.joined_by = None if wait.is_step else _joined_by.get()
        self.look()
        try:
            await wait
        finally:
            self._waits.pop(checkpoint.number, None)
        return self._known[checkpoint.name]

    async def all_of(
        self, works: list[Coroutine[Any, Any, T]], names: list[str], joins: list[str | None]
    ) -> list[Any]:
        """Run coroutines at the same time, each in a branch. Return their results or exceptions."""
        tasks = [
            self._start(work, name, join)
            for work, name, join in zip(works, names, joins, strict=True)
        ]
        if tasks:
            await self._ended(tasks, len(tasks))
        return [_outcome(task) for task in tasks]

    async def result_of(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Return the result of a branch that has ended: the first time as it was, then by a replay."""
        task = self._ended_branches.pop(name, None)
        if task is not None:
            return cast("T", task.result())
        [result] = await self.all_of([work], [name], [None])
        if isinstance(result, BaseException):
            raise result
        return cast("T", result)

    async def first_of(self, works: list[Coroutine[Any, Any, T]], names: list[str]) -> int:
        """Run coroutines at the same time until one has ended. Returns which; the others are stopped."""
        tasks = [self._start(work, name) for work, name in zip(works, names, strict=True)]
        await self._ended(tasks, 1)
        first = next(number for number, task in enumerate(tasks) if task.done())
        self._ended_branches[names[first]] = tasks[first]
        for task in tasks:
            if not task.done():
                task.cancel()
        await asyncio.gather(*tasks, *self._asking, return_exceptions=True)
        if self._leaving is not None:
            raise self._leaving
        return first

    def _start(
        self, work: Coroutine[Any, Any, T], name: str, joined_by: str | None = None
    ) -> asyncio.Task[T]:
        task = self._loop.create_task(self._in_branch(work, name, joined_by))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self.look()

    async def _in_branch(self, work: Coroutine[Any, Any, T], name: str, joined_by: str | None) -> T:
        _branch.set(name)
        _joined_by.set(joined_by)
        result: T = await Branch(self, work)
        return result

    async def _ended(self, tasks: list[asyncio.Task[Any]], enough: int) -> None:
        """Wait until so many tasks have ended: for the function, a wait outside of it."""
        wait = Wait(loop=self._loop)

        def look(_: object) -> None:
            if not wait.done() and sum(task.done() for task in tasks) >= enough:
                wait.set_result(None)

        for task in tasks:
            task.add_done_callback(look)
        await wait
        if self._leaving is not None:
            await asyncio.gather(*tasks, return_exceptions=True)
            raise self._leaving

    # -- suspending

    def look(self) -> None:
        """Look, as soon as the loop is free, whether every branch waits."""
        if self._looking is None and self._waits:
            self._looking = self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = None
        if (
            self.branches
            and self._waits
            and self._leaving is None
            and (self._suspending is None or self._suspending.done())
            and all(branch.is_blocked for branch in self.branches)
            and not any(wait.done() for wait in self._waits.values())
            # A branch that hasn't begun, or whose end nobody has noticed yet, will go on.
            and len(self._tasks) == len(self.branches) - 1
        ):
            self._suspending = self._loop.create_task(self._suspend())

    async def _suspend(self) -> None:
        """Give the slot back until one of the waits is over, or go on if one is."""
        try:
            await self.flush_notes()
            waits, joined = self._what_it_waits_for()
            asked = wire.Suspension(waits=waits, joined=joined, knows_cancel=self.cancelled)
            answer = await self.call(wire.SUSPEND, asked, str)
            if answer == "suspended":
                self._leave(Suspended())
            elif answer == "ready":
                self._read_again(await self.call(wire.OPEN, None, History))
                return
            else:
                self._leave(Interrupted(f"its job is {answer}"))
        except Left as left:
            self._leave(left)
        except BaseException as error:  # noqa: BLE001 - a wait must not hang for ever
            self._leave(Interrupted(f"{type(error).__name__}: {error}"))

    def _what_it_waits_for(self) -> tuple[list[int], list[int]]:
        """Return the waits of which one lets the function go on, and those of which all must be over.

        Where all but the next tries of steps are operations of one gather, nothing can be done before
        the last of them: else each of a thousand calls would have the function replayed.
        """
        gathers = {wait.joined_by for wait in self._waits.values() if not wait.is_step}
        if len(gathers) != 1 or None in gathers:
            return list(self._waits), []
        steps = [number for number, wait in self._waits.items() if wait.is_step]
        return steps, [number for number, wait in self._waits.items() if not wait.is_step]

    def _read_again(self, history: History) -> None:
        self._read(history)
        for each in history.checkpoints:
            wait = self._waits.get(each.number)
            if wait is None or wait.done():
                continue
            is_due = each.wake_at is not None and each.wake_at <= history.now
            is_told = history.cancelled and each.kind is CheckpointKind.STEP
            if each.state.is_final or is_due or is_told:
                wait.set_result(None)
        self.look()

    # -- the whole

    async def run(self, function: Coroutine[Any, Any, T]) -> T:
        """Run the function to its end, or leave it."""
        try:
            result: T = await Branch(self, function)
            if self._leaving is not None:
                raise self._leaving  # it was caught
            self.check_all_asked()
            if any(note.kind is CheckpointKind.SLEEP for note in self._notes):
                await self.flush_notes()  # else the history would show a wait that never ended
            return result
        except Exception as error:
            if self._leaving is not None:
                raise self._leaving from error  # it was caught, and something else was raised
            await self._note_failure(error)
            raise
        finally:
            self._leave(Interrupted("the function has ended"))  # whoever has kept its context
            await self._stop_tasks()

    async def _note_failure(self, error: BaseException) -> None:
        """Note what of the history the function failed of: there a resume begins."""
        if (place := failed_at(error)) is not None:
            self._notes.append(
                NewCheckpoint(
                    number=self.make_room(), kind=CheckpointKind.NOTE, state=StepState.FAILED,
                    name="failure", digest=" ".join([str(place.number), *_ranges(place.kept)]),
                )
            )  # fmt: skip
            await self.flush_notes()

    async def _stop_tasks(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        suspending = [self._suspending] if self._suspending is not None else []
        tasks = [*self._tasks, *suspending, *self._asking]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)

    async def suspend_paused(self) -> None:
        """Give the slot back until the run is resumed."""
        asked = wire.Suspension(waits=[], knows_cancel=self.cancelled)
        answer = await self.call(wire.SUSPEND, asked, str)
        if answer != "suspended":
            raise Interrupted(f"its job is {answer}")

    async def restart(self, given: dict[str, Any]) -> None:
        """Begin the function anew, without a history."""
        if not await self.call(wire.RESTART, given, bool):
            raise self._leave(Interrupted("its job has moved on"))
        self._leave(Suspended())

    async def park(self, error: Mismatch) -> bool:
        """Pause the run: somebody has to look at it. False: nobody can, its deadline has passed."""
        problem = Failure("HistoryMismatch", str(error))
        asked = wire.Suspension(waits=[], knows_cancel=self.cancelled, problem=problem)
        self._leaving = None
        answer = await self.call(wire.SUSPEND, asked, str)
        if answer not in ("suspended", "overdue"):
            raise Interrupted(f"its job is {answer}")
        return answer == "suspended"


def _ranges(numbers: Collection[int]) -> list[str]:
    """Return numbers as text, in ranges: `3-7`, `9`."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return [str(first) if first == last else f"{first}-{last}" for first, last in ranges]


def _where(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.kind.label} {checkpoint.name!r} (number {checkpoint.number})"


def _outcome(task: asyncio.Task[Any]) -> Any:
    if task.cancelled():
        return asyncio.CancelledError()
    return task.exception() or task.result()
