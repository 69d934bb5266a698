"""Encrypted jobs of workers over HTTP: opened and sealed here, so that workers need no keys.

What a worker gets is plain, over TLS; what it says of an encrypted job is sealed before it is stored. A
server without the key hands such jobs to nobody, and takes no word about them: another server will.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from rota.errors import KeyMissing, NotAuthentic
from rota.lib.encryption import Seal
from rota.model import Failure, Outcome, OutcomeKind, Retry
from rota.runtime.verdicts import Rulings
from rota.server.problems import Problem
from rota.store.remote import RemoteStore

log = logging.getLogger("rota.server")


def seal_of(store: RemoteStore, job: UUID) -> Seal:
    ring = store.database.sealing.ring
    if ring is None:
        raise Problem(
            503, "unavailable", f"job {job} is encrypted, and this server has no key: try another",
            retry_after=5,
        )  # fmt: skip
    return ring.seal(store.namespace, "j", job)


async def opened(store: RemoteStore, worker: UUID, rows: Sequence[Any]) -> dict[UUID, bytes]:
    """The payloads of those claimed jobs that can be read here. What was tampered with has failed."""
    sealing = store.database.sealing
    payloads: dict[UUID, bytes] = {}
    for row in rows:
        try:
            payloads[row["id"]], _ = sealing.opened_payload(row["payload"], row["id"], row["task"])
        except KeyMissing as error:
            log.error("a job can't be handed out: %s", error)
        except NotAuthentic as error:
            log.error("job %s can't be run: %s", row["id"], error)
            await _refuse(store, worker, row, Failure("rota.errors.NotAuthentic", str(error)))
    return payloads


async def _refuse(store: RemoteStore, worker: UUID, row: Any, failure: Failure) -> None:
    rulings = Rulings(worker, max_crashes=1)
    outcome = Outcome(OutcomeKind.RAISED, failure=failure, fatal=True)
    rulings.rule({**row, "ran": 0.0}, outcome, Retry())
    async with store.database.transaction("finish_remote") as connection:
        await rulings.write(store.work, connection)
