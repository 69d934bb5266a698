"""Coordination by etcd 3.4 or newer, over the JSON gateway that every server has (`/v3/*`).

Protocol. A node has one lease; its member key and the keys of its shards are attached to it. A shard is
granted by a transaction "if the key was never created, put it": 64 of them, each with a condition of its
own, inside one. The fencing number is the key's `create_revision`. A view is one linearizable range. A
keep-alive of a lease that is over answers 200 without a TTL: then everything was lost with it, and the
node begins with a new one. A release deletes the keys that have this node's name; leaving revokes the
lease. An answer that was lost is found in the next view.

etcd's keys alone exclude nobody: a node that sleeps past its lease doesn't know that its keys are gone.
The database's fence does.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import httpx

from rota.lib.addresses import Address
from rota.scheduler.coordination import CoordinatorUnavailable, Grant, View
from rota.scheduler.coordination.http import Servers

_CHUNK = 64  # operations in a transaction: nested, 127 are allowed by default
_SHORTEST = 2  # seconds: what a server rounds shorter leases up to, by default


class EtcdCoordination:
    """Grants shards by keys that live as long as their node's lease."""

    def __init__(
        self, address: Address, folder: str, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._servers = Servers(address, transport=transport)
        self._user, self._password = address.user, address.password
        self._folder = f"/{folder}"
        self._token: str | None = None
        self._leases: dict[UUID, tuple[str, int]] = {}  # the lease's id, and its TTL
        self._joined: dict[UUID, str] = {}  # the lease to which the member's key is attached

    async def acquire(self, node: UUID, ttl: float, shards: Sequence[int]) -> list[Grant]:
        lease, _ = await self._lease_of(node, ttl)
        granted: list[Grant] = []
        for chunk in _chunks(shards):
            operations = [
                _only_if(
                    {"key": key, "target": "CREATE", "create_revision": "0"},
                    {"request_put": {"key": key, "value": _encode(str(node)), "lease": lease}},
                )
                for key in (self._key("shards", shard) for shard in chunk)
            ]
            answer = await self._transact(operations)
            if answer is None:  # the lease is over: everything is asked for again with a new one
                self._leases.pop(node, None)
                return granted
            revision = int(answer["header"]["revision"])
            granted += [
                Grant(shard, revision)
                for shard, each in zip(chunk, answer["responses"], strict=True)
                if each["response_txn"].get("succeeded")
            ]
        return granted

    async def renew(self, node: UUID, ttl: float) -> View:
        if node in self._leases:
            lease, _ = self._leases[node]
            answer = await self._post("/v3/lease/keepalive", {"ID": lease})
            left = int(answer.get("result", {}).get("TTL", 0))
            if left > 0:
                self._leases[node] = (lease, left)
            else:
                del self._leases[node]
        lease, lasts = await self._lease_of(node, ttl)
        if self._joined.get(node) != lease:
            name = _encode(str(node))
            member = {"key": self._key("members", node), "value": name, "lease": lease}
            if await self._transact([{"request_put": member}]) is None:
                self._leases.pop(node, None)
                raise CoordinatorUnavailable("etcd: the lease ended before it was used")
            self._joined[node] = lease
        view = await self.watch(node)
        if node not in view.members:  # somebody has deleted it
            self._joined.pop(node, None)
        return View(view.members, view.owners, float(lasts))

    async def watch(self, node: UUID) -> View:
        first, end = f"{self._folder}/", f"{self._folder}0"  # 0 follows /
        answer = await self._post(
            "/v3/kv/range", {"key": _encode(first), "range_end": _encode(end)}
        )
        lease, lasts = self._leases.get(node, (None, None))
        members, owners = [], {}
        for entry in answer.get("kvs", []):
            kind, name = _decode(entry["key"])[len(first) :].split("/", 1)
            owner = UUID(_decode(entry["value"]))
            if kind == "members":
                members.append(owner)
            elif owner != node or lease is None or entry.get("lease") == lease:
                # A key with our name and another lease came back with a backup, and ends with that.
                owners[int(name)] = (owner, int(entry["create_revision"]))
        held = float(lasts) if lasts is not None else None
        return View(tuple(sorted(members)), dict(sorted(owners.items())), held)

    async def release(self, node: UUID, shards: Sequence[int] | None = None) -> None:
        if shards is None:
            self._joined.pop(node, None)
            if (held := self._leases.pop(node, None)) is not None:
                await self._post("/v3/lease/revoke", {"ID": held[0]}, missing_ok=True)
            return
        for chunk in _chunks(shards):
            operations = [
                _only_if(
                    {"key": key, "target": "VALUE", "value": _encode(str(node))},
                    {"request_delete_range": {"key": key}},
                )
                for key in (self._key("shards", shard) for shard in chunk)
            ]
            await self._transact(operations)

    async def close(self) -> None:
        await self._servers.close()

    # -- requests

    async def _lease_of(self, node: UUID, ttl: float) -> tuple[str, int]:
        if node not in self._leases:
            wanted = max(math.ceil(ttl), _SHORTEST)
            answer = await self._post("/v3/lease/grant", {"TTL": str(wanted)})
            self._leases[node] = (answer["ID"], int(answer["TTL"]))
        return self._leases[node]

    async def _transact(self, operations: list[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the answer; None: a lease that is named in it is over."""
        answer = await self._post("/v3/kv/txn", {"success": operations}, missing_ok=True)
        return answer or None

    async def _post(self, path: str, body: Any, *, missing_ok: bool = False) -> dict[str, Any]:
        """Return the answer; empty if what it names doesn't exist, and that is all right."""
        for attempt in (1, 2):
            if self._user and self._token is None:
                self._token = await self._log_in()
            headers = {"Authorization": self._token} if self._token else None
            response = await self._servers.request("POST", path, body, headers)
            if response.status_code == 200:
                found: dict[str, Any] = response.json()
                return found
            if response.status_code == 404 and missing_ok:
                return {}
            if response.status_code == 401 and self._user and attempt == 1:
                self._token = None  # they end, and are forgotten by a restart
                continue
            break
        raise CoordinatorUnavailable(
            f"etcd refused {path}: {response.status_code} {response.text[:200].strip()}"
        )

    async def _log_in(self) -> str:
        body = {"name": self._user, "password": self._password}
        response = await self._servers.request("POST", "/v3/auth/authenticate", body)
        if response.status_code != 200:
            raise CoordinatorUnavailable(
                f"etcd refused the user {self._user!r}: {response.status_code} "
                f"{response.text[:200].strip()}"
            )
        token: str = response.json()["token"]
        return token

    def _key(self, kind: str, name: object) -> str:
        return _encode(f"{self._folder}/{kind}/{name}")


def _only_if(condition: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any]:
    compare = [{"result": "EQUAL", **condition}]
    return {"request_txn": {"compare": compare, "success": [operation]}}


def _chunks(shards: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(shards), _CHUNK):
        yield shards[start : start + _CHUNK]


def _encode(text: str) -> str:
    return b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return b64decode(text).decode()
