"""`rota encrypt`: what is stored under which key, and re-encryption with the current one."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.output import plain, table
from rota.cli.session import Session
from rota.operations.encryption import new_key as make_key


def encrypt(
    session: Session,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Re-encrypt what isn't under the current key.")
    ] = False,
    new_key: Annotated[
        str | None,
        typer.Option("--new-key", metavar="NAME", help="Print a new key of this name, and exit."),
    ] = None,
) -> None:
    """Count the stored values by encryption key, or re-encrypt them with the current one."""
    screen = session.screen
    if new_key is not None:
        key = make_key(new_key)
        screen.answer({"key": key}, key)
        return
    encryption = session.app.rota.encryption
    if rotate:
        done = session.run(encryption.rotate())
        screen.answer(done, f"encrypted {done.encrypted:,} rows with the current key")
        if done.left:
            screen.note(f"{done.left:,} could not be decrypted: their key is not configured here.")
        return
    counted = session.run(encryption.count())
    if screen.structured:
        screen.document(counted)
        return
    rows = table("key", "values", right=("values",))
    for each in counted:
        rows.add_row(plain(each.key) if each.key else "(not encrypted)", f"{each.values:,}")
    screen.show(rows)
