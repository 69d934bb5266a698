"""Mutants of what stands between Rota and a coordinator: the fence, and the drivers."""

from __future__ import annotations

from typing import Any

import rota.scheduler.coordination.zookeeper as zookeeper
from proof.mutants.changes import in_query
from proof.simulation.mutant import Mutant
from proof.simulation.patches import Patches
from rota.scheduler.coordination.consul import ConsulCoordination
from rota.scheduler.coordination.etcd import EtcdCoordination

_MOVES = frozenset({"coordinator"})

lower_number = Mutant(
    name="a coordinator's number that goes back is accepted while the old owner lives",
    queries=in_query("enforce_shards", ("(s.granted < g.number or ", "(s.granted <> g.number or ")),
    moves=_MOVES,
)


def _believe_in_the_dead(patches: Patches) -> None:
    async def post(
        self: EtcdCoordination, path: str, body: Any, *, missing_ok: bool = False
    ) -> dict[str, Any]:
        """The TTL of a lease is not looked for."""
        answer = await honest(self, path, body, missing_ok=missing_ok)
        if path == "/v3/lease/keepalive":
            answer["result"].setdefault("TTL", "3")
        return answer

    honest = EtcdCoordination._post
    patches.set(EtcdCoordination, "_post", post)


dead_lease = Mutant(
    name="a dead lease's keepalive counts as alive", patch=_believe_in_the_dead, moves=_MOVES
)


def _hold_on(patches: Patches) -> None:
    """What was seen last is believed in while the connection is interrupted."""

    def renew(self: zookeeper._Session) -> Any:
        seen = getattr(self, "_last", None)
        if seen is not None and not self._client.connected:
            self._renewed_at = zookeeper.monotonic()  # type: ignore[attr-defined]
            return seen
        self._last = honest(self)  # type: ignore[attr-defined]
        return self._last  # type: ignore[attr-defined]

    honest = zookeeper._Session.renew
    patches.set(zookeeper._Session, "renew", renew)


suspended_held = Mutant(name="SUSPENDED is taken for held", patch=_hold_on, moves=_MOVES)


def _see_locks_without_sessions(patches: Patches) -> None:
    async def ask(
        self: ConsulCoordination, method: str, path: str, body: Any = None, missing_ok: bool = False
    ) -> Any:
        """A key names its owner for ever, whatever became of the session that locked it."""
        response = await honest(self, method, path, body, missing_ok)
        if method == "GET" and response is not None:
            entries = response.json()
            for entry in entries:
                if "/shards/" in entry["Key"]:
                    entry.setdefault("Session", "over")
            response = type(response)(200, json=entries)
        return response

    honest = ConsulCoordination._ask
    patches.set(ConsulCoordination, "_ask", ask)


lock_without_session = Mutant(
    name="a lock of a session that is over is another's", patch=_see_locks_without_sessions,
    moves=_MOVES,
)  # fmt: skip
