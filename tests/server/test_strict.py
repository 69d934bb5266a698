"""Every query parameter and every field of a body has the type that the document says, or is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, get_args
from uuid import uuid4

import msgspec
from litestar.params import QueryParameter

from rota.server.routes import all_routes
from tests.support.server_fixtures import LiveServer

BAD_TEXTS = {
    bool: ["0", "1", "yes", "null", ""],
    int: ["1.0", "1e1", "null", "", "+5"],
    float: ["null", "", "one", "nan"],
    datetime: ["0.5", "5", "null", "", "-1"],
}
BAD_VALUES = {
    bool: [0, 1, "true"],
    int: ["5", 5.5, True],
    float: ["5", True],
    datetime: [5, 0.5, "5"],
}
ROUTES: list[Any] = [route for route in all_routes() if hasattr(route, "parsed_fn_signature")]


def kinds_in(annotation: Any) -> Iterator[Any]:
    yield annotation
    for inner in get_args(annotation):
        yield from kinds_in(inner)


def only_kind(annotation: Any) -> type | None:
    """The type that a value has to have, when it is one of those that are easily mistaken."""
    kinds = {kind for kind in kinds_in(annotation) if isinstance(kind, type)} - {type(None)}
    return kinds.pop() if len(kinds) == 1 and kinds & BAD_VALUES.keys() else None


def path_of(route: Any) -> str:
    path = min(route.paths)
    return re.sub(r"\{[a-z_]+:([a-z]+)\}", lambda m: str(uuid4()) if m[1] == "uuid" else "x", path)


def queries() -> Iterator[tuple[Any, str, type]]:
    for route in ROUTES:
        for name, field in route.parsed_fn_signature.parameters.items():
            kind = only_kind(field.annotation)
            if isinstance(field.kwarg_definition, QueryParameter) and kind is not None:
                yield route, field.kwarg_definition.name or name, kind


def bodies() -> Iterator[tuple[Any, str, type]]:
    for route in ROUTES:
        if (data := route.parsed_fn_signature.parameters.get("data")) is not None:
            [struct, *_] = (k for k in kinds_in(data.annotation) if hasattr(k, "__struct_fields__"))
            for field in msgspec.structs.fields(struct):
                if kind := only_kind(field.type):
                    yield route, field.encode_name, kind


async def test_a_query_parameter_of_another_type_is_refused(server: LiveServer):
    admin = await server.client("admin", "*")
    found = list(queries())
    assert {kind for _, _, kind in found} == {bool, int, float, datetime}
    for route, name, kind in found:
        for text in BAD_TEXTS[kind]:
            method = min(route.http_methods)
            answer = await admin.request(method, path_of(route), params={name: text})
            assert answer.status_code == 400, (route.handler_name, name, text, answer.text)
            assert [field["name"] for field in answer.json()["fields"]] == [name]


async def test_what_clients_send_is_understood(server: LiveServer):
    viewer = await server.client("viewer")
    params = {
        "since": "2020-01-01T00:00:00+02:00", "until": "2027-01-01T00:00:00.5Z", "limit": "5",
        "count": "true",
    }  # fmt: skip
    assert (await viewer.get("/v1/jobs", params=params)).status_code == 200
    assert (await viewer.get("/v1/schedules", params={"paused": "false"})).status_code == 200


async def test_a_field_of_another_type_is_refused(server: LiveServer):
    clients = {role: await server.client(role, "*") for role in ("admin", "worker")}
    found = list(bodies())
    assert {kind for _, _, kind in found} == set(BAD_VALUES)
    for route, name, kind in found:
        client = clients["worker" if "/workers" in path_of(route) else "admin"]
        for value in BAD_VALUES[kind]:
            method = min(route.http_methods)
            answer = await client.request(method, path_of(route), json={name: value})
            assert answer.status_code == 400, (route.handler_name, name, value, answer.text)
            assert [field["name"] for field in answer.json()["fields"]] == [name]


async def test_a_missing_body_is_told_with_what_it_needs(server: LiveServer):
    admin = await server.client("admin", "*")
    answer = await admin.post("/v1/schedules")
    assert answer.status_code == 400
    assert "a body is needed" in answer.json()["detail"]
    assert [field["name"] for field in answer.json()["fields"]] == ["name"]
    worker = await server.client("worker")
    answer = await worker.post(f"/v1/workers/{uuid4()}/claim")
    assert answer.status_code == 400
    assert "request, max, wait" in answer.json()["detail"]
    for route in ROUTES:
        data = route.parsed_fn_signature.parameters.get("data")
        if data is None or data.is_optional:
            continue
        client = worker if "/workers" in path_of(route) else admin
        answer = await client.request(min(route.http_methods), path_of(route))
        assert answer.status_code == 400, (route.handler_name, answer.text)
        assert "a body is needed" in answer.json()["detail"], answer.text
