"""The dashboard with names and at moments that nobody planned for."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

import httpx
import pytest

from tests.support.api import fail_jobs, query
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import csrf_of, enter

# A name from right to left, one that turns the direction, one without width, and one of many signs.
ODD = (
    "مهمة-يومية", "invoice\u202efdp.exe", "zero\u200bwidth", "👩\u200d👩\u200d👧\u200d👦" * 8,
    "<script>alert(1)</script>", "a" * 90,
)  # fmt: skip
GONE = re.compile("there is no|you have no|is not there|has ended|no job", re.IGNORECASE)
LISTS = ("/", "/jobs", "/dead", "/queues", "/tasks", "/find", "/alerts", "/events", "/calendar")


def shown(page: httpx.Response) -> str:
    assert page.status_code == 200, (page.url, page.text[:400])
    assert len(page.content) < 60_000, page.url
    assert "<script>alert" not in page.text
    return html.unescape(page.text)


@pytest.mark.parametrize("name", ODD)
async def test_odd_names_are_found_and_shown_on_every_page(server: LiveServer, name: str):
    job = await server.app.submit("greet", {"to": name}, queue="mail", key=f"key {name}")
    await fail_jobs(server.app, [str(job.id)], f"message {name}")
    browser = await enter(server)
    for path in LISTS:
        shown(await browser.get(path))
    assert name in shown(await browser.get(f"/jobs/{job.id}"))
    assert str(job.id) in shown(await browser.get(f"/jobs?text={quote(name)}"))
    assert shown(await browser.get(f"/jobs?tag={quote(name)}"))
    assert "Nothing is called that" not in shown(await browser.get(f"/find?text={quote(name)}"))
    assert shown(await browser.get(f"/schedules?text={quote(name)}"))


@pytest.mark.parametrize(
    "text", ["\0", "%", "_", "\\", "'", '"', "(", "a" * 200, " ", "task:", "::"]
)
async def test_a_search_takes_any_text(server: LiveServer, text: str):
    await server.app.submit("greet", {})
    await server.app.schedule("nightly", "greet", cron="0 3 * * *")
    browser = await enter(server)
    for path in ("/find", "/jobs", "/schedules"):
        page = await browser.get(f"{path}?text={quote(text)}")
        assert page.status_code in (200, 400, 422), (path, page.status_code, page.text[:300])
        assert page.status_code == 200 or text == "\0", (path, page.text[:300])


async def test_what_has_just_gone_is_said_to_be_gone_with_the_navigation(server: LiveServer):
    app = server.app
    await app.schedule("nightly", "greet", cron="0 3 * * *")
    hook = await app.webhooks.add("https://example.org/hook")
    await app.endpoints.add("push", "https://example.org/push")
    await app.views.save("mine", "/jobs?state=failed")
    job = await app.submit("greet", {})
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/schedules/nightly"))
    await app.schedules.delete("nightly")
    await app.webhooks.remove(hook.id)
    await app.endpoints.remove("push")
    await app.jobs.cancel(job.id)
    await query(server, "delete from {}.past where id = $1", job.id)
    for path in (
        "/schedules/nightly/pause", "/schedules/nightly/trigger", "/schedules/nightly/delete",
        f"/webhooks/{hook.id}/pause", f"/webhooks/{hook.id}/test", f"/webhooks/{hook.id}/remove",
        "/endpoints/push/change", "/endpoints/push/remove", f"/jobs/{job.id}/cancel",
        f"/jobs/{job.id}/retry", "/views/remove",
    ):  # fmt: skip
        data = {"csrf": csrf, "sure": "yes", "name": "another", "url": "https://example.org/x"}
        answer = await browser.post(path, data=data)
        if answer.status_code == 303:  # back to a page that says it
            answer = await browser.get(answer.headers["location"])
        assert answer.status_code in (200, 404, 409), (path, answer.status_code, answer.text[:300])
        assert GONE.search(answer.text), (path, answer.text[:2000])
        assert "Traceback" not in answer.text, path
        assert 'href="/jobs"' in answer.text, path


async def test_two_tabs_that_do_the_same_are_both_answered(server: LiveServer):
    job = await server.app.submit("greet", {})
    await fail_jobs(server.app, [str(job.id)])
    browser = await enter(server)
    csrf = csrf_of(await browser.get(f"/jobs/{job.id}"))
    said = []
    for _ in range(2):
        answer = await browser.post(f"/jobs/{job.id}/retry", data={"csrf": csrf})
        assert answer.status_code == 303
        said.append(html.unescape((await browser.get(answer.headers["location"])).text))
    assert "The job will run again." in said[0]
    assert "The job will run again." not in said[1]
    rows = await query(server, "select count(*) as jobs from {}.present")
    assert rows[0]["jobs"] == 1


async def test_a_namespace_that_is_removed_while_its_page_is_open_is_said_to_be_gone(
    server: LiveServer,
):
    await query(server, "insert into {}.namespace (name) values ('shop')")
    browser = await enter(server)
    assert (await browser.get("/jobs?namespace=shop")).status_code == 200
    await query(server, "delete from {}.namespace where name = 'shop'")
    for path in ("/", "/jobs", "/schedules", "/queues", "/cluster"):
        page = await browser.get(f"{path}?namespace=shop")
        assert page.status_code == 404, path
        assert "There is no namespace shop" in page.text, path
