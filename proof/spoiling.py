"""Schedules as no version of ours would have written them, and the statements that write them."""

from __future__ import annotations

_SPECS = {
    "zone": """'{"tz": "Mars/Olympus"}'""",
    "rule": """'{"rule": {"type": "lunar", "phase": "full"}}'""",
    "field": """'{"moon_phase": "full", "overlap": "sometimes"}'""",
    "number": """'{"catch_up": {"kind": "all", "within": 1e11}}'""",
}
WAYS = (*_SPECS, "headers")

# Without waiting for whoever holds the row: then no row comes back, and it is to be tried again.
_FREE = """where id = (select id from {schema}.schedule where name = $1 for update skip locked)
returning id"""
_SPOIL_SPEC = f"""
update {{schema}}.schedule set version = version + 1, next_due = {{schema}}.now(),
    spec = (spec::jsonb || {{change}}::jsonb)::json {_FREE}"""
_SPOIL_HEADERS = rf"""
update {{schema}}.schedule set headers = '{{{{"tags": ["a\u0000b"]}}}}' {_FREE}"""


def spoiling(schema: str, way: str) -> str:
    """Return the statement that spoils the schedule named $1 in one of these ways."""
    if way == "headers":
        return _SPOIL_HEADERS.format(schema=schema)
    return _SPOIL_SPEC.format(schema=schema, change=_SPECS[way])
