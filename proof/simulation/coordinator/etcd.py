"""etcd's JSON gateway: leases, transactions, ranges. Reads are linearizable, unless it lies."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

import msgspec

from proof.simulation.coordinator.over_http import Answered, Asked
from proof.simulation.coordinator.service import Entry, Service, State

_SHORTEST = 2.0
_NOT_FOUND = Answered(404, {"error": "etcdserver: requested lease not found", "code": 5})


class EtcdModel(Service):
    name = scheme = "etcd"

    def duration(self, ttl: float) -> float:
        """It looks for leases that are over twice a second."""
        return ttl + 0.5 * self.random.random()

    def answer(self, state: State, request: Asked) -> Answered:
        body = msgspec.json.decode(request.body)
        method = {
            "/v3/lease/grant": self._grant, "/v3/lease/keepalive": self._keep_alive,
            "/v3/lease/revoke": self._revoke, "/v3/kv/txn": self._transact,
            "/v3/kv/range": self._range,
        }[request.path]  # fmt: skip
        return method(state, body)

    def _header(self, state: State) -> dict[str, str]:
        return {"revision": str(state.revision)}

    def _grant(self, state: State, body: Any) -> Answered:
        ttl = max(float(body["TTL"]), _SHORTEST)
        return Answered(200, {"ID": self.open_session(state, ttl), "TTL": str(int(ttl))})

    def _keep_alive(self, state: State, body: Any) -> Answered:
        """Of a lease that is over it answers 200, without a TTL."""
        found = {"ID": body["ID"]}
        if self.renew(state, body["ID"]):
            found["TTL"] = str(int(state.sessions[body["ID"]].ttl))
        return Answered(200, {"result": {"header": self._header(state), **found}})

    def _revoke(self, state: State, body: Any) -> Answered:
        if body["ID"] not in state.sessions:
            return _NOT_FOUND
        self.end_session(state, body["ID"])
        return Answered(200, {"header": self._header(state)})

    def _transact(self, state: State, body: Any) -> Answered:
        """All conditions are looked at first; a put with a lease that is over undoes everything."""
        chosen = [self._chosen(state, operation) for operation in body["success"]]
        puts = [op["request_put"] for ops in chosen for op in ops or [] if "request_put" in op]
        if any(put.get("lease") and put["lease"] not in state.sessions for put in puts):
            return _NOT_FOUND
        if any(chosen):
            state.revision += 1
        for operations in chosen:
            for operation in operations or []:
                self._apply(state, operation)
        answers = [
            {"response_txn": {"succeeded": True} if operations is not None else {}}
            for operations in chosen
        ]
        return Answered(
            200, {"header": self._header(state), "succeeded": True, "responses": answers}
        )

    def _chosen(self, state: State, operation: Any) -> list[Any] | None:
        if "request_txn" not in operation:
            return [operation]
        nested = operation["request_txn"]
        met = all(self._is_met(state, condition) for condition in nested["compare"])
        return list(nested["success"]) if met else None

    def _is_met(self, state: State, condition: Any) -> bool:
        found = state.keys.get(_decode(condition["key"]))
        if condition["target"] == "CREATE":
            return (found.created if found else 0) == int(condition["create_revision"])
        return found is not None and found.value == _decode(condition["value"])

    def _apply(self, state: State, operation: Any) -> None:
        if "request_put" in operation:
            put = operation["request_put"]
            key = _decode(put["key"])
            before = state.keys.get(key)
            created = before.created if before else state.revision
            entry = Entry(_decode(put["value"]), created, state.revision, put.get("lease"))
            state.keys[key] = entry
        else:
            state.keys.pop(_decode(operation["request_delete_range"]["key"]), None)

    def _range(self, state: State, body: Any) -> Answered:
        first, end = _decode(body["key"]), _decode(body["range_end"])
        found = [
            {"key": _encode(key), "value": _encode(entry.value),
             "create_revision": str(entry.created), "mod_revision": str(entry.modified),
             **({"lease": entry.session} if entry.session else {})}
            for key, entry in sorted(self.readable(state).items())
            if first <= key < end
        ]  # fmt: skip
        return Answered(200, {"header": self._header(state), "kvs": found})


def _encode(text: str) -> str:
    return b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return b64decode(text).decode()
