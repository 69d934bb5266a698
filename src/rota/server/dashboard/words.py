"""Moments, durations, numbers and states as a page tells them. Pure; all of it is escaped.

A moment is a ``<time>`` in UTC. The script turns it into the zone that the viewer has chosen: their own,
UTC, or the schedule's own (`zone`).
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import msgspec
from markupsafe import Markup

from rota.core.durations import format_distance, format_duration
from rota.store.search import Count

NOTHING = "\u2013"
# A shape for each state: colour alone tells some people nothing.
SHAPES = {
    "waiting": "◔", "scheduled": "○", "ready": "▷", "running": "▶", "succeeded": "✓", "failed": "✕",
    "cancelled": "⊘", "skipped": NOTHING,
    "live": "●", "draining": "◐", "silent": "◌", "dead": "✕", "stopped": "■", "paused": "\u2016",
    "on time": "✓", "late": "◷", "pending": "○", "lost": "✕",
}  # fmt: skip

_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC)")
_TIME = Markup('<time datetime="{0}" data-moment{1}>{2}</time>')
_AGO = Markup('<time datetime="{0}" data-ago title="{1}">{2}</time>')
_ZONE = Markup(' data-zone="{0}"')


def moment(at: datetime | None, zone: str | None = None, *, absent: str = NOTHING) -> Markup | str:
    """The whole of it, to the second."""
    if at is None:
        return absent
    utc = at.astimezone(UTC)
    return _TIME.format(
        _iso(utc), _ZONE.format(zone) if zone else "", f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    )


def ago(at: datetime | None, now: datetime, *, absent: str = NOTHING) -> Markup | str:
    """How far away: "3 min ago", "in 2 h"."""
    if at is None:
        return absent
    utc = at.astimezone(UTC)
    return _AGO.format(
        _iso(utc), f"{utc:%Y-%m-%d %H:%M:%S} UTC", format_distance((at - now).total_seconds())
    )


def with_times(text: str) -> Markup:
    """A sentence, with the moments in it as moments."""
    told = Markup("")
    for place, part in enumerate(_MOMENT.split(text)):
        told += (
            part
            if place % 2 == 0
            else _TIME.format(part.replace(" UTC", "Z").replace(" ", "T"), "", part)
        )
    return told


def _iso(utc: datetime) -> str:
    return utc.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(seconds: float | None, absent: str = NOTHING) -> str:
    """How long something took, in its two largest units."""
    return absent if seconds is None else format_duration(seconds)


def number(value: Count | float | None, absent: str = NOTHING) -> str:
    """With "about" where it is an estimate."""
    if value is None:
        return absent
    if isinstance(value, Count):
        return f"{value.value:,}" if value.exact else f"about {_rounded(value.value):,}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _rounded(value: int) -> int:
    """To two digits: more would be a lie."""
    size = max(len(str(value)) - 2, 0)
    return round(value, -size)


def plural(count: Count | int, one: str, many: str = "") -> str:
    exactly = count.value if isinstance(count, Count) else count
    return f"{number(count)} {one if exactly == 1 else many or one + 's'}"


def rate(per_second: float) -> str:
    """Jobs a second, or a minute where that says more."""
    if per_second >= 10:
        return f"{per_second:,.0f}/s"
    if per_second >= 1:
        return f"{per_second:.1f}/s"
    return f"{per_second * 60:,.1f}/min" if per_second else "0"


def pretty(value: Any) -> str:
    """As JSON that people can read."""
    return json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False)


def first_line(text: str | None, longest: int = 160) -> str:
    line = (text or "").strip().partition("\n")[0]
    return line if len(line) <= longest else line[: longest - 1] + "…"


def short_id(id: Any) -> str:
    """The end of an id: its beginning is the time, the same for neighbours."""
    return "…" + str(id)[-8:]


FILTERS = {
    "span": span, "number": number, "pretty": pretty, "first_line": first_line, "rate": rate,
    "short_id": short_id, "with_times": with_times,
}  # fmt: skip
