"""rota.integrations.sentry, structlog and opentelemetry: what they see of an attempt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
import structlog
from opentelemetry import baggage
from opentelemetry import context as otel_context

from rota import App, Context, Retry
from rota.integrations import opentelemetry as own_opentelemetry
from rota.integrations import sentry as own_sentry
from rota.integrations import structlog as own_structlog
from rota.testing import Sandbox


class Transport(sentry_sdk.transport.Transport):
    """Keeps what would be sent."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.events: list[Any] = []
        self.check_ins: list[Any] = []

    def capture_envelope(self, envelope: Any) -> None:
        for item in envelope.items:
            if item.type == "check_in":
                self.check_ins.append(item.payload.json)
            elif item.type == "event":
                self.events.append(item.get_event())


@pytest.fixture
def transport() -> Iterator[Transport]:
    transport = Transport()
    with sentry_sdk.isolation_scope() as scope:
        client = sentry_sdk.Client(
            dsn="https://key@example.org/1", transport=transport, traces_sample_rate=1.0,
            default_integrations=False,
        )  # fmt: skip
        scope.set_client(client)
        yield transport
        client.close()


def declare(app: App) -> Any:
    @app.task(retry=Retry(max_attempts=2, base=0, jitter=0))
    async def sell(ctx: Context) -> None:
        sentry_sdk.set_tag("own", ctx.attempt)
        raise LookupError("sold out")

    return sell


async def test_sentry_gets_each_failed_attempt_with_its_job(
    sandbox: Sandbox, transport: Transport
) -> None:
    own_sentry.install(sandbox.app)
    job = await declare(sandbox.app).submit()
    await sandbox.run_due()
    attempts = [str(event["tags"]["rota.attempt"]) for event in transport.events]
    assert attempts == ["1", "2"]
    first, last = transport.events
    assert first["exception"]["values"][0]["type"] == "LookupError"
    assert first["contexts"]["rota"]["job"] == str(job.id)
    assert first["transaction"] == "sell"
    assert (str(first["tags"]["own"]), str(last["tags"]["own"])) == ("1", "2")
    assert str(last["tags"]["rota.final"]) == "True"


async def test_sentry_can_be_told_of_final_failures_alone(
    sandbox: Sandbox, transport: Transport
) -> None:
    own_sentry.install(sandbox.app, only_final=True)
    await declare(sandbox.app).submit()
    await sandbox.run_due()
    assert len(transport.events) == 1


async def test_a_trace_of_sentry_goes_on_in_the_job(sandbox: Sandbox, transport: Transport) -> None:
    own_sentry.install(sandbox.app)
    sell = declare(sandbox.app)
    with sentry_sdk.start_transaction(name="request") as request:
        await sell.options(max_attempts=1).submit()
    await sandbox.run_due()
    [event] = transport.events
    assert event["contexts"]["trace"]["trace_id"] == request.trace_id


async def test_jobs_of_schedules_check_in(sandbox: Sandbox, transport: Transport) -> None:
    own_sentry.install(sandbox.app, monitors=True)

    @sandbox.app.task
    async def nightly() -> None: ...

    await sandbox.app.schedule("backup", nightly, cron="@daily")
    await sandbox.run_for(days=1)
    assert [each["status"] for each in transport.check_ins] == ["in_progress", "ok"]
    assert {each["monitor_slug"] for each in transport.check_ins} == {"backup"}


async def test_structlog_binds_the_job_while_it_runs(sandbox: Sandbox) -> None:
    own_structlog.install(sandbox.app, prefix="rota_")
    seen: list[dict[str, Any]] = []

    @sandbox.app.task
    async def on_loop() -> None:
        seen.append(structlog.contextvars.get_contextvars())

    @sandbox.app.task
    def in_thread() -> None:
        seen.append(structlog.contextvars.get_contextvars())

    for task in (on_loop, in_thread):
        job = await task.submit()
        await sandbox.run_due(raise_errors=True)
        assert seen.pop() == {
            "rota_job_id": str(job.id), "rota_task": task.name, "rota_attempt": 1
        }  # fmt: skip
    assert structlog.contextvars.get_contextvars() == {}


async def test_baggage_travels_with_the_job(sandbox: Sandbox) -> None:
    own_opentelemetry.install(sandbox.app)
    seen: list[object] = []

    @sandbox.app.task
    async def work() -> None:
        seen.append(baggage.get_baggage("tenant"))

    token = otel_context.attach(baggage.set_baggage("tenant", "acme"))
    await work.submit()
    otel_context.detach(token)
    await work.submit()
    await sandbox.run_due(raise_errors=True)
    assert set(seen) == {"acme", None}
