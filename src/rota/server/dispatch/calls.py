"""The calls of workers by a broker: those of workers over HTTP, with the same bodies, answers and
guards, and `begin`.

Protocol. A broker may deliver a call twice, late, or after calls that were sent later. Each call can
bear that:

- `register`, `finish`, `progress`, `logs`, `leave`: as over HTTP, where they may be repeated.
- `heartbeat` names the jobs that the worker held when it was sent. A job under a token that the worker
  had not seen by then (`seen`) is not taken for unknown to it. Answers to claims, also to those that
  found nothing, let it rise: what was claimed by a call that the worker no longer waited for, and
  whose answer was lost, is given back after a lease.
- `claim` is claimed once for each attempt that the worker numbers: delivered again, it takes nothing.
  Attempt n + 1 takes what attempt n took, under a new token: by sending it the worker has promised to
  ignore the answer to attempt n. What is claimed is offered, and isn't marked as begun.
- `begin` asks for offered jobs, and marks those that must be marked. It changes nothing when it is
  delivered again. A worker starts a job once for each token, and only after `begin` was answered; or at
  once, if the offer says `go`: nothing has to be marked, and the worker's lease and the token guard it.
"""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import msgspec

from rota.server.context import ServerContext
from rota.server.problems import Problem
from rota.server.remote_workers import messages
from rota.server.remote_workers.claims import Asker
from rota.server.remote_workers.workers import RemoteWorkers
from rota.server.strict import check_json, decode_strictly

_LEVELS_AROUND_PAYLOAD = 16
_decoders: dict[str, msgspec.json.Decoder[Any]] = {
    "register": msgspec.json.Decoder(messages.WorkerRequest),
    "heartbeat": msgspec.json.Decoder(messages.RelayedHeartbeat),
    "claim": msgspec.json.Decoder(messages.RelayedClaim),
    "begin": msgspec.json.Decoder(messages.BeginRequest),
    "finish": msgspec.json.Decoder(messages.FinishRequest),
    "progress": msgspec.json.Decoder(messages.ProgressRequest),
    "logs": msgspec.json.Decoder(messages.LogRequest),
    "leave": msgspec.json.Decoder(None),
}


class WorkerCalls:
    """Answers the calls of the workers of one namespace."""

    def __init__(self, context: ServerContext, namespace: str, where: str) -> None:
        """`where`: what is shown as the host of workers."""
        self._context = context
        self._workers: RemoteWorkers = context.remote_workers(namespace)
        self._depth = context.settings.max_payload_depth + _LEVELS_AROUND_PAYLOAD
        self._where = where

    async def answer(self, worker: UUID, call: str, body: bytes) -> Any:
        """Return the answer's body. Raises what `to_problem` makes a problem of."""
        decoder = _decoders.get(call)
        if decoder is None:
            raise Problem(404, "unknown-call", f"there is no call {call[:100]!r}")
        check_json(body, self._depth)
        data = decode_strictly(decoder, body)
        workers = self._workers
        match data:
            case messages.WorkerRequest():
                if data.id not in (None, worker):
                    raise Problem(
                        400, "invalid", "id: must be the id that the message is sealed for"
                    )
                await workers.register(data.to_worker(worker, self._where), data.to_tasks())
                return workers.registered(worker)
            case messages.RelayedHeartbeat():
                return await workers.heartbeat(worker, data, data.seen)
            case messages.RelayedClaim():
                return await self._claim(worker, data)
            case messages.BeginRequest():
                go = await workers.begin(worker, [held.key for held in data.jobs])
                return messages.BeginAnswer(messages.to_held(go))
            case None:
                await workers.find(worker)
                return messages.Left(await workers.leave(worker))
            case _:
                return await workers.report(worker, data)

    async def _claim(self, worker: UUID, data: messages.RelayedClaim) -> messages.Offered:
        workers = self._workers
        state = await workers.renew(worker)
        if state.state == "draining":
            raise Problem(409, "worker-draining", f"worker {worker} is draining: it gets no jobs")
        # Whether it is still there, nobody knows: what it doesn't begin is given back later.
        never: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asker = Asker(worker, never, _nothing)
        jobs, cancels = await self._context.claims.claim(
            workers.store, state, data, asker, offered_try=data.attempt
        )
        offers = [messages.to_offered(job) for job in jobs]
        # An offer that the worker never saw must not wait for the next that it sees.
        seen = max((job.token for job in jobs), default=0) or await workers.store.next_try()
        return messages.Offered(offers, messages.to_held(cancels), seen)


async def _nothing() -> None:
    """Check nothing: who has the secret may ask."""
