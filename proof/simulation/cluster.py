"""The simulated machines: nodes and clients, in processes that can be paused, cut off and killed."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import asyncpg

from proof import hung, keyed, machines, quotas
from proof.draining import DrainOperator
from proof.flows import RunOperator
from proof.function_operator import FunctionOperator
from proof.history import WITHDRAWAL, Fault, Operation, Submission
from proof.maps import MapOperator
from proof.operators import Operator
from proof.resource_tasks import GPU, capacity_of
from proof.shares import ShareOperator
from proof.simulation.clients import Client, Mix, choose_mix, choose_odd
from proof.simulation.gateway import Gateway
from proof.simulation.loop import Process, SimLoop, context_of
from proof.simulation.patches import current
from proof.simulation.workload import Journal, make_app
from proof.sparing import SparingOperator
from proof.spoiling import spoiling
from proof.unique import UniqueClient
from rota import App, NotFound, RotaError, Settings, StoreUnavailable
from rota.node import Node, Role

_BOOT_PAUSE = 1.0


class Member:
    """A place for a process: each start puts a new one in it."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.process: Process | None = None
        self.starts = 0
        self.wall_offset = 0.0
        self.troubled = False  # some fault has it: no second one at the same time

    @property
    def up(self) -> bool:
        return self.process is not None and not self.process.dead

    def boot(self) -> None:
        self.starts += 1
        process = self.process = Process(f"{self.name}.{self.starts}", self.cluster.seed)
        process.wall_offset = self.wall_offset
        loop = self.cluster.loop
        self._task = loop.create_task(self.live(), context=context_of(process))
        self._task.add_done_callback(partial(self.cluster.note_end, process.name))

    async def live(self) -> None:
        raise NotImplementedError

    def crash(self) -> None:
        assert self.process is not None
        self.cluster.loop.kill(self.process)
        self.cluster.gateway.forget(self.process)
        self.process = None

    def pause(self) -> None:
        assert self.process is not None
        self.cluster.loop.pause(self.process)

    def resume(self) -> None:
        if self.process is not None:
            self.cluster.loop.resume(self.process)


class NodeMember(Member):
    def __init__(self, cluster: Cluster, name: str, roles: Sequence[Role]) -> None:
        super().__init__(cluster, name)
        self.roles = roles
        self._stopped = asyncio.Event()
        self._tries = 1  # of this process to start

    def boot(self) -> None:
        self._stopped, self._tries = asyncio.Event(), 1
        super().boot()

    async def live(self) -> None:
        stopped = self._stopped
        node: Node | None = None
        while node is None and not stopped.is_set():
            begun = self.cluster.loop.time()
            app = self.cluster.make_app()
            node = Node(app, roles=self.roles, resources={GPU: capacity_of(current().name)})
            try:
                await node.start()
                self.cluster.processes[str(node.id)] = current().name
            except (RotaError, asyncpg.PostgresError):  # as a supervisor would
                node = None
                self._withdraw(begun)
                await asyncio.sleep(_BOOT_PAUSE)
        await stopped.wait()
        if node is not None:
            await node.stop()

    def _withdraw(self, begun: float) -> None:
        """Its worker may have begun before the rest failed, and has given back what it had. Whatever
        tries again has another name, as another process would."""
        if self.process is not None:
            now, name = self.cluster.loop.time(), self.process.name
            self.cluster.withdrawals.append(Fault(begun, now, WITHDRAWAL, name))
            self._tries += 1
            self.process.name = f"{self.name}.{self.starts}.{self._tries}"

    async def stop(self) -> None:
        """As by SIGTERM; the process is gone when it returns."""
        process, task = self.process, self._task
        self._stopped.set()
        while not task.done() and process is self.process:
            await asyncio.sleep(0.1)
        if process is self.process and process is not None:
            self.crash()


class ClientMember(Member):
    def __init__(self, cluster: Cluster, name: str, pace: float, mix: Mix) -> None:
        super().__init__(cluster, name)
        self._pace = pace
        self._mix = mix
        self.client: Client | None = None

    async def live(self) -> None:
        assert self.process is not None
        app = self.cluster.make_app()
        random = Random(f"{self.cluster.seed} {self.process.name} client")
        repeats = "jobs" in self.cluster.moves
        self.client = Client(app, random, self.cluster.submissions, self._pace, self._mix, repeats)
        if "quotas" in self.cluster.moves:
            await quotas.set_limit(app)
        await self.client.run()

    async def finish(self) -> None:
        """Until it has its last answer."""
        if self.client is not None and self.up:
            self.client.stopping = True
            while not self._task.done():
                await asyncio.sleep(0.1)


class Cluster:
    def __init__(
        self, loop: SimLoop, gateway: Gateway, seed: int, settings: Settings, moves: frozenset[str]
    ) -> None:
        self.loop = loop
        self.moves = moves
        self.gateway = gateway
        self.seed = seed
        self.settings = settings
        self.journal = Journal()
        self.submissions: list[Submission] = []
        self.operations: list[Operation] = []
        self.withdrawals: list[Fault] = []
        self.problems: list[str] = []
        self.nodes: list[NodeMember] = []
        self.clients: list[ClientMember] = []
        self._operators = 0
        self.processes: dict[str, str] = {}  # by the ids of the nodes that they began as

    def build(self, random: Random) -> None:
        """Three schedulers and four workers, of which some are both."""
        both = random.randint(0, 2)
        roles: list[Sequence[Role]] = [("scheduler", "worker")] * both
        schedulers: list[Sequence[Role]] = [("scheduler",)] * (3 - both)
        workers: list[Sequence[Role]] = [("worker",)] * (4 - both)
        roles += schedulers + workers
        names = [f"n{number}" for number in range(1, len(roles) + 1)]
        self.nodes = [NodeMember(self, n, r) for n, r in zip(names, roles, strict=True)]
        pace, mix = random.uniform(0.5, 2.0), choose_mix(random)
        if "odd" in self.moves:
            mix |= choose_odd(Random(f"{self.seed} odd"))
        if "hung" in self.moves:
            mix |= hung.choose_mix(Random(f"{self.seed} hung"))
        if "keys" in self.moves:
            mix |= keyed.choose_mix(Random(f"{self.seed} keys"))
        if "quotas" in self.moves:
            mix |= quotas.choose_mix(Random(f"{self.seed} quotas"))
        if "resources" in self.moves:
            mix |= machines.choose_mix(Random(f"{self.seed} resources"))
        self.clients = [ClientMember(self, f"c{number}", pace, mix) for number in (1, 2)]

    def make_app(self) -> App:
        return make_app(self.settings, self.journal, self.moves)

    def boot(self) -> None:
        for member in (*self.nodes, *self.clients):
            member.boot()

    def note_end(self, name: str, task: asyncio.Task[None]) -> None:
        """A process that ends by an error of its own does nothing from then on: whatever it was to
        prove would go unproved, and nobody would see it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.problems.append(
                f"process {name} died of {error!r} in {Path(where.filename).name}:{where.lineno}"
            )

    def make_operator(self, tasks: Sequence[str]) -> Operator:
        """One for schedules and jobs; it is to run `on_behalf` of a process of its own."""
        random = Random(f"{self.seed} operator")
        return Operator(
            self.make_app(), random, self.loop.time, self.operations.append,
            pace=random.uniform(1.0, 4.0), tasks=tasks, moves=self.moves, spoil=self._spoil,
        )  # fmt: skip

    def make_run_operator(self) -> RunOperator:
        """One for runs of workflows; with a randomness of its own, as the other has."""
        random = Random(f"{self.seed} workflows")
        return RunOperator(
            self.make_app(), random, self.loop.time, self.operations.append,
            pace=random.uniform(0.5, 3.0),
        )  # fmt: skip

    def make_late_client(self) -> Client:
        """One that submits when everything is mended, and not before."""
        return Client(self.make_app(), Random(f"{self.seed} late"), self.submissions, 1.0, {})

    def make_share_operator(self) -> ShareOperator:
        random = Random(f"{self.seed} shares")
        return ShareOperator(self.make_app(), random, pace=random.uniform(1.0, 3.0))

    def make_unique_client(self, number: int) -> UniqueClient:
        random = Random(f"{self.seed} unique {number}")
        return UniqueClient(
            self.make_app(), random, self.loop.time, self.operations.append,
            pace=random.uniform(0.3, 1.5),
        )  # fmt: skip

    def make_drain_operator(self) -> DrainOperator:
        random = Random(f"{self.seed} drains")
        return DrainOperator(
            self.make_app(), random, self.loop.time, self.operations.append,
            lambda node: self.processes.get(str(node.id), ""), pace=random.uniform(5.0, 20.0),
        )  # fmt: skip

    def make_map_operator(self) -> MapOperator:
        random = Random(f"{self.seed} maps")
        return MapOperator(
            self.make_app(), random, self.loop.time, self.operations.append,
            pace=random.uniform(3.0, 10.0),
        )  # fmt: skip

    def make_sparing_operator(self) -> SparingOperator:
        random = Random(f"{self.seed} history")
        return SparingOperator(
            self.make_app(), random, self.loop.time, self.operations.append,
            pace=random.uniform(0.5, 2.0),
        )  # fmt: skip

    def make_function_operator(self) -> FunctionOperator:
        """One for durable functions. The machines get new code one after the other."""
        random = Random(f"{self.seed} functions")
        first = self.loop.time() + random.uniform(5, 60)
        self.journal.deployed = {each.name: first + random.uniform(0, 25) for each in self.nodes}
        return FunctionOperator(
            self.make_app(), random, self.loop.time, self.operations.append,
            pace=random.uniform(0.4, 2.0),
        )  # fmt: skip

    async def _spoil(self, name: str, way: str) -> None:
        """By somebody who has a console of the database's own machine."""
        schema, engine = self.settings.schema, self.gateway.engine
        engine.set_clock(self.loop.time())
        if not engine.ask(spoiling(schema, way), name):
            raise StoreUnavailable("somebody else holds its row")  # asked for again

    async def steer(self, action: Callable[[App], Awaitable[object]]) -> None:
        """An operator who tries until it works."""
        self._operators += 1
        await self.on_behalf(f"operator.{self._operators}", self._persist(action))

    async def _persist(self, action: Callable[[App], Awaitable[object]]) -> None:
        app = self.make_app()
        while True:
            try:
                await action(app)
                break
            except (StoreUnavailable, NotFound):  # no job has made that queue yet
                await asyncio.sleep(0.5)
        await app.close()

    def on_behalf(self, name: str, work: Any) -> asyncio.Task[Any]:
        """Run a coroutine as a process of its own, which no fault touches."""
        process = Process(name, self.seed)
        return self.loop.create_task(work, context=context_of(process))
