"""The folder of the server's socket. Whoever can enter it is the database's superuser.

So it is for the server's user alone, and is looked at before it is trusted: in /tmp anybody may
have made it first.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from rota.errors import EmbeddedPostgresError
from rota.store.embedded.account import ADVICE, Account

# The whole path of a socket has at most 107 bytes on Linux and 103 on macOS.
_MAX_BYTES = 103 - len("/.s.PGSQL.65535")
# A comma separates hosts in a URL, and other signs would need quoting on the way to the server.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._+-]+")


def choose_socket_dir(data_dir: Path) -> Path:
    """In the data folder if that makes a usable path, otherwise in /tmp."""
    beside_the_data = data_dir / "socket"
    if _PLAIN_PATH.fullmatch(text := str(beside_the_data)) and len(text) <= _MAX_BYTES:
        return beside_the_data
    # Not in XDG_RUNTIME_DIR: that vanishes at log-out, and the server outlives its owner.
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return Path("/tmp") / f"rota-{os.getuid()}-{digest}"  # noqa: S108 - checked by make_private


def make_private(path: Path, account: Account) -> Path:
    """Make sure that it is a folder which only the server's user can enter."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        _refuse_unless_private(path, account)
    account.give(path)
    return path


def _refuse_unless_private(path: Path, account: Account) -> None:
    status = path.lstat()
    # Ours, not yet the account's: we were killed between making it and giving it away.
    is_trusted = account.owns(status) or status.st_uid == os.geteuid()
    if not stat.S_ISDIR(status.st_mode) or not is_trusted or status.st_mode & 0o077:
        raise EmbeddedPostgresError(
            f"{path}, where the socket of the embedded PostgreSQL belongs, is not a folder that "
            f"only its user can enter: somebody else may have made it. Remove it. {ADVICE}"
        )
