"""The pages of schedules and the calendar: the past as it was, one zone, and errors by field."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta

import pytest

from rota.core.time.hourly import expect
from rota.core.time.schedule import compile_schedule, make_spec
from rota.core.time.zones import zone as zone_of
from rota.operations import schedule_forecasts
from rota.scheduler.firer import Firer
from rota.scheduler.shards import AllShards
from rota.store.schedules import ScheduleStore
from tests.support.api import query
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import csrf_of, enter


async def fire(server: LiveServer) -> None:
    firer = Firer(ScheduleStore((await server.app.store()).database), AllShards(128))
    while await firer.tick() == 0.0:
        pass


async def succeed_all(server: LiveServer) -> None:
    """As if a worker had run all jobs at once."""
    for table in ("future", "present"):
        await query(
            server,
            "with gone as (delete from {}." + table + " returning *) "
            "insert into {}.past (id, due_at, created_at, started_at, finished_at, state, priority, "
            "guarantee, attempt, max_attempts, crashes, namespace, lane, task, schedule_id, payload) "
            "select id, due_at, created_at, due_at + interval '5 ms', due_at + interval '1 s', 5, "
            "priority, guarantee, 1, max_attempts, 0, namespace, lane, task, schedule_id, payload "
            "from gone",
        )  # fmt: skip


async def backfilled(server: LiveServer) -> None:
    """A schedule of which two occurrences of a week ago were filled in."""
    tenant = server.context.tenant("default")
    await tenant.schedule("hourly", "greet", every="1h")
    now = await (await tenant.store()).now()
    end = (now - timedelta(days=7)).replace(minute=0, second=0, microsecond=0)
    await tenant.schedules.backfill("hourly", end - timedelta(hours=2), end)
    await fire(server)
    await succeed_all(server)


# -- backfills


async def test_a_backfilled_occurrence_is_called_that_and_has_no_lag(server: LiveServer):
    await backfilled(server)
    browser = await enter(server)
    page = (await browser.get("/schedules/hourly")).text
    rows = [row for row in re.findall(r"<tr>.*?</tr>", page) if "backfilled by a user" in row]
    assert len(rows) == 2
    for row in rows:
        assert "backfilled" in row
        assert "on time" not in row
        assert re.search(r'<td class="number"[^>]*>–</td></tr>', row), row  # noqa: RUF001
    now = datetime.now(UTC)
    found = await server.app.schedules.occurrences("hourly", now - timedelta(days=9), now)
    assert [one.lag for one in found if one.reason == "backfilled"] == [None, None]


async def test_what_has_fired_counts_backfills_and_no_skips(server: LiveServer):
    await backfilled(server)
    [id] = [one.id for one in await server.app.schedules.list()]
    await query(
        server,
        "insert into {}.occurrence (schedule_id, due_at, run_at, version, state, reason) values "
        "($1, now() - interval '1 day', now(), 1, 2, 'overlap')", id,
    )  # fmt: skip
    browser = await enter(server)
    page = re.sub(r"\s+", " ", (await browser.get("/schedules/hourly")).text)
    assert "<dt>Fired</dt><dd>2 times, 2 of them backfilled</dd>" in page, page
    assert "<dt>Skipped</dt><dd>1 time</dd>" in page


# -- the calendar


async def test_the_calendar_shows_what_was_and_invents_no_past(server: LiveServer):
    tenant = server.context.tenant("default")
    await tenant.schedule("daily", "greet", cron="30 5 * * *")
    browser = await enter(server)
    day = (datetime.now(UTC) - timedelta(days=10)).date()
    page = (await browser.get(f"/calendar?zone=UTC&day={day}")).text
    assert "daily" not in re.sub(r"<nav.*?</nav>", "", page, flags=re.DOTALL)
    [id] = [one.id for one in await tenant.schedules.list()]
    at = datetime.combine(day, datetime.min.time(), UTC) + timedelta(hours=5, minutes=30)
    for number, state in enumerate((1, 2)):
        await query(
            server,
            "insert into {}.occurrence (schedule_id, due_at, run_at, version, state, reason) values "
            "($1, $2, $2, 1, $3::int, case when $3::int = 2 then 'overlap' end)",
            id, at + timedelta(hours=number), state,
        )  # fmt: skip
    page = (await browser.get(f"/calendar?zone=UTC&day={day}")).text
    agenda = page[page.index('id="agenda"') :]
    assert "daily" in agenda
    assert "skipped" in agenda
    assert "the run before it had not ended" in agenda


async def test_no_list_of_the_calendar_is_cut_silently(server: LiveServer):
    tenant = server.context.tenant("default")
    for number in range(102):
        await tenant.schedule(f"daily-{number}", "greet", cron="30 5 * * *")
    day = (datetime.now(UTC) + timedelta(days=8)).date()
    browser = await enter(server)
    page = (await browser.get(f"/calendar?zone=UTC&day={day}")).text
    agenda = page[page.index('id="agenda"') :]
    assert agenda.count('href="/schedules/daily-') == 100
    assert "and 2 more" in agenda


def test_every_minute_is_1440_a_day():
    first = datetime(2026, 11, 9, 0, 0, 30, tzinfo=UTC)
    recurrence = compile_schedule(make_spec("often", "t", every="1m"))
    found = expect(recurrence, first, first + timedelta(days=7), zone_of("UTC"))
    assert round(found.per_day) == 1440


async def test_a_calendar_that_is_not_computed_yet_does_not_say_that_nothing_piles_up(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(schedule_forecasts, "_SECONDS", -1.0)
    await server.context.tenant("default").schedule("daily", "greet", cron="30 5 * * *")
    browser = await enter(server)
    page = (await browser.get("/calendar?zone=UTC")).text
    assert "None: no minute" not in page
    assert "Nothing is planned" not in page
    assert "1 schedule is still being computed" in page


# -- zones


async def test_one_zone_is_used_everywhere_also_in_what_one_writes(server: LiveServer):
    await backfilled(server)
    browser = await enter(server)
    browser.cookies.set("rota_zone", "Asia/Tokyo")
    page = (await browser.get("/schedules/hourly")).text
    titles = re.findall(r'class="cell[^"]*"[^>]*title="([^"]*)"', page)
    assert titles
    assert all("JST" in title and "UTC" not in title for title in titles), titles
    assert "in Asia/Tokyo" in page
    csrf = csrf_of(await browser.get("/schedules/hourly"))
    said = {"csrf": csrf, "zone": "Asia/Tokyo", "until": "2099-01-31 09:00"}
    assert (await browser.post("/schedules/hourly/pause", data=said)).status_code == 303
    until = (await server.app.schedules.get("hourly")).paused_until
    assert until == datetime(2099, 1, 31, 0, 0, tzinfo=UTC)
    calendar = (await browser.get("/calendar")).text
    assert "<option selected>Asia/Tokyo</option>" in calendar
    assert "UTC" not in re.sub(
        r"<option>UTC</option>|<button[^>]*>UTC</button>|value=\"UTC\"[^>]*>", "", calendar
    )
    overview = (await browser.get("/")).text
    assert "UTC:" not in overview
    # A zone that is none is not used.
    browser.cookies.set("rota_zone", "Mars/Olympus")
    assert (await browser.get("/schedules/hourly")).status_code == 200


async def test_a_zone_is_chosen_without_a_script(server: LiveServer):
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/queues"))
    answer = await browser.post(
        "/session/zone", data={"csrf": csrf, "choose": "Asia/Tokyo", "return": "/calendar"}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/calendar")
    assert "<option selected>Asia/Tokyo</option>" in (await browser.get("/calendar")).text
    answer = await browser.post(
        "/session/zone", data={"csrf": csrf, "choose": "Mars/Olympus", "return": "/"}
    )
    assert "Mars/Olympus" in (await browser.get("/")).text


# -- errors


async def test_all_errors_of_a_form_are_told_each_at_its_field(server: LiveServer):
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/schedules/new"))
    said = {
        "csrf": csrf,
        "name": "a b!",
        "task": "greet",
        "kind": "cron",
        "rule": "0 25 * * *",
        "payload": "{",
    }
    page = await browser.post("/schedules/new", data=said)
    assert page.status_code == 422
    for field, word in (("name", "a b!"), ("rule", "25"), ("payload", "JSON")):
        found = re.search(rf'id="{field}-error"[^>]*>([^<]*)<', page.text)
        assert found, field
        assert word in html.unescape(found[1]), found[1]
        assert re.search(rf'name="{field}"[^>]*aria-invalid="true"', page.text), field


async def test_invalid_json_is_told_at_its_field_when_a_job_is_submitted(server: LiveServer):
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/jobs/new"))
    page = await browser.post(
        "/jobs/new", data={"csrf": csrf, "task": "greet", "payload": '{"a": }'}
    )
    assert page.status_code == 422
    assert re.search(r'id="payload-error"[^>]*>[^<]*JSON', page.text)
    assert re.search(r'name="payload"[^>]*aria-invalid="true"', page.text)


async def test_a_schedule_of_an_unknown_task_is_made_with_a_warning(server: LiveServer):
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/schedules/new"))
    said = {"csrf": csrf, "name": "x", "task": "gret", "kind": "cron", "rule": "0 5 * * *"}
    answer = await browser.post("/schedules/new", data=said)
    page = html.unescape((await browser.get(answer.headers["location"])).text)
    assert "no node has registered" in page or "gret' so far" in page, page


@pytest.mark.parametrize(
    "fields", [{"first": "soon"}, {"end": ""}, {"max_parallel": "many"}, {"first": "2090-01-01"}]
)
async def test_a_backfill_that_is_refused_keeps_what_was_written_and_names_what_one_sees(
    server: LiveServer, fields: dict[str, str]
):
    await server.context.tenant("default").schedule("hourly", "greet", every="1h")
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/schedules/hourly"))
    said = {
        "csrf": csrf,
        "first": "2026-01-05 00:00",
        "end": "2026-01-06 00:00",
        "max_parallel": "3",
        **fields,
    }
    page = await browser.post("/schedules/hourly/backfill", data=said)
    assert page.status_code == 422
    for name in ("first", "end", "max_parallel"):
        assert f'name="{name}" value="{said[name]}"' in page.text, name
    alert = re.search(r'role="alert">(.*?)</p>', page.text, re.DOTALL)
    assert alert
    assert "max_parallel" not in alert[1]
    assert not re.search(r"\b(first|end)\b", alert[1])
