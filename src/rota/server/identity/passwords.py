"""Passwords: argon2id, as slow for a name that nobody has as for one that somebody has, and throttled.

Protocol. An attempt is counted as failed before the password is looked at, in the database: so that the
count survives restarts, holds for all servers together, and isn't fooled by many attempts at once. It is
counted by address, by account and address together, and, from an address that the account has never
logged in from, by account. So who guesses locks out only the address they guess from; who guesses from
many is stopped by the last count, which doesn't touch the places where the account's owner logs in. A
success ends the count of its account and address, and takes its own off the others: many who come from
one address and know their passwords aren't in each other's way.
"""

from __future__ import annotations

import asyncio
import hashlib
from uuid import UUID

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from rota.errors import ConfigError
from rota.lib.ids import new_secret
from rota.server.problems import Problem
from rota.store.identity import IdentityStore

_FREE_BY_ACCOUNT_AND_ADDRESS = 5
_FREE_BY_ADDRESS = 20
_FREE_BY_ACCOUNT = 50  # from addresses that it never logged in from
_LEAST_LENGTH = 10
_LONGEST = 1_000
_AT_A_TIME = 2  # each takes a core and 64 MB for a while

_hasher = PasswordHasher()


def hash_password(password: str) -> str:
    if not _LEAST_LENGTH <= len(password) <= _LONGEST:
        raise ConfigError(f"a password has at least {_LEAST_LENGTH} characters")
    return _hasher.hash(password)


def _verify(stored: str, password: str) -> bool:
    try:
        return _hasher.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False


def _subject(kind: str, text: str) -> bytes:
    return hashlib.sha256(f"{kind} {text}".encode()).digest()


class Passwords:
    def __init__(self, store: IdentityStore) -> None:
        self._store = store
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._nobodys: str | None = None  # a hash that no password fits

    async def check(self, name: str, password: str, address: str) -> UUID:
        """The person; else 401, or 429 after too many failures."""
        account = _subject("account", name.lower())
        place = _subject("address", address)
        both = _subject("both", f"{name.lower()}\0{address}")
        await self._count(place, _FREE_BY_ADDRESS)
        await self._count(both, _FREE_BY_ACCOUNT_AND_ADDRESS)
        known = await self._store.is_known_place(both)
        if not known:
            await self._count(account, _FREE_BY_ACCOUNT)
        person = await self._store.find_person(name)
        async with self._turns:
            expected = person[2] if person and person[2] else await self._hash_of_nobody()
            fits = await asyncio.to_thread(_verify, expected, password[:_LONGEST])
        if person is None or person[2] is None or not fits:
            raise Problem(401, "unauthorized", "this name and password don't belong together")
        await self._store.forget_failures([both])
        await self._store.forgive_attempt(place, _FREE_BY_ADDRESS)
        if not known:
            await self._store.forgive_attempt(account, _FREE_BY_ACCOUNT)
        await self._store.remember_place(both)
        return person[0]

    async def _count(self, subject: bytes, free: int) -> None:
        if wait := await self._store.count_attempt(subject, free):
            raise Problem(
                429, "too-many-requests", "too many log-ins have failed: wait a while",
                retry_after=wait,
            )  # fmt: skip

    async def _hash_of_nobody(self) -> str:
        if self._nobodys is None:
            self._nobodys = await asyncio.to_thread(_hasher.hash, new_secret())
        return self._nobodys
