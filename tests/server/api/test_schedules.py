"""Schedules, queues, nodes, dead letters, events and logs over HTTP."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from rota.core.time.schedule import Calendar, Cron, RRule
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.operations import schedule_reads
from rota.server import calculation
from tests.support.api import fail_jobs, submit
from tests.support.broken_schedules import add_broken
from tests.support.server_fixtures import LiveServer

NIGHTLY = {"task": "report", "cron": "0 3 * * *", "tz": "Europe/Paris", "payload": {"kind": "all"}}


async def create(client, name="nightly", **said):
    answer = await client.post("/v1/schedules", json={"name": name, **NIGHTLY, **said})
    assert answer.status_code == 201, answer.text
    return answer


async def test_a_schedule_is_created_read_changed_and_deleted(server: LiveServer):
    client = await server.client("operator")
    made = await create(client)
    assert made.json()["in_words"]
    assert made.json()["spec"]["tz"] == "Europe/Paris"
    by_id = await client.get(made.headers["location"])
    assert by_id.json()["name"] == "nightly"
    again = await client.post("/v1/schedules", json={"name": "nightly", **NIGHTLY})
    assert (again.status_code, again.json()["code"]) == (409, "exists")
    changed = await client.put("/v1/schedules/nightly", json={**NIGHTLY, "cron": "0 4 * * *"})
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    assert (await client.delete("/v1/schedules/nightly")).status_code == 204
    assert (await client.get("/v1/schedules/nightly")).status_code == 404


async def test_a_schedule_starts_a_workflow(server: LiveServer):
    client = await server.client("operator")
    step = StepDefinition(name="a", task="a", arguments={"day": {"$input": "day"}})
    await server.app.workflows.put(Graph(Definition(name="orders", steps=(step,))))
    orders = {"name": "orders", "workflow": "orders", "cron": "@daily"}
    made = await client.post("/v1/schedules", json={**orders, "payload": {"day": "x"}})
    assert (made.status_code, made.json()["workflow"]) == (201, "orders")
    spec = made.json()["spec"]
    unchanged = await client.put(f"/v1/schedules/{spec.pop('name')}", json=spec)
    assert (unchanged.status_code, unchanged.json()["version"]) == (200, 1), unchanged.text
    for wrong in ({**orders, "task": "a"}, orders, {"name": "none", "cron": "@daily"}):
        answer = await client.post("/v1/schedules", json=wrong)
        assert answer.status_code == 422, answer.text
    assert [each.name for each in await server.app.schedules.list()] == ["orders"]


async def test_an_answer_can_be_sent_back_as_a_change(server: LiveServer):
    client = await server.client("operator")
    await create(client)
    spec = (await client.get("/v1/schedules/nightly")).json()["spec"]
    spec.pop("name")
    unchanged = await client.put("/v1/schedules/nightly", json=spec)
    assert (unchanged.status_code, unchanged.json()["version"]) == (200, 1), unchanged.text


@pytest.mark.parametrize(
    "said",
    [
        {"cron": "0 3 * *"},
        {"cron": "0 3 * * *", "every": "1h"},
        {"every": "soon"},
        {"calendar": "whenever"},
        {"rrule": "FREQ=NEVER"},
        {},
        {"cron": "@daily", "tz": "Mars/Olympus"},
        {"cron": "@daily", "starts": "0001-01-01T00:00:00Z"},
        {"cron": "@daily", "options": {"priority": "high"}},
        {"cron": "@daily", "colour": "blue"},
        {"cron": "@daily", "catch_up": {"latest": "1h"}},  # as files say it
        {"cron": "@daily", "anchor": "2026-03-01T00:00:00Z"},
        {"rule": {"type": "cron", "expression": "@daily", "tz": "Europe/Paris"}},
        {"cron": "@daily", "max_running": 0},
        {"cron": "@daily", "exclude": ["no-such-calendar"]},
    ],
)
async def test_a_rule_that_makes_no_sense_is_refused(server: LiveServer, said):
    client = await server.client("operator")
    answer = await client.post("/v1/schedules", json={"name": "s", "task": "t", **said})
    assert answer.status_code in (400, 422), answer.text
    assert await server.app.schedules.list() == []


async def test_a_change_of_what_has_changed_meanwhile_is_refused(server: LiveServer):
    client = await server.client("operator")
    first = (await create(client)).headers["etag"]
    later = {**NIGHTLY, "cron": "0 5 * * *"}
    second = await client.put("/v1/schedules/nightly", json=later, headers={"If-Match": first})
    assert second.status_code == 200
    stale = await client.put(
        "/v1/schedules/nightly", json={**NIGHTLY, "cron": "0 6 * * *"}, headers={"If-Match": first}
    )
    assert (stale.status_code, stale.headers["etag"]) == (412, second.headers["etag"])
    gone = await client.delete("/v1/schedules/nightly", headers={"If-Match": first})
    assert gone.status_code == 412
    new = await client.put("/v1/schedules/other", json=NIGHTLY, headers={"If-Match": "*"})
    assert new.status_code == 412
    taken = await client.put("/v1/schedules/nightly", json=later, headers={"If-None-Match": "*"})
    assert taken.status_code == 412
    assert (await server.app.schedules.get("nightly")).version == 2


async def test_of_racing_changes_with_one_etag_one_wins(server: LiveServer):
    client = await server.client("operator")
    tag = (await create(client)).headers["etag"]
    answers = await asyncio.gather(
        *(
            client.put(
                "/v1/schedules/nightly", json={**NIGHTLY, "cron": f"{minute} 3 * * *"},
                headers={"If-Match": tag},
            )
            for minute in range(1, 9)
        )
    )  # fmt: skip
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 7


async def test_one_that_was_made_anew_is_another_one(server: LiveServer):
    client = await server.client("operator")
    old = (await create(client)).headers["etag"]
    await client.delete("/v1/schedules/nightly")
    await create(client)
    answer = await client.delete("/v1/schedules/nightly", headers={"If-Match": old})
    assert answer.status_code == 412


async def test_the_verbs_of_a_schedule(server: LiveServer):
    client = await server.client("operator")
    await create(client)
    path = "/v1/schedules/nightly"
    until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    paused = (await client.post(f"{path}/pause", json={"until": until})).json()
    assert paused["paused_until"]
    assert (await client.post(f"{path}/pause")).json()["paused_at"]
    past = await client.post(f"{path}/pause", json={"until": "2001-01-01T00:00:00Z"})
    assert past.status_code == 422
    assert (await client.post(f"{path}/resume")).json()["paused_at"] is None
    triggered = await client.post(f"{path}/trigger")
    assert triggered.status_code == 201
    job = (await client.get(triggered.headers["location"])).json()
    assert job["payload"] == {"kind": "all"}
    preview = (await client.get(f"{path}/preview", params={"count": 3})).json()
    assert len(preview["occurrences"]) == 3
    ledger = (await client.get(f"{path}/occurrences")).json()
    assert [row["reason"] for row in ledger["items"]] == ["triggered"]
    assert ledger["items"][0]["job_id"] == job["id"]
    assert (await client.get(f"{path}/audit")).json()["clean"] is True
    jobs = (await client.get("/v1/jobs", params={"schedule": "nightly"})).json()["items"]
    assert [one["id"] for one in jobs] == [job["id"]]


async def test_a_backfill_counts_first_and_then_runs(server: LiveServer):
    client = await server.client("operator")
    await create(client)
    now = datetime.now(UTC)
    said = {"first": (now - timedelta(days=5)).isoformat(), "end": now.isoformat()}
    dry = await client.post("/v1/schedules/nightly/backfill", json={**said, "dry_run": True})
    assert dry.json() == {"count": 5, "dry_run": True}
    assert (await client.get("/v1/jobs")).json()["items"] == []
    done = await client.post("/v1/schedules/nightly/backfill", json=said)
    assert done.json() == {"count": 5, "dry_run": False}
    assert len((await client.get("/v1/jobs")).json()["items"]) == 5
    pages, cursor = [], {}
    while True:  # the ledger in pages
        page = (
            await client.get(
                "/v1/schedules/nightly/occurrences",
                params={"first": said["first"], "end": said["end"], "limit": 2, **cursor},
            )
        ).json()
        pages.append([row["due_at"] for row in page["items"]])
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert [len(page) for page in pages] == [2, 2, 1]
    assert sorted({due for page in pages for due in page}) == [d for page in pages for d in page]
    hidden = (await client.get("/v1/schedules")).json()["items"]
    assert [one["name"] for one in hidden] == ["nightly"]


async def test_too_long_a_stretch_of_time_is_refused(server: LiveServer):
    client = await server.client("operator")
    await client.post("/v1/schedules", json={"name": "often", "task": "t", "every": "1s"})
    said = {"first": "2020-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z", "dry_run": True}
    answer = await client.post("/v1/schedules/often/backfill", json=said)
    assert (answer.status_code, answer.json()["code"]) == (422, "too-much")
    params = {"first": "2020-01-01T00:00:00Z"}
    answer = await client.get("/v1/schedules/often/audit", params=params)
    assert answer.json()["code"] == "too-much"


async def test_a_rule_is_previewed_without_being_saved(server: LiveServer):
    viewer = await server.client("viewer")
    said = {"cron": "30 2 * * *", "tz": "Europe/Paris", "count": 4, "after": "2026-03-27T00:00:00Z"}
    answer = await viewer.post("/v1/schedules:preview", json=said)
    assert answer.status_code == 200, answer.text
    found = answer.json()["occurrences"]
    assert [one["due_at"][:10] for one in found][:2] == ["2026-03-27", "2026-03-28"]
    assert any(one["mark"] for one in found)  # the night in which 2:30 doesn't exist
    assert await server.app.schedules.list() == []


async def test_lint_warns(server: LiveServer):
    client = await server.client("operator")
    await create(client, cron="30 2 * * *")
    warnings = (await client.get("/v1/schedules:lint")).json()["warnings"]
    assert "gap" in {warning["code"] for warning in warnings}


async def test_schedules_are_listed_in_pages_and_by_filter(server: LiveServer):
    client = await server.client("operator")
    for number in range(5):
        await create(client, f"s{number}", tags=["odd"] if number % 2 else [])
    await client.post("/v1/schedules/s3/pause")
    seen, cursor = [], {}
    while True:
        page = (await client.get("/v1/schedules", params={"limit": 2, **cursor})).json()
        seen += [one["name"] for one in page["items"]]
        if page["next"] is None:
            break
        cursor = {"cursor": page["next"]}
    assert seen == ["s0", "s1", "s2", "s3", "s4"]

    async def found(**params):
        items = (await client.get("/v1/schedules", params=params)).json()["items"]
        return [one["name"] for one in items]

    assert await found(tag="odd") == ["s1", "s3"]
    assert await found(paused=True) == ["s3"]
    assert await found(text="S4") == ["s4"]
    assert await found(task="nothing") == []


async def test_queues_are_listed_paused_and_resumed(server: LiveServer):
    client = await server.client("operator")
    await submit(client, queue="mail")
    await submit(client, queue="mail", delay=3600)
    (mail,) = (await client.get("/v1/queues")).json()["items"]
    assert (mail["name"], mail["ready"], mail["scheduled"]) == ("mail", 1, 1)
    assert mail["lag"] >= 0
    assert (await client.post("/v1/queues/mail/pause")).json()["paused_at"]
    assert (await client.post("/v1/queues/mail/resume")).json()["paused_at"] is None
    assert (await client.get("/v1/queues/mail")).json()["ready"] == 1
    assert (await client.post("/v1/queues/nowhere/pause")).status_code == 404
    assert len((await client.get("/v1/queues")).json()["items"]) == 1


async def test_nodes_are_listed_with_their_shards(server: LiveServer):
    client = await server.client("viewer")
    schema = server.app.settings.schema
    async with (await server.app.store()).database.connection() as c:
        id = await c.fetchval(
            f"insert into {schema}.node (id, namespace, name, host, pid, version, roles, expires_at,"
            " queues, capabilities, tasks, slots) values (gen_random_uuid(), 'default', 'n1', 'h', 1,"
            " '1', '{scheduler}', now() + interval '1 hour', '{}', '{}', '{}', 4) returning id"
        )
        await c.execute(
            f"update {schema}.shard set owner = $1, expires_at = now() + interval '1 hour'"
            " where shard < 10", id,
        )  # fmt: skip
    answer = (await client.get("/v1/nodes")).json()
    (node,) = answer["items"]
    assert (node["name"], node["shards"]) == ("n1", 10)
    assert answer["unowned_shards"] == answer["shards"] - 10
    assert (await client.get(f"/v1/nodes/{id}")).json()["shards"] == 10


async def test_dead_letters_are_grouped_retried_and_discarded(server: LiveServer):
    client = await server.client("operator")
    for number in range(5):
        await fail_jobs(server.app, [await submit(client, task="shaky")], f"order {number} is lost")
    await fail_jobs(server.app, [await submit(client, task="shaky")], "no such table")
    await fail_jobs(server.app, [await submit(client, task="other")], "order 7 is lost")
    groups = (await client.get("/v1/dead")).json()["items"]
    assert (groups[0]["task"], groups[0]["count"]) == ("shaky", 5)
    assert len(groups) == 3
    path = f"/v1/dead/{groups[0]['fingerprint']}"
    dry = (await client.post(f"{path}/retry", json={"dry_run": True})).json()
    assert dry == {"dry_run": True, "matched": 5, "changed": 0, "more": False, "bulk": None}
    some = (await client.post(f"{path}/retry", json={"limit": 2})).json()
    assert (some["changed"], some["more"]) == (2, True)
    assert (await client.post(f"{path}/discard")).json()["changed"] == 3
    assert (await client.post(f"{path}/discard")).status_code == 404
    states = sorted(job.state for job in await server.app.jobs.list(task="shaky"))
    assert states == ["cancelled"] * 3 + ["failed"] + ["ready"] * 2


# -- what a request may cost


LONG = {
    "cron": ",".join(["1"] * 50_000) + " * * * *",
    "calendar": "every " + ",".join(["monday"] * 5_000) + " at 10:00",
    "rrule": "FREQ=DAILY;BYHOUR=" + ",".join(["1"] * 50_000),
}
RULES = {"cron": Cron, "calendar": Calendar, "rrule": RRule}


@pytest.mark.parametrize("kind", LONG)
async def test_a_rule_is_limited_in_length_however_it_is_said(server: LiveServer, kind: str):
    viewer, operator = await server.client("viewer"), await server.client("operator")
    as_rule = msgspec.to_builtins(RULES[kind](LONG[kind]))
    for said in ({kind: LONG[kind]}, {"rule": as_rule}):
        previewed = await viewer.post("/v1/schedules:preview", json=said)
        assert previewed.status_code in (400, 422), previewed.text
        assert len(previewed.text) < 2_000
        stored = await operator.post("/v1/schedules", json={"name": "x", "task": "t", **said})
        assert stored.status_code in (400, 422), stored.text


@pytest.mark.parametrize(
    "said",
    [
        {"cron": "*/" + "9" * 400 + " * * * *"},
        {"cron": "1-" + "9" * 480 + " * * * *"},
        {"rrule": "FREQ=YEARLY;INTERVAL=100000;BYWEEKNO=53"},
        {"rule": {"type": "cron", "expression": "*/" + "9" * 5_000 + " * * * *"}},
        {"every": 1e300},
        {"cron": "* * * * *", "after": "9998-12-31T23:59:59Z"},
    ],
)
async def test_absurd_numbers_in_a_rule_are_an_answer_and_no_failure(server: LiveServer, said):
    viewer = await server.client("viewer")
    answer = await viewer.post("/v1/schedules:preview", json=said)
    assert answer.status_code in (200, 400, 422), answer.text


async def test_a_preview_that_takes_long_is_computed_beside_the_loop_with_a_budget(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    """While one is computed, held in its thread, everybody else is answered."""
    begun, go_on = threading.Event(), threading.Event()
    compile_ = schedule_reads.compile_schedule

    def held(*given: Any) -> Any:
        begun.set()
        assert go_on.wait(60)
        return compile_(*given)

    monkeypatch.setattr(schedule_reads, "compile_schedule", held)
    monkeypatch.setattr(calculation, "BUDGET", -1.0)
    viewer = await server.client("viewer")
    rare = {"rrule": "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29;BYDAY=MO", "count": 1000}
    asked = asyncio.create_task(viewer.post("/v1/schedules:preview", json=rare))
    try:
        await asyncio.to_thread(begun.wait, 60)
        assert (await viewer.get("/healthz")).status_code == 200
        assert not asked.done()
    finally:
        go_on.set()
    answer = await asked
    assert (answer.status_code, answer.json()["code"]) == (422, "too-much")


async def test_schedules_that_cannot_be_read_are_listed_as_broken_beside_the_others(
    server: LiveServer,
):
    client = await server.client("operator")
    await create(client, "good")
    names = await add_broken(server.app, "report")
    for filters in ({}, {"text": "o"}):
        listed = (await client.get("/v1/schedules", params=filters)).json()["items"]
        assert {"good", "zone-gone", "not-an-object"} <= {one["name"] for one in listed}
    assert (await client.get("/v1/schedules", params={"tag": "x"})).status_code == 200
    broken = {one["name"]: one["problem"] for one in listed if one["spec"] is None}
    assert "Mars/Olympus_Mons" in broken["zone-gone"]
    assert "'blackout'" in broken["unknown-field"]
    assert (await client.get("/v1/schedules/good")).status_code == 200
    warned = (await client.get("/v1/schedules:lint")).json()["warnings"]
    assert set(broken) <= {one["schedule"] for one in warned if one["code"] == "broken"}
    for name in names:
        assert (await client.get(f"/v1/schedules/{name}")).status_code == 200
        for path in ("preview", "audit", "occurrences"):
            answer = await client.get(f"/v1/schedules/{name}/{path}")
            assert answer.status_code in (200, 422), answer.text
        answer = await client.post(f"/v1/schedules/{name}/trigger")
        assert answer.status_code in (201, 422, 400), answer.text
        mended = await client.put(f"/v1/schedules/{name}", json=NIGHTLY)
        assert (mended.status_code, mended.json()["problem"]) == (200, None), mended.text
    assert (await client.delete("/v1/schedules/zone-gone")).status_code == 204
