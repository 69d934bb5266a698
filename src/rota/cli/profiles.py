"""Profiles: the servers that commands can use, in a file that only its owner can read.

The file is TOML: `current`, and a table for each profile with its `server`, `token`, `namespace` and
`ca`. Where the package `keyring` finds a keyring of the system, the token is stored there instead.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import stat
import tomllib
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from rota.errors import ConfigError

_SERVICE = "rota"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class Profile(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A server, and how commands log in to it. `keyring`: the token is in the keyring of the system."""

    server: str
    token: str | None = None
    namespace: str | None = None
    ca: str | None = None  # a file of certificates to trust
    keyring: bool = False


class Profiles(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    current: str | None = None
    profiles: dict[str, Profile] = {}

    def named(self, name: str) -> Profile:
        if name not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise ConfigError(
                f"there is no profile {name!r}; there are: {known}. Make one: rota login --server URL "
                f"--profile {name}",
                field="profile",
            )
        return self.profiles[name]

    def of_server(self, url: str) -> str | None:
        """Return the name of a server's profile; the current one, if it has several."""
        wanted = clean_url(url)
        found = [name for name, each in self.profiles.items() if each.server == wanted]
        return self.current if self.current in found else next(iter(found), None)


def config_path() -> Path:
    if named := os.environ.get("ROTA_CONFIG"):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "rota" / "config.toml"


def read_profiles() -> Profiles:
    """Read the file. One that others can read is refused: it may hold tokens."""
    path = config_path()
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise ConfigError(
                    f"{path} can be read by others (its mode is {mode:04o}), and may hold tokens: run "
                    f"chmod 600 {path}, and revoke its tokens if somebody may have read them"
                )
            return msgspec.convert(tomllib.load(file), Profiles)
    except (FileNotFoundError, NotADirectoryError):
        return Profiles()
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from None


def write_profiles(profiles: Profiles) -> None:
    """Replace the file as a whole: a run that is cut off leaves the old one."""
    path = config_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with os.fdopen(
            os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
        ) as file:
            file.write(_to_toml(profiles))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _to_toml(profiles: Profiles) -> str:
    """Write TOML. All values are texts and booleans; JSON's texts are TOML's basic strings."""
    lines = ["# Servers of the command `rota`. It holds tokens: nobody else may read it."]
    if profiles.current is not None:
        lines.append(f"current = {_value(profiles.current)}")
    for name, profile in sorted(profiles.profiles.items()):
        lines.append(f"\n[profiles.{_value(name)}]")
        lines += [
            f"{field} = {_value(value)}" for field, value in msgspec.to_builtins(profile).items()
        ]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def clean_url(url: str) -> str:
    """Return the address of a server without what doesn't matter."""
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port of 99999
        fits = False
    if not fits:
        raise ConfigError(
            f"server: {url!r} is not an address; it begins with https:// or http://", field="server"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(
            "server: give only the address, without a password or query", field="server"
        )
    return url.rstrip("/").removesuffix("/v1")


def is_clear_text(url: str) -> bool:
    """Return whether a token that is sent there can be read on the way."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not _is_here(parts.hostname or "")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name, such as 127.0.0.1.example.org
        return False


def check_profile_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"profile {name!r} is not a usable name: use letters, digits, '_', '.' or '-'",
            field="profile",
        )
    return name


# -- tokens


def store_token(name: str, profile: Profile, token: str) -> Profile:
    """Return the profile with its token: in the keyring, where there is one."""
    ring = _keyring()
    if ring is not None:
        with contextlib.suppress(Exception):  # a keyring that is locked, or has no window to ask in
            ring.set_password(_SERVICE, name, token)
            return msgspec.structs.replace(profile, keyring=True, token=None)
    return msgspec.structs.replace(profile, keyring=False, token=token)


def token_of(name: str | None, profile: Profile) -> str | None:
    if not profile.keyring or name is None:
        return profile.token
    ring = _keyring()
    found = ring.get_password(_SERVICE, name) if ring is not None else None
    if found is None:
        raise ConfigError(
            f"the token of profile {name!r} is in a keyring that can't be read here: log in again with "
            f"rota login --server {profile.server} --profile {name}, or set ROTA_TOKEN"
        )
    return str(found)


def forget_token(name: str, profile: Profile) -> None:
    ring = _keyring() if profile.keyring else None
    if ring is not None:
        with contextlib.suppress(Exception):  # it was removed by hand
            ring.delete_password(_SERVICE, name)


def _keyring() -> Any:
    """Return the package `keyring`, if it is installed and has a backend that stores something."""
    try:
        ring = importlib.import_module("keyring")
    except ImportError:
        return None
    try:
        usable = ring.get_keyring().priority > 0
    except Exception:  # noqa: BLE001 - whatever a backend raises, there is none
        return None
    return ring if usable else None
