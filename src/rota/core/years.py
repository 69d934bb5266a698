"""The years that moments may be in: rules can be computed in them, and every row can be read again."""

from __future__ import annotations

from datetime import UTC, datetime

YEARS = range(1970, 9999)  # in UTC; the same as in rota.check_job()


def year_problem(field: str, moment: datetime) -> str | None:
    """Return why a moment is refused, or None."""
    try:
        year = moment.astimezone(UTC).year
    except OverflowError:  # before the year 1 or after 9999, in UTC
        year = moment.year
    else:
        if year in YEARS:
            return None
    return f"{field}: the year {year} is not in 1970 to 9998"
