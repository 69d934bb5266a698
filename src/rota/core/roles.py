"""Permissions, and the roles that are made of them: the built-in ones and those of an installation.

A permission is a noun and a verb, as `queues:write`. Each route needs one (`rota.server.policy`). A role
is a set of them, and nothing else tells a built-in role from one that an installation has defined.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import product
from typing import Any

import msgspec

from rota.config import check_name
from rota.errors import ConfigError

ANYWHERE = "*"  # the namespace of a role that holds in all of them

# The nouns of all routes. A token can also be limited to them, as `jobs` or `jobs:read`.
NOUNS = frozenset({
    "alerts", "audit", "calendar", "calendars", "cluster", "dead", "doctor", "endpoints", "events",
    "find", "forecast", "history", "jobs", "limits", "live", "maintenance", "metrics",
    "namespaces", "nodes", "pools", "queues", "roles", "root", "runs", "schedules", "session",
    "sessions", "settings", "shards", "signals", "sinks", "tasks", "tokens", "triggers", "users",
    "views", "webhooks", "workers", "workflows",
})  # fmt: skip
SUBMIT = "jobs:submit"  # a part of jobs:write
WORK = "workers:write"

# The nouns of which viewers see nothing.
ADMIN_NOUNS = frozenset({
    "audit", "doctor", "roles", "sessions", "tokens", "users", "webhooks"
})  # fmt: skip
_READ_ONLY = frozenset({"audit", "doctor"})
# What operators change, and what only admins change of nouns that everybody sees.
_OPERATED = frozenset({
    "alerts", "calendars", "dead", "endpoints", "jobs", "maintenance", "nodes", "pools", "queues",
    "runs", "schedules", "signals", "sinks", "triggers", "workflows",
})  # fmt: skip
_MANAGED = frozenset({"endpoints", "namespaces", "sinks", "triggers"})
# Who logs in may see who they are, and the empty frame of a page.
_OF_EVERYBODY = frozenset({"session:read", "settings:read", "live:read"})

MOST_ROLES = 200  # of an installation
_MOST_LISTED = 100  # namespaces, tasks or queues of a role
_MOST_GIVEN = 20  # roles of somebody in one namespace


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """Permissions under a name.

    `namespaces` limits where it holds; `tasks` and `queues` limit the jobs that it may submit.
    Empty: no limit.
    """

    name: str
    permissions: frozenset[str]
    namespaces: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()

    def holds_in(self, namespace: str) -> bool:
        return not self.namespaces or namespace in self.namespaces

    def may_submit(self, task: str, queue: str | None) -> bool:
        """Return whether it permits to submit such a job. `queue` is None if the submit names none."""
        if SUBMIT not in self.permissions or (self.tasks and not is_listed(task, self.tasks)):
            return False
        return not self.queues or (queue is not None and is_listed(queue, self.queues))


Roles = tuple[Role, ...]


def _verbs(nouns: Iterable[str], verb: str) -> frozenset[str]:
    return frozenset(f"{noun}:{verb}" for noun in nouns)


_VIEWED = _verbs(NOUNS - ADMIN_NOUNS - {"workers"}, "read")
_OPERATES = _VIEWED | _verbs(_OPERATED, "write") | {SUBMIT}
_ADMINISTERS = (
    _OPERATES
    | _verbs(ADMIN_NOUNS, "read")
    | _verbs(ADMIN_NOUNS - _READ_ONLY, "write")
    | _verbs(_MANAGED, "manage")
)

VIEWER = Role(name="viewer", permissions=_VIEWED)
OPERATOR = Role(name="operator", permissions=_OPERATES)
ADMIN = Role(name="admin", permissions=_ADMINISTERS)
WORKER = Role(name="worker", permissions=frozenset({WORK}))
BUILT_IN: Mapping[str, Role] = {role.name: role for role in (VIEWER, OPERATOR, ADMIN, WORKER)}

# Those that a role of an installation may have.
PERMISSIONS = ADMIN.permissions


def expand(permissions: Iterable[str]) -> frozenset[str]:
    """Return what the permissions of a role stand for: `queues` for all of queues, for example.

    What this release doesn't know, because a newer one has written it, permits nothing.
    """
    found = set(_OF_EVERYBODY)
    for each in permissions:
        if ":" not in each:
            found |= {known for known in PERMISSIONS if known.partition(":")[0] == each}
        elif each in PERMISSIONS:
            found.add(each)
    if "jobs:write" in found:
        found.add(SUBMIT)
    return frozenset(found)


def make_role(stored: Mapping[str, Any]) -> Role:
    """Return the role of a stored definition."""
    return Role(
        name=stored["name"], permissions=expand(stored["permissions"]),
        namespaces=tuple(stored["namespaces"]), tasks=tuple(stored["tasks"]),
        queues=tuple(stored["queues"]),
    )  # fmt: skip


def names_of(text: str) -> list[str]:
    """Return the names of the roles in ``viewer,mailer``, which is how a role is given and stored."""
    return sorted({name.strip() for name in text.split(",")})


def named(text: str, defined: Iterable[Role] = ()) -> Roles:
    """Return the roles that are named. A role that doesn't exist any more permits nothing."""
    known = {**{role.name: role for role in defined}, **BUILT_IN}
    return tuple(known[name] for name in names_of(text) if name in known)


def label_of(roles: Iterable[Role]) -> str:
    return ",".join(role.name for role in roles)


def check_role_names(text: str, *, of_user: bool) -> str:
    """Check the form of roles as they are given, ``viewer`` or ``viewer,mailer``; return them in order.

    Whether they exist is known to the store.
    """
    names = names_of(text)
    for name in names:
        check_name("role", name)
    if len(names) > _MOST_GIVEN:
        raise ConfigError(f"role: at most {_MOST_GIVEN} roles at once", field="role")
    if of_user and WORKER.name in names:
        raise ConfigError(
            "users are viewer, operator, admin, or have roles of your own; a worker needs a token: "
            "`rota tokens create NAME --role worker`",
            field="role",
        )
    return ",".join(names)


def unknown_role(name: str, defined: Iterable[str]) -> ConfigError:
    known = [*BUILT_IN, *defined]
    near = get_close_matches(name, known, 1, 0.5)
    return ConfigError(
        f"role: there is no role {name!r}"
        + (f"; do you mean {near[0]!r}?" if near else "")
        + f" There are: {', '.join(known[:20])}. `rota roles set` defines one",
        field="role",
    )


def check_permissions(permissions: Sequence[str]) -> list[str]:
    """Check the permissions of a role that is defined: `queues:write`, or `queues` for all of queues."""
    if not permissions:
        raise ConfigError("permissions: a role needs at least one", field="permissions")
    nouns = {permission.partition(":")[0] for permission in PERMISSIONS}
    for each in permissions:
        if each in PERMISSIONS or each in nouns:
            continue
        if each.partition(":")[0] == "workers":
            raise ConfigError(
                "permissions: only the built-in role worker may run jobs; "
                "`rota tokens create NAME --role worker`",
                field="permissions",
            )
        noun = each.partition(":")[0]
        own = sorted(known for known in PERMISSIONS if known.partition(":")[0] == noun)
        near = get_close_matches(each, sorted(PERMISSIONS | nouns), 1, 0.5) or own[:1]
        raise ConfigError(
            f"permissions: there is no permission {each[:50]!r}"
            + (f"; do you mean {near[0]!r}? " if near else ". ")
            + (f"Of {noun} there are {', '.join(own)}" if own else
               f"The nouns are {', '.join(sorted(nouns))}; `rota roles permissions` lists all"),
            field="permissions",
        )  # fmt: skip
    return sorted(set(permissions))


def check_limits(
    permissions: Sequence[str],
    namespaces: Sequence[str],
    tasks: Sequence[str],
    queues: Sequence[str],
) -> None:
    """Check where a role holds, and for which jobs."""
    for field, entries in (("namespaces", namespaces), ("tasks", tasks), ("queues", queues)):
        if len(entries) > _MOST_LISTED:
            raise ConfigError(f"{field}: a role can have at most {_MOST_LISTED}", field=field)
        for entry in entries:
            if field == "namespaces":
                check_name("namespaces:", entry)
            elif name := entry.removesuffix("*"):
                check_name(f"{field}:", name)
    changes = {each for each in expand(permissions) if not each.endswith(":read")}
    if (tasks or queues) and changes != {SUBMIT}:
        beyond = sorted(changes - {SUBMIT})
        what = "tasks" if tasks else "queues"
        raise ConfigError(
            f"permissions: a role that is limited to {what} can read, and submit jobs ({SUBMIT})"
            + (f"; {', '.join(beyond[:5])} would reach further. Make another role for it" if beyond
               else f", and this one can't submit: add {SUBMIT}"),
            field="permissions",
        )  # fmt: skip


def is_listed(name: str, entries: Sequence[str]) -> bool:
    return any(
        name.startswith(entry[:-1]) if entry.endswith("*") else name == entry for entry in entries
    )


def _within(entry: str, entries: Sequence[str]) -> bool:
    """Return whether everything that an entry stands for is listed: ``mail.a*`` in ``mail.*``."""
    if not entry.endswith("*"):
        return is_listed(entry, entries)
    return any(each.endswith("*") and entry[:-1].startswith(each[:-1]) for each in entries)


def _submits_within(wanted: Role, held: Iterable[Role]) -> bool:
    """Return whether every job that `wanted` may submit may also be submitted with what is held."""
    pairs = product(wanted.tasks or ("*",), wanted.queues or ("*",))
    return all(
        any(
            SUBMIT in role.permissions
            and (not role.tasks or _within(task, role.tasks))
            and (not role.queues or _within(queue, role.queues))
            for role in held
        )
        for task, queue in pairs
    )


def beyond(
    wanted: Iterable[Role], held: Sequence[Role], lent: frozenset[str] = frozenset()
) -> list[str]:
    """Return the permissions of some roles that others don't have; empty: they reach no further.

    The roles are those of one place: namespaces are for the caller to compare. `lent` counts as held.
    """
    own = frozenset().union(*(role.permissions for role in held))
    found: set[str] = set()
    for role in wanted:
        found |= role.permissions - own - lent - _OF_EVERYBODY
        if SUBMIT in role.permissions and not _submits_within(role, held):
            found.add(SUBMIT)
    return sorted(found)
