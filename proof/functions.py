"""Durable functions with random bodies, and what each of their replays saw.

A body is a small program, drawn from its number: steps that fail and are tried again, calls of jobs,
of a workflow and of other functions, sleeps, waits for signals, gathers and races. A part of it is new
in code that is deployed meanwhile, with `ctx.patched` or without. What a replay sees is written down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from random import Random
from typing import Any, Literal

import msgspec

from proof.flows import Attempt, Nap
from proof.history import Sight
from rota import App, Context, DurableContext, Retry, RunCancelled, StepFailed, WaitTimedOut

FUNCTION = "walk"
TASKS = ("fn_quick", "fn_shaky", "fn_exact")
LONG = "fn_long"  # longer than any run: who lets it go must cancel it
ENDS = {FUNCTION: "any", "fn_shaky": "any"}
SIGNALS, KEYS = ("go", "ok"), ("k1", "k2", "k3")
LEAF = 1_000  # programs from this number on call no other functions
_NAMES = ("a", "b")  # few, so that they repeat

Change = Literal["none", "patched", "contradicts"]


class Op(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that a body does, at its place."""

    kind: Literal["step", "call", "pair", "run", "sleep", "wait", "gather", "race", "note"]
    name: str = ""
    seconds: float | None = None  # of a sleep, or until a time-out
    fails: float = 0.0  # the chance that a try fails
    tries: int = 1
    key: str | None = None
    number: int = 0
    caught: bool = True  # whether the body goes on after a failure
    branches: tuple[tuple[Op, ...], ...] = ()
    leave: bool = False  # the losers of a race go on by themselves


class Program(msgspec.Struct, frozen=True):
    ops: tuple[Op, ...]
    change: Change = "none"
    place: int = 0  # before which new code does something more
    laps: int = 1


@lru_cache(512)
def program_of(number: int) -> Program:
    random = Random(f"program {number}")
    leaf = number >= LEAF
    ops = tuple(_op(random, leaf=leaf) for _ in range(random.randint(1, 3 if leaf else 6)))
    change: Change = random.choice(("none", "none", "none", "patched", "contradicts"))
    laps = random.choice((1, 1, 1, 2)) if not leaf else 1
    return Program(ops, change, random.randint(0, len(ops)), laps)


def _op(random: Random, *, leaf: bool = False, inner: bool = False) -> Op:
    weights = {"step": 6, "call": 3, "sleep": 3, "wait": 3, "note": 1, "pair": 0.7}
    if not inner:
        weights |= {"gather": 1.5, "race": 2}
    if not leaf and not inner:
        weights |= {"run": 1}
    kind: Any = random.choices(list(weights), list(weights.values()))[0]
    caught = random.random() < 0.7
    match kind:
        case "step":
            return Op(
                kind, random.choice(_NAMES), random.choice((0.0, 0.2, 3.0)), caught=caught,
                fails=random.choice((0.0, 0.0, 0.3, 0.8)), tries=random.choice((1, 3)),
            )  # fmt: skip
        case "call":
            return Op(kind, random.choice(TASKS), caught=caught)
        case "run":
            return Op(kind, number=LEAF + random.randint(0, 40), caught=caught)
        case "sleep":
            return Op(kind, seconds=random.choice((0.3, 0.9, 2.5, 8.0)))
        case "wait":
            return Op(
                kind, random.choice(SIGNALS), random.choice((None, 2.0, 10.0)), caught=caught,
                key=random.choice((None, *KEYS)),
            )  # fmt: skip
        case "gather" | "race":
            return _branches(random, kind, caught=caught)
        case _:
            return Op(kind, number=random.randint(0, 2))


def _branches(random: Random, kind: Any, *, caught: bool) -> Op:
    if kind == "gather" and random.random() < 0.4:  # which waits for the last of them
        calls = tuple(_joined(random) for _ in range(random.randint(2, 4)))
        return Op(kind, branches=calls, caught=caught)
    many = range(random.randint(2, 3))
    branches = tuple(
        tuple(_op(random, inner=True) for _ in range(random.randint(1, 2))) for _ in many
    )
    if kind == "race" and random.random() < 0.6:
        branches = (*branches[:-1], (Op("call", LONG),))
    return Op(kind, branches=branches, leave=random.random() < 0.3, caught=caught)


def _joined(random: Random) -> tuple[Op]:
    if random.random() < 0.3:
        return (Op("sleep", seconds=random.choice((0.3, 2.5))),)
    return (Op("call", random.choice(TASKS), caught=True),)


class Recording(msgspec.Struct):
    """Where a process writes what its functions see, and what it draws from."""

    note: Callable[[Sight], None]
    now: Callable[[], float]
    node: Callable[[], str]
    code: Callable[[], int]  # 1, and 2 once the new code is deployed here
    chance: Callable[[], float]
    serial: Callable[[], str]  # never the same again


def add_tasks(app: App, attempt: Attempt, nap: Nap, effect: str, records: Recording) -> None:
    @app.task(retry=Retry(max_attempts=8, base=0.3))
    async def fn_quick(place: str, ctx: Context) -> str:
        with attempt(ctx):
            await nap(0.2)
            return f"{ctx.job.id}/{ctx.token}"

    @app.task(retry=Retry(max_attempts=2, base=0.3), queue="other")
    async def fn_shaky(place: str, ctx: Context) -> str:
        """Fails now and then for good."""
        with attempt(ctx):
            await nap(1.0)
            if records.chance() < 0.5:
                raise ValueError("not now")
            return f"{ctx.job.id}/{ctx.token}"

    @app.task(guarantee="exactly_once", retry=Retry(max_attempts=8, base=0.3))
    async def fn_exact(place: str, ctx: Context) -> str:
        with attempt(ctx):
            await ctx.connection.execute(effect, ctx.job.id, ctx.token)
            await nap(0.5)
            return f"{ctx.job.id}/{ctx.token}"

    # With a timeout of its own: others are stopped after a maximum that is shorter.
    @app.task(retry=Retry(max_attempts=8, base=0.3), timeout=90)
    async def fn_long(place: str, ctx: Context) -> str:
        with attempt(ctx):
            await asyncio.sleep(45)
            return f"{ctx.job.id}/{ctx.token}"

    pair = app.workflow("pair")
    pair.step(fn_exact, "second", name="second", after=pair.step(fn_quick, "first", name="first"))

    @app.durable(retry=Retry(max_attempts=3, base=0.3))
    async def walk(ctx: DurableContext, number: int, lap: int = 1) -> str:
        body = _Body(ctx, program_of(number), records, records.code())
        return await body.run(number, lap, {"pair": pair, FUNCTION: walk, **app.tasks})


class _Body:
    """One replay of a program."""

    def __init__(self, ctx: DurableContext, program: Program, records: Recording, code: int):
        self._ctx = ctx
        self._program = program
        self._records = records
        self._code = code
        self._round = ctx._replay.history.round

    def _note(self, event: Any, place: str = "", value: str = "", seconds: float = 0.0) -> None:
        records, ctx = self._records, self._ctx
        records.note(
            Sight(
                records.now(), event, str(ctx.run_id), self._round, ctx.token, records.node(),
                place, value, seconds,
            )
        )  # fmt: skip

    async def run(self, number: int, lap: int, known: dict[str, Any]) -> str:
        self._known = known
        # As a key for the other side of a payment: the same until the function begins anew.
        self._key = str(self._ctx.uuid())
        self._note("open", value=f"{self._code} {self._program.change}", seconds=number)
        try:
            try:
                await self._do_all(self._program.ops, "")
                if lap < self._program.laps:
                    await self._ctx.restart(number=number, lap=lap + 1)
            except RunCancelled:
                await self._clean_up()
                raise
        except BaseException as error:
            self._note("left", value=type(error).__name__)
            raise
        result = self._records.serial()
        self._note("left", result, "ok")
        return result

    async def _clean_up(self) -> None:
        self._note("told")
        ctx = self._ctx
        with_step = ctx.options(name="clean", retry=Retry(max_attempts=5, base=0.2))
        await self._see("clean.0", with_step.step(self._try, "clean.0", Op("step")), caught=True)
        await self._see("clean.1", ctx.sleep(0.3), caught=True)
        task = self._known["fn_quick"]
        await self._see("clean.2", ctx.options(name="clean").call(task, "clean.2"), caught=True)

    async def _do_all(self, ops: tuple[Op, ...], path: str) -> str:
        value = ""
        for place, op in enumerate(ops):
            if not path and place == self._program.place:
                await self._do_new()
            value = await self._do(op, f"{path}{place}")
        return value

    async def _do_new(self) -> None:
        """What only the new code does."""
        change, ctx = self._program.change, self._ctx
        if self._code == 2 and (
            change == "contradicts" or (change == "patched" and ctx.patched("more"))
        ):
            work = ctx.options(name="new").step(self._try, "new", Op("step"))
            await self._see("new", work, caught=True)

    async def _do(self, op: Op, place: str) -> str:
        if op.kind == "note":
            return self._take_note(op, place)
        if op.kind == "gather":
            works: list[Any] = [
                self._operation(ops[0], f"{place}.{n}.0")
                if len(ops) == 1 and ops[0].kind in ("call", "sleep")
                else self._branch(ops, f"{place}.{n}.")
                for n, ops in enumerate(op.branches)
            ]
            return await self._see(place, self._ctx.gather(*works), caught=op.caught)
        if op.kind == "race":
            return await self._race(op, place)
        return await self._see(place, self._operation(op, place), caught=op.caught)

    async def _branch(self, ops: tuple[Op, ...], path: str) -> str:
        return await self._do_all(ops, path)

    async def _race(self, op: Op, place: str) -> str:
        """Of operations where a branch is one, and of coroutines."""
        if op.leave:
            self._note("asked", place, "leave")
        works = [
            self._bare(ops[0], f"{place}.{n}.0")
            if len(ops) == 1 and ops[0].kind != "note" and n % 2 == 0
            else self._branch(ops, f"{place}.{n}.")
            for n, ops in enumerate(op.branches)
        ]
        work = self._ctx.race(*works, losers="leave" if op.leave else "cancel")
        return await self._see(place, work, caught=op.caught)

    def _bare(self, op: Op, place: str) -> Any:
        if op.kind == "wait":  # what it takes may be given back
            key = op.key or str(self._ctx.run_id)
            self._note("asked", place, f"contested {op.name}/{key}")
        return self._operation(op, place)

    def _take_note(self, op: Op, place: str) -> str:
        ctx = self._ctx
        values = (lambda: str(ctx.now()), lambda: str(ctx.random()), lambda: str(ctx.uuid()))
        value = values[op.number]()
        self._note("saw", place, value)
        return value

    def _operation(self, op: Op, place: str) -> Any:
        ctx, known = self._ctx, self._known
        match op.kind:
            case "step":
                retry = Retry(max_attempts=op.tries, base=0.4 if op.seconds else 2.0)
                return ctx.options(name=op.name, retry=retry).step(self._try, place, op, self._key)
            case "call":
                return ctx.call(known[op.name], place)
            case "pair":
                return ctx.call(known["pair"])
            case "run":
                return ctx.call(known[FUNCTION], op.number)
            case "sleep":
                assert op.seconds is not None
                self._note("asked", place, seconds=op.seconds)
                return ctx.sleep(op.seconds)
            case _:
                return ctx.wait(op.name, key=op.key, timeout=op.seconds)

    async def _see(self, place: str, work: Awaitable[Any], *, caught: bool) -> str:
        try:
            value = str(await work)
        except (StepFailed, WaitTimedOut) as error:
            self._note("saw", place, f"!{type(error).__name__}")
            if not caught:
                raise
            return ""
        except RunCancelled:
            self._note("saw", place, "!RunCancelled")
            raise
        self._note("saw", place, value)
        return value

    async def _try(self, place: str, op: Op, key: str = "") -> str:
        """The body of a step."""
        value = self._records.serial()
        self._note("try", place, value)
        try:
            await asyncio.sleep((op.seconds or 0.0) * (0.5 + self._records.chance()))
            if self._records.chance() < op.fails:
                raise ValueError("not now")
        except BaseException:
            self._note("done", place)
            raise
        self._note("done", place, value)
        return value
