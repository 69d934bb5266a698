"""Rewriting what is stored, under the current key: after a rotation, or to encrypt what was not.

Protocol. Table by table, in batches of a few hundred rows by their keys: a short transaction locks rows
(skipping locked ones), encrypts anew what isn't encrypted with the first key of the ring, and writes it
back. Nobody waits for it longer than for such a transaction. Dying
anywhere leaves whole batches done and the rest as it was; a later run looks at everything again, and
finds what is done done. Jobs move while it walks, also backwards when they are retried: so it walks
again until a walk finds nothing.

Plain values are encrypted only in an encrypted namespace. Values that can't be decrypted here (the key
isn't in the ring, or the value isn't authentic) are left as they are, and counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import msgspec

from rota.errors import KeyMissing, RotaError
from rota.lib.encryption import ENVELOPE, TEXT, Encryptor, Keyring, key_of, token_of
from rota.store.database import Connection, Database
from rota.store.encrypted import RESERVED, id_of_once
from rota.store.logs import log_field

_BATCH = 300
_WALKS = 10
_NIL = UUID(int=0)


class Rewritten(msgspec.Struct, kw_only=True):
    """How many rows were encrypted anew, and how many are left that can't be opened here."""

    encrypted: int = 0
    left: int = 0


class Reencryption:
    """Of one namespace."""

    def __init__(self, database: Database) -> None:
        encryption = database.encryption
        if encryption.ring is None:
            raise KeyMissing("there is no key to encrypt with: set ROTA_ENCRYPTION_KEYS")
        self._database = database
        self._ring: Keyring = encryption.ring
        self._namespace = encryption.namespace
        self._plain_too = False
        self._done = Rewritten()

    async def run(self) -> Rewritten:
        """Everything of the namespace, until nothing is left to do."""
        self._plain_too = (await self._database.known_encryption()).required
        total = 0
        for _ in range(_WALKS):
            self._done = Rewritten()
            for table in ("future", "present", "past", "dead"):
                await self._walk(table, {"id": _NIL}, self._job)
            await self._walk("schedule", {"id": _NIL}, self._schedule)
            await self._walk("effect", {"key": ""}, self._effect)
            await self._walk("job_log", {"job_id": _NIL, "token": -1, "seq": -1}, self._line)
            total += self._done.encrypted
            if not self._done.encrypted:
                break
        return Rewritten(encrypted=total, left=self._done.left)

    async def _walk(
        self, table: str, first: dict[str, Any],
        rewrite: Callable[[Connection, Any], Awaitable[dict[str, str]]],
    ) -> None:  # fmt: skip
        columns = ", ".join(first)
        places = ", ".join(f"${n}" for n in range(2, 2 + len(first)))
        source = (
            f"{self._database.schema}.{table} where namespace = $1 and ({columns}) > ({places})"
        )
        look = f"select {columns} from {source} order by {columns} limit {_BATCH}"  # noqa: S608
        lock = (
            f"select *, tableoid::regclass::text as stored_in, ctid as stored_at from {source}"  # noqa: S608
            f" and ({columns}) <= ({{}}) order by {columns} for update skip locked"
        ).format(", ".join(f"${n}" for n in range(2 + len(first), 2 + 2 * len(first))))
        after = tuple(first.values())
        while True:
            async with self._database.transaction("reencrypt") as connection:
                # First how far to go: what is passed over in between must not end the walk.
                ahead = await connection.fetch(look, self._namespace, *after)
                if not ahead:
                    return
                last = tuple(ahead[-1])
                for row in await connection.fetch(lock, self._namespace, *after, *last):
                    await self._apply(connection, row, rewrite)
            after = last

    async def _apply(
        self, connection: Connection, row: Any,
        rewrite: Callable[[Connection, Any], Awaitable[dict[str, str]]],
    ) -> None:  # fmt: skip
        try:
            changes = await rewrite(connection, row)
        except RotaError:
            self._done.left += 1
            return
        if changes:
            self._done.encrypted += 1
            sets = ", ".join(f"{name} = ${n}" for n, name in enumerate(changes, 2))
            # By its place: it is locked, so that nobody has moved it.
            await connection.execute(
                f"update {row['stored_in']} set {sets} where ctid = $1",  # noqa: S608
                row["stored_at"], *changes.values(),
            )  # fmt: skip

    # -- what is in a row

    async def _job(self, connection: Connection, row: Any) -> dict[str, str]:
        id, task = row["id"], row["task"]
        fields = set(row.keys())
        encryptor = self._ring.encryptor(self._namespace, "j", id)
        changes: dict[str, str] = {}
        payload = self._json(row["payload"], encryptor, "payload", id, task)
        if payload is not None:
            changes["payload"] = payload
            await self._know_again(connection, row)
        for field in ("progress", "result"):
            if (
                field in fields
                and (text := self._json(row[field], encryptor, field, id)) is not None
            ):
                changes[field] = text
        for field in ("error", "attempts"):
            if field in fields and (text := self._errors(row[field], encryptor, id)) is not None:
                changes[field] = text
        return changes

    async def _know_again(self, connection: Connection, row: Any) -> None:
        """Its idempotency key remembers what it was used for: also under the current key."""
        if row["key"] is None or _is_of_schedule(row["payload"]):
            return
        plain = row["payload"].encode()
        if row["payload"].startswith(ENVELOPE):
            plain = self._open(row["payload"], row["id"], "payload", row["task"])
        prints = self._ring.fingerprints(self._namespace, row["task"], plain)
        query = self._database.queries["renew_fingerprint"]
        await connection.execute(query, self._namespace, row["key"], row["id"], prints[0])

    async def _schedule(self, connection: Connection, row: Any) -> dict[str, str]:
        id, task = row["id"], row["task"]
        encryptor = self._ring.encryptor(self._namespace, "s", id)
        changes: dict[str, str] = {}
        if row["payload"] != "{}":
            payload = self._json(row["payload"], encryptor, "payload", id, task)
            if payload is not None:
                changes["payload"] = payload
        if (spec := self._spec(row["spec"], encryptor, id)) is not None:
            changes["spec"] = spec
        queries = self._database.queries
        for version, text in await connection.fetch(queries["specs_of_versions"], id):
            if (spec := self._spec(text, encryptor, id)) is not None:
                await connection.execute(queries["rewrite_version"], id, version, spec)
                self._done.encrypted += 1
        return changes

    async def _effect(self, _connection: Connection, row: Any) -> dict[str, str]:
        id = id_of_once(row["key"])
        encryptor = self._ring.encryptor(self._namespace, "e", id)
        text = self._json(row["result"], encryptor, "once", id)
        return {} if text is None else {"result": text}

    async def _line(self, _connection: Connection, row: Any) -> dict[str, str]:
        if not self._is_due(row["text"]):
            return {}
        field = log_field(row["token"], row["seq"])
        encryptor = self._ring.encryptor(self._namespace, "j", row["job_id"])
        return {"text": encryptor.text(field, self._words(row["text"], row["job_id"], field))}

    # -- one value; None: it is as it should be

    def _is_due(self, text: str) -> bool:
        key = key_of(text)
        return self._plain_too if key is None else key != self._ring.current

    def _json(
        self, text: str | None, encryptor: Encryptor, field: str, id: UUID, task: str = ""
    ) -> str | None:
        if text is None or not self._is_due(text):
            return None
        plain = text.encode()
        if text.startswith(ENVELOPE):
            plain = self._open(text, id, field, task)
            if _is_of_schedule(text):  # stays bound to it, wherever it is
                encryptor = self._ring.encryptor(self._namespace, "s", _schedule_in(token_of(text)))
        return encryptor.json(field, plain, task)

    def _errors(self, text: str | None, encryptor: Encryptor, id: UUID) -> str | None:
        """Of a job, or of its attempts."""
        if text is None:
            return None
        value = msgspec.json.decode(text)
        changed = False
        for error in [value] if isinstance(value, dict) else [each.get("error") for each in value]:
            for name in ("message", "traceback"):
                words = error.get(name) if error else None
                if words and self._is_due(words):
                    error[name] = encryptor.text("error", self._words(words, id, "error"))
                    changed = True
        return msgspec.json.encode(value).decode() if changed else None

    def _spec(self, text: str, encryptor: Encryptor, id: UUID) -> str | None:
        spec = msgspec.json.decode(text)
        payload = spec.get("payload")
        if not payload:
            return None
        stored = msgspec.json.encode(payload).decode()
        encrypted = self._json(stored, encryptor, "payload", id, spec["task"])
        if encrypted is None:
            return None
        spec["payload"] = {RESERVED: token_of(encrypted)}
        return msgspec.json.encode(spec).decode()

    def _words(self, text: str, id: UUID, field: str) -> str:
        return self._open(text, id, field).decode() if text.startswith(TEXT) else text

    def _open(self, text: str, id: UUID, field: str, task: str = "") -> bytes:
        return self._ring.open(token_of(text), self._namespace, id, field, task)


def _is_of_schedule(text: str) -> bool:
    return text.startswith(ENVELOPE) and token_of(text).split(".")[2].startswith("s")


def _schedule_in(token: str) -> UUID:
    return UUID(token.split(".")[2][1:])
