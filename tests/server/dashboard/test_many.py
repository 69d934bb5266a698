"""Pages with more than they show: looks that say how far they reached, and lists in parts."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime

import pytest

from rota.core.alerts import of_queues
from rota.lib.ids import new_id
from rota.model import Count
from rota.server.dashboard import charts
from rota.server.dashboard.words import with_times
from rota.store.dashboard import DashboardStore, QueueNow
from rota.store.identity import IdentityStore
from rota.store.search import JobFilter
from tests.support.api import fail_jobs, query
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import enter


def address_of(page: str, words: str) -> str:
    found = re.search(rf'href="([^"]*)"[^>]*>{words}', page)
    assert found, words
    return html.unescape(found[1])


async def test_a_look_reads_the_newest_jobs_and_says_how_far_it_reached(server: LiveServer):
    rare = (await server.app.submit("rare", {})).id
    usual = [(await server.app.submit("usual", {})).id for _ in range(5)]
    jobs = server.context.tenant("default").jobs
    search = await jobs.look(JobFilter(task="usual"), limit=3)
    assert [job.id for job in search.jobs] == usual[::-1][:3]
    assert search.until is None  # the page is full
    whole = await jobs.look(JobFilter(task="rare"), limit=3)
    assert [job.id for job in whole.jobs] == [rare]
    assert whole.until is None  # there was nothing else to look at


async def test_what_is_older_than_a_look_reaches_is_found_by_looking_further(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.store.search.LOOKED", 4)
    old = (await server.app.submit("rare", {})).id
    for _ in range(2):
        await server.app.submit("usual", {})
    new = (await server.app.submit("rare", {})).id
    for _ in range(3):
        await server.app.submit("usual", {})
    browser = await enter(server)
    page = (await browser.get("/jobs?task=rare")).text
    assert f"job-{new}" in page
    assert f"job-{old}" not in page
    assert "The newest 4 were looked at" in page
    page = (await browser.get(address_of(page, "Look at older ones"))).text
    assert f"job-{old}" in page
    assert f"job-{new}" not in page
    # Nothing among the newest is not the same as nothing.
    page = (await browser.get("/jobs?text=" + str(old))).text
    assert "No job matches so far" in page
    assert f"job-{old}" in (await browser.get(address_of(page, "Look at older ones"))).text
    # A state has a look of its own: failures are found however many other jobs came after.
    await fail_jobs(server.app, [str(old)])
    assert f"job-{old}" in (await browser.get("/jobs?state=failed&task=rare")).text


async def test_the_deliveries_of_a_webhook_say_how_far_they_were_looked_for(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.store.search.LOOKED", 2)
    hook = await server.app.webhooks.add("https://example.org/hook")
    delivery = await server.app.webhooks.test(hook.id)
    for _ in range(3):
        await server.app.submit("usual", {})
    browser = await enter(server)
    page = (await browser.get(f"/webhooks/{hook.id}")).text
    assert "Looked at the newest 2 jobs" in page
    assert str(delivery.id) in (await browser.get(address_of(page, "Look at all"))).text


async def test_only_the_latest_queues_have_an_alert_of_their_own(server: LiveServer):
    for number in range(13):
        await server.app.submit("greet", {}, queue=f"q{number}")
        await query(
            server, "update {}.present set due_at = now() - make_interval(mins => $1) where lane = $2",
            5 + number, f"default/q{number}",
        )  # fmt: skip
    await server.app.queues.pause("q3")
    alerts = await server.app.alerts.list()
    keys = {one.key for one in alerts}
    assert {"queue-paused:q3", "queue-late:q12", "queue-late:q5", "queues-late"} <= keys
    assert not {"queue-late:q0", "queue-late:q4", "queue-late:q3"} & keys
    [others] = [one for one in alerts if one.key == "queues-late"]
    assert others.text == "4 other queues are late"
    page = (await (await enter(server)).get("/")).text
    assert "4 other queues are late" in page


def test_one_other_queue_is_late():
    now = datetime(2027, 1, 31, tzinfo=UTC)
    queue = QueueNow(name="mail", paused_at=None, max_run_time=None, ready=Count(1, True), lag=99.0)
    assert [one.text for one in of_queues([queue], now, 1)] == [
        "1 other queue is late", "Queue mail is late by 1 min 39 s, 1 job ready",
    ]  # fmt: skip


async def test_a_crowded_queue_is_estimated_and_its_neighbour_counted(server: LiveServer):
    for number in range(105):
        await server.app.submit("greet", {"n": number}, queue="crowded")
    await server.app.submit("greet", {}, queue="quiet")
    await query(server, "analyze {}.present")
    stats = DashboardStore((await server.app.store()).database, "default")
    found = {queue.name: queue for queue in await stats.queues(names=["crowded", "quiet"])}
    assert found["quiet"].ready == Count(1, exact=True)
    assert not found["crowded"].ready.exact
    assert 90 <= found["crowded"].ready.value <= 120
    assert [queue.name for queue in await stats.queues(after="crowded", most=1)] == ["quiet"]
    assert await stats.ready() == Count(106, exact=True)


async def test_a_long_list_is_shown_in_parts(server: LiveServer):
    store = IdentityStore((await server.app.store()).database)
    for number in range(35):
        person = await store.put_user(new_id(), f"user{number:02}", None)
        await store.put_membership(person, "default", "viewer")
    browser = await enter(server)
    page = (await browser.get("/users")).text
    assert "1 to 30<" in page
    assert "user34" not in page
    page = (await browser.get(address_of(page, "More →"))).text
    assert "31 to 35<" in page
    assert "user34" in page


def test_a_spark_is_one_path_and_has_a_column_for_each_period():
    drawn = str(charts.spark([0.0, 2.0, None, 4.0], "Runs"))
    assert drawn.count("<path") == 1
    assert 'd="M0 20h1V10h1V20h1V0h1V20z"' in drawn
    assert "<path" not in str(charts.spark([0.0, None], "Runs"))
    many = str(charts.spark([1.0] * 600, "Runs"))
    assert 'viewBox="0 0 60 20"' in many


def test_the_middle_of_an_axis_is_left_out_when_it_would_repeat_its_ends():
    drawn = str(charts.columns([], [], lambda value: f"{value:.0f}", "Ready"))
    assert drawn.count(">0<") == 1
    assert drawn.count(">1<") == 1


def test_a_command_in_a_sentence_is_code_and_the_rest_stays_text():
    shown = str(with_times("`rota runs resume <x>` goes on from <b> at 2027-01-31 09:00:00 UTC."))
    assert shown.startswith(
        "<code>rota runs resume &lt;x&gt;</code> goes on from &lt;b&gt; at <time"
    )
