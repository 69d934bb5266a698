"""What may be given to a task and returned by it, and who is told when it can't be."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from rota import (
    CONTEXT,
    App,
    ConfigError,
    Context,
    EventLoopRunning,
    InvalidArguments,
    JobFailed,
    ResultUnavailable,
)
from rota.core.arguments import Arguments
from rota.core.payloads import Limits
from rota.testing import Sandbox


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Item(pydantic.BaseModel):
    name: str
    price: Decimal = pydantic.Field(gt=0, alias="unitPrice")
    ordered: datetime | None = None


class Gift(pydantic.BaseModel):
    kind: Literal["gift"] = "gift"
    note: str


class Sale(pydantic.BaseModel):
    kind: Literal["sale"] = "sale"
    items: list[Item]


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
    boxes: list[Box] = field(default_factory=list)


@pytest.fixture
def app(sandbox: Sandbox) -> App:
    return sandbox.app


ITEM = Item(name="cup", unitPrice=Decimal("4.50"), ordered=datetime(2030, 1, 2, 3, tzinfo=UTC))
PARCEL = Parcel({"street": "High", "number": 7}, date(2030, 1, 31), [Box(1.5), Box(2.0, ITEM)])
VALUES: list[tuple[Any, Any]] = [
    (Item, ITEM),
    (list[Item], [ITEM, ITEM]),
    (dict[str, Item], {"a": ITEM}),
    (Item | None, ITEM),
    (Item | None, None),
    (Annotated[Gift | Sale, pydantic.Field(discriminator="kind")], Sale(items=[ITEM])),
    (Gift | Sale, Gift(note="hello")),
    (Parcel, PARCEL),
    (Box, Box(1.0, ITEM)),
    (Address, {"street": "High", "number": 1}),
    (Point, Point(1, 2)),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (Colour, Colour.BLUE),
    (Literal["a", 1], "a"),
    (Decimal, Decimal("1.10")),
    (UUID, UUID(int=7)),
    (datetime, datetime(2030, 1, 2, tzinfo=UTC)),
    (timedelta, timedelta(seconds=90)),
    (bytes, b"\0\1"),
    (object, {"any": ["thing", None]}),
    (Any, [1, "a"]),
]


@pytest.mark.parametrize(("kind", "value"), VALUES)
async def test_a_value_reaches_the_handler_and_comes_back_as_its_annotation_says(
    sandbox: Sandbox, app: App, kind: Any, value: Any
) -> None:
    got = []

    async def echo(given, *, again=None):
        got.append((given, again))
        return given

    echo.__annotations__ = {"given": kind, "again": kind, "return": kind}
    task = app.task(echo)

    job = await task.submit(value, again=value)
    await sandbox.run_due(raise_errors=True)

    assert got == [(value, value)]
    assert type(got[0][0]) is type(value)
    result = await job.result(timeout=60)
    assert (result, type(result)) == (value, type(value))


async def test_a_pydantic_argument_is_validated_at_submit_with_the_place_of_what_is_wrong(
    app: App,
) -> None:
    @app.task
    async def sell(
        sale: Sale, discount: Annotated[int, pydantic.Field(ge=0, le=50)] = 0
    ) -> None: ...

    with pytest.raises(
        InvalidArguments, match=r"task 'sell': argument 'sale': items\.0\.unitPrice: "
    ):
        await app.submit("sell", {"sale": {"items": [{"name": "cup", "unitPrice": -1}]}})
    with pytest.raises(InvalidArguments, match=r"task 'sell': argument 'discount': .*50"):
        await sell.submit(Sale(items=[]), discount=51)
    with pytest.raises(InvalidArguments, match="task 'sell': argument 'sale' is missing"):
        await app.submit("sell", {})
    assert await app.jobs.list() == []


def test_pydantic_is_not_imported_unless_an_annotation_is_one() -> None:
    code = (
        "import sys; from rota import App; app = App()\n"
        "@app.task\n"
        "async def plain(number: int, names: list[str]) -> dict[str, int]: ...\n"
        "print([name for name in sys.modules if name.startswith('pydantic')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


class Stranger: ...


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (complex, "builtins.complex"),
        (Stranger, "tests.core.test_arguments.Stranger"),
        (list[Stranger], "Stranger"),
        (dict[str, Stranger | None], "Stranger"),
        (type[int], "builtins.type"),
    ],
)
def test_an_argument_that_has_no_json_form_is_refused_at_registration_by_name(
    app: App, kind: Any, named: str
) -> None:
    async def take(value): ...

    take.__annotations__ = {"value": kind}
    with pytest.raises(
        ConfigError, match=f"task 'take': its argument 'value' is of type .*{named}"
    ):
        app.task(take)


async def test_a_result_that_is_no_json_is_a_clear_error_and_a_warning_at_registration(
    sandbox: Sandbox, app: App
) -> None:
    with pytest.warns(
        UserWarning, match="task 'make' returns .*Stranger.* results will be dropped"
    ) as told:

        @app.task
        async def make() -> Stranger:
            return Stranger()

    assert told[0].filename == __file__

    job = await make.submit()
    await sandbox.run_due(raise_errors=True)

    with pytest.raises(ResultUnavailable, match=f"job {job.id} of task 'make' succeeded.*Stranger"):
        await job.result(timeout=60)
    assert (await job.status()).state == "succeeded"


async def test_a_result_of_another_release_that_doesnt_fit_the_annotation_is_told(
    sandbox: Sandbox, app: App
) -> None:
    @app.task
    async def weigh() -> int:
        return "heavy"  # type: ignore[return-value]

    job = await weigh.submit()
    await sandbox.run_due(raise_errors=True)

    with pytest.raises(ResultUnavailable, match="Expected `int`, got `str`"):
        await job.result(timeout=60)


async def test_arguments_that_dont_fit_when_the_job_runs_fail_once_with_the_names(
    sandbox: Sandbox, app: App
) -> None:
    job = await app.submit("pay", {"amount": "much"})  # before the code is known here

    @app.task
    async def pay(amount: int) -> None: ...

    await sandbox.run_due()
    found = await job.status()

    assert (found.state, found.attempt, found.max_attempts) == ("failed", 1, 5)
    assert found.error is not None
    assert found.error.type == "rota.errors.UnfitArguments"
    assert found.error.message == "task 'pay': argument 'amount': Expected `int`, got `str`"


async def test_a_direct_call_takes_the_context_that_the_caller_gives(app: App) -> None:
    @app.task
    async def first(ctx: Context, number: int) -> tuple[Any, int]:
        return ctx, number

    @app.task
    async def last(number: int, ctx: Context = CONTEXT) -> int:
        return number if not ctx else ctx.attempt

    fake: Any = object()
    assert await first(fake, 7) == (fake, 7)
    with pytest.raises(TypeError, match=r"task 'first' was called directly.*'ctx'.*submit"):
        first(7)
    assert await last(7) == 7
    with pytest.raises(RuntimeError, match=r"ctx.attempt: this function was called directly"):
        CONTEXT.attempt  # noqa: B018


async def test_sync_verbs_in_a_running_event_loop_name_the_async_verb_and_dont_block(
    app: App,
) -> None:
    @app.task
    async def greet(name: str) -> None: ...

    with pytest.raises(EventLoopRunning, match=r"await submit\(\)"):
        greet.submit_sync("Ada")
    with pytest.raises(RuntimeError, match=r"await submit\(\)"):
        app.submit_sync("greet", {"name": "Ada"})
    job = await greet.submit("Ada")
    with pytest.raises(EventLoopRunning, match=r"await result\(\)"):
        job.result_sync()
    assert len(await app.jobs.list()) == 1

    assert (await asyncio.to_thread(job.status_sync)).id == job.id


async def test_waiting_in_vain_says_for_which_job_and_how_it_is(sandbox: Sandbox, app: App) -> None:
    @app.task
    async def greet(name: str) -> None: ...

    job = await greet.submit("Ada")

    with pytest.raises(
        TimeoutError, match=f"job {job.id} of task 'greet' is still ready after 3 s"
    ):
        await job.result(timeout=3)
    await app.jobs.cancel(job.id)
    with pytest.raises(JobFailed):
        await job.result(timeout=60)


def test_a_missing_psycopg_shows_where_the_task_is_declared(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "psycopg" else found(name)
    )
    with pytest.raises(
        ConfigError, match=r"task 'pay': .*psycopg, which is not installed: pip install"
    ):

        @app.task(guarantee="exactly_once")
        def pay() -> None: ...

    @app.task(guarantee="exactly_once")
    async def refund() -> None: ...


class Login(pydantic.BaseModel):
    user: str
    password: pydantic.SecretStr


class WrittenLogin(Login):
    @pydantic.field_serializer("password", when_used="json")
    def _write(self, password: pydantic.SecretStr) -> str:
        return password.get_secret_value()


@dataclass
class Wrapped:
    login: Login


@pytest.mark.parametrize(
    "value",
    [
        Login(user="ada", password="hush"), Wrapped(Login(user="ada", password="hush")),
        [Login(user="ada", password="hush")], {"a": pydantic.SecretStr("hush")},
    ],
)  # fmt: skip
async def test_a_secret_that_would_be_stored_as_asterisks_is_refused(
    sandbox: Sandbox, value: Any
) -> None:
    kind = (
        list[Login] if isinstance(value, list) else Any if isinstance(value, dict) else type(value)
    )

    async def log_in(login: Any) -> None: ...

    log_in.__annotations__["login"] = kind
    task = sandbox.app.task(log_in)
    with pytest.raises(
        InvalidArguments, match=r"argument 'login': a SecretStr is written as '\*+'"
    ):
        await task.submit(value)


async def test_a_secret_with_a_serializer_and_a_text_of_asterisks_come_through(
    sandbox: Sandbox,
) -> None:
    @sandbox.app.task
    async def log_in(login: WrittenLogin, stars: Login | str, note: str) -> list[str]:
        return [login.password.get_secret_value(), str(stars), note]

    job = await log_in.submit(WrittenLogin(user="ada", password="hush"), "**", "**********")
    await sandbox.run_due(raise_errors=True)
    assert await job.result(timeout=10) == ["hush", "**", "**********"]


async def test_a_result_with_a_masked_secret_is_unavailable(sandbox: Sandbox) -> None:
    @sandbox.app.task
    async def make() -> Login:
        return Login(user="ada", password="hush")

    job = await make.submit()
    await sandbox.run_due()
    with pytest.raises(ResultUnavailable, match="a SecretStr is written as"):
        await job.result(timeout=10)


class Safe(str):  # as Django's SafeString, which is returned by render_to_string
    __slots__ = ()

    def __str__(self) -> str:
        return self


async def test_subclasses_of_texts_and_numbers_are_written_as_what_they_are(
    sandbox: Sandbox,
) -> None:
    class Cents(int): ...

    class Share(float): ...

    class Blob(bytes): ...

    @sandbox.app.task
    async def take(html: str, cents: int, share: float, blob: bytes, rest: Any) -> list[Any]:
        assert [type(each) for each in (html, cents, share, blob)] == [str, int, float, bytes]
        return [html, cents, share, blob.decode(), rest]

    job = await take.submit(Safe("<b>"), Cents(7), Share(0.5), Blob(b"x"), {Safe("k"): Cents(1)})
    await sandbox.run_due(raise_errors=True)
    assert await job.result(timeout=10) == ["<b>", 7, 0.5, "x", {"k": 1}]
    with pytest.raises(InvalidArguments, match="NaN"):
        await take.submit("", 1, Share("nan"), b"", None)
    with pytest.raises(InvalidArguments, match=r"argument 'rest': objects of type builtins\.bool"):
        await take.submit("", 1, 1.0, b"", {True: 1})


async def test_a_name_that_is_also_given_by_position_is_refused(sandbox: Sandbox) -> None:
    @sandbox.app.task
    async def refund(order: int, /, **options: Any) -> list[Any]:
        return [order, options]

    @sandbox.app.task
    async def several(*orders: int, **options: Any) -> None: ...

    with pytest.raises(InvalidArguments, match="'order' is the name of a parameter that is passed"):
        await refund.submit(1, order=2)
    with pytest.raises(InvalidArguments, match="'orders' is the name of a parameter"):
        await several.submit(1, orders=[2])
    job = await refund.submit(1, note="late")
    await sandbox.run_due(raise_errors=True)
    assert await job.result(timeout=10) == [1, {"note": "late"}]


async def test_arguments_of_any_name_have_the_type_that_is_annotated(sandbox: Sandbox) -> None:
    @sandbox.app.task
    async def book(**days: date) -> list[str]:
        return [f"{name} {type(day).__name__}" for name, day in sorted(days.items())]

    @sandbox.app.task
    async def pack(first: Item, **items: Item) -> list[Decimal]:
        return [item.price for item in (first, *items.values())]

    @sandbox.app.task
    async def address(*ctx: int, **options: Address) -> list[Any]:
        return [ctx, options]

    item = Item(name="cup", unitPrice=Decimal("4.50"))
    jobs = [
        await book.submit(a=date(2030, 1, 1), b=date(2030, 1, 2)),
        await pack.submit(item, second=item),
        await address.submit(1, 2, home={"street": "Elm", "number": 3}),
    ]
    await sandbox.run_due(raise_errors=True)
    assert await jobs[0].result(timeout=10) == ["a date", "b date"]
    assert await jobs[1].result(timeout=10) == [Decimal("4.50"), Decimal("4.50")]
    assert await jobs[2].result(timeout=10) == [[1, 2], {"home": {"street": "Elm", "number": 3}}]
    with pytest.raises(InvalidArguments, match="argument 'a': Invalid RFC3339 encoded date"):
        await book.submit(a="tomorrow")
    with pytest.raises(InvalidArguments, match=r"argument 'home': Expected `int`, .*\(at number\)"):
        await address.submit(home={"street": "Elm", "number": "x"})
    with pytest.raises(InvalidArguments, match="argument 'b': unitPrice: Field required"):
        await sandbox.app.submit(
            "pack", {"first": {"name": "a", "unitPrice": 1}, "b": {"name": ""}}
        )


async def test_a_value_without_a_json_form_is_named_with_its_argument(sandbox: Sandbox) -> None:
    @sandbox.app.task
    async def note(order: int, text: Any) -> None: ...

    with pytest.raises(InvalidArguments, match="argument 'text': a text holds half of a surrogate"):
        await note.submit(1, "\ud83d")
    with pytest.raises(
        InvalidArguments, match=r"argument 'text': objects of type builtins\.object"
    ):
        await note.submit(1, [object()])
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidArguments, match="argument 'text': it is nested too deeply, or cont"):
        await note.submit(1, endless)


def test_what_can_be_no_task_is_refused_with_the_reason(app: App) -> None:
    class Call:
        def __call__(self) -> None: ...

    async def hidden(__order: int) -> None: ...  # noqa: PYI063

    with pytest.raises(ConfigError, match="is neither a function nor a method"):
        app.task(name="call")(Call())
    with pytest.raises(ConfigError, match="argument '__order' begins with two underscores"):
        app.task(hidden)


_WITH_SETS = """
import dataclasses, decimal, sys
from rota.core.arguments import Arguments
from rota.core.payloads import Limits

@dataclasses.dataclass
class Order:
    tags: set[str]
    note: str = ""

Prices = dict[str, frozenset[decimal.Decimal]]

def pick(names: set[str], prices: Prices, orders: list[Order], any=None): ...

names = {"alpha", "beta", "gamma", "delta", "epsilon"}
prices = {"b": frozenset(map(decimal.Decimal, ("1.5", "2", "10"))), "a": frozenset()}
limits = Limits(100_000, 100)
payload = Arguments(pick, []).encode((names, prices, [Order(names)], names), {}, limits)
sys.stdout.buffer.write(payload)
"""


def test_a_set_is_written_alike_by_every_process():
    """Or a submit that is repeated elsewhere with its key would conflict with the first."""
    written = {
        subprocess.run(
            [sys.executable, "-c", _WITH_SETS], check=True, capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in range(6)
    }  # fmt: skip
    assert len(written) == 1
    [payload] = written
    assert b'"names":["alpha","beta","delta","epsilon","gamma"]' in payload
    assert b'"orders":[{"tags":["alpha",' in payload


def test_a_set_without_an_order_is_written_too():
    def keep(anything) -> None: ...

    payload = Arguments(keep, []).encode(({1, "a"},), {}, Limits(1000, 100))
    assert sorted(msgspec.json.decode(payload)["anything"], key=str) == [1, "a"]


def test_the_order_of_a_dict_stays_as_it_is_where_no_sets_are():
    def keep(given: dict[str, int], names: set[int]) -> None: ...

    payload = Arguments(keep, []).encode(({"b": 1, "a": 2}, {3, 1}), {}, Limits(1000, 100))
    assert payload == b'{"given":{"b":1,"a":2},"names":[1,3]}'


def test_what_is_no_number_is_refused_in_a_set_too():
    def add(numbers: set[float | None]) -> None: ...

    with pytest.raises(InvalidArguments, match="NaN and infinity"):
        Arguments(add, []).encode(({float("inf")},), {}, Limits(1000, 100))
