"""Arguments checked where the code isn't at hand: by what nodes registered of their tasks."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import Enum, IntFlag
from typing import Annotated, Any, Literal
from uuid import uuid4

import asyncpg
import msgspec
import pydantic
import pytest

from rota import App, InvalidArguments, ScheduleSpec
from rota.core.arguments import Arguments
from rota.core.signature import Signature, problem_with
from rota.core.time.schedule import Cron
from rota.node import Node
from rota.operations.schedule_reads import lint_tasks
from tests.support.server_fixtures import LiveServer, serving


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@pytest.fixture
def client(app: App, make_app: Callable[..., App]) -> App:
    """Another process of the same installation, without the code."""
    return make_app()


@pytest.fixture
def worker(app: App) -> App:
    @app.task
    async def resize(path: str, width: int, size: Size = Size.SMALL) -> None: ...

    return app


WRONG = [
    ({"path": "a"}, "task 'resize': argument 'width' is missing"),
    (
        {"path": "a", "width": "wide"},
        "task 'resize': argument 'width': expected integer, got string",
    ),
    ({"path": "a", "width": 1.5}, "task 'resize': argument 'width': expected integer, got number"),
    ({"path": None, "width": 1}, "task 'resize': argument 'path': expected string, got null"),
    (
        {"path": "a", "width": 1, "size": "xl"},
        "task 'resize': argument 'size': expected one of s, l",
    ),
    (
        {"path": "a", "width": 1, "heigth": 2},
        "task 'resize' takes no argument 'heigth'; it takes: path, width, size",
    ),
]


@pytest.mark.parametrize(("payload", "says"), WRONG)
async def test_a_submit_by_name_without_the_code_is_refused_by_task_and_argument(
    worker: App, client: App, payload: dict[str, Any], says: str
) -> None:
    async with Node(worker).running():
        with pytest.raises(InvalidArguments) as refused:
            await client.submit("resize", payload)
        assert str(refused.value) == says
        good = await client.submit("resize", {"path": "a", "width": 3, "size": "l"})
    assert [job.id for job in await worker.jobs.list()] == [good.id]
    assert good.warnings == ()


async def test_plain_sql_is_refused_in_the_same_words(worker: App, database_url: str) -> None:
    async with Node(worker).running():
        pass
    connection = await asyncpg.connect(database_url)
    try:
        for payload, says in WRONG:
            with pytest.raises(asyncpg.PostgresError) as refused:
                await connection.fetchval(
                    f"select {worker.settings.schema}.submit('resize', $1::jsonb)",
                    json.dumps(payload),
                )
            assert (refused.value.message, refused.value.sqlstate) == (f"rota: {says}", "RT001")
        await connection.fetchval(
            f'select {worker.settings.schema}.submit(\'resize\', \'{{"path": "a", "width": 1}}\')'
        )
    finally:
        await connection.close()
    assert len(await worker.jobs.list()) == 1


async def test_an_unknown_task_is_accepted_with_a_warning_and_shows_everywhere_but_is_told_once(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rota.submit"):
        job = await app.submit("typo", {"a": 1}, delay=3600)
        again = await app.submit("typo", {"a": 2})

    assert "no node has registered a task named 'typo'" in job.warnings[0]
    assert again.warnings == job.warnings
    assert str(job.id) in caplog.text
    assert "registered a task named 'typo'" in str(await app.jobs.explain(job.id))
    assert "registered a task named 'typo'" in str(await app.jobs.explain(again.id))
    told = await app.events.list(kind="task_unknown")
    assert [(event.task, event.job_id) for event in told] == [("typo", job.id)]

    @app.task(name="typo")
    async def typo(a: int) -> None: ...

    async with Node(app, roles=["worker"]).running():
        assert "registered" not in str(await app.jobs.explain(job.id))


async def test_plain_sql_warns_of_an_unknown_task_and_tells_it_once(
    app: App, database_url: str
) -> None:
    connection = await asyncpg.connect(database_url)
    notices: list[str] = []
    connection.add_log_listener(lambda _, message: notices.append(message.message))
    try:
        for _ in range(2):
            await connection.fetchval(f"select {app.settings.schema}.submit('typo')")
    finally:
        await connection.close()

    assert notices == ["rota: no node has registered a task named 'typo'"] * 2
    assert len(await app.events.list(kind="task_unknown")) == 1


async def test_while_two_releases_live_a_submit_has_to_fit_one_of_them(
    app: App, client: App, make_app: Callable[..., App]
) -> None:
    old, new = app, make_app()

    @old.task(name="pay")
    async def pay_before(order: int) -> None: ...

    @new.task(name="pay")
    async def pay(order: int, currency: str) -> None: ...

    async with Node(old).running():
        await client.submit("pay", {"order": 1})
        async with Node(new).running():
            await client.submit("pay", {"order": 1})
            await client.submit("pay", {"order": 1, "currency": "EUR"})
            with pytest.raises(InvalidArguments, match=r"takes no argument 'amount'.*currency"):
                await client.submit("pay", {"order": 1, "amount": 1})
    (await client.rota.signatures()).forget()
    # Nobody lives: the release that came last is what a worker will most likely have.
    with pytest.raises(InvalidArguments, match="argument 'currency' is missing"):
        await client.submit("pay", {"order": 1})

    async with Node(old).running():  # rolled back
        await client.submit("pay", {"order": 1})
        with pytest.raises(InvalidArguments, match="takes no argument 'currency'"):
            await client.submit("pay", {"order": 1, "currency": "EUR"})


async def test_a_worker_that_says_nothing_of_its_arguments_takes_any(app: App, client: App) -> None:

    @app.task
    async def pay(order: int) -> None: ...

    async with Node(app).running():
        store = await app.store()
        async with store.database.connection() as connection:
            await connection.execute(f"update {app.settings.schema}.node set release = null")
        await client.submit("pay", {"anything": True})


async def test_a_checked_submit_costs_no_statement_more_once_the_task_is_known(
    worker: App, client: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Node(worker).running():
        await client.submit("resize", {"path": "a", "width": 1})
        signatures = await client.rota.signatures()
        monkeypatch.setattr(signatures, "_ask", None)
        for width in range(3):
            await client.submit("resize", {"path": "a", "width": width})


async def test_a_role_that_may_only_submit_can_do_so_from_plain_sql(
    worker: App, database_url: str
) -> None:
    async with Node(worker).running():
        pass
    schema, role = worker.settings.schema, f"only_{uuid4().hex[:8]}"
    connection = await asyncpg.connect(database_url)
    try:
        await connection.execute(
            f"create role {role}; grant usage on schema {schema} to {role};"
            f"grant select on {schema}.setting, {schema}.task, {schema}.node to {role};"
            f"grant select on {schema}.namespace to {role};"
            f"grant select, insert, update on {schema}.submit_key to {role};"
            f"grant select, insert on {schema}.lane, {schema}.queue, {schema}.present, {schema}.future"
            f" to {role}; set role {role}"
        )
        await connection.fetchval(f"select {schema}.submit('resize', '{{}}')")
        await connection.fetchval(f"select {schema}.submit('typo', '{{}}')")
    finally:
        await connection.execute(f"reset role; drop owned by {role}; drop role {role}")
        await connection.close()
    assert len(await worker.jobs.list()) == 2


# -- over HTTP


@pytest.fixture
async def server(worker: App, make_app: Callable[..., App]) -> Any:
    """A server without the code, beside a worker that has it."""
    async with Node(worker).running(), serving(make_app(port=0)) as server:
        yield server


async def test_http_refuses_wrong_arguments_and_warns_of_an_unknown_task(
    server: LiveServer,
) -> None:
    client = await server.client("operator")

    refused = await client.post("/v1/jobs", json={"task": "resize", "payload": {"path": "a"}})
    assert (refused.status_code, refused.json()["detail"]) == (422, WRONG[0][1])

    known = await client.post(
        "/v1/jobs", json={"task": "resize", "payload": {"path": "a", "width": 1}}
    )
    assert (known.status_code, known.json().get("warnings", [])) == (201, [])
    unknown = await client.post("/v1/jobs", json={"task": "typo"})
    assert unknown.status_code == 201
    assert "no node has registered a task named 'typo'" in unknown.json()["warnings"][0]
    events = await client.get("/v1/events?kind=task_unknown")
    assert [event["task"] for event in events.json()["items"]] == ["typo"]


async def test_a_stream_of_jobs_is_checked_line_by_line(server: LiveServer) -> None:
    client = await server.client("operator")
    lines = [
        {"task": "resize", "payload": {"path": "a", "width": 1}},
        {"task": "resize", "payload": {"path": "a", "width": "x"}},
        {"task": "typo"},
        {"task": "typo"},
    ]
    answer = await client.post(
        "/v1/jobs:bulk",
        content="\n".join(json.dumps(line) for line in lines),
        headers={"content-type": "application/x-ndjson"},
    )
    told = answer.json()
    assert (told["stored"], told["refused"]) == (3, 1)
    assert (told["errors"][0]["line"], told["errors"][0]["detail"]) == (2, WRONG[1][1])
    assert len(told["warnings"]) == 1


async def test_schedules_over_http_are_checked_and_warned_of(server: LiveServer) -> None:
    client = await server.client("operator")
    rule = {"rule": {"type": "cron", "expression": "@daily"}}

    refused = await client.post(
        "/v1/schedules", json={"name": "s", "task": "resize", "payload": {"path": 1}, **rule}
    )
    assert refused.status_code == 422
    assert (
        "schedule 's': task 'resize': argument 'path': expected string" in refused.json()["detail"]
    )
    made = await client.put("/v1/schedules/s", json={"task": "typo", **rule})
    assert made.status_code == 201
    assert "'typo'" in made.json()["warnings"][0]
    lint = (await client.get("/v1/schedules:lint")).json()["warnings"]
    assert ("unknown_task", "s") in [(each["code"], each["schedule"]) for each in lint]


async def test_lint_finds_stored_schedules_whose_task_no_longer_takes_their_arguments(
    app: App, client: App
) -> None:
    @app.task
    async def pay(order: int) -> None: ...

    spec = ScheduleSpec(name="monthly", task="pay", rule=Cron("@monthly"), payload={"order": 1})
    await client.schedules.put(spec)  # before any node is there

    async with Node(app).running():
        (await client.rota.signatures()).forget()
        assert await lint_tasks(client.rota, [spec]) == []
        wrong = ScheduleSpec(name="w", task="pay", rule=Cron("@monthly"), payload={"ordre": 1})
        with pytest.raises(
            InvalidArguments, match="schedule 'w': task 'pay' takes no argument 'ordre'"
        ):
            await client.schedules.put(wrong)
        (told,) = await lint_tasks(client.rota, [wrong])
    assert (told.code, told.schedule) == ("wrong_arguments", "w")


# -- what is refused, the function would refuse as well


class Rights(IntFlag):
    READ = 1
    WRITE = 2


class Lenient(Enum):
    SMALL = "s"

    @classmethod
    def _missing_(cls, value: object) -> Lenient:
        return cls.SMALL


class FromText(pydantic.BaseModel):
    name: str

    @pydantic.model_validator(mode="before")
    @classmethod
    def _named(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given


class Checked(pydantic.BaseModel):
    name: str = ""

    @pydantic.model_validator(mode="after")
    def _checked(self) -> Checked:
        return self


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Rights, 3),
        (Lenient, "tiny"),
        (FromText, "a"),
        (Annotated[dict[str, int], pydantic.BeforeValidator(lambda given: {})], 1),
    ],
)
def test_what_the_function_takes_is_not_refused_without_its_code(
    annotation: Any, value: Any
) -> None:
    def handler(given: Any) -> None: ...

    handler.__annotations__["given"] = annotation
    arguments = Arguments(handler, (), "t")
    arguments.decode(msgspec.json.encode({"given": value}))

    assert arguments.describe().problem("t", {"given": value}) is None


@pytest.mark.parametrize("annotation", [Checked, pydantic.RootModel[dict[str, int]]])
def test_a_model_is_an_object(annotation: Any) -> None:
    def handler(given: Any) -> None: ...

    handler.__annotations__["given"] = annotation

    found = Arguments(handler, (), "t").describe().problem("t", {"given": 1})
    assert found == "task 't': argument 'given': expected object, got integer"


# -- SQL and Python agree


def _signatures() -> Iterator[Signature]:
    def plain(a: int, b: str = "", *, c: bool | None = None) -> None: ...
    def wide(
        a: float, b: list[int], c: dict[str, Any], d: Decimal, e: Literal["x", 1], f: Any = 0
    ) -> None: ...
    def free(a: int, *more: str, **rest: Any) -> None: ...
    def none() -> None: ...

    for function in (plain, wide, free, none):
        yield Arguments(function, (), "t").describe()


PAYLOADS: list[dict[str, Any]] = [
    {}, {"a": 1}, {"a": 1.0}, {"a": 1.5}, {"a": "1"}, {"a": None}, {"a": True}, {"a": [1]}, {"a": {}},
    {"a": 1, "b": "x"}, {"a": 1, "b": 2}, {"a": 1, "c": None}, {"a": 1, "c": True}, {"a": 1, "c": 0},
    {"a": 1, "z": 1}, {"a": 1, "more": ["x"]}, {"a": 1, "more": "x"}, {"z": 1},
    {"a": 1, "b": [], "c": {}, "d": "1", "e": "x"}, {"a": 1, "b": [], "c": {}, "d": 1.5, "e": 1},
    {"a": 1, "b": [], "c": {}, "d": 1, "e": "y"}, {"a": 1, "b": [], "c": {}, "d": 1, "e": ["x"]},
    {"a": 1, "b": [], "c": {}, "d": True, "e": 1}, {"a": 1, "b": {}, "c": {}, "d": 1, "e": 1},
]  # fmt: skip


async def test_sql_and_python_find_the_same_wrong_with_the_same_arguments(
    app: App, database_url: str
) -> None:
    await app.store()
    schema, signatures = app.settings.schema, list(_signatures())
    sets = [[one] for one in signatures] + [signatures[:2], signatures, []]
    connection = await asyncpg.connect(database_url)
    try:
        for chosen in sets:
            encoded = json.dumps([msgspec.to_builtins(each) for each in chosen])
            for payload in PAYLOADS:
                found = await connection.fetchval(
                    f"select {schema}.problem_with($1, 't', $2::jsonb)",
                    encoded,
                    json.dumps(payload),
                )
                assert found == problem_with(chosen, "t", payload), (chosen, payload)
    finally:
        await connection.close()


@pytest.mark.parametrize("task", ["rota.command", "rota.webhook"])
async def test_tasks_of_rotas_own_are_never_called_unknown(
    app: App, database_url: str, task: str
) -> None:
    signatures = await app.rota.signatures()

    assert await signatures.check("default", task, b"{}") == ()
