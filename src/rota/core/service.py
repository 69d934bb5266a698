"""Computes what fairness keys were served in each minute, from samples of their sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from rota.model import ShareService

MINUTES = 60
_SHOWN = 12
_MINUTE = timedelta(minutes=1)


def service_by_key(samples: Iterable[Mapping[str, Any]], now: datetime) -> Sequence[ShareService]:
    """Return the last hour by minute and key.

    A sample is the sum of a key up to its minute, and is only there if it differs from the one before.
    A sum that has become smaller began anew, when the key had no jobs for a while.
    """
    end = now.replace(second=0, microsecond=0) + _MINUTE
    first = end - MINUTES * _MINUTE
    before: dict[str, float] = {}
    found: dict[str, list[float]] = {}
    for sample in samples:
        key, served, at = sample["key"], sample["served"], sample["at"]
        known = before.get(key, 0.0)
        more = served - known if served >= known else served
        before[key] = served
        place = round((at - first) / _MINUTE)
        if 0 <= place < MINUTES:
            found.setdefault(key, [0.0] * MINUTES)[place] += more
    ranked = sorted(found.items(), key=lambda one: -sum(one[1]))
    shown = [ShareService(key=key, first=first, seconds=line) for key, line in ranked[:_SHOWN]]
    if len(ranked) > _SHOWN:
        rest = [sum(line[n] for _, line in ranked[_SHOWN:]) for n in range(MINUTES)]
        shown.append(ShareService(key=None, first=first, seconds=rest))
    return shown
