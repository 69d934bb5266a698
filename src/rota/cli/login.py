"""`rota login`: a login link for the dashboard, or a profile of a server. `rota profiles`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec
import typer

from rota.cli.options import UserRole, Yes, argument, option
from rota.cli.profiles import (
    Profile,
    check_profile_name,
    clean_url,
    config_path,
    forget_token,
    is_clear_text,
    read_profiles,
    store_token,
    write_profiles,
)
from rota.cli.session import Session, callback, command
from rota.cli.target import named_server
from rota.config import Settings
from rota.core.durations import format_duration
from rota.core.roles import ANYWHERE
from rota.errors import ConfigError

if TYPE_CHECKING:
    from rota.client.wire import Me

group = typer.Typer(help="Manage profiles: the servers that commands can use.")
_LINK = "Login link for the dashboard"
_SERVER = "Profile of a server (with --server)"
_Name = Annotated[str, argument("NAME", "Name of the profile.")]


def login(
    session: Session,
    user: Annotated[
        str | None,
        option("Log in as this user, with their roles.", "--as", metavar="NAME", panel=_LINK),
    ] = None,
    role: UserRole = "admin",
    only_here: Annotated[
        bool, option("Limit the role to this namespace; without --as.", panel=_LINK)
    ] = False,
    url: Annotated[
        str | None,
        option("Address of the server. (default: from the settings)", metavar="URL", panel=_LINK),
    ] = None,
    token_file: Annotated[
        typer.FileText | None,
        option("File with the token; - is standard input. (default: ask for it)", metavar="FILE",
               panel=_SERVER),
    ] = None,
    ca: Annotated[
        str | None,
        option("File of certificates to trust.", metavar="FILE", panel=_SERVER),
    ] = None,
    insecure: Annotated[
        bool, option("Allow http:// beyond this machine: the token can be read.", panel=_SERVER)
    ] = False,
) -> None:  # fmt: skip
    """Print a one-time login link for the dashboard; with --server, let commands use that server.

    With --server, the token is checked and stored in a profile, which becomes the current one: commands
    use its server from then on, unless they are told otherwise.
    """
    server = named_server(session.given)
    if server is not None:
        _log_in(session, server, token_file, ca, insecure)
        return
    settings = session.app.settings
    link = session.run(
        session.installation.sessions.create_link(
            user=user, role=role, namespace=settings.namespace if only_here else ANYWHERE
        )
    )
    address = link.url(url or server_url(settings))
    session.screen.answer({"url": address, "minutes": settings.link_minutes}, address)
    session.screen.note(f"Valid once, for {format_duration(link.seconds)}.")


def server_url(settings: Settings) -> str:
    """Return the address of the server by its settings."""
    if settings.public_url:
        return settings.public_url
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.tls_cert else 'http'}://{host}:{settings.port}"


def _log_in(
    session: Session, server: str, file: typer.FileText | None, ca: str | None, insecure: bool
) -> None:
    url = clean_url(server)
    if is_clear_text(url) and not insecure:
        raise ConfigError(
            f"{url} is not encrypted: others on the network could read the token. Use https, or give "
            "--insecure where the network is trusted"
        )
    host = urlsplit(url).netloc.replace(":", "-").replace("[", "").replace("]", "")
    name = check_profile_name(session.given.get("profile") or host)
    token = (file.read() if file is not None else _ask_token()).strip()
    me = _check(url, token, session.given.get("namespace"), ca)
    profiles = read_profiles()
    made = Profile(url, namespace=session.given.get("namespace"), ca=ca)
    profiles.profiles = {**profiles.profiles, name: store_token(name, made, token)}
    profiles.current = name
    write_profiles(profiles)
    where = "all namespaces" if ANYWHERE in me.namespaces else me.namespace
    session.screen.answer(
        {"profile": name, "server": url, "name": me.name, "role": me.role, "namespace": where},
        f"logged in to {url} as {me.name}, {me.role} of {where}; the profile is {name}",
    )
    place = "the keyring" if profiles.profiles[name].keyring else config_path()
    session.screen.note(f"The token is in {place}.")


def _ask_token() -> str:
    if sys.stdin.isatty():
        asked: str = typer.prompt("Token", hide_input=True, err=True)
        return asked
    return sys.stdin.readline()


def _check(url: str, token: str, namespace: str | None, ca: str | None) -> Me:
    """Return whose token it is. One that the server refuses is not stored."""
    if not token:
        raise ConfigError("no token was given: `rota tokens create NAME` makes one", field="token")
    from rota.client import Client  # slow to import

    with Client(url, token, namespace=namespace, timeout=20, verify=ca or True) as client:
        return client.me()


@callback(group)
@command(group, "list")
def list_profiles(session: Session) -> None:
    """List the profiles, without their tokens."""
    known = read_profiles()
    session.screen.listing(
        [
            {
                "name": name, "server": each.server, "namespace": each.namespace, "ca": each.ca,
                "keyring": each.keyring, "current": name == known.current,
            }
            for name, each in sorted(known.profiles.items())
        ],
        "No profiles. Make one: rota login --server URL",
        ("profile", "server", "namespace", "token", ""),
        (
            (name, each.server, each.namespace or "-", "keyring" if each.keyring else "file",
             "current" if name == known.current else "")
            for name, each in sorted(known.profiles.items())
        ),
        whole=["profile"],
    )  # fmt: skip


@command(group, "use")
def use(
    session: Session,
    name: Annotated[
        str, argument("NAME", "Name of the profile; none: use the database from now on.")
    ],
) -> None:
    """Set the profile that commands use unless they are told otherwise."""
    profiles = read_profiles()
    if name != "none":
        profiles.named(name)
    profiles.current = None if name == "none" else name
    write_profiles(profiles)
    session.screen.answer({"current": profiles.current}, f"commands use {name} now")


@command(group, "remove")
def remove(session: Session, name: _Name, yes: Yes = False) -> None:
    """Remove a profile and its token from this machine. The token stays valid until it is revoked."""
    profiles = read_profiles()
    removed = profiles.named(name)
    session.confirm(f"Remove profile {name} ({removed.server})?", yes)
    rest = {each: found for each, found in profiles.profiles.items() if each != name}
    current = None if profiles.current == name else profiles.current
    write_profiles(msgspec.structs.replace(profiles, profiles=rest, current=current))
    forget_token(name, removed)
    session.screen.answer({"removed": name}, f"removed {name}")
