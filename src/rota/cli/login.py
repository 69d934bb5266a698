"""`rota login`: a link for the browser. `rota people`: who else may log in."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rota.app import App
from rota.cli.access import change_of, identity_store
from rota.cli.output import plain, table
from rota.cli.session import Session, callback, command
from rota.config import Settings, check_name
from rota.core.durations import format_duration
from rota.errors import ConfigError, NotFound
from rota.lib.ids import new_id
from rota.server.identity.links import create_link, link_url
from rota.server.identity.principal import ANYWHERE
from rota.server.policy import Role
from rota.store.identity import PersonInfo

people = typer.Typer(help="Who may log in to the dashboard, by password or OpenID Connect.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="An e-mail address, or a short name.")]
PersonRole = Annotated[str, typer.Option("--role", help="viewer, operator or admin.")]
Everywhere = Annotated[
    bool, typer.Option("--everywhere", help="In all namespaces, not only in this one.")
]


def add_to(group: typer.Typer) -> None:
    command(group, "login")(login)
    group.add_typer(people, name="people")


def login(
    session: Session,
    person: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="As this person; else as nobody in particular."),
    ] = None,
    role: Annotated[str, typer.Option(help="viewer, operator or admin; without --as.")] = "admin",
    only_here: Annotated[
        bool, typer.Option("--only-here", help="In this namespace alone; without --as.")
    ] = False,
    url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where the server is. [default: from the settings]"),
    ] = None,
) -> None:
    """Print a link that logs a browser in: once, and soon."""
    app = session.app
    namespace = app.settings.namespace if only_here else ANYWHERE
    link = session.run(make_link(app, url or server_url(app.settings), person, namespace, role))
    minutes = app.settings.link_minutes
    if session.screen.as_json:
        session.screen.json({"url": link, "minutes": minutes})
        return
    session.screen.say(link)
    session.screen.note(f"Good once, for {format_duration(minutes * 60)}.")


def server_url(settings: Settings) -> str:
    """Where the settings say that the server is."""
    if settings.public_url:
        return settings.public_url.rstrip("/")
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{'https' if settings.tls_cert else 'http'}://{host}:{settings.port}"


async def make_link(
    app: App, base: str, person: str | None = None, namespace: str = ANYWHERE, role: str = "admin"
) -> str:
    if person is None and Role.parse(role) is Role.WORKER:
        raise ConfigError("workers don't log in: `rota tokens create NAME --role worker`")
    whom = f"person {person}" if person else f"{role} of {namespace}"
    async with change_of(app, "link", whom, namespace=namespace):
        secret = await create_link(
            await identity_store(app), seconds=app.settings.link_minutes * 60, person=person,
            namespace=namespace, role=role,
        )  # fmt: skip
    return link_url(base, secret)


# -- people


@callback(people)
def list_users(session: Session) -> None:
    """Who may log in, and their roles by namespace."""
    found = session.run(_list(session.app))
    screen = session.screen
    if screen.as_json:
        screen.json(found)
        return
    if not found:
        screen.note("Nobody yet: `rota people add NAME --role operator` adds somebody.")
        return
    rows = table("name", "roles", "password", "provider")
    for person in found:
        roles = ", ".join(f"{role} of {name}" for name, role in person.memberships.items())
        rows.add_row(plain(person.name), roles, "yes" if person.has_password else "no",
                     plain(person.issuer or "-"))  # fmt: skip
    screen.show(rows)


async def _list(app: App) -> list[PersonInfo]:
    return await (await identity_store(app)).list_users(None)


@command(people, "add")
def add(
    session: Session,
    name: Name,
    role: PersonRole = "viewer",
    password: Annotated[
        bool, typer.Option("--password", help="Ask for one; from a pipe, its first line.")
    ] = False,
    everywhere: Everywhere = False,
) -> None:
    """Add a person, or give one another role or password."""
    given = _ask_password() if password else None
    session.run(_add(session.app, name, role, given, everywhere))
    if session.screen.as_json:
        session.screen.json({"name": name, "role": role, "password": password})
    else:
        session.screen.say(f"{plain(name)} is {role} now")


def _ask_password() -> str:
    if sys.stdin.isatty():
        asked: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        return asked
    return sys.stdin.readline().rstrip("\n")


async def _add(app: App, name: str, role: str, password: str | None, everywhere: bool) -> None:
    from rota.server.identity.passwords import hash_password  # slow to import

    if not 1 <= len(name) <= 200 or not name.isprintable():
        raise ConfigError("a person's name is 1 to 200 printable characters long")
    if Role.parse(role) is Role.WORKER:
        raise ConfigError("people are viewer, operator or admin; workers have tokens")
    namespace = ANYWHERE if everywhere else check_name("namespace", app.settings.namespace)
    hashed = hash_password(password) if password is not None else None
    store = await identity_store(app)
    after = {"role": role, "namespace": namespace, "password": password is not None}
    async with change_of(app, "add", f"person {name}", namespace=namespace, after=after):
        person = await store.put_person(new_id(), name, hashed)
        await store.put_membership(person, namespace, role)


@command(people, "remove")
def remove(session: Session, name: Name) -> None:
    """Take a person and their sessions away."""
    session.run(_remove(session.app, name))
    if session.screen.as_json:
        session.screen.json({"name": name, "removed": True})
    else:
        session.screen.say(f"removed {plain(name)}")


async def _remove(app: App, name: str) -> None:
    async with change_of(app, "remove", f"person {name}"):
        if not await (await identity_store(app)).remove_person(name):
            raise NotFound(f"there is no person {name!r}; `rota people` lists them")
