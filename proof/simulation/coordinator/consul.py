"""Consul's HTTP API: sessions, locks on keys, transactions that are done as a whole or not at all."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any
from urllib.parse import parse_qs

import msgspec

from proof.simulation.coordinator.over_http import Answered, Asked
from proof.simulation.coordinator.service import Entry, Service, State


class ConsulModel(Service):
    name = scheme = "consul"
    deletes = False

    def duration(self, ttl: float) -> float:
        """A session may live for twice its TTL."""
        return ttl * (1 + self.random.random())

    def answer(self, state: State, request: Asked) -> Answered:
        query = {name: values[0] for name, values in parse_qs(request.query, True).items()}
        parts = request.path.strip("/").split("/", 3)
        if parts[1] == "session":
            return self._session(state, parts[2:], request.body)
        if parts[1] == "txn":
            return self._transact(state, msgspec.json.decode(request.body))
        key = request.path.removeprefix("/v1/kv/")
        if request.method == "GET":
            return self._read(state, key)
        if request.method == "DELETE":
            return self._delete(state, key, query)
        if "acquire" in query:
            return self._acquire(state, key, request.body.decode(), query["acquire"])
        return self._release(state, key, request.body.decode(), query["release"])

    def _session(self, state: State, parts: list[str], body: bytes) -> Answered:
        if parts[0] == "create":
            ttl = float(msgspec.json.decode(body)["TTL"].rstrip("s"))
            assert ttl >= 10, "Consul refuses that"
            return Answered(200, {"ID": self.open_session(state, ttl)})
        if parts[0] == "renew":
            if not self.renew(state, parts[1]):
                return Answered(404, f"Session id '{parts[1]}' not found")
            ttl = state.sessions[parts[1]].ttl
            return Answered(200, [{"ID": parts[1], "TTL": f"{ttl:.0f}s"}])
        self.end_session(state, parts[1])
        return Answered(200, True)

    def _acquire(self, state: State, key: str, value: str, session: str) -> Answered:
        if session not in state.sessions:
            return Answered(500, f'invalid session "{session}"')
        found = state.keys.get(key)
        if found is not None and found.session not in (None, session):
            return Answered(200, False)
        self._put(state, key, value, session)
        return Answered(200, True)

    def _release(self, state: State, key: str, value: str, session: str) -> Answered:
        found = state.keys.get(key)
        if found is None or found.session != session:
            return Answered(200, False)
        self._put(state, key, value, None)
        return Answered(200, True)

    def _put(self, state: State, key: str, value: str, session: str | None) -> Entry:
        state.revision += 1
        found = state.keys.get(key)
        created = found.created if found else state.revision
        state.keys[key] = Entry(value, created, state.revision, session)
        return state.keys[key]

    def _delete(self, state: State, key: str, query: dict[str, str]) -> Answered:
        found = state.keys.get(key)
        if "cas" in query and (found is None or found.modified != int(query["cas"])):
            return Answered(200, found is None)
        if found is not None:
            state.revision += 1
            del state.keys[key]
        return Answered(200, True)

    def _transact(self, state: State, operations: list[Any]) -> Answered:
        errors: list[dict[str, Any]] = []
        for place, operation in enumerate(operations):
            lock = operation["KV"]
            found = state.keys.get(lock["Key"])
            if lock["Session"] not in state.sessions:
                said = f'invalid session "{lock["Session"]}"'
                errors.append({"OpIndex": place, "What": said})
            elif found is not None and found.session not in (None, lock["Session"]):
                said = f'failed to lock key "{lock["Key"]}", lock is already held'
                errors.append({"OpIndex": place, "What": said})
        if errors:
            return Answered(409, {"Results": None, "Errors": errors})
        state.revision += 1
        results = []
        for operation in operations:
            lock = operation["KV"]
            value = b64decode(lock["Value"]).decode()
            entry = Entry(value, state.revision, state.revision, lock["Session"])
            state.keys[lock["Key"]] = entry
            results.append({"KV": {"Key": lock["Key"], "ModifyIndex": entry.modified}})
        return Answered(200, {"Results": results, "Errors": None})

    def _read(self, state: State, folder: str) -> Answered:
        found = [
            {"Key": key, "Value": b64encode(entry.value.encode()).decode(),
             "ModifyIndex": entry.modified, **({"Session": entry.session} if entry.session else {})}
            for key, entry in sorted(self.readable(state).items())
            if key.startswith(folder)
        ]  # fmt: skip
        return Answered(200, found) if found else Answered(404, "")
