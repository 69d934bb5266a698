"""Coordination by ZooKeeper 3.5 or newer, through kazoo, in a thread of its own.

Protocol. A node has one session; its member and its shards are ephemeral nodes of it. Shards are
granted by creating them, all in one go without waiting in between; one that exists is another's. The
fencing number is the transaction id that created the node (`czxid`). A view lists two folders; what is
in them is read again only when a folder has changed since (`pzxid`). While the connection is
interrupted (SUSPENDED) every call fails, because nobody knows then whether the session lives. Ephemeral
nodes outlive their client until their session expires: those that have this node's name and are of a
former session of it are not held, whatever the new session renews.

kazoo keeps a session alive from a thread of its own, even when our loop hangs; and it never gives up a
session that a server which was wiped refuses (the client has seen higher transactions than the
server's). So a session of which its node has had no answer for as long as its timeout is closed by a
thread that watches them, and the next call makes a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from rota.errors import ConfigError
from rota.lib.addresses import Address
from rota.scheduler.coordination import CoordinatorUnavailable, Grant, View

try:
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
    from kazoo.security import make_digest_acl
except ModuleNotFoundError as missing:  # pragma: no cover - an installation without the extra
    raise ConfigError(
        "coordination by ZooKeeper needs kazoo: pip install 'rota[zookeeper]'", field="coordination"
    ) from missing

_PATIENCE = 1.8  # seconds for all of a call
_WATCH_EVERY = 0.25

T = TypeVar("T")


class _Entry(NamedTuple):
    """A node of ours: whose name it has, the transaction that created it, the session that it is of."""

    owner: UUID
    czxid: int
    session: int


class _Listing(NamedTuple):
    """A folder as it was at a transaction."""

    at: int
    entries: dict[str, _Entry]


class ZooKeeperCoordination:
    """Grants shards by ephemeral nodes, which live as long as their owner's session."""

    def __init__(self, address: Address, folder: str) -> None:
        self._address = address
        self._folder = f"/{folder}"
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rota-zookeeper")
        self._lock = threading.Lock()
        self._sessions: dict[UUID, _Session] = {}
        self._ttl = 10.0  # what was asked for last
        self._closed = threading.Event()
        self._watchdog: threading.Thread | None = None

    async def acquire(self, node: UUID, ttl: float, shards: Sequence[int]) -> list[Grant]:
        return await self._run(lambda: self._session_of(node, ttl).acquire(shards))

    async def renew(self, node: UUID, ttl: float) -> View:
        return await self._run(lambda: self._session_of(node, ttl).renew())

    async def watch(self, node: UUID) -> View:
        def look() -> View:
            session = self._session_of(node, None)
            return session.look() if session.node == node else session.view()

        return await self._run(look)

    async def release(self, node: UUID, shards: Sequence[int] | None = None) -> None:
        def give() -> None:
            session = self._sessions.get(node)
            if session is None:
                return  # without a session it holds nothing
            if shards is not None:
                session.release(shards)
                return
            self._forget(node)
            session.close()

        await self._run(give)

    async def close(self) -> None:
        self._closed.set()
        sessions = list(self._sessions.values())
        self._sessions.clear()

        def close() -> None:
            for session in sessions:
                session.close()

        with contextlib.suppress(CoordinatorUnavailable):
            await self._run(close)
        self._thread.shutdown(wait=False, cancel_futures=True)

    # -- in the thread

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _session_of(self, node: UUID, ttl: float | None) -> _Session:
        """Return the node's session. To look, any session will do: one is made if there is none."""
        with self._lock:
            session = self._sessions.get(node)
            if session is None and ttl is None and self._sessions:
                return next(iter(self._sessions.values()))
            if session is None or session.closed:
                self._ttl = ttl or self._ttl
                session = _Session(self._address, self._folder, node, self._ttl)
                self._sessions[node] = session
        if self._watchdog is None:
            self._watchdog = threading.Thread(
                target=self._watch_sessions, name="rota-zookeeper-watchdog", daemon=True
            )
            self._watchdog.start()
        return session

    def _forget(self, node: UUID) -> None:
        with self._lock:
            self._sessions.pop(node, None)

    def _watch_sessions(self) -> None:
        """Close sessions that nobody renews."""
        while not self._closed.wait(_WATCH_EVERY):
            with self._lock:
                silent = [s for s in self._sessions.values() if s.is_silent(monotonic())]
                for session in silent:
                    self._sessions.pop(session.node, None)
            for session in silent:
                session.close()


class _Session:
    """A session of ZooKeeper, and what it holds. Used by one thread; `close` by any."""

    def __init__(self, address: Address, folder: str, node: UUID, ttl: float) -> None:
        self.node = node
        self.ttl = ttl
        self.closed = False
        self._renewed_at = monotonic()  # when the last call was made that was answered
        self._folders = {kind: f"{folder}/{kind}" for kind in ("members", "shards")}
        self._made_folders = False
        self._listings: dict[str, _Listing] = {}
        self._member_of: int | None = None  # the session that has made our member's node
        secret = f"{address.user}:{address.password}"
        self._client = KazooClient(
            hosts=",".join(address.hosts),
            timeout=ttl,
            auth_data=[("digest", secret)] if address.user else None,
            default_acl=[make_digest_acl(address.user, address.password, all=True)]
            if address.user
            else None,
            use_ssl=address.tls,
            ca=address.options.get("ca"),
            certfile=address.options.get("cert"),
            keyfile=address.options.get("key"),
            logger=logging.getLogger("rota.zookeeper"),
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 2.0},
        )
        self._learn_timeout()
        self._client.start_async()

    def _learn_timeout(self) -> None:
        """Note the timeout that the server grants: it has bounds, of which kazoo tells nobody."""
        connection = self._client._connection
        connect = connection._connect

        def noted(*args: Any) -> tuple[float, float]:
            read, connecting = connect(*args)
            self.ttl = read * 1.5 / 1000.0  # kazoo reads for two thirds of it, in milliseconds
            return read, connecting

        connection._connect = noted

    def is_silent(self, now: float) -> bool:
        return now - self._renewed_at > self.ttl

    def close(self) -> None:
        self.closed = True
        with contextlib.suppress(Exception):
            self._client.stop()
            self._client.close()

    def acquire(self, shards: Sequence[int]) -> list[Grant]:
        until = self._connected()
        value, folder = str(self.node).encode(), self._folders["shards"]
        asked = [
            (
                s,
                self._client.create_async(
                    f"{folder}/{s}", value, ephemeral=True, include_data=True
                ),
            )
            for s in shards
        ]
        granted = []
        for shard, answer in asked:
            try:
                _, stat = _got(answer, until)
                granted.append(Grant(shard, stat.czxid))
            except NodeExistsError:
                continue
            except NoNodeError:
                self._made_folders = False
        self._renewed_at = until - _PATIENCE
        return granted

    def renew(self) -> View:
        until = self._connected()
        if self._member_of != self._session_id():
            self._join(until)
        view = self.view()
        if self.node not in view.members:  # it was our former session's, which has just ended
            self._join(until)
            view = self.view()
        self._renewed_at = until - _PATIENCE
        return view

    def _join(self, until: float) -> None:
        session = self._session_id()
        path = f"{self._folders['members']}/{self.node}"
        value = str(self.node).encode()
        try:
            _got(self._client.create_async(path, value, ephemeral=True), until)
        except NodeExistsError:
            pass
        except NoNodeError:
            raise self._lost(self._folders["members"]) from None
        self._member_of = session

    def look(self) -> View:
        """As `view`, and a sign of life: who returns to a slow service must find its session there."""
        begun = monotonic()
        view = self.view()
        self._renewed_at = begun
        return view

    def view(self) -> View:
        until = self._connected()
        members, shards = self._list("members", until), self._list("shards", until)
        session = self._session_id()
        # What a former session of this node has left behind ends with that session. It isn't deleted:
        # between the look and the deletion it may have become another's.
        owners = {
            int(name): (entry.owner, entry.czxid)
            for name, entry in shards.items()
            if entry.owner != self.node or entry.session == session
        }
        found = sorted(UUID(name) for name in members)
        return View(tuple(found), dict(sorted(owners.items())), self.ttl)

    def _session_id(self) -> int:
        held = self._client.client_id
        if held is None:
            raise CoordinatorUnavailable("ZooKeeper: the connection is interrupted")
        return int(held[0])

    def release(self, shards: Sequence[int]) -> None:
        """Delete those nodes that this session has made: as long as it lives, they are its own."""
        until = self._connected()
        session = self._session_id()
        paths = [f"{self._folders['shards']}/{shard}" for shard in shards]
        looked = [(path, self._client.exists_async(path)) for path in paths]
        deleted = [
            self._client.delete_async(path)
            for path, answer in looked
            if (stat := _got(answer, until)) is not None and stat.ephemeralOwner == session
        ]
        for answer in deleted:
            with contextlib.suppress(NoNodeError):
                _got(answer, until)

    def _list(self, kind: str, until: float) -> dict[str, _Entry]:
        folder = self._folders[kind]
        try:
            names, stat = _got(self._client.get_children_async(folder, include_data=True), until)
        except NoNodeError:
            raise self._lost(folder) from None
        known = self._listings.get(kind)
        if known is None or known.at != stat.pzxid:
            asked = [(name, self._client.get_async(f"{folder}/{name}")) for name in names]
            entries = {}
            for name, answer in asked:
                with contextlib.suppress(NoNodeError, ValueError):
                    value, found = _got(answer, until)
                    owner = UUID(value.decode())
                    entries[name] = _Entry(owner, found.czxid, found.ephemeralOwner)
            # Read one by one: if the folder changed meanwhile, it is read again next time.
            known = self._listings[kind] = _Listing(stat.pzxid, entries)
        return known.entries

    def _connected(self) -> float:
        """Wait until the session is there. Return until when the call may take."""
        until = monotonic() + _PATIENCE
        # Waited for soon after the start alone: later it is an interruption.
        waits = not self._made_folders
        if not self._client.connected and not (waits and self._wait_for_connection(until)):
            raise CoordinatorUnavailable("ZooKeeper: the connection is interrupted")
        if not self._made_folders:
            for folder in self._folders.values():
                self._ensure(folder, until)
            self._made_folders = True
        return until

    def _wait_for_connection(self, until: float) -> bool:
        while monotonic() < until and not self.closed:
            if self._client.connected:
                return True
            sleep(0.02)
        return False

    def _ensure(self, folder: str, until: float) -> None:
        path = ""
        for part in folder.strip("/").split("/"):
            path = f"{path}/{part}"
            try:
                _got(self._client.create_async(path), until)
            except NodeExistsError:
                continue
            except NoNodeError:  # the part before it has just been removed
                raise self._lost(folder) from None

    def _lost(self, folder: str) -> CoordinatorUnavailable:
        """Return the error for a server that has lost everything; the next call makes its folders."""
        self._made_folders = False
        self._listings.clear()
        return CoordinatorUnavailable(f"ZooKeeper: {folder} is gone, and made again")


def _got(answer: Any, until: float) -> Any:
    """Wait for an answer of kazoo."""
    try:
        return answer.get(timeout=max(until - monotonic(), 0.01))
    except (NodeExistsError, NoNodeError):
        raise
    except KazooException as error:
        raise CoordinatorUnavailable(
            f"ZooKeeper: {type(error).__name__} {error}".rstrip()
        ) from error
    except Exception as error:
        # kazoo raises its handler's own exception when there is no answer in time.
        raise CoordinatorUnavailable(f"ZooKeeper: no answer ({type(error).__name__})") from error
