"""Schedules as a careless hand, a newer release or an older one may leave them in the database."""

from __future__ import annotations

from typing import Any

from rota import App

# What each one's stored definition is changed to say, as a JSON merge patch; with a definition that is
# fine, `headers` is what its jobs would get.
BREAKS: dict[str, dict[str, Any]] = {
    "zone-gone": {"spec": '{"tz": "Mars/Olympus_Mons"}'},
    "huge-window": {"spec": '{"catch_up": {"kind": "all", "within": 1e11}}'},
    "huge-jitter": {"spec": '{"jitter": 1e300}'},
    "huge-start": {"spec": '{"starts": "9999-12-31T23:59:59-23:59"}'},
    "nul-in-tags": {"headers": '{"tags": ["\\u0000"]}'},
    "unknown-field": {"spec": '{"blackout": "PT1H"}'},
    "unknown-rule": {"spec": '{"rule": {"type": "lunar", "phase": "full"}}'},
    "unknown-choice": {"spec": '{"overlap": "sometimes"}'},
    "calendar-gone": {"spec": '{"exclude": ["holidays"]}'},
    "not-an-object": {"spec": None},
}


async def add_broken(app: App, task: str = "tell", **settings: Any) -> list[str]:
    """Ten schedules that can't be planned or written, and are due at once; their names."""
    given = {"cron": "* * * * * *", **settings}
    database = (await app.store()).database
    for name, change in BREAKS.items():
        await app.schedule(name, task, **given)
        async with database.connection() as connection:
            await connection.execute(f"set search_path = {database.schema}")
            if "headers" in change:
                what, value = "headers = $2::json", change["headers"]
            elif change["spec"] is None:
                what, value = "spec = $2::json", "[]"
            else:
                what, value = "spec = (spec::jsonb || $2::jsonb)::json", change["spec"]
            await connection.execute(
                f"update schedule set {what}, version = version + 1 where name = $1", name, value
            )
            await connection.execute("reset search_path")
    return sorted(BREAKS)
