"""The shop's HTTP API: `uvicorn fastapi_shop.api:api` serves it. It submits jobs and runs none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from fastapi_shop.database import Order, sessions
from fastapi_shop.tasks import confirm, refund

api = FastAPI(title="A shop")
STOCK = {"teapot": Decimal("19.90"), "cup": Decimal("4.50")}


async def transaction() -> AsyncIterator[AsyncSession]:
    """A transaction per request. If the route raises, it is rolled back, its jobs included."""
    async with sessions.begin() as session:
        yield session


# The transaction ends before the answer is sent: who reads "201 Created" finds the order, and its job.
Transaction = Annotated[AsyncSession, Depends(transaction, scope="function")]


class NewOrder(BaseModel):
    article: str


@api.post("/orders", status_code=201)
async def create_order(new: NewOrder, session: Transaction) -> dict[str, str | int]:
    order = Order(article=new.article, price=STOCK.get(new.article, Decimal(0)))
    session.add(order)
    await session.flush()  # gives the order its id
    job = await confirm.options(connection=session).submit(order.id)
    if new.article not in STOCK:
        # Too late, on purpose: the order and its job are gone with the transaction.
        raise HTTPException(409, f"{new.article} is out of stock")
    return {"order": order.id, "job": str(job.id)}


@api.post("/orders/{order_id}/refund", status_code=202)
async def refund_order(order_id: int, session: Transaction) -> dict[str, str | bool]:
    if await session.get(Order, order_id) is None:
        raise HTTPException(404, f"there is no order {order_id}")
    # Two clicks, or a client that asks again after a time-out, are one job: the key says so.
    job = await refund.options(connection=session, key=f"refund:{order_id}").submit(order_id)
    return {"job": str(job.id), "existed": job.existed}


@api.get("/orders/{order_id}")
async def show_order(order_id: int, session: Transaction) -> dict[str, str | int]:
    order = await session.get(Order, order_id)
    if order is None:
        raise HTTPException(404, f"there is no order {order_id}")
    return {"order": order.id, "article": order.article, "state": order.state}
