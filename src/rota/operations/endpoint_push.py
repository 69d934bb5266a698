"""Pushes jobs to endpoints: one attempt is one signed POST.

Protocol. Of the database an attempt asks where it may go, the time, and the secret of callback keys.
The address is checked anew each time, and the request goes to the address that was checked. It carries
the payload as it was submitted, and whose push it is; all of that is signed. Then the answer decides:

- 2xx: done; a JSON body is the result. Once the status was read it is done, even if the body is lost.
- 202: done later. The attempt goes on, here, until it is reported or `callback_timeout` is over.
- 408, 425, 429, 5xx, no answer: a failed attempt, tried again by the task's policy; a Retry-After of
  429 and 503 is respected.
- 3xx: never followed, and final; so is every other status: the same request would get the same answer.

A receiver may get a job twice (an answer may be lost), each time under a higher token. Dying anywhere
leaves a lease, which runs out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from rota.context import CONTEXT, Context
from rota.errors import ConfigError, Fatal, JobError, StoreUnavailable
from rota.lib import tracing
from rota.lib.net.guard import ForbiddenAddress, Target, UnknownHost, check_url
from rota.lib.net.post import Answer, RequestFailed, post
from rota.model import Failure, Outcome, OutcomeKind, Retry
from rota.operations.endpoint_callbacks import KEY_HEADER, URL_HEADER, callback_path, make_key
from rota.operations.endpoints import check_endpoint
from rota.signing import SIGNATURE_HEADER, Push, sign
from rota.store.endpoints import EndpointStore, PushTerms, Reported, StoredEndpoint
from rota.task import Task, TaskOptions

if TYPE_CHECKING:
    from rota.operations.rota import Rota

_LATER = 202
_TRY_AGAIN = frozenset({408, 425, 429})
_LONGEST_WAIT = 86_400.0  # whatever Retry-After says
_EXCERPT = 300  # characters of an answer, in an error's message
_PAUSE = 0.5
_SETTLED = Outcome(OutcomeKind.SUCCEEDED, settled=True)


class EndpointFailed(JobError):
    """Raised when an endpoint did not answer, or answered that it failed: the push is tried again."""


class EndpointTask(Task[..., Any]):
    """A task whose jobs are pushed to an HTTP endpoint. Made by ``app.endpoint``."""

    def __init__(
        self, rota: Rota, endpoint: StoredEndpoint, options: TaskOptions | None = None
    ) -> None:
        checked, name = check_endpoint(endpoint, options), endpoint.name
        super().__init__(rota.submissions, _function(name), name, checked)
        self._rota = rota
        self.endpoint = endpoint

    def call(self, payload: bytes, context: Any) -> Any:
        return self._push(payload, context)

    async def _push(self, payload: bytes, context: Context) -> Any:
        if context._connection is not None:
            raise Fatal(
                f"endpoint {self.name!r} can't run exactly_once jobs: submit it with another guarantee"
            )
        terms = await self._terms()
        target = await self._target(terms)
        info = context.job
        callbacks = self._rota.endpoints.callbacks
        with callbacks.expecting(info.id, info.token) as report:
            answer = await self._send(target, payload, context, terms)
            if answer.status != _LATER:
                if report.done() and report.result().succeeded:  # it was quicker than the answer
                    return _SETTLED
                return self._judge(answer, terms)
            context.progress(0, None, "answered with 202: waits to be reported")
            try:
                async with asyncio.timeout(self.endpoint.callback_timeout):
                    return await self._judge_report(info.id, await callbacks.wait(report))
            except TimeoutError:
                raise EndpointFailed(
                    "answered with 202, and nothing was reported within "
                    f"{self.endpoint.callback_timeout:g} s"
                ) from None

    async def _terms(self) -> PushTerms:
        """Ask the database. Nothing was sent yet: that it is away for a moment is no failed attempt."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.endpoint.timeout
        while True:
            try:
                store = EndpointStore((await self._rota.store()).database)
                return await store.begin_push(self._rota.namespace)
            except StoreUnavailable:
                if loop.time() >= end:
                    raise
                await asyncio.sleep(_PAUSE)

    async def _target(self, terms: PushTerms) -> Target:
        try:
            async with asyncio.timeout(self.endpoint.timeout):
                return await check_url(self.endpoint.url, terms.allowed)
        except UnknownHost as error:
            raise EndpointFailed(str(error)) from None
        except ForbiddenAddress as error:
            raise Fatal(str(error)) from None
        except TimeoutError:
            raise EndpointFailed("the host's name could not be looked up in time") from None

    async def _send(
        self, target: Target, payload: bytes, context: Context, terms: PushTerms
    ) -> Answer:
        info, settings = context.job, self._rota.settings
        push = Push(str(info.id), info.token, info.attempt, self.name)
        moment = int(terms.now.timestamp())
        headers = {
            "Content-Type": "application/json",
            **push.headers,
            "Rota-Namespace": settings.namespace,
            URL_HEADER: (settings.public_url or "").rstrip("/") + callback_path(info.id),
            KEY_HEADER: make_key(terms.callback_secret, info.id, info.token),
            SIGNATURE_HEADER: sign(self.endpoint.secret, push.signed(payload), moment),
            **tracing.outgoing(info.headers),
        }
        try:
            return await post(
                target, payload, headers, self.endpoint.timeout, settings.max_result_bytes
            )
        except RequestFailed as error:
            raise EndpointFailed(str(error)) from None

    async def _judge_report(self, job: UUID, reported: Reported) -> Outcome:
        if reported.succeeded:
            return _SETTLED  # and written, with its result, when it was reported
        encryption = (await self._rota.store()).database.encryption
        problem = encryption.shown_text(reported.message, job) or "reported as failed"
        if reported.fatal:
            raise Fatal(problem)
        if reported.retry_after is not None:
            raise Retry.after(reported.retry_after, problem)
        raise EndpointFailed(problem)

    def _judge(self, answer: Answer, terms: PushTerms) -> Any:
        status = answer.status
        if 200 <= status < 300:
            return _result(answer)
        problem = f"answered with {status}"
        if 300 <= status < 400:
            raise Fatal(f"{problem}: redirects are not followed; give the URL that it leads to")
        if text := " ".join(answer.body[: 4 * _EXCERPT].decode("utf-8", "replace").split()):
            problem += f": {text[:_EXCERPT]}"
        if status not in _TRY_AGAIN and status < 500:
            raise Fatal(problem)
        asked = answer.asked_to_wait(terms.now)
        if status in (429, 503) and asked is not None:
            raise Retry.after(min(asked, _LONGEST_WAIT), problem)
        raise EndpointFailed(problem)


def _function(name: str) -> Callable[..., Any]:
    """Make the function of the task, whose signature says what may be submitted."""

    async def push(ctx: Context = CONTEXT, **payload: Any) -> Any:
        raise ConfigError(f"{name!r} is an HTTP endpoint: it can be submitted, and not called")

    push.__name__ = name
    push.__doc__ = "An HTTP endpoint."
    return push


def _result(answer: Answer) -> Any:
    """Return the result. A body that can't be one is dropped: the job has succeeded nevertheless."""
    kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        return None
    if answer.cut:
        return _dropped("the answer's body is too large, or did not arrive whole")
    if not answer.body.strip():
        return None
    try:
        return msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        return _dropped(f"the answer's body is no JSON: {error}")


def _dropped(reason: str) -> Outcome:
    return Outcome(OutcomeKind.SUCCEEDED, failure=Failure("ResultDropped", reason))
