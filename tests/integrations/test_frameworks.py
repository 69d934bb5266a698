"""`rota.integrations.asgi`, `fastapi` and `flask`: real servers, real requests, real PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
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
from tests.support.command_line import run
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


async def is_up(client: httpx.AsyncClient, path: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return (await client.get(path)).status_code < 500
    return False


def as_user(name: str, **more: str) -> dict[str, str]:
    return {"x-forwarded-user": name, "accept": "text/html", **more}


async def test_the_dashboard_is_behind_the_host_s_own_log_in(environ: dict[str, str]) -> None:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    command = (sys.executable, "-m", "uvicorn", "frameworks.dashboard_app:api", "--port", str(port))
    with up(environ, *command):
        async with httpx.AsyncClient(base_url=base, timeout=30) as client:
            await eventually(lambda: is_up(client, "/welcome"), 90)
            await strangers_are_sent_away(client)
            await a_viewer_sees_pages_whose_links_stay_inside(client)
            await changes_need_a_role_a_token_and_the_same_origin(client, base)
            made = await asyncio.to_thread(
                run, "tokens", "create", "robot", "--role", "operator", "--json"
            )
            token = made.json["token"]
            answer = await client.get("/rota/v1/jobs", headers={"authorization": f"Bearer {token}"})
            assert answer.status_code == 200
            answer = await client.get("/rota/v1/jobs", headers={"authorization": "Bearer rota_no"})
            assert answer.status_code == 401


async def strangers_are_sent_away(client: httpx.AsyncClient) -> None:
    answer = await client.get("/rota/jobs?state=failed", headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/welcome?next=%2Frota%2Fjobs"
    for path in ("/rota/v1/jobs", "/rota/v1/queues", "/rota/metrics"):
        assert (await client.get(path)).status_code == 401, path
        assert (await client.get(path, headers={"x-forwarded-user": "eve"})).status_code == 401, (
            path
        )
    for path in ("/rota/login", "/rota/login/link", "/rota/v1/login"):
        answer = await client.get(path, headers=as_user("ada"))
        assert answer.status_code in (404, 405), path


async def a_viewer_sees_pages_whose_links_stay_inside(client: httpx.AsyncClient) -> None:
    job = (await client.post("/orders/1")).json()["job"]
    for path in ("/rota/", "/rota/jobs", f"/rota/jobs/{job}", "/rota/queues"):
        answer = await client.get(path, headers=as_user("bob", **{"accept-encoding": "gzip"}))
        assert answer.status_code == 200, path
        links = re.findall(r'(?:href|src|action|data-[a-z-]+)="(/[^"]*)"', answer.text)
        assert links
        assert all(link.startswith("/rota/") for link in links), links
    for link in {link for link in links if "/static/" in link}:
        assert (await client.get(link, headers=as_user("bob"))).status_code == 200


async def changes_need_a_role_a_token_and_the_same_origin(
    client: httpx.AsyncClient, base: str
) -> None:
    pause = "/rota/v1/queues/default/pause"

    async def tried(name: str, **headers: str) -> int:
        sent = {"x-forwarded-user": name, **headers}
        return (await client.post(pause, headers=sent)).status_code

    tokens = {
        name: (await client.get("/rota/v1/session", headers={"x-forwarded-user": name})).json()[
            "csrf"
        ]
        for name in ("ada", "bob")
    }
    header = "x-rota-csrf"
    assert await tried("ada") == 403  # without a token
    assert await tried("ada", **{header: tokens["bob"]}) == 403  # somebody else's
    assert await tried("ada", **{header: tokens["ada"], "origin": "https://evil.example"}) == 403
    assert await tried("bob", **{header: tokens["bob"]}) == 403  # only a viewer
    assert await tried("ada", **{header: tokens["ada"], "origin": base}) == 200
    entry = (await asyncio.to_thread(run, "audit", "--json")).json[0]
    assert (entry["actor"], entry["action"]) == ("ada", "pause")
    # A form of a page leads back into the mount.
    answer = await client.post(
        "/rota/session/zone", headers=as_user("ada"),
        data={"csrf": tokens["ada"], "choose": "UTC", "return": "/jobs"},
    )  # fmt: skip
    assert (answer.status_code, answer.headers["location"]) == (303, "/rota/jobs")


async def test_litestar_mounts_the_dashboard_too(environ: dict[str, str]) -> None:
    port = free_port()
    command = (sys.executable, "-m", "uvicorn", "frameworks.litestar_app:api", "--port", str(port))
    with up(environ, *command):
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            await eventually(lambda: is_up(client, "/rota/v1/jobs"), 90)
            assert (await client.get("/rota/v1/jobs")).status_code == 401
            answer = await client.get("/rota/jobs", headers=as_user("ada"))
            assert (answer.status_code, 'href="/rota/queues"' in answer.text) == (200, True)


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
