"""Times on the command line: in full, as a day, or relative to now."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from rota.cli.session import Session
from rota.cli.times import parse_duration, parse_moment

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class When:
    """A moment, or a distance from the database's present."""

    def __init__(self, *, moment: datetime | None = None, offset: timedelta | None = None) -> None:
        self.moment = moment
        self._offset = offset or timedelta()

    def at(self, now: datetime) -> datetime:
        return self.moment if self.moment is not None else now + self._offset


def parse_when(text: str) -> When:
    """Parse '2026-03-01T09:00+01:00', '2026-03-01' (midnight in UTC), 'now', '-2d', '+1h30m'."""
    text = text.strip()
    if text == "now":
        return When()
    if text[:1] in ("+", "-"):
        distance = timedelta(seconds=parse_duration(text[1:]))
        return When(offset=distance if text[0] == "+" else -distance)
    if _DAY.fullmatch(text):
        try:
            return When(moment=datetime.fromisoformat(text).replace(tzinfo=UTC))
        except ValueError as error:
            raise typer.BadParameter(f"{text!r} is not a day: {error}") from None
    try:
        return When(moment=parse_moment(text))
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{error.message}; or -2d, +3h, 2027-01-31") from None


From = Annotated[
    When | None,
    typer.Option(
        "--from", metavar="TIME", parser=parse_when,
        help="Start of the period: 2027-01-31T09:00+01:00, 2027-01-31 (UTC), now, -2d or +3h.",
    ),
]  # fmt: skip
To = Annotated[
    When | None,
    typer.Option(
        "--to", metavar="TIME", parser=parse_when, help="End of the period, not included."
    ),
]


def database_time(session: Session) -> datetime:
    async def ask() -> datetime:
        return await (await session.app.store()).now()

    return session.run(ask())


def stretch(
    session: Session, first: When | None, end: When | None, default: tuple[str, str]
) -> tuple[datetime, datetime]:
    """Return the begin and end of a period, with defaults."""
    now = database_time(session)
    begin = (first or parse_when(default[0])).at(now)
    close = (end or parse_when(default[1])).at(now)
    if close <= begin:
        raise typer.BadParameter(f"{close} is not after {begin}", param_hint="--to")
    return begin, close
