"""`rota encrypt`: the number of stored values by key, and re-encryption with the current key."""

from __future__ import annotations

from typing import Annotated

from rota.cli.options import option
from rota.cli.session import Session
from rota.operations.encryption import new_key as make_key


def encrypt(
    session: Session,
    rotate: Annotated[bool, option("Re-encrypt what isn't under the current key.")] = False,
    new_key: Annotated[
        str | None, option("Print a new key of this name, and exit.", metavar="NAME")
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
    screen.listing(
        counted, "Nothing is stored.", ("key", "values"),
        ((each.key or "(not encrypted)", f"{each.values:,}") for each in counted), right=["values"],
    )  # fmt: skip
