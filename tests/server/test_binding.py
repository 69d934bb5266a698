"""Where the server listens, and how it starts and stops."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from proof.waiting import eventually
from rota import ConfigError, Settings
from rota.lib import reloading
from rota.node import Node
from rota.server.serving import Server, check_binding, is_loopback
from tests.support.routes import ROUTES
from tests.support.server_fixtures import LiveServer, serving

# -- stopping


async def test_stopping_ends_long_answers_and_finishes_the_others(make_app):
    server = Server(make_app(port=0), routes=ROUTES)
    await server.start()
    url = f"http://127.0.0.1:{server.port}"
    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        async with client.stream("GET", "/v1/endless") as answer:
            pieces = answer.aiter_bytes()
            assert b"begun" in await anext(pieces)
            stopping = asyncio.create_task(server.stop())
            async for _ in pieces:
                pass  # it ends, and not by a cut
            await stopping
        with pytest.raises(httpx.ConnectError):
            await client.get("/healthz")


async def test_the_address_is_free_again_after_a_stop(make_app):
    first = Server(make_app(port=0), routes=ROUTES)
    await first.start()
    second = Server(make_app(port=first.port), routes=ROUTES)
    with pytest.raises(ConfigError, match=f"port {first.port}.*ROTA_PORT"):
        await second.start()
    await first.stop()
    await second.start()
    await second.stop()


async def test_what_keeps_it_from_starting_is_said_and_it_can_be_started_again(make_app):
    app = make_app(port=0, oidc_issuer="https://id.example.org")
    server = Server(app, routes=ROUTES)
    with pytest.raises(ConfigError, match="oidc_client_id and oidc_client_secret"):
        await server.start()
    await server.stop()
    app.settings = app.settings.replace(oidc_issuer=None)
    await server.start()
    await server.stop()


async def test_a_node_serves_as_one_of_its_roles(make_app):
    app = make_app(port=0)
    server = Server(app, routes=ROUTES)
    node = Node(app, ["scheduler", "worker", "server"], server=server)
    async with node.running(), httpx.AsyncClient(timeout=60) as client:
        url = f"http://127.0.0.1:{server.port}"
        ready = await client.get(f"{url}/readyz")
        assert ready.json() == {
            "ready": True,
            "checks": [{"name": name, "ok": True, "reason": ""}
                       for name in ("database", "schema", "scheduler", "worker")],
        }  # fmt: skip
    with pytest.raises(ConfigError, match="needs one"):
        Node(app, ["server"])


async def test_what_is_not_ready_says_why(server: LiveServer):
    client = await server.client(None)
    answer = await client.get("/readyz")
    assert answer.status_code == 503
    reasons = {c["name"]: c["reason"] for c in answer.json()["checks"] if not c["ok"]}
    assert reasons == {"scheduler": "no scheduler is alive", "worker": "no worker is alive"}
    assert (await client.get("/healthz")).json() == {"status": "ok"}


# -- where it listens


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "rota.example.invalid"])
def test_a_public_address_without_tls_is_refused_with_a_sentence(host: str):
    with pytest.raises(ConfigError, match=r"without TLS.*ROTA_TLS_CERT.*--insecure-public"):
        check_binding(Settings(host=host))
    check_binding(Settings(host=host, insecure_public=True))


def test_the_loopback_is_fine():
    for host in ("127.0.0.1", "::1", "127.1.2.3", "localhost"):
        assert is_loopback(host)
        check_binding(Settings(host=host))


async def test_the_server_itself_refuses_too(make_app):
    with pytest.raises(ConfigError, match="without TLS"):
        await Server(make_app(port=0, host="0.0.0.0"), routes=ROUTES).start()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", "/CN=localhost", "-keyout", key, "-out", cert,
         "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


def make_key(path: Path) -> None:
    subprocess.run(
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path],
        check=True, capture_output=True,
    )  # fmt: skip


async def test_it_speaks_tls(make_app, certificate: tuple[Path, Path]):
    cert, key = certificate
    async with serving(make_app(port=0, tls_cert=cert, tls_key=key), ROUTES) as server:
        trusting = ssl.create_default_context(cafile=str(cert))
        async with httpx.AsyncClient(verify=trusting, timeout=60) as client:
            answer = await client.get(f"{server.url}/healthz")
        assert answer.status_code == 200
        assert answer.headers["strict-transport-security"]
        assert server.server.url.startswith("https://")


def make_certificate(folder: Path, name: str) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", folder / "key.pem",
         "-out", folder / "cert.pem", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip


async def test_a_certificate_that_is_replaced_is_used_without_a_restart(
    make_app, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(reloading, "LOOK_EVERY", 0.05)
    make_certificate(tmp_path, "first")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"

    async def shown() -> str:
        port = server.server.port
        return await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))

    async with serving(make_app(port=0, tls_cert=cert, tls_key=key), ROUTES) as server:
        assert await shown() == cert.read_text()
        first = cert.read_text()
        cert.write_text("half of a certi")
        await eventually(lambda: "can't be used together" in caplog.text)
        assert await shown() == first
        make_certificate(tmp_path, "second")

        async def is_new() -> bool:
            return await shown() == cert.read_text() != first

        await eventually(is_new)


async def test_a_certificate_that_does_not_fit_is_refused_with_its_name(
    make_app, certificate: tuple[Path, Path], tmp_path: Path
):
    cert, _ = certificate
    other = tmp_path / "key.pem"
    make_key(other)
    for key in (other, tmp_path / "missing.pem"):
        with pytest.raises(ConfigError, match=r"tls_cert .*cert\.pem.* can't be used"):
            await Server(make_app(port=0, tls_cert=cert, tls_key=key), routes=ROUTES).start()
    with pytest.raises(ConfigError, match="go together"):
        Settings(tls_cert=cert)
