"""Workers over HTTP: the calls of their protocol, and what each promises when things go wrong."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from rota import App, SubmitError
from tests.support.api import query
from tests.support.fake_node import FakeNode
from tests.support.remote_worker import RemoteWorker, submit, ticket, with_guarantee
from tests.support.server_fixtures import LiveServer, serving

# -- who they are


async def test_a_worker_is_a_node_like_any_other(server: LiveServer):
    worker = await RemoteWorker.register(server, "work", slots=7, version="1.2", queues=["b", "a"])
    [node] = await server.app.nodes.list()
    assert (str(node.id), node.remote, node.roles, node.slots) == (worker.id, True, ("worker",), 7)
    assert (node.queues, node.version, node.state) == (("a", "b"), "1.2", "live")
    viewer = await server.client("viewer")
    assert (await viewer.get(f"/v1/nodes/{worker.id}")).json()["remote"] is True


async def test_a_registration_can_be_repeated_under_the_same_id(server: LiveServer):
    id = str(uuid4())
    assert (await RemoteWorker.register(server, id=id)).id == id
    assert (await RemoteWorker.register(server, id=id)).id == id
    assert len(await server.app.nodes.list()) == 1


async def test_nobody_becomes_another_s_worker_or_a_node_by_its_id(server: LiveServer):
    theirs = await RemoteWorker.register(server, namespace="theirs")
    database = (await server.app.store()).database
    node = await FakeNode(database, server.app.settings).register()
    for taken in (theirs.id, str(node.id)):
        client = await server.client("worker")
        said = {"name": "x", "tasks": ["work"], "id": taken}
        answer = await client.post("/v1/workers", json=said)
        assert (answer.status_code, answer.json()["code"]) == (409, "worker-id-taken")
        answer = await client.post(f"/v1/workers/{taken}/heartbeat", json={})
        assert answer.status_code == 404


@pytest.mark.parametrize(
    "tasks",
    [["rota.command"], [{"name": "pay", "guarantee": "exactly_once"}], [], ["not a name"]],
)
async def test_some_tasks_are_not_for_them(server: LiveServer, tasks: list[Any]):
    client = await server.client("worker")
    answer = await client.post("/v1/workers", json={"name": "x", "tasks": tasks})
    assert answer.status_code in (400, 422), answer.text
    assert await server.app.nodes.list() == []


async def test_what_it_says_of_its_tasks_is_what_submits_get(server: LiveServer):
    retry = {"max_attempts": 2, "base": 7, "jitter": 0}
    said = {"name": "work", "queue": "slow", "priority": 3, "timeout": 9, "retry": retry}
    worker = await RemoteWorker.register(server, said, "other")
    job = await server.app.jobs.get(await submit(server))
    assert (job.queue, job.priority, job.max_attempts, job.timeout) == ("slow", 3, 2, 9)
    claimed = await worker.claim_one()
    assert (
        await worker.finish(claimed, "failed", error={"type": "Boom", "message": "no"})
        == "accepted"
    )
    job = await server.app.jobs.get(job.id)
    assert job.state == "scheduled"
    assert (job.due_at - job.attempts[0].ended_at).total_seconds() == pytest.approx(7)


# -- claiming and finishing


async def test_a_job_is_claimed_and_finished_with_its_result(server: LiveServer):
    worker = await RemoteWorker.register(server)
    id = await submit(server, payload={"n": 1}, key="k", headers={"h": 1})
    job = await worker.claim_one()
    assert (job["job"], job["task"], job["payload"]) == (str(id), "work", {"n": 1})
    assert (job["attempt"], job["key"], job["headers"]) == (1, "k", {"h": 1})
    assert (await server.app.jobs.get(id)).node == UUID(worker.id)
    assert await worker.claim() == []
    assert await worker.finish(job, result={"done": [1.5, None]}) == "accepted"
    stored = await server.app.jobs.get(id)
    assert (stored.state, stored.result) == ("succeeded", {"done": [1.5, None]})
    assert await query(server, "select * from {}.batch") == []


async def test_a_batch_is_claimed_in_rank_order_across_queues_and_finished_together(
    server: LiveServer,
):
    worker = await RemoteWorker.register(server, capabilities=["gpu"])
    late = await submit(server, queue="a")
    urgent = await submit(server, queue="b", priority=10)
    needy = await submit(server, needs=["gpu"], priority=5)
    await submit(server, needs=["tpu"], priority=20)
    jobs = await worker.claim()
    assert [job["job"] for job in jobs] == [str(urgent), str(needy), str(late)]
    items = [{**ticket(job), "outcome": "succeeded"} for job in jobs]
    foreign = {"job": str(uuid4()), "token": 1, "outcome": "succeeded"}
    answers = (await worker.told("finish", {"items": [*items, foreign]}))["items"]
    assert [answer["answer"] for answer in answers] == ["accepted"] * 3 + ["stale"]


async def test_it_gets_only_what_it_serves(server: LiveServer):
    worker = await RemoteWorker.register(server, "work", queues=["mine"])
    await submit(server, queue="other")
    await submit(server, "unknown", queue="mine")
    paused = await submit(server, queue="mine")
    await server.app.queues.pause("mine")
    assert await worker.claim() == []
    await server.app.queues.resume("mine")
    assert [job["job"] for job in await worker.claim()] == [str(paused)]


async def test_a_failure_is_tried_again_until_the_attempts_are_used_up(server: LiveServer):
    retry = {"max_attempts": 2, "base": 0, "cap": 0}
    worker = await RemoteWorker.register(server, {"name": "work", "retry": retry})
    id = await submit(server)
    error = {"type": "Boom", "message": "no luck", "traceback": "line 1"}
    assert await worker.finish(await worker.claim_one(), "failed", error=error) == "accepted"
    second = await worker.claim_one()
    assert second["attempt"] == 2
    assert await worker.finish(second, "failed", error=error) == "accepted"
    job = await server.app.jobs.get(id)
    assert (job.state, job.error.type, job.error.message) == ("failed", "Boom", "no luck")
    assert [attempt.outcome for attempt in job.attempts] == ["raised", "raised"]
    kinds = {row[0] for row in await query(server, "select kind from {}.event")}
    assert kinds == {"failed", "dead_lettered"}


async def test_what_its_policy_forbids_and_what_is_fatal_is_not_tried_again(server: LiveServer):
    retry = {"never_on": ["Hopeless"]}
    worker = await RemoteWorker.register(server, {"name": "work", "retry": retry})
    for said in ({"error": {"type": "Hopeless"}}, {"fatal": True}):
        id = await submit(server)
        assert await worker.finish(await worker.claim_one(), "failed", **said) == "accepted"
        assert (await server.app.jobs.get(id)).state == "failed"


async def test_it_can_say_when_to_try_again(server: LiveServer):
    worker = await RemoteWorker.register(server)
    id = await submit(server)
    assert await worker.finish(await worker.claim_one(), "retry_after", seconds=3600) == "accepted"
    job = await server.app.jobs.get(id)
    assert job.state == "scheduled"
    assert (job.due_at - job.attempts[0].ended_at).total_seconds() == pytest.approx(3600)
    without = {**ticket({"job": str(id), "token": 1}), "outcome": "retry_after"}
    assert (await worker.ask("finish", {"items": [without]})).status_code == 422


async def test_what_is_released_is_as_if_it_had_never_been_claimed(server: LiveServer):
    worker = await RemoteWorker.register(server)
    id = await submit(server)
    for begun in (True, False):
        assert await worker.finish(await worker.claim_one(), "released", begun=begun) == "accepted"
        job = await server.app.jobs.get(id)
        assert (job.state, job.attempt) == ("ready", 0)


async def test_at_most_once_is_marked_when_it_is_handed_out_and_never_run_twice(server: LiveServer):
    worker = await RemoteWorker.register(server)
    id = await with_guarantee(server, "at_most_once")
    unbegun = await worker.claim_one()
    [row] = await query(server, "select started_at from {}.present where id = $1", id)
    assert row[0] is not None
    assert await worker.finish(unbegun, "released", begun=False) == "accepted"
    assert await worker.finish(await worker.claim_one(), "released") == "accepted"
    job = await server.app.jobs.get(id)
    assert (job.state, job.error.type) == ("failed", "Interrupted")


async def test_exactly_once_is_not_for_them_and_explain_says_so(server: LiveServer):
    worker = await RemoteWorker.register(server)
    id = await with_guarantee(server, "exactly_once")
    plain = await submit(server)
    assert [job["job"] for job in await worker.claim()] == [str(plain)]
    told = await server.app.jobs.explain(id)
    assert told.code == "exactly_once_needs_a_node"
    assert "workers over HTTP" in told.sentence


async def test_a_result_that_is_too_large_is_dropped_and_the_job_stays_done(
    make_app: Callable[..., App],
):
    async with serving(make_app(port=0, max_result_bytes=100)) as server:
        worker = await RemoteWorker.register(server)
        id = await submit(server)
        assert await worker.finish(await worker.claim_one(), result="x" * 200) == "accepted"
        job = await server.app.jobs.get(id)
        assert (job.state, job.result, job.error.type) == ("succeeded", None, "ResultDropped")


async def test_one_that_seems_to_kill_its_workers_is_handed_out_alone(server: LiveServer):
    worker = await RemoteWorker.register(server)
    suspects = [await submit(server), await submit(server)]
    innocent = await submit(server)
    await query(server, "update {}.present set crashes = 2 where id = any($1)", suspects)
    first = await worker.claim()
    assert [job["job"] for job in first] == [str(suspects[0]), str(innocent)]
    assert await worker.claim() == []
    await worker.finish(first[0])
    assert [job["job"] for job in await worker.claim()] == [str(suspects[1])]


async def test_a_schedule_s_overlap_is_asked_before_its_job_is_handed_out(server: LiveServer):
    worker = await RemoteWorker.register(server)
    await server.app.schedule("nightly", "work", cron="0 3 * * *", overlap="skip")
    ids = [await submit(server), await submit(server)]
    [row] = await query(server, "select id from {}.schedule")
    await query(server, "update {}.present set schedule_id = $1", row[0])
    assert [job["job"] for job in await worker.claim()] == [str(ids[0])]
    assert (await server.app.jobs.get(ids[1])).state == "skipped"


async def test_nothing_is_handed_out_before_it_is_due(server: LiveServer):
    worker = await RemoteWorker.register(server)
    early = await submit(server, delay=0.7)
    assert (await server.app.jobs.get(early)).state == "ready"  # released, but not due
    due = await submit(server)
    assert [job["job"] for job in await worker.claim()] == [str(due)]
    job = await worker.claim_one()
    now = await (await server.app.store()).now()
    assert now >= (await server.app.jobs.get(early)).due_at
    assert (job["job"], job["attempt"]) == (str(early), 1)


# -- tokens


async def test_only_who_holds_a_job_can_finish_it(server: LiveServer):
    worker = await RemoteWorker.register(server)
    other = await RemoteWorker.register(server)
    id = await submit(server)
    job = await worker.claim_one()
    assert await other.finish(job) == "stale"
    assert await worker.finish({**job, "token": job["token"] + 1}) == "stale"
    for what, said in (("progress", {"done": 1}), ("logs", {"first": 1, "lines": ["x"]})):
        assert await other.say(what, job, **said) == "stale"
    stored = await server.app.jobs.get(id)
    assert (stored.state, stored.progress) == ("running", None)
    assert await worker.finish(job) == "accepted"


@pytest.mark.parametrize(
    ("outcome", "said"),
    [("succeeded", {}), ("failed", {}), ("failed", {"fatal": True}), ("released", {}),
     ("retry_after", {"seconds": 0}), ("retry_after", {"seconds": 60})],
)  # fmt: skip
async def test_a_finish_can_be_repeated(server: LiveServer, outcome: str, said: dict[str, Any]):
    worker = await RemoteWorker.register(server)
    id = await submit(server)
    job = await worker.claim_one()
    assert await worker.finish(job, outcome, **said) == "accepted"
    before = await server.app.jobs.get(id)
    assert await worker.finish(job, outcome, **said) == "accepted"
    assert await server.app.jobs.get(id) == before


async def test_a_repeated_claim_gets_the_same_jobs_and_fences_the_first_answer(server: LiveServer):
    worker = await RemoteWorker.register(server)
    await submit(server)
    await with_guarantee(server, "at_most_once")
    first = await worker.claim(request="again")
    await submit(server)
    second = await worker.claim(request="again", most=1)
    assert [job["job"] for job in second] == [job["job"] for job in first]
    assert all(b["token"] > a["token"] for a, b in zip(first, second, strict=True))
    assert [job["attempt"] for job in second] == [1, 1]
    assert [await worker.finish(job) for job in first] == ["stale", "stale"]
    assert [await worker.finish(job) for job in second] == ["accepted", "accepted"]
    assert len(await worker.claim(request="again")) == 1  # all of it is done: a new claim


async def test_a_try_that_was_overtaken_by_its_repetition_gets_nothing(server: LiveServer):
    worker = await RemoteWorker.register(server)
    await submit(server)
    store = server.context.remote_workers("default").store
    overtaken, latest = await store.next_try(), await store.next_try()
    assert len(await store.claim(UUID(worker.id), "r", latest, 10)) == 1
    await submit(server)
    assert await store.claim(UUID(worker.id), "r", overtaken, 10) == []


# -- what they say of their tasks' arguments


SIGNATURE = {
    "arguments": {
        "width": {"required": True, "types": ["integer"]},
        "format": {"types": ["string"], "values": ["png", "webp"]},
    }
}
UNFIT = {
    "{}": "'width' is missing", '{"width": "wide"}': "expected integer, got string",
    '{"width": 1, "format": "gif"}': "expected one of png, webp",
    '{"width": 1, "height": 2}': "takes no argument 'height'",
}  # fmt: skip


@pytest.mark.parametrize("payload", UNFIT)
async def test_what_does_not_fit_the_signature_that_a_worker_told_is_refused(
    server: LiveServer, payload: str
):
    await RemoteWorker.register(server, {"name": "resize", "signature": SIGNATURE}, "other")
    client = await server.client("operator")
    body = {"task": "resize", "payload": json.loads(payload)}
    answer = await client.post("/v1/jobs", json=body)
    assert answer.status_code == 422, answer.text
    assert UNFIT[payload] in answer.json()["detail"]
    with pytest.raises(SubmitError, match=UNFIT[payload]):
        await query(server, "select {}.submit('resize', $1)", payload)
    body["payload"] = {"width": 1, "format": "png"}
    answer = await client.post("/v1/jobs", json=body)
    assert (answer.status_code, answer.json().get("warnings", [])) == (201, []), answer.text


async def test_a_task_without_a_signature_takes_anything_also_beside_one_that_has_one(
    server: LiveServer,
):
    other = {"name": "other"}
    await RemoteWorker.register(server, {"name": "resize", "signature": SIGNATURE}, other)
    client = await server.client("operator")
    answer = await client.post("/v1/jobs", json={"task": "other", "payload": {"any": 1}})
    assert answer.status_code == 201, answer.text
    # Another worker that says nothing of `resize` may take whatever it is given.
    await RemoteWorker.register(server, "resize")
    answer = await client.post("/v1/jobs", json={"task": "resize", "payload": {"any": 1}})
    assert answer.status_code == 201, answer.text


async def test_a_signature_is_of_its_namespace_alone(server: LiveServer):
    task = {"name": "resize", "signature": SIGNATURE}
    await RemoteWorker.register(server, task, namespace="theirs")
    client = await server.client("operator")
    answer = await client.post("/v1/jobs", json={"task": "resize", "payload": {}})
    assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    "signature",
    [{"arguments": {"a": {"types": ["int"]}}}, {"arguments": {"a": {"required": 1}}}, {"args": {}},
     {"arguments": {"": {}}}, {"arguments": {"a\0": {}}}, {"arguments": {"a": {"values": [{}]}}}],
)  # fmt: skip
async def test_a_signature_that_makes_no_sense_is_refused(server: LiveServer, signature: Any):
    client = await server.client("worker")
    said = {"name": "x", "tasks": [{"name": "resize", "signature": signature}]}
    answer = await client.post("/v1/workers", json=said)
    assert answer.status_code == 400, answer.text
    assert await server.app.nodes.list() == []


# -- what they say meanwhile


async def test_progress_is_kept(server: LiveServer):
    worker = await RemoteWorker.register(server)
    id = await submit(server)
    job = await worker.claim_one()
    assert await worker.say("progress", job, done=3, total=10, message="half") == "accepted"
    progress = (await server.app.jobs.get(id)).progress
    assert progress == {"done": 3, "total": 10, "message": "half"}


async def test_lines_are_kept_once_and_in_order(server: LiveServer):
    worker = await RemoteWorker.register(server)
    id = await submit(server)
    job = await worker.claim_one()
    assert await worker.say("logs", job, first=1, lines=["one", "two"]) == "accepted"
    assert await worker.say("logs", job, first=1, lines=["one", "two", "three"]) == "accepted"
    assert await worker.say("logs", job, first=4, lines=["four"], stream="stderr") == "accepted"
    lines = [line async for line in server.app.jobs.logs(id)]
    assert [line.text for line in lines] == ["one", "two", "three", "four"]
    assert [line.stream for line in lines] == ["stdout"] * 3 + ["stderr"]
    assert {line.attempt for line in lines} == {1}


async def test_of_too_many_lines_the_first_are_kept_and_a_mark(make_app: Callable[..., App]):
    async with serving(make_app(port=0, log_bytes=1000)) as server:
        worker = await RemoteWorker.register(server)
        id = await submit(server)
        job = await worker.claim_one()
        for first in range(1, 40, 10):
            lines = ["x" * 68] * 10
            assert await worker.say("logs", job, first=first, lines=lines) == "accepted"
        kept = [line async for line in server.app.jobs.logs(id)]
        assert [line.stream for line in kept] == ["stdout"] * 10 + ["mark"]
        assert "1,000 bytes" in kept[-1].text


# -- encrypted namespaces


async def test_encrypted_jobs_are_opened_for_them_and_what_they_say_is_sealed(
    make_app: Callable[..., App],
):
    keys = "one:" + base64.b64encode(bytes(range(32))).decode()
    async with serving(make_app(port=0, encryption_keys=keys)) as server:
        await query(server, "insert into {}.namespace (name, encrypted) values ('default', true)")
        worker = await RemoteWorker.register(server)
        secret = "zanzibar"
        id = await submit(server, payload={"word": secret})
        job = await worker.claim_one()
        assert job["payload"] == {"word": secret}
        assert await worker.say("progress", job, done=1, message=secret) == "accepted"
        assert await worker.say("logs", job, first=1, lines=[secret]) == "accepted"
        error = {"type": "Boom", "message": secret, "traceback": secret}
        assert await worker.finish(job, "retry_after", seconds=0, error=error) == "accepted"
        assert await worker.finish(await worker.claim_one(), result=secret) == "accepted"
        stored = await server.app.jobs.get(id)
        assert (stored.result, stored.attempts[0].error.message) == (secret, secret)
        assert [line.text async for line in server.app.jobs.logs(id)] == [secret]
        for table in ("past", "job_log", "event"):
            rows = await query(server, f"select to_jsonb(t)::text from {{}}.{table} as t")
            assert rows
            assert secret not in str(rows), table


async def test_a_server_without_the_key_hands_out_nothing_that_is_encrypted(
    make_app: Callable[..., App],
):
    keys = "one:" + base64.b64encode(bytes(range(32))).decode()
    app = make_app(encryption_keys=keys)
    async with serving(make_app(port=0)) as keyless:
        await query(keyless, "insert into {}.namespace (name, encrypted) values ('default', true)")
        id = (await app.submit("work", {"word": "zanzibar"})).id
        worker = await RemoteWorker.register(keyless)
        assert await worker.claim() == []
        job = await app.jobs.get(id)
        assert (job.state, job.attempt) == ("ready", 0)


# -- walls


async def test_another_tenant_s_worker_is_like_none(server: LiveServer):
    worker = await RemoteWorker.register(server, namespace="theirs")
    await server.context.tenant("theirs").submit("work", {})
    job = await worker.claim_one()
    intruder = RemoteWorker(await server.client("worker"), worker.id)
    items = {"items": [{**ticket(job), "outcome": "succeeded"}]}
    bodies: dict[str, Any] = {
        "heartbeat": {}, "claim": {}, "finish": items,
        "progress": {"items": [{**ticket(job), "done": 1}]},
        "logs": {"items": [{**ticket(job), "first": 1, "lines": []}]},
    }  # fmt: skip
    for what, body in bodies.items():
        answer = await intruder.ask(what, body)
        assert answer.status_code == 404, what
    assert (await intruder.leave()).status_code == 404
    own = await RemoteWorker.register(server)
    assert await own.finish(job) == "stale"
    assert await worker.finish(job) == "accepted"


async def test_a_claim_takes_nothing_of_other_tenants(server: LiveServer):
    await server.context.tenant("theirs").submit("work", {})
    worker = await RemoteWorker.register(server)
    assert await worker.claim() == []


async def test_a_body_that_makes_no_sense_is_refused(server: LiveServer):
    worker = await RemoteWorker.register(server)
    wrong: list[tuple[str, Any]] = [
        ("claim", {"max": 0}), ("claim", {"max": 101}), ("claim", {"wait": 31}),
        ("claim", {"request": ""}), ("finish", {"items": [{"outcome": "succeeded"}]}),
        ("finish", {"items": [{"job": str(uuid4()), "token": 1, "outcome": "perhaps"}]}),
        ("logs", {"items": [{"job": str(uuid4()), "token": 1, "first": 0, "lines": []}]}),
    ]  # fmt: skip
    for what, body in wrong:
        answer: httpx.Response = await worker.ask(what, body)
        assert answer.status_code == 400, (what, body)
