"""What the shop's jobs are about. Dataclasses, decimals and dates travel as they are."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True)
class Order:
    id: int
    article: str
    price: Decimal
    email: str
