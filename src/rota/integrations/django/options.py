"""The settings of a backend: `TASKS[alias]["OPTIONS"]`, and the database that Django knows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

import msgspec
from django.conf import settings as django_settings
from django.db import connections

from rota.config import Settings
from rota.errors import ConfigError
from rota.task import TaskOptions

# What both drivers understand. Other options are psycopg's or Django's alone.
_SHARED = frozenset(
    [
        "sslmode",
        "sslrootcert",
        "sslcert",
        "sslkey",
        "sslcrl",
        "passfile",
        "target_session_attrs",
        "application_name",
    ]
)
_OURS = frozenset({"database", "defaults", "migrate", "modules"})


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one backend."""

    alias: str
    database: str = "default"  # the alias of Django's database that has Rota's schema
    defaults: Mapping[str, Any] = {}  # of tasks: retry, timeout, guarantee and so on
    migrate: bool = True  # whether `manage.py migrate` also migrates Rota's schema
    modules: tuple[str, ...] = ()  # modules with tasks that aren't called `tasks`
    given: Mapping[str, Any] = {}  # settings of Rota, by their names

    @classmethod
    def read(cls, alias: str, params: Mapping[str, Any]) -> Options:
        """Read `TASKS[alias]`. Raises ConfigError with the name of what is wrong."""
        options = dict(params.get("OPTIONS", {}))
        ours = {name: options.pop(name) for name in _OURS & set(options)}
        known = {field.name for field in msgspec.structs.fields(Settings)}
        if unknown := sorted(set(options) - known):
            raise ConfigError(
                f"TASKS[{alias!r}]['OPTIONS']: unknown option {unknown[0]!r}; known: "
                f"{', '.join(sorted(_OURS | known))}"
            )
        if ours.get("database", "default") not in django_settings.DATABASES:
            raise ConfigError(
                f"TASKS[{alias!r}]['OPTIONS']['database'] is {ours['database']!r}, which is not in "
                "DATABASES"
            )
        try:
            TaskOptions.checked(**ours.get("defaults", {}))
        except (ConfigError, TypeError) as error:
            raise ConfigError(f"TASKS[{alias!r}]['OPTIONS']['defaults']: {error}") from None
        ours["modules"] = tuple(ours.get("modules", ()))
        return cls(alias=alias, given=options, **ours)

    def settings(self) -> Settings:
        """Return the settings for the database as it is now: Django's tests give it another name."""
        given = dict(self.given)
        given["database_url"] = self.database_url()
        given.setdefault("app_name", _project_name())
        return Settings.read(**given)

    def database_url(self) -> str:
        described = connections[self.database].settings_dict
        own = self.given.get("database_url")
        if own:  # such as the way around a pooler; the name is Django's, in tests that of the tests
            name = quote(str(described["NAME"]), safe="")
            return urlunsplit(urlsplit(str(own))._replace(path=f"/{name}"))
        return url_of(described)


def _project_name() -> str:
    name: str = os.environ.get("DJANGO_SETTINGS_MODULE") or "django"
    return name


def url_of(described: Mapping[str, Any]) -> str:
    """Return the URL of a database as DATABASES describes it."""
    user, password = described.get("USER") or "", described.get("PASSWORD") or ""
    access = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    host, port = described.get("HOST") or "", described.get("PORT") or ""
    more = {
        name: str(value) for name, value in described.get("OPTIONS", {}).items() if name in _SHARED
    }
    if host.startswith("/"):  # the folder of a socket
        more["host"] = host
        if port:
            more["port"] = str(port)
        host = port = ""
    place = f"{access}@" if access else ""
    place += f"[{host}]" if ":" in host else host
    place += f":{port}" if port else ""
    query = f"?{urlencode(more)}" if more else ""
    return f"postgresql://{place}/{quote(str(described['NAME']), safe='')}{query}"


def left_out(described: Mapping[str, Any]) -> list[str]:
    """Return the options of a database that workers connect without."""
    harmless = {
        "isolation_level",
        "pool",
        "server_side_binding",
        "connect_timeout",
        "client_encoding",
    }
    return sorted(set(described.get("OPTIONS", {})) - _SHARED - harmless)
