"""Workers by a broker beside workers over HTTP and Celery: `python -m bench.dispatch redis rabbitmq`.

Two worker processes each, on one broker; Redis without persistence. Rota by a broker: one relay,
coroutines, 100 at a time. Rota over HTTP: one server, the reference worker of examples/http_worker
(threads, 16 at a time), once. Celery, on Redis and RabbitMQ: the prefork pool with two processes, a
prefetch of 128, acknowledged early, results ignored. Celery has no transport
for NATS, and an experimental one for Kafka that needs another client: they are measured alone.

The rate is that of jobs that do nothing and are all there at the beginning, from the start of the first
to the start of the last. Processor time is what was used meanwhile, for each job: by workers, by the
relay or the server, by the broker and by PostgreSQL. Pick-up is the time from before a submit to the
start of the handler, with 50 submits a second. PostgreSQL writes to disk as always. Rounds are
interleaved.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bench.ground import cpu_of
from bench.support import database
from proof.services import Kafka, Nats, Process, RabbitMQ, Redis, free_port
from rota import App

JOURNAL = os.environ.get("BENCH_JOURNAL", "")
SECRET = "a secret of relays and workers that is long enough"
_file: int | None = None

app = App()


def note(sent: float) -> None:
    """Write when a handler began, and when its job was submitted."""
    global _file  # noqa: PLW0603 - opened once in each process
    if _file is None:
        _file = os.open(JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(_file, f"{time.time()} {sent}\n".encode())


@app.task
async def noop(sent: float) -> None:
    note(sent)


_CELERY = """
import os, sys
from celery import Celery
from bench.dispatch import note
app = Celery("bench", broker=os.environ["BENCH_BROKER"])
app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=128, worker_send_task_events=False,
                broker_connection_retry_on_startup=True, worker_disable_rate_limits=True)
@app.task(name="noop")
def noop(sent): note(sent)
if __name__ == "__main__":
    app.worker_main(["worker", "--pool", "prefork", "--concurrency", "2", "--without-gossip",
                     "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"])
"""
_HTTP = """
import sys
sys.path.insert(0, "examples/http_worker")
import worker
from bench.dispatch import note
worker.HANDLERS["noop"] = lambda job: note(job.payload["sent"])
worker.TASKS[:] = ["noop"]
one = worker.Worker()
while True: one.claim()
"""
_START = [sys.executable, "-c", "from rota.cli import main; main()", "start"]


SERVICES: dict[str, type[Process]] = {
    "redis": Redis, "rabbitmq": RabbitMQ, "nats": Nats, "kafka": Kafka,
}  # fmt: skip
PARTS = ("workers", "relay or server", "broker", "PostgreSQL")


class Bench:
    """One system: `running` starts its processes, `submit` sends jobs."""

    def __init__(self, folder: Path, service: Process, name: str, postmaster: int) -> None:
        self.name = name
        self.journal = folder / f"{self.name.replace(' ', '-')}.journal"
        self.environment = {
            **os.environ, "BENCH_JOURNAL": str(self.journal), "PYTHONPATH": f"{ROOT}/src:{ROOT}",
            "ROTA_DISPATCH_SECRET": SECRET,
            "BENCH_BROKER": f"redis://127.0.0.1:{service.port}/1" if service.name == "redis"
                            else f"{service.url}//",
        }  # fmt: skip
        self.service, self.postmaster = service, postmaster
        self._workers: list[int] = []
        self._between: list[int] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        processes = [
            subprocess.Popen(command, env={**self.environment, **more}, cwd=ROOT,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            for command, more in self.commands()
        ]  # fmt: skip
        self._between = [p.pid for p in processes if "--role" in p.args]  # type: ignore[operator]
        self._workers = [p.pid for p in processes if p.pid not in self._between]
        try:
            yield
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)

    def commands(self) -> list[tuple[list[str], dict[str, str]]]:
        raise NotImplementedError

    async def submit(self, count: int) -> None:
        raise NotImplementedError

    def began(self) -> list[tuple[float, float]]:
        if not self.journal.exists():
            return []
        lines = self.journal.read_text().splitlines()
        return [(float(at), float(sent)) for at, sent in (line.split() for line in lines)]

    def count(self) -> int:
        return self.journal.read_bytes().count(b"\n") if self.journal.exists() else 0

    async def wait(self, count: int) -> None:
        while self.count() < count:
            await asyncio.sleep(0.1)

    def used(self) -> list[float]:
        """Return the processor seconds so far of each of PARTS."""
        broker = self.service._process
        assert broker is not None
        return [
            sum(map(cpu_of, self._workers)), sum(map(cpu_of, self._between)), cpu_of(broker.pid),
            cpu_of(self.postmaster),
        ]  # fmt: skip

    async def rate(self, jobs: int) -> tuple[float, list[float]]:
        """Return jobs a second, and the microseconds of each of PARTS for a job."""
        self.journal.unlink(missing_ok=True)
        await self.submit(jobs)
        with self.running():
            await self.wait(1)
            before, began = self.used(), self.count()
            await self.wait(jobs)
            used = [after - first for after, first in zip(self.used(), before, strict=True)]
        moments = sorted(at for at, _ in self.began())
        each = [seconds / (jobs - began) * 1e6 for seconds in used]
        return (jobs - 1) / (moments[-1] - moments[0]), each

    async def pick_up(self, jobs: int) -> list[float]:
        self.journal.unlink(missing_ok=True)
        await self.submit(20)
        with self.running():
            await self.wait(20)
            await asyncio.sleep(1)
            for _ in range(jobs):
                await asyncio.sleep(0.02)
                await self.submit(1)
            await self.wait(jobs + 20)
        return sorted(at - sent for at, sent in self.began()[20:])


class ByBroker(Bench):
    def commands(self) -> list[tuple[list[str], dict[str, str]]]:
        url = {"ROTA_DISPATCH": f"{self.service.url}/rota" if self.service.name == "redis"
                                else self.service.url}  # fmt: skip
        worker = ([*_START, "bench.dispatch:app"], url)
        return [([*_START, "--role", "relay"], url), worker, worker]

    async def submit(self, count: int) -> None:
        now = time.time()
        if count == 1:
            await noop.submit(sent=now)
        else:
            for at in range(0, count, 5000):
                await noop.submit_many([{"sent": now}] * min(5000, count - at))


class OverHttp(ByBroker):
    def __init__(self, folder: Path, service: Process, postmaster: int, token: str) -> None:
        super().__init__(folder, service, "Rota over HTTP", postmaster)
        self._token, self._port = token, free_port()

    def commands(self) -> list[tuple[list[str], dict[str, str]]]:
        url = {"ROTA_URL": f"http://127.0.0.1:{self._port}", "ROTA_TOKEN": self._token}
        worker = ([sys.executable, "-c", _HTTP], {**url, "ROTA_SLOTS": "16"})
        server = [*_START, "--role", "server", "--port", str(self._port)]
        return [(server, {}), worker, worker]


class OnCelery(Bench):
    def __init__(self, folder: Path, service: Process, name: str, postmaster: int) -> None:
        super().__init__(folder, service, name, postmaster)
        (folder / "celery_app.py").write_text(_CELERY)
        self.environment["PYTHONPATH"] += f":{folder}"
        from celery import Celery

        self._app = Celery("bench", broker=self.environment["BENCH_BROKER"])

    def commands(self) -> list[tuple[list[str], dict[str, str]]]:
        return [([sys.executable, "-m", "celery_app"], {})]

    async def submit(self, count: int) -> None:
        with self._app.connection_for_write() as line, self._app.amqp.Producer(line) as producer:
            for _ in range(count):
                self._app.send_task("noop", (time.time(),), producer=producer, ignore_result=True)


def new_token() -> str:
    command = [*_START[:-1], "tokens", "create", "bench", "--role", "worker"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout.strip().splitlines()[-1]


async def measure(folder: Path, service: Process, broker: str, postmaster: int, given: Any) -> None:
    token = await asyncio.to_thread(new_token)
    makers: list[Callable[[], Bench]] = [
        lambda: ByBroker(folder, service, f"Rota by {broker}", postmaster),
    ]
    if broker == given.brokers[0]:
        makers.append(lambda: OverHttp(folder, service, postmaster, token))
    if broker in ("redis", "rabbitmq"):
        makers.append(lambda: OnCelery(folder, service, f"Celery on {broker}", postmaster))
    rates: dict[str, list[float]] = {}
    used: dict[str, list[list[float]]] = {}
    latencies: dict[str, list[float]] = {}
    for _ in range(given.rounds):
        for make in makers:
            bench = make()
            jobs = given.jobs // 10 if isinstance(bench, OverHttp) else given.jobs
            rate, each = await bench.rate(jobs)
            rates.setdefault(bench.name, []).append(rate)
            used.setdefault(bench.name, []).append(each)
            latencies.setdefault(bench.name, []).extend(await bench.pick_up(given.singles))
            print(f"{bench.name}: {rate:,.0f}/s, {sum(each):,.0f} us a job", flush=True)
    print(f"\n| {broker} | jobs/s | rounds | us a job | of {', '.join(PARTS)} | p50 ms | p99 ms |")
    print("| --- | ---: | --- | ---: | --- | ---: | ---: |")
    for name, found in rates.items():
        late = sorted(latencies[name])
        p50, p99 = (late[int(len(late) * part)] * 1000 for part in (0.5, 0.99))
        rounds = ", ".join(f"{rate:,.0f}" for rate in found)
        parts = [median(part) for part in zip(*used[name], strict=True)]
        shown = ", ".join(f"{part:,.0f}" for part in parts)
        print(f"| {name} | {median(found):,.0f} | {rounds} | {median(map(sum, used[name])):,.0f} "
              f"| {shown} | {p50:.1f} | {p99:.1f} |", flush=True)  # fmt: skip


async def measure_all(folder: Path, given: Any) -> None:
    await app.migrate()
    data = await asyncio.to_thread(_data_directory)
    postmaster = int((data / "postmaster.pid").read_text().split()[0])
    for broker in given.brokers:
        if reason := SERVICES[broker].missing():
            print(f"{broker}: left out, {reason}")
            continue
        service = SERVICES[broker](folder)
        if isinstance(service, Redis):
            service.persistent = False
        service.start()
        try:
            await measure(folder, service, broker, postmaster, given)
        finally:
            service.stop()


def _data_directory() -> Path:
    async def ask() -> Path:
        connection = await asyncpg.connect(app.settings.database_url)
        try:
            return Path(await connection.fetchval("show data_directory"))
        finally:
            await connection.close()

    return asyncio.run(ask())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("brokers", nargs="*", default=list(SERVICES))
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--singles", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    given: Any = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rota-bench-") as name, database() as url:
        Path(name).chmod(0o711)
        app.settings = app.settings.replace(database_url=url)
        asyncio.run(measure_all(Path(name), given))


if __name__ == "__main__":
    main()
