"""A WSGI application that submits jobs: before its server forks, and in each of its workers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from rota import App

rota = App()


@rota.task
async def greet(name: str) -> str:
    return f"Hello, {name}!"


before_the_fork = str(greet.submit_sync("parent").id)


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    job = greet.submit_sync(environ["PATH_INFO"])
    seen = rota.sync.jobs.get(job.id)
    many = greet.submit_many_sync(["a", "b"])
    body = {
        "pid": os.getpid(), "ids": [str(each.id) for each in (job, *many)], "state": seen.state,
        "before": before_the_fork,
    }  # fmt: skip
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]
