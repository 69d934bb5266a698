"""Privileges of database roles: the least that the statements of each role need.

A role that only submits, such as an application's in its own transactions, may add jobs and read what a
submit looks up. It can't read other jobs' results, change or delete a job, or see tokens and people.
What workers, schedulers and servers need follows from the queries that they run: see `privileges`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from rota.errors import ConfigError
from rota.store.privileges import Needs, definer_functions, known_tables, needs_of
from rota.store.sql import named_queries, query_files

Purpose: TypeAlias = Literal[
    "submit", "submit-unique", "seal", "worker", "scheduler", "server", "read", "owner"
]
Grants: TypeAlias = list[tuple[str, list[str]]]  # privileges, and the tables they are for

_ORDER = ("select", "insert", "update", "delete")
# Who may read them could log in, or sign what Rota sends.
SECRETS = frozenset({
    "api_token", "callback_secret", "endpoint", "inbox", "login_failure", "login_link", "login_place",
    "membership", "oidc_login", "person", "session", "user_account", "webhook",
})  # fmt: skip
# What every node reads when it opens the database.
_OPENING = ("migration", "schema_object", "setting", "installation", "namespace", "row_security")


class _Role(NamedTuple):
    """The files of queries that a role runs, and the tables that it has no business in changing."""

    files: tuple[str, ...]
    calls: tuple[str, ...] = ("identify",)  # functions of queries in other files
    queries: tuple[tuple[str, str], ...] = ()  # single ones of other files: (file, name)
    only_reads: frozenset[str] = frozenset()
    only_updates: frozenset[str] = frozenset()  # what people make, and nodes keep count of


_WORKS = (
    "work", "nodes", "limits", "logs", "workflows", "durable_functions", "maps", "signatures",
    "endpoints", "encryption", "events", "jobs", "unique", "stats", "schema_objects",
    "resources",
)  # fmt: skip
_SCHEDULES = (
    "schedules", "shards", "upkeep", "logs", "nodes", "events", "run_stats", "limits", "encryption",
    "workflows", "work", "durable_functions", "maps", "stats", "unique", "jobs", "schema_objects",
)  # fmt: skip
# Of the metrics, which every node can serve, and of a submit to a queue that is full.
_MEASURES = (("depths", "list_depths"), ("pools", "list_pools"), ("depths", "fold_flow"))
_TRIGGERS = tuple(("triggers", name) for name in (
    "declare_trigger", "read_trigger", "leave_trigger", "start_trigger", "advance_trigger",
    "bury_messages", "note_trigger", "source_of_trigger",
)) + tuple(("inboxes", name) for name in (
    "declare_inbox", "read_inbox", "last_of_inbox", "prune_inbox",
)) + tuple(("sinks", name) for name in (
    "declare_sink", "take_sink", "leave_sink", "start_sink", "advance_sink", "note_sink",
    "queues_of_jobs", "target_of_sink",
))  # fmt: skip
# Handlers seal and open values. They erase nobody.
_SEALS = tuple(("persons", name) for name in ("find_persons", "add_person", "key_of_person"))
# Of the services of a scheduler: depths of queues, pools, and the archive of ended jobs.
_KEEPS = (
    ("depths", "settle_lanes"), ("depths", "depths_to_fold"), ("depths", "report_intake"),
    ("depths", "depths_to_recount"), ("depths", "recount_depth"), ("depths", "postpone_recount"),
    ("pools", "pool_load"), ("pools", "decide_pool"),
    ("history", "rows_of_day"), ("history", "count_day"),
    ("history", "old_dead_letters"), ("history", "forget_dead_letters"),
    ("history", "old_strays"), ("history", "forget_strays"),
)  # fmt: skip
_SETTINGS = frozenset({
    "allowed_host", "callback_secret", "declaration", "fair_weight", "installation", "migration",
    "row_security", "schedule_version", "schema_object", "setting", "workflow",
    "workflow_step",
})  # fmt: skip
_NEVER_CHANGED = frozenset({"migration", "row_security", "schema_object"})
_ROLES: Mapping[str, _Role] = {
    "worker": _Role(
        (*_WORKS, "webhooks"),
        queries=(("schedules", "begin_scheduled"), *_MEASURES, *_TRIGGERS, *_SEALS),
        only_reads=_SETTINGS,
        only_updates=frozenset({"endpoint", "webhook"}),
    ),
    "scheduler": _Role(
        _SCHEDULES,
        queries=(*_MEASURES, *_KEEPS),
        only_reads=_SETTINGS - {"declaration", "schedule_version", "setting"},
    ),
    "server": _Role(
        tuple(file for file in query_files() if file not in ("upkeep", "shards", "recovery")),
        only_reads=_NEVER_CHANGED,
    ),
}

# Those that users' own programs run as are listed by hand: they are promised to be no more.
_SUBMITS: Mapping[str, Grants] = {
    "submit": [
        ("select", ["migration", "namespace", "node", "schema_object", "setting", "task"]),
        ("insert", ["arrival"]),
        ("select, insert", ["future", "lane", "present", "queue"]),
        ("select, insert, update", ["submit_key"]),
    ],
    # Unique jobs lock the job that stands for them, or change it.
    "submit-unique": [
        ("select", ["migration", "namespace", "node", "schema_object", "setting", "task"]),
        ("insert", ["arrival"]),
        ("select, insert", ["lane", "queue"]),
        ("select, insert, update, delete", ["future", "present"]),
        ("select, insert, update", ["submit_key", "unique_key"]),
    ],
    # Applications that seal values for persons, and open them, beside what they submit.
    "seal": [
        ("select", ["migration", "namespace", "schema_object", "setting"]),
        ("select, insert", ["person"]),
    ],
}
PURPOSES = (*_SUBMITS, *_ROLES, "read", "owner")


def grant_statements(purpose: str, role: str, schema: str) -> list[str]:
    """The SQL that gives a role what it needs. The role's name is quoted here."""
    if purpose not in PURPOSES:
        raise ConfigError(f"purpose {purpose!r} is not one of: {', '.join(PURPOSES)}")
    if not role or "\0" in role or "$grant$" in role or len(role.encode()) > 63:
        raise ConfigError("a role's name is 1 to 63 bytes long, without NUL and $grant$")
    quoted = '"' + role.replace('"', '""') + '"'
    if purpose == "owner":
        return _owner(quoted)
    statements = [f"grant usage on schema {schema} to {quoted};"]
    for privileges, tables in table_grants(purpose):
        listed = ", ".join(f"{schema}.{table}" for table in tables)
        statements.append(f"grant {privileges} on {listed} to {quoted};")
    return statements + _besides(purpose, quoted, schema)


def table_grants(purpose: str) -> Grants:
    """Return the privileges of a purpose, and the tables that each is for."""
    if purpose in _SUBMITS:
        return _SUBMITS[purpose]
    if purpose == "read":
        return [("select", sorted(known_tables() - SECRETS))]
    chosen = _ROLES[purpose]
    by_privileges: dict[str, list[str]] = {}
    needed = _needs(chosen).tables
    for table in sorted({*needed, *_OPENING}):
        used = {"select", *needed.get(table, ())} - _denied(chosen, table)
        listed = ", ".join(verb for verb in _ORDER if verb in used)
        by_privileges.setdefault(listed, []).append(table)
    return sorted(by_privileges.items())


def _needs(role: _Role) -> Needs:
    return needs_of(role.files, (named_queries(file)[name] for file, name in role.queries))


def _denied(role: _Role, table: str) -> set[str]:
    if table in role.only_reads:
        return {"insert", "update", "delete"}
    return {"insert", "delete"} if table in role.only_updates else set()


def _besides(purpose: str, quoted: str, schema: str) -> list[str]:
    """Return what is no privilege of a table: sequences, functions, membership, maintenance."""
    if purpose not in _ROLES:
        return []
    needs = _needs(_ROLES[purpose])
    statements = [
        f"grant usage on sequence {schema}.{name} to {quoted};" for name in sorted(needs.sequences)
    ]
    statements += [
        f"grant execute on function {schema}.{name} to {quoted};"
        for name in sorted({*needs.functions, *_ROLES[purpose].calls} & definer_functions())
    ]
    if purpose == "server":
        # Requests about a namespace run as rota_tenant, which row security restricts to it. It is not
        # inherited: else the policies would restrict the server's own requests as well.
        statements.append(
            "do $grant$ begin if not exists (select from pg_roles where rolname = 'rota_tenant') then "
            "null; elsif current_setting('server_version_num')::int >= 160000 then "
            f"execute 'grant rota_tenant to {_inner(quoted)} with inherit false, set true'; "
            f"else grant rota_tenant to {quoted}; alter role {quoted} noinherit; end if; end $grant$;"
        )
    if purpose == "scheduler":
        # Before PostgreSQL 17 only the owner can vacuum, and autovacuum has to do.
        statements.append(
            "do $grant$ begin if current_setting('server_version_num')::int >= 170000 then "
            f"execute 'grant maintain on {schema}.present to {_inner(quoted)}'; end if; end $grant$;"
        )
    return statements


def _owner(quoted: str) -> list[str]:
    """Return what a superuser runs once, before the role's first `rota migrate`."""
    tenant = (
        "do $grant$ begin if not exists (select from pg_roles where rolname = 'rota_tenant') then "
        "create role rota_tenant nologin; end if; end $grant$;"
    )
    database = (
        "do $grant$ begin execute format('grant connect, create, temporary on database %I to ', "
        f"current_database()) || '{_inner(quoted)}'; end $grant$;"
    )
    return [tenant, f"grant rota_tenant to {quoted} with admin option;", database]


def _inner(quoted: str) -> str:
    """Return a quoted name for use inside a text."""
    return quoted.replace("'", "''")
