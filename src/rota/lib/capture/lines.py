"""Makes lines of what is written piece by piece: whole, storable, and of a bounded length."""

from __future__ import annotations

LONGEST_LINE = 16_384  # characters


def storable(text: str) -> str:
    """PostgreSQL takes neither NUL nor lone surrogates."""
    if text.isascii():
        return text.replace("\0", "\\x00") if "\0" in text else text
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


def shortened(line: str, left_out: int = 0) -> str:
    """Its beginning, and how much more there was."""
    left_out += max(len(line) - LONGEST_LINE, 0)
    return f"{line[:LONGEST_LINE]}… {left_out:,} characters left out" if left_out else line


class LineSplitter:
    """One stream of one attempt. What has no end yet is kept, up to the longest line."""

    __slots__ = ("_begun", "_left_out")

    def __init__(self) -> None:
        self._begun = ""
        self._left_out = 0  # characters of the line that has begun

    def feed(self, text: str) -> list[str]:
        """The lines that are complete now."""
        if "\n" not in text:
            self._keep(text)
            return []
        first, *others = text.split("\n")
        rest = others.pop()
        lines = [self._end(first), *map(_finished, others)]
        self._keep(rest)
        return lines

    def close(self) -> list[str]:
        """What never got its end."""
        return [self._end("")] if self._begun else []

    def _keep(self, text: str) -> None:
        room = LONGEST_LINE - len(self._begun)
        self._begun += text[:room]
        self._left_out += max(len(text) - room, 0)

    def _end(self, text: str) -> str:
        self._keep(text)
        line, left_out = self._begun, self._left_out
        self._begun, self._left_out = "", 0
        return shortened(_as_seen(line), left_out)


def _finished(line: str) -> str:
    return shortened(_as_seen(line))


def _as_seen(line: str) -> str:
    """A progress bar writes over its own line, again and again: what was seen last."""
    line = line.rstrip("\r")
    return storable(line.rpartition("\r")[2] if "\r" in line else line)
