"""Values that are sealed for a person: encrypted with a key that is the person's own.

    rota-sealed:1.PERSON.BASE64     PERSON: the id of the key, BASE64: a nonce and AES-256-GCM

Namespace and person are authenticated: a value that was changed, or whose person was, is refused. It
isn't bound to a job, because it is the application that decides where it goes.
"""

from __future__ import annotations

import binascii
from uuid import UUID

from rota.errors import NotAuthentic
from rota.lib.encryption import cipher
from rota.lib.ids import new_nonce

KEY_BYTES = 32
SEALED = "rota-sealed:"
_NONCE = 12
_MARK = "1"


def seal(key: bytes, namespace: str, person: UUID, plain: bytes) -> str:
    nonce = new_nonce(_NONCE)
    hidden = nonce + cipher(key).encrypt(nonce, plain, _bound_to(namespace, person))
    text = binascii.b2a_base64(hidden, newline=False).decode()
    return f"{SEALED}{_MARK}.{person.hex}.{text}"


def person_of(sealed: str) -> UUID:
    """Return the id of the key that a value is sealed with."""
    return _parts(sealed)[0]


def unseal(key: bytes, namespace: str, sealed: str) -> bytes:
    person, hidden = _parts(sealed)
    try:
        plain: bytes = cipher(key).decrypt(
            hidden[:_NONCE], hidden[_NONCE:], _bound_to(namespace, person)
        )
    except Exception:  # noqa: BLE001 - cryptography's InvalidTag, or what is too short to be one
        raise NotAuthentic(
            f"a value that says to be sealed for the person {person} is not: it was changed"
        ) from None
    return plain


def _parts(sealed: str) -> tuple[UUID, bytes]:
    if not isinstance(sealed, str) or not sealed.startswith(SEALED):
        raise NotAuthentic(f"a sealed value is a text that begins with {SEALED}: this is none")
    try:
        mark, person, text = sealed[len(SEALED) :].split(".")
        if mark != _MARK:
            raise NotAuthentic("a value was sealed by a later version of Rota")
        return UUID(person), binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        raise NotAuthentic("a value looks sealed, and is not: it was cut, or made up") from None


def _bound_to(namespace: str, person: UUID) -> bytes:
    return f"rota\0{_MARK}\0sealed\0{namespace}\0{person.hex}".encode()
