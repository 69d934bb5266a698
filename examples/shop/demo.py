"""Something to look at: customers who keep coming for as long as the shop is open.

`python -m shop.demo` makes the shop's table and lets the first customers in; then
`rota dev shop.demo:app` does the work. `make run` does both.
"""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import asyncpg

from shop.app import app, fulfil, report_stock
from shop.model import Order
from shop.outside import ARTICLES

EVERY = 2  # seconds


@app.task(queue="demo")
async def customers() -> int:
    """A few orders, and then itself again, two seconds later."""
    count = random.randint(1, 3)
    for _ in range(count):
        await buy(Order(
            id=random.randrange(100_000, 1_000_000),
            article=random.choice(ARTICLES),
            price=Decimal(random.randrange(300, 9_000)) / 100,
            email="customer@example.org",
        ))  # fmt: skip
    await expect_customers()
    return count


async def buy(order: Order) -> None:
    """What the shop's web site does. It needn't import the tasks: their names are enough."""
    chance = random.random()
    await app.submit("take_payment", {"order": order}, key=f"order:{order.id}", tags=["demo"])
    if chance < 0.5:
        width = random.choice((80, 160))
        await app.submit("resize", {"article": order.article, "width": width})
    if chance < 0.2:
        money = {"order_id": order.id, "amount": order.price}
        await app.submit("refund", money, key=f"refund:{order.id}", delay=3)
    if 0.2 < chance < 0.4:
        await app.submit("text_courier", {"order_id": order.id, "phone": "+44 20 7946 0000"})
    if chance > 0.9:
        await fulfil.start_options(key=f"fulfil:{order.id}").start(order)
        # The office is quick, and doesn't like every order.
        await app.submit("decide", {"order_id": order.id}, delay=random.randint(1, 20))
    if 0.4 < chance < 0.43:
        await app.submit("restock", {"article": "samovar"})  # which no supplier has


@app.task(queue="demo")
async def decide(order_id: int) -> None:
    """Somebody in the office approves an order, or not."""
    approved = random.random() < 0.8
    await app.send("approved", key=str(order_id), payload=approved, once=f"decision:{order_id}")


async def expect_customers() -> None:
    """Submit the next round.

    Rounds are due at every second second, and the moment is the idempotency key: however often the
    shop is opened, there is one round at a time.
    """
    due = datetime.fromtimestamp((datetime.now(UTC).timestamp() // EVERY + 1) * EVERY, UTC)
    await customers.options(at=due, key=f"customers:{due:%Y%m%dT%H%M%S}").submit()


async def plan_stock_report() -> None:
    """Tonight at two, once, however often this is called."""
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    night = datetime.combine(tomorrow, time(2), UTC)
    await report_stock.options(at=night, key=f"stock:{tomorrow}").submit()


async def make_tables() -> None:
    connection = await asyncpg.connect(await app.database_url())
    try:
        await connection.execute((Path(__file__).parent / "schema.sql").read_text())
    finally:
        await connection.close()


async def open_shop() -> None:
    await app.migrate()
    await make_tables()
    await plan_stock_report()
    await expect_customers()
    await app.close()


if __name__ == "__main__":
    print("Opening the example shop: its code is in examples/shop, its database being prepared.")
    asyncio.run(open_shop())
