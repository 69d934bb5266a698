"""A job that exists if and only if the caller's own transaction commits.

An order and the job that confirms it are written together. Without that, a crash between the two
leaves an order that nobody is told of, or a message about an order that doesn't exist.

Needs no worker: it runs one for the length of the example.
"""

from __future__ import annotations

import asyncio

import asyncpg

from rota import App, Node

app = App()


@app.task
async def confirm(order_id: int) -> str:
    return f"order {order_id} is confirmed"


async def main() -> None:
    await app.migrate()
    async with Node(app).running():
        # The shop's own connection; only the database must be the same.
        connection = await asyncpg.connect(await app.database_url())
        await connection.execute("create temporary table purchase (id int primary key)")

        async with connection.transaction():
            await connection.execute("insert into purchase values (1)")
            job = await confirm.options(connection=connection).submit(1)
        print(await job.result(timeout=30))

        try:
            async with connection.transaction():
                await connection.execute("insert into purchase values (2)")
                job = await confirm.options(connection=connection).submit(2)
                raise RuntimeError("the card was declined")
        except RuntimeError as error:
            print(f"{error}: {await app.jobs.find(job.id)} is left of order 2")

        await connection.close()


if __name__ == "__main__":
    asyncio.run(main())
