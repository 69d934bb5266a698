"""Targets of logins and forms: pages of this server, whatever the request says."""

from __future__ import annotations

import re

# Not //elsewhere, nor a backslash, which browsers treat as a slash.
_OWN_PATH = re.compile(r"/(?:(?!/)[!-\[\]-~]{1,2000})?")


def safe_target(path: str | None) -> str:
    """Return the path to go to: one of this server, or the overview."""
    return path if path and _OWN_PATH.fullmatch(path) else "/"
