"""Tell whether this installation of Rota is whole."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

from rota.errors import ConfigError


@cache
def installed_version() -> str:
    """Return the version of the package that is installed: the whole, or the client alone."""
    for name in ("rota", "rota-client"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "unknown"


@cache
def check_installation() -> None:
    """Refuse to run on the files of two versions: rota and rota-client own the same ones."""
    try:
        client, whole = version("rota-client"), version("rota")
    except PackageNotFoundError:
        return
    if client != whole:
        raise ConfigError(
            f"rota {whole} and rota-client {client} are installed together, and have overwritten each "
            "other's files: `pip uninstall rota-client`, then `pip install --force-reinstall --no-deps "
            f"rota=={whole}`. rota has the client, too"
        )
