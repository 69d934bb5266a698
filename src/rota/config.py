"""Settings: read and checked once, then passed around frozen."""

from __future__ import annotations

import functools
import os
import re
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

import msgspec

from rota.errors import ConfigError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:-]{0,99}")
_SECRET_FIELDS = frozenset({
    "database_url", "database_password", "read_url", "encryption_keys", "oidc_client_secret",
    "coordination", "smtp_url", "dispatch", "dispatch_secret",
})  # fmt: skip
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,39}")


# The numbers that settings may be.
_BOUNDS: tuple[tuple[str, Callable[[float], bool], str], ...] = (
    (("heartbeat shard_lease poll connect_timeout read_max_lag statement_timeout request_timeout "
     "session_hours link_minutes log_lines_per_second"), lambda value: value > 0, "above 0"),
    ("grace kill_grace log_bytes max_run_time lag_after resource_patience",
     lambda value: value >= 0, "0 or more"),
    (("concurrency processes threads max_crashes max_payload_bytes max_payload_depth "
     "max_result_bytes retention_days log_days ledger_days dead_letter_days max_body_bytes "
     "max_connections max_connections_per_address audit_days child_max_jobs"),
     lambda value: value >= 1, "at least 1"),
    ("missed_heartbeats", lambda value: value >= 2,
     "at least 2 (with 1, a heartbeat that is a moment late makes a healthy node dead)"),
    ("pool_size", lambda value: value >= 2, "at least 2 (one to claim, one to finish)"),
    ("shards", lambda value: 1 <= value <= 1024, "from 1 to 1024"),
    ("port metrics_port", lambda value: 0 <= value <= 65_535, "from 0 (any that is free) to 65535"),
)  # fmt: skip


def check_name(field: str, value: object) -> str:
    """Check the name of a queue, task, capability or namespace: short, printable, safe in a lane."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise ConfigError(
            f"{field} {value!r:.120} is not a usable name: use 1 to 100 letters, digits, "
            "'_', '.', ':' or '-', starting with a letter, digit or '_'"
        )
    return value


OWN_PREFIX = "rota."  # of tasks that come with Rota
_OPEN_TASKS = frozenset({"rota.command"})
START_TASK = "rota.start"  # starts the run of a schedule that names a workflow


def is_internal_task(name: str) -> bool:
    """Return whether only Rota submits its jobs. The same as rota.is_internal_task() in SQL."""
    return name.startswith(OWN_PREFIX) and name not in _OPEN_TASKS


# Each may be in a file instead, which is read again and again.
_SECRETS_OR_FILES = ("database_password", "encryption_keys", "oidc_client_secret", "smtp_url")


def check_open_task(name: str) -> str:
    """Refuse a task that only Rota submits: the payloads of its jobs are trusted."""
    if isinstance(name, str) and is_internal_task(name):
        raise ConfigError(
            f"task {name!r} is internal: Rota submits its jobs itself. Choose a task of your own"
        )
    return name


def check_smtp_url(text: str, source: str = "smtp_url") -> str:
    if not _is_smtp_url(text):
        # Not quoted: it may have a password.
        raise ConfigError(
            f"{source} must look like smtps://user:password@mail.example.com:465 or "
            "smtp://mail.example.com"
        )
    return text


def _is_smtp_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("smtp", "smtps") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return False


def default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "rota"


@functools.cache
def _paths() -> frozenset[str]:
    """Return the settings that are paths, which msgspec does not make of texts."""
    return frozenset(
        field.name
        for field in msgspec.structs.fields(Settings)
        if field.type is Path or Path in get_args(field.type)
    )


@functools.cache
def _defaults() -> Settings:
    return Settings()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of this process. Each field can be given as ``ROTA_<FIELD>`` in the environment."""

    database_url: str | None = None  # None: the embedded PostgreSQL under data_dir
    # Instead of one in the URL. A file is read for every new connection; in code, a function is called.
    database_password: Any = None
    database_password_file: Path | None = None
    # What stands between Rota and PostgreSQL: none, or a pooler that works by session or by transaction.
    pooler: Literal["auto", "none", "session", "transaction"] = "auto"
    # Of `rota start` and `rota dev`; everything else runs on the loop that it is called on.
    event_loop: Literal["auto", "asyncio", "uvloop"] = "auto"
    connect: Any = None  # in code alone: a coroutine function that makes asyncpg's connections
    read_url: str | None = None  # a read replica, for the server's lists, status and dashboard
    read_max_lag: float = 10.0  # a replica that is further behind, in seconds, isn't used
    data_dir: Path = msgspec.field(default_factory=default_data_dir)
    schema: str = "rota"
    namespace: str = "default"
    # A name such as production. Nodes refuse a database that belongs to another: a clone of it, perhaps.
    installation: str = ""

    # A node is dead when its last heartbeat is `heartbeat * missed_heartbeats` seconds old.
    heartbeat: float = 5.0
    missed_heartbeats: int = 3
    # For how long a scheduler holds its share of the shards without renewing it.
    shard_lease: float = 3.0
    shards: int = 128  # fixed when the schema is made; 1: a single leader
    # Who shares the shards out: etcd://host:port,..., zookeeper://..., consul://...; None: PostgreSQL
    coordination: str | None = None
    # The broker by which relays reach workers that have no way to the database: redis://host:6379, ...
    dispatch: str | None = None
    dispatch_secret: str | None = None  # of relays and workers; after a comma, the one before it
    # The seconds after which an idle worker polls without a hint.
    poll: float = 5.0

    concurrency: int = 100  # coroutines at a time
    processes: int = msgspec.field(default_factory=lambda: os.cpu_count() or 2)
    threads: int = 16
    # What a node has for jobs that ask: {"gpu": 2} in code, gpu=2,memory=16GB in the environment. Memory
    # and CPU that are not named are those of the container or the machine.
    resources: Any = None
    resource_patience: float = (
        30.0  # for so long a job may fit nowhere; then a node makes room for it
    )
    # How children and programs are kept within the memory of their job.
    memory_limits: Literal["auto", "cgroup", "rlimit", "none"] = "auto"
    child_max_jobs: int | None = None  # after so many jobs a child process is replaced
    child_max_memory: str | None = None  # and after a job that left it larger than this: 500MB
    prefetch: int = 2000  # claimed ahead of a free slot, at the very most
    grace: float = 30.0  # what a shutdown leaves running jobs to end by themselves
    kill_grace: float = 5.0  # between asking a handler to stop and making it stop
    # Of an attempt whose job has no timeout, in a queue that has no maximum of its own; 0: no limit.
    max_run_time: float = 86_400.0
    late_after: float = 60.0  # an occurrence that starts later than this is an event
    lag_after: float = 300.0  # a queue whose oldest ready job has been due for longer is an event
    max_crashes: int = 3  # a job that took its process down this often is quarantined

    allow_commands: bool = False  # run programs: the jobs of the task rota.command
    serve_endpoints: bool = True  # push the jobs of the namespace's stored endpoints

    max_payload_bytes: int = 1_000_000
    max_payload_depth: int = 64
    max_result_bytes: int = 1_000_000

    # What payloads and results are encrypted with: NAME:BASE64, several with commas; the first encrypts.
    encryption_keys: str | None = None
    encryption_keys_file: Path | None = None

    # What is kept of what an attempt prints and logs; log_bytes 0: nothing.
    log_bytes: int = 1_000_000
    log_lines_per_second: float = 1000.0

    # For Prometheus and probes: /metrics, /healthz and /readyz; 0: any port that is free.
    metrics_port: int | None = None
    metrics_host: str = "127.0.0.1"  # 0.0.0.0 or :: for probes from outside; it has no passwords

    retention_days: int = 7
    log_days: int = 7  # how long what jobs printed and logged is kept
    ledger_days: int = 90  # how long the occurrences of schedules are remembered
    dead_letter_days: int = 90
    # Where schedulers copy jobs before the retention removes them; None: nowhere.
    archive_dir: Path | None = None

    # The server. It listens beyond the loopback only with TLS, or with insecure_public.
    host: str = "127.0.0.1"
    port: int = 8400
    tls_cert: Path | None = None
    tls_key: Path | None = None
    insecure_public: bool = False
    public_url: str | None = None  # how people reach it, when a proxy stands in between
    trusted_proxies: str = ""  # whose X-Forwarded-For and -Proto are believed
    max_body_bytes: int = 2_000_000
    max_connections: int = 1_000
    max_connections_per_address: int = 250  # from one address that isn't a trusted proxy's
    request_timeout: float = 30.0  # for the whole of a request to arrive, or a piece of an answer
    session_hours: float = 12.0
    link_minutes: float = 10.0  # how long the one-time link of `rota login` is good for
    audit_days: int = 365
    status_page: bool = False  # /status for everybody, with no names and no numbers
    oidc_issuer: str | None = None
    oidc_client_id: str | None = None
    oidc_client_secret: str | None = None
    oidc_client_secret_file: Path | None = None  # read at each login: it may be replaced
    oidc_groups: str = ""  # JSON: roles of the provider's groups; then the provider decides
    oidc_groups_claim: str = "groups"

    # What workers send e-mail by, for events: smtps://user:password@mail.example.com:465.
    smtp_url: str | None = None
    smtp_url_file: Path | None = None  # read for each message: it may be replaced
    smtp_from: str = "rota@localhost"

    pool_size: int = 4
    connect_timeout: float = 10.0
    statement_timeout: float = 60.0
    # Which application declares schedules in code: the module that makes the App, unless it is named
    # here. Its releases are compared as versions: 1.10 is newer than 1.9; a commit's hash has no order.
    app_name: str = ""
    release: str = ""

    node_name: str = msgspec.field(default_factory=socket.gethostname)

    def __repr__(self) -> str:
        """Show what differs from the defaults. Secrets are named and not shown."""
        shown = [
            f"{name}={'***' if name in _SECRET_FIELDS else repr(value)}"
            for name in self.__struct_fields__
            if (value := getattr(self, name)) != getattr(_defaults(), name)
        ]
        return f"Settings({', '.join(shown)})"

    def __post_init__(self) -> None:
        check_name("namespace", self.namespace)
        if not _SCHEMA_NAME.fullmatch(self.schema):
            raise ConfigError(
                f"schema {self.schema!r} is not usable: lower-case letters, digits and '_', "
                "at most 40 characters"
            )
        for fields, fits, bounds in _BOUNDS:
            for field in fields.split():
                if (value := getattr(self, field)) is not None and not fits(value):
                    raise ConfigError(f"{field} must be {bounds}, not {value!r}")
        if not self.metrics_host.strip():
            raise ConfigError("metrics_host must be an address, such as 127.0.0.1 or 0.0.0.0")
        if self.connect is not None and not callable(self.connect):
            raise ConfigError(
                "connect is a function and can only be given in code: App(connect=...). It takes the "
                "arguments of asyncpg.connect() and returns a connection"
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("tls_cert and tls_key go together: give both, or none")
        self._check_secrets()

    def _check_secrets(self) -> None:
        for secret in _SECRETS_OR_FILES:
            if getattr(self, secret) is not None and getattr(self, f"{secret}_file") is not None:
                raise ConfigError(f"give {secret} or {secret}_file, not both")
        if self.smtp_url is not None:
            check_smtp_url(self.smtp_url)

    @property
    def lease_seconds(self) -> float:
        """The seconds that a node lives without a heartbeat."""
        return self.heartbeat * self.missed_heartbeats

    def replace(self, **changes: Any) -> Settings:
        return msgspec.structs.replace(self, **changes)

    @classmethod
    def read(cls, environ: Mapping[str, str] | None = None, **given: Any) -> Settings:
        """Read the settings from the environment; what is given in code takes precedence."""
        environ = os.environ if environ is None else environ
        known = {field.name for field in msgspec.structs.fields(cls)}
        unknown = sorted(set(given) - known)
        if unknown:
            raise ConfigError(f"unknown setting {unknown[0]!r}; known: {', '.join(sorted(known))}")
        values: dict[str, Any] = {
            name: environ[variable]
            for name in known
            if environ.get(variable := f"ROTA_{name.upper()}")
        }
        values.update({name: value for name, value in given.items() if value is not None})
        for name in _paths() & set(values):
            values[name] = Path(values[name]).expanduser().absolute()
        try:
            return msgspec.convert(values, cls, strict=False)
        except msgspec.ValidationError as error:
            raise ConfigError(f"settings: {error}") from None
