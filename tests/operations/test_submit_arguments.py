"""Arguments and options of a submit: what arrives as it was, and what is refused."""

from __future__ import annotations

import dataclasses
import enum
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import msgspec
import pytest

from rota import (
    ConfigError,
    Context,
    InvalidArguments,
    PayloadTooLarge,
    SubmitError,
)
from tests.support.jobs import everything


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Address:
    street: str
    since: date


class Order(msgspec.Struct):
    id: int
    total: Decimal
    address: Address


async def test_what_the_annotations_name_arrives_as_it_was(sandbox):
    received = []

    @sandbox.app.task
    async def take(
        at: datetime, day: date, uuid: UUID, price: Decimal, colour: Colour, order: Order,
        raw: bytes, pair: tuple[int, str], names: set[str], maybe: int | None, big: int, anything,
    ) -> None:  # fmt: skip
        received.append(
            (at, day, uuid, price, colour, order, raw, pair, names, maybe, big, anything)
        )

    sent = (
        datetime(2026, 5, 1, 12, 30, tzinfo=UTC), date(2026, 5, 1), uuid4(), Decimal("10.10"),
        Colour.RED, Order(1, Decimal("0.1"), Address("Rue 1", date(2020, 1, 2))), b"\x00\xff",
        (1, "é\U0001f600"), {"a", "b"}, None, 2**80, {"x": [1, 2.5, None, True]},
    )  # fmt: skip
    await take.submit(*sent)
    [job] = await sandbox.run_due(raise_errors=True)
    assert job.state == "succeeded"
    assert received == [sent]


async def test_every_kind_of_parameter_is_called_as_it_was_submitted(sandbox):
    received = []

    @sandbox.app.task
    async def positional(a, b=2, /, c=3, *rest: int, d, e=5, **more) -> None:
        received.append((a, b, c, rest, d, e, more))

    @sandbox.app.task
    def only_keywords(*, x: int, y: int = 7) -> None:
        received.append((x, y))

    @sandbox.app.task
    async def nothing() -> None:
        received.append("nothing")

    await positional.submit(1, d=4)
    await positional.submit(1, 20, 30, 31, 32, d=40, e=50, f=60)
    await only_keywords.submit(x=1)
    await nothing.submit()
    await sandbox.run_due(raise_errors=True)
    assert received == [
        (1, 2, 3, (), 4, 5, {}),
        (1, 20, 30, (31, 32), 40, 50, {"f": 60}),
        (1, 7),
        "nothing",
    ]


async def test_a_default_stays_the_functions_business(sandbox):
    @sandbox.app.task
    async def greet(name: str, times: int = 1) -> None: ...

    handle = await greet.submit("Ada")
    assert (await handle.status()).payload == {"name": "Ada"}


REFUSED_CALLS = [
    ((), {}, "name"),
    (("Ada",), {"unknown": 1}, "unknown"),
    ((), {"name": "Ada", "unknown": 1}, "unknown"),
    (("Ada", 1, 2), {}, "too many positional"),
    (("Ada",), {"name": "Alan"}, "multiple values"),
    ((5,), {}, "argument 'name': Expected `str`, got `int`"),
    (("Ada", "often"), {}, "argument 'times': Expected `int`, got `str`"),
    (("Ada", 1.5), {}, "argument 'times'"),
    ((None,), {}, "argument 'name'"),
]


@pytest.mark.parametrize(("args", "kwargs", "says"), REFUSED_CALLS)
async def test_arguments_that_dont_fit_the_signature_are_refused_by_name(
    app, greet, args, kwargs, says
):
    with pytest.raises(InvalidArguments, match=f"(?s)task 'greet'.*{says}"):
        await greet.submit(*args, **kwargs)
    assert await everything(app) == []


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def endless() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


UNSTORABLE = {
    "NUL": ("a\0b", "NUL"),
    "NUL in a name": ({"a\0": 1}, "NUL"),
    "lone surrogate": ("\ud800", "half of a surrogate pair"),
    "NaN": (float("nan"), "NaN and infinity"),
    "infinity, deep inside": ({"a": [1, {"b": float("-inf")}]}, "NaN and infinity"),
    "object": (object(), "objects of type builtins.object have no JSON form"),
    "function": (print, "have no JSON form"),
    "endless": (endless(), "contains itself"),
}


@pytest.mark.parametrize("case", UNSTORABLE)
async def test_what_cant_travel_as_json_is_refused_and_nothing_is_stored(app, case):
    @app.task
    async def take(value) -> None: ...

    value, says = UNSTORABLE[case]
    with pytest.raises(InvalidArguments, match=f"task 'take'.*{says}"):
        await take.submit(value)
    with pytest.raises(InvalidArguments, match=f"task 'elsewhere'.*{says}"):
        await app.submit("elsewhere", {"value": value})
    with pytest.raises(InvalidArguments, match=says):
        await app.submit("elsewhere", {}, headers={"value": value})
    assert await everything(app) == []


async def test_text_about_nul_is_no_nul(app):
    handle = await app.submit("elsewhere", {"value": "\\u0000", "other": "C:\\\\u0000"})
    assert (await handle.status()).payload == {"value": "\\u0000", "other": "C:\\\\u0000"}


async def test_payloads_have_limits_of_size_and_depth(make_app):
    app = make_app(max_payload_bytes=1000, max_payload_depth=10)
    assert await app.submit("t", {"v": nested(9)})
    with pytest.raises(PayloadTooLarge, match="nested 11 levels deep, the limit is 10"):
        await app.submit("t", {"v": nested(10)})
    assert await app.submit("t", {"v": "[" * 900})  # brackets in a text are no depth
    with pytest.raises(PayloadTooLarge, match=r"1,001 bytes, the limit is 1,000.*reference"):
        await app.submit("t", {"v": "x" * (1001 - len('{"v":""}'))})
    with pytest.raises(PayloadTooLarge, match=r"headers field has 16,39. bytes"):
        await app.submit("t", {}, headers={"v": "x" * 16_384})
    assert len(await everything(app)) == 2


REFUSED_OPTIONS = [
    ({"at": datetime(2030, 1, 1)}, "with a time zone.*ZoneInfo"),
    ({"at": "tomorrow"}, "with a time zone"),
    ({"at": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))}, "the year 1 is not in 1970"),
    ({"at": datetime(9998, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14)))}, "9999 is not in"),
    ({"at": datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-14)))}, "9999 is not in"),
    ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 5}, "at or delay, not both"),
    ({"delay": -1}, "delay must be"),
    ({"delay": float("nan")}, "delay must be"),
    ({"delay": float("inf")}, "delay must be"),
    ({"delay": "5"}, "delay must be"),
    ({"delay": True}, "delay must be"),
    ({"queue": "no spaces"}, "queue 'no spaces' is not a usable name"),
    ({"queue": "a/b"}, "queue 'a/b'"),
    ({"queue": "a+b"}, r"queue 'a\+b'"),
    ({"queue": ""}, "queue ''"),
    ({"queue": "é"}, "queue 'é'"),
    ({"queue": "x" * 101}, "queue"),
    ({"queue": "line\n"}, "queue"),
    ({"needs": ["gpu+avx"]}, r"needs 'gpu\+avx'"),
    ({"tags": ["a b"]}, "tag 'a b'"),
    ({"key": ""}, "key must be"),
    ({"key": "x" * 256}, "key must be"),
    ({"key": 7}, "key must be"),
    ({"key": "a\0"}, "key .* can't be stored"),
    ({"key": "\ud800"}, "key .* can't be stored"),
    ({"share": "acme"}, "unknown option 'share'"),
    ({"priority": 1001}, "priority must be"),
    ({"priority": 1.5}, "priority must be"),
    ({"priority": True}, "priority must be"),
    ({"max_attempts": 0}, "max_attempts must be"),
    ({"max_attempts": 2.5}, "max_attempts must be"),
    ({"timeout": 0}, "timeout must be"),
    ({"timeout": float("nan")}, "timeout must be"),
    ({"timeout": "5"}, "timeout must be"),
    ({"timeout": True}, "timeout must be"),
    ({"headers": [1]}, "headers must be"),
    ({"colour": "red"}, "unknown option 'colour'"),
]


async def test_options_that_make_no_sense_are_refused_by_name(app):
    for options, says in REFUSED_OPTIONS:
        with pytest.raises((InvalidArguments, ConfigError), match=says):
            await app.submit("elsewhere", {}, **options)
    for name in ("not a name", "", "x" * 101):
        with pytest.raises(SubmitError, match=r"task .* is not a usable name"):
            await app.submit(name, {})
    for payload in ([1], "text", 5):
        with pytest.raises(InvalidArguments, match="must be a dict"):
            await app.submit("elsewhere", payload)
    assert await everything(app) == []


async def test_what_was_left_out_before_other_positions_keeps_its_place(sandbox):
    received = []

    @sandbox.app.task
    async def place(ctx: Context, first=1, second=2, *rest: int) -> None:
        received.append((first, second, rest, ctx.attempt))

    await place.submit(second=20)
    await place.submit(10, 20, 30)
    await sandbox.run_due(raise_errors=True)
    assert received == [(1, 20, (), 1), (10, 20, (30,), 1)]
    assert place.arguments.decode(b'{"second": 20, "rest": [30]}') == ([1, 20, 30], {})
