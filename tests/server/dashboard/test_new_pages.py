"""Comparing, logs, finding, saved views, the coming week, events, endpoints and calendars."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest

from rota.core.explain import explain
from rota.core.remedies import remedies_of
from rota.core.time.calendar_text import calendar_from_lines
from rota.core.time.hourly import Expected
from rota.core.time.week import coming_week
from rota.errors import ConfigError
from rota.server.dashboard.compare import diff
from tests.support.api import fail_jobs, query
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import csrf_of, enter

PAGES = (
    "/alerts", "/events", "/forecast", "/calendars", "/endpoints", "/triggers", "/views",
    "/find", "/find?text=ma",
    "/jobs/changes", "/queues/mail", "/tasks", "/queues", "/cluster",
)  # fmt: skip


async def send(browser: httpx.AsyncClient, path: str, **fields: Any) -> httpx.Response:
    csrf = csrf_of(await browser.get("/views"))
    return await browser.post(path, data={"csrf": csrf, **fields})


async def test_every_new_page_is_there_for_a_viewer_and_small(server: LiveServer):
    await server.app.queues.pause("mail")
    browser = await enter(server, "viewer", "default")
    for path in PAGES:
        page = await browser.get(path)
        assert page.status_code == 200, (path, page.text[:300])
        assert len(page.content) < 60_000, path
        assert "style=" not in page.text, path


async def test_an_alert_is_acted_on_acknowledged_and_restored_on_the_overview(server: LiveServer):
    await server.app.queues.pause("mail")
    browser = await enter(server)
    page = await browser.get("/")
    assert "Queue mail is paused" in page.text
    assert 'action="/queues/mail/resume' in page.text
    key = "queue-paused:mail"
    answer = await send(
        browser, "/alerts/acknowledge", key=key, note="known", **{"return": "/alerts"}
    )
    assert answer.headers["location"] == "/alerts"
    assert "acknowledged by" in (await browser.get("/alerts")).text
    await send(browser, "/alerts/restore", key=key)
    assert "acknowledged by" not in (await browser.get("/alerts")).text
    await send(browser, "/alerts/silence", key=key, **{"for": "4h"})
    assert "silenced until" in (await browser.get("/alerts")).text
    viewer = await enter(server, "viewer", "default")
    assert (await viewer.post("/alerts/silence", data={"key": key})).status_code == 403


async def test_a_bulk_action_leads_to_its_outcome_and_is_undone(server: LiveServer):
    ids = [str((await server.app.submit("greet", {}, delay=3600)).id) for _ in range(3)]
    browser = await enter(server)
    answer = await send(
        browser, "/jobs/bulk", do="cancel", id=ids, sure="yes", **{"return": "/jobs?task=greet"}
    )
    page = await browser.get(answer.headers["location"])
    found = re.search(r'action="(/jobs/changes/[0-9a-f-]{36}/undo)', page.text)
    assert found, page.text
    told = await browser.get(found[1].removesuffix("/undo"))
    assert "3 cancelled" in told.text
    await send(browser, found[1])
    assert [(await server.app.jobs.get(id)).state for id in ids] == ["scheduled"] * 3
    assert "3 jobs brought back" in (await browser.get(found[1].removesuffix("/undo"))).text


async def test_two_jobs_are_compared_side_by_side(server: LiveServer):
    one = await server.app.submit("greet", {"name": "ada", "n": 1})
    other = await server.app.submit("greet", {"name": "ada", "n": 2})
    browser = await enter(server)
    page = await browser.get(f"/jobs/compare?a={one.id}&b={other.id}")
    assert "1 line differs" in page.text
    chosen = await browser.get(f"/jobs/compare?a={one.id}")
    assert f"b={other.id}" in chosen.text
    assert (await browser.get("/jobs/compare?a=nonsense")).status_code in (400, 404)


def test_a_diff_names_what_is_only_on_one_side():
    kinds = [line.kind for line in diff(["a", "b", "c"], ["a", "x", "c", "d"])]
    assert kinds == ["same", "changed", "same", "right"]
    assert [line.kind for line in diff(["a"], [])] == ["left"]


async def test_a_log_is_filtered_by_attempt_level_and_text_and_downloaded(server: LiveServer):
    job = await server.app.submit("greet", {})
    lines = [(1, "stdout", "first <b>"), (1, "warning", "careful"), (2, "error", "refused €")]
    for seq, (attempt, stream, text) in enumerate(lines, 1):
        await query(
            server, "insert into {}.job_log (namespace, job_id, token, attempt, seq, at, stream, text) "
            "values ('default', $1, $2::int, $2::int, $3, now(), $4, $5)",
            UUID(str(job.id)), attempt, seq, stream, text,
        )  # fmt: skip
    browser = await enter(server)

    async def shown(parameters: str) -> list[str]:
        page = await browser.get(f"/jobs/{job.id}?{parameters}")
        assert page.status_code == 200
        return re.findall(r"<span>([^<]*(?:&lt;b&gt;)?)</span></li>", page.text)

    assert await shown("") == ["first &lt;b&gt;", "careful", "refused €"]
    assert await shown("attempt=2") == ["refused €"]
    assert await shown("level=warning") == ["careful", "refused €"]
    assert await shown("level=printed") == ["first &lt;b&gt;"]
    assert await shown("find=CAREFUL") == ["careful"]
    assert await shown("level=nonsense") == await shown("")
    file = await browser.get(f"/jobs/{job.id}/log?attempt=1")
    # Without the charset, a browser would take the bytes of “€” for those of another one.
    assert file.headers["content-type"] == "text/plain; charset=utf-8"
    assert "attachment" in file.headers["content-disposition"]
    assert "careful" in file.text
    assert "refused" not in file.text
    whole = await browser.get(f"/jobs/{job.id}/log")
    assert whole.content.decode("utf-8").rstrip().endswith("refused €")


async def test_deliveries_of_webhooks_are_not_counted_among_the_jobs_that_failed(
    server: LiveServer,
):
    await server.app.webhooks.allow("203.0.113.9")
    hook = await server.app.webhooks.add("https://203.0.113.9/hook", kinds=["failed"])
    delivery = await server.app.webhooks.test(hook.id)
    job = await server.app.submit("greet", {})
    await fail_jobs(server.app, [str(job.id)], "of the task")
    await fail_jobs(server.app, [str(delivery.id)], "of the delivery")
    dead = await query(server, "select task from {}.dead order by task")
    assert [row["task"] for row in dead] == ["greet", "rota.webhook"]
    alerts = {one.key: one.text for one in await server.app.alerts.list()}
    assert alerts["jobs-failed"].startswith("1 job failed"), alerts
    browser = await enter(server)
    overview = (await browser.get("/")).text
    assert "of the task" in overview
    assert "of the delivery" not in overview


async def test_what_a_search_matches_is_shown_in_the_row(server: LiveServer):
    await server.app.submit("greet", {"customer": "Acme <x>"})
    browser = await enter(server)
    page = await browser.get('/jobs?text="customer": "acme')
    assert "<mark>&#34;customer&#34;:&#34;Acme</mark>" in page.text
    assert "<x>" not in page.text


async def test_views_are_ones_own_unless_they_are_shared(server: LiveServer):
    ada, bob = (
        await server.client("operator", name="ada"),
        await server.client("viewer", name="bob"),
    )
    for name, shared in (("mine", False), ("ours", True)):
        body = {"name": name, "address": "/jobs?state=failed", "shared": shared}
        assert (await ada.post("/v1/views", json=body)).status_code == 200
    names = [one["name"] for one in (await bob.get("/v1/views")).json()["items"]]
    assert names == ["ours"]
    assert (await bob.post("/v1/views:remove", json={"name": "ours"})).status_code == 404
    for address in ("https://evil.example", "//evil.example", "/\\evil", "jobs", "/ü"):
        body = {"name": "bad", "address": address}
        assert (await ada.post("/v1/views", json=body)).status_code in (400, 422), address
    browser = await enter(server)
    answer = await send(browser, "/views", name="failed", address="/jobs?state=failed")
    assert answer.headers["location"] == "/jobs?state=failed"
    assert "failed" in (await browser.get("/find?text=failed")).text
    await send(browser, "/views/remove", name="failed")


async def test_finding_knows_pages_jobs_actions_and_completes(server: LiveServer):
    job = await server.app.submit("greet", {})
    await server.app.schedule("nightly-report", "greet", cron="0 3 * * *")
    browser = await enter(server)
    assert "Submit a job" in (await browser.get("/find?text=submit")).text
    assert "nightly-report" in (await browser.get("/find?text=nightly")).text
    assert f"/jobs/{job.id}" in (await browser.get(f"/find?text={job.id}")).text
    page = await browser.get("/find?text=task:x sta")
    assert '<option value="task:x state:">' in page.text
    page = await browser.get("/find?text=state:fa")
    assert '<option value="state:failed">' in page.text
    viewer = await enter(server, "viewer", "default")
    assert "Submit a job" not in (await viewer.get("/find?text=submit")).text
    assert "Tokens" not in (await viewer.get("/find?text=tok")).text


def test_the_coming_week_adds_up_work_and_what_waits_for_slots():
    start = datetime(2027, 1, 4, 9, tzinfo=UTC)
    moments = tuple(start + timedelta(hours=2, seconds=n) for n in range(10))
    burst = Expected("burst", {}, moments, exact=True, per_day=10 / 7)
    steady = Expected("steady", {}, (start,), exact=False, per_day=1440.0)
    hours = coming_week([burst, steady], {"burst": 120.0, "steady": 30.0}, 2, start)
    assert len(hours) == 168
    assert hours[2].runs == pytest.approx(70, abs=1)
    assert hours[2].busy == pytest.approx((10 * 120 + 60 * 30) / 7200, rel=0.05)
    # Ten runs of two minutes for two slots: the last begins after eight minutes and more.
    assert 8 * 60 < hours[2].wait < 12 * 60
    assert hours[2].names[0] == "steady"
    assert hours[100].wait == 0
    assert hours[100].busy == pytest.approx(0.25, rel=0.05)


def test_a_calendar_is_read_from_lines():
    made = calendar_from_lines(
        "off", "# comment\n2027-12-24 Eve\n2027-12-27 to 2027-12-31\nSunday\n"
    )
    assert made.covers(date(2027, 12, 24))
    assert made.covers(date(2027, 12, 29))
    assert made.covers(date(2027, 1, 3))
    assert not made.covers(date(2027, 1, 4))
    for wrong in ("", "tomorrow", "2027-13-01", "2027-12-31 to 2027-12-01"):
        with pytest.raises(ConfigError):
            calendar_from_lines("off", wrong)


async def test_a_calendar_is_imported_and_shown_as_a_year(server: LiveServer):
    browser = await enter(server)
    answer = await send(browser, "/calendars", name="off", text="2027-12-24\nSunday")
    assert answer.status_code == 303, answer.text
    page = await browser.get("/calendars?name=off&year=2027")
    assert page.text.count('class="covered"') == 53
    again = await send(browser, "/calendars", name="off", text="2027-12-25")
    assert again.status_code == 422
    assert "replace" in again.text
    ics = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20270501\r\nEND:VEVENT\r\nEND:VCALENDAR"
    answer = await send(browser, "/calendars", name="off", text=ics, replace="yes")
    assert answer.status_code == 303
    page = await browser.get("/calendars?name=off&year=2027")
    assert page.text.count('class="covered"') == 1
    wrong = await send(browser, "/calendars", name="bad", text="soon")
    assert 'id="text-error"' in wrong.text


async def test_an_endpoint_is_added_shown_changed_and_removed(server: LiveServer):
    browser = await enter(server)
    answer = await send(
        browser, "/endpoints", name="push", url="https://example.org/x", timeout="5s"
    )
    assert answer.status_code == 201
    assert "not shown again" in answer.text
    assert (await browser.get("/endpoints/push")).status_code == 200
    listed = (await browser.get("/endpoints")).text
    assert re.search(r"<td>at least once</td></tr>", listed), listed
    wrong = await send(browser, "/endpoints", name="pull", url="ftp://example.org")
    assert wrong.status_code == 422
    await send(browser, "/endpoints/push/change", timeout="9s")
    assert (await server.app.endpoints.get("push")).timeout == 9
    asked = await send(browser, "/endpoints/push/remove")
    assert "Remove endpoint push?" in asked.text
    await send(browser, "/endpoints/push/remove", sure="yes")
    assert (await browser.get("/endpoints/push")).status_code == 404


async def test_theme_density_and_columns_are_kept_in_a_cookie(server: LiveServer):
    await server.app.submit("greet", {})
    browser = await enter(server)
    await send(browser, "/session/look", theme="dark", density="compact")
    page = await browser.get("/jobs")
    assert 'data-theme="dark" data-density="compact"' in page.text
    await send(browser, "/session/look", columns="yes", column=["priority", "took"])
    page = await browser.get("/jobs")
    assert ">Priority</th>" in page.text
    assert ">Queue</th>" not in page.text
    assert 'data-theme="dark"' in page.text
    page = await browser.get("/jobs", headers={"Cookie": 'rota_look=x"><script>.y.z'})
    assert "<script>.y" not in page.text


async def test_an_error_page_keeps_the_navigation(server: LiveServer):
    browser = await enter(server)
    page = await browser.get("/jobs/00000000-0000-7000-8000-000000000000")
    assert page.status_code == 404
    assert 'class="side"' in page.text
    assert 'href="/schedules"' in (await browser.get("/nowhere")).text


_FACTS: dict[str, Any] = {
    "id": UUID(int=7), "lane": "default/mail", "task": "pay", "node": None, "schedule": None,
    "limits": [],
}  # fmt: skip
CODES = (
    "no_scheduler", "being_released", "waiting_for_retry", "not_due", "queue_paused", "about_to_start",
    "all_busy", "starting", "debounced", "throttled", "waiting_for_order", "rate_reached",
    "limit_reached", "waiting_for_limit", "no_worker", "no_worker_for_lane", "commands_not_allowed",
    "exactly_once_needs_a_node", "task_unknown", "key_missing", "node_lost", "stopping", "running",
    "waiting", "succeeded", "failed", "cancelled", "skipped",
)  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_every_explanation_has_something_to_do_beside_it(code: str):
    assert remedies_of(code, _FACTS)


def test_the_codes_are_those_of_explanations():
    import inspect

    from rota.core import explain as module

    written = set(re.findall(r'Explanation\(\s*"([a-z_]+)"', inspect.getsource(module)))
    assert explain is module.explain
    assert written <= set(CODES), written - set(CODES)


async def test_a_job_in_a_paused_queue_is_explained_with_a_button(server: LiveServer):
    await server.app.queues.pause("mail")
    job = await server.app.submit("greet", {}, queue="mail")
    browser = await enter(server)
    page = await browser.get(f"/jobs/{job.id}")
    assert 'action="/queues/mail/resume' in page.text
    api = await (await server.client("viewer")).get(f"/v1/jobs/{job.id}/explain")
    assert api.json()["remedies"][0]["verb"] == "resume_queue"
    failed = await server.app.submit("greet", {})
    await fail_jobs(server.app, [str(failed.id)])
    assert "Other failures of this task" in (await browser.get(f"/jobs/{failed.id}")).text
