"""Coordination by Consul, over its HTTP API.

Protocol. A node has one session (no checks, no lock delay, locks are released when it ends), renewed
by its TTL. A shard is granted by locking its key: up to 64 in one transaction, all or nothing; a 409
says which were another's, and the rest is asked for again. The fencing number is the key's
`ModifyIndex`: nobody writes a key that is locked. A view is one consistent read of the folder; a key
without a session is nobody's. Keys of members that have ended are deleted by whoever renews.

Consul's shortest TTL is 10 s, and a session may live for twice its TTL after its last renewal: the
slowest takeover of all coordinators.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx

from rota.lib.addresses import Address
from rota.scheduler.coordination import CoordinatorUnavailable, Grant, View
from rota.scheduler.coordination.http import Servers

_CHUNK = 64
_SHORTEST, _LONGEST = 10, 86_400  # seconds
_TRIES = 5  # of a transaction that others are faster than
_SECONDS = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


class ConsulCoordination:
    """Grants shards by locks on keys, held by their node's session."""

    def __init__(
        self, address: Address, folder: str, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        headers = {"X-Consul-Token": address.password} if address.password else None
        self._servers = Servers(address, headers, transport)
        self._folder = folder
        datacenter = address.options.get("datacenter")
        self._where = f"dc={quote(datacenter)}" if datacenter else ""
        self._sessions: dict[UUID, tuple[str, float]] = {}
        self._joined: dict[UUID, str] = {}

    async def acquire(self, node: UUID, ttl: float, shards: Sequence[int]) -> list[Grant]:
        session, _ = await self._session_of(node, ttl)
        # A lock that this session has already would be granted again, under a new number.
        held = {shard for shard, _, _ in (await self._read(node))[1]}
        wanted = [shard for shard in shards if shard not in held]
        granted: list[Grant] = []
        for start in range(0, len(wanted), _CHUNK):
            granted += await self._lock(node, session, wanted[start : start + _CHUNK])
        return sorted(granted)

    async def renew(self, node: UUID, ttl: float) -> View:
        if node in self._sessions:
            session, _ = self._sessions[node]
            response = await self._ask("PUT", f"/v1/session/renew/{session}", missing_ok=True)
            if response is None:
                del self._sessions[node]
            else:
                self._sessions[node] = (session, _to_seconds(response.json()[0]["TTL"]))
        session, lasts = await self._session_of(node, ttl)
        if self._joined.get(node) != session:
            path = f"/v1/kv/{self._folder}/members/{node}?acquire={session}"
            if (await self._put_raw(path, str(node))).text.strip() != "true":
                self._sessions.pop(node, None)
                raise CoordinatorUnavailable("Consul: the session ended before it was used")
            self._joined[node] = session
        members, locks, ended = await self._read(node)
        for key, index in ended:
            await self._ask("DELETE", f"/v1/kv/{key}?cas={index}")
        if node not in members:
            self._joined.pop(node, None)
        return _to_view(members, locks, lasts)

    async def watch(self, node: UUID) -> View:
        members, locks, _ = await self._read(node)
        session = self._sessions.get(node)
        return _to_view(members, locks, session[1] if session else None)

    async def release(self, node: UUID, shards: Sequence[int] | None = None) -> None:
        session = self._sessions.get(node)
        if session is None:
            return  # without a session it holds nothing
        if shards is None:
            self._sessions.pop(node)
            self._joined.pop(node, None)
            await self._ask("PUT", f"/v1/session/destroy/{session[0]}")
            await self._ask("DELETE", f"/v1/kv/{self._folder}/members/{node}")
            return
        for shard in shards:  # one that is not ours answers false, and stays as it is
            path = f"/v1/kv/{self._folder}/shards/{shard}?release={session[0]}"
            await self._put_raw(path, str(node))

    async def close(self) -> None:
        await self._servers.close()

    # -- requests

    async def _session_of(self, node: UUID, ttl: float) -> tuple[str, float]:
        if node not in self._sessions:
            lasts = min(max(math.ceil(ttl), _SHORTEST), _LONGEST)
            body = {
                "Name": f"rota {node}", "TTL": f"{lasts}s", "LockDelay": "0s", "Behavior": "release",
                "NodeChecks": [], "Checks": [],
            }  # fmt: skip
            response = await self._ask("PUT", "/v1/session/create", body)
            assert response is not None
            self._sessions[node] = (response.json()["ID"], float(lasts))
        return self._sessions[node]

    async def _lock(self, node: UUID, session: str, shards: Sequence[int]) -> list[Grant]:
        value = b64encode(str(node).encode()).decode()
        left = list(shards)
        for _ in range(_TRIES):
            if not left:
                break
            body = [
                {"KV": {"Verb": "lock", "Key": f"{self._folder}/shards/{shard}", "Value": value,
                        "Session": session}}
                for shard in left
            ]  # fmt: skip
            response = await self._servers.request("PUT", self._path("/v1/txn"), body)
            answer = response.json() if response.status_code in (200, 409) else {}
            if response.status_code == 200:
                keys = [each["KV"] for each in answer["Results"]]
                return [Grant(_shard_of(key["Key"]), key["ModifyIndex"]) for key in keys]
            taken = {each["OpIndex"] for each in answer.get("Errors") or []}
            if not taken:
                raise _refused("/v1/txn", response)
            if any("session" in each["What"].lower() for each in answer["Errors"]):
                self._sessions.pop(
                    node, None
                )  # it is over: a new one is made with the next renewal
                return []
            left = [shard for place, shard in enumerate(left) if place not in taken]
        return []

    async def _read(
        self, node: UUID
    ) -> tuple[list[UUID], list[tuple[int, UUID, int]], list[tuple[str, int]]]:
        """Return members, (shard, owner, number) of locks, and the keys of members that have ended."""
        response = await self._ask("GET", f"/v1/kv/{self._folder}/?recurse&consistent", None, True)
        entries: list[dict[str, Any]] = [] if response is None else response.json()
        members, locks, ended = [], [], []
        session = self._sessions.get(node)
        for entry in entries:
            kind, name = entry["Key"][len(self._folder) + 1 :].split("/", 1)
            locked = bool(entry.get("Session"))
            if kind == "members" and locked:
                members.append(UUID(name))
            elif kind == "members":
                ended.append((entry["Key"], entry["ModifyIndex"]))
            elif locked:
                owner = UUID(b64decode(entry["Value"]).decode())
                # A lock with our name and another session came back with a backup, and ends with that.
                if owner != node or session is None or entry["Session"] == session[0]:
                    locks.append((int(name), owner, entry["ModifyIndex"]))
        return members, locks, ended

    async def _ask(
        self, method: str, path: str, body: Any = None, missing_ok: bool = False
    ) -> httpx.Response | None:
        """Return the answer; None if what is named doesn't exist, and that is all right."""
        response = await self._servers.request(method, self._path(path), body)
        if response.status_code == 404 and missing_ok:
            return None
        if response.status_code != 200:
            raise _refused(path, response)
        return response

    async def _put_raw(self, path: str, text: str) -> httpx.Response:
        response = await self._servers.request("PUT", self._path(path), raw=text.encode())
        if response.status_code != 200:
            raise _refused(path, response)
        return response

    def _path(self, path: str) -> str:
        if not self._where:
            return path
        return f"{path}{'&' if '?' in path else '?'}{self._where}"


def _refused(path: str, response: httpx.Response) -> CoordinatorUnavailable:
    said = response.text[:200].strip()
    return CoordinatorUnavailable(f"Consul refused {path}: {response.status_code} {said}")


def _to_view(
    members: Sequence[UUID], locks: Sequence[tuple[int, UUID, int]], ttl: float | None
) -> View:
    owners = {shard: (owner, number) for shard, owner, number in sorted(locks)}
    return View(tuple(sorted(members)), owners, ttl)


def _shard_of(key: str) -> int:
    return int(key.rsplit("/", 1)[1])


def _to_seconds(text: str) -> float:
    """Read a duration of Go's: 10s, 1m30s."""
    found = _SECONDS.fullmatch(text)
    hours, minutes, seconds = found.groups() if found else (None, None, None)
    return float(hours or 0) * 3600 + float(minutes or 0) * 60 + float(seconds or 0)
