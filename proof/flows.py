"""Runs of workflows under an operator who starts, cancels, pauses, resumes, retries and skips at random.

Graphs are random, of every rule, with conditions, optional steps and sub-workflows. A schedule starts
runs of one of them. Nobody else touches the runs, but for those who cancel, retry and discard jobs, also
jobs of steps. A step's result says by which attempt it was made, and of which result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from random import Random
from typing import Any

from proof.asking import Asker
from proof.history import Operation
from rota import App, Context, Retry
from rota.core.time.schedule import make_spec
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, Rule, StepDefinition
from rota.errors import StoreUnavailable

TASKS = ("step_quick", "step_quick", "step_shaky", "step_long", "step_exact", "step_large")
ENDS = {"step_shaky": "any", "step_large": "any"}
_ATTEMPTS = {
    "step_quick": 8, "step_shaky": 2, "step_long": 8, "step_exact": 8, "step_large": 8
}  # fmt: skip
BY_HAND = 5  # the result of a step that was skipped
_SCHEDULE, _EVERY = "runs", 3
_GRAPHS = 5
_MOST = 14  # runs at a time
_RULES = [rule.label for rule in Rule]

Attempt = Callable[[Context], AbstractContextManager[None]]
Nap = Callable[[float], Awaitable[None]]


def _made(ctx: Context, value: Any) -> dict[str, Any]:
    return {
        "by": f"{ctx.job.id}/{ctx.token}",
        "of": value["by"] if isinstance(value, dict) and "by" in value else value,
    }


def add_tasks(
    app: App, attempt: Attempt, nap: Nap, effect: str, chance: Callable[[], float]
) -> None:
    @app.task(retry=Retry(max_attempts=_ATTEMPTS["step_quick"], base=0.3))
    async def step_quick(value: Any, ctx: Context) -> dict[str, Any]:
        with attempt(ctx):
            await nap(0.1)
            return _made(ctx, value)

    @app.task(retry=Retry(max_attempts=_ATTEMPTS["step_shaky"], base=0.3))
    async def step_shaky(value: Any, ctx: Context) -> dict[str, Any]:
        """Fails now and then for good."""
        with attempt(ctx):
            await nap(0.5)
            if chance() < 0.6:
                raise ValueError("not now")
            return _made(ctx, value)

    @app.task(retry=Retry(max_attempts=_ATTEMPTS["step_long"], base=0.3), queue="other")
    async def step_long(value: Any, ctx: Context) -> dict[str, Any]:
        with attempt(ctx):
            await nap(5)
            return _made(ctx, value)

    @app.task(retry=Retry(max_attempts=_ATTEMPTS["step_large"], base=0.3))
    async def step_large(value: Any, ctx: Context) -> dict[str, Any]:
        """Has a result now and then that is too large to be stored."""
        with attempt(ctx):
            await nap(0.1)
            large = "x" * (app.settings.max_result_bytes + 1) if chance() < 0.3 else ""
            return {**_made(ctx, value), "large": large}

    @app.task(guarantee="exactly_once", retry=Retry(max_attempts=_ATTEMPTS["step_exact"], base=0.3))
    async def step_exact(value: Any, ctx: Context) -> dict[str, Any]:
        with attempt(ctx):
            await ctx.connection.execute(effect, ctx.job.id, ctx.token)
            await nap(0.5)
            return _made(ctx, value)


def random_graph(random: Random, name: str, inner: str | None) -> Graph:
    """Any graph; `inner`: a workflow that may be a step of it."""
    steps: list[StepDefinition] = []
    for number in range(random.randint(2, 9)):
        known = [step.name for step in steps]
        before = random.sample(known, random.randint(0, min(len(known), 3)))
        rule: Any = random.choice(["all_succeeded", *_RULES])
        if not before and rule.startswith("one_"):
            rule = "all_succeeded"
        nested = inner is not None and number > 0 and random.random() < 0.2
        value: Any = {"$step": random.choice(before)} if before else {"$input": "open"}
        when = random.choice([None, None, None, None, "input.open", "not input.open"])
        steps.append(
            StepDefinition(
                name=f"s{number}", task=(task := None if nested else random.choice(TASKS)),
                # As `Workflow.step` does: a run may start before a node has registered its tasks.
                guarantee="exactly_once" if task == "step_exact" else None,
                max_attempts=_ATTEMPTS[task] if task is not None else None,
                workflow=inner if nested else None,
                arguments={"open": True} if nested else {"value": value}, after=before, rule=rule,
                tolerate=random.choice([0, 0, 1]) if rule == "all_succeeded" else 0,
                optional=random.random() < 0.15, when=when,
            )
        )  # fmt: skip
    return Graph(Definition(name=name, steps=steps))


class RunOperator:
    """`now` is the history's clock; `note` takes each operation when it is over."""

    def __init__(
        self, app: App, random: Random, now: Callable[[], float],
        note: Callable[[Operation], None], *, pace: float,
    ) -> None:  # fmt: skip
        self._app = app
        self._random = random
        self._asker = Asker(random, now, note)
        self._pace = pace
        self._names: list[str] = []
        self._steps: dict[str, list[str]] = {}
        self._runs: dict[str, str] = {}  # their workflows
        self._paused: set[str] = set()
        self.stopping = False

    async def begin(self) -> None:
        """Declare a few workflows, some of which are steps of others."""
        for number in range(_GRAPHS):
            inner = self._names[-1] if self._names else None
            graph = random_graph(self._random, f"w{number}", inner)
            await self._persist(lambda graph=graph: self._app.workflows.put(graph))
            self._names.append(graph.definition.name)
            self._steps[graph.definition.name] = graph.order
        spec = make_spec(
            _SCHEDULE, workflow=self._names[0], every=_EVERY, payload={"open": True},
            overlap=self._random.choice(("skip", "queue")),
        )  # fmt: skip
        await self._persist(lambda: self._app.schedules.put(spec))

    async def _persist(self, act: Callable[[], Awaitable[Any]]) -> None:
        while True:
            try:
                await act()
                return
            except StoreUnavailable:
                await asyncio.sleep(0.5)

    async def run(self) -> None:
        moves: dict[Callable[[], Awaitable[None]], float] = {
            self._start: 4, self._cancel: 2.5, self._pause: 1.5, self._resume: 2.5, self._retry: 1,
            self._skip: 1,
        }  # fmt: skip
        while not self.stopping:
            await asyncio.sleep(self._random.expovariate(1 / self._pace))
            if not self.stopping:
                await self._random.choices(list(moves), list(moves.values()))[0]()

    async def leave(self) -> None:
        """Whatever is paused goes on, and nothing more is due."""
        self.stopping = True
        await self._persist(lambda: self._app.schedules.pause(_SCHEDULE))
        for run in sorted(self._paused):
            await self._resume_one(run)

    # -- moves

    async def _start(self) -> None:
        if len(self._runs) >= _MOST:
            del self._runs[next(each for each in self._runs if each not in self._paused)]
        name, key = self._random.choice(self._names), f"run-{self._random.random()}"
        given = {"open": self._random.random() < 0.5}

        async def start() -> dict[str, Any]:
            run = await self._app.runs.start(name, given, key=key)
            return {"id": str(run.id)}

        ids: list[str] = []

        async def noted() -> dict[str, Any]:
            told = await start()
            ids.append(told["id"])
            return told

        if await self._asker.ask("start run", name, noted):
            self._runs[ids[-1]] = name

    def _any(self) -> str | None:
        return self._random.choice(sorted(self._runs)) if self._runs else None

    async def _cancel(self) -> None:
        # Often one that is paused: what the pause held back must not be forgotten.
        paused = sorted(self._paused) if self._random.random() < 0.5 else []
        if (run := self._random.choice(paused) if paused else self._any()) is not None:
            await self._ask("cancel run", run, lambda: self._app.runs.cancel(run))
            self._paused.discard(run)

    async def _pause(self) -> None:
        if (run := self._any()) is not None and await self._ask(
            "pause run", run, lambda: self._app.runs.pause(run)
        ):
            self._paused.add(run)

    async def _resume(self) -> None:
        runs = sorted(self._paused) or sorted(self._runs)
        if runs:
            await self._resume_one(self._random.choice(runs))

    async def _resume_one(self, run: str) -> None:
        await self._ask("resume run", run, lambda: self._app.runs.resume(run))
        self._paused.discard(run)

    async def _retry(self) -> None:
        if (run := self._any()) is not None:
            step = self._random.choice(self._steps[self._runs[run]])
            await self._ask("retry step", run, lambda: self._app.runs.retry(run, step), step)

    async def _skip(self) -> None:
        if (run := self._any()) is not None:
            step = self._random.choice(self._steps[self._runs[run]])
            await self._ask("skip step", run, lambda: self._app.runs.skip(run, step, BY_HAND), step)

    async def _ask(
        self, kind: str, run: str, act: Callable[[], Awaitable[Any]], detail: str = ""
    ) -> bool:
        async def asked() -> dict[str, Any]:
            await act()
            return {}

        return await self._asker.ask(kind, run, asked, detail=detail)
