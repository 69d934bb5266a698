"""Sends what the OpenAPI document allows and forbids, and checks the answers against the document.

Imported by the tests that use it, not by their modules: it takes longer than most tests.
"""

from __future__ import annotations

from typing import Any

import hypothesis
import schemathesis
from hypothesis import HealthCheck, Phase
from schemathesis.checks import CheckFunction
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

# Endless answers, a log-in at a provider, and the route that says 503 when no worker is there.
NOT_CALLED = ("/stream", "/oidc/", "/readyz")
EXAMPLES = 8
CHECKS: list[CheckFunction] = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@schemathesis.serializer("application/x-ndjson")
def lines(_: object, value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def read_document(document: dict[str, Any]) -> Any:
    return schemathesis.openapi.from_dict(document)


def call_everything(schema, url: str, token: str) -> set[tuple[str, str]]:
    tried: set[tuple[str, str]] = set()
    statuses: set[int] = set()
    wrong: list[Exception] = []
    for found in schema.get_all_operations():
        operation = found.ok()
        if not any(part in operation.path for part in NOT_CALLED):
            try:
                got = call(operation, url, token)
                assert 401 not in got or operation.path.startswith("/login"), operation.path
                statuses |= got
            except Exception as error:  # noqa: BLE001 - all of them are told together
                wrong.append(error)
            tried.add((operation.path, operation.method))
    if wrong:
        raise ExceptionGroup("answers that the document doesn't foresee", wrong)
    # What was sent was neither all right nor all wrong.
    assert statuses >= {200, 400, 404, 422}, statuses
    return tried


def call(operation, url: str, token: str, worker: str | None = None) -> set[int]:
    statuses: set[int] = set()
    cases = operation.as_strategy() | operation.as_strategy(
        generation_mode=schemathesis.GenerationMode.NEGATIVE
    )

    @hypothesis.given(case=cases)
    @hypothesis.settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def one(case) -> None:
        headers = {"Authorization": token}
        if worker is not None and "worker_id" in (case.path_parameters or {}):
            case.path_parameters["worker_id"] = worker
        if worker is not None and isinstance(case.body, dict) and "wait" in case.body:
            case.body.pop("wait")  # half a minute each
        answer = case.call_and_validate(base_url=url, headers=headers, checks=CHECKS)
        statuses.add(answer.status_code)

    one()
    return statuses
