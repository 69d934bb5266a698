"""What a session is set to: on what our SQL depends, whatever the database's owner has set.

Protocol. `alter role ... set` and `alter database ... set` change the defaults of every session. Those
that change what a statement means, or whether it may be run, are stated for each connection: in its
startup parameters where we talk to the server itself (there RESET comes back to them), at the start of
each transaction behind a transaction pooler. `search_path` is left alone: our SQL names its schema, and
handlers' own queries may rely on it.
"""

from __future__ import annotations

from collections.abc import Mapping

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

# Settings alone, which can be reset inside a transaction.
RESET = "reset session authorization; reset role; reset all"

# Everything that a handler may leave behind, except prepared statements: the driver counts on its own.
CLEAN = (
    f"{RESET}; select pg_catalog.pg_advisory_unlock_all(); close all; unlisten *; discard temp; "
    "discard sequences"
)


def for_session(settings: Mapping[str, str]) -> str:
    return ";".join(f"set {name} = {_quoted(value)}" for name, value in settings.items())


def for_one_transaction(settings: Mapping[str, str]) -> str:
    """Its first statement. Read only stays as it is: who knows which server a pooler leads to."""
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
