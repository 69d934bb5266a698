"""A task for each type of argument and each runner, which checks what it gets and returns it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic

from rota import App, DurableContext, SyncDurableContext, Task

app = App(processes=1)
T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1


class Item(pydantic.BaseModel):
    name: str
    price: Decimal = pydantic.Field(gt=0, alias="unitPrice")
    ordered: datetime | None = None


class Address(TypedDict):
    street: str
    number: int


class Point(NamedTuple):
    x: int
    y: int


class Box(msgspec.Struct):
    width: float
    item: Item | None = None


@dataclass
class Parcel:
    to: Address
    sent: date
    label: Path
    boxes: list[Box] = field(default_factory=list)


@dataclass
class Page(Generic[T]):
    items: list[T]
    next: str | None = None


@attrs.define
class Customer:
    name: str
    since: date
    limit: int = attrs.field(default=1, validator=attrs.validators.gt(0))


ITEM = Item(name="cup", unitPrice=Decimal("4.50"), ordered=datetime(2030, 1, 2, 3, tzinfo=UTC))
PARCEL = Parcel(
    {"street": "High", "number": 7}, date(2030, 1, 31), Path("a/b"), [Box(1.5), Box(2.0, ITEM)]
)

# The words of the page, the annotation, and a value.
TYPES: list[tuple[str, Any, Any]] = [
    ("`str`, `int`, `float`, `bool`, `None`", dict[str, str | int | float | bool | None],
     {"a": "é\U0001f600", "b": 2**60, "c": 0.5, "d": True, "e": None}),
    ("no annotation: plain JSON", Any, {"x": [1, 2.5, None, True]}),
    ("Pydantic model", Item, ITEM),
    ("`list[Model]`, `Optional[Model]`", dict[str, list[Item] | None], {"a": [ITEM], "b": None}),
    ("dataclass, with others inside", Parcel, PARCEL),
    ("generic dataclass: `Page[date]`", Page[date], Page([date(2030, 1, 31)], "b")),
    ("attrs class", Customer, Customer("Ada", date(2030, 1, 1), 5)),
    ("msgspec struct", Box, Box(1.0, ITEM)),
    ("`TypedDict`", Address, {"street": "High", "number": 1}),
    ("`NamedTuple`", Point, Point(1, 2)),
    ("`Enum`", Colour, Colour.BLUE),
    ("`IntEnum`", Size, Size.SMALL),
    ("`Literal`", Literal["a", 1], "a"),
    ("`Decimal`", Decimal, Decimal("1.10")),
    ("`UUID`", UUID, UUID(int=7)),
    ("`datetime`", datetime, datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC)),
    ("`date`", date, date(2030, 1, 31)),
    ("`time`", time, time(23, 59, 1)),
    ("`timedelta`", timedelta, timedelta(days=3, seconds=90)),
    ("`Path`", Path, Path("/tmp/a b.txt")),
    ("`IPv4Address`", IPv4Address, IPv4Address("10.0.0.1")),
    ("`ZoneInfo`", ZoneInfo, ZoneInfo("Europe/Paris")),
    ("`bytes`", bytes, b"\0\1\xff"),
    ("`set[date]`", set[date], {date(2030, 1, 1), date(2030, 1, 2)}),
    ("`frozenset[str]`", frozenset[str], frozenset({"a", "b"})),
    ("`tuple[int, str]`", tuple[int, str], (1, "a")),
    ("`tuple[UUID, ...]`", tuple[UUID, ...], (UUID(int=1), UUID(int=2))),
    ("`dict[int, Decimal]`", dict[int, Decimal], {7: Decimal("0.10")}),
    ("`dict[UUID, Path]`", dict[UUID, Path], {UUID(int=7): Path("x")}),
]  # fmt: skip
RUNNERS = ("loop", "thread", "process")


def check(given: Any, expected: Any) -> Any:
    if given != expected or type(given) is not type(expected):
        raise TypeError(f"got {given!r} ({type(given)}), expected {expected!r}")
    return given


def task_of(number: int, runner: str) -> Task[..., Any]:
    return app.tasks[f"{runner}_{number}"]


def durable_of(number: int, kind: str) -> Any:
    return app.tasks[f"{kind}_{number}"]


def _annotated(function: Callable[..., Any], kind: Any, **others: Any) -> Callable[..., Any]:
    function.__annotations__ = {**others, "given": kind, "return": kind}
    return function


def _declare(number: int, kind: Any, value: Any) -> None:
    async def on_loop(given):
        return check(given, value)

    def plain(given):
        return check(given, value)

    async def durable(ctx, given):
        check(await ctx.step(step, given), value)
        check(await ctx.step(task_of(number, "loop"), given), value)
        return check(await ctx.call(task_of(number, "loop"), given), value)

    def durable_sync(ctx, given):
        return check(ctx.step(step, given), value)

    def step(given):
        return check(given, value)

    _annotated(step, kind)
    app.task(name=f"loop_{number}")(_annotated(on_loop, kind))
    app.task(name=f"thread_{number}", runner="thread")(_annotated(plain, kind))
    app.task(name=f"process_{number}")(_annotated(plain, kind))
    app.durable(name=f"durable_{number}")(_annotated(durable, kind, ctx=DurableContext))
    app.durable(name=f"durable sync_{number}".replace(" ", "_"))(
        _annotated(durable_sync, kind, ctx=SyncDurableContext)
    )


for _number, (_, _kind, _value) in enumerate(TYPES):
    _declare(_number, _kind, _value)
