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
from rota.store.run_stats import RunStatsStore
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


async def test_a_filter_of_schedules_says_how_far_it_looked_and_goes_on_at_a_click(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.server.dashboard.schedules._LOOKED", 3)
    for number in range(5):
        await server.app.schedule(f"s{number}", "greet", cron="0 3 * * *", tags=[f"tag{number}"])
    browser = await enter(server)
    assert "Look at all" not in (await browser.get("/schedules")).text
    page = (await browser.get("/schedules?text=S1")).text
    assert "Looked at 3 schedules, up to s2." in page
    assert 'href="/schedules/s1"' in page
    for asked in ("text=s4", "tag=tag4", "task=nobody"):
        page = (await browser.get(f"/schedules?{asked}")).text
        assert "No match so far" in page, asked
        page = (await browser.get(address_of(page, "Look at all"))).text
        assert "No match so far" not in page, asked
        assert ('href="/schedules/s4"' in page) == (asked != "task=nobody"), asked
    # With nothing after what was looked at, all was looked at.
    await server.app.schedules.delete("s4")
    await server.app.schedules.delete("s3")
    assert "No schedule matches" in (await browser.get("/schedules?text=s4")).text


async def test_a_late_queue_is_found_however_many_queues_there_are(server: LiveServer):
    await server.app.submit("greet", {}, queue="zz-last")
    for number in range(120):
        await query(server, "insert into {}.lane values ($1, 'default', $2, '{}')",
                    f"default/a{number}", f"a{number}")  # fmt: skip
    await query(server, "update {}.present set due_at = now() - interval '9 minutes'")
    stats = DashboardStore((await server.app.store()).database, "default")
    assert await stats.lags() == {}  # it is not among the first 100
    await RunStatsStore(stats.database).sample_queues(1_000)
    assert 530 < (await stats.lags())["zz-last"] < 900
    assert "queue-late:zz-last" in {one.key for one in await server.app.alerts.list()}


async def test_the_palette_finds_the_beginning_of_any_name_and_offers_to_search_on(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.store.dashboard_lists.LOOKED_NAMES", 2)
    for number in range(4):
        await server.app.schedule(f"schedule{number}", "greet", cron="0 3 * * *")
        await server.app.submit("greet", {}, queue=f"queue{number}")
    browser = await enter(server)
    page = (await browser.get("/find?text=schedule3")).text
    assert '<span class="found-kind">Schedule</span> schedule3' in page
    assert 'href="/schedules?text=schedule3"' in page
    assert 'href="/jobs?text=schedule3"' in page
    assert (
        '<span class="found-kind">Queue</span> queue3'
        in (await browser.get("/find?text=queue3")).text
    )
    # Inside of a name, only some are looked at.
    assert "schedule1</a>" in (await browser.get("/find?text=ULE1")).text
    assert "schedule3</a>" not in (await browser.get("/find?text=ULE3")).text


async def test_dead_letters_that_were_not_looked_at_are_told_also_with_a_task(
    server: LiveServer,
):
    ids = [str((await server.app.submit(task, {})).id) for task in ("old", "new", "new")]
    for id in ids:
        await fail_jobs(server.app, [id])
    stats = DashboardStore((await server.app.store()).database, "default")
    found = await stats.dead_groups("old", newest=2)
    assert (list(found.groups), found.looked_at, found.whole) == ([], 2, False)
    found = await stats.dead_groups("old", newest=3)
    assert ([group.count for group in found.groups], found.whole) == ([1], True)


async def test_namespaces_are_listed_in_parts_with_and_without_rows_of_their_own(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.server.dashboard.settings._PART", 3)
    await query(server, "insert into {}.namespace (name) values ('b'), ('d')")
    await query(
        server, "insert into {}.queue (namespace, name) values ('a', 'x'), ('a', 'y'), ('c', 'x')"
    )
    browser = await enter(server)
    page, found = (await browser.get("/namespaces")).text, []
    for _ in range(2):
        found.append(
            re.findall(r"namespace=(\w+)\"|<b>(\w+)</b><span class=\"second\">current", page)
        )
        page = (await browser.get(address_of(page, "More →"))).text if "More →" in page else ""
    assert [[a or b for a, b in part] for part in found] == [["a", "b", "c"], ["d", "default"]]
    # Who has a role in some of them sees these.
    limited = await enter(server, "viewer", "default")
    page = (await limited.get("/namespaces")).text
    assert "namespace=a" not in page
    assert "<b>default</b>" in page
