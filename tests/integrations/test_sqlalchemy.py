"""`rota.integrations.sqlalchemy`: sessions on the transaction of a job; the example "sessions.py"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest
import sqlalchemy
import sqlmodel
from sqlalchemy.orm import Session

from examples import sessions as example
from rota.testing import Sandbox
from tests.support.sandboxes import isolated


@pytest.fixture
async def sandbox(database_url: str) -> AsyncIterator[Sandbox]:
    app = example.app
    app.settings = app.settings.replace(database_url=database_url)
    async with isolated(app) as opened:
        yield opened


@pytest.fixture
async def engine(sandbox: Sandbox) -> AsyncIterator[sqlalchemy.Engine]:
    """The application's own engine, and its tables."""
    url = sqlalchemy.make_url(sandbox.app.settings.database_url or "")
    url = url.set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(url)
    tables = (example.Base.metadata, sqlmodel.SQLModel.metadata)
    for each in tables:
        await asyncio.to_thread(each.create_all, engine)
    yield engine
    for each in tables:
        await asyncio.to_thread(each.drop_all, engine)
    engine.dispose()


def balance(engine: sqlalchemy.Engine) -> Decimal | None:
    with Session(engine) as db:
        account = db.get(example.Account, 1)
        return None if account is None else account.balance


def open_account(engine: sqlalchemy.Engine, *, fails: bool = False) -> None:
    with Session(engine) as db, db.begin():
        example.open_account(db, 1, Decimal(10))
        if fails:
            raise InterruptedError


async def test_a_submit_is_part_of_the_session_s_transaction(
    sandbox: Sandbox, engine: sqlalchemy.Engine
) -> None:
    with pytest.raises(InterruptedError):
        await asyncio.to_thread(open_account, engine, fails=True)
    assert await sandbox.run_due() == []
    await asyncio.to_thread(open_account, engine)
    [job] = await sandbox.run_due()
    # The first attempt wrote, and failed: its deposit is gone with it.
    assert (job.state, job.attempt, job.result) == ("succeeded", 2, "10")
    assert await asyncio.to_thread(balance, engine) == 10


async def test_a_coroutine_has_a_session_too(sandbox: Sandbox, engine: sqlalchemy.Engine) -> None:
    await asyncio.to_thread(open_account, engine)
    await sandbox.run_due()
    await example.withdraw.submit(1, Decimal(3))
    [job] = await sandbox.run_due()
    assert (job.state, job.attempt, job.result) == ("succeeded", 2, "7")
    assert await asyncio.to_thread(balance, engine) == 7


async def test_sqlmodel_s_session_commits_and_rolls_back_inside_the_job(
    sandbox: Sandbox, engine: sqlalchemy.Engine
) -> None:
    await example.note.submit("kept")
    [job] = await sandbox.run_due(raise_errors=True)
    assert (job.state, job.result) == ("succeeded", 1)
    with sqlmodel.Session(engine) as db:
        assert [each.text for each in db.exec(sqlmodel.select(example.Note))] == ["kept"]


async def test_psycopg_s_connection_is_there_as_it_is(
    sandbox: Sandbox, engine: sqlalchemy.Engine
) -> None:
    await asyncio.to_thread(open_account, engine)
    await sandbox.run_due()
    await example.close.submit(1)
    await sandbox.run_due(raise_errors=True)
    assert await asyncio.to_thread(balance, engine) is None
