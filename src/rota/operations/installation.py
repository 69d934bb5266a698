"""Operations on a whole installation: its access, its namespaces and its database roles."""

from __future__ import annotations

from collections.abc import Callable

from rota.operations.access import Sessions, Tokens, Users
from rota.operations.audit import AuditLog
from rota.operations.connection import Connections
from rota.operations.database_roles import DatabaseRoles
from rota.operations.namespaces import Namespaces


class Installation:
    """The operations that concern more than one namespace.

    Args:
        connections: connections that are not restricted to a namespace by row security.
        on_change: called after a change of access or limits, so that a server drops what it has cached.
    """

    def __init__(
        self, connections: Connections, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.tokens = Tokens(connections, on_change)
        self.users = Users(connections, on_change)
        self.sessions = Sessions(connections, on_change)
        self.namespaces = Namespaces(connections, on_change)
        self.database_roles = DatabaseRoles(connections)
        self.audit = AuditLog(connections)
