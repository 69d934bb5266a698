"""The shop's background work. `rota dev shop.app:app` runs it; `make run` adds customers (demo.py).

Each task shows one thing that Rota does. They are ordinary functions: call them as usual in a unit
test, submit them to have them run by a worker.
"""

from __future__ import annotations

import os
import tempfile
from decimal import Decimal
from pathlib import Path

from rota import (
    App,
    Context,
    DurableContext,
    Fatal,
    Latest,
    Retry,
    RunCancelled,
    SyncContext,
    WaitTimedOut,
)
from shop import images, outside
from shop.model import Order

# Where the database is, comes from ROTA_DATABASE_URL; without it, Rota brings its own PostgreSQL.
app = App()

PICTURES = Path(tempfile.gettempdir()) / f"rota-shop-{os.getuid()}"


# Every night at half past one in London, wherever the servers are: also in spring in the night that
# has no such time (then at two), and once in autumn in the night that has it twice. If nobody was
# there to run it, it is made up for until the morning.
@app.cron("30 1 * * *", tz="Europe/London", gap="next", fold="first", catch_up=Latest("6h"))
@app.task
async def report_stock() -> dict[str, int]:
    return {article: await outside.count_stock(article) for article in outside.ARTICLES}


# A payment must not happen twice, and the provider is not part of our database. `once` writes down
# that it begins, runs it, and keeps the result: a later attempt gets the result, and pays nothing.
@app.task(queue="payments", priority=5, timeout=30)
async def take_payment(ctx: Context, order: Order) -> str:
    async def charge() -> str:
        return await outside.charge_card(order.id, order.price)

    payment: str = await ctx.once(f"payment:{order.id}", charge)
    # This handler may run twice (it is at_least_once): with a key, the same job is only made once.
    await confirm.options(key=f"confirm:{order.id}").submit(order, payment)
    await restock.options(key=f"restock:{order.id}").submit(order.article, pieces=1)
    return payment


# A coroutine runs on the node's event loop. Whatever it raises is tried again, up to six times in
# all, after about 1, 2, 4, 8 and 16 seconds; the jitter keeps a thousand of them apart.
@app.task(queue="mail", retry=Retry(max_attempts=6, base=1, jitter=0.3), timeout=20)
async def confirm(order: Order, payment: str) -> None:
    await outside.send_mail(order.email, f"Your {order.article} is on its way ({payment})")


# Every quarter of an hour, up to half a minute later. `ctx.occurrence` says which one this is, and
# when the one before was: so that no basket is forgotten and none is reminded of twice.
@app.cron("*/15 * * * *", name="baskets", overlap="skip", jitter="30s")
@app.task(queue="mail")
async def remind_of_baskets(ctx: Context) -> str:
    since = ctx.occurrence.previous if ctx.occurrence else None
    await outside.send_mail("customers@example.org", "There is something left in your basket")
    return f"reminded of baskets left since {since or 'ever'}"


# A text message in the middle of the night is bad; the same one twice is worse. If the worker dies
# in here, or this raises, the job fails and is not run again.
@app.task(queue="mail", guarantee="at_most_once")
async def text_courier(order_id: int, phone: str) -> None:
    await outside.send_sms(phone, f"Order {order_id} is ready")


# A plain function runs in a child process: it may use the CPU, block, or even crash, and takes
# nothing down but itself. Over its timeout it is really stopped.
@app.task(queue="images", timeout=30)
def resize(ctx: SyncContext, article: str, width: int) -> str:
    if not 8 <= width <= images.WIDTH:
        raise Fatal(f"a width of {width} makes no picture")
    PICTURES.mkdir(mode=0o700, exist_ok=True)
    rows: list[bytes] = []
    photo = images.photograph(article)
    for row in images.scaled(photo, width):
        rows.append(row)
        ctx.progress(len(rows), images.HEIGHT * width // images.WIDTH, "scaling")
    path = PICTURES / f"{article.replace(' ', '-')}-{width}.png"
    images.write_png(path, rows)
    return str(path)


# The refund's row and the end of its job are one transaction. Whatever dies and whoever runs it
# again: the customer gets the money once.
@app.task(queue="payments", guarantee="exactly_once")
async def refund(ctx: Context, order_id: int, amount: Decimal) -> str:
    await ctx.connection.execute(
        "insert into shop.refund (order_id, amount) values ($1, $2)", order_id, amount
    )
    return f"{amount} for order {order_id}"


# Large orders take days, and survive every deployment in between: the card is charged, somebody in the
# office approves within three days, the parts are shipped at the same time, each as a job of its own.
# What goes wrong after the payment gives the money back. `rota signals send approved ORDER true` is the
# office's button.
@app.durable(deadline="30d")
async def fulfil(ctx: DurableContext, order: Order, parts: int = 2) -> str:
    payment = await ctx.step(outside.charge_card, order.id, order.price)
    try:
        await ctx.set_status("waits for approval")
        if not await ctx.wait("approved", key=str(order.id), timeout="3d"):
            raise Fatal("the office said no")
        await ctx.set_status(f"ships {parts} parcels")
        days = await ctx.gather(*(ctx.call(restock, order.article) for _ in range(parts)))
    except (Fatal, RunCancelled, WaitTimedOut) as error:  # a call that failed is Fatal, too
        await ctx.call(refund, order.id, order.price)
        return f"refunded: {error}"
    await ctx.call(confirm, order, payment)
    return f"all {parts} parcels arrive within {max(days)} days"


# Three ways to fail. What the supplier's network does is tried again by the usual rule; when told
# to wait we wait exactly so long; what no patience will cure goes to the dead-letter list at once.
@app.task(queue="supplier", retry=Retry(max_attempts=8, base=0.5, cap=60), timeout=10)
async def restock(article: str, pieces: int = 1) -> int:
    try:
        return await outside.order_from_supplier(article, pieces)
    except outside.TooManyRequests as error:
        raise Retry.after(error.retry_after, str(error)) from error
    except outside.UnknownArticle as error:
        raise Fatal(f"no supplier has {article!r}: fix the catalogue, then retry") from error


# A task can have schedules of its own name and arguments. H is a minute that the schedule's name
# decides: a hundred of these would not ask the supplier all at once.
app.cron(
    "H 5 * * MON-FRI", tz="Europe/London", name="cups", payload={"article": "cup", "pieces": 24}
)(restock)
