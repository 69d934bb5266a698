"""Judges what `rota doctor` has found out about an installation. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from rota.core.durations import format_duration

Level = Literal["ok", "warning", "problem"]

_OLDEST_POSTGRES = 14
_MOST_SKEW = 2.0  # seconds
_LONG_TRANSACTION = 600.0
_FULL = 0.8  # of the connections
_OLD_XID = 1_000_000_000  # of the 2 billion after which PostgreSQL stops
_MUCH_LOG = 10 * 2**30  # bytes
_LATE_STANDBY = 60.0


class Finding(msgspec.Struct, frozen=True):
    """The outcome of a check: what was found, and what to do about it."""

    check: str
    level: Level
    says: str
    advice: str = ""


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a database server. None: the role may not see it, or there is none."""

    version: str
    number: int
    standby: bool
    role: str
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    autovacuum: str
    synchronous_standbys: str
    max_connections: int
    connections: int | None
    role_limit: int | None
    role_connections: int
    oldest_xid: int | None
    sees_all: bool
    oldest_transaction: float | None
    oldest_prepared: float | None


class Standby(msgspec.Struct, frozen=True):
    name: str
    state: str
    sync_state: str
    lag: float | None


class Slot(msgspec.Struct, frozen=True):
    name: str
    active: bool
    kept_bytes: int | None


class TokenFacts(msgspec.Struct, frozen=True):
    live: int
    endless: int
    admins: int
    ending: int
    unused: int


class NodeFacts(msgspec.Struct, frozen=True):
    schedulers: int
    workers: int
    versions: Sequence[str]
    coordinators: Sequence[str] = ()  # of the schedulers; "" is PostgreSQL
    coordinator_faults: Sequence[str] = ()


def judge_engine(facts: ServerFacts) -> Finding:
    """Engines that speak PostgreSQL's protocol, but lack what Rota is built on."""
    for engine, lacks in (
        ("CockroachDB", "its advisory locks do nothing, and it has no LISTEN"),
        ("YugabyteDB", "its LISTEN and its locks differ"),
    ):
        if engine.lower() in facts.version.lower() or (
            engine == "YugabyteDB" and "-YB-" in facts.version
        ):
            return Finding(
                "engine", "problem", f"this is {engine}: {lacks}",
                "use PostgreSQL, or a service that runs PostgreSQL itself",
            )  # fmt: skip
    major = facts.number // 10_000
    if major < _OLDEST_POSTGRES:
        return Finding(
            "engine", "problem", f"PostgreSQL {major} is too old",
            f"upgrade to PostgreSQL {_OLDEST_POSTGRES} or newer",
        )  # fmt: skip
    return Finding("engine", "ok", f"PostgreSQL {major}.{facts.number % 10_000}")


def judge_durability(facts: ServerFacts) -> Finding:
    for name, value in (("fsync", facts.fsync), ("full_page_writes", facts.full_page_writes)):
        if value != "on":
            return Finding(
                "durability", "problem",
                f"{name} is off: a power cut can lose committed jobs, or break the database",
                f"set {name} = on in postgresql.conf",
            )  # fmt: skip
    if facts.synchronous_standbys:
        return Finding("durability", "ok", "commits wait for the disk and for a standby")
    return Finding("durability", "ok", "commits wait for the disk; standbys are asynchronous")


def judge_writes(facts: ServerFacts) -> Finding:
    if facts.standby:
        return Finding(
            "primary", "problem", "this server is a standby, which takes no writes",
            "name the primary in ROTA_DATABASE_URL, or all servers: postgresql://a,b/name",
        )  # fmt: skip
    return Finding("primary", "ok", "this server takes writes")


def judge_connections(facts: ServerFacts, needed: int) -> Iterator[Finding]:
    limit = facts.max_connections
    if facts.role_limit is not None and facts.role_limit >= 0:
        limit = min(limit, facts.role_limit)
        used: int | None = facts.role_connections
    else:
        used = facts.connections
    if used is None:
        yield Finding("connections", "ok", f"at most {limit}")
    elif used > _FULL * limit:
        yield Finding(
            "connections", "warning", f"{used} of {limit} connections are in use",
            f"raise max_connections, or put PgBouncer in front; a node of these settings needs {needed}",
        )  # fmt: skip
    else:
        yield Finding("connections", "ok", f"{used} of {limit} connections are in use")


def judge_transactions(facts: ServerFacts) -> Iterator[Finding]:
    if facts.oldest_prepared is not None and facts.oldest_prepared > _LONG_TRANSACTION:
        age = format_duration(facts.oldest_prepared)
        yield Finding(
            "transactions", "problem", f"a prepared transaction is {age} old: nothing can be vacuumed",
            "look into pg_prepared_xacts, and commit or roll back transactions that nobody will finish",
        )  # fmt: skip
    oldest = facts.oldest_transaction
    if oldest is not None and oldest > _LONG_TRANSACTION:
        yield Finding(
            "transactions", "warning",
            f"a transaction is {format_duration(oldest)} old: claims get slower while it lasts",
            "find it in pg_stat_activity; end it, or set idle_in_transaction_session_timeout",
        )  # fmt: skip
    elif facts.sees_all:
        yield Finding("transactions", "ok", "no transaction is old")
    else:
        yield Finding(
            "transactions", "ok", "no transaction of this role is old; those of others are hidden",
            f"grant pg_read_all_stats to {facts.role} to see them",
        )  # fmt: skip
    if facts.oldest_xid is not None and facts.oldest_xid > _OLD_XID:
        yield Finding(
            "wraparound", "problem",
            f"{facts.oldest_xid:,} transaction ids are in use of about 2,000,000,000",
            "something keeps vacuum from freezing: old transactions, slots, or autovacuum is off",
        )  # fmt: skip
    if facts.autovacuum != "on":
        yield Finding("autovacuum", "problem", "autovacuum is off", "set autovacuum = on")


def judge_replication(standbys: Sequence[Standby], slots: Sequence[Slot]) -> Iterator[Finding]:
    for each in standbys:
        if each.lag is not None and each.lag > _LATE_STANDBY:
            yield Finding(
                "replication", "warning",
                f"standby {each.name or 'without a name'} is {format_duration(each.lag)} behind",
                "a failover to it would lose that; look at its disk and at the network",
            )  # fmt: skip
    for slot in slots:
        if slot.kept_bytes is not None and slot.kept_bytes > _MUCH_LOG:
            yield Finding(
                "replication", "problem",
                f"slot {slot.name} has no reader: it keeps {slot.kept_bytes / 2**30:,.0f} GB of log",
                f"bring its standby back, or: select pg_drop_replication_slot('{slot.name}')",
            )  # fmt: skip
    if not standbys:
        yield Finding(
            "replication", "ok", "no standby is seen", "without one, a lost disk is a lost database"
        )
    else:
        kinds = ", ".join(f"{each.name or '?'} ({each.sync_state})" for each in standbys)
        yield Finding("replication", "ok", f"standbys: {kinds}")


def judge_clock(skew: float, uncertainty: float) -> Finding:
    """Rota judges time by the database alone; a clock that is off only misleads people and tokens."""
    off = max(abs(skew) - uncertainty, 0.0)
    if off > _MOST_SKEW:
        which = "ahead of" if skew > 0 else "behind"
        return Finding(
            "clock", "warning", f"the database's clock is {format_duration(off)} {which} this one's",
            "set both by NTP; jobs are due by the database's clock",
        )  # fmt: skip
    return Finding("clock", "ok", "the database's clock agrees with this machine's")


def judge_listen(behind_pooler: bool, echoed: bool, poll: float) -> Finding:
    if echoed:
        return Finding("listen", "ok", "notifications arrive")
    where = "behind a transaction pooler" if behind_pooler else "on this connection"
    return Finding(
        "listen", "warning",
        f"notifications don't arrive {where}: jobs start when workers poll, every {poll:g} s at most",
        "give nodes a direct connection, or a pool in session mode",
    )  # fmt: skip


def judge_rights(role: str, lacking: Sequence[str]) -> Finding:
    if not lacking:
        return Finding("rights", "ok", f"role {role} may do what nodes do")
    shown = ", ".join(lacking[:3]) + (", ..." if len(lacking) > 3 else "")
    return Finding(
        "rights", "warning", f"role {role} may not read and write {len(lacking)} tables: {shown}",
        "right for a role that only submits; a node needs the owner's rights: see `rota grants`",
    )  # fmt: skip


def judge_row_security(enabled: bool, schema: str) -> Finding:
    if enabled:
        return Finding("row_security", "ok", "namespaces are separated by row security")
    return Finding(
        "row_security", "warning", "namespaces are separated by queries alone, not by row security",
        "let a superuser run `create role rota_tenant nologin`, grant it to the role that migrates, "
        f"then run `select {schema}.enable_row_security()`",
    )  # fmt: skip


def judge_tokens(facts: TokenFacts) -> Iterator[Finding]:
    said = f"{facts.live} tokens, {facts.admins} of them admin of all namespaces"
    if facts.ending:
        yield Finding(
            "tokens", "warning", f"{facts.ending} tokens end within 14 days",
            "`rota tokens list --all-namespaces` shows which; replace them in time",
        )  # fmt: skip
    if facts.unused:
        yield Finding(
            "tokens", "warning", f"{facts.unused} tokens were not used for 90 days",
            "revoke tokens that are not needed: `rota tokens revoke`",
        )  # fmt: skip
    if not facts.ending and not facts.unused:
        advice = f"{facts.endless} never end: give new ones --expires" if facts.endless else ""
        yield Finding("tokens", "ok", said, advice)


def judge_nodes(facts: NodeFacts) -> Iterator[Finding]:
    for role, alive in (("scheduler", facts.schedulers), ("worker", facts.workers)):
        if not alive:
            yield Finding(
                "nodes", "warning", f"no {role} is alive", "start one: rota start module:app"
            )
    if facts.schedulers == 1:
        yield Finding(
            "nodes", "warning", "only one scheduler is alive: nothing fires while it restarts",
            "run two or three",
        )  # fmt: skip
    if len(facts.versions) > 1:
        yield Finding(
            "nodes", "warning", f"nodes of several releases run: {', '.join(facts.versions)}",
            "finish the upgrade; then run `rota migrate --post`",
        )  # fmt: skip
    if facts.schedulers > 1 and facts.workers and len(facts.versions) <= 1:
        yield Finding(
            "nodes", "ok", f"{facts.schedulers} schedulers and {facts.workers} workers are alive"
        )


def judge_coordination(facts: NodeFacts) -> Iterator[Finding]:
    """Judge who shares the shards out, where that is not PostgreSQL alone."""
    names = [name or "PostgreSQL" for name in facts.coordinators]
    if len(names) > 1:
        yield Finding(
            "coordination", "warning",
            f"schedulers use several coordinators: {', '.join(names)}. Nothing is lost, but they don't "
            "share the shards evenly",
            "give all of them the same ROTA_COORDINATION",
        )  # fmt: skip
    for fault in facts.coordinator_faults:
        yield Finding(
            "coordination", "warning",
            f"{', '.join(names)} does not answer: {fault}. PostgreSQL shares the shards meanwhile",
            "look at the service, its address and credentials; schedulers return to it by themselves",
        )  # fmt: skip
    if not facts.coordinator_faults and len(names) == 1 and facts.coordinators[0]:
        yield Finding("coordination", "ok", f"{names[0]} shares the shards, and answers")


def judge_encryption(encrypted: Sequence[str], has_keys: bool) -> Finding:
    if encrypted and not has_keys:
        return Finding(
            "encryption", "problem",
            f"namespaces are encrypted ({', '.join(encrypted[:3])}), and no keys are configured here",
            "set ROTA_ENCRYPTION_KEYS or ROTA_ENCRYPTION_KEYS_FILE",
        )  # fmt: skip
    if encrypted:
        return Finding("encryption", "ok", f"{len(encrypted)} namespaces are encrypted")
    return Finding("encryption", "ok", "no namespace is encrypted")
