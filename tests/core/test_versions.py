"""Payloads with versions: old ones are upgraded, new ones wait for new code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rota import App, ConfigError, InvalidArguments, Retry, chain
from rota.errors import PayloadTooNew
from rota.model import Job
from rota.testing import Sandbox
from tests.support.server_fixtures import serving


def upgrade(payload: dict[str, Any], from_version: int) -> dict[str, Any]:
    if from_version < 2:
        payload["cents"] = payload.pop("euros") * 100
    if from_version < 3:
        payload["currency"] = "EUR"
    return payload


def declare(app: App, **options: Any) -> tuple[Any, list[tuple[int, str]]]:
    got: list[tuple[int, str]] = []

    @app.task(version=3, upgrade=upgrade, **options)
    async def pay(cents: int, currency: str = "EUR") -> int:
        got.append((cents, currency))
        return cents

    return pay, got


async def stored(sandbox: Sandbox, task: str, payload: dict[str, Any]) -> None:
    """A job that another release has submitted."""
    await App(sandbox.app.settings).submit(task, payload)


async def run_one(sandbox: Sandbox) -> Job:
    [job] = await sandbox.run_due()
    return job


async def test_a_payload_of_each_version_reaches_the_handler_as_of_today(sandbox: Sandbox) -> None:
    pay, got = declare(sandbox.app)
    elsewhere = App(sandbox.app.settings)
    await elsewhere.submit("pay", {"euros": 3})
    await elsewhere.submit("pay", {"$version": 1, "euros": 4})
    await elsewhere.submit("pay", {"$version": 2, "cents": 5})
    await elsewhere.submit("pay", {"cents": 6, "currency": "USD", "$version": 3})
    await pay.submit(7, currency="CHF")
    await elsewhere.close()

    ended = await sandbox.run_due(raise_errors=True)

    assert [job.state for job in ended] == ["succeeded"] * 5
    assert sorted(got) == [(5, "EUR"), (6, "USD"), (7, "CHF"), (300, "EUR"), (400, "EUR")]


async def test_every_way_to_submit_from_python_writes_the_version(sandbox: Sandbox) -> None:
    pay, got = declare(sandbox.app)
    await pay.submit_many([{"cents": 1}, (2, "USD")])
    await sandbox.app.submit("pay", {"cents": 3})
    await sandbox.app.schedule("monthly", pay, cron="@monthly", payload={"cents": 4})
    await sandbox.app.schedules.trigger("monthly")
    await chain(pay.s(5), pay.s(currency="USD")).start()
    flow = sandbox.app.workflow("flow")
    flow.step(pay, 6)
    await flow.start()
    await sandbox.app.map(pay, over=[7], currency="USD")

    await sandbox.run_due(raise_errors=True)

    assert {cents for cents, _ in got} == {1, 2, 3, 4, 5, 6, 7}
    assert (500, "EUR") not in got


async def test_an_upgrade_that_gives_nonsense_fails_the_job_with_its_version(
    sandbox: Sandbox,
) -> None:
    declare(sandbox.app)
    await stored(sandbox, "pay", {"$version": 2, "cents": "many"})
    job = await run_one(sandbox)
    assert job.state == "failed"
    assert job.error is not None
    assert "Expected `int`, got `str`, after its upgrade from version 2" in job.error.message


async def test_an_upgrade_that_raises_is_a_failed_attempt_like_any_other(sandbox: Sandbox) -> None:
    declare(sandbox.app, retry=Retry(base=0, jitter=0))
    await stored(sandbox, "pay", {"pounds": 3})
    job = await run_one(sandbox)
    assert (job.state, job.attempt) == ("failed", 5)
    assert job.error is not None
    assert job.error.type == "KeyError"


@pytest.mark.parametrize("known", [1, 2])
async def test_a_payload_of_a_newer_release_waits_for_its_worker(
    sandbox: Sandbox, known: int
) -> None:
    got: list[int] = []

    async def pay(cents: int) -> None:
        got.append(cents)

    versions = {"version": 2, "upgrade": upgrade} if known == 2 else {}
    old = sandbox.app.task(**versions)(pay)  # type: ignore[call-overload]
    await stored(sandbox, "pay", {"$version": 3, "cents": 5, "currency": "USD"})

    assert await sandbox.run_due() == []
    [waiting] = await sandbox.jobs()
    assert waiting.state == "scheduled"
    with pytest.raises(PayloadTooNew, match=f"knows versions up to {known}"):
        old.arguments.decode(b'{"$version":3,"cents":5}')

    del sandbox.app.tasks["pay"]  # the deploy is through
    _, now = declare(sandbox.app)
    await sandbox.advance(seconds=31)
    assert (await run_one(sandbox)).state == "succeeded"
    assert (got, now) == ([], [(5, "USD")])


async def test_json_from_outside_must_say_its_version(make_app: Callable[..., App]) -> None:
    app = make_app(port=0)
    declare(app)
    async with serving(app) as live:
        client = await live.client()
        body = {"task": "pay", "payload": {"cents": 5}}
        answer = await client.post("/v1/jobs", json=body)
        assert answer.status_code == 422
        assert "argument '$version' is missing" in answer.text
        assert await app.jobs.list() == []
        body["payload"] = {"$version": 3, "cents": 5}
        assert (await client.post("/v1/jobs", json=body)).status_code == 201


def test_the_registered_signature_asks_for_the_version(app: App) -> None:
    pay, _ = declare(app)
    signature = pay.registered()
    assert signature.version == 3
    problem = signature.problem
    assert problem("pay", {"cents": 5}) == "task 'pay': argument '$version' is missing"
    assert problem("pay", {"$version": 2, "cents": 5}) is not None
    assert problem("pay", {"$version": 3, "cents": 5}) is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"version": 2}, "has version 2, and no `upgrade`"),
        ({"version": 0, "upgrade": upgrade}, "version must be 1 to 9999"),
        ({"version": True, "upgrade": upgrade}, "version must be 1 to 9999"),
        ({"version": 2, "upgrade": "up"}, "no `upgrade`"),
    ],
)
def test_a_wrong_declaration_is_refused(app: App, options: Any, problem: str) -> None:
    async def pay() -> None: ...

    with pytest.raises(ConfigError, match=problem):
        app.task(**options)(pay)


async def test_a_version_that_is_no_number_is_refused(sandbox: Sandbox) -> None:
    declare(sandbox.app)
    with pytest.raises(InvalidArguments, match=r"'\$version': expected a whole number from 1"):
        await sandbox.app.submit("pay", {"$version": "two", "cents": 1})


async def test_an_upgrade_may_return_values_of_the_argument_s_own_type(sandbox: Sandbox) -> None:
    def to_path(payload: dict[str, Any], from_version: int) -> dict[str, Any]:
        return {"scan": Path("/scans", payload["name"])}

    @sandbox.app.task(version=2, upgrade=to_path)
    async def archive(scan: Path) -> str:
        return scan.name

    job = await sandbox.app.submit("archive", {"$version": 1, "name": "a.pdf"})
    await sandbox.run_due(raise_errors=True)
    assert await job.result(timeout=10) == "a.pdf"
