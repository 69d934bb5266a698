"""What an endpoint is, whether code declares it or a row does; and what it may be."""

from __future__ import annotations

import msgspec

from rota.config import OWN_PREFIX, check_name
from rota.errors import ConfigError
from rota.lib.net.guard import ForbiddenAddress, parse_url
from rota.model import Guarantee
from rota.store.endpoints import StoredEndpoint
from rota.task import TaskOptions

_LONGEST = 30 * 86_400.0


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A task that is an HTTP endpoint.

    `timeout`: seconds for an answer; `callback_timeout`: for the callback, after a 202.
    """

    name: str
    url: str
    secret: str
    options: TaskOptions
    timeout: float = 30.0
    callback_timeout: float = 3600.0

    def __post_init__(self) -> None:
        check_name("endpoint", self.name)
        if self.name.startswith(OWN_PREFIX):
            raise ConfigError(f"endpoint {self.name!r}: names with {OWN_PREFIX!r} are Rota's own")
        try:
            parse_url(self.url)
        except ForbiddenAddress as error:
            raise ConfigError(f"endpoint {self.name!r}: {error}") from None
        if not 16 <= len(self.secret) <= 200:
            raise ConfigError(f"endpoint {self.name!r}: a secret has 16 to 200 characters")
        for field in ("timeout", "callback_timeout"):
            seconds = getattr(self, field)
            if not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST:
                raise ConfigError(
                    f"endpoint {self.name!r}: {field} must be above 0 seconds and at most 30 days, "
                    f"not {seconds!r}"
                )
        check_guarantee(self.name, self.options.guarantee)

    @classmethod
    def of(cls, row: StoredEndpoint) -> Endpoint:
        options = TaskOptions(
            queue=row.queue, needs=row.needs, priority=row.priority, guarantee=row.guarantee,
            retry=row.retry.policy(), runner="loop",
        )  # fmt: skip
        return cls(
            name=row.name, url=row.url, secret=row.secret, options=options,
            timeout=row.timeout, callback_timeout=row.callback_timeout,
        )  # fmt: skip


def check_guarantee(name: str, guarantee: Guarantee) -> None:
    if guarantee is Guarantee.EXACTLY_ONCE:
        raise ConfigError(
            f"endpoint {name!r} can't be exactly_once: what it does is done by another system, out of "
            "reach of the transaction that finishes its job. Choose at_least_once, and let the "
            "receiver recognise a job that it has done; or at_most_once"
        )
