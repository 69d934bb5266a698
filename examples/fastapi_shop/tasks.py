"""The shop's background work: `rota start fastapi_shop.tasks:app` runs it."""

from __future__ import annotations

from sqlalchemy import text

from fastapi_shop.database import Order, sessions
from rota import App, Context, Latest, Retry

app = App()  # ROTA_DATABASE_URL says where Rota's tables are, and as whom


@app.task(queue="mail", retry=Retry(max_attempts=6, base=1), timeout=30)
async def confirm(order_id: int) -> str:
    """Confirm an order. May run twice: the second time changes nothing."""
    async with sessions.begin() as session:
        order = await session.get_one(Order, order_id, with_for_update=True)
        if order.state == "new":
            order.state = "confirmed"
    return f"order {order_id} is {order.state}"


@app.task(queue="payments", guarantee="exactly_once", timeout=30)
async def refund(ctx: Context, order_id: int) -> str:
    """Refund an order. The refund, the order's state and the end of this job are one transaction."""
    amount = await ctx.connection.fetchval(
        "update shop.orders set state = 'refunded' where id = $1 returning price", order_id
    )
    await ctx.connection.execute("insert into shop.refunds values ($1, $2)", order_id, amount)
    return f"{amount} for order {order_id}"


@app.cron("30 2 * * *", tz="Europe/Berlin", catch_up=Latest("6h"))
@app.task(queue="reports")
async def nightly(ctx: Context) -> int:
    """Count the orders, for the day that the occurrence belongs to."""
    day = ctx.occurrence.local.date() if ctx.occurrence else None
    async with sessions.begin() as session:
        counted = await session.execute(
            text(
                "insert into shop.reports "
                "select coalesce(:day, current_date), count(*) from shop.orders "
                "on conflict (day) do update set orders = excluded.orders returning orders"
            ),
            {"day": day},
        )
        return int(counted.scalar_one())
