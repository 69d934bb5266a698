"""Check passwords, equally slowly for unknown names, and throttle attempts.

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

from rota.lib.ids import new_secret
from rota.lib.passwords import MAX_LENGTH, hash_password, verify_password
from rota.server.problems import Problem
from rota.store.identity import IdentityStore

_FREE_BY_ACCOUNT_AND_ADDRESS = 5
_FREE_BY_ADDRESS = 20
_FREE_BY_ACCOUNT = 50  # from addresses that it never logged in from
_AT_A_TIME = 2  # each takes a core and 64 MB for a while


def _subject(kind: str, text: str) -> bytes:
    return hashlib.sha256(f"{kind} {text}".encode()).digest()


class Passwords:
    def __init__(self, store: IdentityStore) -> None:
        self._store = store
        self._turns = asyncio.Semaphore(_AT_A_TIME)
        self._unknown_hash: str | None = None  # for unknown names: no password matches it

    async def check(self, name: str, password: str, address: str) -> UUID:
        """Return the user's id, or raise: 401, or 429 after too many failures."""
        account = _subject("account", name.lower())
        place = _subject("address", address)
        both = _subject("both", f"{name.lower()}\0{address}")
        await self._count(place, _FREE_BY_ADDRESS)
        await self._count(both, _FREE_BY_ACCOUNT_AND_ADDRESS)
        known = await self._store.is_known_place(both)
        if not known:
            await self._count(account, _FREE_BY_ACCOUNT)
        user = await self._store.find_user(name)
        async with self._turns:
            expected = user[2] if user and user[2] else await self._hash_for_unknown()
            fits = await asyncio.to_thread(verify_password, expected, password[:MAX_LENGTH])
        if user is None or user[2] is None or not fits:
            raise Problem(401, "unauthorized", "The name or the password is wrong.")
        await self._store.forget_failures([both])
        await self._store.forgive_attempt(place, _FREE_BY_ADDRESS)
        if not known:
            await self._store.forgive_attempt(account, _FREE_BY_ACCOUNT)
        await self._store.remember_place(both)
        return user[0]

    async def _count(self, subject: bytes, free: int) -> None:
        if wait := await self._store.count_attempt(subject, free):
            raise Problem(
                429, "too-many-requests", "Too many logins have failed. Wait before the next one.",
                retry_after=wait,
            )  # fmt: skip

    async def _hash_for_unknown(self) -> str:
        if self._unknown_hash is None:
            self._unknown_hash = await asyncio.to_thread(hash_password, new_secret())
        return self._unknown_hash
