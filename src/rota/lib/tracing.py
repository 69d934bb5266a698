"""Traces (OpenTelemetry) from the submit of a job to the end of each of its attempts, across processes.

A submit is a span whose place in its trace travels with the job, in its headers (`traceparent`). Whoever
claims the job adds a span for the time from the claim to the start, and below it one for the run, which
is the current span of the handler's code, in child processes as well.

Without the package opentelemetry-api, or without an SDK set up by the application, nothing of this
happens: a submit looks once whether there is one, a node when it starts.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

try:
    from opentelemetry import context as otel_context
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    _propagator = TraceContextTextMapPropagator()
    available = True
except ImportError:
    available = False

_FIELDS = ("traceparent", "tracestate")
_MOST_CLAIMS = 10_000

# Whether this process has an SDK, as it was when a node was last started in it.
active = False
_claimed: dict[int, int] = {}  # token -> nanoseconds since 1970, as spans count


def has_sdk() -> bool:
    return available and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def look() -> None:
    """Find out whether attempts are to be traced in this process."""
    global active  # noqa: PLW0603 - one SDK per process, too
    active = has_sdk()


def _tracer() -> Any:
    return trace.get_tracer("rota")


# -- submitting


@contextlib.contextmanager
def submitting(job: Any, count: int = 1) -> Iterator[None]:
    """Open a span around the submit of a `NewJob`, and put its place in the trace into the headers."""
    if not has_sdk():
        yield
        return
    attributes = {
        "messaging.system": "rota", "messaging.operation.type": "send", "rota.task": job.task,
        "rota.queue": job.queue or "default",
        **({"rota.job.id": str(job.id)} if count == 1 else {"rota.jobs": count}),
    }  # fmt: skip
    name, kind = f"submit {job.task}", trace.SpanKind.PRODUCER
    with _tracer().start_as_current_span(name, kind=kind, attributes=attributes):
        job.headers = msgspec.Raw(_carried(job.headers))
        yield


@contextlib.contextmanager
def starting(run: Any) -> Iterator[None]:
    """The same around the start of a `NewRun`: the jobs of its steps are below it."""
    if not has_sdk():
        yield
        return
    attributes = {"messaging.system": "rota", "messaging.operation.type": "send",
                  "rota.workflow": run.workflow, "rota.run.id": str(run.id)}  # fmt: skip
    name, kind = f"start {run.workflow}", trace.SpanKind.PRODUCER
    with _tracer().start_as_current_span(name, kind=kind, attributes=attributes):
        run.headers = msgspec.Raw(_carried(run.headers))
        yield


def _carried(headers: Any, context: Any = None) -> bytes:
    fields: dict[str, Any] = msgspec.json.decode(headers) if headers else {}
    if context is not None or not any(name in fields for name in _FIELDS):
        _propagator.inject(fields, context)
    return msgspec.json.encode(fields)


# -- over HTTP

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


def incoming(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the place in a trace that a request comes from, for the headers of its job."""
    parent = headers.get("traceparent", "").strip()
    if not _TRACEPARENT.fullmatch(parent) or parent[3:35] == "0" * 32 or parent[36:52] == "0" * 16:
        return {}
    state = headers.get("tracestate", "").strip()
    printable = state.isascii() and state.isprintable() and 0 < len(state) <= 512
    return {"traceparent": parent, **({"tracestate": state} if printable else {})}


def outgoing(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return the headers for a request of a handler: below its run, or below its job's own place."""
    if active:
        fields: dict[str, str] = {}
        _propagator.inject(fields)
        return fields
    return incoming({name: headers[name] for name in _FIELDS if isinstance(headers.get(name), str)})


# -- attempts


def note_claim(token: int) -> None:
    """Record that a batch is claimed now."""
    if len(_claimed) >= _MOST_CLAIMS:
        del _claimed[next(iter(_claimed))]
    _claimed[token] = time.time_ns()


def begin(work: Any) -> None:
    """Begin an attempt (`Work`): a span for its claim, which ends, and one for its run."""
    now = time.time_ns()
    parent = _propagator.extract(_text_fields(work.headers))
    attributes = {
        "messaging.system": "rota", "rota.task": work.task, "rota.job.id": str(work.id),
        "rota.attempt": work.attempt, "rota.token": work.token,
        "rota.queue": work.lane.partition("/")[2].partition("#")[0].partition("+")[0],
    }  # fmt: skip
    if work.run is not None:
        attributes["rota.run.id"] = str(work.run)
    claim = _tracer().start_span(
        f"claim {work.task}", context=parent, start_time=min(_claimed.get(work.token, now), now),
        kind=trace.SpanKind.CONSUMER, attributes=attributes,
    )  # fmt: skip
    claim.end(now)
    work.span = _tracer().start_span(
        f"run {work.task}", context=trace.set_span_in_context(claim, parent), start_time=now,
        kind=trace.SpanKind.CONSUMER, attributes=attributes,
    )  # fmt: skip


def enter(work: Any) -> None:
    """Make the attempt's run the current span of this context."""
    otel_context.attach(trace.set_span_in_context(work.span))


@contextlib.contextmanager
def step(name: str, attempt: int) -> Iterator[None]:
    """Open a span around a try of a durable function's step, below the run of its job."""
    if not active:
        yield
        return
    attributes = {"rota.step": name, "rota.attempt": attempt}
    with _tracer().start_as_current_span(f"step {name}", attributes=attributes):
        yield


def headers_for_child(work: Any) -> str:
    """Return the headers for a handler in another process, with the run as its parent."""
    return _carried(work.headers, trace.set_span_in_context(work.span)).decode()


@contextlib.contextmanager
def inside(headers: str | None) -> Iterator[None]:
    """Make the place in the headers current, in that other process."""
    if not headers or not has_sdk():
        yield
        return
    token = otel_context.attach(_propagator.extract(_text_fields(headers)))
    try:
        yield
    finally:
        otel_context.detach(token)


def end(work: Any, outcome: str, problem: str | None) -> None:
    span, work.span = work.span, None
    span.set_attribute("rota.outcome", outcome)
    if problem is not None:
        span.set_status(trace.StatusCode.ERROR, problem)
    span.end()


def _text_fields(headers: str | None) -> Mapping[str, str]:
    fields: Any = msgspec.json.decode(headers) if headers else {}
    return {name: fields[name] for name in _FIELDS if isinstance(fields.get(name), str)}
