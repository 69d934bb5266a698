"""Asking a server, and asking again when that is safe. No I/O: a shell sends what is yielded here.

Protocol. A verb is a generator: it yields an `Ask` and is given the `Answer`, yields a `Pause` and is
given nothing, and returns what the caller gets. `persistently` stands between a verb and its shell and
decides what is asked again:

- what never reached a server, and what a server refused before it did anything (429): always;
- what may have been done although nobody was told (a line cut in the middle, an answer that didn't come,
  502, 503, 504): only what can be done twice with the effect of once, which its `Ask` says of itself. A
  submit can, since it carries a key: the server knows it again, and gives the same job back;
- any other answer is an answer.

Between tries it waits: longer each time, spread by chance so that many clients don't come back at the
same moment, and not less than the server's Retry-After. All tries of one request together have `timeout`
seconds; when the next one wouldn't fit, the last answer is the answer, or `ServerUnavailable` is raised,
which says whether the request may have been done.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from rota.client.problems import error_of, retry_after
from rota.errors import ConfigError, ServerUnavailable
from rota.lib.ids import unit

T = TypeVar("T")
Method = Literal["GET", "POST", "PUT", "DELETE"]

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 5.0
_REFUSED = 429  # before anything was done
_PERHAPS = frozenset({502, 503, 504})  # a proxy's, or a server that lost its database in the middle
_HOPELESS = frozenset({"too-much-to-read"})  # would be answered the same way again


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `repeatable`: twice has the effect of once."""

    method: Method
    path: str
    query: Mapping[str, Any] = {}
    body: bytes | None = None
    headers: Mapping[str, str] = {}
    repeatable: bool


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """`repeated`: it was asked before, and perhaps done then."""

    status: int
    headers: Mapping[str, str]  # their names in lower case
    body: bytes
    repeated: bool = False

    @property
    def is_good(self) -> bool:
        return self.status < 400


class Unheard(msgspec.Struct, frozen=True):
    """There was no answer. `sent`: the request may have got there."""

    reason: str
    sent: bool
    final: bool = False  # it would be the same the next time


class Send(msgspec.Struct, frozen=True):
    """For the shell: send this, and give it up after so many seconds of silence."""

    ask: Ask
    timeout: float


class Pause(msgspec.Struct, frozen=True):
    """For the shell: wait so many seconds."""

    seconds: float


# A verb, and the same with its repetitions.
Talk: TypeAlias = Generator[Ask | Pause, Answer | None, T]
Steps: TypeAlias = Generator[Send | Pause, Answer | Unheard | None, T]


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How long a client tries. `timeout`: all tries of one request; `silence`: one of them."""

    timeout: float = 60.0
    silence: float = 20.0

    def __post_init__(self) -> None:
        for field in ("timeout", "silence"):
            if not getattr(self, field) > 0:
                raise ConfigError(f"{field} must be above 0 seconds, not {getattr(self, field)!r}")


class Page(msgspec.Struct, Generic[T], frozen=True):
    """`next` is null on the last page."""

    items: list[T]
    next: str | None


def persistently(talk: Talk[T], rules: Rules) -> Steps[T]:
    """The verb's steps, each `Ask` repeated as the rules of this module say."""
    heard: Answer | None = None
    while True:
        try:
            step = talk.send(heard)
        except StopIteration as end:
            done: T = end.value
            return done
        if isinstance(step, Pause):
            yield step
            heard = None
        else:
            heard = yield from _tries(step, rules)


def _tries(ask: Ask, rules: Rules) -> Steps[Answer]:
    deadline = time.monotonic() + rules.timeout
    pauses = Pauses()
    in_doubt = False
    while True:
        left = max(deadline - time.monotonic(), 0.001)
        heard = yield Send(ask, min(rules.silence, left))
        assert heard is not None
        if isinstance(heard, Answer) and not is_passing(heard):
            return msgspec.structs.replace(heard, repeated=in_doubt)
        in_doubt = in_doubt or _may_be_done(heard)
        pause = pauses.next(heard)
        hopeless = isinstance(heard, Unheard) and heard.final
        if hopeless or (in_doubt and not ask.repeatable) or time.monotonic() + pause > deadline:
            if isinstance(heard, Answer):
                return msgspec.structs.replace(heard, repeated=in_doubt)
            raise unavailable(ask, heard, in_doubt)
        yield Pause(pause)


def is_passing(answer: Answer) -> bool:
    """Whether a server may answer otherwise in a moment."""
    if answer.status == _REFUSED:
        return True
    return answer.status in _PERHAPS and error_of(answer).code not in _HOPELESS


def _may_be_done(heard: Answer | Unheard) -> bool:
    return heard.status in _PERHAPS if isinstance(heard, Answer) else heard.sent


def unavailable(ask: Ask, heard: Unheard, in_doubt: bool) -> ServerUnavailable:
    told = f"{ask.method} {ask.path}: {heard.reason}"
    if in_doubt and ask.method != "GET":
        told += ". It may have been done all the same: look before you ask again"
    return ServerUnavailable(told, in_doubt=in_doubt and ask.method != "GET")


class Pauses:
    """How long to wait before each further try."""

    def __init__(self) -> None:
        self._bound = _FIRST_PAUSE

    def next(self, heard: Answer | Unheard | None = None) -> float:
        pause = self._bound * (0.5 + unit() / 2)
        self._bound = min(self._bound * 2, _LONGEST_PAUSE)
        asked = retry_after(heard.headers) if isinstance(heard, Answer) else None
        # Everybody was told the same: the spread is on top of it.
        return pause if asked is None else asked + pause


def read(answer: Answer | None, kind: type[T]) -> T:
    """What a good answer holds; the error that a bad one tells."""
    assert answer is not None
    if not answer.is_good:
        raise error_of(answer)
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.MsgspecError as error:
        raise ServerUnavailable(
            f"the answer is not one of Rota's ({error}): does the URL lead to a Rota server?"
        ) from None


def get(path: str, kind: type[T], /, **query: Any) -> Talk[T]:
    return read((yield Ask(method="GET", path=path, query=query, repeatable=True)), kind)


def post(path: str, kind: type[T], body: Any = None, *, repeatable: bool = False) -> Talk[T]:
    encoded = None if body is None else msgspec.json.encode(body)
    return read((yield Ask(method="POST", path=path, body=encoded, repeatable=repeatable)), kind)
