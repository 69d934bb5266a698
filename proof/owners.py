"""What a database's owner may have set for it, or for a role, so that every session begins with that.

The simulation and the nemesis both draw from it.
"""

from __future__ import annotations

from random import Random

# Each seed takes some.
DEFAULTS: dict[str, tuple[str, ...]] = {
    "default_transaction_isolation": ("'repeatable read'", "'serializable'", "'read committed'"),
    "default_transaction_read_only": ("on",),
    "default_transaction_deferrable": ("on",),
    "search_path": ("''", "'nowhere, public'", "pg_catalog"),
    "datestyle": ("'German, DMY'", "'SQL, MDY'", "'Postgres, YMD'"),
    "intervalstyle": ("'sql_standard'", "'iso_8601'"),
    "timezone": ("'Asia/Kathmandu'", "'America/St_Johns'", "'Pacific/Apia'"),
    "bytea_output": ("'escape'",),
    "extra_float_digits": ("0", "-15"),
    "lc_messages": ("'C'",),
    "row_security": ("off",),
    "enable_indexscan": ("off",),
    "plan_cache_mode": ("'force_custom_plan'", "'force_generic_plan'"),
    "quote_all_identifiers": ("on",),
    "xmloption": ("'document'",),
}
# In milliseconds.
LIMITS: dict[str, tuple[str, ...]] = {
    "lock_timeout": ("500", "2000"),
    "statement_timeout": ("3000",),
    "idle_in_transaction_session_timeout": ("1000",),
}
# The simulation has no session that is idle by real time.
IDLE_LIMITS: dict[str, tuple[str, ...]] = {"idle_session_timeout": ("700", "3000")}

# What our own sessions say, which must not depend on any of that.
OWN_SETTINGS = {
    "default_transaction_isolation": "read committed", "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off", "search_path": "public", "timezone": "UTC",
    "datestyle": "ISO, MDY", "intervalstyle": "postgres", "extra_float_digits": "1",
    "bytea_output": "hex", "row_security": "on", "lock_timeout": "0", "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "0", "idle_session_timeout": "0",
}  # fmt: skip


def choose(random: Random, settings: dict[str, tuple[str, ...]]) -> dict[str, str]:
    """About three of ten."""
    return {
        name: random.choice(values) for name, values in settings.items() if random.random() < 0.3
    }
