"""What is defined both in Python and in SQL is the same."""

from __future__ import annotations

import re

import msgspec

from rota.lib.ids import new_id
from rota.operations.event_text import sentence
from rota.operations.job_request import JobRequest
from rota.operations.webhooks import KINDS
from rota.runtime.listener import channel_of
from rota.store.sql import function_statements, load_queries
from rota.submission import HEADER_LIMITS

_RECORDS = re.compile(
    r"insert into rota\.event \(namespace, kind.*?\)\s*(?:select|values)(.*?)(?:json_build_object|;)",
    re.DOTALL,
)


def test_webhooks_can_subscribe_to_every_kind_of_event_that_sql_records():
    statements = [*function_statements("rota"), *load_queries("rota").values()]
    segments = [part for text in statements for part in _RECORDS.findall(text + ";")]
    recorded = {kind for part in segments for kind in re.findall(r"(?<!when )'([a-z_]+)'", part)}
    assert "dead_lettered" in recorded
    assert recorded <= set(KINDS)


def test_every_kind_of_event_has_a_sentence():
    assert [kind for kind in KINDS if sentence({"kind": kind, "task": "t"}) == f"t: {kind}"] == []


async def test_channels_have_the_same_names(app):
    database = (await app.store()).database
    node = new_id()
    query = f"select {database.schema}.channel('a'), {database.schema}.channel('a', $1)"
    async with database.connection() as connection:
        assert tuple(await connection.fetchrow(query, node)) == (
            channel_of(database.schema, "a"),
            channel_of(database.schema, "a", node),
        )


def test_limits_of_a_job_are_the_same():
    (check,) = (text for text in function_statements("rota") if "function rota.check_job(" in text)
    fields = msgspec.json.schema(JobRequest)["$defs"]["JobRequest"]["properties"]
    most = fields["max_attempts"]["anyOf"][0]["maximum"]
    longest = fields["key"]["anyOf"][0]["maxLength"]
    assert f"max_attempts not between 1 and {most}" in check
    assert f"length(key) not between 1 and {longest}" in check
    assert f"octet_length(headers::text) > {HEADER_LIMITS.payload_bytes}" in check
