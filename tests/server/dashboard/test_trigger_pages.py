"""The pages of triggers: server/dashboard/triggers.py."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from rota.errors import NotFound
from tests.support.server_fixtures import LiveServer
from tests.support.sessions import csrf_of, enter

SOURCE = "kafka://one:9092,two:9092/orders"


async def make(server: LiveServer, name: str = "orders") -> None:
    """A trigger that was read, as a node leaves it behind."""
    database = (await server.app.store()).database
    await database.fetch("declare_trigger", "default", name, "ship", SOURCE, None)
    await database.fetch("start_trigger", "default", name, None, SOURCE)
    await database.fetch(
        "advance_trigger", "default", name, None, "abc/0:41,1:17", 1234, 5, 6, SOURCE
    )
    await database.fetch("note_trigger", "default", name, 77, "Kafka: <b>away</b>")


async def send(browser: httpx.AsyncClient, path: str, **fields: Any) -> httpx.Response:
    csrf = csrf_of(await browser.get("/triggers/orders"))
    return await browser.post(path, data={"csrf": csrf, **fields})


async def audited(server: LiveServer, action: str) -> int:
    return len(await server.app.rota.audit.list("default", subject="trigger orders", action=action))


async def test_the_list_shows_source_position_lag_fault_and_state(server: LiveServer):
    browser = await enter(server)
    assert "No triggers yet" in (await browser.get("/triggers")).text
    await make(server)
    for path in ("/triggers", "/triggers/orders"):
        page = (await browser.get(path)).text
        for text in (SOURCE, "abc/0:41,1:17", "77", "1,234", "ship", "is-failed"):
            assert text in page, (path, text)
        assert "&lt;b&gt;away" in page
        assert "<b>away" not in page
    assert (await browser.get("/triggers/nothing")).status_code == 404
    assert 'href="/triggers"' in (await browser.get("/endpoints")).text


async def test_pause_and_resume_are_recorded(server: LiveServer):
    await make(server)
    browser = await enter(server)
    assert (await send(browser, "/triggers/orders/pause")).status_code == 303
    assert (await server.app.triggers.get("orders")).paused_at is not None
    assert "is-paused" in (await browser.get("/triggers")).text
    assert (await send(browser, "/triggers/orders/resume")).status_code == 303
    assert (await server.app.triggers.get("orders")).paused_at is None
    assert (await audited(server, "pause"), await audited(server, "resume")) == (1, 1)


async def test_a_rewind_asks_first_and_names_the_partition_that_is_set_back(server: LiveServer):
    await make(server)
    browser = await enter(server)
    asked = await send(browser, "/triggers/orders/rewind", position="1:9")
    assert "Rewind the trigger" in asked.text
    assert 'name="position" value="1:9"' in asked.text
    assert (await server.app.triggers.get("orders")).position == "abc/0:41,1:17"
    done = await send(browser, "/triggers/orders/rewind", position="1:9", sure="yes")
    assert done.status_code == 303
    assert (await server.app.triggers.get("orders")).position == "abc/0:41,1:9"
    assert "from the beginning" in (await send(browser, "/triggers/orders/rewind")).text
    await send(browser, "/triggers/orders/rewind", sure="yes")
    assert (await server.app.triggers.get("orders")).position is None
    assert await audited(server, "rewind") == 2


async def test_a_removal_asks_first(server: LiveServer):
    await make(server)
    browser = await enter(server)
    assert "Remove the trigger" in (await send(browser, "/triggers/orders/remove")).text
    await server.app.triggers.get("orders")
    csrf = csrf_of(await browser.get("/triggers/orders"))
    await browser.post("/triggers/orders/remove", data={"csrf": csrf, "sure": "yes"})
    with pytest.raises(NotFound):
        await server.app.triggers.get("orders")


async def test_a_viewer_sees_and_changes_nothing(server: LiveServer):
    await make(server)
    browser = await enter(server, role="viewer")
    page = (await browser.get("/triggers/orders")).text
    assert SOURCE in page
    assert "Rewind" not in page.split('class="below"')[0]
    csrf = csrf_of(await browser.get("/triggers/orders"))
    answer = await browser.post("/triggers/orders/pause", data={"csrf": csrf})
    assert answer.status_code == 403
