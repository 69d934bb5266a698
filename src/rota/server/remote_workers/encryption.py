"""Encrypted jobs of workers over HTTP: decrypted and encrypted by the server, so that workers need no
keys.

A worker gets plain values, over TLS; its reports on an encrypted job are encrypted before they are
stored. A server without the key hands out no such jobs and accepts no reports about them: another
server will.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from rota.errors import KeyMissing
from rota.lib.encryption import Encryptor
from rota.model import Outcome, OutcomeKind, Retry
from rota.runtime.attempts import Verdicts, decrypt
from rota.runtime.work import Work
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


async def decrypted(store: RemoteStore, worker: UUID, works: Sequence[Work]) -> list[Work]:
    """Return those that can be read here. A payload that is not authentic fails its job."""
    readable: list[Work] = []
    verdicts = Verdicts(worker, max_crashes=1)
    for work in works:
        try:
            failure = decrypt(store.database.encryption, work)
        except KeyMissing as error:
            log.error("job %s can't be handed out: %s", work.id, error)
            continue
        if failure is None:
            readable.append(work)
        else:
            outcome = Outcome(OutcomeKind.RAISED, failure=failure, fatal=True)
            verdicts.judge(work, outcome, Retry(), 0.0)
    if len(verdicts):
        async with store.database.transaction("finish_remote") as connection:
            await verdicts.write(store.work, connection, apart=True)
    return readable
