"""The page of a queue: settings with undo, shares and their service, limits with holders."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import httpx
import pytest

from rota import App
from rota.core.service import service_by_key
from rota.errors import Conflict, NotFound
from rota.node import Node
from rota.store.run_stats import RunStatsStore
from tests.support.api import query
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import csrf_of, enter


async def send(browser: httpx.AsyncClient, path: str, **fields: Any) -> httpx.Response:
    csrf = csrf_of(await browser.get("/queues/mail"))
    return await browser.post(path, data={"csrf": csrf, **fields})


async def undo_form(browser: httpx.AsyncClient, answer: httpx.Response) -> str:
    """The path of the form that the message after a change offers."""
    page = await browser.get(answer.headers["location"])
    found = re.search(r'action="(/queues/[^"]+/undo/\d+)', page.text)
    assert found, page.text
    return html.unescape(found[1])


async def test_settings_are_changed_together_and_undone(server: LiveServer):
    await server.app.queues.set_limits("mail", concurrency=2)
    browser = await enter(server)
    page = await browser.get("/queues/mail")
    assert 'name="concurrency" inputmode="numeric" value="2"' in page.text
    answer = await send(
        browser, "/queues/mail/settings", policy="fair", concurrency="5", concurrency_per_key="1",
        rate="100/minute", rate_burst="10", max_run_time="2h",
    )  # fmt: skip
    assert answer.status_code == 303, answer.text
    queue = await server.app.queues.get("mail")
    assert (queue.policy, queue.concurrency, queue.concurrency_per_key, queue.max_run_time) == (
        "fair", 5, 1, 7200.0,
    )  # fmt: skip
    assert (queue.rate_count, queue.rate_burst) == (100, 10)
    entries = await server.app.rota.audit.list("default", subject="queue mail", action="set")
    assert len(entries) == 2  # the first of the test's own, and one for all of the form
    path = await undo_form(browser, answer)
    assert (await send(browser, path)).status_code == 303
    back = await server.app.queues.get("mail")
    assert (back.policy, back.concurrency, back.concurrency_per_key, back.max_run_time) == (
        "priority", 2, None, None,
    )  # fmt: skip
    assert back.rate_count is None
    # It was changed since: a second undo of the same is refused, and says so.
    again = await send(browser, path)
    assert again.status_code == 303
    assert "changed since" in (await browser.get(again.headers["location"])).text


async def test_a_form_that_is_saved_as_it_is_changes_nothing(server: LiveServer):
    await server.app.queues.configure("mail", policy="edf", max_depth=500)
    browser = await enter(server)
    page = (await browser.get("/queues/mail")).text
    assert '<option selected value="edf">' in page
    assert 'name="max_depth" inputmode="numeric" value="500"' in page
    answer = await send(browser, "/queues/mail/settings", policy="edf", max_depth="500")
    assert "Nothing has changed" in (await browser.get(answer.headers["location"])).text
    queue = await server.app.queues.get("mail")
    assert (queue.policy, queue.max_depth) == ("edf", 500)


async def test_the_page_counts_the_jobs_of_its_queue_alone(server: LiveServer):
    app = server.app
    for _ in range(3):
        await app.submit("greet", {}, queue="mail")
    await app.submit("greet", {}, queue="mail", delay=3600)
    for _ in range(2):
        await app.submit("greet", {}, queue="money")
    await app.submit("greet", {}, queue="money", delay=3600)
    running = await app.submit("greet", {}, queue="money")
    await query(server, "update {}.present set state = 4, token = 7, claimed_at = now() where id = $1",
                UUID(str(running.id)))  # fmt: skip
    browser = await enter(server)

    async def counts(name: str) -> list[str]:
        page = (await browser.get(f"/queues/{name}")).text
        return re.findall(r"state=(?:ready|running|scheduled)[^>]*>([^<]*)</a>", page)

    assert await counts("mail") == ["3", "0", "1"]
    assert await counts("money") == ["2", "1", "1"]


async def test_what_is_wrong_is_said_at_its_field_and_nothing_is_changed(server: LiveServer):
    await server.app.queues.set_limits("mail", concurrency=2)
    browser = await enter(server)
    answer = await send(
        browser, "/queues/mail/settings", policy="fair", concurrency="9", rate="often"
    )
    assert answer.status_code == 422
    assert 'value="often"' in answer.text
    assert 'id="rate-error"' in answer.text
    queue = await server.app.queues.get("mail")
    assert (queue.policy, queue.concurrency) == ("priority", 2)
    answer = await send(browser, "/queues/mail/settings", concurrency="many")
    assert 'id="concurrency-error"' in answer.text


async def test_a_pause_is_undone_from_its_message(server: LiveServer):
    await server.app.queues.set_limits("mail", concurrency=2)
    browser = await enter(server)
    answer = await send(browser, "/queues/mail/pause")
    assert (await server.app.queues.get("mail")).paused_at
    assert (await send(browser, await undo_form(browser, answer))).status_code == 303
    assert (await server.app.queues.get("mail")).paused_at is None


async def test_only_undo_forms_are_offered_by_a_cookie(server: LiveServer):
    import base64
    import json

    browser = await enter(server)
    for undo in ("/users/remove", "//evil.example/queues/a/undo/1", "/queues/a/pause"):
        flash = base64.urlsafe_b64encode(json.dumps({"text": "x", "undo": undo}).encode()).decode()
        page = await browser.get("/queues", headers={"Cookie": f"rota_flash={flash}"})
        assert unquote(undo) not in page.text


async def test_an_undo_of_another_queues_change_is_refused(app: App):
    await app.queues.pause("mail")
    [entry] = await app.rota.audit.list("default", limit=1)
    with pytest.raises(Conflict, match="no change of queue 'money'"):
        await app.queues.undo("money", entry.id)
    with pytest.raises(NotFound):
        await app.queues.undo("mail", entry.id + 1000)
    await app.queues.undo("mail", entry.id)
    assert (await app.queues.get("mail")).paused_at is None


@pytest.fixture
def app(make_app: Callable[..., App]) -> App:
    return make_app()


async def test_the_weight_of_a_key_is_changed_and_undone(server: LiveServer):
    await server.app.queues.set_policy("mail", "fair")
    await server.app.queues.set_weight("mail", "acme & co", 2)
    browser = await enter(server)
    answer = await send(browser, "/queues/mail/weight", key="acme & co", weight="7.5")
    [share] = await server.app.queues.shares("mail")
    assert share.weight == 7.5
    await send(browser, await undo_form(browser, answer))
    [share] = await server.app.queues.shares("mail")
    assert share.weight == 2
    wrong = await send(browser, "/queues/mail/weight", key="acme & co", weight="-1")
    assert wrong.status_code == 422
    assert "Weight:" in wrong.text


async def test_the_service_of_shares_is_sampled_and_drawn(make_app: Callable[..., App]):
    app = make_app()

    @app.task(queue="mail")
    async def send_mail() -> None: ...

    await app.queues.set_policy("mail", "fair")
    async with Node(app).running():
        jobs = [
            await app.submit("send_mail", fairness_key=key) for key in ("acme", "acme", "globex")
        ]
        for job in jobs:
            await job.wait(60)
    # What ended last is charged with the next claim; as if that had been.
    async with (await app.store()).database.connection() as c:
        await c.execute(
            f"update {app.settings.schema}.sublane "
            "set served = case fair_key when 'acme' then 3 when 'globex' then 1 else 0 end"
        )
    await RunStatsStore((await app.store()).database).sample_shares()
    found = await app.queues.service("mail")
    assert {one.key for one in found} == {"acme", "globex"}
    shares = {one.key: one.served for one in await app.queues.shares("mail")}
    for one in found:
        assert one.key is not None
        assert one.total == pytest.approx(shares[one.key]) == {"acme": 3, "globex": 1}[one.key]
    # Another sample of the same counts nothing twice.
    await RunStatsStore((await app.store()).database).sample_shares()
    assert await app.queues.service("mail") == found


def test_service_is_what_the_sums_rose_by_and_a_smaller_sum_began_anew():
    now = datetime(2027, 1, 1, 12, 30, 20, tzinfo=UTC)
    minute = now.replace(second=0)
    sums = [(-70, 5.0), (-50, 8.0), (-10, 12.0), (-2, 1.5), (0, 2.0)]
    samples = [
        {"key": "a", "at": minute + timedelta(minutes=n), "served": served} for n, served in sums
    ]
    [share] = service_by_key(samples, now)
    assert share.first == minute - timedelta(minutes=59)
    assert [round(n, 1) for n in share.seconds if n] == [3.0, 4.0, 1.5, 0.5]
    many = [{"key": str(n), "at": minute, "served": float(n)} for n in range(1, 20)]
    found = service_by_key(many, now)
    assert len(found) == 13
    assert (found[0].key, found[-1].key, found[-1].total) == ("19", None, sum(range(1, 8)))


async def test_limits_are_shown_with_their_holders(server: LiveServer):
    await query(
        server, "insert into {}.meter (namespace, name, most) values ('default', 'queue:mail', 1)"
    )
    await server.app.queues.set_limits("mail", concurrency=1)
    browser = await enter(server)
    page = await browser.get("/queues/mail")
    assert "queue:mail" in page.text
    assert "0 of 1" in page.text
    assert (await browser.get("/queues/nowhere")).status_code == 404
    viewer = await enter(server, "viewer", "default")
    page = await viewer.get("/queues/mail")
    assert page.status_code == 200
    assert "<form" not in page.text.split("<main")[1].split("</main")[0]
