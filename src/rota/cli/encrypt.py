"""`rota encrypt`: what is stored, under the current key. `rota namespaces encrypt`: all from now on."""

from __future__ import annotations

import base64
from typing import Annotated

import typer

from rota.app import App
from rota.cli.access import change_of
from rota.cli.output import plain, table
from rota.cli.session import Session, command
from rota.config import check_name
from rota.errors import KeyMissing
from rota.lib.ids import new_nonce
from rota.store.reencryption import Reencryption, Rewritten

_KEY_BYTES = 32


def add_to(group: typer.Typer, namespaces: typer.Typer) -> None:
    command(group, "encrypt")(encrypt)
    command(namespaces, "encrypt")(encrypt_namespace)
    command(namespaces, "decrypt")(decrypt_namespace)


def encrypt(
    session: Session,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Rewrite what isn't under the current key.")
    ] = False,
    new_key: Annotated[
        str | None,
        typer.Option("--new-key", metavar="NAME", help="Print a new key of this name, and end."),
    ] = None,
) -> None:
    """How much of the namespace is encrypted, and with which key; or rewrite it with the current one."""
    screen = session.screen
    if new_key is not None:
        key = f"{new_key}:{base64.b64encode(new_nonce(_KEY_BYTES)).decode()}"
        screen.json({"key": key}) if screen.as_json else screen.say(key)
        return
    if rotate:
        done = session.run(_rotate(session.app))
        if screen.as_json:
            screen.json(done)
        else:
            screen.say(f"encrypted {done.encrypted:,} rows with the current key")
            if done.left:
                screen.note(f"{done.left:,} could not be opened: their key isn't here.")
        return
    counted = session.run(_count(session.app))
    if screen.as_json:
        screen.json([{"key": key, "values": count} for key, count in counted])
        return
    rows = table("key", "values", right=("values",))
    for name, count in counted:
        rows.add_row(plain(name) if name else "(not encrypted)", f"{count:,}")
    screen.show(rows)


async def _rotate(app: App) -> Rewritten:
    reencryption = Reencryption((await app.store()).database)
    # It is many transactions: what is recorded is that they were begun.
    async with change_of(app, "rotate", f"namespace {app.settings.namespace}"):
        pass
    return await reencryption.run()


async def _count(app: App) -> list[tuple[str | None, int]]:
    database = (await app.store()).database
    rows = await database.fetch("encrypted_values", app.settings.namespace)
    return [(row["key"], row["count"]) for row in rows]


Name = Annotated[str, typer.Argument(metavar="NAME")]


def encrypt_namespace(session: Session, name: Name) -> None:
    """Encrypt what is submitted to a namespace from now on. All that use it need the keys."""
    session.run(_set(session.app, check_name("namespace", name), True))
    if session.screen.as_json:
        session.screen.json({"namespace": name, "encrypted": True})
    else:
        session.screen.say(f"{name} is encrypted within five seconds")
        session.screen.note("`rota encrypt --rotate` encrypts what is stored there already.")


def decrypt_namespace(session: Session, name: Name) -> None:
    """Encrypt no more of what is submitted to a namespace. What is encrypted stays so."""
    session.run(_set(session.app, check_name("namespace", name), False))
    if session.screen.as_json:
        session.screen.json({"namespace": name, "encrypted": False})
    else:
        session.screen.say(f"what is submitted to {name} is not encrypted any more")


async def _set(app: App, name: str, encrypted: bool) -> None:
    database = (await app.store()).database
    if encrypted and database.encryption.ring is None:
        raise KeyMissing(
            "set ROTA_ENCRYPTION_KEYS here first, and wherever the namespace is used: what is encrypted "
            "can be read only with its key"
        )
    action, after = "encrypt" if encrypted else "decrypt", {"encrypted": encrypted}
    async with change_of(app, action, f"namespace {name}", namespace=name, after=after):
        await database.fetch("set_encrypted", name, encrypted)
