"""A fencing token that guards a table outside Rota.

A worker can stop in the middle of a handler, for a minute or an hour: a paused virtual machine, a
laptop's lid, a long garbage collection. Meanwhile the job has been given to another worker, which
finishes it. Then the first one goes on, not knowing, and writes. Rota refuses what such an attempt
writes through Rota; what it writes elsewhere is yours to refuse, and the token is what you need: it
rises with every claim, so the late writer has the lower one.

Needs no worker: it runs one for the length of the example.
"""

from __future__ import annotations

import asyncio

import asyncpg

from rota import App, Context, Node

app = App()

# Keep the highest token beside the data, and let the database compare.
TABLE = """
create table if not exists shop_price (
    article text primary key,
    price   int not null,
    token   bigint not null
)
"""
WRITE = """
insert into shop_price as p (article, price, token) values ($1, $2, $3)
on conflict (article) do update set price = excluded.price, token = excluded.token
where p.token <= excluded.token
returning true
"""


async def write_price(article: str, price: int, token: int) -> bool:
    """Whether it was written; not, if a later attempt was here before."""
    # Stands for any other database that can do a conditional write.
    outside = await asyncpg.connect(await app.database_url())
    try:
        return bool(await outside.fetchval(WRITE, article, price, token))
    finally:
        await outside.close()


@app.task
async def set_price(ctx: Context, article: str, price: int) -> int:
    if not await write_price(article, price, ctx.token):
        raise RuntimeError("a later attempt has already written this price")
    return ctx.token


async def main() -> None:
    await app.migrate()
    async with Node(app).running():
        outside = await asyncpg.connect(await app.database_url())
        await outside.execute(TABLE)

        job = await app.submit("set_price", {"article": "teapot", "price": 30})
        token = await job.result(timeout=30)
        print(f"written under token {token}")

        # An attempt that was claimed before, and slept until now.
        written = await write_price("teapot", 25, token - 1)
        print(f"a write under token {token - 1} is {'accepted' if written else 'refused'}")

        price = await outside.fetchval("select price from shop_price where article = 'teapot'")
        print(f"the teapot costs {price}")
        await outside.close()


if __name__ == "__main__":
    asyncio.run(main())
