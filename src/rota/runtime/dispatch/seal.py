"""Messages between relays and workers: encrypted, and bound to whose they are.

    1 byte    1, the version
    16 bytes  the worker's id
    12 bytes  a nonce, random
    rest      AES-256-GCM of the JSON text, with its tag of 16 bytes at the end

The key is HMAC-SHA-256 under the shared secret of "rota dispatch 1", the namespace, the direction
(`call` or `answer`) and the worker's id as 32 hexadecimal digits, with a NUL between any two. The
first 17 bytes are the associated data. So a message that was changed by a bit, that was sent in the
other direction, or that is another worker's or another namespace's is refused. What is not prevented is
that a broker delivers a message twice, late, or never: the calls themselves are made for that.
"""

from __future__ import annotations

import hmac
from functools import lru_cache
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec

from rota.errors import ConfigError
from rota.lib.ids import new_nonce

Direction = Literal["call", "answer"]

_VERSION = b"\1"
_HEAD = 17
_NONCE = 12
_TAG = 16
_LEAST_SECRET = 32
_MOST_SECRETS = 4
_MOST_WORKERS = 10_000


class Call(msgspec.Struct):
    """A call of a worker. `id` tells its calls apart; the answer has the same."""

    id: int
    call: str
    body: msgspec.Raw = msgspec.Raw(b"null")


class Answer(msgspec.Struct):
    """`status`: as in HTTP: 200, or the status of the problem that is `body`."""

    id: int
    status: int
    body: msgspec.Raw


class Opened(NamedTuple):
    """A message that is authentic. `secret`: the number of the secret that it was sealed with."""

    worker: UUID
    text: bytes
    secret: int


class Sealer:
    """Seals and opens messages of one namespace.

    Several secrets, with commas between them: the first seals, each opens. So a secret is exchanged
    without a break: relays are given both first, then workers the new one, then relays drop the old.
    """

    def __init__(self, secrets: str | None, namespace: str) -> None:
        given = [secret.strip().encode() for secret in (secrets or "").split(",") if secret.strip()]
        if not given:
            raise ConfigError(
                "dispatch_secret: relays and workers need a secret that they share: make one with "
                "`openssl rand -hex 32`, and set ROTA_DISPATCH_SECRET",
                field="dispatch_secret",
            )
        if any(len(secret) < _LEAST_SECRET for secret in given):
            raise ConfigError(
                f"dispatch_secret must have at least {_LEAST_SECRET} characters: make one with "
                "`openssl rand -hex 32`",
                field="dispatch_secret",
            )
        if len(given) > _MOST_SECRETS:
            raise ConfigError(
                f"dispatch_secret: {_MOST_SECRETS} secrets at most", field="dispatch_secret"
            )
        self._secrets = given
        self._namespace = namespace
        self._cipher = lru_cache(_MOST_WORKERS)(self._make_cipher)
        self._cipher(UUID(int=0), "call", 0)  # raises if the package is missing

    def seal(self, worker: UUID, direction: Direction, text: bytes, secret: int = 0) -> bytes:
        head, nonce = _VERSION + worker.bytes, new_nonce(_NONCE)
        hidden: bytes = self._cipher(worker, direction, secret).encrypt(nonce, text, head)
        return head + nonce + hidden

    def open(self, message: bytes, direction: Direction) -> Opened | None:
        """Return what a message says; None if it isn't authentic."""
        if len(message) < _HEAD + _NONCE + _TAG or message[:1] != _VERSION:
            return None
        head, nonce, hidden = message[:_HEAD], message[_HEAD:][:_NONCE], message[_HEAD + _NONCE :]
        worker = UUID(bytes=head[1:])
        for number in range(len(self._secrets)):
            try:
                text = self._cipher(worker, direction, number).decrypt(nonce, hidden, head)
            except Exception:  # noqa: BLE001, S112 - cryptography's InvalidTag
                continue
            return Opened(worker, text, number)
        return None

    def _make_cipher(self, worker: UUID, direction: Direction, secret: int) -> Any:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise ConfigError(
                "dispatch by a broker needs the package cryptography: pip install 'rota[encryption]'"
            ) from None
        parts = ("rota dispatch 1", self._namespace, direction, worker.hex)
        return AESGCM(hmac.digest(self._secrets[secret], "\0".join(parts).encode(), "sha256"))
