"""The settings of a session on which our SQL depends, whatever the database's owner has set.

Protocol. `alter role ... set` and `alter database ... set` change the defaults of every session. Those
that change what a statement means, or whether it may be run, are stated for each connection: in its
startup parameters where we talk to the server itself (there RESET comes back to them), at the start of
each transaction behind a transaction pooler. `search_path` is left alone: our SQL names its schema, and
handlers' own queries may rely on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.config import Settings

MEANING = {
    # Places and gates are counted under a lock, by a statement that must see what others committed.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "lock_timeout": "0",  # statement_timeout bounds it
    "idle_session_timeout": "0",
    "DateStyle": "ISO, MDY",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "standard_conforming_strings": "on",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "array_nulls": "on",
    "row_security": "on",
}

PINNED_PLANS = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_indexscan": "on",
    "enable_nestloop": "on",
    "plan_cache_mode": "force_generic_plan",
}

_HOT_IDLE_SECONDS = 5.0

# Settings alone, which can be reset inside a transaction.
RESET = "reset session authorization; reset role; reset all"

# Everything that a handler may leave behind, except prepared statements, which the driver needs.
CLEAN = (
    f"{RESET}; select pg_catalog.pg_advisory_unlock_all(); close all; unlisten *; discard temp; "
    "discard sequences"
)


def settings_of(settings: Settings, hot: bool) -> dict[str, str]:
    """Return the settings of a connection; `hot`: with pinned plans."""
    # The engine's own transactions are milliseconds long: one that is idle belongs to a node that
    # was stopped, and its locks must not delay the nodes that take over from it.
    idle = min(settings.statement_timeout, _HOT_IDLE_SECONDS) if hot else settings.statement_timeout
    return {
        **MEANING,
        "statement_timeout": str(int(settings.statement_timeout * 1000)),
        "idle_in_transaction_session_timeout": str(int(idle * 1000)),
        "jit": "off",
        **(PINNED_PLANS if hot else {"plan_cache_mode": "force_custom_plan"}),
    }


def for_session(settings: Mapping[str, str]) -> str:
    return ";".join(f"set {name} = {_quoted(value)}" for name, value in settings.items())


def pinned_for_one_transaction() -> str:
    """Return a statement that pins the plans of a transaction, as those of a hot connection are."""
    return ";".join(f"set local {name} = {_quoted(value)}" for name, value in PINNED_PLANS.items())


def for_one_transaction(settings: Mapping[str, str]) -> str:
    """Return a transaction's first statement; without `read only`: the server may be a standby."""
    local = (
        f"set local {name} = {_quoted(value)}"
        for name, value in settings.items()
        if not name.startswith("default_transaction_")
    )
    level = settings["default_transaction_isolation"]
    return ";".join([f"set transaction isolation level {level}", *local])


def _quoted(value: str) -> str:
    # A list is written without quotes around the whole of it.
    return ", ".join(f"'{part}'" for part in value.split(", "))
