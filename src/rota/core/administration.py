"""Nouns of an installation: tokens, users, namespaces, endpoints, webhooks, changes.

Server and client share these structs, and the client must not load the store to read an answer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from rota.core.checkup import Finding
from rota.core.roles import Role, make_role
from rota.model import GuaranteeName, Retry


class TokenInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret."""

    id: UUID
    prefix: str
    name: str
    namespace: str
    role: str
    scopes: list[str]
    tasks: list[str]  # empty: all
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    submits_per_second: float | None = None  # jobs that its requests may submit; None: no limit
    queues: list[str] = []  # to which it may submit jobs; empty: all


class Person(msgspec.Struct, frozen=True, kw_only=True):
    """The key of a person for whom values were sealed. Who it is, only the application can tell."""

    id: UUID
    created_at: datetime
    erased_at: datetime | None = None


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    name: str
    expires_at: datetime
    memberships: dict[str, str]  # roles by namespace


class OpenSession(SessionInfo, frozen=True, kw_only=True):
    """A session as admins see it: without its secret. `by_link`: of a link, and so of no user."""

    by_link: bool
    created_at: datetime


class User(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    created_at: datetime
    disabled_at: datetime | None
    has_password: bool
    issuer: str | None
    memberships: dict[str, str]


class RoleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A role: what it permits, and where."""

    name: str
    permissions: list[str]  # queues:write, or queues for all of queues
    namespaces: list[str] = []  # in which it holds; empty: all
    tasks: list[str] = []  # whose jobs it may submit; empty: all
    queues: list[str] = []  # to which it may submit jobs; empty: all
    description: str = ""
    built_in: bool = False
    created_at: datetime | None = None  # None: it is built in
    updated_at: datetime | None = None

    @property
    def role(self) -> Role:
        return make_role(msgspec.structs.asdict(self))


class CreatedToken(msgspec.Struct, frozen=True):
    """`token` is shown here and nowhere else: only its hash is stored."""

    token: str
    info: TokenInfo


class AddedUser(msgspec.Struct, frozen=True):
    """A user's role in a namespace, and whether a password was set."""

    name: str
    role: str
    namespace: str
    password: bool


Amount = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a namespace; null: no limit."""

    max_jobs: Amount | None = None  # that wait, run or have failed
    max_payload_bytes: Amount | None = None  # of those jobs, together
    submits_per_second: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    # Jobs that have not ended: on every way in, also past servers.
    max_depth: Annotated[int, msgspec.Meta(ge=1, le=2**53)] | None = None


class Namespace(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    created_at: datetime | None  # None: it has jobs, and no row of its own
    limits: Limits
    stored_jobs: int | None  # as far as was counted for its limits, and never too few
    stored_bytes: int | None
    depth: int | None = None  # jobs that have not ended; None: not counted


class RetryNumbers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The retry policy of a stored endpoint: `Retry` without exceptions."""

    max_attempts: int = 5
    base: float = 2.0
    factor: float = 2.0
    cap: float = 3600.0
    jitter: float = 0.2

    def policy(self) -> Retry:
        return Retry(**msgspec.structs.asdict(self))


class EndpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An endpoint as it is shown: without its secret."""

    name: str
    url: str
    queue: str
    needs: tuple[str, ...]
    priority: int
    guarantee: GuaranteeName
    retry: RetryNumbers
    timeout: float
    callback_timeout: float
    created_at: datetime | None
    updated_at: datetime | None


class NewEndpoint(msgspec.Struct, frozen=True):
    """`secret` is shown here and nowhere else."""

    secret: str
    endpoint: EndpointStatus

    @property
    def name(self) -> str:
        return self.endpoint.name


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """A URL to which events are delivered. Its secret is shown once, when it is made."""

    id: UUID
    url: str
    kinds: tuple[str, ...]  # empty: all
    format: str
    paused_at: datetime | None
    failures: int  # in a row
    last_error: str | None
    delivered_at: datetime | None
    created_at: datetime


Format: TypeAlias = Literal["json", "slack", "pagerduty", "teams", "email"]


class NewWebhook(msgspec.Struct, frozen=True):
    """`secret` is shown here and nowhere else."""

    secret: str
    webhook: Webhook

    @property
    def id(self) -> UUID:
        return self.webhook.id


class TriggerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A trigger: its source, how far it has read, and what became of the messages."""

    name: str
    task: str
    source: str
    position: str | None
    paused_at: datetime | None
    jobs: int
    skipped: int
    dead: int
    lag: int | None  # messages that wait in the broker, as last seen
    fault: str | None  # why nothing is read
    reader: str | None  # the node that reads
    moved_at: datetime | None
    created_at: datetime


class SinkStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A sink: the topic that events go to, and how far they were sent."""

    name: str
    target: str
    position: str | None  # in the stream of events
    paused_at: datetime | None
    sent: int
    skipped: int
    fault: str | None  # why nothing is sent
    sender: str | None  # the node that sends
    moved_at: datetime | None
    created_at: datetime


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A change as it was recorded."""

    id: int
    at: datetime
    namespace: str
    actor: str
    via: str
    action: str
    subject: str
    before: Any = None
    after: Any = None
    request_id: str | None = None
    address: str | None = None
    interface: str | None = None  # rest, dashboard, cli, python


class Diagnosis(msgspec.Struct, frozen=True):
    """The findings of a check-up. `healthy`: without a problem; there may be warnings."""

    healthy: bool
    findings: list[Finding]
