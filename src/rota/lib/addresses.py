"""Addresses of the parts that an installation plugs in: coordinators and brokers.

    etcd+tls://user:password@one:2379,two:2379/prefix?ca=/etc/ssl/etcd.pem

A scheme, `+tls` for an encrypted line, credentials, hosts with commas, a path, and options.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode

import msgspec

from rota.errors import ConfigError

_SHAPE = re.compile(
    r"(?P<scheme>[a-z][a-z0-9]*)(?P<tls>\+tls)?://"
    r"(?:(?P<user>[^:@/?]*)(?::(?P<password>[^@/?]*))?@)?"
    r"(?P<hosts>[^@/?]*)(?:/(?P<path>[^?]*))?(?:\?(?P<options>.*))?"
)
_HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::(?P<port>[0-9]{1,5}))?")
_TLS_OPTIONS = ("ca", "cert", "key")
_SASL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a service, with its credentials. `hosts` are `name:port`."""

    scheme: str
    tls: bool = False
    user: str = ""
    password: str = ""
    hosts: tuple[str, ...] = ()
    path: str = ""
    options: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    @property
    def shown(self) -> str:
        """The address without credentials and options, for people to read."""
        if not self.hosts:
            return f"{self.scheme}:"
        path = f"/{self.path}" if self.path else ""
        return f"{self.scheme}{'+tls' if self.tls else ''}://{','.join(self.hosts)}{path}"

    def told_apart_by(self, **usual: str) -> str:
        """Return the address as it is shown, with those of its options that say what is at it, such as
        the number of a database. `usual`: their names and defaults.
        """
        said = {name: self.options.get(name, default) for name, default in usual.items()}
        told = {name: value for name, value in said.items() if value != usual[name]}
        return self.shown + (f"?{urlencode(told)}" if told else "")

    def ssl_context(self, field: str) -> ssl.SSLContext | None:
        """Return what encrypts the line; None: nothing does."""
        if not self.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.options.get("ca"))
            if "cert" in self.options:
                context.load_cert_chain(self.options["cert"], self.options.get("key"))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"{field}: the certificates can't be read: {error}") from None
        return context


def parse_address(
    field: str, text: str, ports: Mapping[str, int], options: Mapping[str, str] | None = None
) -> Address:
    """Read an address. `ports`: the schemes that are known, with their usual ports.

    `options`: those that are known besides the ones of TLS, with what they are.
    """
    known = ", ".join(f"{scheme}://" for scheme in ports)
    found = _SHAPE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(
            f"{field} is not an address: write scheme://host:port,host:port ({known})", field=field
        )
    scheme = found["scheme"]
    if scheme not in ports:
        raise ConfigError(f"{field}: unknown scheme {scheme!r}; known: {known}", field=field)
    return Address(
        scheme=scheme,
        tls=found["tls"] is not None,
        user=unquote(found["user"] or ""),
        password=unquote(found["password"] or ""),
        hosts=_read_hosts(field, found["hosts"], ports[scheme]),
        path=unquote(found["path"] or "").strip("/"),
        options=_read_options(
            field, found["options"] or "", found["tls"] is not None, options or {}
        ),
    )


def check_sasl(field: str, address: Address) -> None:
    """Check the option `sasl`, by which Kafka is told the password."""
    if (sasl := address.options.get("sasl", "PLAIN")) not in _SASL:
        raise ConfigError(
            f"{field}: sasl must be one of {', '.join(_SASL)}, not {sasl!r}", field=field
        )


def _read_hosts(field: str, text: str, port: int) -> tuple[str, ...]:
    hosts = []
    for part in text.split(","):
        found = _HOST.fullmatch(part.strip())
        if found is None or not 0 < int(found["port"] or port) < 65_536:
            raise ConfigError(f"{field}: {part.strip()!r} is not a host or host:port", field=field)
        hosts.append(f"{found['name']}:{found['port'] or port}")
    return tuple(hosts)


def _read_options(field: str, text: str, tls: bool, known: Mapping[str, str]) -> Mapping[str, str]:
    options = dict(parse_qsl(text, keep_blank_values=True))
    allowed = {**known, **dict.fromkeys(_TLS_OPTIONS, "a file")}
    for name, value in options.items():
        if name not in allowed:
            raise ConfigError(
                f"{field}: unknown option {name!r}; known: {', '.join(sorted(allowed))}",
                field=field,
            )
        if name in _TLS_OPTIONS and not tls:
            raise ConfigError(f"{field}: the option {name!r} needs +tls in the scheme", field=field)
        if name in _TLS_OPTIONS and not Path(value).is_file():
            raise ConfigError(f"{field}: the option {name!r} names no file: {value!r}", field=field)
    if "key" in options and "cert" not in options:
        raise ConfigError(f"{field}: the option 'key' needs the option 'cert'", field=field)
    return options
