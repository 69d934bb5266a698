"""Endpoints: tasks whose jobs are pushed over HTTP, and operations on those that a namespace stores."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rota.config import OWN_PREFIX, check_name
from rota.core.administration import EndpointStatus, NewEndpoint, RetryNumbers
from rota.errors import ConfigError, Conflict, NotFound
from rota.lib.net.guard import ForbiddenAddress, parse_url
from rota.model import Guarantee, GuaranteeName
from rota.operations.base import Operations
from rota.operations.endpoint_callbacks import Callbacks
from rota.store.endpoints import EndpointStore, StoredEndpoint
from rota.task import TaskOptions, names_of

if TYPE_CHECKING:
    from rota.operations.rota import Rota

_LONGEST = 30 * 86_400.0
_CHANGEABLE = frozenset(
    ("url", "secret", "queue", "needs", "priority", "guarantee", "retry", "timeout",
     "callback_timeout")
)  # fmt: skip


def check_endpoint(endpoint: StoredEndpoint, options: TaskOptions | None = None) -> TaskOptions:
    """Check an endpoint, and return the options of its task: the given ones, or those of its row."""
    check_name("endpoint", endpoint.name)
    about = f"endpoint {endpoint.name!r}"
    if endpoint.name.startswith(OWN_PREFIX):
        raise ConfigError(f"{about}: names with {OWN_PREFIX!r} are Rota's own")
    try:
        parse_url(endpoint.url)
    except ForbiddenAddress as error:
        raise ConfigError(f"{about}: {error}") from None
    if not 16 <= len(endpoint.secret) <= 200:
        raise ConfigError(f"{about}: a secret has 16 to 200 characters")
    for field in ("timeout", "callback_timeout"):
        seconds = getattr(endpoint, field)
        if not isinstance(seconds, int | float) or not 0 < seconds <= _LONGEST:
            raise ConfigError(
                f"{about}: {field} must be above 0 seconds and at most 30 days, not {seconds!r}"
            )
    options = options or TaskOptions(
        queue=endpoint.queue, needs=endpoint.needs, priority=endpoint.priority,
        guarantee=endpoint.guarantee, retry=endpoint.retry.policy(), runner="loop",
    )  # fmt: skip
    if options.guarantee is Guarantee.EXACTLY_ONCE:
        raise ConfigError(
            f"{about} can't be exactly_once: its effects are in another system, out of reach of the "
            "transaction that finishes its job. Choose at_least_once, and let the receiver recognise "
            "a job that it has done; or at_most_once"
        )
    return options


class Endpoints(Operations):
    """`app.endpoints`"""

    def __init__(self, rota: Rota) -> None:
        super().__init__(rota)
        self.callbacks = Callbacks(rota)

    async def _store(self) -> EndpointStore:
        return EndpointStore(await self._database())

    async def add(
        self,
        name: str,
        url: str,
        *,
        secret: str | None = None,
        queue: str = "default",
        needs: Sequence[str] = (),
        priority: int = 0,
        guarantee: GuaranteeName = "at_least_once",
        retry: RetryNumbers | None = None,
        timeout: float = 30.0,
        callback_timeout: float = 3600.0,
    ) -> NewEndpoint:
        """Make an HTTP endpoint a task, for all workers of the namespace, within seconds.

        Args:
            name: the task's name.
            url: an http or https URL. Its address is checked at every push.
            secret: signs the pushes; generated if not given.
            queue: where its jobs wait.
            needs: capabilities that a worker must have to push it.
            priority: higher goes first.
            guarantee: ``at_least_once`` or ``at_most_once``.
            retry: how often and after how long a failed push is repeated.
            timeout: seconds for an answer.
            callback_timeout: seconds for the callback, after an answer of 202.
        """
        row = StoredEndpoint(
            name=name, url=url, secret=secret or secrets.token_urlsafe(32), queue=queue,
            needs=names_of(needs), priority=priority,
            guarantee=Guarantee.parse(guarantee), retry=retry or RetryNumbers(), timeout=timeout,
            callback_timeout=callback_timeout,
        )  # fmt: skip
        check_endpoint(row)
        store = await self._store()
        async with self._changing("create", f"endpoint {name}", after=shown_endpoint(row)):
            if not await store.add(self._namespace, row):
                raise Conflict(
                    f"there is an endpoint {name!r} already: change it, or remove it",
                    code="exists", field="name",
                )  # fmt: skip
            return NewEndpoint(row.secret, await self.get(name))

    async def list(self) -> list[EndpointStatus]:
        return [shown_endpoint(row) for row in await (await self._store()).list(self._namespace)]

    async def get(self, name: str) -> EndpointStatus:
        return shown_endpoint(await self._row(name))

    async def change(self, name: str, **changes: Any) -> EndpointStatus:
        """Change what is given, as in `add`. It holds for pushes from a few seconds later on."""
        unknown = sorted(set(changes) - _CHANGEABLE)
        if not changes:
            raise ConfigError("give at least one field to change")
        if unknown:
            raise ConfigError(
                f"an endpoint has no field {unknown[0]!r} to change", field=unknown[0]
            )
        if isinstance(given := changes.get("guarantee"), str):
            changes["guarantee"] = Guarantee.parse(given)
        if "needs" in changes:
            changes["needs"] = names_of(changes["needs"])
        store = await self._store()
        async with self._changing("change", f"endpoint {name}") as change:
            before = await self._row(name)
            row = msgspec.structs.replace(before, **changes)
            check_endpoint(row)
            await store.change(self._namespace, row)
            after = await self.get(name)
            secret = "changed" if "secret" in changes else "kept"
            change.before, change.after = (
                shown_endpoint(before),
                {"endpoint": after, "secret": secret},
            )
        return after

    async def remove(self, name: str) -> EndpointStatus:
        """Remove an endpoint, and return it as it was. Its jobs stay in their queue."""
        store = await self._store()
        async with self._changing("remove", f"endpoint {name}") as change:
            change.before = before = await self.get(name)
            await store.remove(self._namespace, name)
        return before

    async def _row(self, name: str) -> StoredEndpoint:
        rows = await (await self._store()).list(self._namespace, name)
        if not rows:
            raise NotFound(f"there is no endpoint {name!r} in namespace {self._namespace!r}")
        return rows[0]


def shown_endpoint(row: StoredEndpoint) -> EndpointStatus:
    """Return what is shown of a stored endpoint: not its secret."""
    fields = {name: getattr(row, name) for name in EndpointStatus.__struct_fields__}
    return EndpointStatus(**{**fields, "guarantee": row.guarantee.label})
