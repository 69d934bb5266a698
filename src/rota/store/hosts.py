"""The servers that a database URL names: which of them is the primary, and lines that fail early.

Protocol. A URL may name several hosts (`postgresql://rota@a:5432,b:5432/prod`). They are tried one
after the other, each for `connect_timeout`, beginning with the one that was good the last time: a host
that swallows packets must not use up the time of those behind it. Unless the URL says otherwise, only a
server that takes writes is good when there are several: a standby, or a primary that was demoted, is
passed over.

A server that disappears (a cut cable, a lost machine) is detected by keepalives on idle lines, and by
TCP_USER_TIMEOUT on those that wait for an acknowledgement. The kernel's own limit is about 15 minutes.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import asyncpg

from rota.store.credentials import ConnectHook, Password

SILENCE_SECONDS = 15
_IDLE, _INTERVAL, _COUNT = 6, 3, 3  # together the same

# Errors that a repetition doesn't change: of the URL, the password, the database's name.
MISCONFIGURED: tuple[type[BaseException], ...] = (
    asyncpg.ClientConfigurationError,
    asyncpg.InvalidPasswordError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)

# The next host may be better.
_PASSED_OVER = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError,
                asyncpg.TargetServerAttributeNotMatched)  # fmt: skip


class Host(NamedTuple):
    """One server: a URL of its own, and its name without user and password."""

    url: str
    name: str


# The password was wrong, which it may not be when it is read again.
_BAD_PASSWORD = (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError)


class Hosts:
    """The servers of a URL.

    `password` is read for each connection; `hook` makes connections instead of asyncpg, for the
    connectors of cloud providers; `reads`: a standby is as good as a primary.
    """

    def __init__(
        self, url: str, connect_timeout: float, *, password: Password | None = None,
        hook: ConnectHook | None = None, reads: bool = False,
    ) -> None:  # fmt: skip
        self._hosts = split_hosts(url)
        self._password = password
        self._make = hook or asyncpg.connect
        self._timeout = connect_timeout
        self._wanted = None if reads else wanted_session(url)
        # A session that says that it writes would hide which of the servers takes no writes.
        self.chooses_by_writes = len(self._hosts) > 1 or _says_session(url)
        self._best = 0

    @property
    def patience(self) -> float:
        """Return how long a connection may take if every host but the last doesn't answer."""
        return self._timeout * len(self._hosts)

    async def connect(self, *_: Any, **arguments: Any) -> asyncpg.Connection[Any]:
        """Connect to the first host that answers and suits. Pools connect with it, too."""
        errors: list[tuple[Host, BaseException]] = []
        arguments["timeout"] = self._timeout
        if self._wanted is not None:
            arguments["target_session_attrs"] = self._wanted
        # The caller's thread may be another one (the heartbeat's): `_best` is only where to begin.
        order = [*range(self._best, len(self._hosts)), *range(self._best)]
        for index in order:
            host = self._hosts[index]
            try:
                arguments["dsn"] = host.url
                connection = await self._connect_to(arguments)
            except _PASSED_OVER as error:
                errors.append((host, error))
                continue
            self._best = index
            watch_silence(connection)
            return connection
        raise _summary(errors)

    async def _connect_to(self, arguments: dict[str, Any]) -> asyncpg.Connection[Any]:
        if not self._password:
            made: asyncpg.Connection[Any] = await self._make(**arguments)
            return made
        try:
            made = await self._make(**arguments, password=await self._password.read())
        except _BAD_PASSWORD as error:
            if not self._password.rotates:
                raise
            # Not a misconfiguration: the next reading may be that of a new password.
            raise ConnectionError(
                f"{error} (the password {self._password.source} is read again for each connection)"
            ) from error
        return made


def _summary(errors: Sequence[tuple[Host, BaseException]]) -> BaseException:
    """Return one error for all hosts; a misconfiguration only if all hosts report one."""
    if len(errors) == 1 or all(isinstance(error, MISCONFIGURED) for _, error in errors):
        return errors[0][1]
    problems = (f"{host.name}: {str(error) or type(error).__name__}" for host, error in errors)
    return ConnectionError("no host takes writes; " + "; ".join(problems))


def split_hosts(url: str) -> list[Host]:
    """Return one URL for each host that this one names."""
    scheme, colon, rest = url.partition("://")
    end = min((place for mark in "/?#" if (place := rest.find(mark)) >= 0), default=len(rest))
    authority, tail = rest[:end], rest[end:]
    user, at, named = authority.rpartition("@")
    if "," in named:
        return [
            Host(f"{scheme}{colon}{user}{at}{one}{tail}", one or "localhost")
            for one in named.split(",")
        ]
    path, question, query = tail.partition("?")
    pairs = dict(parse_qsl(query, keep_blank_values=True)) if question else {}
    hosts = pairs.pop("host", "").split(",")
    if len(hosts) == 1:
        return [Host(url, named or hosts[0] or "localhost")]
    ports = pairs.pop("port", "5432").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return [
        Host(
            f"{scheme}{colon}{user}{at}{path}?{urlencode({**pairs, 'host': host, 'port': port})}",
            f"{host}:{port}",
        )
        for host, port in zip(hosts, ports, strict=True)
    ]


def wanted_session(url: str) -> str | None:
    """Return `target_session_attrs`, unless the URL or the environment has it already."""
    several = len(split_hosts(url)) > 1
    return "read-write" if several and not _says_session(url) else None


def _says_session(url: str) -> bool:
    return "target_session_attrs=" in url or "PGTARGETSESSIONATTRS" in os.environ


def psycopg_arguments(url: str, connect_timeout: float) -> dict[str, Any]:
    """Return the same settings for psycopg. Those in the URL come first."""
    arguments: dict[str, Any] = {
        "connect_timeout": max(2, round(connect_timeout)),
        "keepalives_idle": _IDLE,
        "keepalives_interval": _INTERVAL,
        "keepalives_count": _COUNT,
        "tcp_user_timeout": SILENCE_SECONDS * 1000,
    }
    if (wanted := wanted_session(url)) is not None:
        arguments["target_session_attrs"] = wanted
    return {name: value for name, value in arguments.items() if f"{name}=" not in url}


def watch_silence(connection: Any) -> None:
    """Make the kernel close a line on which nothing comes back."""
    transport = connection._transport  # asyncpg has no public way to it
    found = transport.get_extra_info("socket") if transport is not None else None
    if found is None or found.family == getattr(socket, "AF_UNIX", None):
        return
    # Through a duplicate: what event loops hand out needn't be a whole socket.
    with socket.socket(fileno=os.dup(found.fileno())) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Named differently by each system, and missing in some.
        for name, value in (
            ("TCP_KEEPIDLE", _IDLE), ("TCP_KEEPALIVE", _IDLE), ("TCP_KEEPINTVL", _INTERVAL),
            ("TCP_KEEPCNT", _COUNT), ("TCP_USER_TIMEOUT", SILENCE_SECONDS * 1000),
        ):  # fmt: skip
            if (option := getattr(socket, name, None)) is not None:
                line.setsockopt(socket.IPPROTO_TCP, option, value)
