"""One seed: build the cluster, break it, mend it, wait until all is done, and write the history down."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import msgspec

import rota.scheduler.firer
import rota.scheduler.releaser
import rota.store.database
from proof.checker import Report, check
from proof.function_operator import FunctionOperator
from proof.history import Meta, Recorder, dump_database, write_meta
from proof.operators import Operator, create_schedules
from proof.resource_tasks import PATIENCE
from proof.simulation import fences, surroundings
from proof.simulation.cluster import Cluster
from proof.simulation.coordinator import setting
from proof.simulation.engine import DATABASE_MINUS_AT, Engine
from proof.simulation.faults import Nemesis
from proof.simulation.gateway import Gateway
from proof.simulation.loop import FIRST_MOMENT, SimLoop
from proof.simulation.moves import DEFAULT, in_order
from proof.simulation.mutant import Mutant
from proof.simulation.network import Network
from proof.simulation.others import Others
from proof.simulation.patches import Patches
from proof.simulation.template import SCHEMA, SimServer
from proof.simulation.workload import LIMITS, SCHEDULED, choose_schedules, task_promises
from rota import App, Settings
from rota.store.sql import load_queries

_CALM = 20.0  # virtual seconds that a mended cluster is watched for at least
# After so many its schedules are paused: they may have more to do than it has slots for. What is there
# by then comes to its end, or it is stuck.
_QUIET_AFTER = 60.0
_CALM_LIMIT = 180.0  # in which it must have done everything
_STUCK_AFTER = 60.0

_UNFINISHED = f"""
select count(*) from {SCHEMA}.job
where state < 5 and (schedule_id is null or extract(epoch from created_at) < $1)
  and due_at < {SCHEMA}.now() + interval '1 hour' """  # some ask for absurd delays

_BEHIND = f"""
select count(*) from {SCHEMA}.schedule
where paused_at is null and extract(epoch from next_due) <= $1 and name <> all($2::text[])"""

_RUNNING = f"select count(*) from {SCHEMA}.run where state = 4"


class _Left(msgspec.Struct):
    """What has not come to its end."""

    jobs: int
    schedules: int
    runs: int

    def told(self, seconds: float) -> str:
        return (
            f"{self.jobs} jobs, {self.schedules} schedules and {self.runs} runs have not ended what "
            f"they had to do {seconds:.0f} s after healing"
        )


class Result(msgspec.Struct):
    """What became of a seed."""

    seed: int
    digest: str = ""
    virtual_seconds: float = 0.0
    real_seconds: float = 0.0
    statements: int = 0
    parkings: int = 0  # statements that waited for a lock
    deadlocks: int = 0
    jobs: int = 0
    starts: int = 0
    faults: dict[str, int] = {}
    violations: list[str] = []
    report: str = ""
    trace: list[str] = []


def run_seed(
    server: SimServer, seed: int, *, mutant: Mutant | None = None, trace: bool = False,
    folder: Path | None = None, moves: frozenset[str] = DEFAULT,
) -> Result:  # fmt: skip
    """Run one seed in this process, and judge its history, which is kept if a folder is given."""
    name = f"seed_{seed}"
    begun = time.perf_counter()
    url = server.make_database(name)
    simulation = Simulation(url, server.clock, seed, mutant=mutant, moves=moves)
    simulation.gateway.trace.lines = [] if trace else None
    history = folder or Path(tempfile.mkdtemp(prefix="rota-sim-history-"))
    try:
        simulation.run()
        simulation.write_history(history)
        result = simulation.result(check(history))
        result.real_seconds = time.perf_counter() - begun
        return result
    finally:
        simulation.close()
        server.drop_database(name)
        if folder is None:
            shutil.rmtree(history)


class Simulation:
    """One seed, from an empty database to a history."""

    def __init__(
        self, url: str, clock: Path, seed: int, *, mutant: Mutant | None = None,
        moves: frozenset[str] = DEFAULT,
    ) -> None:  # fmt: skip
        self._url = url
        self._moves = moves
        self.seed = seed
        self._mutant = mutant
        self._random = Random(seed)
        self.loop = SimLoop()
        self.engine = Engine(url, clock)
        random = self._random
        network = Network(
            self.loop,
            Random(random.random()),
            10 ** random.uniform(-3, -1.7),
            random.uniform(0.5, 1.8),
        )
        self.gateway = Gateway(self.loop, self.engine, network, Random(random.random()))
        self.gateway.chances = Random(f"{seed} trouble")
        self.settings = _choose_settings(url, random)
        self._limits_queue = Random(f"{seed} maximum").random() < 0.5
        if "hung" in moves and not self._limits_queue:
            self.settings = self.settings.replace(max_run_time=LIMITS.run_time)
        self.cluster = Cluster(self.loop, self.gateway, seed, self.settings, moves)
        self.schedules = choose_schedules(random)
        self.problems: list[str] = []
        self.nemesis: Nemesis | None = None
        kind = setting.choose(seed, moves)
        self.coordinator = setting.Coordinator(kind, self.cluster) if kind else None

    def run(self) -> None:
        patches = Patches(self.loop, self.gateway)
        asyncio.set_event_loop(self.loop)
        with patches.applied():
            self._use_queries(patches)
            fences.watch(patches)
            self.engine.ask_script(fences.INSTALL.format(schema=SCHEMA))
            _slow_down(patches, self._random.uniform(0.3, 2.0))
            surroundings.prepare(self.engine, self.gateway, patches, self.seed, self._moves)
            if self.coordinator is not None:
                self.coordinator.install(patches)
            if self._mutant is not None:
                self._mutant.infect(self.engine, patches)
            self.loop.run_until_complete(self._live())
            self.loop.bury()

    def _use_queries(self, patches: Patches) -> None:
        """The named queries, or a mutant's own version of them."""
        queries = dict(load_queries(SCHEMA))
        if self._mutant is not None and self._mutant.queries is not None:
            self._mutant.queries(queries)
        patches.set(rota.store.database, "load_queries", lambda schema: queries)
        self.gateway.trace.name_queries(queries)

    async def _live(self) -> None:
        random = self._random
        self.cluster.build(random)
        self.nemesis = Nemesis(self.cluster, random)
        weather = self.gateway.network.weather
        rates = dict(vars(weather))
        weather.clear()
        operator = await self._create_schedules()
        runs = self.cluster.make_run_operator() if "workflows" in self._moves else None
        if runs is not None:
            await self.cluster.on_behalf("operator.of.workflows", runs.begin())
        functions = await self._make_function_operator()
        others = Others(self.cluster, self._moves)
        await others.begin()
        vars(weather).update(rates)
        self.started = self.loop.time()
        self.cluster.boot()
        if "hung" in self._moves and self._limits_queue:
            # As soon as a job has made that queue, and however often it must be asked for.
            self._limiting = self.loop.create_task(self.cluster.steer(_limit_queue))
        if operator is not None:
            steering = self.cluster.on_behalf("operator.of.schedules", operator.run())
        if runs is not None:
            running = self.cluster.on_behalf("operator.of.runs", runs.run())
        working = functions and self.cluster.on_behalf("operator.of.functions", functions.run())
        others.start()
        await self._rage(random.uniform(30, 100))
        if operator is not None:
            operator.stopping = True
            await steering
            await self.cluster.on_behalf("operator.who.leaves", operator.leave(mend=0.5, spoil=0.8))
        if runs is not None:
            runs.stopping = True
            await running
            await self.cluster.on_behalf("operator.who.leaves.runs", runs.leave())
        if functions is not None and working is not None:
            functions.stopping = True
            await working
            self._helping = self.cluster.on_behalf("operator.helps", functions.look_after())
        self.healed = self.loop.time()
        for client in self.cluster.clients:
            await client.finish()
        await others.mended()
        await self._wait_until_done(operator)
        if self.coordinator is not None:
            await self.coordinator.end()
        self.ended = self.loop.time()

    async def _rage(self, seconds: float) -> None:
        assert self.nemesis is not None
        if self.coordinator is None:
            await self.nemesis.rage(seconds)
            return
        beside = self.coordinator.make_nemesis(self.nemesis.note)
        await asyncio.gather(self.nemesis.rage(seconds), beside.rage(seconds))

    async def _make_function_operator(self) -> FunctionOperator | None:
        if "functions" not in self._moves:
            return None
        operator = self.cluster.make_function_operator()
        await self.cluster.on_behalf("operator.begins", operator.begin())
        return operator

    async def _create_schedules(self) -> Operator | None:
        """By an operator who goes on to play with them, if there is one."""
        if self._moves & {"schedules", "jobs", "spoil"}:
            operator = self.cluster.make_operator(SCHEDULED)
            await self.cluster.on_behalf("operator", operator.adopt(self.schedules))
            return operator
        app = self.cluster.make_app()
        await self.cluster.on_behalf("operator", create_schedules(app, self.schedules))
        return None

    async def _wait_until_done(self, operator: Operator | None) -> None:
        """All jobs have ended, and all schedules that can be read have come as far as the healing."""
        spoilt = operator.spoilt if operator is not None else []
        await asyncio.sleep(max(self.healed + _CALM - self.loop.time(), 0.0))
        left = await self._wait_for_the_end(spoilt, self.healed + _QUIET_AFTER)
        quieting: asyncio.Future[None] | None = None
        if left is not None and operator is not None:
            if left.schedules:  # they need no slots to decide
                self.problems.append(left.told(_QUIET_AFTER))
            quieting = self.cluster.on_behalf("operator.who.quiets", operator.pause_all())
        if left is not None:
            left = await self._wait_for_the_end(spoilt, self.healed + _CALM_LIMIT)
        if left is not None:
            self.problems.append(left.told(_CALM_LIMIT))
        if quieting is not None:
            await quieting

    async def _wait_for_the_end(self, spoilt: list[str], end: float) -> _Left | None:
        """Wait until there is nothing left to do, or until that moment; return what is left then."""
        healed = self.healed + DATABASE_MINUS_AT + self.engine.offset
        left = _Left(-1, -1, -1)
        while True:
            # Somebody may be parked who keeps others from looking: then we look later.
            with contextlib.suppress(asyncpg.LockNotAvailableError):
                left = _Left(
                    self.engine.ask(_UNFINISHED, healed)[0][0],
                    self.engine.ask(_BEHIND, healed, spoilt)[0][0],
                    self.engine.ask(_RUNNING)[0][0],
                )
                if not left.jobs and not left.schedules and not left.runs:
                    return None
            if self.loop.time() >= end:
                return left
            await asyncio.sleep(1.0)

    def write_history(self, folder: Path) -> None:
        for name, beats in self.cluster.journal.beats.items():
            _write(folder, f"journal-{name}", beats)
        for name, sights in self.cluster.journal.sights.items():
            _write(folder, f"functions-{name}", sights)
        for name, members in self.cluster.journal.members.items():
            _write(folder, f"members-{name}", members)
        _write(folder, "clients", self.cluster.submissions)
        _write(folder, "operations", self.cluster.operations)
        assert self.nemesis is not None
        _write(folder, "faults", [*self.nemesis.faults, *self.cluster.withdrawals])
        self.engine.end_parked()
        self.engine.set_clock(self.ended)
        asyncio.run(dump_database(self._url, SCHEMA, folder))
        app = self.cluster.make_app()
        write_meta(
            folder,
            Meta(
                kind="simulation", tasks=task_promises(app), schedules=self.schedules,
                started=self.started, healed=self.healed, ended=self.ended,
                database_minus_at=DATABASE_MINUS_AT + self.engine.offset,
                lease_seconds=self.settings.lease_seconds,
                max_crashes=self.settings.max_crashes, seed=self.seed,
                clock_error=0.001 + sum(abs(step.by) for step in self.nemesis.clock_steps),
                clock_steps=self.nemesis.clock_steps,
                note=",".join(in_order(self._moves)),
                calm_after=8.0, max_lag=8.0, stuck_after=_STUCK_AFTER,
                slots=self.settings.concurrency,
            ),
        )  # fmt: skip

    def result(self, report: Report) -> Result:
        assert self.nemesis is not None
        engine, beats = self.engine, self.cluster.journal.beats
        self.problems += self.cluster.problems
        self.problems += fences.stale_writes(engine, SCHEMA)
        if self.coordinator is not None:
            self.problems += self.coordinator.rules.found()
        self.problems += [f"readers hold nobody up: {held}" for held in self.gateway.held_up.found]
        broken = [f"{v.rule}: {v.subject}: {v.sentence}" for v in report.violations]
        return Result(
            seed=self.seed, digest=self.gateway.trace.digest,
            virtual_seconds=self.ended - FIRST_MOMENT, statements=engine.statements,
            parkings=engine.parkings, deadlocks=engine.deadlocks,
            jobs=engine.ask(f"select count(*) from {SCHEMA}.job")[0][0],
            starts=sum(beat.event == "start" for own in beats.values() for beat in own),
            faults=dict(sorted(self.nemesis.counts.items())),
            violations=[*self.problems, *broken], report=report.text(),
            trace=self.gateway.trace.lines or [],
        )  # fmt: skip

    def close(self) -> None:
        self.engine.close()


def _choose_settings(url: str, random: Random) -> Settings:
    return Settings(
        database_url=url, schema=SCHEMA, node_name="sim", heartbeat=random.choice((1.0, 2.0, 3.0)),
        poll=random.uniform(1, 5), concurrency=random.randint(3, 10), pool_size=3,
        grace=random.choice((0.5, 3.0)), kill_grace=1.0, connect_timeout=4.0, statement_timeout=5.0,
        max_crashes=random.choice((3, 10)), processes=1, threads=1, resource_patience=PATIENCE,
    )  # fmt: skip


async def _limit_queue(app: App) -> None:
    await app.queues.set_max_run_time("other", LIMITS.run_time)


def _slow_down(patches: Patches, interval: float) -> None:
    """Schedulers look less often, so that an hour is simulated in fewer statements."""
    for module in (rota.scheduler.firer, rota.scheduler.releaser):
        patches.set(module, "_INTERVAL", interval)


def _write(folder: Path, name: str, lines: list[Any]) -> None:
    recorder = Recorder(folder, name)
    for line in lines:
        recorder.write(line)
    recorder.close()
