"""An app that may push to this machine, and an endpoint that pushes to a receiver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota import App, Retry
from tests.support.receiver import Receiver

SECRET = "a secret of some length"
QUICK = Retry(max_attempts=4, base=0.01, factor=1.0)


async def pushing_app(make_app: Callable[..., App], **settings: Any) -> App:
    app = make_app(heartbeat=0.5, missed_heartbeats=20, port=0, **settings)
    await app.webhooks.allow("127.0.0.1")
    return app


def declare(app: App, receiver: Receiver, **given: Any) -> Any:
    return app.endpoint(
        "email_send", **{"url": receiver.url, "secret": SECRET, "retry": QUICK, **given}
    )
