"""Values sealed for a person, and erased for good by destroying the person's key.

Protocol. A person has a random key, in `rota.person`: encrypted under the current encryption key,
together with the name that the application has for the person. The table doesn't show the name: a row
is found by its fingerprints, one under each encryption key of this process. To seal, the key is read,
or made first: `on conflict do nothing`, then read again, so that processes that meet use the same one.
What is sealed is a text, and goes wherever the application puts it: payloads, results, archives.

To erase, one statement sets the key to null, in the transaction of its audit record. Keys are read anew
for each value, and never kept: from the commit on, nothing that was sealed for the person can be opened,
by any process. A value that is sealed at that moment was sealed before it. If the process dies before
the commit, nothing has happened; after it, a second call finds nothing left to do. Who is sealed for
afterwards is somebody new, with a key of their own.

`rota encrypt --rotate` encrypts keys and fingerprints under the new encryption key (`reencryption`).
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from rota.core.administration import Person
from rota.core.codec import ResultReader, encode_hook
from rota.errors import (
    ConfigError,
    InvalidArguments,
    KeyMissing,
    NotAuthentic,
    NotFound,
    PersonErased,
)
from rota.lib.ids import new_id, new_nonce
from rota.lib.sealing import KEY_BYTES, person_of, seal, unseal
from rota.operations.base import Operations
from rota.store.encrypted import Encryption, PersonKey
from rota.store.persons import PersonStore

_LONGEST = 200
_TRIES = 5  # somebody may erase the person whose key was just made, again and again


class Persons(Operations):
    """`app.persons`"""

    async def seal(self, person: str, value: Any) -> str:
        """Encrypt a value with the key of a person, which is made if they have none.

        Args:
            person: the name that your application has for them, such as ``customer-4711``. Rota stores
                it encrypted.
            value: whatever an argument of a task can be.
        """
        check_person(person)
        try:
            plain = msgspec.json.encode(value, enc_hook=encode_hook)
        except (TypeError, ValueError) as error:
            raise InvalidArguments(f"the value for {person!r} can't be sealed: {error}") from None
        database = await self._database()
        id, key = await self._key_of(PersonStore(database), database.encryption, person)
        return seal(key, self._namespace, id, plain)

    async def open(self, sealed: str, type: Any = None) -> Any:
        """Decrypt a sealed value. Raises `PersonErased` once the key of its person is destroyed.

        Args:
            sealed: what `seal` returned.
            type: convert the value to this type, as arguments are.
        """
        id = person_of(sealed)
        database = await self._database()
        found = await PersonStore(database).key(self._namespace, id)
        if found is None:
            raise NotAuthentic(
                f"a value is sealed for the person {id}, who is not known in the namespace "
                f"{self._namespace!r}"
            )
        if found.key is None:
            raise PersonErased(
                f"the value was sealed for a person whose data was erased at "
                f"{found.erased_at:%Y-%m-%d %H:%M:%S %Z}: nobody can read it", subject=id,
            )  # fmt: skip
        key = binascii.a2b_base64(database.encryption.opened_person(found.key, id).key)
        plain = unseal(key, self._namespace, sealed)
        return ResultReader(type).read(msgspec.json.decode(plain))

    async def erase(self, person: str) -> Person:
        """Destroy the key of a person: what was sealed for them can't be read by anybody again.

        It holds at once, in every process. Raises `NotFound` if nothing was sealed for them, or if they
        were erased before.
        """
        check_person(person)
        database = await self._database()
        prints = database.encryption.person_fingerprints(person)
        store = PersonStore(database)
        await self._check_keys(store, database.encryption)
        known = await store.find(self._namespace, prints)
        if known:
            erased = await self._erase(store, [each.id for each in known], prints)
            if erased:
                return erased[0]
        raise NotFound(
            f"there is no key of the person {person!r}: nothing was sealed for them under this name "
            "with the encryption keys of this process, or they were erased before. `rota persons` "
            "lists who was",
            subject=person,
        )

    async def _check_keys(self, store: PersonStore, encryption: Encryption) -> None:
        """Refuse to look for a person by name where some of their rows could not be found."""
        own = encryption.ring.names if encryption.ring else []
        others = [each for each in await store.encryption_keys(self._namespace) if each not in own]
        if others:
            raise KeyMissing(
                f"keys of persons of the namespace {self._namespace!r} are encrypted with the "
                f"encryption key {', '.join(others)}, which this process doesn't have: what was sealed "
                "there for the same person would stay readable. Add it to encryption_keys, or run "
                "`rota encrypt --rotate` where all keys are"
            )

    async def erase_ids(self, ids: Sequence[UUID]) -> Sequence[Person]:
        """Destroy the keys of persons by their ids, as after a restore. Returns those that had one."""
        return await self._erase(PersonStore(await self._database()), ids)

    async def find(self, person: str) -> Person:
        """Return the key of a person: its id, and when it was made. Not the key itself."""
        check_person(person)
        database = await self._database()
        prints = database.encryption.person_fingerprints(person)
        store = PersonStore(database)
        for known in await store.find(self._namespace, prints):
            for found in await store.by_id(self._namespace, [known.id]):
                return found
        raise NotFound(f"there is no key of the person {person!r}", subject=person)

    async def list(self, *, erased: bool | None = None, limit: int = 100) -> Sequence[Person]:
        """List persons: erased ones first, the latest before the others.

        Args:
            erased: only those whose keys were destroyed, or only the others.
            limit: how many.
        """
        if not 1 <= limit <= 100_000:
            raise ConfigError("limit: must be from 1 to 100000", field="limit")
        return await PersonStore(await self._database()).list(self._namespace, erased, limit)

    async def _erase(
        self, store: PersonStore, ids: Sequence[UUID], prints: Sequence[str] = ()
    ) -> Sequence[Person]:
        gone: list[Person] = []
        async with self._changing("erase", "persons") as change:
            gone.extend(await store.erase(self._namespace, prints, ids))
            change.subject = f"person {gone[0].id}" if len(gone) == 1 else "persons"
            change.after = {"persons": [each.id for each in gone]}
            if not gone:
                change.void()
        return gone

    async def _key_of(
        self, store: PersonStore, encryption: Encryption, person: str
    ) -> tuple[UUID, bytes]:
        prints = encryption.person_fingerprints(person)
        for _ in range(_TRIES):
            for found in await store.find(self._namespace, prints):
                opened = encryption.opened_person(found.key, found.id)
                return found.id, binascii.a2b_base64(opened.key)
            id = new_id()
            made = PersonKey(
                person, binascii.b2a_base64(new_nonce(KEY_BYTES), newline=False).decode()
            )
            await store.add(self._namespace, id, prints[0], encryption.encrypted_person(made, id))
        raise NotFound(f"the person {person!r} was erased again and again meanwhile: try later")


def check_person(person: str) -> None:
    if not isinstance(person, str) or not 0 < len(person) <= _LONGEST or "\0" in person:
        raise ConfigError(
            f"person: must be a text of 1 to {_LONGEST} characters, such as customer-4711",
            field="person",
        )
