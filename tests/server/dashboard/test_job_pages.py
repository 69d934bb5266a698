"""The pages of jobs, dead letters and nodes: what they offer, what they count, and what they refuse."""

from __future__ import annotations

import asyncio
import html
import json
import re
import shlex
from uuid import UUID, uuid4

import pytest

from rota.server.dashboard.search_words import is_search, read_search
from rota.store.dashboard import DashboardStore
from tests.support.api import fail_jobs, query
from tests.support.command_line import run
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import csrf_of, enter


def copies(text: str) -> dict[str, list[str]]:
    """The commands of a page, by the label above them."""
    found: dict[str, list[str]] = {}
    for label, block in re.findall(
        r'<h3 class="copy-label">([^<]*)</h3>(.*?)(?=<h3 class="copy-label"|</details>)', text, re.DOTALL
    ):  # fmt: skip
        lines = re.findall(r"<pre[^>]*>([^<]*)</pre>", block)
        found[label] = [line for each in lines for line in html.unescape(each).splitlines()]
    return found


# -- copies


async def test_what_a_page_offers_to_copy_reads_and_each_change_has_its_name(server: LiveServer):
    tenant = server.context.tenant("default")
    ready, failed = [(await tenant.submit("greet", {"n": n}, queue="mail")).id for n in range(2)]
    await fail_jobs(server.app, [str(failed)])
    await tenant.schedule("nightly", "greet", cron="0 3 * * *")
    browser = await enter(server)
    offered = copies((await browser.get(f"/jobs/{ready}")).text)
    assert [*offered][:2] == ["Show this job", "Cancel this job"]
    assert offered["Show this job"][0] == f"rota jobs show {ready}"
    assert offered["Cancel this job"][0] == f"rota jobs cancel {ready}"
    offered = copies((await browser.get(f"/jobs/{failed}")).text)
    assert [*offered][:3] == ["Show this job", "Retry this job", "Discard this job"]
    offered = copies((await browser.get("/schedules/nightly")).text)
    assert [*offered] == ["Show this schedule", "Trigger it now", "Pause it"]
    assert offered["Show this schedule"][0] == "rota schedules show nightly"
    offered = copies((await browser.get("/queues")).text)
    assert [*offered] == ["List the queues", "Pause the queue default"]


async def test_every_command_that_a_page_offers_does_what_its_label_says(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    """In a shell, one after the other: what reads first, then what changes."""
    tenant = server.context.tenant("default")
    kinds = ("ready", "failed", "discarded", "other")
    jobs = {kind: (await tenant.submit("greet", {"n": kind}, queue="mail")).id for kind in kinds}
    await fail_jobs(server.app, [str(jobs["failed"]), str(jobs["discarded"])])
    await tenant.schedule("nightly", "greet", cron="0 3 * * *")
    browser = await enter(server)
    monkeypatch.setenv("ROTA_DATABASE_URL", server.app.settings.database_url or "")
    monkeypatch.setenv("ROTA_SCHEMA", server.app.settings.schema)
    ran = 0
    for path, verbs in (
        (f"/jobs/{jobs['ready']}", ("Cancel this job",)),
        (f"/jobs/{jobs['failed']}", ("Retry this job",)),
        (f"/jobs/{jobs['discarded']}", ("Discard this job",)),
        ("/schedules/nightly", ("Trigger it now", "Pause it")),
        ("/queues", ("Pause the queue default",)),
        ("/jobs?queue=mail", ()), ("/schedules", ()), ("/dead", ()), ("/cluster", ()), ("/calendar", ()),
    ):  # fmt: skip
        offered = copies((await browser.get(path)).text)
        for label in (next(iter(offered)), *verbs):
            for line in [each for each in offered[label] if each.startswith("rota ")]:
                done = await asyncio.to_thread(run, *shlex.split(line)[1:])
                assert done.code == 0, (line, done.err)
                ran += 1
    assert ran > 12
    assert (await tenant.jobs.get(jobs["ready"])).state == "cancelled"
    assert (await tenant.jobs.get(jobs["failed"])).state == "ready"
    assert (await tenant.jobs.get(jobs["discarded"])).state == "cancelled"
    assert (await tenant.schedules.get("nightly")).paused_at is not None


# -- dead letters


async def test_the_link_of_a_dead_letter_group_opens_the_jobs_of_that_group(server: LiveServer):
    tenant = server.context.tenant("default")
    ids = [str((await tenant.submit("greet", {"n": n})).id) for n in range(4)]
    await fail_jobs(server.app, ids[:2], "card 17 declined")
    await fail_jobs(server.app, ids[2:], "out of paper")
    browser = await enter(server)
    page = (await browser.get("/dead")).text
    links = [html.unescape(one) for one in re.findall(r'<h3><a href="([^"]+)"', page)]
    shown = [{id for id in ids if id in (await browser.get(link)).text} for link in links]
    assert sorted(map(sorted, shown)) == sorted([sorted(ids[:2]), sorted(ids[2:])])


async def test_a_retry_that_fails_again_keeps_the_first_failure_of_its_group(server: LiveServer):
    tenant = server.context.tenant("default")
    id = (await tenant.submit("greet", {})).id
    await fail_jobs(server.app, [str(id)])
    attempts = [
        {"number": 1, "outcome": "raised", "token": 1, "node": "-",
         "ended_at": "2026-01-01T00:00:00+00:00",
         "error": {"type": "ValueError", "message": "no luck"}},
        {"number": 1, "outcome": "raised", "token": 2, "node": "-",
         "ended_at": "2026-02-01T00:00:00+00:00",
         "error": {"type": "ValueError", "message": "no luck"}},
    ]  # fmt: skip
    await query(
        server,
        "update {}.dead set attempts = $1, finished_at = '2026-02-01Z'",
        json.dumps(attempts),
    )
    [group] = (await DashboardStore(tenant.connector.database, "default").dead_groups()).groups
    assert f"{group.first_at:%Y-%m-%d}" == "2026-01-01"
    [group] = await tenant.dead.groups()
    assert f"{group.first_at:%Y-%m-%d}" == "2026-01-01"


# -- nodes


async def add_node(server: LiveServer, name: str, state: str, running: int) -> UUID:
    id = uuid4()
    await query(
        server,
        "insert into {}.node (id, namespace, name, host, pid, version, roles, expires_at, slots, "
        "running, queues, capabilities, tasks, state, ended_at) values "
        "($1, 'default', $2, 'h', 1, '0', '{worker}', now() + interval '1 h', 10, $3, '{}', '{}', '{}', "
        "$4, case when $4 in ('dead', 'stopped') then now() end)",
        id, name, running, state,
    )  # fmt: skip
    return id


async def test_a_dead_node_is_on_the_page_that_its_alert_leads_to_and_is_not_busy(
    server: LiveServer,
):
    await add_node(server, "fell-over", "dead", 7)
    browser = await enter(server)
    overview = (await browser.get("/")).text
    [line] = re.findall(
        r"<li class=\"bad\">(?:(?!</li>).)*1 node died.*?</li>", overview, re.DOTALL
    )
    links = re.findall(r'href="([^"]+)"', line)
    assert (await browser.get(html.unescape(links[0]))).status_code == 200  # the node itself
    link = re.search(r'href="([^"]*cluster[^"]*)"', line)
    assert link
    page = (await browser.get(html.unescape(link[1]))).text
    row = re.search(r"<tr[^>]*>(?:(?!</tr>).)*fell-over.*?</tr>", page, re.DOTALL)
    assert row
    assert "7/10" not in row[0]


# -- start lag


async def test_the_start_lag_is_not_shown_before_it_is_known(server: LiveServer):
    """What a worker has claimed has perhaps not begun: only the end of the job tells when it did."""
    tenant = server.context.tenant("default")
    id = (await tenant.submit("greet", {})).id
    await query(
        server,
        "update {}.present set state = 4, claimed_at = due_at + interval '3 s', attempt = 1 "
        "where id = $1", id,
    )  # fmt: skip
    browser = await enter(server)
    page = (await browser.get(f"/jobs/{id}")).text
    assert "after due" not in page
    assert "<dt>Claimed</dt>" in page
    await query(
        server, "update {}.present set started_at = due_at + interval '5 s' where id = $1", id
    )
    assert "5 s after due" in (await browser.get(f"/jobs/{id}")).text


# -- changes of many


async def test_a_change_of_nothing_and_of_everything_is_refused(server: LiveServer):
    tenant = server.context.tenant("default")
    id = str((await tenant.submit("greet", {})).id)
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/jobs"))
    answer = await browser.post("/jobs/bulk", data={"csrf": csrf, "do": "retry", "return": "/jobs"})
    assert answer.status_code == 303
    assert "Select the jobs first" in (await browser.get("/jobs")).text
    said = {"csrf": csrf, "do": "cancel", "return": "/jobs", "everything": "yes"}
    for extra in ({}, {"sure": "yes"}):
        answer = await browser.post("/jobs/bulk", data={**said, **extra})
        assert answer.status_code == 303
        assert "Set a filter first" in (await browser.get("/jobs")).text
    assert (await tenant.jobs.get(id)).state == "ready"
    # With a filter it is asked, and done.
    asked = await browser.post("/jobs/bulk", data={**said, "task": "greet"})
    assert "Cancel 1 job?" in asked.text


async def test_a_cancel_is_confirmed(server: LiveServer):
    tenant = server.context.tenant("default")
    id = str((await tenant.submit("greet", {})).id)
    browser = await enter(server)
    csrf = csrf_of(await browser.get(f"/jobs/{id}"))
    asked = await browser.post(f"/jobs/{id}/cancel", data={"csrf": csrf})
    assert asked.status_code == 200
    assert "Cancel this job?" in asked.text
    assert (await tenant.jobs.get(id)).state == "ready"
    done = await browser.post(f"/jobs/{id}/cancel", data={"csrf": csrf, "sure": "yes"})
    assert done.status_code == 303
    assert (await tenant.jobs.get(id)).state == "cancelled"


# -- search and counts


@pytest.mark.parametrize(
    "text", ['"name": "ada"', '{"name":"ada"', '"tags": [\n    1,\n    2\n', "ada", "größe"]
)
async def test_a_payload_is_found_by_its_text_as_the_page_shows_it(server: LiveServer, text: str):
    tenant = server.context.tenant("default")
    id = str((await tenant.submit("greet", {"name": "ada", "tags": [1, 2], "what": "Größe"})).id)
    browser = await enter(server)
    assert id in (await browser.get("/jobs", params={"text": text})).text
    assert id not in (await browser.get("/jobs", params={"text": text + "?"})).text.replace(
        f"from={id}", ""
    )


async def test_failed_deliveries_of_webhooks_are_no_failed_jobs(server: LiveServer):
    tenant = server.context.tenant("default")
    hook = (await tenant.webhooks.add("https://example.org/hook")).id
    delivery = await tenant.webhooks.test(hook)
    await fail_jobs(server.app, [str(delivery.id)])
    browser = await enter(server)
    assert "failed in the last hour" not in (await browser.get("/")).text
    job = await tenant.submit("greet", {})
    await fail_jobs(server.app, [str(job.id)])
    page = (await browser.get("/")).text
    assert "1 job failed in the last hour" in page


async def test_the_number_of_rows_is_that_of_the_address(server: LiveServer):
    tenant = server.context.tenant("default")
    for n in range(5):
        await tenant.submit("greet", {"n": n})
    browser = await enter(server)
    page = (await browser.get("/jobs?limit=2")).text
    assert page.count('<tr id="job-') == 2
    [following] = re.findall(r'rel="next" href="([^"]+)"', page)
    assert "limit=2" in following
    assert (await browser.get(html.unescape(following))).text.count('<tr id="job-') == 2
    assert (await browser.get("/jobs?limit=1000000")).status_code == 400


async def test_a_namespace_that_nobody_has_used_is_not_shown_as_if_it_were_there(
    server: LiveServer,
):
    browser = await enter(server)
    page = await browser.get("/jobs?namespace=typo")
    assert page.status_code == 404
    assert "There is no namespace typo" in page.text
    await server.context.tenant("acme").submit("greet", {})
    assert (await browser.get("/jobs?namespace=acme")).status_code == 200


# -- the search field


def test_a_search_is_read_as_filters_and_text():
    assert read_search("task:charge customer:Acme state:failed since:2h") == {
        "task": "charge", "state": ["failed"], "within": "2h", "text": '"customer":"Acme"',
    }  # fmt: skip
    assert read_search('tag:"very urgent" card declined') == {
        "tag": "very urgent", "text": "card declined",
    }  # fmt: skip
    assert read_search("state:failed,ready state:odd") == {
        "state": ["failed", "ready"], "text": "state:odd",
    }  # fmt: skip
    for text in (
        "card declined",
        "state:odd",
        "https://example.org/x",
    ):  # they would lead to themselves
        assert not is_search(text)
    assert not is_search('{"name": "ada"')


async def test_the_search_field_takes_filters(server: LiveServer):
    tenant = server.context.tenant("default")
    wanted, other, third = [
        str((await tenant.submit(task, {"customer": name})).id)
        for task, name in (("charge", "Acme"), ("charge", "Other"), ("mail", "Acme"))
    ]
    await fail_jobs(server.app, [wanted, other, third])
    browser = await enter(server)
    search = "task:charge customer:Acme state:failed since:2h"
    answer = await browser.get("/jobs", params={"text": search})
    assert answer.status_code == 303
    page = await browser.get(answer.headers["location"])
    assert wanted in page.text
    assert other not in page.text
    assert third not in page.text
    assert (await browser.get("/jobs?within=tomorrow")).status_code == 422
