"""Read the fields of a form as values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec

from rota.core.time.interval import seconds_of
from rota.errors import ConfigError, RotaError
from rota.server.dashboard.pages import can_be_corrected
from rota.server.problems import Problem, to_problem
from rota.server.requests import RotaRequest
from rota.server.strict import of_validation

T = TypeVar("T")

_SEPARATORS = re.compile(r"[\s,]+")


class Fields:
    """The fields of a form, by name. A blank field is None."""

    def __init__(self, found: Mapping[str, Sequence[str]]) -> None:
        self._found = found

    @classmethod
    async def of(cls, request: RotaRequest) -> Fields:
        return cls(await request.fields())

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
        """Return a time such as 2027-01-31T09:00:00+01:00. Without an offset it is in UTC."""
        example = "a time; write e.g. 2027-01-31 09:00 (UTC) or 2027-01-31T09:00+01:00"
        found = self._parsed(
            name, lambda text: datetime.fromisoformat(text.replace(" UTC", "Z")), example
        )
        return found.replace(tzinfo=UTC) if found is not None and found.tzinfo is None else found

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


def convert(values: Mapping[str, Any], kind: type[Any]) -> Any:
    """Convert values as if they were a body of the REST API. Those that are None are left out."""
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return msgspec.convert(given, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise of_validation(error) from None


def explain(error: Problem | RotaError) -> str:
    """Return why a form was refused, to show it again. Raises what its user can't correct."""
    problem = to_problem(error)
    if problem is None or not can_be_corrected(problem):
        raise error
    return problem.detail
