"""`Client`: for code that waits."""

from __future__ import annotations

import functools
import ssl
import time
from collections.abc import Callable, Generator
from types import TracebackType
from typing import Generic, ParamSpec, Self, TypeVar

import httpx

from rota.client import cluster, jobs, many, schedules
from rota.client.asking import Answer, Pause, Send, Talk, Unheard, persistently
from rota.client.following import CLOSED, Follow
from rota.client.listing import Pages
from rota.client.transport import Options, request_arguments, to_answer, to_unheard

P = ParamSpec("P")
T = TypeVar("T")


class Line:
    """The shell: sends, listens, waits."""

    def __init__(self, options: Options) -> None:
        self._rules = options.rules
        self._http = httpx.Client(
            base_url=options.url, headers=options.headers, verify=options.verify
        )

    def close(self) -> None:
        self._http.close()

    def run(self, talk: Talk[T]) -> T:
        steps = persistently(talk, self._rules)
        heard: Answer | Unheard | None = None
        while True:
            try:
                step = steps.send(heard)
            except StopIteration as end:
                done: T = end.value
                return done
            heard = self._send(step) if isinstance(step, Send) else None
            if isinstance(step, Pause):
                time.sleep(step.seconds)

    def _send(self, step: Send) -> Answer | Unheard:
        try:
            return to_answer(self._http.request(**request_arguments(step.ask, step.timeout)))
        except httpx.TransportError as error:
            return to_unheard(error)

    def read(self, source: Pages[T] | Follow[T]) -> Generator[T, None, None]:
        return self._follow(source) if isinstance(source, Follow) else self._pages(source)

    def _pages(self, pages: Pages[T]) -> Generator[T, None, None]:
        while pages.is_more:
            yield from self.run(pages.ask())

    def _follow(self, follow: Follow[T]) -> Generator[T, None, None]:
        following = follow.start(self._rules)
        while not following.has_ended:
            heard: Answer | Unheard = CLOSED
            try:
                with self._http.stream(**request_arguments(following.request(), None)) as response:
                    if response.status_code != 200:
                        response.read()
                        heard = to_answer(response)
                    else:
                        for piece in response.iter_bytes():
                            yield from following.feed(piece)
            except httpx.TransportError as error:
                heard = to_unheard(error)
            if not following.has_ended:
                time.sleep(following.cut(heard))


class Noun:
    def __init__(self, line: Line) -> None:
        self._line = line


class Verb(Generic[P, T]):
    """A method made of what is to be said."""

    def __init__(self, say: Callable[P, Talk[T]]) -> None:
        self._say = say
        self.__doc__ = say.__doc__

    def __get__(self, noun: Noun, owner: type[Noun]) -> Callable[P, T]:
        @functools.wraps(self._say)
        def ask(*args: P.args, **kwargs: P.kwargs) -> T:
            return noun._line.run(self._say(*args, **kwargs))

        return ask


class Reading(Generic[P, T]):
    """A method that gives an iterator over what comes."""

    def __init__(self, source: Callable[P, Pages[T] | Follow[T]]) -> None:
        self._source = source
        self.__doc__ = source.__doc__

    def __get__(self, noun: Noun, owner: type[Noun]) -> Callable[P, Generator[T, None, None]]:
        @functools.wraps(self._source)
        def read(*args: P.args, **kwargs: P.kwargs) -> Generator[T, None, None]:
            return noun._line.read(self._source(*args, **kwargs))

        return read


class Jobs(Noun):
    """`client.jobs`"""

    submit = Verb(jobs.submit)
    submit_many = Verb(many.submit_many)
    get = Verb(jobs.fetch)
    list = Reading(jobs.listing)
    count = Verb(jobs.count)
    result = Verb(jobs.result)
    wait = Verb(jobs.wait)
    attempts = Verb(jobs.attempts)
    explain = Verb(jobs.explain)
    logs = Reading(jobs.logs)
    cancel = Verb(jobs.cancel)
    retry = Verb(jobs.retry)
    discard = Verb(jobs.discard)
    cancel_many = Verb(jobs.cancel_many)
    retry_many = Verb(jobs.retry_many)


class Schedules(Noun):
    """`client.schedules`"""

    create = Verb(schedules.create)
    put = Verb(schedules.put)
    get = Verb(schedules.fetch)
    list = Reading(schedules.listing)
    delete = Verb(schedules.delete)
    pause = Verb(schedules.pause)
    resume = Verb(schedules.resume)
    trigger = Verb(schedules.trigger)
    backfill = Verb(schedules.backfill)
    occurrences = Reading(schedules.occurrences)
    audit = Verb(schedules.audit)
    preview = Verb(schedules.preview)
    preview_rule = Verb(schedules.preview_rule)
    lint = Verb(schedules.lint)


class Queues(Noun):
    """`client.queues`"""

    list = Verb(cluster.queues)
    get = Verb(cluster.queue)
    pause = Verb(cluster.pause_queue)
    resume = Verb(cluster.resume_queue)
    set_max_run_time = Verb(cluster.set_max_run_time)


class Nodes(Noun):
    """`client.nodes`"""

    list = Verb(cluster.nodes)
    get = Verb(cluster.node)


class Dead(Noun):
    """`client.dead`: the dead letters in groups that are alike."""

    list = Verb(cluster.dead)
    retry = Verb(cluster.retry_group)
    discard = Verb(cluster.discard_group)


class Events(Noun):
    """`client.events`"""

    list = Reading(cluster.events)
    follow = Reading(cluster.follow_events)


class Client(Noun):
    """A server's verbs, for code that waits. Use it in a ``with``, or `close` it; threads may share it.

    Args:
        url: where the server is; ``ROTA_URL``, or the loopback.
        token: made by ``rota tokens create``; ``ROTA_TOKEN``.
        namespace: for a token of several; ``ROTA_NAMESPACE``.
        timeout: seconds for a request with all its repetitions.
        silence: seconds after which one try of it is given up.
        verify: a file of certificates to trust, or an `ssl.SSLContext`. False: whoever answers.
    """

    me = Verb(cluster.me)

    def __init__(
        self, url: str | None = None, token: str | None = None, *, namespace: str | None = None,
        timeout: float = 60.0, silence: float = 20.0, verify: ssl.SSLContext | str | bool = True,
    ) -> None:  # fmt: skip
        super().__init__(Line(Options.of(url, token, namespace, timeout, silence, verify)))
        self.jobs = Jobs(self._line)
        self.schedules = Schedules(self._line)
        self.queues = Queues(self._line)
        self.nodes = Nodes(self._line)
        self.dead = Dead(self._line)
        self.events = Events(self._line)

    def close(self) -> None:
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()
