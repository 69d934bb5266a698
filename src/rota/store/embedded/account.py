"""The account that runs the server's programs, and the folder of its socket.

PostgreSQL refuses to run as root. Other users run it themselves. For root a system user does, which must
reach the programs and the data folder although a parent of theirs may be closed to others, as /root is.
No folder's permissions are changed for that. Instead the programs get, only if they need it, one Linux
capability: to read and to search, or, where the programs were installed under a strict umask and only
root may execute them, to override.

Whoever can enter the socket's folder is the database's superuser. So it is for the server's user alone,
and is checked before it is trusted: in /tmp anybody may have made it first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import pwd
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rota.errors import EmbeddedPostgresError

SYSTEM_USER = "rota-postgres"
FALLBACK_USER = "nobody"
ADVICE = (
    "Set ROTA_DATA_DIR to a folder that can be used, "
    "or ROTA_DATABASE_URL to use a PostgreSQL of your own."
)

# What the server will do, in small: enter the data folder, and find its own program, which
# pg_config looks for in the same way. Some packages come without pg_config.
_REACHES = (
    'cd "$1" && if [ -x "$2/pg_config" ]; then "$2/pg_config" --bindir; else "$2/postgres" -V; fi'
)


# The whole path of a socket has at most 107 bytes on Linux and 103 on macOS.
_MAX_SOCKET_DIR_BYTES = 103 - len("/.s.PGSQL.65535")
# A comma separates hosts in a URL, and other signs would need quoting on the way to the server.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._+-]+")


@dataclass(frozen=True, slots=True)
class Account:
    uid: int
    gid: int
    capability: str | None = None

    def run(
        self,
        command: list[str],
        *,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run to the end, apart from our terminal, so that Ctrl-C doesn't reach the server."""
        switch = os.geteuid() != self.uid and self.capability is None
        return subprocess.run(  # noqa: S603 - our own programs, no shell
            [*self._prefix(), *command],
            cwd=cwd,
            env=env,
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            check=False,
            user=self.uid if switch else None,
            group=self.gid if switch else None,
            extra_groups=[] if switch else None,
        )

    def _prefix(self) -> list[str]:
        if self.capability is None:
            return []
        return [
            "setpriv",
            f"--reuid={self.uid}",
            f"--regid={self.gid}",
            "--clear-groups",
            f"--inh-caps=+{self.capability}",
            f"--ambient-caps=+{self.capability}",
            # Without this the kernel answers access(2), by which PostgreSQL checks its own
            # programs, as if the capability were not there.
            "--securebits=+no_setuid_fixup",
            "--",
        ]

    def reaches(self, bin_dir: Path, data_dir: Path) -> bool:
        check = ["/bin/sh", "-c", _REACHES, "sh", str(data_dir), str(bin_dir)]
        try:
            return self.run(check, cwd=Path("/")).returncode == 0
        except (OSError, subprocess.SubprocessError):
            return False  # no setpriv here, or this container may not switch users

    def give(self, path: Path) -> None:
        """Make it the server's, which as root is not the same as ours."""
        if os.geteuid() != self.uid:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def choose_account(bin_dir: Path, data_dir: Path, pgdata: Path) -> Account:
    """Return the account to run the server's programs with, after a check that it reaches them."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    entry = _owner(pgdata) or _system_user()
    for capability in (None, "dac_read_search", "dac_override"):  # from the least power on
        account = Account(entry.pw_uid, entry.pw_gid, capability)
        if account.reaches(bin_dir, data_dir):
            return account
    raise EmbeddedPostgresError(
        f"PostgreSQL refuses to run as root, and the user {entry.pw_name!r} that should run it "
        f"can't reach both {bin_dir} and {data_dir}. Start Rota as an ordinary user, install it "
        f"and keep its data where others may pass (not under /root). {ADVICE}"
    )


def _owner(pgdata: Path) -> pwd.struct_passwd | None:
    """Return the owner of the data, who is the only one that can serve it."""
    try:
        uid = pgdata.stat().st_uid
        return pwd.getpwuid(uid) if uid != 0 else None
    except (FileNotFoundError, KeyError):
        return None


def _system_user() -> pwd.struct_passwd:
    with suppress(KeyError):
        return pwd.getpwnam(SYSTEM_USER)
    _create_system_user()
    for name in (SYSTEM_USER, FALLBACK_USER):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise EmbeddedPostgresError(
        f"PostgreSQL refuses to run as root, and there is neither a user {SYSTEM_USER!r} nor "
        f"{FALLBACK_USER!r} to run it as. Make one (useradd --system {SYSTEM_USER}), start "
        "Rota as an ordinary user, or set ROTA_DATABASE_URL to use a PostgreSQL of your own."
    )


def _create_system_user() -> None:
    useradd = shutil.which("useradd") or shutil.which("useradd", path="/usr/sbin:/sbin")
    if useradd is None:
        return
    # Two data folders may both be first. useradd looks for the name before it takes its lock: two at
    # once would make the user twice, the second time with another number, and the first one's data
    # would belong to nobody.
    with _locked(Path("/etc")):
        with suppress(KeyError):
            pwd.getpwnam(SYSTEM_USER)
            return
        subprocess.run(  # noqa: S603 - a fixed command line
            [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock that other processes of Rota wait for."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def choose_socket_dir(data_dir: Path) -> Path:
    """Return a folder in the data folder if that makes a usable path, otherwise in /tmp."""
    beside_the_data = data_dir / "socket"
    if _PLAIN_PATH.fullmatch(text := str(beside_the_data)) and len(text) <= _MAX_SOCKET_DIR_BYTES:
        return beside_the_data
    # Not in XDG_RUNTIME_DIR: that vanishes at log-out, and the server outlives its owner.
    digest = hashlib.sha256(os.fsencode(data_dir)).hexdigest()[:16]
    return Path("/tmp") / f"rota-{os.getuid()}-{digest}"  # noqa: S108 - checked by make_private


def make_private(path: Path, account: Account) -> Path:
    """Make a folder that only the server's user can enter, or check that it is one."""
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        status = path.lstat()
        # Ours, not yet the account's: we were killed between making it and giving it away.
        is_trusted = status.st_uid in (account.uid, os.geteuid())
        if not stat.S_ISDIR(status.st_mode) or not is_trusted or status.st_mode & 0o077:
            raise EmbeddedPostgresError(
                f"{path}, where the socket of the embedded PostgreSQL belongs, is not a folder that "
                f"only its user can enter: somebody else may have made it. Remove it. {ADVICE}"
            ) from None
    account.give(path)
    return path
