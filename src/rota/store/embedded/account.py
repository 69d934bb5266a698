"""Who runs the server's programs.

PostgreSQL refuses to run as root. For everybody else the answer is "we do". For root it is a system
user, which must reach the programs and the data folder although a parent of theirs may be closed to
others, as /root is. Nobody's folders are opened up for that. Instead the programs get, only when
they need it, one Linux capability that lets them pass: to read and to search, or, where the
programs were installed under a strict umask and only root may execute them, to override.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator, Mapping
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

    def owns(self, status: os.stat_result) -> bool:
        return status.st_uid == self.uid

    def give(self, path: Path) -> None:
        """Make it the server's, which as root is not the same as ours."""
        if os.geteuid() != self.uid:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def choose_account(bin_dir: Path, data_dir: Path, pgdata: Path) -> Account:
    """The account to run the server's programs with, proven to reach them and the data folder."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    entry = _owner(pgdata) or _system_user()
    for account in _ways_to_be(entry):
        if account.reaches(bin_dir, data_dir):
            return account
    raise EmbeddedPostgresError(
        f"PostgreSQL refuses to run as root, and the user {entry.pw_name!r} that should run it "
        f"can't reach both {bin_dir} and {data_dir}. Start Rota as an ordinary user, install it "
        f"and keep its data where others may pass (not under /root). {ADVICE}"
    )


def _ways_to_be(entry: pwd.struct_passwd) -> Iterator[Account]:
    """From the least power to the most."""
    for capability in (None, "dac_read_search", "dac_override"):
        yield Account(entry.pw_uid, entry.pw_gid, capability)


def _owner(pgdata: Path) -> pwd.struct_passwd | None:
    """Whose data it is, who is also the only one that can serve it."""
    try:
        uid = pgdata.stat().st_uid
        return pwd.getpwuid(uid) if uid != 0 else None
    except (FileNotFoundError, KeyError):
        return None


def _system_user() -> pwd.struct_passwd:
    for create_first in (False, True):
        if create_first:
            _create_system_user()
        try:
            return pwd.getpwnam(SYSTEM_USER)
        except KeyError:
            continue
    try:
        return pwd.getpwnam(FALLBACK_USER)
    except KeyError:
        raise EmbeddedPostgresError(
            f"PostgreSQL refuses to run as root, and there is neither a user {SYSTEM_USER!r} nor "
            f"{FALLBACK_USER!r} to run it as. Make one (useradd --system {SYSTEM_USER}), start "
            "Rota as an ordinary user, or set ROTA_DATABASE_URL to use a PostgreSQL of your own."
        ) from None


def _create_system_user() -> None:
    useradd = shutil.which("useradd") or shutil.which("useradd", path="/usr/sbin:/sbin")
    if useradd is None:
        return
    # Two data folders may both be first: then one of them fails here, and finds the user.
    subprocess.run(  # noqa: S603 - a fixed command line
        [useradd, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
