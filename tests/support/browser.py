"""A browser for tests: the system's Chromium, one for a module, and an ear for what goes wrong in it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import AsyncIterator
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect

from tests.support.places import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
AXE = ROOT / ".venv" / "axe" / "node_modules" / "axe-core" / "axe.min.js"

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium here")

expect.set_options(timeout=30_000)  # a busy machine is not a wrong page

_LISTEN = """
    window.refused = [];
    addEventListener("securitypolicyviolation", (event) =>
        window.refused.push(`${event.violatedDirective} ${event.blockedURI}`));
"""


@contextlib.asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        await browser.close()


class Window:
    """A page of a browser, and everything that it complained about."""

    def __init__(self, context: BrowserContext, page: Page, url: str) -> None:
        self.context = context
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    @classmethod
    async def open(cls, browser: Browser, url: str, **given: Any) -> Window:
        context = await browser.new_context(**given)
        context.set_default_timeout(20_000)
        await context.add_init_script(_LISTEN)
        return cls(context, await context.new_page(), url)

    async def go(self, path: str) -> None:
        answer = await self.page.goto(self.url + path, wait_until="load")
        assert answer is not None
        assert answer.status == 200, f"{path}: {answer.status}"

    async def refused(self) -> list[str]:
        found: list[str] = await self.page.evaluate("window.refused")
        return found

    async def axe(self) -> list[str]:
        """What an accessibility checker finds serious."""
        await self.page.evaluate(AXE.read_text())
        found = await self.page.evaluate("axe.run({resultTypes: ['violations']})")
        return [
            f"{one['id']} ({one['impact']}): {node['html'][:160]} {node['failureSummary'][:240]}"
            for one in found["violations"]
            if one["impact"] in ("serious", "critical")
            for node in one["nodes"][:3]
        ]
