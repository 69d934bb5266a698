"""Read a crontab as schedules of programs, as cron does.

Variables apply to the entries after them; the first ``%`` of a command that
has no backslash ends it, and what follows is its standard input, with a line break for each further
one. ``CRON_TZ`` and ``TZ`` set the zone, ``RANDOM_DELAY`` (minutes) spreads. Comments directly above
an entry become its description.

A schedule's name comes from the command, not from the line: moving an entry, or changing its time,
keeps its name, so that importing again updates what is there.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from rota.commands import COMMAND_TASK
from rota.core.time.schedule import ScheduleSpec, compile_schedule, make_spec
from rota.core.time.zones import zone
from rota.errors import ConfigError

_VARIABLE = re.compile(
    r"""(?:"(?P<double>[^"]+)"|'(?P<single>[^']+)'|(?P<bare>[^\s="'@#]+))\s*=\s*(?P<value>.*)"""
)
_QUOTED = re.compile(r"""(?P<quote>["'])(?P<text>.*)(?P=quote)""")
_MAIL = ("MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING")
# The line that editors put above the first entry, in the usual words.
_HEADING = re.compile(r"m(in)?\w*\s+h(our)?\w*\s+dom\b.*", re.IGNORECASE)


class Remark(msgspec.Struct, frozen=True):
    """A remark about a line, for a person."""

    line: int
    message: str


class Crontab(msgspec.Struct, frozen=True):
    """The schedules of a crontab, with warnings and errors."""

    schedules: dict[str, ScheduleSpec]
    lines: dict[str, int]  # of each schedule
    warnings: Sequence[Remark]
    bad: Sequence[Remark]  # lines that can't be imported


def read_crontab(
    text: str, *, with_user: bool = False, tz: str = "UTC", prefix: str = "crontab"
) -> Crontab:
    """Read the entries of a crontab as schedules.

    Args:
        text: the crontab.
        with_user: it has a user column, like /etc/crontab and the files of /etc/cron.d.
        tz: the zone of its times, until it sets another.
        prefix: the prefix of the schedules' names.
    """
    zone(tz)
    reader = _Reader(with_user, tz, prefix)
    for number, line in enumerate(text.split("\n"), start=1):
        reader.line(number, line.strip(" \t\r"))
    warnings = sorted([*reader.warnings, *reader.user_warnings()], key=lambda each: each.line)
    return Crontab(reader.schedules, reader.lines, warnings, reader.bad)


class _Reader:
    def __init__(self, with_user: bool, tz: str, prefix: str) -> None:
        self._with_user = with_user
        self._tz = tz
        self._prefix = prefix
        self._spread = 0.0
        self._bad_zone: str | None = None  # the line that set one that there isn't
        self._env: dict[str, str] = {}
        self._comments: list[str] = []
        self._names: Counter[str] = Counter()
        self._users: dict[str, int] = {}  # with the line of the first entry
        self.schedules: dict[str, ScheduleSpec] = {}
        self.lines: dict[str, int] = {}
        self.warnings: list[Remark] = []
        self.bad: list[Remark] = []

    def line(self, number: int, line: str) -> None:
        if line.startswith("#"):
            self._comments.append(line.lstrip("#").strip())
            return
        if line:
            try:
                self._statement(number, line)
            except ConfigError as error:
                self.bad.append(Remark(number, str(error)))
        self._comments.clear()

    def _statement(self, number: int, line: str) -> None:
        if (variable := _read_variable(line)) is not None:
            self._set(number, *variable)
        elif line.lower().split(maxsplit=1)[0] == "@reboot":
            message = "@reboot is left out: a cluster has no start of its own"
            self.warnings.append(Remark(number, message))
        else:
            self._entry(number, line)

    def _set(self, number: int, name: str, value: str) -> None:
        if name in _MAIL:
            if value and name == "MAILTO":
                kept = "Rota sends no mail; `rota jobs show` shows a job's output"
                self.warnings.append(Remark(number, f"MAILTO={value} is left out: {kept}"))
        elif name == "RANDOM_DELAY":
            if not value.isdecimal() or len(value) > 4 or not 0 <= int(value) <= 1440:
                raise ConfigError(f"RANDOM_DELAY={value[:60]} is not in 0 to 1440 minutes")
            self._spread = int(value) * 60.0
        elif name in ("CRON_TZ", "TZ"):
            self._bad_zone = f"{name}={value[:60]}"
            try:
                self._tz = zone(value).key
                self._bad_zone = None
            except ConfigError as error:
                raise ConfigError(f"{name}={value}: {str(error).removeprefix('tz: ')}") from None
            if name == "TZ":
                self._env[name] = value
        else:
            self._env[name] = value

    def _entry(self, number: int, line: str) -> None:
        if self._bad_zone is not None:
            raise ConfigError(f"its time zone can't be used: {self._bad_zone}")
        expression, rest = _split(line, 1 if line.startswith("@") else 5)
        user = None
        if self._with_user:
            user, rest = _split(rest, 1)
        if not expression or not rest:
            wanted = "a time, a user and a command" if self._with_user else "a time and a command"
            raise ConfigError(f"{line[:60]!r} is not an entry: write {wanted}")
        command, stdin = _split_percent(rest)
        if not command.strip():
            raise ConfigError("the entry has no command")
        name = self._name(user, rest)
        spec = make_spec(
            name, COMMAND_TASK, cron=expression, tz=self._tz, spread=self._spread,
            payload=self._payload(command, stdin, user), description=self._description(),
        )  # fmt: skip
        compile_schedule(spec)
        self.schedules[name] = spec
        self.lines[name] = number
        if user is not None:
            self._users.setdefault(user, number)

    def user_warnings(self) -> list[Remark]:
        note = "is stored, but the command runs as the worker's own user"
        return [Remark(line, f"user {user} {note}") for user, line in self._users.items()]

    def _payload(self, command: str, stdin: str | None, user: str | None) -> dict[str, Any]:
        parts = {"shell": command, "env": dict(self._env) or None, "stdin": stdin, "user": user}
        return {name: value for name, value in parts.items() if value is not None}

    def _description(self) -> str:
        lines = [line for line in self._comments if line and not _HEADING.fullmatch(line)]
        return "\n".join(lines)[:1000]

    def _name(self, user: str | None, command: str) -> str:
        digest = hashlib.blake2b(f"{user or ''}\0{command}".encode(), digest_size=4).hexdigest()
        base = f"{self._prefix}-{_program(command)}-{digest}"
        self._names[base] += 1
        count = self._names[base]
        return base if count == 1 else f"{base}-{count}"


def _read_variable(line: str) -> tuple[str, str] | None:
    """Return the name and value of a line such as ``NAME = "value"``; None for another line."""
    found = _VARIABLE.fullmatch(line)
    if found is None:
        return None
    name = found["double"] or found["single"] or found["bare"]
    value = found["value"].strip()
    if value[:1] in ("'", '"'):
        quoted = _QUOTED.fullmatch(value)
        if quoted is None or quoted["quote"] in quoted["text"]:
            raise ConfigError(f"{name}: the quotes of {value!r} don't match")
        value = quoted["text"]
    return name, value


def _split(text: str, fields: int) -> tuple[str, str]:
    """Return the first so many fields, and the rest."""
    parts = text.split(None, fields)
    if len(parts) <= fields:
        return "", ""
    return " ".join(parts[:fields]), parts[fields]


def _split_percent(text: str) -> tuple[str, str | None]:
    """Return the command and its standard input, if it has one."""
    command, *lines = (part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", text))
    stdin = "\n".join(lines)
    if stdin and not stdin.endswith("\n"):
        stdin += "\n"
    return command, stdin if lines else None


def _program(command: str) -> str:
    """Derive a schedule's name from a command: the name of its program."""
    words = re.split(r"\s+", command.split("%", 1)[0].strip())
    if words[0] == "cd" and "&&" in words:
        words = words[words.index("&&") + 1 :] or words
    plain = [word for word in words if "=" not in word] or words
    name = re.sub(r"[^A-Za-z0-9]+", "-", plain[0].rpartition("/")[2]).strip("-").lower()
    return name[:40] or "command"
