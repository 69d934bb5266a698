"""The services that an installation may plug in, as real processes to be broken: coordinators and
brokers.

Each listens on the loopback alone, keeps its data in a folder of its own, and is killed, paused, wiped
and restarted by its process id. `missing()` says why one can't be had here.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar, Protocol
from urllib.request import urlopen


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Service(Protocol):
    """What a trial asks of a service."""

    name: str
    url: str

    def start(self) -> None: ...
    def kill(self) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def wipe(self) -> None: ...


class Process:
    """A server that is one process."""

    name: ClassVar[str]
    program: ClassVar[str]
    seconds_to_start: ClassVar[float] = 300.0  # on a machine that does much else

    def __init__(self, folder: Path) -> None:
        self.folder = folder / f"{self.name}-{free_port()}"
        self.folder.mkdir(parents=True)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str | None:
        if cls.found() is None:
            return f"there is no {cls.program} here"
        return None

    @classmethod
    def found(cls) -> str | None:
        return shutil.which(cls.program) or shutil.which(cls.program, path="/usr/sbin:/sbin")

    @property
    def url(self) -> str:
        return f"{self.name}://127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def command(self) -> list[str]:
        raise NotImplementedError

    def environment(self) -> dict[str, str]:
        return {}

    def ready(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True

    def start(self) -> None:
        self.data.mkdir(exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
                env={**os.environ, **self.environment()},
            )  # fmt: skip
        end = time.monotonic() + self.seconds_to_start
        while True:
            try:
                if self.ready():
                    return
            except OSError:
                pass
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < end, f"{self.name} didn't start: {self.folder / 'log'}"
            time.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self.resume()
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Lose everything, and be there again."""
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        self.start()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Etcd(Process):
    name, program = "etcd", "etcd"
    scheme: str = "http"
    extra: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.peer_port = free_port()

    def command(self) -> list[str]:
        here, peer = f"{self.scheme}://127.0.0.1:{self.port}", f"http://127.0.0.1:{self.peer_port}"
        return [
            self.found() or "", "--data-dir", str(self.data), "--name", "one",
            "--listen-client-urls", here, "--advertise-client-urls", here,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"one={peer}", "--heartbeat-interval", "50",
            "--election-timeout", "500",
            *self.extra,
        ]  # fmt: skip

    def ready(self) -> bool:
        if self.scheme == "https":
            return super().ready()
        with urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1) as answer:
            return b"true" in answer.read()


class ZooKeeper(Process):
    name, program = "zookeeper", "java"

    @classmethod
    def missing(cls) -> str | None:
        if not Path("/usr/share/java/zookeeper.jar").exists():
            return "there is no /usr/share/java/zookeeper.jar here (Debian: zookeeper)"
        return super().missing()

    def command(self) -> list[str]:
        settings = self.folder / "zoo.cfg"
        settings.write_text(
            f"tickTime=1000\ndataDir={self.data}\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            "4lw.commands.whitelist=srvr\n"
        )
        return [
            self.found() or "", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", "/usr/share/java/zookeeper.jar",
            "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings),
        ]  # fmt: skip

    def ready(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as line:
            line.sendall(b"srvr")  # ruok is answered before it serves anybody
            return b"Mode:" in b"".join(iter(lambda: line.recv(4096), b""))


class Consul(Process):
    name, program = "consul", "consul"

    @classmethod
    def found(cls) -> str | None:
        built = Path(sys.prefix) / "consul" / cls.program  # by make, where there is Go
        return os.environ.get("ROTA_TEST_CONSUL") or super().found() or (
            str(built) if built.exists() else None
        )  # fmt: skip

    def command(self) -> list[str]:
        serf, rpc, grpc = (free_port() for _ in range(3))
        return [
            self.found() or "", "agent", "-server", "-bootstrap-expect=1", "-node=one",
            "-bind=127.0.0.1", "-client=127.0.0.1", f"-data-dir={self.data}",
            f"-http-port={self.port}", f"-serf-lan-port={serf}", "-serf-wan-port=-1",
            f"-server-port={rpc}", f"-grpc-port={grpc}", "-dns-port=-1", "-log-level=warn",
            "-disable-host-node-id", "-hcl", "performance { raft_multiplier = 1 }",
        ]  # fmt: skip

    def ready(self) -> bool:
        with urlopen(f"http://127.0.0.1:{self.port}/v1/status/leader", timeout=1) as answer:
            return len(answer.read()) > 4


class Redis(Process):
    name, program = "redis", "redis-server"
    persistent = True
    extra: tuple[str, ...] = ()

    def command(self) -> list[str]:
        kept = ["--appendonly", "yes", "--appendfsync", "always"] if self.persistent else []
        return [
            self.found() or "", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.data),
            "--save", "", *kept, *self.extra,
        ]  # fmt: skip

    def ready(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as line:
            line.sendall(b"PING\r\n")
            return line.recv(16).startswith(b"+PONG")


class Kafka(Process):
    """One process that is broker and controller. Its jars come from Maven: see the Makefile."""

    name, program = "kafka", "java"
    jars = Path(sys.prefix) / "kafka"
    extra: tuple[str, ...] = ()  # lines of its settings
    protocol: str = "PLAINTEXT"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._control = free_port()

    @classmethod
    def missing(cls) -> str | None:
        if not list(cls.jars.glob("kafka_*.jar")):
            return "there are no jars of Kafka in .venv/kafka (make gets them with Maven)"
        if (java := cls.found()) is None:
            return "there is no java here"
        said = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False
        ).stderr
        version = re.search(r'version "(\d+)', said)
        if version is None or int(version[1]) < 17:
            return "Kafka 4 needs Java 17 or newer"
        return None

    def _java(self, *command: str) -> list[str]:
        return [
            self.found() or "", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "-cp", f"{self.jars}/*", *command,
        ]  # fmt: skip

    def command(self) -> list[str]:
        settings = self.folder / "server.properties"
        settings.write_text("\n".join([
            "process.roles=broker,controller", "node.id=1",
            f"controller.quorum.voters=1@127.0.0.1:{self._control}",
            f"listeners=CLIENTS://127.0.0.1:{self.port},CONTROL://127.0.0.1:{self._control}",
            f"advertised.listeners=CLIENTS://127.0.0.1:{self.port}",
            "controller.listener.names=CONTROL", "inter.broker.listener.name=CLIENTS",
            f"listener.security.protocol.map=CLIENTS:{self.protocol},CONTROL:PLAINTEXT",
            f"log.dirs={self.data}", "auto.create.topics.enable=false",
            "offsets.topic.replication.factor=1", "offsets.topic.num.partitions=1",
            "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
            "transaction.state.log.num.partitions=1", "log.retention.check.interval.ms=500",
            "log.initial.task.delay.ms=500", "group.initial.rebalance.delay.ms=0",
            # A broker that was killed is let in again when its session before is over: 9 s.
            "broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=500", *self.extra, "",
        ]))  # fmt: skip
        if not (self.data / "meta.properties").exists():
            subprocess.run(
                self._java("kafka.tools.StorageTool", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c",
                           str(settings)),
                check=True, capture_output=True,
            )  # fmt: skip
        return self._java("kafka.Kafka", str(settings))


class RabbitMQ(Process):
    """RabbitMQ, with a port mapper of its own: by itself it starts one that stays behind."""

    name, program = "amqp", "rabbitmq-server"
    _script = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    extra: tuple[str, ...] = ()  # lines of its settings

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._names, self._others = free_port(), free_port()
        self._mapper: subprocess.Popen[bytes] | None = None

    @classmethod
    def missing(cls) -> str | None:
        if not cls._script.exists():
            return f"there is no {cls._script} here (Debian: rabbitmq-server)"
        return None

    def command(self) -> list[str]:
        (self.folder / "plugins").write_text("[].")
        lines = ("loopback_users.guest = true", *self.extra, "")
        (self.folder / "rabbit.conf").write_text("\n".join(lines))
        if self._mapper is None:
            self._mapper = subprocess.Popen(
                ["epmd", "-port", str(self._names), "-address", "127.0.0.1"],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        return [str(self._script)]

    def environment(self) -> dict[str, str]:
        return {
            "RUNNING_UNDER_SYSTEMD": "1",  # the server is our own child, and no script's
            "HOME": str(self.folder), "ERL_EPMD_PORT": str(self._names),
            "ERL_EPMD_ADDRESS": "127.0.0.1", "RABBITMQ_NODENAME": f"rota{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1", "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._others), "RABBITMQ_MNESIA_BASE": str(self.data),
            "RABBITMQ_LOGS": "-", "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbit"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 -kernel inet_dist_use_interface {127,0,0,1}",
        }  # fmt: skip

    def control(self, *command: str) -> None:
        """Run a command of rabbitmqctl."""
        subprocess.run(
            [str(self._script.with_name("rabbitmqctl")), "-n", f"rota{self.port}@localhost", *command],
            env={**os.environ, **self.environment()}, check=True, capture_output=True, timeout=60,
        )  # fmt: skip

    def ready(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as line:
            line.sendall(b"AMQP\x00\x00\x09\x01")
            return line.recv(1) == b"\x01"

    def knows_its_streams(self) -> bool:
        """Say whether streams outlive a kill.

        Within the first second after its first stream was made, RabbitMQ 3.10 has not yet written down
        that it has a coordinator of streams. If it is killed then, it never finds that stream again.
        """
        names = self.data.rglob("names.dets")
        return any(b"rabbit_stream_coordinator" in each.read_bytes() for each in names)

    def stop(self) -> None:
        super().stop()
        if self._mapper is not None:
            self._mapper.kill()
            self._mapper.wait()


class Nats(Process):
    name, program = "nats", "nats-server"
    extra: tuple[str, ...] = ()  # lines of its settings

    @classmethod
    def found(cls) -> str | None:
        beside = Path(sys.executable).with_name(cls.program)
        return str(beside) if beside.exists() else super().found()

    def command(self) -> list[str]:
        settings = self.folder / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            "max_payload: 8MB\n"
            f'jetstream {{ store_dir: "{self.data}", sync_interval: always }}\n'
            + "\n".join(self.extra)
        )
        return [self.found() or "", "-c", str(settings)]

    def ready(self) -> bool:
        with socket.create_connection(("127.0.0.1", self.port), timeout=1) as line:
            return line.recv(4) == b"INFO"
