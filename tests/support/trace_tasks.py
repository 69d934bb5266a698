"""Tasks whose traces are looked at. Children write their spans to a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from rota import App, Context, Retry
from rota.durable.context import DurableContext

app = App(processes=1)


class FileExporter(SpanExporter):
    def export(self, spans):
        with Path(os.environ["TRACE_FILE"]).open("a") as file:
            for span in spans:
                context = span.get_span_context()
                parent = f"{span.parent.span_id:016x}" if span.parent else None
                file.write(
                    json.dumps([span.name, f"{context.trace_id:032x}", parent, os.getpid()]) + "\n"
                )
        return SpanExportResult.SUCCESS


if "TRACE_FILE" in os.environ:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(FileExporter()))
    trace.set_tracer_provider(provider)


def work() -> None:
    with trace.get_tracer("shop").start_as_current_span("inside"):
        pass


@app.task(queue="reports")
async def on_the_loop(ctx: Context) -> str:
    work()
    return str(ctx.job.headers["traceparent"])


@app.task(runner="thread")
def in_a_thread() -> None:
    work()


@app.task
def in_a_child() -> None:
    work()


@app.task(retry=Retry(max_attempts=2, base=0.01))
async def fail_once(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise ValueError("no luck")


@app.task
async def submit_another() -> None:
    await on_the_loop.submit()


flow = app.workflow("traced-flow")
flow.step(on_the_loop)


@app.durable
async def traced_function(ctx: DurableContext) -> None:
    await ctx.step(work)
    await ctx.call(in_a_thread)
