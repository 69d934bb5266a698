"""Limits in /metrics: bounded, however many keys there are."""

from __future__ import annotations

from rota.observe.stats import Stats
from rota.store.limits import LimitStore
from tests.support.fake_node import FakeNode
from tests.support.server_fixtures import LiveServer

BASE = "default/default"


async def test_limits_are_told_with_what_runs_and_what_waits(server: LiveServer):
    app = server.app
    await app.queues.set_limits("default", concurrency=40, concurrency_per_key=2, rate="1000/s")
    for number in range(12):
        await app.submit("greet", {}, concurrency_key=f"key-{number % 3}")
    database = (await app.store()).database
    node = await FakeNode(database, app.settings).register(tasks=["greet"])
    limits = LimitStore(database)
    claimed = 0
    for _ in range(4):
        claimed += len(await limits.claim_shared(node.id, {BASE: 40}, 40, ["greet"]))
    assert claimed == 6
    text = (await (await server.client("viewer")).get("/metrics")).text
    for line in (
        'rota_limit_max{limit="queue:default",namespace="default"} 40.0',
        'rota_limit_running{limit="queue:default",namespace="default"} 6.0',
        # All keys together: the limit is that of each.
        'rota_limit_max{limit="queue:default/key",namespace="default"} 2.0',
        'rota_limit_running{limit="queue:default/key",namespace="default"} 6.0',
        'rota_limit_waiting{limit="queue:default/key",namespace="default"} 3.0',
        'rota_limit_waiting{limit="queue:default/rate",namespace="default"} 0.0',
    ):
        assert _has(text, line), text
    assert "key-1" not in text


def _has(text: str, line: str) -> bool:
    """Whether there is such a line, whatever the order of its labels."""
    name, labels, value = line.replace("}", "{").split("{")
    wanted = set(labels.split(","))
    return any(
        set(each.split("{")[1].split("}")[0].split(",")) == wanted
        for each in text.splitlines()
        if each.startswith(f"{name}{{") and each.endswith(value)
    )


async def test_a_thousand_limits_are_two_hundred_and_others(server: LiveServer):
    database = (await server.app.store()).database
    async with database.connection() as connection:
        await connection.execute(
            f"insert into {server.app.settings.schema}.meter (namespace, name, most)"
            " select 'default', 'limit:n' || n, 5 from generate_series(1, 1000) as n"
        )
    stats = Stats(database)
    await stats.refresh()
    assert stats.up
    assert len(stats.limit_max) == 200
    assert len(stats.limit_running) == 201
