"""Encryption of values, bound to the job and field that they belong to.

Values are encrypted with AES-256-GCM under a key per job or schedule, derived (HMAC-SHA-256) from a key
of the keyring by namespace and id, so that no two jobs share a key and a nonce. Namespace, id and field
(for a payload also the task) are associated data: a value that is moved to another job, field or task is
refused, and so is one of which a single bit was changed.

An encrypted value is recognised by the first characters of its text, so that namespaces without
encryption pay next to nothing:

    {"$rota-encrypted":"1.KEY.j.BASE64"}    a payload or a result, of a job
    {"$rota-encrypted":"1.KEY.sID.BASE64"}  a payload of a schedule, which all of its jobs carry
    $rota-encrypted:1.KEY.j.BASE64          the text of an error, or a line of a log

A forged or copied value can't be decrypted, and ends its own job with an error. Nor is a user's value
taken for an encrypted one by accident: a payload that begins like this is refused when it is submitted,
a result is written with a space before it, and PostgreSQL's jsonb prints a space after the colon.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.errors import ConfigError, KeyMissing, NotAuthentic
from rota.lib.ids import new_nonce

ENVELOPE = '{"$rota-encrypted":"'
ENVELOPE_BYTES = ENVELOPE.encode()
TEXT = "$rota-encrypted:"

_decoder = msgspec.json.Decoder(float_hook=lambda text: f"\0{text}")
_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_NONCE = 12
_MARK = "1"


def _joined(*parts: str) -> bytes:
    return "\0".join(("rota", _MARK, *parts)).encode()


class Encryptor(msgspec.Struct, frozen=True):
    """Encrypts values of one job, schedule or `once` effect (kind j, s or e), with a key of its own."""

    namespace: str
    kind: str
    id: UUID
    key: str
    secret: bytes

    def token(self, field: str, plain: bytes, task: str = "") -> str:
        bound_to = _joined(self.namespace, self.kind, self.id.hex, field, task)
        nonce = new_nonce(_NONCE)
        hidden = cipher(self.secret).encrypt(nonce, plain, bound_to)
        whose = f"s{self.id.hex}" if self.kind == "s" else self.kind
        text = binascii.b2a_base64(nonce + hidden, newline=False).decode()
        return f"{_MARK}.{self.key}.{whose}.{text}"

    def json(self, field: str, plain: bytes, task: str = "") -> str:
        """Return an encrypted JSON value."""
        return f'{ENVELOPE}{self.token(field, plain, task)}"}}'

    def text(self, field: str, plain: str) -> str:
        return TEXT + self.token(field, plain.encode("utf-8", "replace"))


class Keyring:
    """The keys of a process. The first one encrypts, all of them decrypt."""

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        self._keys = dict(keys)
        self.current = keys[0][0]
        if len(self._keys) != len(keys):
            raise ConfigError("encryption_keys: two keys have the same name")
        cipher(keys[0][1])  # raises if the package is missing

    def __repr__(self) -> str:
        return f"<Keyring {', '.join(self._keys)}>"

    @property
    def names(self) -> list[str]:
        return list(self._keys)

    def encryptor(self, namespace: str, kind: str, id: UUID) -> Encryptor:
        secret = self._derived(self.current, namespace, kind, id)
        return Encryptor(namespace, kind, id, self.current, secret)

    def _derived(self, key: str, namespace: str, kind: str, id: UUID) -> bytes:
        return hmac.digest(self._keys[key], _joined("key", namespace, kind, id.hex), "sha256")

    def open(self, token: str, namespace: str, id: UUID, field: str, task: str = "") -> bytes:
        """Decrypt a token of that job or schedule, or of a job of that schedule."""
        key, kind, subject, hidden = _parse(token, id)
        if key not in self._keys:
            raise KeyMissing(
                f"{field} of {id} is encrypted with the key {key!r}, which is not here: this process "
                f"has {', '.join(self._keys)}. Add it to encryption_keys"
            )
        bound_to = _joined(namespace, kind, subject.hex, field, task)
        secret = self._derived(key, namespace, kind, subject)
        try:
            plain: bytes = cipher(secret).decrypt(hidden[:_NONCE], hidden[_NONCE:], bound_to)
        except Exception:  # noqa: BLE001 - cryptography's InvalidTag, or what is too short to be one
            raise NotAuthentic(
                f"{field} of {id} was not encrypted for it with the key {key!r}: it was changed, or "
                "belongs elsewhere"
            ) from None
        return plain

    def fingerprints(self, namespace: str, task: str, payload: bytes) -> list[str]:
        """Return the fingerprint of a payload under each key, the current key first.

        Equal content has equal fingerprints, which reveal nothing without a key.
        """
        # The same bytes for the same content, whatever the order of its names.
        content = msgspec.json.encode(_decoder.decode(payload), order="sorted")
        text = b"\0".join((namespace.encode(), task.encode(), content))
        prints = {}
        for key, secret in self._keys.items():
            own = hmac.digest(secret, b"rota fingerprint", "sha256")
            prints[key] = hmac.digest(own, text, "sha256").hex()
        return [f"{key}.{digest}" for key, digest in prints.items()]


def is_encrypted(text: str) -> bool:
    return text.startswith((ENVELOPE, TEXT))


def mark_unencrypted(result: bytes) -> bytes:
    """Put a space before a result that looks encrypted and isn't, so that it isn't taken for that."""
    return b" " + result if result.startswith(ENVELOPE_BYTES) else result


def key_of(text: str) -> str | None:
    """Return the name of the key that a value is encrypted with, or None if it isn't encrypted."""
    parts = token_of(text).split(".", 2) if is_encrypted(text) else ()
    return parts[1] if len(parts) == 3 else None


def token_of(envelope: str) -> str:
    """Return the token in an encrypted value, of JSON or of text."""
    if envelope.startswith(TEXT):
        return envelope[len(TEXT) :]
    return envelope[len(ENVELOPE) : -2]


def _parse(token: str, id: UUID) -> tuple[str, str, UUID, bytes]:
    try:
        mark, key, whose, text = token.split(".")
        if mark != _MARK:
            raise NotAuthentic(f"a value of {id} was encrypted by a later version of Rota")
        subject = UUID(whose[1:]) if whose.startswith("s") else id
        if whose not in ("j", "e") and not whose.startswith("s"):
            raise ValueError(whose)
        return key, whose[0], subject, binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise NotAuthentic(f"a value of {id} looks encrypted, and is not: it was made up") from None


def cipher(secret: bytes) -> Any:
    """Return AES-256-GCM with this key."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise ConfigError(
            "encryption needs the package cryptography: pip install 'rota[encryption]'"
        ) from None
    return AESGCM(secret)


def keyring_of(settings: Settings) -> Keyring | None:
    """Return the keys of the settings, or None if they have none."""
    path, text = settings.encryption_keys_file, settings.encryption_keys
    if path is not None:
        try:
            return _from_text(path.read_text("utf-8"))
        except OSError as error:
            raise ConfigError(f"encryption_keys_file {path}: {error.strerror}") from None
    return _from_text(text) if text else None


@lru_cache(16)
def _from_text(text: str) -> Keyring:
    """Read keys, ``name:base64``, with commas or white space between; # begins a comment."""
    lines = [line.partition("#")[0] for line in text.splitlines()]
    keys = [_key(part) for part in re.split(r"[\s,]+", "\n".join(lines)) if part]
    if not keys:
        raise ConfigError("encryption_keys: there is no key in it")
    return Keyring(keys)


def _key(part: str) -> tuple[str, bytes]:
    """Read one key. Errors never quote it."""
    name, colon, text = part.partition(":")
    if not colon or not _KEY_ID.fullmatch(name):
        raise ConfigError(
            "encryption_keys: a key is NAME:BASE64, with a name of 1 to 32 letters, digits, '_' or '-'"
        )
    try:
        secret = binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
    except binascii.Error:
        raise ConfigError(f"encryption_keys: the key {name!r} is no base64") from None
    if len(secret) != hashlib.sha256().digest_size:
        raise ConfigError(
            f"encryption_keys: the key {name!r} has {len(secret)} bytes, and must have 32: "
            "`rota encrypt --new-key` makes one"
        )
    return name, secret
