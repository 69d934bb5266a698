"""What becomes of attempts that ended elsewhere: at a worker over HTTP, or because their time was over.

Decides, then does: `rule` asks core what follows from an outcome, `write` applies all of it on a
connection, inside the caller's transaction. The rows were locked there by (job, token, node), so what is
ruled is also accepted. Dying before the commit changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from rota.core.lifecycle import End, GiveBack, Succeed, Tried, TryAgain, Verdict, judge
from rota.lib.encryption import TEXT
from rota.lib.ids import unit
from rota.model import Failure, Guarantee, Outcome, OutcomeKind, Retry, State
from rota.runtime.entries import attempt_entry, encode_failure
from rota.store.events import Noticed
from rota.store.work import Ended, Retried, Returned, Succeeded, WorkStore

_MOST_NOTICED = 100  # failures that are told of at once: a flood of them is one piece of news
_ENDED = 0.0  # monotonic: now, at the statement's own time


class Verdicts:
    """Of one node's jobs. `held` are rows of held_for_finish and its like."""

    def __init__(self, node: UUID, max_crashes: int) -> None:
        self._node = node
        self._max_crashes = max_crashes
        self.succeeded: list[Succeeded] = []
        self.ended: list[Ended] = []
        self.retried: list[Retried] = []
        self.returned: list[Returned] = []
        self.noticed: list[Noticed] = []  # failures that are tried again

    def rule(self, held: Mapping[str, Any], outcome: Outcome, retry: Retry) -> Verdict:
        guarantee = Guarantee(held["guarantee"])
        tried = Tried(held["attempt"], held["max_attempts"], guarantee, held["crashes"])
        verdict = judge(tried, outcome, retry, self._max_crashes, unit())
        self._note(held, outcome, verdict)
        return verdict

    def hand_back(self, held: Mapping[str, Any]) -> None:
        """It never began: as if it had not been claimed."""
        self.returned.append(Returned(held["id"], held["token"]))

    def give_up(self, held: Mapping[str, Any]) -> None:
        """The worker never heard that it was given this job; or so it seems."""
        if Guarantee(held["guarantee"]) is not Guarantee.AT_MOST_ONCE:
            self.hand_back(held)
            return
        failure = Failure(
            "NodeLost", "its worker doesn't know of it any more; at_most_once is not run again"
        )
        outcome = Outcome(OutcomeKind.LOST, failure=failure)
        self._note(held, outcome, End(State.FAILED, held["crashes"], failure))

    def _note(self, held: Mapping[str, Any], outcome: Outcome, verdict: Verdict) -> None:
        id, token, ran = held["id"], held["token"], held["ran"]
        failure = outcome.failure
        match verdict:
            case Succeed():
                result = outcome.result.decode() if outcome.result is not None else None
                error = encode_failure(failure)
                self.succeeded.append(Succeeded(id, token, ran, _ENDED, result, error))
            case GiveBack():
                self.returned.append(Returned(id, token))
            case TryAgain():
                entry = attempt_entry(held["attempt"], outcome.kind, token, self._node, failure)
                self.retried.append(
                    Retried(id, token, verdict.delay, entry, verdict.crashes, ran, _ENDED)
                )
                self._notice(held, failure)
            case End():
                entry = attempt_entry(held["attempt"], outcome.kind, token, self._node, failure)
                error = encode_failure(verdict.failure)
                self.ended.append(
                    Ended(id, token, verdict.state, entry, error, verdict.crashes, ran, _ENDED)
                )

    def _notice(self, held: Mapping[str, Any], failure: Failure | None) -> None:
        if failure is not None and len(self.noticed) < _MOST_NOTICED:
            encrypted = failure.message.startswith(TEXT)
            message = "(encrypted)" if encrypted else failure.message[:300]
            detail = {"attempt": held["attempt"], "error": failure.type, "message": message}
            self.noticed.append(Noticed("failed", held["task"], held["id"], detail))

    async def write(self, store: WorkStore, connection: Any) -> int:
        """How many were accepted."""
        accepted = 0
        if self.succeeded:
            accepted += await store.finish_succeeded(self._node, self.succeeded, _ENDED, connection)
        if self.ended:
            accepted += await store.finish_ended(self._node, self.ended, _ENDED, connection)
        if self.retried:
            accepted += await store.finish_retried(self._node, self.retried, _ENDED, connection)
        if self.returned:
            accepted += await store.give_back(self._node, self.returned, connection)
        return accepted
