"""Alerts: what needs attention, what can be done about it, and who has seen it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rota import App
from rota.errors import ConfigError, NotFound
from rota.model import Alert
from tests.support.api import fail_jobs
from tests.support.fake_node import FakeNode


@pytest.fixture
def app(make_app: Callable[..., App]) -> App:
    app = make_app()

    @app.task
    async def pay(number: int = 0) -> None: ...

    return app


async def alert(app: App, key: str) -> Alert | None:
    return next((one for one in await app.alerts.list() if one.key == key), None)


async def execute(app: App, sql: str, *arguments: Any) -> None:
    async with (await app.store()).database.connection() as c:
        await c.execute(sql.format(app.settings.schema), *arguments)


async def fail_one(app: App) -> None:
    job = await app.submit("pay")
    await fail_jobs(app, [str(job.id)])


async def test_every_alert_has_something_to_do_about_it(app: App):
    await app.queues.pause("mail")
    await fail_one(app)
    await app.submit("pay", queue="slow")
    await execute(app, "update {}.present set due_at = now() - interval '5 minutes'")
    store = await app.store()
    node = await FakeNode(store.database, app.settings).register()
    await execute(app, "update {}.node set state = 'dead', heartbeat_at = now() - interval '60 s'")
    for kind in ("late", "slow", "slower", "timed_out", "deadline_missed", "missed", "overran"):
        await execute(
            app, "insert into {}.event (namespace, kind, task, detail) values "
            "('default', $1, 'pay', '{{}}')", kind,
        )  # fmt: skip
    alerts = await app.alerts.list()
    keys = {one.key for one in alerts}
    assert {
        "queue-paused:mail", "queue-late:slow", "jobs-failed", "no-worker", "nodes-dead", "shards-free",
        "event:late", "event:missed",
    } <= keys, keys  # fmt: skip
    assert all(one.remedies for one in alerts)
    assert [one.severity for one in alerts] == sorted(one.severity for one in alerts)
    paused = await alert(app, "queue-paused:mail")
    assert paused is not None
    assert ("resume_queue", "mail") in [(one.verb, one.subject) for one in paused.remedies]
    dead = await alert(app, "nodes-dead")
    assert dead is not None
    assert (dead.remedies[0].verb, dead.remedies[0].subject) == ("show_node", str(node.id))


async def test_an_acknowledgement_covers_what_has_happened_so_far(app: App):
    await fail_one(app)
    done = await app.alerts.acknowledge("jobs-failed", note="the gateway is down")
    assert not done.active
    assert done.note == "the gateway is down"
    found = await alert(app, "jobs-failed")
    assert found is not None
    assert not found.active
    assert "jobs-failed" not in {one.key for one in await app.alerts.list(active=True)}
    await fail_one(app)
    again = await alert(app, "jobs-failed")
    assert again is not None
    assert again.active


async def test_a_silence_covers_everything_until_its_end(app: App):
    await fail_one(app)
    await app.alerts.silence("jobs-failed", "2h")
    await fail_one(app)
    found = await alert(app, "jobs-failed")
    assert found is not None
    assert found.silenced_until is not None
    assert not found.active
    await execute(app, "update {}.alert_mark set silenced_until = now() - interval '1 second'")
    found = await alert(app, "jobs-failed")
    assert found is not None
    assert found.active


async def test_a_mark_can_be_taken_back_and_is_of_its_namespace(
    app: App, make_app: Callable[..., App]
):
    await app.queues.pause("mail")
    other = make_app(namespace="other", schema=app.settings.schema)
    await other.queues.pause("mail")
    await app.alerts.silence("queue-paused:mail", 3600)
    theirs = await alert(other, "queue-paused:mail")
    assert theirs is not None
    assert theirs.active
    await app.alerts.restore("queue-paused:mail")
    ours = await alert(app, "queue-paused:mail")
    assert ours is not None
    assert ours.active
    with pytest.raises(NotFound):
        await app.alerts.restore("queue-paused:mail")


async def test_a_queue_that_is_paused_again_is_a_new_alert(app: App):
    await app.queues.pause("mail")
    await app.alerts.acknowledge("queue-paused:mail")
    await app.queues.resume("mail")
    await app.queues.pause("mail")
    found = await alert(app, "queue-paused:mail")
    assert found is not None
    assert found.active


async def test_wrong_input_is_named(app: App):
    with pytest.raises(NotFound, match="no alert 'nothing'"):
        await app.alerts.acknowledge("nothing")
    await app.queues.pause("mail")
    for time in ("0s", "32d", "soon"):
        with pytest.raises(ConfigError, match="for"):
            await app.alerts.silence("queue-paused:mail", time)
    with pytest.raises(ConfigError, match="note"):
        await app.alerts.silence("queue-paused:mail", "1h", note="x" * 501)
    with pytest.raises(NotFound):
        await app.alerts.restore("\0")
