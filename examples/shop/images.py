"""Pictures, with nothing but the standard library: rows of RGB bytes in, a PNG file out."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

WIDTH, HEIGHT = 320, 240


def photograph(article: str) -> list[bytes]:
    """A picture of the article, if you squint: each name has its own colours."""
    seed = zlib.crc32(article.encode())
    red, green, blue = seed & 255, seed >> 8 & 255, seed >> 16 & 255
    return [
        bytes(
            value
            for x in range(WIDTH)
            for value in (red * x // WIDTH, green * y // HEIGHT, (blue + x * y // 99) & 255)
        )
        for y in range(HEIGHT)
    ]


def scaled(rows: list[bytes], width: int) -> Iterator[bytes]:
    """The rows of a smaller picture; each pixel is the average of those it replaces."""
    step = max(1, WIDTH // width)
    for top in range(0, len(rows) - step + 1, step):
        block = rows[top : top + step]
        yield bytes(
            sum(row[3 * x + colour] for row in block for x in range(left, left + step))
            // (step * step)
            for left in range(0, WIDTH - step + 1, step)
            for colour in range(3)
        )


def write_png(path: Path, rows: list[bytes]) -> None:
    header = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
    # First under another name: whoever looks meanwhile, or after a crash, sees no half picture.
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(
        b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND")
    )
    unfinished.replace(path)


def _chunk(kind: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
