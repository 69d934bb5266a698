"""OpenTelemetry: baggage travels with jobs, and exceptions become events of an attempt's span.

::

    from rota.integrations import opentelemetry

    opentelemetry.install(app)

Spans need no middleware: Rota makes them as soon as the application has set up an SDK, from the submit
to the end of each attempt. See `rota.lib.tracing`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator

from rota.app import App
from rota.submission import Submission

_propagator = W3CBaggagePropagator()
_FIELD = "baggage"


def install(app: App, *, baggage: bool = True, exceptions: bool = True) -> None:
    """Add to the traces of an app's jobs.

    Args:
        app: your application.
        baggage: let jobs carry the W3C baggage of whoever submits them.
        exceptions: record what a handler raises, with its traceback, in the span of the attempt.
            Child processes have no span to record it in.
    """
    if baggage:

        @app.on_submit
        def carry(submission: Submission) -> None:
            if _FIELD not in submission.headers:
                _propagator.inject(submission.headers)

    @app.middleware
    def observe(context: Any) -> Generator[None]:
        carried = context.job.headers.get(_FIELD) if baggage else None
        token = None
        if isinstance(carried, str):
            token = otel_context.attach(_propagator.extract({_FIELD: carried}))
        try:
            yield
        except Exception as error:
            if exceptions:
                trace.get_current_span().record_exception(error)
            raise
        finally:
            if token is not None:
                otel_context.detach(token)
