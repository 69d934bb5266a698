"""Sets up and stops clients of Kafka, for all parts that speak to it, and asks for a topic's id and
partitions.

aiokafka doesn't tell the id: it is asked for by the request Metadata in its version 10, of Kafka 2.8 and
newer.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import msgspec
from aiokafka.errors import (
    KafkaConnectionError,
    NodeNotReadyError,
    RequestTimedOutError,
    for_code,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from rota.lib.addresses import Address
from rota.lib.ids import unit

ANSWER = 10.0  # seconds that a broker has for an answer
STOP = 2.0
_UNKNOWN_TOPIC = 3


def connection_settings(field: str, address: Address) -> dict[str, Any]:
    """Return the arguments of a client of aiokafka. `field`: the setting that has the address."""
    settings: dict[str, Any] = {
        "bootstrap_servers": list(address.hosts), "client_id": "rota",
        "request_timeout_ms": int(ANSWER * 1000), "ssl_context": address.ssl_context(field),
        "security_protocol": ("SASL_" if address.user else "") + ("SSL" if address.tls else "PLAINTEXT"),
    }  # fmt: skip
    if address.user:
        settings |= {"sasl_mechanism": address.options.get("sasl", "PLAIN"),
                     "sasl_plain_username": address.user,
                     "sasl_plain_password": address.password}  # fmt: skip
    return settings


_stopping: set[asyncio.Task[None]] = set()


def begin_stop(client: Any, after: asyncio.Task[None] | None = None) -> asyncio.Task[None]:
    """Begin to close the lines to the brokers. That goes on, however long a broker doesn't answer: one
    that was given up half-way would stay in its group, and keep its partitions. `after`: what starts
    the client. Cancelled half-way it would leave a line open.
    """
    stopping = asyncio.create_task(_stop(client, after))
    _stopping.add(stopping)  # the loop itself doesn't keep it
    stopping.add_done_callback(_stopping.discard)
    stopping.add_done_callback(lambda task: task.cancelled() or task.exception())
    return stopping


async def _stop(client: Any, after: asyncio.Task[None] | None) -> None:
    if after is not None:
        with contextlib.suppress(Exception):
            await after
    await client.stop()


async def stop_client(client: Any) -> None:
    """Close the lines to the brokers. One that doesn't answer is not waited for."""
    await asyncio.wait({begin_stop(client)}, timeout=STOP)


async def close_lines(client: Any) -> None:
    """Close the lines of a client that can't be stopped, because its broker doesn't answer."""
    inner = client.client if hasattr(client, "client") else client._client
    await inner.close()


class Topic(msgspec.Struct, frozen=True):
    topic: str  # its id
    partitions: Sequence[int]


class _Id:
    """A UUID on the wire."""

    @staticmethod
    def encode(value: bytes) -> bytes:
        return value

    @staticmethod
    def decode(data: BytesIO) -> bytes:
        return data.read(16)


class _Answer(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 3, 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("brokers", CompactArray(
            ("node_id", Int32), ("host", CompactString("utf-8")), ("port", Int32),
            ("rack", CompactString("utf-8")), ("tags", TaggedFields),
        )),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        ("topics", CompactArray(
            ("error_code", Int16), ("topic", CompactString("utf-8")), ("topic_id", _Id),
            ("is_internal", Boolean),
            ("partitions", CompactArray(
                ("error_code", Int16), ("partition", Int32), ("leader", Int32),
                ("leader_epoch", Int32), ("replicas", CompactArray(Int32)),
                ("isr", CompactArray(Int32)), ("offline", CompactArray(Int32)),
                ("tags", TaggedFields),
            )),
            ("authorized_operations", Int32), ("tags", TaggedFields),
        )),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )  # fmt: skip


class _Question(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION = 3, 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        ("topics", CompactArray(
            ("topic_id", _Id), ("topic", CompactString("utf-8")), ("tags", TaggedFields),
        )),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )  # fmt: skip


class _Metadata(Request[_Question]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def build(self, request_struct_class: type[_Question]) -> _Question:
        return request_struct_class([(bytes(16), self._topic, {})], False, False, False, {})


async def ask_topic(client: Any, name: str) -> Topic | None:
    """Return the topic of a name as it is now; None: there is none. `client`: an `AIOKafkaClient`.

    Each broker that is known is asked, until one answers.
    """
    nodes = [broker.nodeId for broker in client.cluster.brokers()]
    nodes.sort(key=lambda _: unit())
    fault: Exception = KafkaConnectionError("no broker is known")
    for node in nodes:
        try:
            return _topic(name, await client.send(node, _Metadata(name)))
        except (KafkaConnectionError, NodeNotReadyError, RequestTimedOutError) as error:
            fault = error
    raise fault


def _topic(name: str, answer: Any) -> Topic | None:
    error, _, id, _, partitions, *_ = answer.topics[0]
    if error == _UNKNOWN_TOPIC:
        return None
    if error:
        raise for_code(error)(name)
    text = base64.urlsafe_b64encode(id).decode().rstrip("=")
    return Topic(text, sorted(partition[1] for partition in partitions))
