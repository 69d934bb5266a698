"""A server with a worker and a scheduler, for tests of the dashboard in a browser."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from uuid import uuid4

import asyncpg
from playwright.async_api import Browser

from rota import App
from rota.core.administration import Limits
from rota.node import Node
from rota.operations.installation import Installation
from rota.server.serving import Server
from tests.support.browser import Window
from tests.support.dashboard_app import make_app


class Stage:
    """A server with a worker and a scheduler on a schema of its own."""

    def __init__(self, app: App, server: Server) -> None:
        self.app = app
        self.server = server
        self.url = f"http://127.0.0.1:{server.port}"

    async def link(self, role: str = "admin") -> str:
        return (await Installation(self.app.connector).sessions.create_link(role=role)).secret

    async def enter(self, browser: Browser, role: str = "admin", **given: object) -> Window:
        window = await Window.open(browser, self.url, **given)
        await window.page.goto(f"{self.url}/login#{await self.link(role)}")
        await window.page.wait_for_url(f"{self.url}/")
        return window

    async def until(self, id: object, *states: str) -> None:
        while (await self.app.jobs.get(str(id))).state not in states:
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def opened_stage(database_url: str, **settings: object) -> AsyncIterator[Stage]:
    schema = f"rota_test_{uuid4().hex[:12]}"
    app = make_app(
        database_url=database_url, schema=schema, node_name="test", port=0, grace=0.2, **settings
    )
    await app.migrate()
    await app.schedule("nightly", "shout", cron="30 2 * * *", tz="Europe/Berlin")
    await Installation(app.connector).namespaces.set_limits("empty", Limits())
    server = Server(app)
    node = Node(app, roles=("scheduler", "worker", "server"), server=server)
    await node.start()
    yield Stage(app, server)
    await node.stop()
    await app.close()
    connection = await asyncpg.connect(database_url)
    await connection.execute(f"drop schema {schema} cascade")
    await connection.close()
