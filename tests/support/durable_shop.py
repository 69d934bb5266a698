"""A shop for tests of durable functions: what ran is recorded, and fails when told to."""

from __future__ import annotations

from typing import Any

from rota import App, Retry


class Shop:
    """`pause`: seconds before the second try of `charge`, which is tried three times."""

    def __init__(self, app: App, pause: float = 10) -> None:
        self.ran: list[str] = []
        self.broken: set[str] = set()

        @app.task(retry=Retry(max_attempts=1))
        async def ship(part: str) -> str:
            self.note(f"ship {part}")
            return f"{part} shipped"

        @app.task(retry=Retry(max_attempts=3, base=pause, jitter=0))
        async def charge(id: str) -> dict[str, Any]:
            self.note(f"charge {id}")
            return {"id": id, "parts": ["a", "b"]}

        self.ship, self.charge = ship, charge

    def note(self, text: str) -> None:
        self.ran.append(text)
        if text in self.broken:
            raise ValueError(f"{text} is broken")
