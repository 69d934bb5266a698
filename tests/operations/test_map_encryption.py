"""Maps in encrypted namespaces: items, results and errors of members."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota.model import Retry
from rota.testing import Sandbox
from tests.support.encrypted import SECRET, encrypted, stored
from tests.support.shop import ended

TABLES = (
    "run", "step", "map", "map_chunk", "map_result", "map_member", "past", "dead", "present",
    "future", "event",
)  # fmt: skip


@pytest.fixture
async def sandbox(database_url: str) -> AsyncIterator[Sandbox]:
    async with encrypted(database_url) as sandbox:
        yield sandbox


@pytest.mark.parametrize("each", ["chunk", "job"])
async def test_items_results_and_errors_are_encrypted(sandbox: Sandbox, each: Any) -> None:
    app, broken = sandbox.app, [True]

    @app.task(retry=Retry(max_attempts=1))
    async def echo(text: str) -> str:
        if text.endswith("1") and broken[0]:
            raise ValueError(text)
        return text

    @app.task(retry=Retry(max_attempts=1))
    async def joined(texts: list[str]) -> str:
        return ",".join(texts)

    flow = app.workflow("secrets")
    parts = flow.map(echo, over=flow.input("texts"), each=each, name="parts")
    flow.step(joined, parts.results)
    texts = [f"{SECRET}{number}" for number in range(3)]
    run = await flow.start(texts=texts)
    assert (await ended(sandbox, run)).state == "failed"
    [failed] = await run.members("parts", state="failed")
    assert (failed.item, failed.error["message"]) == (texts[1], texts[1])
    assert SECRET not in await stored(app, TABLES)
    broken[0] = False
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert await run.result() == ",".join(texts)
    assert [member.result for member in await run.members("parts")] == texts
    assert SECRET not in await stored(app, TABLES)


async def test_what_a_generator_yields_is_encrypted(sandbox: Sandbox) -> None:
    app = sandbox.app

    @app.generator
    async def secrets(count: int) -> AsyncIterator[str]:
        for number in range(count):
            yield f"{SECRET}{number}"

    @app.task
    async def echo(text: str) -> str:
        return text

    flow = app.workflow("generated")
    flow.map(echo, over=flow.step(secrets), size=2, name="parts")
    run = await flow.start(count=3)
    assert (await ended(sandbox, run)).state == "succeeded"
    assert [each.result for each in await run.members("parts")] == [
        f"{SECRET}{number}" for number in range(3)
    ]
    assert SECRET not in await stored(app, TABLES)
