"""What operators come for, as they would do it in a browser, each with the clicks that it takes.

A task begins on the overview. Typing into the field that has the focus is no click.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from proof.waiting import eventually
from rota.store.run_stats import RunStatsStore
from tests.support import dashboard_app
from tests.support.browser import Window, launched, needs_chromium
from tests.support.stage import Stage, opened_stage

pytestmark = [needs_chromium, pytest.mark.proof]


class Hand:
    """Clicks, and counts them."""

    def __init__(self, window: Window, stage: Stage) -> None:
        self.page: Page = window.page
        self.stage = stage
        self.clicks = 0

    async def link(self, name: str, within: str = "body") -> None:
        await self.click(self.page.locator(within).get_by_role("link", name=name, exact=True).first)

    async def button(self, name: str) -> None:
        await self.click(self.page.get_by_role("button", name=name).first)

    async def click(self, target: Locator) -> None:
        self.clicks += 1
        await target.click()

    async def menu(self, name: str) -> None:
        await self.link(name, ".side")

    async def sees(self, text: str) -> None:
        await expect(self.page.locator("main")).to_contain_text(text)


Task = Callable[[Hand], Awaitable[None]]
TASKS: dict[str, tuple[int, Task]] = {}


def task(most: int) -> Callable[[Task], Task]:
    """Declare a task of an operator, with the clicks that it may take."""

    def register(function: Task) -> Task:
        TASKS[function.__name__] = (most, function)
        return function

    return register


@task(2)
async def find_why_a_job_failed(hand: Hand) -> None:
    await hand.menu("Dead letters")
    await hand.link("latest job")
    await expect(hand.page.locator(".explain")).to_contain_text("the gateway refused invoice")


@task(0)
async def find_a_job_by_what_is_known_of_it(hand: Hand) -> None:
    await hand.page.keyboard.press("/")
    await hand.page.keyboard.type("task:charge invoice 7 state:failed since:2h")
    await hand.page.keyboard.press("Enter")
    await hand.page.wait_for_url("**state=failed**")


@task(1)
async def share_a_filtered_view(hand: Hand) -> None:
    await hand.menu("Jobs")
    await hand.page.goto(f"{hand.stage.url}/jobs?state=failed&task=charge")
    address = hand.page.url
    await hand.page.goto(hand.stage.url)
    await hand.page.goto(address)
    await expect(hand.page.locator("#rows tr").first).to_contain_text("charge")


@task(3)
async def retry_a_group_of_failures(hand: Hand) -> None:
    dashboard_app.broken["gateway"] = False
    await hand.menu("Dead letters")
    await hand.button("Retry")
    await hand.page.get_by_role("button", name=re.compile("^Retry \\d+ job")).first.click()
    hand.clicks += 1
    await hand.sees("will run again")
    dashboard_app.broken["gateway"] = True


@task(2)
async def see_a_tasks_durations_over_time(hand: Hand) -> None:
    await hand.menu("Tasks")
    await hand.link("shout")
    await expect(hand.page.get_by_role("heading", name="Duration", exact=True)).to_be_visible()
    await expect(hand.page.locator("svg.chart")).to_have_count(4)


@task(3)
async def see_a_tasks_last_week(hand: Hand) -> None:
    await hand.menu("Tasks")
    await hand.link("shout")
    await hand.link("7d")
    await hand.sees("Runs, 7d")


@task(3)
async def open_the_jobs_behind_a_column(hand: Hand) -> None:
    await hand.menu("Tasks")
    await hand.link("shout")
    await hand.click(hand.page.locator("svg.chart a").first)
    await expect(hand.page.locator("#rows tr").first).to_contain_text("shout")


@task(3)
async def run_a_task_with_a_sample_payload(hand: Hand) -> None:
    await hand.menu("Tasks")
    await hand.link("shout")
    await hand.link("Run it…")
    await expect(hand.page.locator("[name=payload]")).to_have_value(re.compile('"text": ""'))


@task(3)
async def drain_a_node(hand: Hand) -> None:
    await hand.menu("Cluster")
    await hand.click(hand.page.locator("tbody[data-rows] a").first)
    await hand.button("Drain")
    await expect(hand.page.locator("h1 + .state")).to_have_text(re.compile("draining"))


@task(3)
async def undrain_a_node(hand: Hand) -> None:
    await hand.menu("Cluster")
    await hand.click(hand.page.locator("tbody[data-rows] a").first)
    await hand.button("Undrain")
    await expect(hand.page.locator("h1 + .state")).to_have_text(re.compile("live"))


@task(2)
async def see_what_ran_on_a_node(hand: Hand) -> None:
    await hand.menu("Cluster")
    await hand.click(hand.page.locator("tbody[data-rows] a").first)
    await expect(hand.page.get_by_role("heading", name="The last ten minutes")).to_be_visible()


@task(3)
async def see_a_webhooks_deliveries(hand: Hand) -> None:
    await hand.menu("Settings")
    await hand.link("Webhooks", "main")
    await hand.click(hand.page.locator("#rows a").first)
    await hand.sees("Deliveries of the last week")
    await expect(hand.page.locator("tbody tr")).not_to_have_count(0)


@task(3)
async def redeliver_to_a_webhook(hand: Hand) -> None:
    await hand.menu("Dead letters")
    group = hand.page.locator(".group").filter(has_text="rota.webhook")
    await hand.click(group.get_by_role("link", name="latest job"))
    await hand.button("Redeliver")
    await hand.sees("This job sends the event once more.")


@task(2)
async def pause_a_queue(hand: Hand) -> None:
    await hand.menu("Queues")
    await hand.click(hand.page.locator("#queue-mail").get_by_role("button", name="Pause"))
    await hand.sees("Queue mail paused")


@task(2)
async def resume_a_queue(hand: Hand) -> None:
    await hand.menu("Queues")
    await hand.click(hand.page.locator("#queue-mail").get_by_role("button", name="Resume"))
    await hand.sees("Queue mail resumed")


@task(2)
async def see_how_deep_queues_were(hand: Hand) -> None:
    await hand.menu("Queues")
    await hand.link("24h")
    await expect(hand.page.locator("#queue-mail .spark svg")).to_have_count(3)


@task(3)
async def trigger_a_schedule(hand: Hand) -> None:
    await hand.menu("Schedules")
    await hand.link("nightly")
    await hand.button("Trigger now")
    await hand.sees("Triggered: this is its job.")


@task(2)
async def pause_a_schedule(hand: Hand) -> None:
    await hand.menu("Schedules")
    await hand.button("Pause")
    await hand.sees("paused")


@task(2)
async def resume_a_schedule(hand: Hand) -> None:
    await hand.menu("Schedules")
    await hand.button("Resume")
    await hand.sees("resumed")


@task(3)
async def backfill_a_schedule(hand: Hand) -> None:
    await hand.menu("Schedules")
    await hand.link("nightly")
    await hand.button("Count them")
    await expect(hand.page.locator("h1")).to_contain_text("Backfill 7 occurrences")


@task(1)
async def see_the_week_to_come(hand: Hand) -> None:
    await hand.menu("Calendar")
    await hand.sees("nightly")


@task(2)
async def create_a_token_with_scopes(hand: Hand) -> None:
    await hand.page.goto(f"{hand.stage.url}/tokens")
    await hand.page.locator("main [name=name]").fill("ci")
    await hand.click(hand.page.get_by_label("jobs:read"))
    await hand.button("Create")
    await hand.sees("Copy it now")


@task(1)
async def see_who_changed_something(hand: Hand) -> None:
    await hand.menu("Audit")
    await hand.sees("drain")


@task(1)
async def copy_a_page_as_a_command(hand: Hand) -> None:
    await hand.page.goto(f"{hand.stage.url}/queues")
    await hand.click(hand.page.locator(".copy > summary"))
    await expect(hand.page.locator(".copy-box")).to_contain_text("rota queues")


@task(1)
async def show_times_in_utc(hand: Hand) -> None:
    await hand.page.goto(f"{hand.stage.url}/schedules/nightly")
    await hand.button("UTC")
    await expect(hand.page.locator("#next-card time").first).to_contain_text("UTC")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with launched() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(database_url: str) -> AsyncIterator[Stage]:
    async with opened_stage(database_url, heartbeat=0.2, missed_heartbeats=50) as found:
        app: Any = found.app
        dashboard_app.broken["gateway"] = True
        hook = await app.webhooks.add("https://hooks.invalid/rota", kinds=["node_dead"])
        delivery = await app.webhooks.test(hook.id)
        await found.until(delivery.id, "failed")
        for number in (7, 8):
            job = await app.submit("charge", {"invoice": number})
            await found.until(job.id, "failed")
        for _ in range(3):
            job = await app.submit("shout", {"text": "hello"})
            await found.until(job.id, "succeeded")
        stats = RunStatsStore((await app.store()).database)

        async def counted() -> bool:
            await stats.fold(1000)
            return (await app.statistics.task("shout")).runs >= 3

        await eventually(counted)
        yield found


def test_there_are_twenty_five_tasks():
    assert len(TASKS) == 25


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("name", TASKS)
async def test_an_operator_can(browser: Browser, stage: Stage, name: str):
    most, function = TASKS[name]
    window = await stage.enter(browser)
    hand = Hand(window, stage)
    await function(hand)
    assert hand.clicks <= most, f"{hand.clicks} clicks"
    assert window.complaints == []
    await window.context.close()
