"""Ten things that operators do, with the keyboard alone."""

from __future__ import annotations

import re

import pytest
from playwright.async_api import expect

from tests.support import dashboard_app
from tests.support.browser import launched, needs_chromium
from tests.support.stage import opened_stage

pytestmark = [needs_chromium, pytest.mark.proof]


async def test_ten_tasks_are_done_with_the_keyboard_alone(database_url: str):
    async with opened_stage(database_url) as stage, launched() as browser:
        dashboard_app.broken["gateway"] = True
        failed = await stage.app.submit("charge", {"invoice": 7})
        await stage.until(failed.id, "failed")
        waiting = await stage.app.submit("shout", {}, delay=3600)
        window = await stage.enter(browser)
        page, press = window.page, window.page.keyboard.press
        # 1 to 4: to the jobs, the dead letters, the calendar; and the list of keys.
        for key, path in (("j", "/jobs"), ("d", "/dead"), ("a", "/calendar")):
            await press("g")
            await press(key)
            await page.wait_for_url(f"**{path}")
        await press("?")
        await expect(page.locator("#keys")).to_be_visible()
        await press("Escape")
        # 5: a page by the palette.
        await press("Control+k")
        await page.keyboard.type("coming week")
        await expect(page.locator("#palette [data-at] a")).to_contain_text("The coming week")
        await press("Enter")
        await page.wait_for_url("**/forecast")
        # 6 and 7: a failed job by its filters; open it.
        await press("/")
        await page.keyboard.type("task:charge state:failed")
        await press("Enter")
        await page.wait_for_url("**state=failed**")
        await press("j")
        await press("Enter")
        await page.wait_for_url(f"**/jobs/{failed.id}")
        # 8: retry it.
        dashboard_app.broken["gateway"] = False
        await press("r")
        await expect(page.locator("h1 + .state")).to_have_text(re.compile("succeeded"))
        # 9 and 10: select a job in the list, cancel it, and undo that.
        await page.goto(f"{stage.url}/jobs?state=scheduled")
        await press("j")
        await press("x")
        await expect(page.locator("#chosen")).to_have_text("1 selected")
        await press("c")
        await page.get_by_role("button", name=re.compile("^Cancel 1 job")).focus()
        await press("Enter")
        await expect(page.locator("main .notice")).to_contain_text("cancelled")
        await press("u")
        await expect(page.locator("main")).to_contain_text("1 job brought back")
        assert (await stage.app.jobs.get(waiting.id)).state == "scheduled"
        assert window.complaints == []
        await window.context.close()
