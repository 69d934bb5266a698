"""The client: the server's HTTP API from Python, without the database.

::

    from rota.client import Client

    with Client("https://rota.example.org", token) as client:
        job = client.jobs.submit("email_send", {"to": "ada@example.org"})
        print(client.jobs.wait(job.id).result)

`AsyncClient` has the same verbs, to be awaited; lists and streams are iterated with ``async for``.

How it is built. What is said to a server is written once, without any I/O, as generators that yield what
is to be sent and are given what was heard (`rota.client.asking`): the verbs (`jobs`, `schedules`,
`cluster`), and around them when to ask again. `Client` and `AsyncClient` are two thin shells that send,
listen and wait.

What is sent over is httpx's. It is a plain dependency and no extra: the server's framework brings it to
every installation anyway, so that an extra would only be a way to be without it by surprise.
"""

from __future__ import annotations

from rota.client.awaited import AsyncClient
from rota.client.blocking import Client
from rota.client.many import JobsRefused
from rota.client.wire import (
    JobResult,
    LineRefused,
    ManySubmitted,
    NewJobDict,
    NodeList,
    ScheduleSettings,
)
from rota.model import Accepted, Cancelled

__all__ = [
    "Accepted",
    "AsyncClient",
    "Cancelled",
    "Client",
    "JobResult",
    "JobsRefused",
    "LineRefused",
    "ManySubmitted",
    "NewJobDict",
    "NodeList",
    "ScheduleSettings",
]
