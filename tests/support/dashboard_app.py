"""An app for the dashboard's tests, and its server as a process of its own that can be killed.

python -m tests.support.dashboard_app DATABASE_URL SCHEMA PORT
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

from rota import App, Context, Retry
from rota.server.serving import Server

SCRIPT = "<script>document.title='owned'</script>"

log = logging.getLogger("shop")
broken = {"gateway": True}  # what the tests repair


def make_app(**settings: Any) -> App:
    app = App(**settings)

    @app.task(queue="money", retry=Retry(max_attempts=2, base=0.01, jitter=0))
    async def charge(invoice: int) -> str:
        if broken["gateway"]:
            raise ConnectionError(f"the gateway refused invoice {invoice}")
        return f"paid {invoice}"

    @app.task(queue="mail")
    async def shout(text: str = "hello") -> str:
        log.warning("%s", text)
        return text

    @app.task(queue="slow")
    async def wait(ctx: Context, seconds: float = 3600) -> None:
        ctx.progress(1, 4, "waiting")
        await asyncio.sleep(seconds)

    return app


async def serve(url: str, schema: str, port: int) -> None:
    app = make_app(database_url=url, schema=schema, port=port, node_name="alone")
    await Server(app).start()
    print("serving", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2], int(sys.argv[3])))
