"""Texts of the search field: words, and filters such as ``task:charge since:2h``."""

from __future__ import annotations

import re
from typing import Any

from rota.model import State

# The words before a colon, and the filters of the address that they stand for.
FILTERS = {
    "task": "task", "queue": "queue", "tag": "tag", "state": "state", "schedule": "schedule",
    "node": "node", "outcome": "outcome", "since": "within", "group": "group",
}  # fmt: skip
_WORD = re.compile(r'(?:(?P<name>[a-z_]+):)?(?:"(?P<quoted>[^"]*)"|(?P<plain>\S+))')
_STATES = {state.label for state in State}


def read_search(text: str) -> dict[str, Any]:
    """Return the filters of a search. What names no filter is looked for as text; ``customer:Acme`` is
    looked for as the JSON ``"customer":"Acme"``."""
    found: dict[str, Any] = {}
    rest: list[str] = []
    for match in _WORD.finditer(text):
        name, value = (
            match["name"],
            match["quoted"] if match["quoted"] is not None else match["plain"],
        )
        if name in FILTERS and value:
            if name == "state":
                states = [each for each in value.split(",") if each in _STATES]
                if states:
                    found.setdefault("state", []).extend(states)
                    continue
            else:
                found[FILTERS[name]] = value
                continue
        if name and name not in FILTERS and value and not value.startswith("//"):
            rest.append(f'"{name}":"{value}"')
        else:
            rest.append(match[0].strip('"'))
    if rest:
        found["text"] = " ".join(rest)
    return found


def is_search(text: str) -> bool:
    """Return whether a text has filters, and isn't simply a text."""
    if text.lstrip().startswith(('"', "{")) or read_search(text) == {"text": text.strip()}:
        return False
    return any(match["name"] for match in _WORD.finditer(text))
