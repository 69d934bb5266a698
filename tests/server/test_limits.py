"""What the server refuses to read, to wait for, and to be: bodies, slow clients, public addresses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable

import httpx
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proof.waiting import eventually
from rota import App
from rota.core.payloads import json_depth
from rota.server.problems import Problem
from rota.server.strict import check_json, has_half_surrogate
from tests.support.routes import ROUTES
from tests.support.server_fixtures import LiveServer, serving


@pytest.fixture
async def echoing(make_app: Callable[..., App]) -> AsyncIterator[LiveServer]:
    async with serving(make_app(port=0), ROUTES) as live:
        yield live


# -- bodies


REFUSED = {
    "10,000 deep arrays": b"[" * 10_000 + b"]" * 10_000,
    "10,000 deep objects": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "deep and unfinished": b"[" * 1_000_000,
    "a NUL, escaped": b'{"a": "x\\u0000y"}',
    "a NUL in a key": b'{"x\\u0000y": 1}',
    "a NUL as it is": b'{"a": "x\0y"}',
    "half a surrogate pair": b'{"a": "\\ud800"}',
    "half a pair and text": b'{"a": "\\ud83dx"}',
    "the other half": b'{"a": "\\udc00"}',
    "two first halves": b'{"a": "\\ud83d\\ud83d"}',
    "a surrogate in UTF-8": b'{"a": "\xed\xa0\x80"}',
    "not UTF-8": b'{"a": "\xff"}',
    "Latin-1": '{"a": "ä"}'.encode("latin-1"),
    "NaN": b'{"a": NaN}',
    "Infinity": b'{"a": -Infinity}',
    "no JSON": b"hello",
    "too much JSON": b"{}{}",
    "nothing": b"",
    "a number without end": b"1" + b"0" * 1_000_000,
}
FINE = {
    "text about a NUL": (b'{"a": "\\\\u0000"}', {"a": "\\u0000"}),
    "a pair": (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
    "text about half a pair": (b'{"a": "\\\\ud800"}', {"a": "\\ud800"}),
    "brackets in text": (b'{"a": "' + b"[" * 5_000 + b'"}', {"a": "[" * 5_000}),
    "many shallow lists": (b"[" + b",".join([b"[]"] * 5_000) + b"]", [[]] * 5_000),
}


@pytest.mark.parametrize("body", REFUSED.values(), ids=REFUSED.keys())
async def test_a_body_that_could_hurt_is_refused(echoing: LiveServer, body: bytes):
    client = await echoing.client("operator")
    answer = await client.post("/v1/jobs/echo", content=body)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(("body", "value"), FINE.values(), ids=FINE.keys())
async def test_a_body_that_only_looks_like_it_is_taken(echoing: LiveServer, body: bytes, value):
    client = await echoing.client("operator")
    answer = await client.post("/v1/jobs/echo", content=body)
    assert (answer.status_code, answer.json()) == (201, value)


def depth_byte_by_byte(body: bytes) -> int:
    """The slow way, as the grammar says it."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in body:
        if in_string:
            in_string = escaped or byte != 0x22
            escaped = not escaped and byte == 0x5C
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


@given(
    st.recursive(
        st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_depth_is_counted_as_the_slow_way_counts_it(value):
    body = httpx.Request("POST", "http://x", json=value).content
    assert json_depth(body) == depth_byte_by_byte(body)
    assert not has_half_surrogate(body)


@given(st.text('"\\[]{}u0', max_size=40))
def test_depth_is_counted_in_what_is_no_json_as_well(text):
    assert json_depth(text.encode()) == depth_byte_by_byte(text.encode())


HOSTILE: dict[str, bytes] = {
    "escaped quotes in a string without end": b'\\"',
    "quotes": b'"',
    "opening brackets": b"[",
    "backslashes": b"\\",
    "text about a NUL": b"\\\\u0000",
    "backslashes and text about a NUL": b"\\\\" * 50 + b"u0000",
    "whole pairs": b"\\ud83d\\ude00",
    "strings": b'"a",',
}


def cost_of(body: bytes) -> float:
    """CPU seconds of this thread, of the best of a few."""
    found = []
    for _ in range(5):
        begun = time.thread_time()
        with contextlib.suppress(Problem):
            check_json(body, 80)
        found.append(time.thread_time() - begun)
    return min(found)


@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE.keys())
def test_judging_a_body_costs_no_more_than_its_size(piece: bytes):
    def body(size: int) -> bytes:
        return b'[["' + piece * (size // len(piece)) + b"[" * 100  # more brackets than levels

    # Eight times the size: eight times the work, where a scan that begins anew makes it 64.
    assert cost_of(body(32_000)) < 24 * cost_of(body(4_000))


def memory() -> int:
    return psutil.Process(os.getpid()).memory_info().rss


async def gigabyte() -> AsyncIterator[bytes]:
    piece = b" " * 1_000_000
    for _ in range(1_000):
        yield piece


@pytest.mark.parametrize("announced", [True, False])
async def test_a_gigabyte_is_refused_with_flat_memory(echoing: LiveServer, announced: bool):
    client = await echoing.client("operator")
    await client.post("/v1/jobs/echo", json={})  # what a first request needs, it has
    before = memory()
    headers = {"Content-Length": "1000000000"} if announced else {}
    # Refused in the middle, a client may learn it only as a line that was cut.
    with contextlib.suppress(httpx.WriteError, httpx.ReadError, httpx.RemoteProtocolError):
        answer = await client.post("/v1/jobs/echo", content=gigabyte(), headers=headers)
        assert answer.status_code == 413
        assert answer.json()["code"] == "payload-too-large"
    assert memory() - before < 50_000_000
    assert (await client.post("/v1/jobs/echo", json={"a": 1})).json() == {"a": 1}


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_over_the_limit_is_413(echoing: LiveServer, announced: bool):
    client = await echoing.client("operator")
    body = b" " * 2_500_000

    async def pieces() -> AsyncIterator[bytes]:
        yield body

    answer = await client.post("/v1/jobs/echo", content=body if announced else pieces())
    assert (answer.status_code, answer.json()["code"]) == (413, "payload-too-large")


async def test_a_body_in_pieces_is_read_with_flat_memory_where_a_route_wants_it(echoing):
    client = await echoing.client("operator")
    before = memory()
    answer = await client.post("/v1/jobs/count", content=gigabyte(), timeout=170)
    assert answer.json() == 1_000_000_000
    assert memory() - before < 50_000_000


async def test_an_encoded_body_is_refused(echoing: LiveServer):
    client = await echoing.client("operator")
    answer = await client.post("/v1/jobs/echo", content=b"x", headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415


FORMS = ("application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain")


@pytest.mark.parametrize("kind", FORMS)
@pytest.mark.parametrize("body", [b'{"link": "\xff"}', b"[" * 10_000, b'{"link": "a"}', b"%ff=1"])
async def test_what_is_not_called_json_is_415_on_a_route_for_json(server: LiveServer, kind, body):
    stranger = await server.client(None)
    for path in ("/login/link", "/login/password"):
        answer = await stranger.post(path, content=body, headers={"Content-Type": kind})
        assert answer.status_code == 415, answer.text
        assert "application/json" in answer.json()["detail"]


async def test_an_origin_that_is_no_address_is_refused(server: LiveServer):
    stranger = await server.client(None)
    for origin in ("http://[bad", "http://[::1", "null", "\xff"):
        answer = await stranger.post(
            "/login/link", json={"link": "a"}, headers={"Origin": origin.encode("latin-1")}
        )
        assert answer.status_code == 403, answer.text


async def test_a_stranger_may_send_less_than_somebody_with_a_token(echoing: LiveServer):
    stranger, operator = await echoing.client(None), await echoing.client("operator")
    large = {"x": "x" * 100_000}
    assert (await operator.post("/v1/jobs/echo", json=large)).status_code == 201
    answer = await stranger.post("/v1/anyone", json=large)
    assert answer.status_code == 413, answer.text
    assert (await stranger.post("/v1/anyone", json={"x": "x" * 1_000})).status_code == 201


async def test_large_answers_are_compressed_for_those_who_can(echoing: LiveServer):
    client = await echoing.client("operator")
    answer = await client.post("/v1/jobs/echo", json={"a": "x" * 5_000})
    assert answer.headers["content-encoding"] == "gzip"
    plain = await client.post(
        "/v1/jobs/echo", json={"a": "x" * 5_000}, headers={"Accept-Encoding": "identity"}
    )
    assert "content-encoding" not in plain.headers


# -- errors and ids


async def test_what_breaks_inside_says_nothing_of_it(echoing: LiveServer, caplog):
    client = await echoing.client(None)
    answer = await client.get("/v1/broken", headers={"X-Request-Id": "mine-1"})
    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert answer.json()["request_id"] == answer.headers["x-request-id"] == "mine-1"
    assert any("mine-1" in r.getMessage() and r.exc_info for r in caplog.records)


async def test_every_answer_has_a_request_id_and_says_what_browsers_must_not_do(echoing):
    client = await echoing.client(None)
    for path in ("/healthz", "/nowhere", "/v1/session", "/v1/broken", "/x%00y", "/x?a=%00"):
        answer = await client.get(path)
        assert answer.headers["x-request-id"], path
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
    for bad in ("x" * 100, "a b", "<script>"):
        answer = await client.get("/healthz", headers={"X-Request-Id": bad})
        assert answer.headers["x-request-id"] != bad


@pytest.mark.parametrize("path", ["/x%00y", "/healthz?a=%00", "/v1/session?namespace=%00"])
async def test_a_nul_in_an_address_is_refused(echoing: LiveServer, path: str):
    answer = await (await echoing.client("viewer")).get(path)
    assert (answer.status_code, answer.json()["code"]) == (400, "nul")


async def test_the_document_has_every_route_and_its_problems(server: LiveServer):
    client = await server.client(None)
    document = (await client.get("/v1/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    operation = document["paths"]["/v1/tokens"]["post"]
    assert {"201", "400", "401", "403", "413", "422", "429"} <= operation["responses"].keys()
    problem = operation["responses"]["401"]["content"]["application/problem+json"]
    assert problem["schema"]["$ref"] == "#/components/schemas/Problem"
    assert operation["security"]


# -- slow clients


@contextlib.asynccontextmanager
async def raw(
    server: LiveServer,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    with contextlib.suppress(ConnectionResetError):
        async with asyncio.timeout(60):
            return await reader.read()
    return b""


@pytest.fixture
async def impatient(make_app: Callable[..., App]) -> AsyncIterator[LiveServer]:
    async with serving(make_app(port=0, request_timeout=1.0, grace=1.0), ROUTES) as live:
        yield live


SLOW = b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "


@pytest.mark.parametrize(("beginning", "told"), [(b"", b""), (SLOW, b"HTTP/1.1 408")])
async def test_headers_that_do_not_come_end_the_connection(impatient, beginning, told):
    async with raw(impatient) as (reader, writer):
        writer.write(beginning)
        assert (await until_closed(reader)).startswith(told)


async def test_headers_that_trickle_end_the_connection(impatient: LiveServer):
    """Each byte comes in time, and all of them never would."""
    async with raw(impatient) as (reader, writer):
        writer.write(SLOW)

        async def trickle() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.1)

        trickling = asyncio.create_task(trickle())
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 408")
        trickling.cancel()


async def test_a_body_that_trickles_is_408(impatient: LiveServer):
    token = await impatient.token("operator")
    async with raw(impatient) as (reader, writer):
        writer.write(
            b"POST /v1/jobs/echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer " + token.encode() + b"\r\nContent-Length: 1000\r\n\r\n{"
        )
        told = await until_closed(reader)
    assert told.startswith(b"HTTP/1.1 408")
    assert b'"code":"timeout"' in told


async def test_headers_without_end_are_431(impatient: LiveServer):
    async with raw(impatient) as (reader, writer):
        with contextlib.suppress(ConnectionError):
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
            for number in range(300):
                writer.write(b"X-%d: " % number + b"x" * 1000 + b"\r\n")
                await writer.drain()
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 431")


async def test_a_client_that_does_not_take_its_answer_is_dropped(impatient: LiveServer):
    async with raw(impatient) as (_, writer):
        writer.transport.pause_reading()
        writer.write(b"GET /v1/large HTTP/1.1\r\nHost: x\r\n\r\n")
        await eventually(lambda: impatient.server.connections, what="the connection")
        await eventually(lambda: not impatient.server.connections, what="its end")


# -- many clients


@contextlib.asynccontextmanager
async def crowd_of(
    server: LiveServer, number: int, source: str = "127.0.0.1"
) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Connections that say nothing, from an address of this machine."""
    opened = [
        await asyncio.open_connection("127.0.0.1", server.server.port, local_addr=(source, 0))
        for _ in range(number)
    ]
    try:
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.transport.abort()


async def ask(server: LiveServer, path: str, source: str = "127.0.0.1") -> int:
    transport = httpx.AsyncHTTPTransport(local_address=source)
    async with httpx.AsyncClient(base_url=server.url, transport=transport, timeout=60) as client:
        return (await client.get(path)).status_code


async def test_idle_connections_of_one_address_leave_room_for_others(make_app):
    async with serving(
        make_app(port=0, max_connections=40, max_connections_per_address=10)
    ) as live:
        async with crowd_of(live, 60, "127.0.0.66") as readers:
            # The one that was too many is told so, and closed.
            assert (await asyncio.wait_for(readers[-1].read(), 60)).startswith(b"HTTP/1.1 503")
            with contextlib.suppress(httpx.TransportError):  # cut off before it could ask
                assert await ask(live, "/healthz", "127.0.0.66") == 503
            assert await ask(live, "/healthz") == 200
            assert await ask(live, "/v1/session") == 401
        await eventually(lambda: not live.server.connections)
        assert await ask(live, "/healthz", "127.0.0.66") == 200


async def test_an_idle_connection_makes_room_for_one_that_asks(make_app):
    app = make_app(port=0, max_connections=20, trusted_proxies="127.0.0.1")
    async with serving(app) as live, crowd_of(live, 100) as readers:
        assert await ask(live, "/v1/session") == 401
        assert len(live.server.connections) <= 20
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(readers[0].read(), 60) == b""  # it waited for longest


async def test_a_full_server_says_that_it_is_there(make_app):
    """All connections are busy with answers that go on."""
    app = make_app(port=0, max_connections=5)
    async with serving(app, ROUTES) as live, contextlib.AsyncExitStack() as stack:
        client = await live.client(None)
        for _ in range(5):
            answer = await stack.enter_async_context(client.stream("GET", "/v1/endless"))
            assert answer.status_code in (200, 503)
        assert await ask(live, "/v1/session") == 503
        assert await ask(live, "/healthz") == 200
