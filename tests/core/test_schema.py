"""JSON Schemas of tasks: what they say, and that the check by them refuses nothing that a task takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import hypothesis
import msgspec
import pydantic
import pytest
from hypothesis import strategies as some

from rota.core.arguments import Arguments
from rota.core.signature import problem_with
from rota.errors import InvalidArguments


class Colour(Enum):
    RED = "red"

    @classmethod
    def _missing_(cls, value: object) -> Colour | None:
        return cls.RED if value == "a" else None


class Item(pydantic.BaseModel):
    number: int
    inner: list[Item] = []


class Tree(msgspec.Struct, forbid_unknown_fields=True):
    a: int = 0
    b: list[Tree] = []
    c: Tree | None = None


class Small(TypedDict, total=False):
    a: Annotated[int, msgspec.Meta(ge=1)]
    b: Annotated[str, msgspec.Meta(max_length=1)]


@dataclass
class Mixed:
    a: int
    b: tuple[int, str] = (1, "")
    c: Colour = Colour.RED
    item: Item | None = None
    many: dict[str, list[float]] = field(default_factory=dict)


KINDS: list[Any] = [
    int, float, bool, str, None, Decimal, UUID, date, datetime, timedelta, bytes, Path, Any, object,
    Colour, Literal["a", 1], Item, Tree, Small, Mixed, list[int], list[Mixed], dict[str, Mixed],
    dict[int, str], set[int], tuple[int, ...], tuple[int, str], Mixed | None, int | str | None,
    list[Tree | None], Annotated[list[int], msgspec.Meta(min_length=1)],
]  # fmt: skip
NAMES = some.sampled_from(["a", "b", "c", "item", "many", "number", "inner", "x"])
VALUES = some.recursive(
    some.none() | some.booleans() | some.integers(-2, 3) | some.floats(-1, 1)
    | some.sampled_from(["", "a", "1", "red", "2030-01-01", "PT1S"]),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


def arguments_of(kind: Any) -> Arguments:
    async def take(given, other=None): ...

    take.__annotations__ = {"given": kind, "other": list[kind]}
    return Arguments(take, ())


def accepts(arguments: Arguments, payload: Any) -> bool:
    try:
        arguments.decode(msgspec.json.encode(payload))
    except InvalidArguments:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_a_schema_refuses_the_function_refuses(kind: Any) -> None:
    arguments = arguments_of(kind)
    signature = arguments.registered()
    assert signature.schema is not None

    @hypothesis.settings(max_examples=60)
    @hypothesis.given(some.fixed_dictionaries({"given": VALUES}, optional={"other": VALUES}))
    def judge(payload: dict[str, Any]) -> None:
        problem = problem_with([signature], "t", payload, inside=True)
        assert problem is None or not accepts(arguments, payload), (payload, problem)

    judge()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"a": "x"}, "expected integer, got string (at a)"),
        ({}, "field 'a' is missing"),
        ({"a": 1, "b": [1, 2]}, "expected string, got integer (at b[1])"),
        ({"a": 1, "b": [1]}, "expected at least 2 items, got 1 (at b)"),
        ({"a": 1, "many": {"x": [1, None]}}, "expected number, got null (at many.x[1])"),
    ],
)
def test_a_refusal_names_the_place(given: Any, problem: str) -> None:
    found = problem_with([arguments_of(Mixed).registered()], "t", {"given": given}, inside=True)
    assert found == f"task 't': argument 'given': {problem}"


def test_a_schema_has_names_types_and_what_is_required() -> None:
    schema = arguments_of(Mixed).json_schema()
    assert schema is not None
    assert schema["required"] == ["given"]
    assert schema["properties"]["given"] == {"$ref": "#/$defs/Mixed"}
    assert schema["$defs"]["Mixed"]["properties"]["a"] == {"type": "integer"}
    assert schema["$defs"]["Item"]["properties"]["number"]["type"] == "integer"


def test_two_classes_of_one_name_are_not_mistaken_for_each_other() -> None:
    def make(kind: Any) -> Any:
        return dataclass(type("Same", (), {"__annotations__": {"a": kind}}))

    async def take(one, other): ...

    take.__annotations__ = {"one": make(int), "other": make(str)}
    arguments = Arguments(take, ())
    payload = {"one": {"a": 1}, "other": {"a": "x"}}
    assert accepts(arguments, payload)
    assert problem_with([arguments.registered()], "t", payload, inside=True) is None


def test_a_schema_that_is_too_large_is_left_out() -> None:
    large = Literal[tuple(f"{number:0100}" for number in range(1000))]  # type: ignore[valid-type]
    assert arguments_of(large).registered().schema is None
