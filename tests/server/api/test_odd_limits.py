"""Odd and hostile values of every setting of limits, shares, quotas and pools."""

from __future__ import annotations

import json

import pytest

from tests.support.server_fixtures import LiveServer

NUMBERS = [
    "0", "-1", "1.5", "true", '"7"', "[]", "{}", "1e308", "9" * 400, str(2**31), str(2**63), '"ż"',
]  # fmt: skip
TEXTS = ['""', "0", "[]", '"\\u0000"', '"\\ud800"', json.dumps("ż" * 10_000), '"a b/c"']
RATES = [
    '"1000000000/0.001s"', '"0/s"', '"5/0s"', '"-5/s"', '"nan/s"', '"5/infs"', '"5/s "',
    '"99999999999/s"', '"1/367d"', '"٣/s"', json.dumps("5/" + "9" * 5000 + "s"), "5", "[]",
]  # fmt: skip
POLICIES = ['"lifo"', '""', "1", "null", json.dumps("x" * 10_000)]
SECONDS = ["0", "-1", '"x"', "1e308", "[]"]
ODD = {
    "queues/q": {
        "concurrency": NUMBERS, "concurrency_per_key": NUMBERS, "max_depth": NUMBERS,
        "rate": RATES, "policy": POLICIES, "max_run_time": SECONDS,
    },
    "pools/p": {
        "max_slots": NUMBERS, "min_slots": NUMBERS, "slots_per_worker": NUMBERS,
        "drain_target": SECONDS, "queues": [f"[{text}]" for text in TEXTS],
    },
}  # fmt: skip
SETTINGS = [
    (path, field, value)
    for path, fields in ODD.items()
    for field, values in fields.items()
    for value in values
]


async def test_no_odd_value_of_a_setting_is_an_error_of_the_server(server: LiveServer):
    """Each is refused by its name, or taken."""
    client = await server.client("admin")
    await server.app.submit("greet", {}, queue="q")
    wrong = []
    for path, field, value in SETTINGS:
        others = "" if path.startswith("queues") or field == "max_slots" else '"max_slots": 5, '
        answer = await client.request(
            "PUT", f"/v1/{path}", content=f'{{{others}"{field}": {value}}}'.encode(),
            headers={"content-type": "application/json"},
        )  # fmt: skip
        named = field in answer.text or answer.json().get("code") in ("nul", "not-text")
        if answer.status_code >= 500 or (answer.status_code >= 400 and not named):
            wrong.append((answer.status_code, field, value[:40], answer.text[:200]))
    assert not wrong


@pytest.mark.parametrize("rate", ["1/366d", "5/s"])
@pytest.mark.parametrize("burst", [0, -1, 10**9, 10**10, True, "3"])
async def test_a_burst_is_refused_by_its_name_or_works(
    server: LiveServer, rate: str, burst: object
):
    client = await server.client("admin")
    await server.app.submit("greet", {}, queue="q")
    body = {"rate": rate, "rate_burst": burst}
    answer = await client.put("/v1/queues/q", json=body)
    assert (
        answer.status_code == 200
        if (rate, burst) == ("5/s", 10**9)
        else "rate_burst" in answer.text
    )
    assert answer.status_code < 500
    assert (await client.get("/v1/limits")).status_code == 200
