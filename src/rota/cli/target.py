"""The target of a command: a database or a server.

1. `--server` or `--profile`: a server. `--database-url`: a database. Both is an error.
2. `ROTA_SERVER` or `ROTA_PROFILE`: a server.
3. `ROTA_DATABASE_URL` or `ROTA_DATA_DIR`: a database.
4. The current profile, if there is one: a server. Otherwise the embedded PostgreSQL.

The token is `ROTA_TOKEN`, or else that of the profile. That of a profile is only sent to its own server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import typer

from rota.cli.profiles import Profile, clean_url, is_clear_text, read_profiles, token_of
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.cli.remote import RemoteApp


class Server(msgspec.Struct, frozen=True):
    """A server to work on."""

    url: str
    token: str | None = None
    namespace: str | None = None
    ca: str | None = None

    def open(self) -> RemoteApp:
        from rota.cli.remote import RemoteApp  # slow to import
        from rota.client import AsyncClient

        if self.token is None:
            raise ConfigError(
                f"no token for {self.url}: log in with rota login --server {self.url}, or set "
                "ROTA_TOKEN to a token that `rota tokens create` made"
            )
        if is_clear_text(self.url) and os.environ.get("ROTA_INSECURE") != "true":
            raise ConfigError(
                f"{self.url} is not encrypted: others on the network could read the token. Use https, "
                "or set ROTA_INSECURE=true where the network is trusted"
            )
        verify: str | bool = self.ca or True
        client = AsyncClient(self.url, self.token, namespace=self.namespace, verify=verify)
        return RemoteApp(client, self.namespace)


def is_named(given: Mapping[str, Any]) -> bool:
    """Return whether the command line names a server."""
    return bool(given.get("server") or given.get("profile"))


def named_server(given: Mapping[str, Any]) -> str | None:
    """Return the URL that was given, as an option or in the environment."""
    return given.get("server") or os.environ.get("ROTA_SERVER") or None


def find_server(given: Mapping[str, Any]) -> Server | None:
    """Return the server to work on; None: a database."""
    if is_named(given) and given.get("database_url"):
        raise typer.BadParameter("give either a server or a database", param_hint="--server")
    if not is_named(given) and given.get("database_url"):
        return None
    url = given.get("server")
    profile = given.get("profile") if not url else None
    if not url and not profile:
        url, profile = os.environ.get("ROTA_SERVER"), os.environ.get("ROTA_PROFILE")
    if not url and not profile:
        if any(os.environ.get(name) for name in ("ROTA_DATABASE_URL", "ROTA_DATA_DIR")):
            return None
        profile = read_profiles().current
    if not url and not profile:
        return None
    return _server(url or None, profile or None, given.get("namespace"))


def _server(url: str | None, name: str | None, namespace: str | None) -> Server:
    token = os.environ.get("ROTA_TOKEN") or None
    namespace = namespace or os.environ.get("ROTA_NAMESPACE") or None
    if url is not None:
        url = clean_url(url)
        if token is not None:  # nothing of the file is needed
            return Server(url, token, namespace)
        profiles = read_profiles()
        name = profiles.of_server(url)
        profile = profiles.named(name) if name else Profile(url)
    else:
        assert name is not None
        profile = read_profiles().named(name)
    token = token or token_of(name, profile)
    return Server(profile.server, token, namespace or profile.namespace, profile.ca)
