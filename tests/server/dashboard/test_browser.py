"""The dashboard in a browser: what people come for, and that every page is sound."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route, expect

from proof.waiting import eventually
from rota.lib.ids import new_id
from rota.lib.passwords import hash_password
from rota.store.identity import IdentityStore
from tests.support import dashboard_app
from tests.support.browser import AXE, Window, launched, needs_chromium
from tests.support.dashboard_app import SCRIPT
from tests.support.places import ROOT
from tests.support.stage import Stage, opened_stage

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]

PAGES = (
    "/", "/jobs", "/jobs?state=failed&task=charge", "/jobs?task=nobody", "/jobs/new", "/schedules",
    "/schedules/nightly", "/schedules/new", "/schedules/nightly/edit", "/calendar",
    "/calendar?view=month&zone=Europe/Berlin", "/queues", "/tasks", "/tasks/charge", "/?within=7d",
    "/runs", "/runs?state=failed", "/dead",
    "/cluster", "/cluster?ended=yes",
    "/audit", "/tokens", "/users", "/namespaces", "/webhooks", "/?namespace=empty",
    "/queues/mail", "/alerts", "/events", "/forecast", "/calendars", "/endpoints", "/triggers", "/views",
    "/find?text=mail", "/jobs/changes",
    "/jobs?namespace=empty", "/schedules?namespace=empty", "/dead?namespace=empty",
)  # fmt: skip

ASKED = "?asked"  # the question of a job's page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with launched() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(database_url: str) -> AsyncIterator[Stage]:
    async with opened_stage(database_url) as found:
        yield found


async def test_a_failing_job_is_found_understood_retried_and_seen_to_succeed(
    browser: Browser, stage: Stage
):
    dashboard_app.broken["gateway"] = True
    job = await stage.app.submit("charge", {"invoice": 7}, tags=["urgent"])
    await stage.until(job.id, "failed")
    window = await Window.open(browser, stage.url)
    page = window.page
    await page.goto(f"{stage.url}/jobs?state=failed")  # before the log-in: it leads back to here
    await page.wait_for_url("**/login?next=*")
    await page.goto(f"{page.url}#{await stage.link()}")
    await page.wait_for_url(f"{stage.url}/jobs?state=failed")
    await page.get_by_role("link", name="charge").first.click()
    why = page.locator(".explain")
    await expect(why).to_contain_text("ConnectionError: the gateway refused invoice 7")
    await expect(page.get_by_text("Traceback").first).to_be_visible()
    dashboard_app.broken["gateway"] = False
    await page.get_by_role("button", name="Retry now").click()
    await expect(page.get_by_text("The job will run again.")).to_be_visible()
    # Nobody reloads the page: it sees for itself.
    await expect(page.locator("h1 + .state")).to_have_text(re.compile("succeeded"))
    await expect(page.locator("#result")).to_contain_text("paid 7")
    assert window.complaints == []
    [entry] = [entry for entry in (await _audit(stage)) if entry["subject"] == f"job {job.id}"]
    assert entry["action"] == "retry"
    await window.context.close()


async def _audit(stage: Stage) -> list[asyncpg.Record]:
    async with (await stage.app.store()).database.connection() as connection:
        return await connection.fetch(
            f"select * from {stage.app.settings.schema}.audit order by id"
        )


async def test_a_running_job_is_watched_and_cancelled(browser: Browser, stage: Stage):
    job = await stage.app.submit("wait")
    await stage.until(job.id, "running")
    window = await stage.enter(browser)
    page = window.page
    await window.go(f"/jobs/{job.id}")
    await expect(page.locator("progress")).to_have_attribute("value", "1.0")
    await page.get_by_role("button", name="Cancel").click()
    await page.get_by_role("button", name="Cancel the job").click()
    await expect(page.locator("h1 + .state")).to_have_text(re.compile("cancelled"))
    await window.context.close()


_COUNT_LOOKS = """
    window.looks = 0;
    window.EventSource = class extends EventSource {
        constructor(url) { super(url); this.addEventListener("look", () => window.looks++); }
    };
"""


async def test_a_change_during_a_refresh_is_shown_by_the_next_one(browser: Browser, stage: Stage):
    job = await stage.app.submit("wait")
    await stage.until(job.id, "running")
    window = await stage.enter(browser)
    page = window.page
    await page.add_init_script(_COUNT_LOOKS)
    asked, released = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        """Answer with the page as it was when it was asked for, but late."""
        answer = await route.fetch()
        if route.request.resource_type == "fetch" and not released.is_set():
            asked.set()
            await released.wait()
        await route.fulfill(response=answer)

    await page.route(f"**/jobs/{job.id}", hold)
    await window.go(f"/jobs/{job.id}")
    await asked.wait()
    looks = await page.evaluate("window.looks")
    await stage.app.jobs.cancel(job.id)
    await stage.until(job.id, "cancelled")
    await eventually(lambda: page.evaluate(f"window.looks > {looks}"))
    released.set()
    await expect(page.locator("h1 + .state")).to_have_text(re.compile("cancelled"))
    await window.context.close()


async def test_a_schedule_is_made_previewed_paused_and_triggered(browser: Browser, stage: Stage):
    window = await stage.enter(browser)
    page = window.page
    await window.go("/schedules/new")
    rule = page.locator("[name=rule]")
    await page.locator("[name=name]").fill("digest")
    await page.locator("[name=task]").fill("shout")
    await page.locator("[name=payload]").fill('{"text": "good morning"}')
    await rule.fill("0 9 * * MON-FRI")
    await page.locator("[name=tz]").fill("Europe/Berlin")
    preview = page.locator("#preview")
    await expect(preview).to_contain_text("every weekday at 09:00 in Europe/Berlin")
    await expect(preview.locator("li")).to_have_count(12)
    await rule.fill("0 25 * * *")
    await expect(preview.get_by_role("alert")).to_contain_text("25")
    # A moment that doesn't exist, and one that comes twice, are marked.
    await rule.fill("30 2 25 10 *")
    await expect(preview.locator(".mark").first).to_contain_text("the clocks go back")
    await rule.fill("0 9 * * MON-FRI")
    await page.get_by_role("button", name="Create").click()
    await page.wait_for_url(f"{stage.url}/schedules/digest")
    await page.get_by_role("button", name="Pause").first.click()
    await expect(page.locator("h1 + .state")).to_have_text(re.compile("paused"))
    await page.get_by_role("button", name="Resume").click()
    await expect(page.get_by_text("Schedule digest resumed.")).to_be_visible()
    await page.get_by_role("button", name="Trigger now").click()
    await expect(page.get_by_text("Triggered: this is its job.")).to_be_visible()
    await expect(page.locator("#result")).to_contain_text("good morning")
    assert window.complaints == []
    await window.context.close()


async def test_a_backfill_is_counted_before_it_is_run(browser: Browser, stage: Stage):
    await stage.app.schedule("hourly", "shout", every="1h", payload={"text": "bell"})
    window = await stage.enter(browser)
    page = window.page
    await window.go("/schedules/hourly")
    await page.get_by_role("button", name="Count them").click()
    await expect(page.locator("h1")).to_contain_text("Backfill 168 occurrences of hourly?")
    assert not await stage.app.schedules.occurrences(
        "hourly", (await (await stage.app.store()).now()).replace(year=2020), await _soon(stage)
    )
    await page.get_by_role("button", name="Run 168 occurrences").click()
    await expect(page.get_by_text("168 occurrences will be run, the oldest first.")).to_be_visible()
    await window.context.close()
    await stage.app.schedules.delete("hourly")


async def _soon(stage: Stage):
    return (await (await stage.app.store()).now()).replace(year=2200)


async def test_a_dead_letter_group_is_drained(browser: Browser, stage: Stage):
    dashboard_app.broken["gateway"] = True
    jobs = [await stage.app.submit("charge", {"invoice": 100 + n}) for n in range(5)]
    for job in jobs:
        await stage.until(job.id, "failed")
    dashboard_app.broken["gateway"] = False
    window = await stage.enter(browser)
    page = window.page
    await window.go("/dead")
    await page.get_by_role("button", name="Retry all 5").click()
    await expect(page.locator("h1")).to_have_text("Retry 5 jobs?")
    await page.get_by_role("button", name="Retry 5 jobs").click()
    await expect(page.get_by_text("5 jobs will run again.")).to_be_visible()
    await expect(page.get_by_text("The dead-letter list is empty.")).to_be_visible()
    for job in jobs:
        await stage.until(job.id, "succeeded")
    await window.context.close()


async def test_many_jobs_are_cancelled_after_a_count_and_a_confirmation(
    browser: Browser, stage: Stage
):
    jobs = [
        await stage.app.submit("shout", {"text": "x"}, delay=3600, tags=["bulk"]) for _ in range(3)
    ]
    window = await stage.enter(browser)
    page = window.page
    await window.go("/jobs?tag=bulk")
    await page.get_by_label("all that match").check()
    await page.get_by_role("button", name="Cancel selected").click()
    await expect(page.locator("h1")).to_have_text("Cancel 3 jobs?")
    assert (await stage.app.jobs.get(jobs[0].id)).state == "scheduled"
    await page.get_by_role("button", name="Cancel 3 jobs").click()
    await page.wait_for_url(f"{stage.url}/jobs?tag=bulk")
    await expect(page.get_by_text("3 jobs were cancelled")).to_be_visible()
    assert (await stage.app.jobs.get(jobs[0].id)).state == "cancelled"
    await window.context.close()


async def test_what_looks_like_a_script_stays_text(browser: Browser, stage: Stage):
    job = await stage.app.submit("shout", {"text": SCRIPT}, key=SCRIPT)
    await stage.until(job.id, "succeeded")
    window = await stage.enter(browser)
    for path in (f"/jobs/{job.id}", f"/jobs?text={SCRIPT}", f"/jobs/new?from={job.id}"):
        await window.go(path)
        await expect(window.page.locator("body")).to_contain_text(SCRIPT)
        assert "owned" not in await window.page.title()
        assert await window.refused() == []
    await window.go(f"/jobs/{job.id}")
    await expect(window.page.locator("#log li").first).to_contain_text(SCRIPT)
    assert window.complaints == []
    await window.context.close()


async def test_new_jobs_appear_without_losing_ones_place(browser: Browser, stage: Stage):
    first = await stage.app.submit("shout", {"text": "one"}, tags=["place"])
    await stage.until(first.id, "succeeded")
    window = await stage.enter(browser)
    page = window.page
    await window.go("/jobs?tag=place")
    await expect(page.locator("#rows tr")).to_have_count(1)
    await stage.app.submit("shout", {"text": "two"}, tags=["place"])
    await expect(page.locator("#rows tr")).to_have_count(2)
    # Somebody has chosen a row: nothing moves under their hand any more, but they are told.
    await page.locator(f"#job-{first.id} input").check()
    await stage.app.submit("shout", {"text": "three"}, tags=["place"])
    await expect(page.locator("#news")).to_be_visible()
    await expect(page.locator("#rows tr")).to_have_count(2)
    assert await page.locator(f"#job-{first.id} input").is_checked()
    await window.context.close()


@pytest.mark.proof
@pytest.mark.parametrize("scheme", ["light", "dark", "phone"])
async def test_every_page_is_sound_and_accessible(browser: Browser, stage: Stage, scheme: str):
    job = await stage.app.submit("shout", {"text": "hello " * 200}, tags=["t" * 60])
    await stage.until(job.id, "succeeded")
    dashboard_app.broken["gateway"] = True
    failed = await stage.app.submit("charge", {"invoice": 1})
    await stage.until(failed.id, "failed")
    given: dict[str, object] = {"color_scheme": scheme}
    if scheme == "phone":
        given = {"viewport": {"width": 375, "height": 800}}
    window = await stage.enter(browser, **given)
    wrong: dict[str, list[str]] = {}
    [node, *_] = await stage.app.nodes.list()
    hook = await stage.app.webhooks.add(f"https://hooks.invalid/{scheme}", kinds=["node_dead"])
    await stage.app.endpoints.add(f"push-{scheme}", "https://hooks.invalid/push")
    database = (await stage.app.store()).database
    source = f"kafka://{'broker.example.org:9092,' * 5}/orders"
    about = (stage.app.settings.namespace, f"orders-{scheme}")
    await database.fetch("declare_trigger", *about, "charge", source, None)
    await database.fetch("note_trigger", *about, 4711, "Kafka: away " * 20)
    for path in (
        *PAGES, f"/jobs/{job.id}", f"/jobs/{failed.id}", f"/jobs/new?from={failed.id}",
        f"/jobs/compare?a={job.id}", f"/jobs/compare?a={job.id}&b={failed.id}", f"/nodes/{node.id}",
        f"/webhooks/{hook.id}", f"/endpoints/push-{scheme}", f"/triggers/orders-{scheme}",
        "/doctor", f"/jobs/{failed.id}{ASKED}",
    ):  # fmt: skip
        await window.go(path.removesuffix(ASKED))
        if path.endswith(ASKED):
            await window.page.get_by_role("button", name="Discard…").click()
            await window.page.get_by_role("heading", name="Discard this job?").wait_for()
        found = await window.refused()
        if AXE.exists():
            found += await window.axe()
        if found:
            wrong[path] = found
    assert wrong == {}
    assert window.complaints == []
    await window.context.close()


async def test_a_run_is_drawn_and_its_failed_step_is_run_again(browser: Browser, stage: Stage):
    dashboard_app.broken["gateway"] = True
    flow = stage.app.workflow("billing")
    flow.step(stage.app.tasks["charge"], 7, name="paid")
    flow.step(stage.app.tasks["shout"], "done", after="paid", name="told")
    run = await flow.start()
    window = await stage.enter(browser)
    await window.go(f"/runs/{run.id}")
    page = window.page
    graph = page.locator("svg.graph")
    await expect(graph.locator("g.is-failed")).to_contain_text("paid")
    await expect(page.locator(".explain")).to_contain_text("paid")
    assert (await window.axe() if AXE.exists() else []) == []
    dashboard_app.broken["gateway"] = False
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("h1 + .state")).to_have_text(re.compile("succeeded"))
    await expect(graph.locator("g.is-succeeded")).to_have_count(2)
    await page.get_by_role("link", name="paid").click()
    await expect(page.locator("h1")).to_have_text("charge")
    assert window.complaints == []
    await window.context.close()


async def test_no_page_is_wider_than_a_phone(browser: Browser, stage: Stage):
    window = await stage.enter(browser, viewport={"width": 375, "height": 800})
    too_wide = []
    for path in PAGES:
        await window.go(path)
        width = await window.page.evaluate("document.documentElement.scrollWidth")
        if width > 375:
            too_wide.append((path, width))
    assert too_wide == []
    await window.context.close()


_SMALL = """[...document.querySelectorAll(
    "button, a.button, .side a, .ranges a, .tabs a, summary.button, select, " +
    "input:not([type=checkbox]):not([type=radio]):not([type=hidden])")]
    // On a phone the heads of tables are for screen readers only.
    .filter((one) => one.offsetParent && !one.closest(".stack thead"))
    .filter((one) => one.getBoundingClientRect().height < 39.5)
    .map((one) => `${one.tagName} ${one.className} ${one.textContent.trim().slice(0, 30)} ` +
        one.getBoundingClientRect().height)"""


async def test_what_one_touches_on_a_phone_is_40_pixels_high(browser: Browser, stage: Stage):
    window = await stage.enter(browser, viewport={"width": 375, "height": 800})
    small = {}
    for path in PAGES:
        await window.go(path)
        if found := await window.page.evaluate(_SMALL):
            small[path] = found
    assert small == {}
    await window.context.close()


# Of each chart: labels that are cut off, that lie on one another, and that are too small to read.
_UNREADABLE = """[...document.querySelectorAll("svg.chart")].flatMap((chart) => {
    const around = chart.getBoundingClientRect();
    const seen = [...chart.querySelectorAll("text")]
        .filter((one) => getComputedStyle(one).display !== "none");
    const boxes = seen.map((one) => [one.textContent, one.getBoundingClientRect()]);
    const apart = (a, b) =>
        a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
    return [
        ...boxes.filter(([, box]) => box.left < around.left - 1 || box.right > around.right + 1)
            .map(([text]) => `cut off: ${text}`),
        ...boxes.filter(([, box]) => box.height < 8).map(([text, box]) => `${box.height} px: ${text}`),
        ...boxes.flatMap(([text, box], n) => boxes.slice(n + 1).filter(([, other]) => !apart(box, other))
            .map(([other]) => `${text} on ${other}`)),
    ];
})"""


@pytest.mark.parametrize("width", [1280, 1000, 700, 375])
async def test_the_labels_of_a_chart_can_be_read_in_a_narrow_card(
    browser: Browser, stage: Stage, width: int
):
    window = await stage.enter(browser, viewport={"width": width, "height": 800})
    unreadable = {}
    for path in (
        "/?within=7d",
        "/?within=15m",
        "/tasks/charge",
        "/tasks/charge?within=30d",
        "/queues/mail",
    ):
        await window.go(path)
        assert await window.page.locator("svg.chart text").count() > 3, path
        if found := await window.page.evaluate(_UNREADABLE):
            unreadable[path] = found
    assert unreadable == {}
    await window.context.close()


async def test_long_names_break_no_page(browser: Browser, stage: Stage):
    task, long = "t" * 100, "n" * 60
    await stage.app.submit(task, {}, queue="q" * 100, tags=["tag" * 20, "other" * 12])
    await stage.app.queues.set_max_depth("q" * 100, 1_000_000)
    dashboard_app.broken["gateway"] = True
    failed = await stage.app.submit("charge", {"invoice": 3}, queue="money")
    await stage.until(failed.id, "failed")
    name = f"{long}.{long}.{long}"
    await stage.app.schedule(name, task, cron="30 2 1 1 *")
    schema = stage.app.settings.schema
    async with (await stage.app.store()).database.connection() as connection:
        await connection.execute(
            f"update {schema}.dead set task = $1, error = $2 where id = $3", task,
            json.dumps({"type": f"{long}.{long}", "message": "m" * 300}), failed.id,
        )  # fmt: skip
    for width in (1280, 375):
        window = await stage.enter(browser, viewport={"width": width, "height": 800})
        page = window.page
        for path in ("/jobs", f"/jobs?task={task}", "/schedules", "/dead", "/queues", "/"):
            await window.go(path)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
            for table in await page.locator(".scroll").all():
                inner, outer = await table.evaluate("one => [one.scrollWidth, one.clientWidth]")
                assert inner <= outer, (path, width)
            if width > 1000:
                for row in await page.locator("tbody[data-rows] tr").all():
                    box = await row.bounding_box()
                    assert box is None or box["height"] < 100, (path, await row.inner_text())
        await window.context.close()
    await stage.app.schedules.delete(name)


async def test_text_that_is_selected_stays_selected(browser: Browser, stage: Stage):
    """And the page goes on when nothing is selected any more."""
    job = await stage.app.submit("wait")
    await stage.until(job.id, "running")
    window = await stage.enter(browser)
    page = window.page
    await page.add_init_script(_COUNT_LOOKS)
    await window.go(f"/jobs/{job.id}")
    await page.evaluate("getSelection().selectAllChildren(document.querySelector('.facts .mono'))")
    chosen = await page.evaluate("getSelection().toString()")
    assert str(job.id) in chosen
    await stage.app.jobs.cancel(job.id)
    await stage.until(job.id, "cancelled")
    await eventually(lambda: page.evaluate("window.looks > 1"))
    asked = page.expect_response(
        lambda answer: str(job.id) in answer.url and "stream" not in answer.url
    )
    async with asked:
        await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await page.evaluate("new Promise((done) => setTimeout(done, 50))")
    assert await page.evaluate("getSelection().toString()") == chosen
    await expect(page.locator("h1 + .state")).to_have_text(re.compile("running"))
    await page.evaluate("getSelection().removeAllRanges()")
    await expect(page.locator("h1 + .state")).to_have_text(re.compile("cancelled"))
    await window.context.close()


async def test_a_form_recovers_from_an_outage(browser: Browser, stage: Stage):
    window = await stage.enter(browser)
    page = window.page
    await window.go("/schedules/new")
    away = {"yes": True}

    async def cut(route: Route) -> None:
        await (route.abort() if away["yes"] else route.continue_())

    await page.route("**/schedules/preview", cut)
    await page.locator("[name=rule]").fill("0 9 * * *")
    await expect(page.locator("#connection")).to_contain_text("can't be reached")
    away["yes"] = False
    await expect(page.locator("#connection")).to_be_hidden()
    await expect(page.locator("#preview")).to_contain_text("every day at 09:00")
    assert await page.locator("[name=rule]").input_value() == "0 9 * * *"
    await window.context.close()


async def test_invalid_json_is_told_while_one_writes(browser: Browser, stage: Stage):
    window = await stage.enter(browser)
    page = window.page
    await window.go("/jobs/new")
    await page.locator("[name=payload]").fill('{"a": }')
    await page.locator("[name=task]").focus()
    await expect(page.locator("#payload-error")).to_contain_text("not JSON")
    await page.locator("[name=payload]").fill('{"a": 1}')
    await page.locator("[name=task]").focus()
    await expect(page.locator("#payload-error")).to_have_text("")
    await window.context.close()


async def test_the_colours_of_the_calendar_are_told_right_in_the_dark(
    browser: Browser, stage: Stage
):
    window = await stage.enter(browser, color_scheme="dark")
    await window.go("/calendar")
    legend = await window.page.locator(".legend").inner_text()
    assert "arker" not in legend
    assert "The stronger the colour" in legend
    await window.context.close()


async def test_the_first_page_is_small(browser: Browser, stage: Stage):
    entered = await stage.enter(browser)
    state = await entered.context.storage_state()
    await entered.context.close()
    window = await Window.open(browser, stage.url, storage_state=state)  # its cache is empty
    await window.go("/")
    sizes = await window.page.evaluate(
        """[...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
           .map((one) => one.transferSize)"""
    )
    assert len(sizes) >= 3
    assert 5_000 < sum(sizes) < 100_000
    await window.context.close()


async def test_keys_search_walk_and_help(browser: Browser, stage: Stage):
    window = await stage.enter(browser)
    page = window.page
    await window.go("/schedules")
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/schedules/*")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await page.keyboard.press("/")
    await page.keyboard.type("charge")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/jobs?text=charge")
    await window.context.close()


async def test_times_are_shown_in_the_zone_that_one_chooses(browser: Browser, stage: Stage):
    window = await stage.enter(browser, timezone_id="Asia/Tokyo")
    page = window.page
    await window.go("/schedules/nightly")
    shown = page.locator("#next-card time").first
    await expect(shown).to_contain_text("GMT+9")
    await page.get_by_role("button", name="UTC").click()
    await expect(shown).to_contain_text("UTC")
    await page.get_by_role("button", name="Schedule", exact=True).click()
    await expect(shown).to_contain_text("02:30:00")
    await window.context.close()


async def test_everything_works_without_a_script(browser: Browser, stage: Stage):
    store = IdentityStore((await stage.app.store()).database)
    person = await store.put_user(new_id(), "ada", hash_password("correct horse battery"))
    await store.put_membership(person, "default", "operator")
    dashboard_app.broken["gateway"] = True
    job = await stage.app.submit("charge", {"invoice": 55})
    await stage.until(job.id, "failed")
    window = await Window.open(browser, stage.url, java_script_enabled=False)
    page = window.page
    await page.goto(f"{stage.url}/jobs/{job.id}")
    await page.get_by_label("Name").fill("ada")
    await page.get_by_label("Password").fill("wrong password")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_contain_text("The name or the password is wrong")
    await page.get_by_label("Name").fill("ada")
    await page.get_by_label("Password").fill("correct horse battery")
    await page.get_by_role("button", name="Log in").click()
    await page.wait_for_url(f"{stage.url}/jobs/{job.id}")
    dashboard_app.broken["gateway"] = False
    await page.get_by_role("button", name="Retry now").click()
    await expect(page.get_by_text("The job will run again.")).to_be_visible()
    await stage.until(job.id, "succeeded")
    await page.reload()
    await expect(page.locator("h1 + .state")).to_have_text(re.compile("succeeded"))
    await page.locator(".me summary").click()
    await page.get_by_role("button", name="Log out").click()
    await page.wait_for_url(f"{stage.url}/login")
    await page.goto(f"{stage.url}/jobs")
    assert "/login" in page.url
    await window.context.close()


# -- a server that goes away


@contextlib.asynccontextmanager
async def serving_alone(url: str, schema: str, port: int) -> AsyncIterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "tests.support.dashboard_app", url, schema, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"serving\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.proof
async def test_a_page_says_that_its_server_was_killed_and_recovers_by_itself(
    browser: Browser, stage: Stage, database_url: str
):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    schema = stage.app.settings.schema
    url = f"http://127.0.0.1:{port}"
    window = await Window.open(browser, url)
    page = window.page
    async with serving_alone(database_url, schema, port):
        await page.goto(f"{url}/login?next=/jobs?tag=back#{await stage.link()}")
        await page.wait_for_url(f"{url}/jobs?tag=back")
        await expect(page.get_by_text("No job matches")).to_be_visible()
    await expect(page.locator("#connection")).to_contain_text("The server can't be reached")
    await stage.app.submit("shout", {"text": "meanwhile"}, tags=["back"], delay=3600)
    async with serving_alone(database_url, schema, port):
        await expect(page.locator("#connection")).to_be_hidden(timeout=30_000)
        await expect(page.locator("#rows tr")).to_have_count(1)
        await window.context.close()
