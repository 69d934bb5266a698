"""Exchanges of requests and responses with a server, and their retries. No I/O.

An exchange is a generator: it yields a `Request` and receives its `Response`, or yields a `Sleep`, and
returns the result of a method. `with_retries` stands between an exchange and the connection that sends
its requests, and repeats:

- a request that reached no server, or that a server refused before it did anything (429): always;
- a request that may have taken effect although no response says so (a broken connection, a timeout,
  502, 503, 504): only if it is `repeatable`. A submit is, because it carries an idempotency key;
- any other response is final.

Delays between attempts grow, have a random part so that many clients don't return at the same moment,
and are at least the server's Retry-After. All attempts of one request together have `timeout` seconds.
When the next one wouldn't fit, the last response is final, or `ServerUnavailable` is raised, which says
whether the request may have taken effect.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

from rota.client.problems import error_from, retry_after
from rota.client.transport import NoResponse, Request, Response
from rota.core.json_values import encode_plain
from rota.errors import ConfigError, QueueFull, ServerUnavailable
from rota.lib.ids import unit

T = TypeVar("T")

_FIRST_DELAY = 0.1
_LONGEST_DELAY = 5.0
_REFUSED = 429  # before anything was done
_UNCERTAIN = frozenset({502, 503, 504})  # a proxy's, or a server that lost its database
_PERMANENT = frozenset({"too-much-to-read"})  # another attempt would have the same response


class Sleep(msgspec.Struct, frozen=True):
    """An instruction to the connection: wait."""

    seconds: float


Exchange: TypeAlias = Generator[Request | Sleep, Response | None, T]
# An exchange whose requests are repeated.
Attempts: TypeAlias = Generator[Request | Sleep, Response | NoResponse | None, T]


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The time for all attempts of a request (`timeout`), and without data for one (`silence`)."""

    timeout: float = 60.0
    silence: float = 20.0

    def __post_init__(self) -> None:
        for field in ("timeout", "silence"):
            if not getattr(self, field) > 0:
                raise ConfigError(f"{field} must be above 0 seconds, not {getattr(self, field)!r}")


def with_retries(exchange: Exchange[T], policy: RetryPolicy) -> Attempts[T]:
    """Repeat the requests of an exchange as described at the top of this module."""
    response: Response | None = None
    while True:
        try:
            step = exchange.send(response)
        except StopIteration as end:
            result: T = end.value
            return result
        if isinstance(step, Sleep):
            yield step
            response = None
        else:
            response = yield from _attempts(step, policy)


def _attempts(request: Request, policy: RetryPolicy) -> Attempts[Response]:
    deadline = time.monotonic() + policy.timeout
    backoff = Backoff()
    in_doubt = False
    while True:
        left = max(deadline - time.monotonic(), 0.001)
        timeout = min(policy.silence, left)
        received = yield msgspec.structs.replace(request, timeout=timeout)
        assert received is not None
        if isinstance(received, Response) and not is_temporary(received):
            return msgspec.structs.replace(received, repeated=in_doubt)
        in_doubt = in_doubt or _may_have_taken_effect(received)
        delay = backoff.next(received)
        permanent = isinstance(received, NoResponse) and received.permanent
        too_late = time.monotonic() + delay > deadline
        if permanent or too_late or (in_doubt and not request.repeatable):
            if isinstance(received, Response):
                return msgspec.structs.replace(received, repeated=in_doubt)
            raise unavailable(request, received, in_doubt)
        yield Sleep(delay)


def is_temporary(response: Response) -> bool:
    """Return whether a server may respond differently in a moment."""
    if response.status == _REFUSED:
        return error_from(response).code != QueueFull.code  # which is for the caller to decide
    return response.status in _UNCERTAIN and error_from(response).code not in _PERMANENT


def _may_have_taken_effect(received: Response | NoResponse) -> bool:
    return received.status in _UNCERTAIN if isinstance(received, Response) else received.sent


def unavailable(request: Request, received: NoResponse, in_doubt: bool) -> ServerUnavailable:
    in_doubt = in_doubt and request.method != "GET"
    advice = ". It may have taken effect: check before you repeat it" if in_doubt else ""
    return ServerUnavailable(
        f"{request.method} {request.path}: {received.reason}{advice}", in_doubt=in_doubt
    )


class Backoff:
    """The delays before further attempts."""

    def __init__(self) -> None:
        self._bound = _FIRST_DELAY

    def next(self, received: Response | NoResponse | None = None) -> float:
        delay = self._bound * (0.5 + unit() / 2)
        self._bound = min(self._bound * 2, _LONGEST_DELAY)
        least = retry_after(received.headers) if isinstance(received, Response) else None
        # All clients receive the same Retry-After: the random part is added to it.
        return delay + (least or 0.0)


def decode(response: Response | None, kind: type[T]) -> T:
    """Return the content of a successful response; raise the error of another."""
    assert response is not None
    if not response.is_success:
        raise error_from(response)
    try:
        return msgspec.json.decode(response.body, type=kind)
    except msgspec.MsgspecError as error:
        raise ServerUnavailable(
            f"the response is not one of Rota's ({error}): is the URL that of a Rota server?"
        ) from None


def fetch(path: str, kind: type[T], /, **query: Any) -> Exchange[T]:
    return decode((yield Request(method="GET", path=path, query=query, repeatable=True)), kind)


def send(
    method: Literal["POST", "PUT", "PATCH", "DELETE"], path: str, kind: type[T],
    body: Any = None, *, headers: Mapping[str, str] = {}, query: Mapping[str, Any] = {},
    repeatable: bool = False,
) -> Exchange[T]:  # fmt: skip
    encoded = None if body is None else encode_plain(body, path)
    response = yield Request(
        method=method, path=path, query=query, body=encoded, headers=headers,
        repeatable=repeatable,
    )  # fmt: skip
    return decode(response, kind)


def order(
    method: Literal["POST", "PUT", "DELETE"],
    path: str,
    body: Any = None,
    *,
    repeatable: bool = True,
) -> Exchange[None]:
    """Send what is answered without content."""
    encoded = None if body is None else encode_plain(body, path)
    response = yield Request(method=method, path=path, body=encoded, repeatable=repeatable)
    assert response is not None
    if not response.is_success:
        raise error_from(response)


class Page(msgspec.Struct, Generic[T], frozen=True):
    """A page of a list. `next` is null on the last one."""

    items: list[T]
    next: str | None


class Pages(Generic[T]):
    """A list that is fetched page by page, with `next_page` while there `is_more`."""

    def __init__(
        self, path: str | Exchange[str], kind: type[Page[T]], query: Mapping[str, Any],
        limit: int | None, size: int,
    ) -> None:  # fmt: skip
        self._path = path
        self._kind = kind
        self._query = query
        self._left = limit
        self._size = size
        self._cursor: str | None = None
        self.is_more = limit is None or limit > 0

    def next_page(self) -> Exchange[list[T]]:
        if not isinstance(self._path, str):
            self._path = yield from self._path
        size = self._size if self._left is None else min(self._size, self._left)
        query = {**self._query, "limit": size, "cursor": self._cursor}
        page = yield from fetch(self._path, self._kind, **query)
        self._cursor = page.next
        if self._left is not None:
            self._left -= len(page.items)
        self.is_more = page.next is not None and self._left != 0
        return page.items
