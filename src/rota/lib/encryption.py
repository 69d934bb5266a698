"""Encryption: values that only those with a key can read, bound to where they belong. No I/O.

Values are encrypted with AES-256-GCM under a key per job or schedule, derived (HMAC-SHA-256) from a key
of the keyring by namespace and id, so that no two jobs share a key and a nonce. Namespace, id and field
(for a payload also the task) are associated data: a value that is moved to another job, field or task is
refused, and so is one of which a single bit was changed.

An encrypted value is recognised by the first characters of its text, so that namespaces without
encryption pay next to nothing:

    {"$rota-encrypted":"1.KEY.j.BASE64"}    a payload or a result, of a job
    {"$rota-encrypted":"1.KEY.sID.BASE64"}  a payload of a schedule, which all of its jobs carry
    $rota-encrypted:1.KEY.j.BASE64          the text of an error, or a line of a log

Nobody can forge one: an envelope that was made up or copied can't be opened, and ends its own job with
an error. Nor can a value of a user's be taken for one by accident: a payload that begins like this is
refused when it is submitted, a result is written with a space before it, and what PostgreSQL's jsonb
prints has a space behind the colon.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from rota.config import Settings
from rota.errors import ConfigError, KeyMissing, NotAuthentic
from rota.lib.ids import new_nonce

ENVELOPE = '{"$rota-encrypted":"'
ENVELOPE_BYTES = ENVELOPE.encode()
TEXT = "$rota-encrypted:"

_KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,32}")
_NONCE = 12
_MARK = "1"


class Place(NamedTuple):
    """The job, schedule or `once` effect that an encrypted value belongs to. `kind`: j, s or e."""

    namespace: str
    kind: str
    id: UUID
    field: str
    task: str = ""

    def associated(self) -> bytes:
        named = (self.namespace, self.kind, self.id.hex, self.field, self.task)
        return "\0".join(("rota", _MARK, *named)).encode()


class Encryptor(msgspec.Struct, frozen=True):
    """What encrypts for one job or schedule. It holds that one's own key, and none of the ring's."""

    namespace: str
    kind: str
    id: UUID
    key: str
    secret: bytes

    def token(self, field: str, plain: bytes, task: str = "") -> str:
        place = Place(self.namespace, self.kind, self.id, field, task)
        nonce = new_nonce(_NONCE)
        hidden = _aes(self.secret).encrypt(nonce, plain, place.associated())
        whose = f"s{self.id.hex}" if self.kind == "s" else self.kind
        text = binascii.b2a_base64(nonce + hidden, newline=False).decode()
        return f"{_MARK}.{self.key}.{whose}.{text}"

    def json(self, field: str, plain: bytes, task: str = "") -> str:
        """A JSON value in an envelope."""
        return f'{ENVELOPE}{self.token(field, plain, task)}"}}'

    def text(self, field: str, plain: str) -> str:
        return TEXT + self.token(field, plain.encode("utf-8", "replace"))


class Keyring:
    """The keys that a process has. The first one encrypts, all of them open."""

    def __init__(self, keys: Sequence[tuple[str, bytes]]) -> None:
        self._keys = dict(keys)
        self.current = keys[0][0]
        if len(self._keys) != len(keys):
            raise ConfigError("encryption_keys: two keys have the same name")
        _aes(keys[0][1])  # or it says what is missing

    def __repr__(self) -> str:
        return f"<Keyring {', '.join(self._keys)}>"

    @property
    def names(self) -> list[str]:
        return list(self._keys)

    def encryptor(self, namespace: str, kind: str, id: UUID) -> Encryptor:
        secret = self._derived(self.current, namespace, kind, id)
        return Encryptor(namespace, kind, id, self.current, secret)

    def _derived(self, key: str, namespace: str, kind: str, id: UUID) -> bytes:
        told = "\0".join(("rota", _MARK, "key", namespace, kind, id.hex)).encode()
        return hmac.digest(self._keys[key], told, "sha256")

    def open(self, token: str, namespace: str, id: UUID, field: str, task: str = "") -> bytes:
        """What a token of that job (or schedule, or of a job of that schedule) holds."""
        key, kind, subject, hidden = _parse(token, id)
        if key not in self._keys:
            raise KeyMissing(
                f"{field} of {id} is encrypted with the key {key!r}, which is not here: this process "
                f"has {', '.join(self._keys)}. Add it to encryption_keys"
            )
        place = Place(namespace, kind, subject, field, task)
        cipher = _aes(self._derived(key, namespace, kind, subject))
        try:
            plain: bytes = cipher.decrypt(hidden[:_NONCE], hidden[_NONCE:], place.associated())
        except Exception:  # noqa: BLE001 - cryptography's InvalidTag, or what is too short to be one
            raise NotAuthentic(
                f"{field} of {id} was not encrypted for it with the key {key!r}: it was changed, or "
                "belongs elsewhere"
            ) from None
        return plain

    def fingerprints(self, namespace: str, task: str, payload: bytes) -> list[str]:
        """Of a payload under each key, the current first: equal for equal content, and telling
        nothing to those without a key."""
        told = b"\0".join((namespace.encode(), task.encode(), _canonical(payload)))
        return [f"{key}.{_fingerprint(secret, told)}" for key, secret in self._keys.items()]


def _fingerprint(secret: bytes, told: bytes) -> str:
    own = hmac.digest(secret, b"rota fingerprint", "sha256")
    return hmac.digest(own, told, "sha256").hex()


def key_of(text: str) -> str | None:
    """The name of the key that a value is encrypted with; None: it isn't."""
    for prefix in (ENVELOPE, TEXT):
        if text.startswith(prefix):
            parts = text[len(prefix) :].split(".", 2)
            return parts[1] if len(parts) == 3 else None
    return None


def token_of(envelope: str) -> str:
    """An envelope's inside, of JSON or of text."""
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


_decoder = msgspec.json.Decoder(float_hook=lambda text: f"\0{text}")


def _canonical(payload: bytes) -> bytes:
    """The same bytes for the same content, whatever the order of its names."""
    return msgspec.json.encode(_decoder.decode(payload), order="sorted")


def _aes(secret: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        raise ConfigError(
            "encryption needs the package cryptography: pip install 'rota[encryption]'"
        ) from None
    return AESGCM(secret)


def keyring_of(settings: Settings) -> Keyring | None:
    """The keys that the settings name; None: none."""
    if settings.encryption_keys_file is not None:
        if settings.encryption_keys is not None:
            raise ConfigError("give encryption_keys or encryption_keys_file, not both")
        return _from_text(_read(settings.encryption_keys_file))
    return _from_text(settings.encryption_keys) if settings.encryption_keys else None


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"encryption_keys_file {path}: {error.strerror}") from None


@lru_cache(16)
def _from_text(text: str) -> Keyring:
    """``id:base64``, one or several, with commas or white space between; # begins a comment."""
    lines = [line.partition("#")[0] for line in text.splitlines()]
    keys = [_key(said) for said in re.split(r"[\s,]+", "\n".join(lines)) if said]
    if not keys:
        raise ConfigError("encryption_keys: there is no key in it")
    return Keyring(keys)


def _key(said: str) -> tuple[str, bytes]:
    """Never quoted in an error: it is a secret."""
    name, colon, text = said.partition(":")
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
