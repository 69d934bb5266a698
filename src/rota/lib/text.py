"""Whether a text can be sent or stored."""

from __future__ import annotations


def is_text(text: str) -> bool:
    """Return whether UTF-8 can encode it: it holds no half of a surrogate pair."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
