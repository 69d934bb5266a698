"""What a form says, as values; and what becomes of it when it can't be done."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from rota.core.time.interval import seconds_of
from rota.errors import ConfigError, RotaError
from rota.server.problems import Problem, to_problem
from rota.server.requests import RotaRequest
from rota.server.strict import of_validation

_SEPARATORS = re.compile(r"[\s,]+")


class Fields:
    """The fields of a form, by name. What is blank isn't there."""

    def __init__(self, found: Mapping[str, Sequence[str]]) -> None:
        self._found = found

    @classmethod
    async def of(cls, request: RotaRequest) -> Fields:
        return cls(await request.fields())

    def text(self, name: str) -> str | None:
        value = self._found.get(name, [""])[0].strip()
        return value or None

    def raw(self, name: str) -> str:
        """With its spaces and line ends, for showing it again."""
        return self._found.get(name, [""])[0]

    def several(self, name: str) -> list[str]:
        return [value for value in self._found.get(name, ()) if value.strip()]

    def words(self, name: str) -> list[str]:
        """Names between commas or spaces."""
        return [word for word in _SEPARATORS.split(self.text(name) or "") if word]

    def flag(self, name: str) -> bool:
        return self.text(name) is not None

    def whole(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{name}: {text[:50]!r} is not a whole number") from None

    def decimal(self, name: str) -> float | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"{name}: {text[:50]!r} is not a number") from None

    def seconds(self, name: str) -> float | None:
        text = self.text(name)
        return None if text is None else seconds_of(text, name)

    def moment(self, name: str) -> datetime | None:
        """As 2027-01-31T09:00:00+01:00; without a zone it is in UTC, and the form says so."""
        text = self.text(name)
        if text is None:
            return None
        try:
            found = datetime.fromisoformat(text.replace(" UTC", "Z"))
        except ValueError:
            raise ConfigError(
                f"{name}: {text[:50]!r} is not a time; write e.g. 2027-01-31 09:00 (UTC) or "
                "2027-01-31T09:00+01:00"
            ) from None
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    def json(self, name: str) -> Any:
        text = self.text(name)
        if text is None:
            return None
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ConfigError(f"{name}: this is not JSON: {error}") from None


def convert(values: Mapping[str, Any], kind: type[Any]) -> Any:
    """As a body of the API would be; what isn't there is left out."""
    given = {name: value for name, value in values.items() if value is not None}
    try:
        return msgspec.convert(given, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise of_validation(error) from None


class Wrong(Exception):
    """What was asked for can't be done; the page says why."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


@contextlib.contextmanager
def telling_why() -> Iterator[None]:
    """Turns what the person can do something about into `Wrong`. What isn't there stays a 404."""
    try:
        yield
    except (Problem, RotaError) as error:
        problem = to_problem(error)
        if problem is None or problem.status in (401, 403, 404) or problem.status >= 500:
            raise
        raise Wrong(problem) from None
