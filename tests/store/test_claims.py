"""The order of claims, who may claim what, and the lists of jobs and queues."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota import ConfigError, NotFound
from rota.store.work import LaneClaim
from tests.support.fake_node import FakeNode


@pytest.fixture
def app(sandbox):
    return sandbox.app


def at(sandbox, **units):
    return sandbox.now() + timedelta(**units)


# -- the order of claims


async def test_jobs_are_claimed_in_the_order_they_came_due(app, greet, node, sandbox):
    ids = []
    for seconds in (30, 10, 20):
        moment = at(sandbox, seconds=-seconds)
        ids.append((await greet.options(at=moment).submit()).id)
    rows = await node.claim()
    assert [row["id"] for row in rows] == [ids[0], ids[2], ids[1]]


async def test_a_higher_priority_goes_first_within_a_lane(app, greet, node):
    ids = {}
    for priority in (0, -5, 10, 3):
        ids[priority] = (await greet.options(priority=priority).submit()).id
    rows = await node.claim()
    assert [row["id"] for row in rows] == [ids[10], ids[3], ids[0], ids[-5]]


async def test_a_low_priority_job_is_overtaken_for_minutes_not_for_ever(sandbox, greet, node):
    patient = await greet.options(priority=0).submit()
    await sandbox.advance(minutes=9, seconds=59)
    urgent = await greet.options(priority=10).submit()
    await sandbox.advance(seconds=2)
    too_late = await greet.options(priority=10).submit()
    rows = await node.claim()
    assert [row["id"] for row in rows] == [urgent.id, patient.id, too_late.id]


async def test_a_claim_takes_no_more_than_asked_and_goes_on_from_its_cursor(greet, node):
    ids = [(await greet.submit()).id for _ in range(5)]
    first = await node.claim(LaneClaim("default/default", 2))
    last = first[-1]
    rest = await node.claim(LaneClaim("default/default", 9, last["rank"], last["id"]))
    assert [row["id"] for row in (*first, *rest)] == ids
    assert await node.claim() == []


async def test_a_claim_serves_several_lanes_each_with_its_own_limit(greet, node):
    for queue in ("light", "heavy"):
        for _ in range(3):
            await greet.options(queue=queue).submit()
    rows = await node.claim(LaneClaim("default/light", 1), LaneClaim("default/heavy", 2))
    assert sorted(row["lane"] for row in rows) == [
        "default/heavy", "default/heavy", "default/light",
    ]  # fmt: skip


async def test_racing_claims_never_get_the_same_job(app, greet, hot):
    await greet.submit_many([{}] * 300)
    nodes = [FakeNode(hot, app.settings) for _ in range(4)]

    async def drain(node):
        claimed = []
        while rows := await node.claim(LaneClaim("default/default", 20)):
            claimed += [row["id"] for row in rows]
        return claimed

    shares = await asyncio.gather(*map(drain, nodes))
    everything = [job_id for share in shares for job_id in share]
    assert len(everything) == len(set(everything)) == 300


async def test_needed_capabilities_make_a_lane_of_their_own(app, greet, node):
    await greet.options(queue="heavy", needs=["gpu"]).submit()
    assert await node.claim(lane="default/heavy") == []
    assert len(await node.claim(lane="default/heavy+gpu")) == 1


async def test_a_paused_queue_is_not_claimed_until_it_is_resumed(app, sandbox, greet, node):
    await greet.options(queue="mail").submit()
    await greet.options(queue="mail", needs=["smtp"]).submit()
    await greet.submit()
    await app.queues.pause("mail")
    lanes = [
        LaneClaim(lane, 9) for lane in ("default/mail", "default/mail+smtp", "default/default")
    ]
    assert [row["lane"] for row in await node.claim(*lanes)] == ["default/default"]
    assert await sandbox.run_due() == []
    await app.queues.resume("mail")
    assert len(await node.claim(*lanes)) == 2
    with pytest.raises(NotFound, match="there is no queue 'nope'"):
        await app.queues.resume("nope")


async def test_a_queue_can_be_paused_before_its_first_job(app, greet, node):
    await app.queues.pause("mail")
    await greet.options(queue="mail").submit()
    assert await node.claim(lane="default/mail") == []


async def test_tasks_that_a_node_doesnt_know_are_left_for_others(app, sandbox, greet, node):
    unknown = await app.submit("from_the_future", {})
    known = await greet.submit()
    assert [job.id for job in await sandbox.run_due()] == [known.id]
    assert (await unknown.status()).state == "ready"
    assert await node.claim(tasks=["greet"]) == []
    assert len(await node.claim(tasks=["from_the_future"])) == 1


async def test_what_is_given_back_is_as_if_it_had_never_been_claimed(app, greet, node):
    handle = await greet.submit()
    before = await handle.status()
    row = await node.claim_one()
    assert (await handle.status()).state == "running"
    assert await node.give_back(row)
    after = await handle.status()
    assert after.state == "ready"
    assert (after.attempt, after.node, after.started_at) == (0, None, None)
    assert (after.due_at, after.attempts, after.crashes) == (before.due_at, [], 0)
    assert (await node.claim_one())["attempt"] == 1


# -- lists


async def test_lists_are_newest_first_page_by_page_without_gaps(app, greet):
    ids = [(await greet.submit()).id for _ in range(7)]
    pages, before = [], None
    while page := await app.jobs.list(limit=3, before=before):
        pages.append([job.id for job in page])
        before = page[-1].id
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [job_id for page in pages for job_id in page] == ids[::-1]


async def test_lists_filter_by_state_task_queue_and_tag(app, sandbox, greet):
    done = await greet.submit()
    await sandbox.run_due()
    later = await greet.options(delay=60, queue="mail", tags=["a", "b"]).submit()
    ready = await app.submit("other", {}, tags=["b"])

    async def ids(**filters):
        return [job.id for job in await app.jobs.list(**filters)]

    assert await ids() == [ready.id, later.id, done.id]
    assert await ids(state="scheduled") == [later.id]
    assert await ids(state="succeeded") == [done.id]
    assert await ids(task="greet") == [later.id, done.id]
    assert await ids(queue="mail") == [later.id]
    assert await ids(tag="b") == [ready.id, later.id]
    assert await ids(tag="b", state="ready") == [ready.id]
    assert await ids(state="failed") == []
    assert await app.jobs.count() == {"ready": 1, "scheduled": 1, "succeeded": 1}
    assert await app.jobs.count(task="greet", state="scheduled") == {"scheduled": 1}
    with pytest.raises(ConfigError, match="state 'done' is not one of: waiting"):
        await app.jobs.list(state="done")
    for limit in (0, 10_001):
        with pytest.raises(ConfigError, match="limit must be"):
            await app.jobs.list(limit=limit)


async def test_queues_tell_their_depth_and_lag(app, sandbox, greet, node):
    for options in ({}, {}, {"delay": 3600}, {"queue": "mail", "delay": 60}):
        await greet.options(**options).submit()
    await node.claim(LaneClaim("default/default", 1))
    await sandbox.advance(seconds=30)
    default, mail = await app.queues.list()
    assert (default.name, default.ready, default.running, default.scheduled) == ("default", 1, 1, 1)
    assert (default.lag, default.paused_at) == (30.0, None)
    assert (mail.name, mail.ready, mail.running, mail.scheduled) == ("mail", 0, 0, 1)
    assert mail.lag is None
