"""Answers that go on: events and logs as they come, resumed without a gap or a double."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import httpx
import pytest

from rota.lib.ids import new_id
from rota.store.events import EventStream, Position
from tests.support.api import INSERT_EVENT, log, submit, tell
from tests.support.server_fixtures import LiveServer, serving


class Heard:
    """The events of a stream as they are read, and the id of the last one."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()
        self.last_id = ""

    async def next(self) -> tuple[str, Any]:
        kind, data = "", None
        async with asyncio.timeout(60):
            async for line in self._lines:
                field, _, value = line.partition(": ")
                if field == "id":
                    self.last_id = value
                elif field == "event":
                    kind = value
                elif field == "data":
                    data = json.loads(value)
                elif not line and data is not None:
                    return kind, data
        raise EOFError

    async def tasks(self, count: int) -> list[str]:
        return [(await self.next())[1]["task"] for _ in range(count)]


@contextlib.asynccontextmanager
async def listening(client, path="/v1/events/stream", last_id="", **params) -> AsyncIterator[Heard]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    async with client.stream("GET", path, headers=headers, params=params) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield Heard(answer)


async def test_events_are_told_as_they_happen_and_resumed_where_they_stopped(server: LiveServer):
    client = await server.client("viewer")
    await tell(server, "before")
    async with listening(client) as heard:
        for task in ("a", "b", "c"):
            await tell(server, task)
        await tell(server, "not ours", namespace="theirs")
        assert await heard.tasks(2) == ["a", "b"]
        last = heard.last_id
    await tell(server, "d")
    async with listening(client, last_id=last) as heard:
        assert await heard.tasks(2) == ["c", "d"]
        await tell(server, "e")
        assert await heard.tasks(1) == ["e"]
    async with listening(client, after="0.0") as heard:
        assert await heard.tasks(6) == ["before", "a", "b", "c", "d", "e"]


async def test_an_event_that_was_written_earlier_and_committed_later_is_not_missed(
    server: LiveServer, database_url
):
    client = await server.client("viewer")
    slow = await asyncpg.connect(database_url)
    async with listening(client) as heard:
        transaction = slow.transaction()
        await transaction.start()
        await tell(server, "slow", slow)  # its number is drawn now
        await tell(server, "fast")
        assert await heard.tasks(1) == ["fast"]  # without waiting for the other
        middle = heard.last_id
        await transaction.commit()
        assert await heard.tasks(1) == ["slow"]
        end = heard.last_id
    await slow.close()
    await tell(server, "next")
    for last, expected in ((middle, ["slow", "next"]), (end, ["next"])):
        async with listening(client, last_id=last) as heard:
            assert await heard.tasks(len(expected)) == expected


async def test_nothing_is_missed_or_doubled_however_often_a_reader_comes_back(server: LiveServer):
    client = await server.client("viewer")
    store = await server.app.store()
    position = str(await EventStream(store.database).end())

    async def write(writer: int) -> None:
        query = INSERT_EVENT.format(server.app.settings.schema)
        for number in range(15):
            async with store.database.transaction() as c:
                await c.execute(query, "default", f"{writer}.{number}")
                await asyncio.sleep(0.01 * (writer % 3))  # commits overtake each other

    writing = asyncio.gather(*(write(writer) for writer in range(3)))
    seen: list[str] = []
    while len(seen) < 45:
        async with listening(client, last_id=position) as heard:
            seen += await heard.tasks(min(4, 45 - len(seen)))
            position = heard.last_id
    await writing
    assert sorted(seen) == sorted(
        f"{writer}.{number}" for writer in range(3) for number in range(15)
    )
    await tell(server, "end")
    async with listening(client, last_id=position) as heard:
        assert await heard.tasks(1) == ["end"]


@pytest.mark.parametrize("bad", ["x", "1", "1.2.", "1.2.3-", "9" * 30 + ".1", "-1.0", "1.2.x"])
async def test_a_position_that_is_not_ours_is_refused(server: LiveServer, bad):
    client = await server.client("viewer")
    answer = await client.get("/v1/events/stream", headers={"Last-Event-ID": bad})
    assert (answer.status_code, answer.json()["code"]) == (400, "bad-position")


def test_a_position_survives_being_text():
    for position in (Position(), Position(7, 8), Position(7, 8, (9, 12))):
        assert Position.parse(str(position)) == position


async def test_events_are_listed_in_pages(server: LiveServer):
    client = await server.client("viewer")
    for number in range(5):
        await tell(server, str(number))
    first = (await client.get("/v1/events", params={"limit": 3})).json()
    rest = (await client.get("/v1/events", params={"limit": 3, "cursor": first["next"]})).json()
    tasks = [event["task"] for event in (*first["items"], *rest["items"])]
    assert tasks == ["4", "3", "2", "1", "0"]
    assert rest["next"] is None
    assert (await client.get("/v1/events", params={"kind": "late"})).json()["items"] == []


async def test_streams_end_when_the_server_stops(make_app):
    async with serving(make_app(port=0)) as live:
        client = await live.client("viewer")
        async with listening(client) as heard:
            stopping = asyncio.create_task(live.server.stop())
            with pytest.raises(EOFError):
                await heard.next()
            await stopping


async def test_logs_are_paged_and_followed_until_the_job_has_ended(server: LiveServer):
    client = await server.client("operator")
    id = await submit(client)
    await log(server, id, "one", "two", "three")
    first = (await client.get(f"/v1/jobs/{id}/logs", params={"limit": 2})).json()
    assert [line["text"] for line in first["items"]] == ["one", "two"]
    params = {"limit": 2, "cursor": first["next"]}
    rest = (await client.get(f"/v1/jobs/{id}/logs", params=params)).json()
    assert ([line["text"] for line in rest["items"]], rest["next"]) == (["three"], None)
    path = f"/v1/jobs/{id}/logs/stream"
    async with listening(client, path) as heard:
        assert [(await heard.next())[1]["text"] for _ in range(3)] == ["one", "two", "three"]
        await log(server, id, "second attempt", token=2)
        assert (await heard.next())[1]["text"] == "second attempt"
        last = heard.last_id
    await log(server, id, "late words of the first")
    async with listening(client, path, last_id=last) as heard:
        assert (await heard.next())[1]["text"] == "late words of the first"
        await client.post(f"/v1/jobs/{id}/cancel")
        assert (await heard.next())[0] == "end"


# -- who may no longer read


async def ended(answer: httpx.Response) -> str:
    async with asyncio.timeout(60):
        return (await answer.aread()).decode()


@pytest.mark.parametrize(
    "path", ["/v1/events/stream", "/v1/jobs/{job}/logs/stream", "/live/stream"]
)
async def test_a_stream_ends_when_its_token_is_revoked(server: LiveServer, path: str):
    job = await submit(await server.client("operator"))
    client, admin = await server.client("viewer"), await server.client("admin")
    prefix = client.headers["authorization"].split("_")[1]
    async with client.stream("GET", path.format(job=job)) as answer:
        assert answer.status_code == 200
        await admin.delete(f"/v1/tokens/{prefix}")
        assert "no longer valid" in await ended(answer)


@pytest.mark.parametrize("change", ["update {}.membership set namespace = 'acme'",
                                    "update {}.user_account set disabled_at = now()",
                                    "update {}.session set expires_at = now()"])  # fmt: skip
async def test_a_stream_ends_when_its_person_may_no_longer_look(server: LiveServer, change: str):
    store = server.context.identity
    person = await store.put_user(new_id(), "ada", None)
    await store.put_membership(person, "default", "viewer")
    browser = await server.client(None)
    link = await server.link(user="ada")
    await browser.post("/login/link", json={"link": link})
    async with browser.stream("GET", "/v1/events/stream") as answer:
        assert answer.status_code == 200
        async with (await server.app.store()).database.connection() as connection:
            await connection.execute(change.format(server.app.settings.schema))
        assert "no longer valid" in await ended(answer)


async def test_a_stream_whose_token_is_good_goes_on(server: LiveServer):
    async with listening(await server.client("viewer")) as heard:
        for number in range(3):
            server.context.tokens.cache.clear()
            await asyncio.sleep(0.6)  # longer than it is believed without a look
            await tell(server, f"task{number}")
        assert await heard.tasks(3) == ["task0", "task1", "task2"]
