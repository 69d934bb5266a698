"""A TCP proxy between a process and PostgreSQL that can be told to misbehave.

Protocol. Each accepted connection is a `Link`: two pumps, one a direction. A pump looks at the proxy's
current troubles before it passes bytes on. Troubles may overlap.

    delay        bytes wait a while before they are passed on
    throttle     bytes are passed on slowly
    hold         bytes wait until the trouble is over; then they are passed on, even if their sender
                 has gone away meanwhile: what was long given up is executed after all
    stall        the same for the present connections only: what they carried arrives after others,
                 on new connections, have long done the same again
    lose_reply   the server has executed and says so; that is thrown away, and the line is cut
    drop_up      what the client says vanishes; what the server says arrives
    drop_down    what the server says vanishes; what the client says arrives
    refuse       connections are reset, the present ones and those that are tried
    error_reply  the server has executed and says so; the client is told of an error instead
    too_many     a part of the present connections is reset, and new ones are told that there are too
                 many already
    forget       the present connections fall silent, as if a router had forgotten them: neither side
                 hears of the other, nor that it has hung up. New ones are fine

A line that lost bytes or fell silent is reset when its trouble ends: nobody must read on in the middle
of a message.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from proof.nemesis import wire

Direction = Literal["up", "down"]
Kind = Literal[
    "delay", "throttle", "hold", "stall", "lose_reply", "drop_up", "drop_down", "refuse", "forget",
    "error_reply", "too_many",
]  # fmt: skip

_CHUNK = 65_536
# The end of each of the server's answers: ReadyForQuery, and whether a transaction is open.
_READY = b"Z\x00\x00\x00\x05"
_TO_BE_READ = 0.05  # before a line is reset
_FORGOTTEN = 30.0  # what keepalives take to find out
_KEEPALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


class Trouble:
    """Something wrong with a proxy, until it is over."""

    def __init__(self, kind: Kind, amount: float = 0.0, sqlstates: Sequence[str] = ()) -> None:
        self.kind = kind
        # delay: seconds; throttle: bytes a second; lose_reply, error_reply, too_many: probability
        self.amount = amount
        self.sqlstates = sqlstates  # error_reply: one of these
        self.over = asyncio.Event()
        self.hits = 0  # connections or chunks that it changed
        self.links: set[Link] = set()  # stall: those that it befell


class Link:
    """One connection of a client, and its other half to the server."""

    def __init__(self, proxy: Proxy, client: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._server: asyncio.StreamWriter | None = None
        self._logged_in = False
        self._tail = b""
        self._executes = False  # whether what the client said last is a statement, or a commit
        self._whole = False  # the server has finished its last message
        self._hangs_up = False
        self.lost_bytes = False
        self.silent = False

    async def serve(self, reader: asyncio.StreamReader) -> None:
        answers, self._server = await self._proxy.connect()
        up = asyncio.create_task(self._pump("up", reader, self._server))
        down = asyncio.create_task(self._pump("down", answers, self._client))
        try:
            await asyncio.wait([up, down], return_when=asyncio.FIRST_COMPLETED)
            if self.silent:
                # One side has gone; the other finds out by itself, or by its keepalives.
                await asyncio.wait([up, down], timeout=_FORGOTTEN)
            elif down.done():
                up.cancel()
            else:
                # The client has gone, and everything it said has been passed on. The server may
                # still be at work on it; hanging up doesn't change that.
                down.cancel()
        finally:
            up.cancel()
            down.cancel()
            self.cut()

    async def _pump(
        self, direction: Direction, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                inside = self._logged_in
                begins = direction == "down" and self._at_a_message(data)
                if self.silent or not await self._passes(direction, data):
                    continue
                if direction == "up":
                    self._executes = wire.executes(data)
                elif not inside and wire.begins_login(data):
                    data = self._turned_away(data)
                elif begins and self._executes and wire.is_one_answer(data):
                    data = self._contradicted(data)
                writer.write(data)
                await writer.drain()
                if self._hangs_up:
                    await asyncio.sleep(_TO_BE_READ)
                    return

    async def _passes(self, direction: Direction, data: bytes) -> bool:
        """Whether the bytes are passed on, after whatever they have to suffer before."""
        answered = direction == "down" and self._ends_an_answer(data)
        for trouble in list(self._proxy.troubles):
            match trouble.kind:
                case "delay":
                    await asyncio.sleep(trouble.amount)
                case "throttle":
                    await asyncio.sleep(len(data) / trouble.amount)
                case "hold":
                    await self._proxy.hold(trouble)
                    continue
                case "stall" if self in trouble.links:
                    await self._proxy.hold(trouble)
                    continue
                case "lose_reply" if answered and self._proxy.chance.random() < trouble.amount:
                    self.cut()
                    trouble.hits += 1
                    return False
                case "drop_up" | "drop_down" if trouble.kind == f"drop_{direction}":
                    self.lost_bytes = True
                    trouble.hits += 1
                    return False
                case _:
                    continue
            trouble.hits += 1
        return not self.silent

    def _at_a_message(self, data: bytes) -> bool:
        """Whether what the server says begins with the beginning of a message."""
        begins = self._whole
        whole = begins and sum(map(len, wire.messages(data))) == len(data)
        self._whole = whole or data[-6:-1] == _READY
        return begins

    def _turned_away(self, data: bytes) -> bytes:
        """A client that wants to log in may be told that there are too many."""
        for trouble in self._proxy.of_kind("too_many"):
            trouble.hits += 1
            self._proxy.told["53300"] += 1
            self._hangs_up, data = True, wire.error("FATAL", "53300")
        return data

    def _contradicted(self, answer: bytes) -> bytes:
        """The server has executed; the client may be told that it has failed."""
        for trouble in self._proxy.of_kind("error_reply"):
            if self._proxy.chance.random() < trouble.amount:
                trouble.hits += 1
                sqlstate = self._proxy.chance.choice(trouble.sqlstates)
                self._proxy.told[sqlstate] += 1
                return wire.with_error(answer, sqlstate)
        return answer

    def _ends_an_answer(self, data: bytes) -> bool:
        """Whether the server has just said that it is done, with no transaction left open.

        Not the end of the log-in: a connection that can't be made is another trouble's business.
        """
        end = (self._tail + data)[-6:]
        self._tail = end
        if end[:5] != _READY:
            return False
        first, self._logged_in = not self._logged_in, True
        return not first and end[5:] == b"I"

    def cut(self) -> None:
        """Reset both halves."""
        for writer in (self._client, self._server):
            if writer is None:
                continue
            with contextlib.suppress(OSError):
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """Listens at `host:port` in front of a server: an address, or the path of a unix socket."""

    def __init__(self, upstream: tuple[str, int] | str, seed: int = 0) -> None:
        self._upstream = upstream
        self.holding = 0  # how many pieces are being held
        self.troubles: list[Trouble] = []
        self.told: Counter[str] = Counter()  # how often a client was told of which SQLSTATE
        self.chance = random.Random(seed)
        self._links: dict[Link, asyncio.Task[None]] = {}
        self._listener: asyncio.Server | None = None
        self.host = ""
        self.port = 0

    async def open(self, host: str = "127.0.0.1") -> None:
        self._listener = await asyncio.start_server(self._accept, host, 0)
        self.host, self.port = self._listener.sockets[0].getsockname()[:2]

    @property
    def url(self) -> str:
        return f"postgresql://postgres@{self.host}:{self.port}/postgres"

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        links = list(self._links.items())
        for link, serving in links:
            link.cut()
            serving.cancel()
        await asyncio.gather(*(serving for _, serving in links), return_exceptions=True)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._upstream, str):
            return await asyncio.open_unix_connection(self._upstream)
        return await asyncio.open_connection(*self._upstream)

    async def hold(self, trouble: Trouble) -> None:
        self.holding += 1
        trouble.hits += 1
        try:
            await trouble.over.wait()
        finally:
            self.holding -= 1

    def of_kind(self, kind: Kind) -> list[Trouble]:
        return [trouble for trouble in self.troubles if trouble.kind == kind]

    def begin(self, trouble: Trouble) -> None:
        if trouble.kind == "forget":
            for link in self._links:
                link.silent = True
                trouble.hits += 1
            return
        self.troubles.append(trouble)
        trouble.links.update(self._links)
        if trouble.kind in ("refuse", "too_many"):
            share = 1.0 if trouble.kind == "refuse" else trouble.amount
            for link in list(self._links):
                if share >= 1.0 or self.chance.random() < share:
                    link.cut()

    def end(self, trouble: Trouble) -> None:
        trouble.over.set()
        if trouble in self.troubles:
            self.troubles.remove(trouble)
        for link in list(self._links):
            if link.lost_bytes or (trouble.kind == "forget" and link.silent):
                link.cut()

    def heal(self) -> None:
        for trouble in list(self.troubles):
            self.end(trouble)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = Link(self, writer)
        refusing = next((each for each in self.troubles if each.kind == "refuse"), None)
        if refusing is not None:
            refusing.hits += 1
            link.cut()
            return
        _keep_alive(writer)
        task = asyncio.current_task()
        assert task is not None
        self._links[link] = task
        try:
            await link.serve(reader)
        except (OSError, asyncio.CancelledError):
            link.cut()  # no server there: our client is told in the same way
        finally:
            del self._links[link]


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """As the server would: a client that has vanished is noticed after half a minute."""
    connection = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for option, value in _KEEPALIVE:
        connection.setsockopt(socket.IPPROTO_TCP, option, value)
