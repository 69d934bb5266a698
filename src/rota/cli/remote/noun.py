"""The base of the remote nouns."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Any, NoReturn, TypeVar

from rota.client import AsyncClient
from rota.errors import ConfigError

T = TypeVar("T")
PAGE = 500  # the most that a server gives at once


def needs_database(what: str) -> NoReturn:
    raise ConfigError(
        f"{what}: servers don't offer this. Run the command where the database can be reached, with "
        "--database-url or ROTA_DATABASE_URL"
    )


class Noun:
    """The verbs of a noun, in terms of the client.

    A verb that is not defined is the client's, if that has one with the same arguments and results.
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        noun = type(self).__name__.removeprefix("Remote").lower()
        verb = getattr(getattr(self._client, noun, None), name, None)
        return verb or needs_database(f"{noun}.{name}")


async def collect(found: AsyncIterable[T]) -> list[T]:
    return [each async for each in found]
