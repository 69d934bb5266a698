"""The pages of tokens and webhooks: what is refused, and that nothing that was written is lost."""

from __future__ import annotations

import re

import pytest

from tests.support.api import fail_jobs
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import csrf_of, enter


async def test_a_token_that_is_refused_keeps_what_was_written(server: LiveServer):
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/tokens"))
    said = {"csrf": csrf, "name": "ci runner", "role": "viewer", "scope": ["jobs:read", "queues:write"],
            "expires_at": "next year"}  # fmt: skip
    page = await browser.post("/tokens", data=said)
    assert page.status_code == 422
    assert 'value="ci runner"' in page.text
    assert 'value="next year"' in page.text
    assert "<option selected>viewer</option>" in page.text
    for scope in said["scope"]:
        assert re.search(rf'value="{scope}"[^>]* checked', page.text), scope
    alert = re.search(r'role="alert">(.*?)</p>', page.text, re.DOTALL)
    assert alert
    assert "Expires" in alert[1]
    assert "expires_at" not in alert[1]


async def test_scopes_are_chosen_and_used(server: LiveServer):
    browser = await enter(server)
    form = await browser.get("/tokens")
    offered = re.findall(r'name="scope" value="([^"]+)"', form.text)
    assert {"jobs:read", "jobs:write", "jobs:submit", "schedules:read", "queues:write"} <= {
        *offered
    }
    said = {
        "csrf": csrf_of(form),
        "name": "ci",
        "role": "operator",
        "scope": ["jobs:read", "queues:write"],
    }
    assert (await browser.post("/tokens", data=said)).status_code == 201
    assert "jobs:read, queues:write" in (await browser.get("/tokens")).text


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/hook", "http://localhost:9/hook", "http://[::1]/", "https://10.1.2.3/hook",
            "http://169.254.169.254/latest", "http://2130706433/"],
)  # fmt: skip
async def test_a_webhook_to_an_address_that_is_never_allowed_is_refused(
    server: LiveServer, url: str
):
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/webhooks"))
    page = await browser.post(
        "/webhooks", data={"csrf": csrf, "url": url, "format": "slack", "kind": ["failed", "slow"]}
    )
    assert page.status_code == 422, page.text[:500]
    assert "not a public address" in page.text
    assert f'value="{url}"' in page.text
    assert re.search(r'value="slow"[^>]* checked', page.text)
    tenant = server.context.tenant("default")
    assert await tenant.webhooks.list() == []
    # What an administrator allows is accepted; so is a name that can't be resolved at this moment.
    if url == "https://10.1.2.3/hook":
        await server.app.webhooks.allow("10.0.0.0/8")
        assert (await tenant.webhooks.add(url)).webhook.url == url
        assert (await tenant.webhooks.add("https://hooks.invalid/x")).webhook.url.endswith("/x")


async def test_the_page_of_a_webhook_lists_its_deliveries_and_sends_one_again(server: LiveServer):
    tenant = server.context.tenant("default")
    hook = (await tenant.webhooks.add("https://example.org/hook")).id
    other = (await tenant.webhooks.add("https://example.org/other")).id
    delivery = await tenant.webhooks.test(hook)
    foreign = await tenant.webhooks.test(other)
    await fail_jobs(server.app, [str(delivery.id)], "answered with 500")
    browser = await enter(server)
    page = await browser.get(f"/webhooks/{hook}")
    assert f'id="job-{delivery.id}"' in page.text
    assert str(foreign.id) not in page.text
    assert "answered with 500" in page.text
    path = f"/webhooks/deliveries/{delivery.id}/redeliver"
    answer = await browser.post(path, data={"csrf": csrf_of(page)})
    again = await tenant.jobs.get(answer.headers["location"].removeprefix("/jobs/"))
    assert again.payload == (await tenant.jobs.get(delivery.id)).payload
    assert (await browser.get(f"/webhooks/{hook}")).text.count('<tr id="job-') == 2
    client = await server.client("admin")
    listed = (await client.get(f"/v1/webhooks/{hook}/deliveries")).json()
    assert [one["id"] for one in listed] == [str(again.id), str(delivery.id)]
    plain = await tenant.submit("greet", {})
    refused = await client.post(f"/v1/webhooks/deliveries/{plain.id}/redeliver")
    assert (refused.status_code, refused.json()["code"]) == (409, "no-delivery")
