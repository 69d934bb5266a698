"""Jobs over HTTP: submitting, listing, steering."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from rota import App
from tests.support.api import end_as, fail_jobs, submit
from tests.support.server_fixtures import LiveServer

EXAMPLE = {
    "job_type": "email_send",
    "schedule_time": "2026-12-31T23:59:59Z",
    "payload": {"to": "ada@example.org", "n": 1},
    "retries": 3,
}


async def test_the_example_of_the_issue_is_stored_as_it_says(server: LiveServer):
    client = await server.client("operator")
    answer = await client.post("/v1/jobs", json=EXAMPLE)
    assert answer.status_code == 201
    job = await server.app.jobs.get(answer.json()["id"])
    assert answer.headers["location"] == f"/v1/jobs/{job.id}"
    assert (job.task, job.max_attempts, job.state) == ("email_send", 4, "scheduled")
    assert job.due_at == datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert job.payload == {"to": "ada@example.org", "n": 1}


async def test_every_option_reaches_the_job(server: LiveServer):
    client = await server.client("operator")
    id = await submit(
        client, queue="mail", needs=["gpu", "big"], priority=7, guarantee="at_most_once",
        max_attempts=9, timeout=12.5, delay=3600, key="k-1", tags=["blue", "urgent"],
        headers={"trace": "abc"},
    )  # fmt: skip
    job = (await client.get(f"/v1/jobs/{id}")).json()
    assert job["queue"] == "mail"
    assert job["needs"] == ["big", "gpu"]
    assert (job["priority"], job["guarantee"], job["max_attempts"]) == (7, "at_most_once", 9)
    assert (job["timeout"], job["key"]) == (12.5, "k-1")
    assert job["headers"] == {"trace": "abc", "tags": ["blue", "urgent"]}
    due = datetime.fromisoformat(job["due_at"]) - datetime.fromisoformat(job["created_at"])
    assert abs(due - timedelta(hours=1)) < timedelta(seconds=5)


@pytest.mark.parametrize(
    ("said", "about"),
    [
        ({}, "task"),
        ({"task": "a b"}, "task"),
        ({"task": "line\n"}, "name"),
        ({"task": "a", "job_type": "b"}, "job_type"),
        ({"task": "a", "payload": [1]}, "payload"),
        ({"task": "a", "payload": None}, "payload"),
        ({"task": "a", "retries": -1}, "retries"),
        ({"task": "a", "retries": 3, "max_attempts": 3}, "retries"),
        ({"task": "a", "at": "2027-01-01T00:00:00"}, "at"),
        ({"task": "a", "at": "2027-01-01T00:00:00Z", "delay": 3}, "delay"),
        ({"task": "a", "at": "0001-01-01T00:00:00+14:00"}, "at"),
        ({"task": "a", "priority": 1001}, "priority"),
        ({"task": "a", "timeout": 0}, "timeout"),
        ({"task": "a", "guarantee": "perhaps"}, "guarantee"),
        ({"task": "a", "key": ""}, "key"),
        ({"task": "a", "key": "k\0"}, "NUL"),
        ({"task": "a", "queue": "no/slash"}, "queue"),
        ({"task": "a", "tags": ["no tag"]}, "tags"),
        ({"task": "a", "headers": {"h": "x" * 20_000}}, "headers"),
        ({"task": "a", "colour": "blue"}, "colour"),
    ],
)
async def test_what_makes_no_sense_is_refused_by_name(server: LiveServer, said, about):
    client = await server.client("operator")
    answer = await client.post("/v1/jobs", json=said)
    assert 400 <= answer.status_code < 500
    assert answer.headers["content-type"].startswith("application/problem+json")
    assert about in answer.text
    assert await server.app.jobs.list() == []


async def test_the_arguments_of_a_known_task_are_checked(server: LiveServer):
    @server.app.task(queue="pictures")
    async def resize(path: str, width: int = 100) -> None: ...

    client = await server.client("operator")
    wrong = await client.post("/v1/jobs", json={"task": "resize", "payload": {"path": 3}})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid-arguments")
    id = await submit(client, task="resize", payload={"path": "a.png"})
    assert (await server.app.jobs.get(id)).queue == "pictures"


async def test_the_same_key_and_content_give_the_same_answer(server: LiveServer):
    client = await server.client("operator")
    said, key = {"task": "pay", "payload": {"cents": 5}}, {"Idempotency-Key": "order-7"}
    first = await client.post("/v1/jobs", json=said, headers=key)
    again = await client.post("/v1/jobs", json=said, headers=key)
    other = await client.post("/v1/jobs", json={**said, "payload": {"cents": 6}}, headers=key)
    differs = await client.post("/v1/jobs", json={**said, "key": "another"}, headers=key)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.json() == again.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    assert (other.status_code, other.json()["code"]) == (409, "key-conflict")
    assert differs.status_code == 422
    assert len(await server.app.jobs.list()) == 1


async def test_twenty_racing_submits_of_one_key_make_one_job(server: LiveServer):
    client = await server.client("operator")
    headers = {"Idempotency-Key": "race"}
    answers = await asyncio.gather(
        *(client.post("/v1/jobs", json={"task": "once"}, headers=headers) for _ in range(20))
    )
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    assert len(await server.app.jobs.list()) == 1


async def test_a_keys_race_between_two_contents_has_one_winner(server: LiveServer):
    client = await server.client("operator")
    answers = await asyncio.gather(
        *(
            client.post("/v1/jobs", json={"task": "once", "key": "race", "payload": {"n": n % 2}})
            for n in range(20)
        )
    )
    stored = await server.app.jobs.list()
    assert len(stored) == 1
    winner = (await server.app.jobs.get(stored[0].id)).payload["n"]
    statuses = [answer.status_code for answer in answers]
    assert statuses == [201 if n % 2 == winner else 409 for n in range(20)]


# -- lists


async def test_jobs_are_found_by_how_their_last_attempt_ended(server: LiveServer):
    client = await server.client("operator")
    timed_out, silent, ready = [await submit(client) for _ in range(3)]
    await end_as(server, timed_out, "timed_out")
    await end_as(server, silent, "heartbeat_timeout")

    async def found(outcome: str) -> list[str]:
        answer = await client.get("/v1/jobs", params={"outcome": outcome})
        assert answer.status_code == 200, answer.text
        return [job["id"] for job in answer.json()["items"]]

    assert await found("timed_out") == [timed_out]
    assert await found("heartbeat_timeout") == [silent]
    assert await found("succeeded") == []
    assert (await client.get("/v1/jobs", params={"outcome": "bored"})).status_code == 400
    retried = await client.post("/v1/jobs:retry", json={"outcome": "timed_out"})
    assert retried.json()["changed"] == 1
    assert (await server.app.jobs.get(timed_out)).state == "ready"
    assert (await server.app.jobs.get(silent)).state == "failed"
    assert (await server.app.jobs.get(ready)).state == "ready"


async def test_filters_choose(server: LiveServer):
    client = await server.client("operator")
    ids = {
        "plain": await submit(client),
        "mail": await submit(client, queue="mail", task="send"),
        "blue": await submit(client, tags=["blue"], payload={"who": "Grace Hopper"}),
        "later": await submit(client, delay=3600),
        "failed": await submit(client, task="shaky"),
    }
    await fail_jobs(server.app, [ids["failed"]], "connection 4711 refused")
    names = {id: name for name, id in ids.items()}

    async def found(**filters) -> set[str]:
        answer = await client.get("/v1/jobs", params=filters)
        assert answer.status_code == 200, answer.text
        return {names[job["id"]] for job in answer.json()["items"]}

    assert await found() == set(ids)
    assert await found(state="ready") == {"plain", "mail", "blue"}
    assert await found(state=["scheduled", "failed"]) == {"later", "failed"}
    assert await found(task="send") == {"mail"}
    assert await found(queue="mail") == {"mail"}
    assert await found(tag="blue") == {"blue"}
    assert await found(text="grace hopper") == {"blue"}
    assert await found(text="4711 REFUSED") == {"failed"}
    assert await found(text=ids["mail"]) == {"mail"}
    assert await found(text="100% nothing_") == set()
    created = (await client.get(f"/v1/jobs/{ids['blue']}")).json()["created_at"]
    assert await found(since=created) == {"blue", "later", "failed"}
    assert await found(until=created) == {"plain", "mail"}
    assert (
        await client.get("/v1/jobs", params={"since": "2027-01-01T00:00:00"})
    ).status_code == 400
    assert (await client.get("/v1/jobs", params={"state": "asleep"})).status_code == 400


async def test_pages_have_no_gaps_and_no_doubles_while_jobs_come_and_move(server: LiveServer):
    client = await server.client("operator")
    there = [await submit(client, payload={"n": n}) for n in range(45)]
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await client.get("/v1/jobs", params={"limit": 10, **cursor})).json()
        seen += [job["id"] for job in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
        await submit(client)  # above what is still to come
        await client.post(f"/v1/jobs/{seen[-1]}/cancel")  # to another table, with its id
        await client.post(f"/v1/jobs/{there[len(seen) % 45]}/cancel")
    assert len(seen) == len(set(seen))
    assert [id for id in seen if id in there] == sorted(there, reverse=True)


async def test_a_cursor_is_for_its_own_question(server: LiveServer):
    client = await server.client("operator")
    for _ in range(3):
        await submit(client)
    cursor = (await client.get("/v1/jobs", params={"limit": 1})).json()["next"]
    for params in ({"cursor": cursor, "task": "work"}, {"cursor": "rubbish"}, {"cursor": "%ff"},
                   {"cursor": cursor[:-4]}, {"cursor": ""}):  # fmt: skip
        answer = await client.get("/v1/jobs", params=params)
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-cursor"), params


async def test_a_count_is_exact_when_quick_and_says_so_when_not(server: LiveServer, monkeypatch):
    client = await server.client("operator")
    await submit(client, task="other")
    await add_many(server.app, 30_000)
    asked = {"count": True, "task": "work", "limit": 1}
    assert (await client.get("/v1/jobs", params=asked)).json()["count"] == {
        "value": 30_000, "exact": True,
    }  # fmt: skip
    monkeypatch.setattr("rota.store.search._COUNT_MS", 1)
    rough = (await client.get("/v1/jobs", params=asked)).json()["count"]
    assert rough["exact"] is False
    assert 15_000 < rough["value"] < 60_000


async def test_a_list_that_would_read_too_much_is_refused_with_advice(
    server: LiveServer, monkeypatch
):
    client = await server.client("viewer")
    await add_many(server.app, 30_000)
    monkeypatch.setattr("rota.store.search._PAGE_MS", 1)
    answer = await client.get("/v1/jobs", params={"text": "nowhere to be found"})
    assert (answer.status_code, answer.json()["code"]) == (503, "too-much-to-read")
    assert "range of time" in answer.json()["detail"]


async def add_many(app: App, count: int) -> None:
    schema = app.settings.schema
    async with (await app.store()).database.connection() as c:
        await c.execute(
            f"insert into {schema}.present (id, rank, due_at, namespace, lane, task, payload)"
            f" select gen_random_uuid(), 0, now(), 'default', 'default/default', 'work', '{{}}'"
            f" from generate_series(1, {count})"
        )
        await c.execute(f"analyze {schema}.present")


# -- one job


async def test_a_job_has_an_etag_that_changes_with_it(server: LiveServer):
    client = await server.client("operator")
    id = await submit(client)
    first = await client.get(f"/v1/jobs/{id}")
    same = await client.get(f"/v1/jobs/{id}", headers={"If-None-Match": first.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    await client.post(f"/v1/jobs/{id}/cancel")
    changed = await client.get(f"/v1/jobs/{id}", headers={"If-None-Match": first.headers["etag"]})
    assert (changed.status_code, changed.json()["state"]) == (200, "cancelled")


async def test_cancel_retry_explain_result_attempts_discard(server: LiveServer):
    client = await server.client("operator")
    id = await submit(client)
    explained = (await client.get(f"/v1/jobs/{id}/explain")).json()
    assert explained["code"] == "no_worker" or explained["sentence"]
    assert (await client.get(f"/v1/jobs/{id}/result")).json()["ended"] is False
    assert (await client.get(f"/v1/jobs/{id}/attempts")).json()["items"] == []
    assert (await client.post(f"/v1/jobs/{id}/retry")).status_code == 409
    assert (await client.post(f"/v1/jobs/{id}/discard")).status_code == 409
    assert (await client.post(f"/v1/jobs/{id}/cancel")).json()["outcome"] == "cancelled"
    assert (await client.post(f"/v1/jobs/{id}/cancel")).status_code == 409
    failed = await submit(client)
    await fail_jobs(server.app, [failed])
    result = (await client.get(f"/v1/jobs/{failed}/result")).json()
    assert (result["ended"], result["error"]["message"]) == (True, "no luck")
    assert (await client.post(f"/v1/jobs/{failed}/retry")).status_code == 200
    assert (await server.app.jobs.get(failed)).state == "ready"
    await fail_jobs(server.app, [failed])
    assert (await client.post(f"/v1/jobs/{failed}/discard")).json() == {"id": failed}
    assert (await server.app.jobs.get(failed)).state == "cancelled"


# -- actions by filter


async def test_actions_by_filter_count_first_and_then_do(server: LiveServer):
    client = await server.client("operator")
    red = [await submit(client, tags=["red"]) for _ in range(3)]
    await submit(client, tags=["green"])
    dry = await client.post("/v1/jobs:cancel", json={"tag": "red", "dry_run": True})
    assert dry.json() == {"dry_run": True, "matched": 3, "changed": 0, "more": False, "bulk": None}
    assert len((await client.get("/v1/jobs", params={"state": "ready"})).json()["items"]) == 4
    some = await client.post("/v1/jobs:cancel", json={"tag": "red", "limit": 2})
    bulk = some.json()["bulk"]
    assert some.json() == {
        "dry_run": False, "matched": 2, "changed": 2, "more": True, "bulk": bulk,
    }  # fmt: skip
    assert (await client.get(f"/v1/jobs/changes/{bulk}")).status_code == 200
    rest = await client.post("/v1/jobs:cancel", json={"tag": "red"})
    assert rest.json()["changed"] == 1
    states = {UUID(id): (await server.app.jobs.get(id)).state for id in red}
    assert set(states.values()) == {"cancelled"}
    assert (await client.post("/v1/jobs:cancel", json={})).status_code == 422


async def test_failed_jobs_are_retried_by_filter(server: LiveServer):
    client = await server.client("operator")
    ids = [await submit(client, task="shaky") for _ in range(3)]
    await fail_jobs(server.app, ids)
    answer = await client.post("/v1/jobs:retry", json={"task": "shaky"})
    assert answer.json()["changed"] == 3
    assert {job.state for job in await server.app.jobs.list()} == {"ready"}


async def test_a_unique_job_is_submitted_once_and_the_answer_says_so(server: LiveServer):
    client = await server.client("operator")
    body = {"task": "index", "payload": {"n": 1}, "unique": "waiting"}
    first = await client.post("/v1/jobs", json=body)
    again = await client.post("/v1/jobs", json=body)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["id"] == first.json()["id"]
    assert (again.json()["existed"], again.json()["duplicate"]) == (True, True)
    assert "existed" not in first.json()
    refused = await client.post("/v1/jobs", json={**body, "unique_conflict": "refuse"})
    assert (refused.status_code, refused.json()["code"]) == (409, "duplicate-job")
    assert refused.json()["subject"] == first.json()["id"]
    wrong = await client.post("/v1/jobs", json={**body, "debounce": 5})
    assert (wrong.status_code, wrong.json()["fields"][0]["name"]) == (422, "debounce")
    assert (await client.post("/v1/jobs", json={**body, "unique": "now"})).status_code in (400, 422)


async def test_lines_of_a_bulk_may_be_unique(server: LiveServer):
    client = await server.client("operator")
    lines = (
        b'{"task": "a", "payload": {"n": 1}, "unique": "waiting"}\n'
        b'{"task": "a", "payload": {"n": 1}}\n'
        b'{"task": "a", "payload": {"n": 1}, "unique": 60, "unique_conflict": "refuse"}\n'
        b'{"task": "a", "payload": {"n": 1}, "unique": "waiting"}\n'
    )
    answer = await client.post(
        "/v1/jobs:bulk", content=lines, headers={"content-type": "application/x-ndjson"}
    )
    summary = answer.json()
    assert (summary["stored"], summary["existed"], summary["refused"]) == (2, 1, 1)
    assert summary["errors"][0]["code"] == "duplicate-job"
