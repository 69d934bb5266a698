"""Read the fields of a form as values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, TypeVar

import msgspec

from rota.core.time.interval import seconds_of
from rota.core.time.zones import zone as zone_of
from rota.errors import ConfigError
from rota.server.dashboard.form_errors import Errors
from rota.server.dashboard.pages import zone_name
from rota.server.requests import RotaRequest
from rota.server.strict import of_validation

T = TypeVar("T")

_SEPARATORS = re.compile(r"[\s,]+")


class Fields:
    """The fields of a form, by name. A blank field is None."""

    def __init__(self, found: Mapping[str, Sequence[str]], zone: str = "UTC") -> None:
        self._found = found
        self._zone = zone

    @classmethod
    async def of(cls, request: RotaRequest) -> Fields:
        """Read the form. Its page says in which zone it reads times; otherwise it is the user's."""
        found = await request.fields()
        return cls(found, found.get("zone", [""])[0] or zone_name(request))

    def text(self, name: str) -> str | None:
        value = self._found.get(name, [""])[0].strip()
        return value or None

    def raw(self, name: str) -> str:
        """Return the text with its spaces and line ends, to show it again."""
        return self._found.get(name, [""])[0]

    def several(self, name: str) -> list[str]:
        return [value for value in self._found.get(name, ()) if value.strip()]

    def words(self, name: str) -> list[str]:
        """Return names that are separated by commas or spaces."""
        return [word for word in _SEPARATORS.split(self.text(name) or "") if word]

    def flag(self, name: str) -> bool:
        return self.text(name) is not None

    def whole(self, name: str) -> int | None:
        return self._parsed(name, int, "a whole number")

    def decimal(self, name: str) -> float | None:
        return self._parsed(name, float, "a number")

    def _parsed(self, name: str, parse: Callable[[str], T], what: str) -> T | None:
        text = self.text(name)
        try:
            return None if text is None else parse(text)
        except ValueError:
            raise ConfigError(f"{name}: {text and text[:50]!r} is not {what}") from None

    def seconds(self, name: str) -> float | None:
        text = self.text(name)
        return None if text is None else seconds_of(text, name)

    def moment(self, name: str) -> datetime | None:
        """Return a time such as 2027-01-31T09:00+01:00. Without an offset it is in the user's zone."""
        example = f"a time; write e.g. 2027-01-31 09:00 (in {self._zone}) or 2027-01-31T09:00+01:00"
        found = self._parsed(
            name, lambda text: datetime.fromisoformat(text.replace(" UTC", "Z")), example
        )
        if found is not None and found.tzinfo is None:
            return found.replace(tzinfo=zone_of(self._zone)).astimezone(UTC)
        return found

    def read(self, readers: Mapping[str, Reader], errors: Errors) -> dict[str, Any]:
        """Read fields, each by its method, and note what is wrong with each. An empty list is None."""
        values: dict[str, Any] = {}
        for name, read in readers.items():
            values[name] = None
            with errors.at(name):
                value = read(self, name)
                values[name] = None if value == [] else value
        return values

    def object(self, name: str) -> dict[str, Any] | None:
        """Return a JSON object."""
        text = self.text(name)
        try:
            found = None if text is None else msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(f"{name}: this is not JSON: {error}") from None
        if not isinstance(found, dict | None):
            raise ConfigError(f"{name}: must be a JSON object, with names and values")
        return found


Reader: TypeAlias = Callable[[Fields, str], Any]


def convert(values: Mapping[str, Any], kind: type[Any]) -> Any:
    """Convert values as if they were a body of the REST API. Those that are None are left out."""
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return msgspec.convert(given, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise of_validation(error) from None
