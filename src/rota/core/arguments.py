"""A task's arguments: from a call to JSON and back, checked against the function's signature.

The payload is a JSON object of argument names and values, so that it reads well in a table and can
be written by hand, by SQL or by another language. Types come from the annotations, see
`rota.core.codec`; what has no annotation travels as plain JSON.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from rota.core.codec import (
    Adapter,
    decode_hook,
    has_sets,
    is_pydantic,
    json_types,
    unreadable,
)
from rota.core.injected import injected_type
from rota.core.json_values import check_numbers, encode_in_order, encode_values
from rota.core.payloads import Limits, encode_payload
from rota.core.schema import Schema, SchemaWriter, schema_of
from rota.core.signature import VERSION, Argument, Signature, missing, unknown
from rota.errors import ConfigError, InvalidArguments, PayloadTooNew

_POSITIONAL_ONLY = inspect.Parameter.POSITIONAL_ONLY
_VAR_POSITIONAL = inspect.Parameter.VAR_POSITIONAL
_VAR_KEYWORD = inspect.Parameter.VAR_KEYWORD
_NAMED_ONLY = (inspect.Parameter.KEYWORD_ONLY, _VAR_KEYWORD)
_raw_values = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# "Expected `int`, got `str` - at `$.order.items[0]`", or "- at `key` in `$.order.prices`"
_AT_ARGUMENT = re.compile(
    r"(?P<problem>.*) - at (?P<key>`key` in )?`\$\.(?P<name>\w+)(?P<rest>.*)`", re.DOTALL
)
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]+)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")


class Arguments:
    """Encodes, checks and decodes the arguments of one function."""

    def __init__(
        self, function: Callable[..., Any], context_types: Sequence[type], task: str | None = None
    ) -> None:
        self._name: str = task or str(getattr(function, "__name__", function))
        self._signature = inspect.signature(function)
        self._hints = hints = self._resolve_hints(function)
        self.context_parameter = next(
            (
                name
                for name, parameter in self._signature.parameters.items()
                if (name == "ctx" or hints.get(name) in context_types)
                and parameter.kind not in (_VAR_POSITIONAL, _VAR_KEYWORD)
            ),
            None,
        )
        self.injected = {
            name: kind
            for name in self._signature.parameters
            if (kind := injected_type(hints.get(name))) is not None
        }
        self._parameters = {
            name: parameter
            for name, parameter in self._signature.parameters.items()
            if name != self.context_parameter and name not in self.injected
        }
        self.is_empty = not self._parameters
        self.returns = hints.get(
            "return", Any
        )  # of a coroutine function: what it returns when awaited
        # The parameter that takes arguments of any name, as **options does.
        self._extra = next((n for n, p in self._parameters.items() if p.kind is _VAR_KEYWORD), None)
        self._open = self._extra is not None
        self._by_position = [
            n for n, p in self._parameters.items() if p.kind in (_POSITIONAL_ONLY, _VAR_POSITIONAL)
        ]
        self._names = [n for n, p in self._parameters.items() if p.kind is not _VAR_KEYWORD]
        self._bindable = self._signature.replace(parameters=list(self._parameters.values()))
        self._plain = not (self._open or self._by_position)
        self._check_injected()
        # Where the context goes in a call with positional arguments; None: it is passed by name.
        self.context_place = self._place_of_context() if self._by_position else None
        self._may_lack = any(
            p.default is not inspect.Parameter.empty or p.kind is _VAR_POSITIONAL
            for p in self._parameters.values()
        )
        self._adapters = self._find_adapters(hints)
        self._with_sets = [
            name
            for name in self._names
            if name not in self._adapters and has_sets(hints.get(name, Any))
        ]
        self._decode = self._make_decoder(hints)

    def _check_injected(self) -> None:
        for name in self.injected if self._by_position else ():
            if self._signature.parameters[name].kind not in _NAMED_ONLY:
                raise ConfigError(
                    f"task {self._name!r}: {name!r} is injected, and must be passed by name beside "
                    "positional arguments: put it after a `*`"
                )

    def _place_of_context(self) -> int | None:
        parameter = self._signature.parameters.get(self.context_parameter or "")
        if parameter is None or parameter.kind in _NAMED_ONLY:
            return None
        return list(self._signature.parameters).index(parameter.name)

    def hint(self, name: str) -> Any:
        """Return the annotation of a parameter; `Any` without one."""
        return self._hints.get(name, Any)

    def bind_some(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name. Some may be missing; their values aren't checked."""
        try:
            bound = self._bindable.bind_partial(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidArguments(f"task {self._name!r}: {error}") from None
        return self._flattened(bound)

    def describe(self) -> Signature:
        """Return the signature in terms of JSON, for processes that don't have the code."""
        arguments = {
            name: self._describe(name, parameter)
            for name, parameter in self._parameters.items()
            if parameter.kind is not _VAR_KEYWORD
        }
        return Signature(arguments, open=self._open)

    def registered(self, description: str = "") -> Signature:
        """Return the signature as nodes register it: with the schemas of arguments and result."""
        return msgspec.structs.replace(
            self.describe(), schema=self.json_schema(), returns=schema_of(self.returns),
            description=description,
        )  # fmt: skip

    def json_schema(self) -> Schema | None:
        """Return the JSON Schema of the payload; None if it is too large to be registered."""
        writer = SchemaWriter()
        properties: Schema = {}
        for name, parameter in self._parameters.items():
            own = writer.of(self._hints.get(name, Any))
            if parameter.kind is _VAR_POSITIONAL:
                own = {"type": "array", "items": own}
            if parameter.kind is not _VAR_KEYWORD:
                properties[name] = own
        required = [name for name, each in self.describe().arguments.items() if each.required]
        return writer.finished(
            {
                "type": "object", "title": self._name, "properties": properties,
                "required": required, "additionalProperties": self._open,
            }
        )  # fmt: skip

    def _describe(self, name: str, parameter: inspect.Parameter) -> Argument:
        if parameter.kind is _VAR_POSITIONAL:
            return Argument(types=("array",))
        values = None
        if adapter := self._adapters.get(name):
            types = adapter.json_types
        else:
            types, values = json_types(self._hints.get(name, Any))
        required = parameter.default is inspect.Parameter.empty
        return Argument(
            required=required, types=None if types is None else tuple(sorted(types)), values=values
        )

    def _find_adapters(self, hints: Mapping[str, Any]) -> dict[str, Adapter]:
        """Make adapters for the arguments that Pydantic reads. Refuses those that can't be read."""
        adapters: dict[str, Adapter] = {}
        for name, parameter in self._parameters.items():
            kind = hints.get(name, Any)
            try:
                if parameter.kind not in (_VAR_POSITIONAL, _VAR_KEYWORD) and is_pydantic(kind):
                    adapters[name] = Adapter(kind)
                    continue
            except Exception as error:  # noqa: BLE001 - a model's own code may raise anything
                raise ConfigError(
                    f"task {self._name!r}: Pydantic can't read its argument {name!r}: {error}"
                ) from None
            if (wrong := unreadable(kind)) is not None:
                raise ConfigError(
                    f"task {self._name!r}: its argument {name!r} is of type "
                    f"{wrong.__module__}.{wrong.__qualname__}, which has no JSON form. Take a text, a "
                    "number, a list, a dict, a dataclass, a msgspec Struct or a Pydantic model instead"
                )
        return adapters

    def _resolve_hints(self, function: Callable[..., Any]) -> dict[str, Any]:
        try:
            return typing.get_type_hints(function, include_extras=True)
        except (NameError, TypeError) as error:
            if not inspect.isroutine(function):
                raise ConfigError(
                    f"task {self._name!r}: {function!r} is neither a function nor a method. Write a "
                    "function that calls it"
                ) from None
            raise ConfigError(
                f"task {self._name!r}: an annotation can't be resolved ({error}). Import it at run "
                "time, not only for type checking"
            ) from None

    def _make_decoder(self, hints: Mapping[str, Any]) -> Callable[[bytes], Any]:
        fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
        for name, parameter in self._parameters.items():
            kind = msgspec.Raw if name in self._adapters else hints.get(name, Any)
            if parameter.kind is _VAR_KEYWORD:
                self._extra_reader = self._make_reader(hints.get(name, Any))
                continue
            if name.startswith("__"):
                raise ConfigError(
                    f"task {self._name!r}: the name of its argument {name!r} begins with two "
                    "underscores; rename it"
                )
            if parameter.kind is _VAR_POSITIONAL:
                fields.append((name, list.__class_getitem__(kind), msgspec.UNSET))
            elif parameter.default is inspect.Parameter.empty:
                fields.append((name, kind))
            else:
                # Not the default itself: that stays the function's business, also when it changes.
                # UNSET is not part of the type, which may be one that no union can hold, as Path.
                fields.append((name, kind, msgspec.UNSET))
        try:
            struct = msgspec.defstruct(
                "Arguments", fields, kw_only=True, forbid_unknown_fields=not self._open
            )
            return msgspec.json.Decoder(struct, dec_hook=decode_hook).decode
        except TypeError as error:
            raise ConfigError(
                f"task {self._name!r}: its arguments can't travel as JSON: {error}"
            ) from None

    def _make_reader(self, kind: Any) -> Callable[[bytes], Any]:
        if is_pydantic(kind):
            return Adapter(kind).read
        try:
            return msgspec.json.Decoder(kind, dec_hook=decode_hook).decode
        except TypeError as error:
            raise ConfigError(
                f"task {self._name!r}: its arguments can't travel as JSON: {error}"
            ) from None

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any], limits: Limits) -> bytes:
        """Return the payload for a call, checked as the worker will check it."""
        try:
            bound = self._bind(args, kwargs)
        except TypeError as error:
            raise InvalidArguments(f"task {self._name!r}: {error}") from None
        if self._adapters:
            bound = self._written(bound)
        if self._with_sets:
            bound = self._in_order(bound)
        payload = encode_payload(bound, limits, self._name)
        self.decode(payload)
        return payload

    def _in_order(self, bound: dict[str, Any]) -> dict[str, Any]:
        """Replace what has sets within by its JSON."""
        ordered = dict(bound)
        for name in self._with_sets:
            if name in bound:
                value = {name: bound[name]}
                encoded = encode_values(value, self._name, encode=encode_in_order)
                check_numbers(encoded, value, self._name)
                ordered[name] = msgspec.json.decode(encoded)[name]
        return ordered

    def _written(self, bound: dict[str, Any]) -> dict[str, Any]:
        """Replace what Pydantic defines by plain JSON values."""
        written = dict(bound)
        for name, adapter in self._adapters.items():
            if name in bound:
                try:
                    written[name] = adapter.write(bound[name])
                except Exception as error:  # noqa: BLE001 - a model's own code may raise anything
                    raise self._wrong(name, str(error)) from None
        return written

    def _wrong(self, name: str, problem: str) -> InvalidArguments:
        return InvalidArguments(f"task {self._name!r}: argument {name!r}: {problem}")

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._plain and len(args) <= len(self._names) and not (args and kwargs):
            # Missing, unknown and doubled names are found by the check that follows.
            return kwargs if not args else dict(zip(self._names, args, strict=False))
        bound = self._bindable.bind(*args, **kwargs).arguments
        return self._flattened(bound)

    def _flattened(self, bound: dict[str, Any]) -> dict[str, Any]:
        """Return bound arguments as the payload has them: those of `**options` beside the others."""
        others = bound.pop(self._extra, {}) if self._extra is not None else {}
        for name in others:
            if name in self._names:  # Python tells f(a, /) from f(a=...); one JSON object can't
                raise InvalidArguments(
                    f"task {self._name!r}: {name!r} is the name of a parameter that is passed by "
                    "position, and can't be given by name as well"
                )
        return {**bound, **others}

    def check(self, payload: bytes) -> None:
        """Check a payload that somebody else wrote."""
        self.decode(payload)

    def decode(self, payload: bytes) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments for the call."""
        if not self._names and payload == b"{}":
            return [], {}
        try:
            values = msgspec.structs.asdict(self._decode(payload))
        except msgspec.DecodeError as error:
            raise self._explained(str(error)) from None
        except RecursionError:
            raise InvalidArguments(
                f"task {self._name!r}: the payload is nested too deeply"
            ) from None
        kwargs = values
        if self._may_lack:
            kwargs = {name: value for name, value in values.items() if value is not msgspec.UNSET}
        if self._adapters:
            self._adapt(kwargs)
        if self._plain:
            return [], kwargs
        return self._spread(payload, kwargs)

    def _adapt(self, kwargs: dict[str, Any]) -> None:
        """Replace what Pydantic defines by its own values."""
        for name, adapter in self._adapters.items():
            if name in kwargs:
                try:
                    kwargs[name] = adapter.read(bytes(kwargs[name]))
                except ValueError as error:
                    raise self._wrong(name, str(error)) from None

    def _explained(self, problem: str) -> InvalidArguments:
        """Return an error that names the argument where msgspec gives a path."""
        if found := _AT_ARGUMENT.fullmatch(problem):
            place = "a key of " if found["key"] else ""
            inner = found["rest"].lstrip(".") or (found["name"] if found["key"] else "")
            deeper = f" (at {place}{inner})" if inner else ""
            return self._wrong(found["name"], f"{found['problem']}{deeper}")
        if found := _MISSING.fullmatch(problem):
            return InvalidArguments(missing(self._name, found["name"]))
        if found := _UNKNOWN.fullmatch(problem):
            if found["name"] == VERSION:
                return PayloadTooNew(self._name, None, 1)
            return InvalidArguments(unknown(self._name, found["name"], self._names))
        return InvalidArguments(f"task {self._name!r}: {problem}")

    def _read_extra(self, name: str, body: bytes) -> Any:
        """Read an argument that `**options` takes, by the annotation of that."""
        try:
            return self._extra_reader(body)
        except msgspec.DecodeError as error:
            problem, _, place = str(error).partition(" - at `$")
            inner = place.rstrip("`").lstrip(".")
            raise self._wrong(name, f"{problem} (at {inner})" if inner else problem) from None
        except ValueError as error:
            raise self._wrong(name, str(error)) from None

    def _spread(self, payload: bytes, kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        if self._open:
            for name, body in _raw_values(payload).items():
                if name not in self._names:
                    kwargs[name] = self._read_extra(name, bytes(body))
        args: list[Any] = []
        for name, parameter in self._parameters.items():
            if parameter.kind is _VAR_POSITIONAL:
                args.extend(kwargs.pop(name, ()))
            elif self._by_position and parameter.kind not in _NAMED_ONLY:
                # Also what was left out has its place: the next one would slip into it.
                args.append(kwargs.pop(name, parameter.default))
        return args, kwargs
