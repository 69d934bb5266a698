"""The password of the database, where it isn't part of the URL: a text, a file or a function.

A file and a function are read for every new connection, so that passwords may rotate: RDS IAM tokens
last 15 minutes, and Kubernetes replaces mounted files. A refused password is then worth another try: the
file may be a moment behind the server.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from rota.config import Settings
from rota.errors import ConfigError


class Password:
    """The source of the password. False: it is in the URL, or none is needed."""

    def __init__(self, settings: Settings) -> None:
        self._given: Any = settings.database_password
        self._file = settings.database_password_file

    def __bool__(self) -> bool:
        return self._given is not None or self._file is not None

    @property
    def rotates(self) -> bool:
        return self._file is not None or callable(self._given)

    @property
    def source(self) -> str:
        return f"of {self._file}" if self._file is not None else "of database_password"

    async def read(self) -> str | None:
        """Return the password of this moment, for a new connection."""
        if self._file is not None:
            return self._read_file()
        if not callable(self._given):
            return self._given if self._given is None else str(self._given)
        answer: str | Awaitable[str] = self._given()
        password = await answer if inspect.isawaitable(answer) else answer
        if not isinstance(password, str):
            raise ConfigError(
                f"database_password returned {type(password).__name__}: it must return a str"
            )
        return password

    def _read_file(self) -> str:
        assert self._file is not None
        try:
            password = self._file.read_text("utf-8").rstrip("\r\n")
        except FileNotFoundError:
            raise ConfigError(
                f"database_password_file {self._file} doesn't exist: mount it, or correct the setting"
            ) from None
        except PermissionError:
            raise ConfigError(
                f"database_password_file {self._file} can't be read by this user"
            ) from None
        if not password:
            raise ConnectionError(f"database_password_file {self._file} is empty")
        return password


ConnectHook = Callable[..., Awaitable[Any]]
