"""How the shop is tested: handlers alone with a fake `ctx`, and everything together in a sandbox."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from httpx import ASGITransport, AsyncClient, Response
from sqlalchemy import text

import rota.testing
from fastapi_shop.api import api
from fastapi_shop.database import sessions
from fastapi_shop.tasks import app, refund


class FakeConnection:
    """Answers like a connection, and keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    async def fetchval(self, *statement: Any) -> Decimal:
        self.told.append(statement)
        return Decimal("19.90")

    async def execute(self, *statement: Any) -> None:
        self.told.append(statement)


async def test_a_refund_gives_back_the_price() -> None:
    ctx: Any = SimpleNamespace(connection=FakeConnection())  # all that this handler uses of it
    assert await refund(ctx, 7) == "19.90 for order 7"
    assert ctx.connection.told[-1][1:] == (7, Decimal("19.90"))


async def call(method: str, path: str, body: Any = None) -> Response:
    async with AsyncClient(transport=ASGITransport(api), base_url="http://shop") as client:
        return await client.request(method, path, json=body)


async def test_an_order_is_confirmed(sandbox: rota.testing.Sandbox) -> None:
    created = await call("POST", "/orders", {"article": "teapot"})
    assert created.status_code == 201
    [job] = await sandbox.run_due(raise_errors=True)
    assert str(job.id) == created.json()["job"]
    shown = await call("GET", f"/orders/{created.json()['order']}")
    assert shown.json()["state"] == "confirmed"


async def test_an_order_that_is_rolled_back_leaves_no_job(sandbox: rota.testing.Sandbox) -> None:
    refused = await call("POST", "/orders", {"article": "samovar"})
    assert refused.status_code == 409
    assert await sandbox.jobs() == []


async def test_two_clicks_are_one_refund(sandbox: rota.testing.Sandbox) -> None:
    order = (await call("POST", "/orders", {"article": "cup"})).json()["order"]
    first = (await call("POST", f"/orders/{order}/refund")).json()
    again = (await call("POST", f"/orders/{order}/refund")).json()
    assert (again["job"], again["existed"]) == (first["job"], True)
    await sandbox.run_due(raise_errors=True)
    async with sessions() as session:
        assert list(await session.scalars(text("select amount from shop.refunds"))) == [
            Decimal("4.50")
        ]


async def test_the_orders_are_counted_every_night(sandbox: rota.testing.Sandbox) -> None:
    await call("POST", "/orders", {"article": "teapot"})
    await sandbox.run_due(raise_errors=True)
    await app.schedules.declare()  # as a scheduler does when it starts
    await sandbox.travel_to(sandbox.now().replace(day=2, hour=2, minute=30))
    [job] = await sandbox.run_due(raise_errors=True)
    assert (job.task, job.result) == ("nightly", 1)
