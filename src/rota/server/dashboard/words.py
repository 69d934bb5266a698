"""Format moments, durations, numbers and states for pages. All values are escaped.

A moment is a ``<time>`` in the zone that the user has chosen (`zone_shown`). The script shows it anew
when they choose another, or the schedule's own (`zone`).
"""

from __future__ import annotations

import json
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from markupsafe import Markup

from rota.core.durations import format_distance, format_duration
from rota.model import Count

NOTHING = "\u2013"
_UTC = ZoneInfo("UTC")
zone_shown: ContextVar[ZoneInfo] = ContextVar("zone_shown", default=_UTC)
# A shape for each state: some people don't see colours.
SHAPES = {
    "waiting": "◔", "scheduled": "○", "ready": "▷", "running": "▶", "succeeded": "✓", "failed": "✕",
    "cancelled": "⊘", "cancelling": "⊘", "skipped": NOTHING, "upstream failed": "✕",
    "upstream_failed": "✕",
    "live": "●", "draining": "◐", "silent": "◌", "dead": "✕", "stopped": "■", "paused": "\u2016",
    "backfilled": "↺", "on time": "✓", "late": "◷", "pending": "○", "lost": "✕",
}  # fmt: skip

_COMMAND = re.compile(r"`([^`<]+)`")
_MOMENT = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC)")
_TIME = Markup('<time datetime="{0}" data-moment{1}>{2}</time>')
_AGO = Markup('<time datetime="{0}" data-ago title="{1}">{2}</time>')
_ZONE = Markup(' data-zone="{0}"')


def moment(at: datetime | None, zone: str | None = None, *, absent: str = NOTHING) -> Markup | str:
    """Format a moment to the second."""
    if at is None:
        return absent
    return _TIME.format(_iso(at), _ZONE.format(zone) if zone else "", stamp(at))


def stamp(at: datetime) -> str:
    """Format a moment as plain text, for titles and descriptions."""
    return f"{at.astimezone(zone_shown.get()):%a %Y-%m-%d %H:%M:%S %Z}"


def clock(at: datetime) -> str:
    return f"{at.astimezone(zone_shown.get()):%H:%M %Z}"


def written(at: datetime | None) -> str:
    """Format a moment as the value of a field, in the zone that the field is read in."""
    return "" if at is None else f"{at.astimezone(zone_shown.get()):%Y-%m-%d %H:%M}"


def ago(at: datetime | None, now: datetime, *, absent: str = NOTHING) -> Markup | str:
    """Format the distance of a moment from now: "3 min ago", "in 2 h"."""
    if at is None:
        return absent
    return _AGO.format(_iso(at), stamp(at), format_distance((at - now).total_seconds()))


def with_times(text: str) -> Markup:
    """Format the moments within a sentence, and the commands, which are between backquotes."""
    parts = _MOMENT.split(text)
    for place in range(1, len(parts), 2):
        parts[place] = moment(datetime.fromisoformat(parts[place].replace(" UTC", "+00:00")))
    escaped = str(Markup("").join(parts))
    return Markup(_COMMAND.sub(r"<code>\1</code>", escaped))  # noqa: S704


def _iso(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(seconds: float | None, absent: str = NOTHING) -> str:
    """Format a duration in its two largest units."""
    return absent if seconds is None else format_duration(seconds)


def number(value: Count | float | None, absent: str = NOTHING) -> str:
    """Format a number, with "about" if it is an estimate."""
    if value is None:
        return absent
    if isinstance(value, Count):
        return f"{value.value:,}" if value.exact else f"about {_rounded(value.value):,}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def _rounded(value: int) -> int:
    """Round to two digits: more would look exact."""
    size = max(len(str(value)) - 2, 0)
    return round(value, -size)


def plural(count: Count | int, one: str, many: str = "") -> str:
    exactly = count.value if isinstance(count, Count) else count
    return f"{number(count)} {one if exactly == 1 else many or one + 's'}"


def rate(per_second: float) -> str:
    """Format a rate of jobs, per second or per minute."""
    if per_second >= 10:
        return f"{per_second:,.0f}/s"
    if per_second >= 1:
        return f"{per_second:.1f}/s"
    return f"{per_second * 60:,.1f}/min" if per_second else "0"


def pretty(value: Any) -> str:
    """Format a value as indented JSON."""
    return json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False)


def first_line(text: str | None, longest: int = 160) -> str:
    line = (text or "").strip().partition("\n")[0]
    return line if len(line) <= longest else line[: longest - 1] + "…"


def middle(text: str, longest: int = 36) -> str:
    """Shorten a name in its middle: names that are alike often differ at their ends."""
    if len(text) <= longest:
        return text
    end = (longest - 1) // 2
    return f"{text[: longest - 1 - end]}…{text[-end:]}"


def short_id(id: Any) -> str:
    """Shorten an id to its end: the beginning is the time, the same for neighbours."""
    return "…" + str(id)[-8:]


FILTERS = {
    "span": span, "number": number, "pretty": pretty, "first_line": first_line, "rate": rate,
    "short_id": short_id, "middle": middle, "with_times": with_times,
}  # fmt: skip
