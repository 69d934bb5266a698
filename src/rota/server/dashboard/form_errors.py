"""Errors of a form, to show it again."""

from __future__ import annotations

from collections.abc import Mapping

from rota.errors import RotaError
from rota.server.problems import Problem, to_problem


def can_be_corrected(problem: Problem) -> bool:
    return 400 <= problem.status < 500 and problem.status not in (401, 403, 404)


class Errors:
    """The errors of a form, each at its field, under the names that the form shows.

    `labels` are these names, by field.
    """

    def __init__(self, labels: Mapping[str, str]) -> None:
        self._labels = labels
        self._by_field: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._by_field)

    def at(self, field: str = "") -> _Noting:
        """Note an error of the block, at this field unless it names another."""
        return _Noting(self, field)

    def add(self, error: Problem | RotaError, field: str = "") -> None:
        """Note an error. Raises what the user can't correct here."""
        problem = to_problem(error)
        if problem is None or not can_be_corrected(problem):
            raise error
        found = {name: text for name, text in problem.fields.items() if name in self._labels}
        if not found:
            name = problem.detail.partition(":")[0]
            found = {name if name in self._labels else field: problem.detail}
        for name, text in found.items():
            self._by_field.setdefault(name, text.removeprefix(f"{name}: "))

    def of(self, field: str) -> str:
        return self._by_field.get(field, "")

    @property
    def lines(self) -> list[str]:
        """All of it, for the top of the page."""
        labels = self._labels
        return [f"{labels[name]}: {text}" if name in labels else text
                for name, text in self._by_field.items()]  # fmt: skip


class _Noting:
    """The block of `Errors.at`."""

    def __init__(self, errors: Errors, field: str) -> None:
        self._errors = errors
        self._field = field

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Problem | RotaError):
            return False
        self._errors.add(error, self._field)
        return True


NO_ERRORS = Errors({})
