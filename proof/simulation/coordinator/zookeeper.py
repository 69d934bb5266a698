"""ZooKeeper, and a client in kazoo's place: sessions, ephemeral nodes, connections that are interrupted.

Protocol. A client has a connection at a time, in order, and a session that outlives it. Whatever arrives
from a client touches its session; ephemeral nodes live as long as that. A client that hears nothing for
two thirds of its session's timeout is SUSPENDED: what it has asked fails, and it connects again. A
server whose transactions are behind what the client has seen refuses it; one that doesn't know its
session any more says so, and the client begins a new one. Reads are those of one server, which may be
behind the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    SessionExpiredError,
)

from proof.simulation.coordinator.service import Entry, Service, State
from proof.simulation.coordinator.threads import Event
from proof.simulation.loop import PROCESS, context_of

TICK = 1.0
_SHORTEST, _LONGEST = 2 * TICK, 20 * TICK
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
_LONGEST_STOP = 10.0


class Stat(SimpleNamespace):
    """As kazoo's `ZnodeStat`."""

    czxid: int
    pzxid: int
    ephemeralOwner: int  # noqa: N815 - kazoo's name


class ZooKeeperModel(Service):
    name = scheme = "zookeeper"

    def duration(self, ttl: float) -> float:
        """Sessions end at ticks."""
        return ttl + TICK * self.random.random()

    def answer(self, state: State, request: tuple[Any, ...]) -> Any:
        """A request is (kind, session, arguments); the answer a value or an exception."""
        kind, session, *arguments = request
        if kind == "connect":
            return self._connect(state, session, *arguments)
        if not self.renew(state, session):
            return SessionExpiredError()
        if kind == "ping":
            return state.revision
        if kind == "close":
            self.end_session(state, session)
            return None
        answer: Any = getattr(self, f"_{kind}")(state, session, *arguments)
        return answer

    def _connect(self, state: State, session: str, seen: int, wanted: float) -> Any:
        if seen > state.revision:
            return ConnectionLoss()  # it has seen what this server hasn't
        if session and not self.renew(state, session):
            return SessionExpiredError()
        if not session:
            session = self.open_session(state, min(max(wanted, _SHORTEST), _LONGEST))
        return session, state.sessions[session].ttl

    def _create(self, state: State, session: str, path: str, value: str, ephemeral: bool) -> Any:
        parent = path.rpartition("/")[0]
        if path in state.keys:
            return NodeExistsError()
        if parent and parent not in state.keys:
            return NoNodeError()
        state.revision += 1
        entry = Entry(value, state.revision, state.revision, session if ephemeral else None)
        state.keys[path] = entry
        self._touch(state, parent)
        return path, _stat(entry)

    def _touch(self, state: State, folder: str) -> None:
        if folder in state.keys:
            state.keys[folder] = state.keys[folder]._replace(modified=state.revision)

    def _delete(self, state: State, _: str, path: str) -> Any:
        if path not in state.keys:
            return NoNodeError()
        state.revision += 1
        del state.keys[path]
        self._touch(state, path.rpartition("/")[0])
        return None

    def end_session(self, state: State, session: str) -> None:
        folders = {
            key.rpartition("/")[0] for key, entry in state.keys.items() if entry.session == session
        }
        super().end_session(state, session)
        for folder in sorted(folders):
            self._touch(state, folder)

    def _exists(self, state: State, _: str, path: str) -> Any:
        found = self.readable(state).get(path)
        return None if found is None else _stat(found)

    def _get(self, state: State, _: str, path: str) -> Any:
        found = self.readable(state).get(path)
        return NoNodeError() if found is None else (found.value.encode(), _stat(found))

    def _children(self, state: State, _: str, path: str) -> Any:
        keys = self.readable(state)
        if path not in keys:
            return NoNodeError()
        names = [key[len(path) + 1 :] for key in keys if key.rpartition("/")[0] == path]
        return sorted(names), _stat(keys[path])


def _stat(entry: Entry) -> Stat:
    owner = int(entry.session, 16) if entry.session else 0
    return Stat(czxid=entry.created, pzxid=entry.modified, ephemeralOwner=owner)


class Answer:
    """As kazoo's `AsyncResult`: waited for by a thread."""

    def __init__(self) -> None:
        self.event = Event()
        self._value: Any = None

    def give(self, value: Any) -> None:
        if not self.event.is_set():
            self._value = value
            self.event.set()

    def get(self, timeout: float) -> Any:
        if not self.event.wait(timeout):
            raise TimeoutError
        if isinstance(self._value, Exception):
            raise self._value
        return self._value


class _Dropped(Exception):
    """The connection is gone."""


class _Connection:
    """Messages in order, both ways, until it is cut."""

    def __init__(self, client: KazooModel) -> None:
        self._client, self.open = client, True
        self.heard = Event()
        self.news: asyncio.Event = asyncio.Event()
        self._asked = self._taken = self._told = self._heard = 0
        self._early_up: dict[int, Callable[[], None]] = {}
        self._early_down: dict[int, Callable[[], None]] = {}

    def ask(self, request: tuple[Any, ...], answered: Callable[[Any], None]) -> None:
        client, service, number = self._client, self._client.service, self._asked
        self._asked += 1
        context = context_of(client.process)

        def arrive() -> None:
            self._early_up[number] = execute
            while (action := self._early_up.pop(self._taken, None)) is not None:
                self._taken += 1
                action()

        def execute() -> None:
            if not self.open:
                return
            if not service.up:
                result: Any = _Dropped()
            else:
                result = service.execute(client.process, request)
            place = self._told
            self._told += 1
            service.reply(client.process, lambda: hear(place, result))

        def hear(place: int, result: Any) -> None:
            self._early_down[place] = lambda: service.loop.call_soon(take, result, context=context)
            while (action := self._early_down.pop(self._heard, None)) is not None:
                self._heard += 1
                action()

        def take(result: Any) -> None:
            if self.open:
                answered(result)
                self.news.set()

        service.send(client.process, arrive)


class KazooModel:
    """As `KazooClient`: its thread is a task of the process's."""

    def __init__(self, service: ZooKeeperModel, hosts: str, timeout: float) -> None:
        process = PROCESS.get()
        assert process is not None
        self.service, self.process = service, process
        self._hosts = hosts.count(",") + 1
        self._wanted = timeout
        self._session = ""
        self._seen = 0
        self.connected = False
        self._stopped = self._outstanding = False
        self._fault: Exception | None = None
        self._pending: list[Answer] = []
        self._line: _Connection | None = None
        self._connection = SimpleNamespace(_connect=lambda read, wait: (read, wait))
        self._task: asyncio.Task[None] | None = None

    # -- what the driver calls

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return (int(self._session, 16), b"") if self.connected else None

    def start_async(self) -> None:
        self._task = self.service.loop.create_task(self._live(), context=context_of(self.process))

    def stop(self) -> None:
        """Close the session, and wait for the answer, as kazoo does: for ten seconds at most."""
        closed = Answer()
        if self.connected and self._line is not None:
            self._line.ask(("close", self._session), closed.give)
        else:
            closed.give(None)
        self._stopped = True
        self._interrupt(ConnectionClosedError())
        closed.event.wait(_LONGEST_STOP)

    def close(self) -> None:
        """Free nothing: there are no sockets."""

    def create_async(
        self, path: str, value: bytes = b"", ephemeral: bool = False, include_data: bool = False
    ) -> Answer:
        def chosen(found: Any) -> Any:
            return found if include_data or isinstance(found, Exception) else found[0]

        return self._ask("create", path, value.decode(), ephemeral, chosen=chosen)

    def exists_async(self, path: str) -> Answer:
        return self._ask("exists", path)

    def delete_async(self, path: str) -> Answer:
        return self._ask("delete", path)

    def get_async(self, path: str) -> Answer:
        return self._ask("get", path)

    def get_children_async(self, path: str, include_data: bool = False) -> Answer:
        assert include_data
        return self._ask("children", path)

    def _ask(
        self, kind: str, *arguments: Any, chosen: Callable[[Any], Any] = lambda found: found
    ) -> Answer:
        answer = Answer()
        if self._stopped:
            answer.give(ConnectionClosedError())
        elif not self.connected or self._line is None:
            self._pending.append(
                answer
            )  # asked when it is connected again, by which time nobody waits
        else:
            self._pending.append(answer)
            request = (kind, self._session, *arguments)
            self._line.ask(request, lambda found: self._take(answer, chosen(found)))
        return answer

    def _take(self, answer: Answer, found: Any) -> None:
        self._outstanding = False
        if isinstance(found, SessionExpiredError | _Dropped):
            self._fault = found
        else:
            self._pending.remove(answer)
            answer.give(found)

    # -- its thread

    async def _live(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stopped:
            self._fault = None
            try:
                await self._attempt()
            except SessionExpiredError:
                self._session = ""
                self._interrupt(SessionExpiredError())
            except (_Dropped, ConnectionLoss, TimeoutError):
                self._interrupt(ConnectionLoss())
            if self._line is not None and self._line.news.is_set():
                pause = _FIRST_PAUSE
            await asyncio.sleep(pause * (0.5 + self.process.random.random()))
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _interrupt(self, error: Exception) -> None:
        """SUSPENDED, or LOST."""
        self.connected = False
        if self._line is not None and not self._stopped:
            self._line.open = False
        pending, self._pending = self._pending, []
        for answer in pending:
            answer.give(error)

    async def _attempt(self) -> None:
        line = self._line = _Connection(self)
        told: asyncio.Future[Any] = self.service.loop.create_future()
        request = ("connect", self._session, self._seen, self._wanted)
        line.ask(request, lambda found: None if told.done() else told.set_result(found))
        async with asyncio.timeout(self._wanted / self._hosts):
            found = await told
        if isinstance(found, Exception):
            raise found
        self._session, ttl = found
        read, _ = self._connection._connect(ttl * 1000 * 2 / 3, ttl * 1000)
        self.connected, self._outstanding = True, False
        await self._keep(line, read / 1000)

    async def _keep(self, line: _Connection, read: float) -> None:
        """Ping, as kazoo's loop does: one that is not answered ends the connection."""
        sent = self.service.loop.time()
        while not self._stopped:
            jitter = 0.01 * self.process.random.randint(1, 40)
            deadline = sent + read / 2 - jitter
            line.news.clear()
            try:
                async with asyncio.timeout(max(deadline - self.service.loop.time(), jitter)):
                    await line.news.wait()
            except TimeoutError:
                if self._outstanding:
                    raise _Dropped from None
            if self._fault is not None:
                raise self._fault
            if self.service.loop.time() >= deadline:
                self._outstanding = True
                line.ask(("ping", self._session), self._pinged)
                sent = self.service.loop.time()

    def _pinged(self, found: Any) -> None:
        self._outstanding = False
        if isinstance(found, Exception):
            self._fault = found
        else:
            self._seen = max(self._seen, found)


def make_client(service: ZooKeeperModel) -> Callable[..., KazooModel]:
    def client(*, hosts: str, timeout: float, **_: Any) -> KazooModel:
        return KazooModel(service, hosts, timeout)

    return client
