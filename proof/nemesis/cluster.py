"""Three schedulers, four workers, two clients, an operator, a server, and everything in between.

Protocol. `assembled` starts from nothing and leaves nothing: whatever it makes goes on one stack, which
is unwound at the end, at an exception and at Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec

from proof.nemesis.clocks import WallClock, find_library
from proof.nemesis.members import Member
from proof.nemesis.network import (
    Namespace,
    make_namespaces,
    missing_for_namespaces,
    remove_leftovers,
)
from proof.nemesis.proxy import Proxy
from proof.nemesis.server import Server

SCHEDULERS = ("s1", "s2", "s3")
WORKERS = ("w1", "w2", "w3", "w4")
CLIENTS = ("c1", "c2")
OPERATOR = "o1"
# libfaketime makes every look at the wall clock dearer, so not all have it.
CLOCKED = ("s1", "w1", "w2")
SKEWED = {"w1": 3600, "w2": -3600}

# A pause past the lease takes 4 s, not 15; and a dead line is noticed soon.
NODE_SETTINGS = {
    "heartbeat": 1.0, "missed_heartbeats": 3, "poll": 2.0, "concurrency": 60, "processes": 2,
    "grace": 4.0, "kill_grace": 1.0, "statement_timeout": 4.0, "connect_timeout": 4.0,
    "max_crashes": 3,
}  # fmt: skip
LEASE_SECONDS = NODE_SETTINGS["heartbeat"] * NODE_SETTINGS["missed_heartbeats"]
# A client gives up on an answer soon, and then asks again for long.
CLIENT_SETTINGS = {"statement_timeout": 0.5, "connect_timeout": 15.0}
OPERATOR_SETTINGS = {"statement_timeout": 4.0, "connect_timeout": 4.0}


class Cluster(msgspec.Struct):
    server: Server
    members: dict[str, Member]
    notes: list[str]  # what this machine doesn't allow

    @property
    def nodes(self) -> list[Member]:
        return [self.members[name] for name in (*SCHEDULERS, *WORKERS)]

    @property
    def clients(self) -> list[Member]:
        return [self.members[name] for name in CLIENTS]

    @property
    def operator(self) -> Member:
        return self.members[OPERATOR]

    def targets(self) -> dict[str, list[str]]:
        """What there is to break, by the groups that the plan knows."""
        nodes = [*SCHEDULERS, *WORKERS]
        clocks = [name for name in nodes if self.members[name].clock is not None]
        lines = [*nodes, *CLIENTS, *CLIENTS]
        return {"nodes": nodes, "workers": list(WORKERS), "lines": lines,
                "all_lines": [*lines, OPERATOR], "clocks": clocks, "server": ["server"]}  # fmt: skip

    def heal(self) -> None:
        for member in self.members.values():
            member.proxy.heal()
            if member.namespace is not None:
                member.namespace.heal()
            if member.clock is not None:
                member.clock.shift(0)

    async def all_live(self, seconds: float) -> None:
        """Until Rota itself knows a living node for each process."""
        connection = await self.server.connect()
        end = time.monotonic() + seconds
        try:
            while True:
                rows = await connection.fetch("select name from rota.node where state = 'live'")
                live = {row["name"].partition(":")[0] for row in rows}
                missing = [member.label for member in self.nodes if member.label not in live]
                if not missing:
                    return
                if time.monotonic() > end:
                    raise TimeoutError(f"not up after {seconds:.0f} s: {', '.join(missing)}")
                await asyncio.sleep(0.2)
        finally:
            await connection.close()


@contextlib.asynccontextmanager
async def assembled(
    folder: Path, environment: Mapping[str, str], *, network: bool, clocks: bool, skewed: bool,
    database_clock: bool,
) -> AsyncIterator[Cluster]:  # fmt: skip
    """The cluster with nothing started but its server."""
    notes = [f"removed what a killed run left: {name}" for name in remove_leftovers()]
    async with contextlib.AsyncExitStack() as undo:
        namespaces = _namespaces(undo, notes) if network else {}
        wrong = clocks or skewed
        library = find_library() if wrong or database_clock else None
        if (wrong or database_clock) and library is None:
            notes.append("clocks are left alone: there is no libfaketime")
        own = WallClock(library, folder / "clock-server") if library and database_clock else None
        server = Server(folder, own)
        undo.push_async_callback(server.stop)
        await server.start()
        members: dict[str, Member] = {}
        for name in (*SCHEDULERS, *WORKERS, *CLIENTS, OPERATOR):
            namespace = namespaces.get(name)
            proxy = Proxy(("127.0.0.1", server.port), seed=len(members))
            await proxy.open(namespace.gateway if namespace else "127.0.0.1")
            undo.push_async_callback(proxy.close)
            clock = None
            if library is not None and wrong and name in CLOCKED:
                always = SKEWED.get(name, 0) if skewed else 0
                clock = WallClock(library, folder / f"clock-{name}", always)
            settings = {
                **environment,
                **as_environment(_settings(name)),
                "NEMESIS_SERVER": server.url,
            }
            members[name] = Member(
                name, _arguments(name), folder, settings, proxy, namespace, clock
            )
            undo.push_async_callback(members[name].kill)
        yield Cluster(server, members, notes)


def _namespaces(undo: contextlib.AsyncExitStack, notes: list[str]) -> dict[str, Namespace]:
    if missing := missing_for_namespaces():
        notes.append(f"partitions by network namespaces are left out: {missing}")
        return {}
    names = (*SCHEDULERS, *WORKERS)
    made = make_namespaces(len(names))
    for namespace in made:
        undo.callback(namespace.remove)
    return dict(zip(names, made, strict=True))


def as_environment(settings: Mapping[str, float]) -> dict[str, str]:
    return {f"ROTA_{name.upper()}": str(value) for name, value in settings.items()}


def _settings(name: str) -> Mapping[str, float]:
    if name == OPERATOR:
        return OPERATOR_SETTINGS
    return CLIENT_SETTINGS if name in CLIENTS else NODE_SETTINGS


def _arguments(name: str) -> tuple[str, ...]:
    if name == OPERATOR:
        return ("operator",)
    if name in CLIENTS:
        return ("client",)
    return ("node", "scheduler" if name in SCHEDULERS else "worker")
