"""Asks Kafka for a topic's id and partitions, which aiokafka doesn't tell: the request Metadata in its
version 10, of Kafka 2.8 and newer.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import msgspec
from aiokafka.errors import KafkaConnectionError, for_code
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

from rota.core.positions import Vector

_UNKNOWN_TOPIC = 3


class Topic(msgspec.Struct, frozen=True):
    topic: str  # its id
    partitions: Sequence[int]

    def new_to(self, at: Vector) -> bool:
        """Whether there are partitions that a position doesn't have."""
        return any(number not in at.offsets for number in self.partitions)


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


async def ask_topic(consumer: Any, name: str) -> Topic | None:
    """Return the topic of a name as it is now; None: there is none."""
    client = consumer._client
    node = client.get_random_node()
    if node is None:
        raise KafkaConnectionError("no broker is known")
    answer = await client.send(node, _Metadata(name))
    error, _, id, _, partitions, *_ = answer.topics[0]
    if error == _UNKNOWN_TOPIC:
        return None
    if error:
        raise for_code(error)(name)
    text = base64.urlsafe_b64encode(id).decode().rstrip("=")
    return Topic(text, sorted(partition[1] for partition in partitions))
