"""Whatever is sent, allowed or not, gets an answer that the OpenAPI document foresees."""

from __future__ import annotations

import asyncio
import re

import httpx
import psutil
import pytest

from tests.support.remote_worker import RemoteWorker
from tests.support.server_fixtures import LiveServer

MEGABYTE = 1_000_000


@pytest.mark.proof
@pytest.mark.timeout(600)  # under a minute on a machine of its own
async def test_no_request_gets_an_answer_that_the_document_doesnt_foresee(server: LiveServer):
    from tests.support import fuzzing

    client = await server.client("admin", "*")
    document = (await client.get("/v1/openapi.json")).json()
    schema = fuzzing.read_document(document)
    token = client.headers["Authorization"]
    tried = await asyncio.to_thread(fuzzing.call_everything, schema, server.url, token)
    paths = {
        path for path in document["paths"] if not any(part in path for part in fuzzing.NOT_CALLED)
    }
    assert {path for path, _ in tried} == paths


async def test_nor_does_a_worker_s_request(server: LiveServer):
    """Whose routes are nobody else's, with the id of a worker that is there."""
    from tests.support import fuzzing

    worker = await RemoteWorker.register(server)
    document = (await worker.client.get("/v1/openapi.json")).json()
    schema = fuzzing.read_document(document)
    token = worker.client.headers["Authorization"]

    def call_all() -> set[int]:
        operations = [found.ok() for found in schema.get_all_operations()]
        of_workers = [one for one in operations if one.path.startswith("/v1/workers")]
        # The worker leaves last.
        of_workers.sort(key=lambda one: one.method.upper() == "DELETE")
        return set().union(*(fuzzing.call(one, server.url, token, worker.id) for one in of_workers))

    assert await asyncio.to_thread(call_all) >= {200, 400}


HOSTILE = {
    "a NUL": b'{"task": "a", "payload": {"x": "\\u0000"}}',
    "a raw NUL": b'{"task": "a\0"}',
    "half a surrogate pair": b'{"task": "a", "payload": {"x": "\\ud800"}}',
    "half a pair as a key": b'{"task": "a", "payload": {"\\udfff": 1}}',
    "NaN": b'{"task": "a", "payload": {"x": NaN}}',
    "infinity": b'{"task": "a", "payload": {"x": -Infinity}}',
    "too large a number": b'{"task": "a", "payload": {"x": 1e999}}',
    "depth": b'{"task": "a", "payload": {"x": ' + b"[" * 10_000 + b"]" * 10_000 + b"}}",
    "depth without an end": b'{"task": "a", "payload": ' + b'{"x":' * 100_000,
    "no UTF-8": b'{"task": "a", "payload": {"x": "\xff\xfe"}}',
    "nothing": b"",
    "a number": b"1",
    "half of it": b'{"task": "a", "payload": {',
    "twice": b'{"task": "a"}{"task": "a"}',
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
async def test_what_no_parser_should_see_is_refused_everywhere(server: LiveServer, body: bytes):
    client = await server.client("admin", "*")
    document = (await client.get("/v1/openapi.json")).json()
    asked = 0
    for path, item in document["paths"].items():
        for method, operation in item.items():
            content = operation.get("requestBody", {}).get("content", {})
            if "application/json" not in content:
                continue
            url = path.format(**{p["name"]: "abc" for p in operation.get("parameters", [])})
            answer = await client.request(
                method, url, content=body, headers={"Content-Type": "application/json"}
            )
            assert 400 <= answer.status_code < 500, (method, path, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
            asked += 1
    assert asked > 8
    assert await server.app.jobs.list() == []


async def test_a_body_of_a_gigabyte_is_refused_and_not_held(server: LiveServer):
    client = await server.client("operator")
    before = psutil.Process().memory_info().rss

    async def endless():
        for _ in range(1000):
            yield b" " * MEGABYTE

    for headers in ({}, {"Content-Length": str(1000 * MEGABYTE)}):
        try:
            answer = await client.post("/v1/jobs", content=endless(), headers=headers)
            assert answer.status_code == 413
        except httpx.TransportError:
            pass  # it was cut while it was still sending
    assert psutil.Process().memory_info().rss - before < 60 * MEGABYTE
    assert (await client.get("/v1/jobs")).status_code == 200


async def test_a_line_of_a_bulk_without_an_end_is_not_held(server: LiveServer):
    client = await server.client("operator")
    before = peak = psutil.Process().memory_info().rss

    async def endless():
        nonlocal peak
        yield b'{"task": "first"}\n'
        for _ in range(200):
            yield b"x" * MEGABYTE
            peak = max(peak, psutil.Process().memory_info().rss)
        yield b'\n{"task": "last"}\n'

    summary = (await client.post("/v1/jobs:bulk", content=endless())).json()
    assert (summary["stored"], summary["refused"]) == (2, 1)
    assert summary["errors"][0]["code"] == "payload-too-large"
    assert peak - before < 60 * MEGABYTE


async def test_options_names_every_method_of_a_path(server: LiveServer):
    client = await server.client(None)
    document = (await client.get("/v1/openapi.json")).json()
    for path, item in document["paths"].items():
        known = {
            method.upper() for method in item if method in ("get", "post", "put", "patch", "delete")
        }
        answer = await client.options(path.replace("{", "").replace("}", ""))
        if answer.status_code == 204:  # where the made-up address leads to a route at all
            assert known <= set(answer.headers["allow"].split(", ")), path


async def test_a_wall_time_is_declared_without_an_offset_as_it_is_sent(server: LiveServer):
    client = await server.client("viewer")
    document = (await client.get("/v1/openapi.json")).json()
    schemas = document["components"]["schemas"]
    [declared] = [
        schema["properties"]["local"] for name, schema in schemas.items()
        if name.rpartition("_")[2] == "Occurrence"
    ]  # fmt: skip
    assert "format" not in declared
    preview = await client.post("/v1/schedules:preview", json={"cron": "0 3 * * *"})
    for one in preview.json()["occurrences"]:
        assert re.fullmatch(declared["pattern"], one["local"]), one


async def test_a_namespace_that_was_removed_and_never_used_is_not_found(server: LiveServer):
    boss = await server.client("admin", "*")
    assert (await boss.put("/v1/namespaces/beta", json={"max_jobs": 5})).status_code == 200
    assert (await boss.get("/v1/namespaces/beta")).status_code == 200
    assert (await boss.delete("/v1/namespaces/beta")).status_code == 200
    assert (await boss.get("/v1/namespaces/beta")).status_code == 404
    own = await server.client("viewer", "gamma")
    assert (await own.get("/v1/namespaces/gamma")).status_code == 200
