"""One trace joins the submit of a job, its claim and its run, whichever process that is in."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from proof.waiting import eventually
from rota import App
from rota.lib import tracing
from rota.node import Node
from tests.support import trace_tasks


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """An SDK for one test: OpenTelemetry itself lets it be set only once in a process."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()
    monkeypatch.setattr(tracing, "active", False)


@pytest.fixture
async def app(make_app: Callable[..., App]) -> AsyncIterator[App]:
    settings = make_app(heartbeat=0.5, processes=1).settings
    async with trace_tasks.app.using(settings) as app:
        yield app


def by_name(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


@pytest.mark.parametrize("task", ["on_the_loop", "in_a_thread"])
async def test_one_trace_joins_submit_claim_and_run(
    app: App, exporter: InMemorySpanExporter, task: str
) -> None:
    async with Node(app).running():
        handle = await app.submit(task)
        await handle.result(60)
    spans = by_name(exporter)
    submit, claim, run, inside = (
        spans[name] for name in (f"submit {task}", f"claim {task}", f"run {task}", "inside")
    )
    assert len({span.context.trace_id for span in (submit, claim, run, inside)}) == 1
    assert claim.parent.span_id == submit.context.span_id
    assert run.parent.span_id == claim.context.span_id
    assert inside.parent.span_id == run.context.span_id
    assert submit.kind is trace.SpanKind.PRODUCER
    assert claim.start_time <= claim.end_time == run.start_time <= run.end_time
    queue = "reports" if task == "on_the_loop" else "default"
    assert submit.attributes["rota.job.id"] == str(handle.id)
    expected = {"rota.job.id": str(handle.id), "rota.attempt": 1, "rota.queue": queue,
                "rota.task": task, "rota.outcome": "succeeded"}  # fmt: skip
    assert expected.items() <= dict(run.attributes).items()


async def test_the_trace_goes_on_in_a_child_process(
    app: App, exporter: InMemorySpanExporter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "spans"
    monkeypatch.setenv("TRACE_FILE", str(file))
    async with Node(app).running():
        await (await app.submit("in_a_child")).result(60)
        (line,) = await eventually(lambda: file.exists() and file.read_text().splitlines())
    name, trace_id, parent, pid = json.loads(line)
    run = by_name(exporter)["run in_a_child"]
    assert (name, trace_id) == ("inside", f"{run.context.trace_id:032x}")
    assert parent == f"{run.context.span_id:016x}"
    assert pid != os.getpid()


async def test_each_attempt_has_its_spans_and_a_failure_is_an_error(
    app: App, exporter: InMemorySpanExporter
) -> None:
    async with Node(app).running():
        await (await app.submit("fail_once")).result(60)
    spans = exporter.get_finished_spans()
    runs = [span for span in spans if span.name == "run fail_once"]
    assert [span.attributes["rota.attempt"] for span in runs] == [1, 2]
    assert [span.status.status_code.name for span in runs] == ["ERROR", "UNSET"]
    assert runs[0].status.description == "ValueError: no luck"
    assert len({span.context.trace_id for span in spans}) == 1


async def test_a_job_that_submits_another_is_in_the_same_trace(
    app: App, exporter: InMemorySpanExporter
) -> None:
    async with Node(app).running():
        await (await app.submit("submit_another")).result(60)
        await eventually(lambda: "run on_the_loop" in by_name(exporter))
    spans = by_name(exporter)
    assert spans["submit on_the_loop"].parent.span_id == spans["run submit_another"].context.span_id
    assert len({span.context.trace_id for span in spans.values()}) == 1


async def test_the_jobs_of_a_run_are_below_its_start(
    app: App, exporter: InMemorySpanExporter
) -> None:
    async with Node(app).running():
        run = await trace_tasks.flow.start()
        await run.result(60)
    spans = by_name(exporter)
    start, claim = spans["start traced-flow"], spans["claim on_the_loop"]
    assert claim.parent.span_id == start.context.span_id
    assert start.attributes["rota.run.id"] == claim.attributes["rota.run.id"] == str(run.id)


async def test_steps_and_calls_of_a_durable_function_are_below_its_run(
    app: App, exporter: InMemorySpanExporter
) -> None:
    async with Node(app).running():
        run = await trace_tasks.traced_function.start()
        await run.result(60)
    spans = exporter.get_finished_spans()
    assert len({span.context.trace_id for span in spans}) == 1
    first = next(span for span in spans if span.name == "run traced_function")
    named = by_name(exporter)
    for name in ("step work", "submit in_a_thread"):
        assert named[name].parent.span_id == first.context.span_id
    assert named["inside"].parent is not None


async def test_many_jobs_share_one_submit(app: App, exporter: InMemorySpanExporter) -> None:
    await trace_tasks.on_the_loop.submit_many([()] * 300)
    (submit,) = exporter.get_finished_spans()
    assert submit.attributes["rota.jobs"] == 300
    headers = {job.headers["traceparent"] for job in await app.jobs.list(limit=300)}
    (traceparent,) = headers
    assert f"{submit.context.trace_id:032x}" in traceparent


async def test_own_headers_are_kept(app: App, exporter: InMemorySpanExporter) -> None:
    given = f"00-{'a' * 32}-{'b' * 16}-01"
    handle = await app.submit("in_a_thread", headers={"traceparent": given, "x": 1})
    job = await handle.status()
    assert job.headers == {"traceparent": given, "x": 1}


async def test_without_an_sdk_nothing_is_added(app: App) -> None:
    handle = await app.submit("in_a_thread")
    async with Node(app).running():
        await handle.result(60)
        assert not tracing.active
    assert (await handle.status()).headers == {}


@pytest.mark.parametrize("headers", ["{}", '{"traceparent": 7}', '{"traceparent": "nonsense"}'])
async def test_odd_headers_begin_a_trace_of_their_own(
    exporter: InMemorySpanExporter, headers: str
) -> None:
    class Work:
        id, task, token, attempt, lane, span = "1", "t", 1, 1, "default/q+gpu", None
        run = None

    work: Any = Work()
    work.headers = headers
    tracing.begin(work)
    tracing.end(work, "succeeded", None)
    assert by_name(exporter)["run t"].attributes["rota.queue"] == "q"
