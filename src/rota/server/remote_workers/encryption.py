"""Encrypted jobs of workers over HTTP: opened and encrypted here, so that workers need no keys.

A worker gets plain values, over TLS; its reports on an encrypted job are encrypted before they are
stored. A server without the key hands out no such jobs and accepts no reports about them: another
server will.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from rota.errors import KeyMissing, NotAuthentic
from rota.lib.encryption import Encryptor
from rota.model import Failure, Outcome, OutcomeKind, Retry
from rota.runtime.verdicts import Verdicts
from rota.server.problems import Problem
from rota.store.remote import RemoteStore

log = logging.getLogger("rota.server")


def encryptor_of(store: RemoteStore, job: UUID) -> Encryptor:
    ring = store.database.encryption.ring
    if ring is None:
        raise Problem(
            503, "unavailable", f"job {job} is encrypted, and this server has no key: try another",
            retry_after=5,
        )  # fmt: skip
    return ring.encryptor(store.namespace, "j", job)


async def opened(store: RemoteStore, worker: UUID, rows: Sequence[Any]) -> dict[UUID, bytes]:
    """The payloads of those claimed jobs that can be read here. What was tampered with has failed."""
    encryption = store.database.encryption
    payloads: dict[UUID, bytes] = {}
    for row in rows:
        try:
            payloads[row["id"]], _ = encryption.opened_payload(
                row["payload"], row["id"], row["task"]
            )
        except KeyMissing as error:
            log.error("a job can't be handed out: %s", error)
        except NotAuthentic as error:
            log.error("job %s can't be run: %s", row["id"], error)
            await _refuse(store, worker, row, Failure("rota.errors.NotAuthentic", str(error)))
    return payloads


async def _refuse(store: RemoteStore, worker: UUID, row: Any, failure: Failure) -> None:
    verdicts = Verdicts(worker, max_crashes=1)
    outcome = Outcome(OutcomeKind.RAISED, failure=failure, fatal=True)
    verdicts.rule({**row, "ran": 0.0}, outcome, Retry())
    async with store.database.transaction("finish_remote") as connection:
        await verdicts.write(store.work, connection)
