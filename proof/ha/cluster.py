"""A Patroni cluster: three machines with an etcd, a Patroni and a PostgreSQL each, and a front.

Protocol. Each machine is a network namespace with an address of its own. The front runs beside the
clients: haproxy, which asks every Patroni once a second whether it leads and closes what is open to one
that doesn't, or PgBouncer before that haproxy; or none, with all three addresses in the URL. A machine
that was killed keeps its disk, and is started again as a machine is that comes back.
"""

from __future__ import annotations

import asyncio
import csv
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal
from urllib.error import URLError
from urllib.request import Request, urlopen

import asyncpg
import msgspec

from proof.ha.network import Bridge, Machine
from proof.nemesis.network import missing_for_namespaces
from proof.services import free_port
from proof.waiting import eventually
from rota.store.embedded.account import Account, choose_account
from rota.store.embedded.server import find_binaries

Front = Literal["haproxy", "pgbouncer", "hosts"]
PATRONI = Path(__file__).parent.parent.parent / ".venv" / "patroni" / "bin"
COUNT = 3
# The shortest that Patroni takes: a lost leader is noticed after `ttl` seconds.
TIMES = {"ttl": 20, "loop_wait": 2, "retry_timeout": 3}
_PARAMETERS = {
    "max_connections": 150, "shared_buffers": "64MB", "unix_socket_directories": "",
    "timezone": "UTC", "wal_log_hints": "on", "max_wal_senders": 10, "log_min_messages": "warning",
}  # fmt: skip
_SYSTEM_PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def missing() -> str:
    """Return why there can be no such cluster on this machine; nothing if there can."""
    if not (PATRONI / "patroni").exists():
        return "there is no Patroni (make .venv/ha installs it)"
    for program in ("etcd", "haproxy", "setpriv"):
        if shutil.which(program, path=_SYSTEM_PATH) is None:
            return f"there is no {program}"
    if reason := missing_for_namespaces():
        return f"network namespaces can't be made: {reason}"
    return ""


def _choose_account(folder: Path) -> Account:
    """Return the account that PostgreSQL's programs run with, and that reaches Patroni's Python.

    Patroni starts processes of its own Python, which may be in a folder that is closed to others.
    """
    probe = folder / "probe"
    probe.mkdir(mode=0o700)
    account = choose_account(find_binaries(), folder, probe)
    start = ["/bin/sh", "-c", '"$1" -c "import patroni"', "sh", str(PATRONI / "python")]
    for capability in (account.capability, "dac_read_search", "dac_override"):
        account = Account(account.uid, account.gid, capability)
        if account.run(start, cwd=Path("/")).returncode == 0:
            break
    return account


class Member(msgspec.Struct):
    """A machine's state, as its cluster sees it."""

    name: str
    role: str
    state: str


class Node:
    """One machine: its programs, and what can be asked of its Patroni."""

    def __init__(self, machine: Machine, number: int, folder: Path) -> None:
        self.machine, self.name = machine, f"m{number + 1}"
        self.address = machine.address
        self._folder = folder / self.name
        self._folder.mkdir(mode=0o711)
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def etcd_peer(self) -> str:
        return f"http://{self.address}:2380"

    def configure(self, others: Sequence[Node], account: Account, synchronous: bool) -> None:
        data = self._folder / "data"
        data.mkdir(mode=0o700)
        trust = [f"host {name} all 0.0.0.0/0 trust" for name in ("all", "replication")]
        self._account = account
        self._cluster = ",".join(f"{node.name}={node.etcd_peer}" for node in others)
        settings = {
            "scope": "rota", "name": self.name,
            "restapi": {"listen": f"{self.address}:8008", "connect_address": f"{self.address}:8008"},
            "etcd3": {"hosts": [f"{node.address}:2379" for node in others]},
            "log": {"level": "INFO"},
            "bootstrap": {
                "dcs": {
                    **TIMES, "maximum_lag_on_failover": 16 * 1024 * 1024,
                    "synchronous_mode": synchronous,
                    "postgresql": {"use_pg_rewind": True, "parameters": _PARAMETERS},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"{self.address}:5432", "connect_address": f"{self.address}:5432",
                "data_dir": str(data / "pg"), "bin_dir": str(find_binaries()),
                "pgpass": str(data / "pgpass"), "pg_hba": trust,
                "authentication": {
                    "superuser": {"username": "postgres"}, "replication": {"username": "postgres"},
                    "rewind": {"username": "postgres"},
                },
                "parameters": _PARAMETERS,
            },
        }  # fmt: skip
        # JSON is YAML.
        (self._folder / "patroni.yml").write_text(json.dumps(settings, indent=1))
        (self._folder / "etcd").mkdir(mode=0o700)
        for path in (self._folder, data, self._folder / "etcd"):
            account.give(path)

    def start(self) -> None:
        """Start the machine's programs, on the disk that it has."""
        self._processes.clear()
        own = f"http://{self.address}:2379"
        self._spawn(
            "etcd", "etcd", "--name", self.name, "--data-dir", str(self._folder / "etcd"),
            "--listen-client-urls", own, "--advertise-client-urls", own,
            "--listen-peer-urls", self.etcd_peer, "--initial-advertise-peer-urls", self.etcd_peer,
            "--initial-cluster", self._cluster, "--initial-cluster-token", "rota",
        )  # fmt: skip
        self._spawn("patroni", str(PATRONI / "patroni"), str(self._folder / "patroni.yml"))

    def _spawn(self, name: str, *command: str) -> None:
        user = ["setpriv", f"--reuid={self._account.uid}", f"--regid={self._account.gid}",
                "--clear-groups", "--"]  # fmt: skip
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "LC_", "LANG"))}
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*self.machine.prefix, *(self._account._prefix() or user), *command],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self._folder,
                env={**kept, "LC_ALL": "C", "PATH": _SYSTEM_PATH},
                start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)

    def reap(self) -> None:
        """Wait for the programs of a machine that was killed."""
        for process in self._processes:
            process.wait()

    async def ask(self, path: str, body: Any = None) -> tuple[int, str]:
        """Return the status and the text that its Patroni answers; 0 if it doesn't."""
        return await asyncio.to_thread(self._ask, path, body)

    def _ask(self, path: str, body: Any) -> tuple[int, str]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://{self.address}:8008{path}", data)
        try:
            with urlopen(request, timeout=2 if body is None else 60) as answer:
                return answer.status, answer.read().decode()
        except URLError as error:
            return getattr(error, "code", 0), str(error)
        except OSError as error:
            return 0, str(error)

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.address}/postgres"

    async def leads(self) -> bool:
        """Ask its Patroni, and its PostgreSQL, which may be dead before its Patroni knows."""
        if (await self.ask("/primary"))[0] != 200:
            return False
        try:
            connection = await asyncpg.connect(self.url, timeout=2)
            try:
                return not await connection.fetchval("select pg_is_in_recovery()", timeout=2)
            finally:
                connection.terminate()
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return False


class Cluster:
    def __init__(self, folder: Path, *, synchronous: bool, front: Front = "haproxy") -> None:
        self.folder, self._front, self._synchronous = folder, front, synchronous
        self._bridge = Bridge(COUNT)
        self.nodes = [Node(m, number, folder) for number, m in enumerate(self._bridge.machines)]
        self._fronts: list[subprocess.Popen[bytes]] = []
        self.url = ""

    async def start(self) -> None:
        account = _choose_account(self.folder)
        self._bridge.make()
        for node in self.nodes:
            node.configure(self.nodes, account, self._synchronous)
            node.start()
        await self.whole(180)
        self._start_front(account)
        await eventually(self._answers, 60, "an answer through the front")

    async def _answers(self) -> bool:
        if self._front != "hosts" and not self._has_looked():
            return False
        try:
            # Behind PgBouncer nothing may be prepared.
            await (await asyncpg.connect(self.url, timeout=5, statement_cache_size=0)).close()
        except (OSError, TimeoutError, asyncpg.PostgresError):
            return False
        return True

    def _has_looked(self) -> bool:
        """Return whether haproxy knows who leads: at first it takes all for those that do."""
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.connect(str(self.folder / "haproxy.sock"))
                line.sendall(b"show stat\n")
                text = line.makefile().read()
        except OSError:
            return False
        rows = csv.DictReader(text.removeprefix("# ").splitlines())
        states = [row["status"] for row in rows if row["svname"] in {n.name for n in self.nodes}]
        return sorted(states) == ["DOWN", "DOWN", "UP"]

    def _start_front(self, account: Account) -> None:
        hosts = ",".join(f"{node.address}:5432" for node in self.nodes)
        if self._front == "hosts":
            self.url = f"postgresql://postgres@{hosts}/postgres"
            return
        port = free_port()
        servers = "".join(
            f"    server {node.name} {node.address}:5432 check port 8008\n" for node in self.nodes
        )
        settings = self.folder / "haproxy.cfg"
        settings.write_text(
            f"global\n    maxconn 500\n    stats socket {self.folder / 'haproxy.sock'}\n"
            "defaults\n    mode tcp\n    timeout connect 2s\n    timeout client 1d\n"
            "    timeout server 1d\n    timeout check 1s\n"
            f"listen primary\n    bind 127.0.0.1:{port}\n    option httpchk OPTIONS /primary\n"
            "    http-check expect status 200\n    default-server inter 1s fall 2 rise 1 "
            f"on-marked-down shutdown-sessions\n{servers}"
        )
        self._spawn("haproxy", "haproxy", "-db", "-f", str(settings))
        if self._front == "pgbouncer":
            port = self._start_pgbouncer(port, account)
        self.url = f"postgresql://postgres@127.0.0.1:{port}/postgres"

    def _start_pgbouncer(self, target: int, account: Account) -> int:
        port, settings = free_port(), self.folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={target} dbname=postgres user=postgres\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
            "pool_mode = transaction\nmax_client_conn = 300\ndefault_pool_size = 40\n"
            "server_login_retry = 1\nunix_socket_dir =\n"
        )
        self._spawn("pgbouncer", "setpriv", f"--reuid={account.uid}", f"--regid={account.gid}",
                    "--clear-groups", "--", "pgbouncer", str(settings))  # fmt: skip
        return port

    def _spawn(self, name: str, *command: str) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PATH": _SYSTEM_PATH},
                start_new_session=True,
            )  # fmt: skip
        self._fronts.append(process)

    def stop(self) -> None:
        for process in self._fronts:
            process.kill()
            process.wait()
        self._bridge.remove()
        for node in self.nodes:
            with suppress(AttributeError):
                node.reap()

    # -- what it is like

    async def leader(self) -> Node:
        """Wait for the one that leads, and return it."""
        found: list[Node] = []

        async def one_leads() -> bool:
            found[:] = [node for node in self.nodes if await node.leads()]
            return len(found) == 1

        await eventually(one_leads, 120, "exactly one leader")
        return found[0]

    async def whole(self, seconds: float = 120) -> None:
        """Wait until one leads, the others follow it, and commits wait for one of them if they shall."""
        try:
            await eventually(self._is_whole, seconds, "a cluster of three")
        except AssertionError as error:
            raise AssertionError(
                f"{error}: {[await n.ask('/cluster') for n in self.nodes]}"
            ) from None

    async def _is_whole(self) -> bool:
        for node in self.nodes:
            status, text = await node.ask("/cluster")
            if status != 200:
                return False
            members = msgspec.convert(json.loads(text)["members"], list[Member])
            roles = sorted(member.role for member in members)
            states = sorted(member.state for member in members)
            if states != ["running", "streaming", "streaming"] or roles[0] != "leader":
                return False
            if ("sync_standby" in roles) != self._synchronous:
                return False
        return True
