"""Stand-ins for other people's services: slow at times, and not always in a good mood."""

from __future__ import annotations

import asyncio
import random
from decimal import Decimal

ARTICLES = ("teapot", "kettle", "cup", "saucer", "spoon", "tea cosy")


class MailServerBusy(Exception):
    """Try again later."""


class TooManyRequests(Exception):
    """What the supplier answers with status 429."""

    def __init__(self, retry_after: float) -> None:
        self.retry_after = retry_after
        super().__init__(f"429 Too Many Requests, retry after {retry_after:g} s")


class UnknownArticle(Exception):
    """What the supplier answers with status 404."""


async def send_mail(to: str, subject: str) -> None:
    await asyncio.sleep(random.uniform(0.05, 0.2))
    if random.random() < 0.1:
        raise MailServerBusy("421 too many connections, try again later")


async def send_sms(phone: str, text: str) -> None:
    await asyncio.sleep(0.1)


async def charge_card(order_id: int, amount: Decimal) -> str:
    """The payment provider. Gives back the number of the payment."""
    await asyncio.sleep(random.uniform(0.1, 0.3))
    return f"pay-{order_id}"


async def order_from_supplier(article: str, pieces: int) -> int:
    """How many days the delivery takes."""
    await asyncio.sleep(random.uniform(0.1, 0.5))
    if article not in ARTICLES:
        raise UnknownArticle(article)
    mood = random.random()
    if mood < 0.2:
        raise ConnectionResetError("the supplier hung up")
    if mood < 0.3:
        raise TooManyRequests(retry_after=3)
    return random.randint(1, 5)


async def count_stock(article: str) -> int:
    await asyncio.sleep(0.01)
    return random.randint(0, 40)
