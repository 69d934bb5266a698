"""Changes that people and programs make, and their audit rows, in one transaction.

Protocol. An operation that changes something opens `changing(...)`, calls the store as usual, and may
add the state before and after. The statements and the audit row are committed together: after a crash
or an error there is neither. A change that is part of another one (a bulk action that calls a verb) is
recorded by the outer one alone.

The actor is in the context: a server sets it for each request, the command line for its run. Otherwise
it is the user of the operating system who runs the Python code.
"""

from __future__ import annotations

import contextlib
import getpass
import socket
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec

from rota.store import ambient
from rota.store.database import Connection, Database

Interface = Literal["rest", "dashboard", "cli", "python"]


class Actor(msgspec.Struct, frozen=True, kw_only=True):
    """The user or program that changes something."""

    name: str
    via: str  # token rota_ab12cd34, session 0198..., cli, python
    interface: Interface
    request_id: str | None = None
    address: str | None = None


_actor: ContextVar[Actor | None] = ContextVar("rota_actor", default=None)
_recorded: ContextVar[int | None] = ContextVar("rota_recorded", default=None)


def last_recorded() -> int | None:
    """Return the id of the audit row that this context has written last: what an undo is given."""
    return _recorded.get()


@contextlib.contextmanager
def acting_as(actor: Actor) -> Iterator[None]:
    """Record the changes made within the block under this actor."""
    token = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(token)


def act_as(actor: Actor) -> None:
    """Record the changes of the current context, to its end, under this actor."""
    _actor.set(actor)


@cache
def local_user() -> str:
    """Return the user of the operating system and the host, as in root@db1."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def local_actor(interface: Interface) -> Actor:
    return Actor(name=local_user(), via=interface, interface=interface)


def current_actor(name: str | None = None, via: str | None = None) -> Actor:
    """Return who acts in this context; with `name` and `via` in place of what the context has."""
    actor = _actor.get() or local_actor("python")
    return msgspec.structs.replace(actor, name=name or actor.name, via=via or actor.via)


@dataclass
class Change:
    """A change under way. `before` and `after` may be set until its block ends."""

    action: str
    subject: str
    namespace: str
    before: Any = None
    after: Any = None
    actor: Actor | None = None  # in place of the context's
    connection: Connection = None  # inside the transaction
    happened: bool = True

    def void(self) -> None:
        """Write no audit row, because nothing was changed after all."""
        self.happened = False


@contextlib.asynccontextmanager
async def changing(
    database: Database, action: str, subject: str, *, namespace: str | None = None,
    before: Any = None, after: Any = None,
) -> AsyncIterator[Change]:  # fmt: skip
    """Open the transaction of a change, which ends with its audit row."""
    change = Change(action, subject, namespace or database.settings.namespace, before, after)
    outer = ambient.change_of(database)
    if outer is not None:
        change.connection = outer
        yield change
        return
    async with database.transaction("change") as connection:
        change.connection = connection
        with ambient.within(database, connection, change=True):
            yield change
        if change.happened:
            await record_on(connection, database.queries["record_change"], change)


async def record(database: Database, connection: Connection, change: Change) -> None:
    """Write a change's row on a transaction that isn't of `changing`; nothing inside another change."""
    if ambient.change_of(database) is None:
        await record_on(connection, database.queries["record_change"], change)


async def record_on(connection: Connection, query: str, change: Change) -> None:
    actor = change.actor or current_actor()
    _recorded.set(await connection.fetchval(
        query, change.namespace, actor.name, actor.via, change.action, change.subject,
        as_json(change.before), as_json(change.after), actor.request_id, actor.address,
        actor.interface,
    ))  # fmt: skip


def as_json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
