"""etcd and ZooKeeper on three machines that are cut apart while a cluster works: `make quorums`.

Each machine is a network namespace with a member of the service and a scheduler of Rota beside it, which
knows all three addresses. PostgreSQL and a worker are outside, and are reached by all: what is cut is
the service alone. One machine is cut off from the other two: a follower's, the leader's, the leader's
in one direction only (it sends, and hears nothing); then all three from each other, so that nobody has
a majority. In each state a scheduler is killed, and its shards get a new owner. Asked is the same as in
`proof.coordinators`: what was lost, what was doubled, how late, how long.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar
from urllib.request import Request, urlopen

import asyncpg
import msgspec

from proof.coordinators import CoordinatorTrial, Outcome, conduct, told
from proof.ha.network import Bridge, Machine
from proof.nemesis.network import missing_for_namespaces
from proof.services import Etcd, Process, ZooKeeper
from proof.takeover import Trial
from proof.waiting import eventually

_COUNT = 3
_CUT_FOR = 6.0  # seconds: twice a lease, so that what depends on one has happened


class Member:
    """A member of the service, on a machine of its own."""

    name: ClassVar[str]
    program: ClassVar[type[Process]]
    port: ClassVar[int]

    def __init__(self, machine: Machine, number: int, folder: Path) -> None:
        self.machine, self.number = machine, number
        self.folder = folder / f"{self.name}-{number}"
        self.folder.mkdir()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"{self.machine.address}:{self.port}"

    def command(self, members: list[Member]) -> list[str]:
        raise NotImplementedError

    def leads(self) -> bool:
        """Raise OSError if it doesn't answer."""
        raise NotImplementedError

    def start(self, members: list[Member]) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self.machine.prefix, *self.command(members)], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, cwd=self.folder, start_new_session=True,
            )  # fmt: skip

    def reap(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class EtcdMember(Member):
    name, program, port = "etcd", Etcd, 2379

    @property
    def _peer(self) -> str:
        return f"http://{self.machine.address}:2380"

    def command(self, members: list[Member]) -> list[str]:
        own = f"http://{self.address}"
        peers = [f"m{m.number}={m._peer}" for m in members if isinstance(m, EtcdMember)]
        return [
            Etcd.found() or "", "--name", f"m{self.number}", "--data-dir", str(self.folder / "data"),
            "--listen-client-urls", own, "--advertise-client-urls", own,
            "--listen-peer-urls", self._peer, "--initial-advertise-peer-urls", self._peer,
            "--initial-cluster", ",".join(peers),
        ]  # fmt: skip

    def leads(self) -> bool:
        request = Request(f"http://{self.address}/v3/maintenance/status", b"{}")
        with urlopen(request, timeout=2) as answer:
            said = msgspec.json.decode(answer.read())
        return bool(said.get("leader") == said["header"]["member_id"])


class ZooKeeperMember(Member):
    name, program, port = "zookeeper", ZooKeeper, 2181

    def command(self, members: list[Member]) -> list[str]:
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        (data / "myid").write_text(f"{self.number + 1}")
        servers = "".join(f"server.{m.number + 1}={m.machine.address}:2888:3888\n" for m in members)
        settings = self.folder / "zoo.cfg"
        settings.write_text(
            f"tickTime=1000\ninitLimit=10\nsyncLimit=3\ndataDir={data}\nclientPort={self.port}\n"
            f"clientPortAddress={self.machine.address}\nadmin.enableServer=false\n"
            f"maxClientCnxns=0\n4lw.commands.whitelist=srvr\n{servers}"
        )
        return [
            ZooKeeper.found() or "", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", "/usr/share/java/zookeeper.jar",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings),
        ]  # fmt: skip

    def leads(self) -> bool:
        with socket.create_connection((self.machine.address, self.port), timeout=2) as line:
            line.settimeout(2)
            line.sendall(b"srvr")
            said = b"".join(iter(lambda: line.recv(4096), b""))
        return b"Mode: leader" in said


KINDS: dict[str, type[Member]] = {"etcd": EtcdMember, "zookeeper": ZooKeeperMember}


def missing(name: str) -> str | None:
    """Return why there can be no such trial on this machine; nothing if there can."""
    if reason := KINDS[name].program.missing():
        return reason
    if reason := missing_for_namespaces():
        return f"network namespaces can't be made: {reason}"
    return None


class QuorumTrial(CoordinatorTrial):
    def __init__(self, trial: Trial, connection: asyncpg.Connection, members: list[Member]) -> None:
        self.members = members
        super().__init__(trial, connection, None)

    def start_scheduler(self, place: int) -> subprocess.Popen[bytes]:
        return self.trial.start("scheduler", self.members[place].machine.prefix)

    async def leader(self) -> int:
        """Wait for the one that leads, and return its place."""
        return await eventually(self._leader, 120, "a leader")

    async def _leader(self) -> int | None:
        # From 1, so that the first one counts as found.
        for member in self.members:
            with suppress(OSError):
                if await asyncio.to_thread(member.leads):
                    return member.number + 1
        return None

    def _others(self, place: int) -> list[str]:
        return [m.machine.address for m in self.members if m.number != place]

    async def _while_cut(self, place: int, *, sends: bool = False) -> None:
        """Cut this machine off from the other two; kill a scheduler on each side."""
        self.members[place].machine.cut_from(self._others(place), sends=sends)
        await asyncio.sleep(_CUT_FOR)
        majority = (place + 1) % _COUNT
        self.found.takeovers.append(await self.kill_a_scheduler(majority))
        self.found.takeover_while_away.append(await self.kill_a_scheduler(place))
        await asyncio.sleep(_CUT_FOR)
        self.members[place].machine.join()
        await self.wait_until_used()

    async def follower_cut(self) -> None:
        await self._while_cut((await self.leader() - 1 + 1) % _COUNT)

    async def leader_cut(self) -> None:
        await self._while_cut(await self.leader() - 1)

    async def leader_deaf(self) -> None:
        await self._while_cut(await self.leader() - 1, sends=True)

    async def all_apart(self) -> None:
        for member in self.members:
            member.machine.cut_from(self._others(member.number))
        await asyncio.sleep(_CUT_FOR)
        self.found.takeover_while_away.append(await self.kill_a_scheduler())
        await asyncio.sleep(_CUT_FOR)
        for member in self.members:
            member.machine.join()
        await self.wait_until_used()


Stretch = Callable[[QuorumTrial], Callable[[], Awaitable[None]]]
CUTS: dict[str, Stretch] = {
    "follower cut": lambda one: one.follower_cut,
    "leader cut": lambda one: one.leader_cut,
    "leader deaf": lambda one: one.leader_deaf,
    "all apart": lambda one: one.all_apart,
}


async def run(name: str, cuts: list[str] | None = None) -> Outcome:
    folder = Path(tempfile.mkdtemp(prefix="rota-"))
    folder.chmod(0o711)
    bridge = Bridge(_COUNT)
    members: list[Member] = []

    async def break_it(one: CoordinatorTrial) -> None:
        assert isinstance(one, QuorumTrial)
        await one.wait_until_used()
        if cuts is None:
            await one.stretch("undisturbed", one.undisturbed)
        for cut in cuts or CUTS:
            await one.stretch(cut, CUTS[cut](one))

    try:
        bridge.make()
        kind = KINDS[name]
        members += [kind(m, number, folder) for number, m in enumerate(bridge.machines)]
        for member in members:
            member.start(members)
        _wait_for_leader(members)
        url = f"{name}://{','.join(member.address for member in members)}"
        return await conduct(
            folder, url, lambda trial, connection: QuorumTrial(trial, connection, members), break_it
        )
    finally:
        bridge.remove()
        for member in members:
            member.reap()
        if not os.environ.get("ROTA_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


def _wait_for_leader(members: list[Member]) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        for member in members:
            with suppress(OSError):
                if member.leads():
                    return
        time.sleep(0.2)
    logs = [(member.folder / "log").read_text()[-600:] for member in members]
    raise AssertionError(f"no leader within 120 s: {logs}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m proof.quorums", description=__doc__)
    parser.add_argument("services", nargs="*", default=list(KINDS))
    parser.add_argument("--cuts", nargs="*", choices=list(CUTS), help="only these")
    options = parser.parse_args()
    # Asked to end, it leaves no server and no namespace behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    broken = 0
    for name in options.services:
        if reason := missing(name):
            print(f"{name}: left out, {reason}")
            continue
        found = asyncio.run(run(name, options.cuts))
        broken += found.violations
        print(told(f"{name} on three machines", found), flush=True)
    sys.exit(broken > 0)


if __name__ == "__main__":
    main()
