"""Operations on triggers: messages of a broker that start jobs. What reads them is
`rota.worker.triggers`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from rota.config import check_name
from rota.core.administration import TriggerStatus
from rota.core.deliveries import FORMS
from rota.core.positions import merged
from rota.errors import ConfigError, NotFound
from rota.lib.addresses import Address, check_sasl, parse_address
from rota.operations.base import Operations
from rota.store.rows import to_value

PORTS = {"redis": 6379, "nats": 4222, "kafka": 9092, "amqp": 5672}
_OPTIONS = {
    "db": "the number of Redis's database",
    "field": "the field of an entry that is the message",
    "sasl": "how Kafka is told the password",
    "vhost": "RabbitMQ's virtual host",
}
Found: TypeAlias = "list[TriggerStatus]"  # inside Triggers, `list` is its method
Start: TypeAlias = Literal["new", "beginning"]
_SHORTEST_SECRET = 16
_LONGEST_POSITION = 20_000  # characters: Kafka's have an offset for each partition


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a broker, as filters and mappings see it."""

    position: str  # where it is in its stream
    body: bytes
    headers: Mapping[str, str] = {}
    topic: str = ""
    key: bytes | None = None  # of Kafka's messages

    def json(self) -> Any:
        """Return the body, which must be JSON."""
        return msgspec.json.decode(self.body)


class Inbox(msgspec.Struct, frozen=True):
    """How messages that come by HTTP are signed."""

    form: str
    secrets: tuple[str, ...]  # any of them

    def __repr__(self) -> str:
        return f"Inbox({self.form!r})"


class TriggerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger that code declares with `App.on`."""

    name: str
    task: str
    address: Address
    where: Callable[[Message], bool] | None = None
    arguments: Callable[[Message], Mapping[str, Any]] | None = None
    start: Start = "new"
    batch: int = 500
    inbox: Inbox | None = None

    @property
    def source(self) -> str:
        """Which stream it is, without credentials: another one has positions of its own."""
        return identity(self.address)


def identity(address: Address) -> str:
    """Return which stream or topic of a broker an address names, without credentials."""
    return address.told_apart_by(db="0", vhost="/")


def make_trigger(
    source: str, task: str, name: str | None, secret: str | Sequence[str], **settings: Any
) -> TriggerSpec:
    """Check what `App.on` was given."""
    secrets = (secret,) if isinstance(secret, str) else tuple(secret)
    inbox = None
    if source.startswith("http:"):
        address = Address(scheme="http")
        inbox = _make_inbox(source.removeprefix("http:"), secrets)
    else:
        address = _parse_broker(source)
        if secrets:
            raise ConfigError(
                "secret is for sources http:rota, http:github and http:stripe; a broker's password is "
                "in its address",
                field="secret",
            )
    spec = TriggerSpec(
        name=check_name("name", name or task), task=task, address=address, inbox=inbox, **settings
    )
    if spec.start not in ("new", "beginning"):
        raise ConfigError(f"start must be 'new' or 'beginning', not {spec.start!r}", field="start")
    if not 1 <= spec.batch <= 5_000:
        raise ConfigError(f"batch must be from 1 to 5000, not {spec.batch}", field="batch")
    for field in ("where", "arguments"):
        if (given := getattr(spec, field)) is not None and not callable(given):
            raise ConfigError(f"{field} must be a function of a Message", field=field)
        if inspect.iscoroutinefunction(given):
            raise ConfigError(
                f"{field} must be a plain function, not a coroutine: it decides at once, without "
                "asking anybody",
                field=field,
            )
    return spec


def _parse_broker(source: str) -> Address:
    address = parse_address("source", source, PORTS, _OPTIONS)
    if not address.path:
        raise ConfigError(
            f"source {address.shown!r} names no stream: write {address.scheme}://host/STREAM",
            field="source",
        )
    check_sasl("source", address)
    return address


def _make_inbox(form: str, secrets: tuple[str, ...]) -> Inbox:
    if form not in FORMS:
        raise ConfigError(
            f"source must be http:{', http:'.join(FORMS)}, not 'http:{form}'",
            field="source",
        )
    if not secrets or any(len(each) < _SHORTEST_SECRET or "\0" in each for each in secrets):
        raise ConfigError(
            f"a source http:{form} needs secret, of {_SHORTEST_SECRET} characters or more: what the "
            "sender signs with. Several, while it is changed",
            field="secret",
        )
    return Inbox(form, secrets)


class Triggers(Operations):
    """`app.triggers`"""

    def __init__(self, rota: Any) -> None:
        super().__init__(rota)
        self.declared: dict[str, TriggerSpec] = {}  # by this process's code

    async def list(self) -> list[TriggerStatus]:
        """List the triggers of the namespace."""
        return await self._read(None)

    async def get(self, name: str) -> TriggerStatus:
        if found := await self._read(name):
            return found[0]
        raise NotFound(
            f"there is no trigger {name!r} in namespace {self._namespace!r}", subject=name
        )

    async def _read(self, name: str | None) -> Found:
        rows = await (await self._database()).fetch("list_triggers", self._namespace, name)
        return [to_value(row, TriggerStatus) for row in rows]

    async def pause(self, name: str) -> TriggerStatus:
        """Start no jobs until it is resumed. Its messages wait in the broker."""
        return await self._change("pause", name, "pause_trigger", True)

    async def resume(self, name: str) -> TriggerStatus:
        """Go on where it was paused."""
        return await self._change("resume", name, "pause_trigger", False)

    async def rewind(self, name: str, to: str | None = None) -> TriggerStatus:
        """Go on after another position: messages after it become jobs, also those that did before.

        Args:
            name: the trigger.
            to: the position of the last message that is left out, as `TriggerStatus.position` shows
                them; none given: the beginning of the stream. Of Kafka, partitions that it doesn't
                name stay where they are.
        """
        if to is not None and not 1 <= len(to) <= _LONGEST_POSITION:
            raise ConfigError(
                f"to must have 1 to {_LONGEST_POSITION} characters, as positions have", field="to"
            )
        async with self._changing("rewind", f"trigger {name}") as change:
            # Locked: of Kafka, partitions that `to` doesn't name must not be set back to where they
            # were before a batch that is stored meanwhile.
            database = await self._database()
            await database.fetch("lock_trigger", self._namespace, name)
            change.before = before = await self.get(name)
            position = to and merged(before.source, before.position, to)
            await database.fetch("rewind_trigger", self._namespace, name, position)
            change.after = after = await self.get(name)
        return after

    async def remove(self, name: str) -> TriggerStatus:
        """Forget a trigger and its position. While code declares it, it is made anew."""
        async with self._changing("remove", f"trigger {name}") as change:
            change.before = before = await self.get(name)
            await (await self._database()).fetch("remove_trigger", self._namespace, name)
        return before

    async def _change(self, action: str, name: str, query: str, value: Any) -> TriggerStatus:
        async with self._changing(action, f"trigger {name}") as change:
            change.before = await self.get(name)
            await (await self._database()).fetch(query, self._namespace, name, value)
            change.after = after = await self.get(name)
        return after
