"""Hash and verify passwords with argon2id."""

from __future__ import annotations

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from rota.errors import ConfigError

_MIN_LENGTH = 10
MAX_LENGTH = 1_000

_hasher = PasswordHasher()


def hash_password(password: str) -> str:
    if not _MIN_LENGTH <= len(password) <= MAX_LENGTH:
        raise ConfigError(
            f"a password must have {_MIN_LENGTH} to {MAX_LENGTH} characters", field="password"
        )
    return _hasher.hash(password)


def verify_password(stored: str, password: str) -> bool:
    try:
        return _hasher.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
