"""Checks of the addresses that users give for requests, which must not go into our own network.

Protocol. The name is resolved once. Every address that it resolves to must be a public one, or be
allowed (by the host's name, by address or by network); if one isn't, the URL is refused. The caller
connects to an address that was checked, never to the name, so that the answer to a second look-up
(rebinding) doesn't matter. Redirects are not followed.

However an address is written (decimal, octal, hexadecimal, mapped into IPv6), the address is checked
that the system's resolver makes of it, and every IPv4 address that an IPv6 address contains.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import msgspec

from rota.errors import RotaError

_PORTS = {"http": 80, "https": 443}
_LONGEST_URL = 2_000
# Addresses outside the public internet, by IANA's registries of special-purpose addresses. A list of our
# own: `is_global` of the standard library differs from one release of Python to the next.
_SPECIAL_IPV4 = [
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carriers' own; some clouds have their metadata there
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's inside, at a public-looking address
        "169.254.0.0/16",  # link-local; metadata of most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; metadata of some clouds
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
]
_PUBLIC_IPV6 = IPv6Network("2000::/3")  # all that was ever given out as public
_SPECIAL_IPV6 = [
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
]
# Ranges of IPv6 that carry an IPv4 address, and where in it that is.
_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_TRANSLATED = IPv6Network("::ffff:0:0:0/96")

Address = IPv4Address | IPv6Address


class ForbiddenAddress(RotaError):
    """Raised for an address to which users' requests may not go."""


class UnknownHost(ForbiddenAddress):
    """Raised when a name can't be resolved now."""


class Target(msgspec.Struct, frozen=True):
    """A checked URL: the address to connect to, and the parts of the request."""

    address: str  # checked: connect to this one
    port: int
    host: str  # for the Host header and the certificate
    path: str  # with its query
    secure: bool

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        default = _PORTS["https" if self.secure else "http"]
        return host if self.port == default else f"{host}:{self.port}"


async def check_url(url: str, allowed: Iterable[str] = ()) -> Target:
    """Return the target of a URL, or raise `ForbiddenAddress` if one of its addresses is refused.

    Args:
        url: of http or https.
        allowed: what is allowed besides public addresses: ``"hooks.internal"``,
            ``"hooks.internal:8443"``, ``"10.1.2.3"`` or ``"10.1.0.0/16"``.
    """
    target = parse_url(url)
    addresses = await _resolve(target.host, target.port)
    entries = list(allowed)
    if not _is_named(target, entries):
        for address in addresses:
            if not (is_public(address) or _is_in(address, entries)):
                raise ForbiddenAddress(
                    f"{target.host} is at {address}, which is not a public address. If requests may "
                    "go there, an administrator allows it: `rota webhooks allow`"
                )
    return msgspec.structs.replace(target, address=str(addresses[0]))


def parse_url(url: str) -> Target:
    """Return the parts of a URL, unresolved. Refuse what different parsers might read differently."""
    if len(url) > _LONGEST_URL:
        raise ForbiddenAddress(f"a URL of {len(url)} characters is too long")
    if any(character <= " " or character == "\\" or ord(character) > 126 for character in url):
        raise ForbiddenAddress("a URL holds no spaces, backslashes or special characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ForbiddenAddress(f"{url!r} is not a URL") from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ForbiddenAddress("a URL begins with http:// or https:// and names a host")
    if parts.username is not None or parts.password is not None:
        raise ForbiddenAddress("a URL with a name or a password in it is not used")
    if port == 0:
        raise ForbiddenAddress("there is no port 0")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    secure = parts.scheme == "https"
    return Target("", port or _PORTS[parts.scheme], parts.hostname.rstrip("."), path, secure)


async def _resolve(host: str, port: int) -> Sequence[Address]:
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UnknownHost(f"there is no host {host!r}") from None
    # An IPv6 address may come with its zone, fe80::1%eth0.
    return [ip_address(entry[4][0].partition("%")[0]) for entry in found]  # type: ignore[union-attr]


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_IPV4)
    carried = _carried(address)
    if any(not is_public(inner) for inner in carried):
        return False
    if address.ipv4_mapped is not None or address in _NAT64[0]:
        return True  # it is the address that was checked just now
    return address in _PUBLIC_IPV6 and not any(address in network for network in _SPECIAL_IPV6)


def _carried(address: IPv6Address) -> list[IPv4Address]:
    carried = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in (*_NAT64, _TRANSLATED)):
        carried.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return [inner for inner in carried if inner is not None]


def _is_named(target: Target, entries: list[str]) -> bool:
    names = {target.host.lower(), f"{target.host.lower()}:{target.port}"}
    return any(entry.lower() in names for entry in entries)


def _is_in(address: Address, entries: list[str]) -> bool:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    for entry in entries:
        with suppress(ValueError):  # of a name
            if address in ip_network(entry, strict=False):
                return True
    return False
