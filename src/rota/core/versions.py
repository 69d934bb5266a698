"""Payloads that say which version of their task they were written for.

A task that declares ``version=2`` writes ``"$version": 2`` into each payload, as its first field. What
has no version was written before the task had one: it counts as version 1. Before the handler gets a
payload of an older version, the task's `upgrade` turns its arguments into those of today. The stored
payload stays as it is: another attempt, or a worker of the release before, reads the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import msgspec

from rota.core.arguments import Arguments
from rota.core.json_values import encode_values
from rota.core.signature import VERSION, Argument, Signature, missing
from rota.errors import ConfigError, InvalidArguments, PayloadTooNew

# Called with the arguments of an old payload, as JSON has them, and its version; returns today's.
Upgrade: TypeAlias = Callable[[dict[str, Any], int], dict[str, Any]]


class VersionedArguments(Arguments):
    """The arguments of a task whose payloads have versions."""

    def __init__(
        self, function: Callable[..., Any], context_types: Sequence[type], task: str,
        version: int, upgrade: Upgrade | None,
    ) -> None:  # fmt: skip
        super().__init__(function, context_types, task)
        if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version < 10_000:
            raise ConfigError(f"task {task!r}: version must be 1 to 9999, not {version!r}")
        if not callable(upgrade):
            raise ConfigError(
                f"task {task!r} has version {version}, and no `upgrade` for payloads of older ones: "
                "give it a function of (payload, from_version) that returns the arguments of today"
            )
        self._version = version
        self._upgrade = upgrade
        self._head = b'{"%b":%d' % (VERSION.encode(), version)

    def registered(self, description: str = "") -> Signature:
        own = super().registered(description)
        said = Argument(required=True, types=("integer",), values=(self._version,))
        return msgspec.structs.replace(
            own, arguments={VERSION: said, **own.arguments}, version=self._version
        )

    def bind_some(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        return {VERSION: self._version, **super().bind_some(args, kwargs)}

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if VERSION in kwargs:  # an old payload, submitted by name: it is upgraded when it runs
            return kwargs
        return {VERSION: self._version, **super()._bind(args, kwargs)}

    def check(self, payload: bytes) -> None:
        """Check JSON that somebody else wrote. It must say its version: it could be of any release."""
        if VERSION not in self._fields(payload):
            raise InvalidArguments(missing(self._name, VERSION))
        self.decode(payload)

    def decode(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        rest = payload.removeprefix(self._head)
        if len(rest) < len(payload) and rest[:1] in (b",", b"}"):
            return super().decode(b"{" + rest.removeprefix(b","))
        values = self._fields(payload)
        version = values.pop(VERSION, 1)
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise self._wrong(VERSION, f"expected a whole number from 1, not {version!r}")
        if version > self._version:
            raise PayloadTooNew(self._name, version, self._version)
        if version < self._version:
            values = self._upgrade(values, version)
            if not isinstance(values, dict):
                raise InvalidArguments(
                    f"task {self._name!r}: its upgrade from version {version} returned "
                    f"{type(values).__name__} instead of a dict of arguments"
                )
        try:
            return super().decode(encode_values(values, self._name))
        except InvalidArguments as error:
            if version == self._version:
                raise
            raise InvalidArguments(f"{error}, after its upgrade from version {version}") from None

    def _fields(self, payload: bytes) -> dict[str, Any]:
        try:
            values: dict[str, Any] = msgspec.json.decode(payload, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise self._explained(str(error)) from None
        return values
