"""The dashboard without a browser: who gets in, what forms need, what is never shown; its queries."""

from __future__ import annotations

import html
import re
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import click
import msgspec
import pytest
import typer
from typer.core import TyperGroup

from rota.cli import cli
from rota.core.time.hourly import add_up, expect
from rota.core.time.schedule import compile_schedule, make_spec
from rota.model import Count
from rota.scheduler.firer import Firer
from rota.scheduler.shards import AllShards
from rota.server.dashboard.words import number, span
from rota.server.targets import safe_target
from rota.store import dashboard as store_module
from rota.store.dashboard import DashboardStore
from rota.store.events import EventStore, Slower, timed_out
from rota.store.schedules import ScheduleStore
from tests.support.api import end_as, fail_jobs, query
from tests.support.broken_schedules import add_broken
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import csrf_of, enter

HTML = {"Accept": "text/html"}


# -- getting in


async def test_who_isnt_logged_in_is_sent_to_log_in_and_back(server: LiveServer):
    browser = await server.client(None)
    answer = await browser.get("/jobs?state=failed&text=a%20b", headers=HTML)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=%2Fjobs%3Fstate%3Dfailed%26text%3Da%2520b"
    page = await browser.get(answer.headers["location"], headers=HTML)
    assert 'data-target="/jobs?state=failed&amp;text=a%20b"' in page.text
    # A program gets no redirect, nor does a change.
    assert (await browser.get("/jobs")).status_code == 401
    assert (await browser.post(f"/jobs/{uuid4()}/retry", headers=HTML)).status_code == 401


@pytest.mark.parametrize(
    "target", ["https://evil.example", "//evil.example", "/\\evil.example", "/\t/evil", "jobs", "",
               "/jobs\r\nX: y", "/" + "a" * 5000, "/ü"],
)  # fmt: skip
def test_after_the_log_in_one_stays_here(target: str):
    assert safe_target(target) == "/"


def test_after_the_log_in_one_is_where_one_wanted_to_be():
    assert safe_target("/jobs?state=failed&cursor=a-b_c%20") == "/jobs?state=failed&cursor=a-b_c%20"


async def test_a_problem_is_a_page_for_people_and_json_for_programs(server: LiveServer):
    browser = await enter(server)
    page = await browser.get(f"/jobs/{uuid4()}")
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "Not found" in page.text
    assert (await browser.get("/nowhere")).status_code == 404
    as_data = await browser.get(f"/jobs/{uuid4()}", headers={"Accept": "*/*"})
    assert as_data.headers["content-type"] == "application/problem+json"
    api = await browser.get("/v1/nowhere")  # the API never answers with a page
    assert api.headers["content-type"] == "application/problem+json"


async def test_pages_carry_the_strict_policy_and_are_kept_by_nobody(server: LiveServer):
    browser = await enter(server)
    page = await browser.get("/")
    policy = page.headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert page.headers["cache-control"] == "no-store"
    assert "style=" not in page.text
    assert not re.search(r"<script(?! type=\"module\" src=)", page.text)
    [style] = re.findall(r'href="(/rota\.css\?v=[0-9a-f]+)"', page.text)
    assert "immutable" in (await browser.get(style)).headers["cache-control"]


# -- forms


async def test_a_form_needs_the_sessions_token_and_our_own_origin(server: LiveServer):
    tenant = server.context.tenant("default")
    await tenant.submit("greet", {}, queue="mail")
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/queues"))
    for fields, headers in (
        ({}, {}),
        ({"csrf": "0" * 64}, {}),
        ({"csrf": csrf}, {"Origin": "https://evil.example"}),
        ({"csrf": csrf}, {"Sec-Fetch-Site": "cross-site"}),
    ):
        answer = await browser.post("/queues/mail/pause", data=fields, headers=headers)
        assert answer.status_code == 403, (fields, headers)
        assert "csrf" in answer.text
    other = await enter(server)
    answer = await other.post("/queues/mail/pause", data={"csrf": csrf})  # another session's
    assert answer.status_code == 403
    [queue] = [queue for queue in await tenant.queues.list() if queue.name == "mail"]
    assert queue.paused_at is None
    answer = await browser.post("/queues/mail/pause", data={"csrf": csrf})
    assert (answer.status_code, answer.headers["location"]) == (303, "/queues")
    page = await browser.get("/queues")
    assert "Queue mail paused" in page.text
    assert "Queue mail paused" not in (await browser.get("/queues")).text  # told once


async def test_a_form_of_the_wrong_kind_is_refused_and_breaks_nothing(server: LiveServer):
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/jobs/new"))
    for fields in ({"task": "a\0b"}, {"task": ""}, {"task": "x", "payload": "[1]"},
                   {"task": "x", "payload": "{"}, {"task": "x", "at": "soon"},
                   {"task": "x", "priority": "high"}, {"task": "x", "timeout": "-1"},
                   {"task": "a/b"}):  # fmt: skip
        answer = await browser.post("/jobs/new", data={"csrf": csrf, **fields})
        assert answer.status_code in (400, 422), fields
    many = "&".join(f"a{n}=1" for n in range(20_000))
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    answer = await browser.post("/jobs/new", content=f"csrf={csrf}&{many}", headers=form)
    assert answer.status_code == 400


async def test_a_job_is_submitted_with_all_that_the_form_says(server: LiveServer):
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/jobs/new"))
    said = {"csrf": csrf, "task": "greet", "payload": '{"name": "ada"}', "queue": "mail",
            "needs": "gpu big", "delay": "1h", "priority": "7", "max_attempts": "3",
            "timeout": "30s", "guarantee": "at_most_once", "key": "k",
            "tags": "blue urgent"}  # fmt: skip
    answer = await browser.post("/jobs/new", data=said)
    assert answer.status_code == 303
    tenant = server.context.tenant("default")
    job = await tenant.jobs.get(answer.headers["location"].removeprefix("/jobs/"))
    assert (job.task, job.queue, job.needs) == ("greet", "mail", ("big", "gpu"))
    assert (job.payload, job.priority, job.max_attempts) == ({"name": "ada"}, 7, 3)
    assert (job.timeout, job.guarantee, job.key) == (30.0, "at_most_once", "k")
    assert job.headers["tags"] == ["blue", "urgent"]
    again = await browser.get(f"/jobs/new?from={job.id}")
    assert "&#34;ada&#34;" in again.text


async def test_a_viewer_sees_no_button_and_an_operator_no_tokens(server: LiveServer):
    tenant = server.context.tenant("default")
    job = await tenant.submit("greet", {})
    viewer = await enter(server, "viewer")
    for path in ("/", "/jobs", f"/jobs/{job.id}", "/queues", "/schedules", "/dead"):
        page = await viewer.get(path)
        assert page.status_code == 200
        forms = re.findall(r'method="post" action="([^"]+)"', page.text)
        # What is the user's own: the zone, the look, saved views.
        assert {*forms} - {"/views"} == {"/session/zone", "/session/look", "/logout"}
        assert 'href="/audit"' not in page.text
    operator = await enter(server, "operator")
    assert (await operator.get("/tokens")).status_code == 403
    settings = await operator.get("/settings")
    assert settings.headers["location"] == "/namespaces"


async def test_secrets_are_shown_once(server: LiveServer):
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/tokens"))
    made = await browser.post("/tokens", data={"csrf": csrf, "name": "ci", "role": "viewer"})
    [token] = set(re.findall(r"rota_[a-z2-7]{8}_[\w-]{43}", made.text))
    assert token not in (await browser.get("/tokens")).text
    hook = {"csrf": csrf, "url": "https://example.org/hook", "kind": "failed"}
    added = await browser.post("/webhooks", data=hook)
    [secret] = re.findall(r'<code class="secret">([^<]+)</code>', added.text)
    assert secret not in (await browser.get("/webhooks")).text
    person = {"csrf": csrf, "name": "ada@example.org", "role": "viewer"}
    assert (await browser.post("/users", data=person)).status_code == 303
    link = await browser.post("/users/link", data={"csrf": csrf, "name": "ada@example.org"})
    [secret] = re.findall(r"/login#([\w-]+)<", link.text)
    fresh = await server.client(None)
    assert (await fresh.post("/login/link", json={"link": secret})).json()[
        "name"
    ] == "ada@example.org"


async def test_only_who_is_admin_everywhere_changes_people(server: LiveServer):
    await enter(server)
    here = await enter(server, "admin", "acme")
    csrf = csrf_of(await here.get("/tokens"))
    for path in ("/users", "/users/remove", "/users/link", "/namespaces/acme/limits"):
        answer = await here.post(path, data={"csrf": csrf, "name": "ada", "password": "x" * 20})
        assert answer.status_code == 403, path


async def test_links_stay_in_the_namespace_that_is_looked_at(server: LiveServer):
    await server.context.tenant("acme").submit("greet", {})
    browser = await enter(server)
    page = await browser.get("/jobs?namespace=acme")
    assert 'href="/queues?namespace=acme"' in page.text
    assert 'action="/jobs?namespace=acme"' in page.text
    assert (await browser.get("/jobs")).text.count("namespace=acme") == 0


async def test_what_many_forms_do_is_audited_once_with_its_count(server: LiveServer):
    tenant = server.context.tenant("default")
    ids = [str((await tenant.submit("greet", {"n": n})).id) for n in range(3)]
    await fail_jobs(server.app, ids)
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/dead"))
    said = {"csrf": csrf, "do": "retry", "id": ids, "return": "//evil.example"}
    shown = await browser.post("/jobs/bulk", data=said)
    assert "Retry 3 jobs?" in shown.text
    answer = await browser.post("/jobs/bulk", data={**said, "sure": "yes"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    rows = await query(
        server, "select action, subject, after from {}.audit where action <> 'login'"
    )  # the first step, which only counts, isn't in it
    [(action, subject, after)] = rows
    assert (action, subject) == ("retry", "3 jobs")
    assert sorted(msgspec.json.decode(after)["ids"]) == sorted(ids)


async def test_a_schedule_is_changed_only_as_it_was_seen_and_deleted_after_a_question(
    server: LiveServer,
):
    tenant = server.context.tenant("default")
    await tenant.schedule("digest", "greet", cron="0 9 * * *", options={"needs": ["gpu"]})
    browser = await enter(server)
    form = await browser.get("/schedules/digest/edit")
    csrf = csrf_of(form)
    fields = dict(re.findall(r'<input (?:type="hidden" )?name="(\w+)" value="([^"]*)"', form.text))
    fields = {name: value.replace("&#34;", '"') for name, value in fields.items()}
    said = {**fields, "csrf": csrf, "task": "greet", "kind": "cron", "rule": "0 10 * * *",
            "payload": "{}", "options": '{"needs": ["gpu"], "queue": "mail"}'}  # fmt: skip
    answer = await browser.post("/schedules/digest/edit", data=said)
    assert answer.status_code == 303, answer.text
    status = await tenant.schedules.get("digest")
    assert (status.version, status.in_words) == (2, "every day at 10:00 in UTC")
    assert status.spec.options == {"needs": ["gpu"], "queue": "mail"}
    stale = await browser.post("/schedules/digest/edit", data={**said, "rule": "0 11 * * *"})
    assert stale.status_code == 422  # made from version 1
    assert "0 11 * * *" in stale.text  # and nothing that was written is lost
    assert (await tenant.schedules.get("digest")).version == 2
    asked = await browser.post("/schedules/digest/delete", data={"csrf": csrf})
    assert "Delete schedule digest?" in asked.text
    assert (await tenant.schedules.get("digest")).version == 2
    tag = re.search(r'name="tag" value="([^"]*)"', asked.text)
    assert tag
    sure = {"csrf": csrf, "sure": "yes", "tag": tag[1].replace("&#34;", '"')}
    assert (await browser.post("/schedules/digest/delete", data=sure)).status_code == 303
    assert await tenant.schedules.list() == []
    rows = await query(server, "select action from {}.audit where action <> 'login' order by id")
    assert [row[0] for row in rows] == ["create", "update", "delete"]


async def test_an_error_that_looks_like_a_script_is_text_in_the_sentence_that_explains_it(
    server: LiveServer,
):
    tenant = server.context.tenant("default")
    job = await tenant.submit("greet", {"name": "<b>x</b>"}, tags=["x"])
    await fail_jobs(server.app, [str(job.id)], "<script>alert(1)</script>")
    browser = await enter(server)
    for path in (f"/jobs/{job.id}", "/jobs", "/dead", "/"):
        page = await browser.get(path)
        assert "<script>alert" not in page.text
        assert "&lt;script&gt;alert(1)" in page.text, path
        assert "<b>x</b>" not in page.text


async def test_jobs_are_filtered_by_the_outcome_of_their_last_attempt(server: LiveServer):
    tenant = server.context.tenant("default")
    timed_out, other = [str((await tenant.submit("greet", {"name": "x"})).id) for _ in range(2)]
    await end_as(server, timed_out, "timed_out")
    browser = await enter(server)
    page = await browser.get("/jobs?outcome=timed_out")
    assert timed_out in page.text
    assert other not in page.text
    assert "rota jobs list --outcome timed_out" in page.text


async def test_every_command_that_a_page_offers_exists_and_takes_these_words(server: LiveServer):
    tenant = server.context.tenant("default")
    payload = {"name": "O'Hara & sons"}
    jobs = [(await tenant.submit("greet", payload, queue="mail")).id for _ in range(3)]
    _, failed, cancelled = jobs
    await fail_jobs(server.app, [str(failed)])
    await tenant.jobs.cancel(cancelled)
    await tenant.schedule("nightly", "greet", cron="0 3 * * *")
    browser = await enter(server)
    paths = [
        "/jobs", "/jobs?state=failed&outcome=raised&queue=mail&tag=x", "/jobs?task=nothing",
        *(f"/jobs/{job}" for job in jobs), "/queues", "/schedules", "/schedules/nightly",
        "/calendar", "/dead", "/cluster", "/audit", "/webhooks", "/tokens", "/users", "/namespaces",
    ]  # fmt: skip
    offered: set[str] = set()
    for path in paths:
        page = await browser.get(path)
        assert page.status_code == 200, path
        for text in re.findall(r"<(?:pre|code)[^>]*>(rota [^<]*)<", page.text):
            offered.update(html.unescape(text).splitlines())
    assert len(offered) > 12
    assert f"rota jobs retry {failed}" in offered
    root = typer.main.get_command(cli)
    for line in sorted(offered):
        words, command = shlex.split(line)[1:], root
        context = click.Context(root, info_name="rota")
        while isinstance(command, TyperGroup) and words and words[0] in command.commands:
            command = command.commands[words.pop(0)]
            context = click.Context(command, parent=context, info_name="rota")
        assert not isinstance(command, TyperGroup) or not words, f"there is no {line!r}"
        if words:
            command.make_context(line, words, parent=context)  # raises what a terminal would show


async def test_the_overview_tells_of_stopped_attempts_and_slower_tasks(server: LiveServer):
    store = EventStore((await server.app.store()).database)
    job = uuid4()
    stopped = timed_out("crawl", job, 1, "heartbeat", "gave no sign of life")
    await store.add("default", [stopped])
    await store.tell_slower("default", [Slower("report", 3.0, 2.0, 20)])
    page = await (await enter(server)).get("/")
    assert "1 job stopped after a timeout" in page.text
    assert f"/jobs/{job}" in page.text
    assert "1 task became consistently slower, the latest of report" in page.text


# -- questions that must stay quick

BIG = ("future", "present", "past", "occurrence")
NOW = "now()"
QUESTIONS: dict[str, str] = {
    "lanes_now": "'default', 1000, '{default,mail,money}'",
    "lags_now": "'default'",
    "some_ready": "'default', 1001",
    "coming_jobs": f"'default', {NOW}, {NOW} + interval '1 hour', 128, 30",
    "failures_since": f"'default', {NOW} - interval '1 hour'",
    "events_lately": f"'default', {NOW} - interval '1 hour'",
    "strips": f"'default', array['{uuid4()}'::uuid], 14",
    "job_mark": f"'default', '{uuid4()}'",
    "recent_dead": "'default', 5",
    "schedule_of_job": f"'default', '{uuid4()}'",
}


def scans_of(plan: dict[str, Any]) -> list[tuple[str, str]]:
    found = [(plan["Node Type"], plan["Relation Name"])] if "Relation Name" in plan else []
    for below in plan.get("Plans", ()):
        found += scans_of(below)
    return found


@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_question_never_reads_a_large_table_to_its_end(server: LiveServer, name: str):
    database = (await server.app.store()).database
    async with database.connection() as connection, connection.transaction():
        await connection.execute("set local enable_seqscan = off")
        await connection.execute(f"prepare asked as {database.queries[name]}")
        text = await connection.fetchval(f"explain (format json) execute asked({QUESTIONS[name]})")
        await connection.execute("deallocate asked")
    scans = scans_of(msgspec.json.decode(text)[0]["Plan"])
    assert scans
    # Without an index there would be nothing else to do than to read all of it.
    assert [s for s in scans if s[0] == "Seq Scan" and s[1].startswith(BIG)] == []


async def write_past(server: LiveServer, minutes: int, per_minute: int) -> None:
    await query(
        server,
        "insert into {}.past (id, due_at, created_at, started_at, finished_at, state, priority, "
        "guarantee, attempt, max_attempts, crashes, namespace, lane, task, payload) "
        "select gen_random_uuid(), t - interval '2 s', t - interval '2 s', t - interval '1 s', t, "
        "5, 0, 1, 1, 5, 0, 'default', 'default/mail', 'x', json_build_object('a', repeat('x', 400)) "
        "from (select {}.now() - make_interval(secs => n * 60.0 / $2::int) as t "
        "from generate_series($1::int * $2::int, 1, -1) as n) as s",
        minutes, per_minute,
    )  # fmt: skip


async def test_throughput_is_exact_where_the_tail_reaches_and_near_where_it_doesnt(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(store_module, "_TAIL_PAGES", 10_000)
    await write_past(server, 59, 100)
    store = DashboardStore((await server.app.store()).database, "default")
    now = await (await server.app.store()).now()
    whole = await store.finished(now - timedelta(hours=1), now)
    assert all(one.exact for one in whole)
    assert round(sum(one.jobs for one in whole)) == 5900
    assert {one.queue for one in whole} == {"mail"}
    assert all(0.9 < (one.lag or 0) < 1.1 for one in whole)
    monkeypatch.setattr(store_module, "_TAIL_PAGES", 40)
    monkeypatch.setattr(store_module, "_SAMPLED_PAGES", 150)
    rough = await store.finished(now - timedelta(hours=1), now)
    assert any(one.exact for one in rough)
    assert not all(one.exact for one in rough)
    assert 3500 < sum(one.jobs for one in rough) < 8500


async def test_the_maximum_run_time_of_queues_is_shown(server: LiveServer):
    tenant = server.context.tenant("default")
    await tenant.queues.set_max_run_time("reports", 7200)
    await tenant.submit("greet", {}, queue="mail")
    page = (await (await server.client("viewer")).get("/queues")).text
    cells = re.findall(r'data-name="maximum run time">(.*?)</td>', page)
    assert cells == ['24 h<span class="second">default</span>', "2 h"], cells


async def test_queues_are_counted_while_they_are_short_and_estimated_when_long(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    tenant = server.context.tenant("default")
    for n in range(30):
        await tenant.submit("greet", {"n": n}, queue="mail", delay=3600 if n % 3 else None)
    store = DashboardStore(tenant.connector.database, "default")
    [mail] = await store.queues()
    assert (mail.name, mail.ready, mail.scheduled) == ("mail", Count(10, True), Count(20, True))
    assert mail.lag is not None
    monkeypatch.setattr(store_module, "_HELD", 5)
    monkeypatch.setattr(store_module, "_COUNTED", -1)
    [mail] = await store.queues()
    assert not mail.ready.exact
    assert not mail.scheduled.exact


async def test_delayed_jobs_of_the_coming_hour_are_counted_or_guessed_from_some_shards(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    tenant = server.context.tenant("default")
    for n in range(256):
        await tenant.submit("greet", {"n": n}, delay=60 + n)
    store = DashboardStore(tenant.connector.database, "default")
    now = await (await tenant.store()).now()
    exact = await store.coming_jobs(now, now + timedelta(hours=1), 128)
    assert (sum(exact.by_minute.values()), exact.exact) == (256, True)
    monkeypatch.setattr(store_module, "_FEW_PER_SHARD", 1)
    monkeypatch.setattr(store_module, "_SHARDS_SAMPLED", 64)
    rough = await store.coming_jobs(now, now + timedelta(hours=1), 128)
    assert not rough.exact
    assert 128 < sum(rough.by_minute.values()) < 512


# -- words and loads


def test_numbers_that_are_guesses_say_so():
    assert number(Count(1_234_567, exact=True)) == "1,234,567"
    assert number(Count(1_234_567, exact=False)) == "about 1,200,000"
    assert number(Count(7, exact=False)) == "about 7"


def test_durations_and_distances_are_short():
    told = [span(0.0123), span(3.21), span(200), span(7260), span(200_000), span(None)]
    assert told == ["12 ms", "3.2 s", "3 min 20 s", "2 h 1 min", "2 d 8 h", "\u2013"]


def test_a_frequent_schedule_is_estimated_and_a_rare_one_is_not():
    first = datetime(2026, 11, 9, tzinfo=UTC)
    end = first + timedelta(days=7)
    zone = ZoneInfo("UTC")
    often = expect(compile_schedule(make_spec("often", "t", every="5m")), first, end, zone)
    rare = expect(compile_schedule(make_spec("rare", "t", cron="0 3 * * *")), first, end, zone)
    assert not often.exact
    assert sum(often.hours.values()) == pytest.approx(2016, rel=0.02)
    assert rare.exact
    assert sum(rare.hours.values()) == 7
    load = add_up([often, rare], slots=1)
    assert [one.runs for one in load.busy_minutes] == [2]  # where both were walked through
    assert load.busy_minutes[0].names == ["often", "rare"]


async def test_a_schedule_that_cannot_be_read_is_named_and_spoils_no_page(server: LiveServer):
    app = server.app
    await app.schedule("good", "tell", every="1h")
    names = await add_broken(app)
    firer = Firer(ScheduleStore((await app.store()).database), AllShards(128))
    while await firer.tick() == 0.0:
        pass
    browser = await enter(server)
    listed = await browser.get("/schedules")
    assert listed.status_code == 200
    overview = await browser.get("/")
    for name in names:
        row = re.search(rf">{name}</span></a>.*?</tr>", listed.text, re.DOTALL)
        assert row, name
        assert "broken" in row[0], name
        assert name in overview.text
        page = await browser.get(f"/schedules/{name}")
        assert page.status_code == 200, name
        assert "It doesn't fire." in page.text
        assert (await browser.get(f"/schedules/{name}/edit")).status_code == 200
    good = await browser.get("/schedules/good")
    assert good.status_code == 200
    assert "It doesn't fire." not in good.text
    for path in ("/calendar", "/schedules?text=o", "/schedules?tag=a"):
        assert (await browser.get(path)).status_code == 200, path
