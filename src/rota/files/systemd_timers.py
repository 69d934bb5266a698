"""Read systemd timers, with their services, as schedules of programs.

`OnCalendar` is understood as systemd.time(7) has it, but for years and fractions of a second. Weekday
and date must both match. A timer with several of them becomes several schedules. Intervals that count
from a boot have no meaning in a cluster; `OnUnitActiveSec` becomes an interval.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from rota.commands import COMMAND_TASK
from rota.core.time.schedule import Latest
from rota.core.time.zones import zone
from rota.errors import ConfigError
from rota.files.foreign import Foreign, name_of, rule_of

Sections = dict[str, dict[str, list[str]]]

_SHORTHANDS = {
    "minutely": "*-*-* *:*:00", "hourly": "*-*-* *:00:00", "daily": "*-*-* 00:00:00",
    "weekly": "Mon *-*-* 00:00:00", "monthly": "*-*-01 00:00:00", "yearly": "*-01-01 00:00:00",
    "annually": "*-01-01 00:00:00", "quarterly": "*-01,04,07,10-01 00:00:00",
    "semiannually": "*-01,07-01 00:00:00",
}  # fmt: skip
_UNITS = {
    "us": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "": 1.0, "m": 60.0,
    "min": 60.0, "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hour": 3600.0,
    "hours": 3600.0, "d": 86_400.0, "day": 86_400.0, "days": 86_400.0, "w": 604_800.0,
    "week": 604_800.0, "weeks": 604_800.0,
}  # fmt: skip
_WEEKDAY = re.compile(r"(?i)(?:mon|tue|wed|thu|fri|sat|sun)[a-z]*(?:(?:\.\.|-|,)[a-z]+)*,?")
_TIMES = re.compile(r"[\d*.,:/~-]+")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)")
_SKIPPED = ("OnBootSec", "OnStartupSec", "OnActiveSec")


def read_timers(paths: Sequence[Path], tz: str) -> Foreign:
    """Read the timers among these files; their services are looked for beside them."""
    found = Foreign()
    for path in [path for path in paths if path.suffix == ".timer"]:
        try:
            _read_timer(found, path, tz)
        except (ConfigError, OSError, ValueError) as error:
            found.refuse(path.name, str(error))
    return found


def _read_timer(found: Foreign, path: Path, tz: str) -> None:
    timer = _sections(path).get("Timer", {})
    unit = _last(timer, "Unit") or f"{path.stem}.service"
    if "/" in unit or unit in (".", ".."):
        raise ConfigError(f"Unit={unit} is not the name of a unit beside it")
    settings = _service(found, path, path.with_name(unit))
    if delay := _last(timer, "RandomizedDelaySec"):
        settings["spread"] = seconds_of(delay)
    if (_last(timer, "Persistent") or "").lower() in ("1", "yes", "true", "on"):
        settings["catch_up"] = Latest()
    for name in _SKIPPED:
        if timer.get(name):
            found.warn(path.name, f"{name} is left out: a cluster has no start of its own")
    rules: list[dict[str, Any]] = [calendar_rule(each, tz) for each in timer.get("OnCalendar", [])]
    rules += [{"every": seconds_of(each), "tz": tz} for each in timer.get("OnUnitActiveSec", [])]
    if not rules:
        raise ConfigError("it has neither OnCalendar nor OnUnitActiveSec")
    for number, rule in enumerate(rules, start=1):
        name = path.stem if len(rules) == 1 else f"{path.stem}-{number}"
        found.add(path.name, name_of(name), COMMAND_TASK, **rule, **settings)


def _service(found: Foreign, timer: Path, service: Path) -> dict[str, Any]:
    if not service.is_file():
        raise ConfigError(f"its service {service.name} is not beside it")
    sections = _sections(service)
    own = sections.get("Service", {})
    commands = own.get("ExecStart", [])
    if len(commands) != 1:
        raise ConfigError(f"{service.name} has {len(commands)} ExecStart; only one can be imported")
    payload: dict[str, Any] = {"argv": _command(service.name, commands[0])}
    env = dict(
        pair.partition("=")[::2] for line in own.get("Environment", []) for pair in _words(line)
    )
    if env:
        payload["env"] = env
    if folder := _last(own, "WorkingDirectory"):
        payload["cwd"] = folder
    if user := _last(own, "User"):
        payload["user"] = user
        found.warn(
            timer.name, f"user {user} is stored, but the program runs as the worker's own user"
        )
    for name in ("EnvironmentFile", "ExecStartPre", "ExecStartPost"):
        if own.get(name):
            found.warn(timer.name, f"{name} of {service.name} is left out")
    settings: dict[str, Any] = {
        "payload": payload, "description": _last(sections.get("Unit", {}), "Description") or ""
    }  # fmt: skip
    limit = _last(own, "RuntimeMaxSec") or _last(own, "TimeoutStartSec")
    if limit and limit != "infinity":
        settings["options"] = {"timeout": seconds_of(limit)}
    return settings


def _command(service: str, text: str) -> list[str]:
    command = text.lstrip("-@:+!")
    for sign, what in (("%", "specifiers"), ("$", "variables")):
        if sign in command.replace(sign * 2, ""):
            raise ConfigError(
                f"{service}: ExecStart has {what} ({sign}), which systemd resolves: write their values"
            )
    return _words(command.replace("%%", "%").replace("$$", "$"))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"{text[:100]!r} can't be split into words: {error}") from None


def calendar_rule(text: str, tz: str) -> dict[str, Any]:
    """Return the rule of an OnCalendar expression."""
    words = _SHORTHANDS.get(text.strip().lower(), text).split()
    weekday, date, time = "*", "*-*-*", "00:00:00"
    if len(words) > 1 and not _TIMES.fullmatch(words[-1]) and not _WEEKDAY.fullmatch(words[-1]):
        tz = zone(words.pop()).key
    if words and _WEEKDAY.fullmatch(words[0]):
        weekday = ",".join(
            "-".join(part[:3].lower() for part in re.split(r"\.\.|-", item))
            for item in words.pop(0).rstrip(",").split(",")
        )
    for word in words:
        if ":" in word:
            time = word
        elif "-" in word:
            date = word
        else:
            raise ConfigError(f"OnCalendar={text}: {word!r} is neither a date nor a time")
    if date.count("-") > 2 or time.count(":") > 2:
        raise ConfigError(f"OnCalendar={text} has too many parts")
    year, month, day = (["*", *date.split("-")])[-3:]
    if year != "*":
        raise ConfigError(f"OnCalendar={text} names a year, which rules here can't")
    if "~" in date:
        raise ConfigError(
            f"OnCalendar={text} counts from a month's end: write a calendar rule instead"
        )
    hour, minute, second = (*time.split(":"), "0")[:3]
    minute, hour, day, month, second = map(_field, (minute, hour, day, month, second))
    return {**rule_of(minute, hour, day, month, weekday, second), "tz": tz}


def _field(text: str) -> str:
    """Return a field in cron's words: 0/15 from 0 on, 1..5, numbers without leading zeros."""
    items = []
    for item in text.split(","):
        plain = re.sub(r"\b0+(?=\d)", "", item.replace("..", "-"))
        items.append(f"*{plain[1:]}" if re.fullmatch(r"0/\d+", plain) else plain)
    if "." in text.replace("..", ""):
        raise ConfigError(f"{text} has fractions of a second")
    return ",".join(items)


def seconds_of(text: str) -> float:
    """Return the seconds of a duration such as `1h 30min`."""
    parts = _DURATION.findall(text)
    rest = _DURATION.sub("", text).strip()
    if not parts or rest or any(unit not in _UNITS for _, unit in parts):
        raise ConfigError(f"{text!r} is not a duration such as 1h 30min")
    seconds = float(sum(float(number) * _UNITS[unit] for number, unit in parts))
    if not isfinite(seconds):
        raise ConfigError(f"{text[:60]!r} is too long a duration")
    return seconds


def _sections(path: Path) -> Sections:
    """Read a unit. A key may come several times; an empty value forgets those before it."""
    sections: Sections = {}
    current: dict[str, list[str]] = {}
    text = re.sub(r"\\\n\s*", " ", path.read_text("utf-8"))
    for line in (line.strip() for line in text.splitlines()):
        if not line or line[0] in "#;":
            continue
        if line.startswith("[") and line.endswith("]"):
            current = sections.setdefault(line[1:-1], {})
        elif "=" in line:
            key, _, value = (part.strip() for part in line.partition("="))
            if value:
                current.setdefault(key, []).append(value)
            else:
                current[key] = []
    return sections


def _last(section: dict[str, list[str]], key: str) -> str | None:
    values = section.get(key)
    return values[-1] if values else None
