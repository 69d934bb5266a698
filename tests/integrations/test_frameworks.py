"""`rota.integrations.asgi`, `fastapi` and `flask`: real servers, real requests, real PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from proof.nemesis.server import free_port
from proof.waiting import eventually
from rota.errors import ConfigError
from rota.integrations.flask import Rota
from tests.support.places import EXAMPLES, ROTA

ASGI = ("fastapi_app", "starlette_app", "litestar_app")


@contextlib.contextmanager
def up(environ: dict[str, str], *command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is asked to stop at the end, and must end well."""
    with subprocess.Popen(
        command, cwd=EXAMPLES, env={**os.environ, **environ}, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()


async def order_is_confirmed(port: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:

        async def taken() -> str | None:
            with contextlib.suppress(httpx.TransportError):
                answer = await client.post("/orders/7")
                assert answer.status_code == 202, answer.text
                return str(answer.json()["job"])
            return None

        job = await eventually(taken, 90)

        async def ended() -> bool:
            return bool((await client.get(f"/jobs/{job}")).json()["state"] == "succeeded")

        await eventually(ended, 90)
        assert (await client.get(f"/jobs/{job}")).json()["result"] == "order 7 is confirmed"


@pytest.mark.parametrize("module", ASGI)
async def test_a_service_with_an_embedded_worker(environ: dict[str, str], module: str) -> None:
    port = free_port()
    command = (sys.executable, "-m", "uvicorn", f"frameworks.{module}:api", "--port", str(port))
    with up(environ, *command) as server:
        await order_is_confirmed(port)
    assert server.returncode in (0, -signal.SIGTERM)  # the host's own signal handlers worked


async def test_flask_gives_each_job_an_application_context(environ: dict[str, str]) -> None:
    port = free_port()
    serve = (sys.executable, "-m", "flask", "--app", "frameworks.flask_app", "run", "-p", str(port))
    with up(environ, *serve), up(environ, str(ROTA), "start", "frameworks.flask_app:rota"):
        await order_is_confirmed(port)


def test_a_factory_that_makes_no_application_is_named() -> None:
    with pytest.raises(ConfigError, match="names no application"):
        Rota("shop")
    with pytest.raises(ConfigError, match="os:getcwd returned a str"):
        _ = Rota("os:getcwd").flask
