"""Rewriting stored values under the current key: after a rotation, or to encrypt plain ones.

Protocol. Table by table, in batches of a few hundred rows by their keys: a short transaction locks rows
(skipping locked ones), encrypts values again that aren't encrypted with the first key of the ring, and
writes them back. Other statements wait for one such transaction at most. If the process dies, whole
batches are done and the rest is as it was; a later run reads everything again. Jobs move between the
tables meanwhile, also back when they are retried: so the walk is repeated until it finds nothing.

Plain values are encrypted only in an encrypted namespace. Values that can't be decrypted here (the key
isn't in the ring, or the value isn't authentic) are left as they are, and counted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from rota.config import START_TASK
from rota.core.workflow.model import CheckpointKind
from rota.errors import KeyMissing, RotaError
from rota.lib.encryption import is_encrypted, key_of, token_of
from rota.store.database import Connection, Database
from rota.store.encrypted import id_of_once
from rota.store.logs import log_field

_BATCH = 300
_WALKS = 10
_NIL = UUID(int=0)

Values: TypeAlias = dict[str, str | bool | None]
Rewrite: TypeAlias = Callable[[Connection, Any], Awaitable[Values]]


class Rewritten(msgspec.Struct, kw_only=True):
    """The number of rows that were encrypted again, and of those that can't be decrypted here."""

    encrypted: int = 0
    left: int = 0


class Reencryption:
    """Rewrites the values of one namespace."""

    def __init__(self, database: Database) -> None:
        self._encryption = database.encryption
        if self._encryption.ring is None:
            raise KeyMissing("there is no key to encrypt with: set ROTA_ENCRYPTION_KEYS")
        self._database = database
        self._current_key = self._encryption.ring.current
        self._namespace = self._encryption.namespace
        self._plain_too = False
        self._done = Rewritten()

    async def run(self) -> Rewritten:
        """Rewrite everything of the namespace, until nothing is left to do."""
        self._plain_too = (await self._database.known_encryption()).required
        total = 0
        for _ in range(_WALKS):
            self._done = Rewritten()
            for table in ("future", "present", "past", "dead"):
                await self._walk(table, {"id": _NIL}, self._job)
            await self._walk("run", {"id": _NIL}, self._run)
            await self._walk("run_signal", {"id": _NIL}, self._signal)
            await self._walk("schedule", {"id": _NIL}, self._schedule)
            await self._walk("effect", {"key": ""}, self._effect)
            await self._walk("person", {"id": _NIL}, self._person)
            await self._walk("job_log", {"job_id": _NIL, "token": -1, "seq": -1}, self._line)
            total += self._done.encrypted
            if not self._done.encrypted:
                break
        return Rewritten(encrypted=total, left=self._done.left)

    async def _walk(self, table: str, first: dict[str, Any], rewrite: Rewrite) -> None:
        columns = ", ".join(first)
        after_places, last_places = (
            ", ".join(f"${n}" for n in range(start, start + len(first)))
            for start in (2, 2 + len(first))
        )
        source = (
            f"{self._database.schema}.{table}"
            f" where namespace = $1 and ({columns}) > ({after_places})"
        )
        look = f"select {columns} from {source} order by {columns} limit {_BATCH}"  # noqa: S608
        lock = (
            f"select *, tableoid::regclass::text as stored_in, ctid as stored_at from {source}"  # noqa: S608
            f" and ({columns}) <= ({last_places}) order by {columns} for update skip locked"
        )
        after = tuple(first.values())
        while True:
            async with self._database.transaction("reencrypt") as connection:
                # First how far to go: rows that are passed over in between must not end the walk.
                ahead = await connection.fetch(look, self._namespace, *after)
                if not ahead:
                    return
                last = tuple(ahead[-1])
                for row in await connection.fetch(lock, self._namespace, *after, *last):
                    await self._apply(connection, row, rewrite)
            after = last

    async def _apply(self, connection: Connection, row: Any, rewrite: Rewrite) -> None:
        try:
            values = await rewrite(connection, row)
        except RotaError:
            self._done.left += 1
            return
        changes = {name: value for name, value in values.items() if value is not None}
        if changes:
            self._done.encrypted += 1
            sets = ", ".join(f"{name} = ${n}" for n, name in enumerate(changes, 2))
            # By its place: it is locked, so that nobody has moved it.
            await connection.execute(
                f"update {row['stored_in']} set {sets} where ctid = $1",  # noqa: S608
                row["stored_at"], *changes.values(),
            )  # fmt: skip

    # -- the values of a row; None: it stays as it is

    async def _job(self, connection: Connection, row: Any) -> Values:
        id, task = row["id"], row["task"]
        changes: Values = {"payload": self._json(row["payload"], "j", id, "payload", task)}
        if changes["payload"] and row["key"] and _schedule_of(row["payload"]) is None:
            # The idempotency key's row has the payload's fingerprint: also under the current key.
            plain = self._encryption.open(row["payload"], id, "payload", task)
            printed = self._encryption.fingerprints(task, plain)[0]
            values = (self._namespace, row["key"], id, printed)
            await self._database.fetch("renew_fingerprint", *values, on=connection)
        present = set(row.keys())
        for field in present & {"progress", "result"}:
            changes[field] = self._json(row[field], "j", id, field)
        for field in present & {"error", "attempts"}:
            changes[field] = self._errors(row[field], id)
        return changes

    async def _run(self, connection: Connection, row: Any) -> Values:
        id, fetch = row["id"], self._database.fetch
        for step in await fetch("encrypted_steps", id, on=connection):
            job = step["job_id"] or id
            result = self._json(step["result"], "j", job, "result")
            error = self._errors(step["error"], job)
            if result or error:
                await fetch("rewrite_step", id, step["number"], result, error, on=connection)
                self._done.encrypted += 1
        for each in await fetch("encrypted_checkpoints", id, on=connection):
            if any(rewritten := self._checkpoint(each, id)):
                await fetch("rewrite_checkpoint", id, each["number"], *rewritten, on=connection)
                self._done.encrypted += 1
        await self._maps(connection, id)
        given = self._json(row["input"], "j", id, "input")
        if given and row["key"]:
            plain = self._encryption.open(row["input"], id, "input")
            printed = self._encryption.fingerprints(f"workflow {row['name']}", plain)[0]
            values = (self._namespace, row["key"], id, printed)
            await fetch("renew_fingerprint", *values, on=connection)
        error = msgspec.json.decode(row["error"] or "{}")
        changed = self._rewrite_error(error, None)
        return {
            "input": given, "error": msgspec.json.encode(error).decode() if changed else None,
            "status": self._json(row["status"], "j", id, "status"),
        }  # fmt: skip

    async def _maps(self, connection: Connection, run: UUID) -> None:
        """Rewrite items, results and errors of a run's maps, a few rows at a time."""
        for each in await self._database.fetch("encrypted_maps", run, on=connection):
            place = (connection, run, each["step"])
            await self._rows_of_map(place, "chunk", "number", partial(self._chunk, each))
            await self._rows_of_map(place, "results", "first", partial(self._results, each))
            await self._rows_of_map(place, "member", "number", partial(self._member, each))

    def _chunk(self, of_map: Any, row: Any) -> tuple[str | None, ...]:
        owner = row["job_id"] or of_map["id"]
        return (
            self._json(row["items"], "j", of_map["id"], f"items {row['number']}"),
            self._json(row["result"], "j", owner, "result"),
        )

    def _results(self, of_map: Any, row: Any) -> tuple[str | None, ...]:
        return (self._json(row["results"], "j", of_map["id"], f"results {row['first']}"),)

    def _member(self, of_map: Any, row: Any) -> tuple[str | None, ...]:
        owner = (row["job_id"] if of_map["each_job"] else None) or of_map["id"]
        return (
            self._json(row["result"], "j", of_map["id"], f"results {row['number']}"),
            self._errors(row["error"], owner),
        )

    async def _rows_of_map(
        self, place: tuple[Connection, UUID, int], noun: str, key: str,
        rewritten: Callable[[Any], tuple[str | None, ...]],
    ) -> None:  # fmt: skip
        (connection, run, step), fetch, after = place, self._database.fetch, -1
        several = f"encrypted_{noun.rstrip('s')}s"
        while rows := await fetch(several, run, step, after, on=connection):
            for row in rows:
                after = row[key]
                if any(values := rewritten(row)):
                    await fetch(f"rewrite_{noun}", run, step, after, *values, on=connection)
                    self._done.encrypted += 1

    def _checkpoint(self, row: Any, run: UUID) -> tuple[str | None, str | None, str | None]:
        """Return the result, the error and the digest of something that a durable function did."""
        owner, is_run = row["job_id"] or run, row["kind"] == CheckpointKind.RUN
        digest = None
        if row["digest"] is not None and row["kind"] != CheckpointKind.NOTE:
            digest = self._text(row["digest"], run, "digest")
        if not is_run:
            result = self._json(row["result"], "j", owner, "result")
            return result, self._errors(row["error"], owner), digest
        # It has the job under whose name the result is encrypted; its error quotes a step's.
        answer = msgspec.json.decode(row["result"] or "{}", type=dict[str, msgspec.Raw])
        result = None
        if (stored := bytes(answer.get("result", b"null"))) != b"null":
            owner = msgspec.json.decode(answer["job"], type=UUID | None) or owner
            result = self._json(stored.decode(), "j", owner, "result")
        if result is not None:
            answer["result"] = msgspec.Raw(result.encode())
            result = msgspec.json.encode(answer).decode()
        error = msgspec.json.decode(row["error"] or "{}")
        changed = self._rewrite_error(error, None)
        return result, msgspec.json.encode(error).decode() if changed else None, digest

    async def _signal(self, _connection: Connection, row: Any) -> Values:
        return {"payload": self._json(row["payload"], "j", row["id"], "result")}

    async def _schedule(self, connection: Connection, row: Any) -> Values:
        id = row["id"]
        fetch = self._database.fetch
        for version, text in await fetch("specs_of_versions", id, on=connection):
            if (spec := self._spec(text, id)) is not None:
                await fetch("rewrite_version", id, version, spec, on=connection)
                self._done.encrypted += 1
        payload = None if row["payload"] == "{}" else row["payload"]
        return {
            "payload": self._json(payload, "s", id, "payload", row["task"]),
            "spec": self._spec(row["spec"], id),
        }

    async def _effect(self, _connection: Connection, row: Any) -> Values:
        return {"result": self._json(row["result"], "e", id_of_once(row["key"]), "once")}

    async def _person(self, _connection: Connection, row: Any) -> Values:
        if row["key"] is None or not self._is_due(row["key"]):
            return {}
        made = self._encryption.opened_person(row["key"], row["id"])
        return {
            "key": self._encryption.encrypted_person(made, row["id"]),
            "fingerprint": self._encryption.person_fingerprints(made.person)[0],
            "rotated": True,
        }

    async def _line(self, _connection: Connection, row: Any) -> Values:
        field = log_field(row["token"], row["seq"])
        return {"text": self._text(row["text"], row["job_id"], field)}

    def _is_due(self, text: str) -> bool:
        key = key_of(text)
        return self._plain_too if key is None else key != self._current_key

    def _json(
        self, text: str | None, kind: str, id: UUID, field: str, task: str = ""
    ) -> str | None:
        if text is None or not self._is_due(text):
            return None
        plain = self._encryption.open(text, id, field, task)
        if (schedule := _schedule_of(text)) is not None:  # stays bound to it, wherever it is
            kind, id = "s", schedule
        return self._encryption.encryptor(kind, id).json(field, plain, task)

    def _text(self, text: str, id: UUID, field: str) -> str | None:
        if not self._is_due(text):
            return None
        plain = self._encryption.open(text, id, field).decode() if is_encrypted(text) else text
        return self._encryption.for_job(id).text(field, plain)

    def _errors(self, text: str | None, id: UUID) -> str | None:
        """Rewrite the error of a job, or those of its attempts."""
        if text is None:
            return None
        value = msgspec.json.decode(text)
        errors = [value] if isinstance(value, dict) else [each.get("error") for each in value]
        changed = [self._rewrite_error(error, id) for error in errors if error]
        return msgspec.json.encode(value).decode() if any(changed) else None

    def _rewrite_error(self, error: dict[str, Any], id: UUID | None) -> bool:
        """Rewrite an error, and what it quotes of another job; without an id, only that."""
        changed = False
        for name in ("message", "traceback"):
            words = error.get(name)
            if words and id and (encrypted := self._text(words, id, "error")) is not None:
                error[name] = encrypted
                changed = True
        if error.get("cause") and error.get("job_id"):  # a run quotes the step that failed
            changed |= self._rewrite_error(error["cause"], UUID(error["job_id"]))
        return changed

    def _spec(self, text: str, id: UUID) -> str | None:
        spec = msgspec.json.decode(text)
        if not spec.get("payload"):
            return None
        stored = msgspec.json.encode(spec["payload"]).decode()
        task = START_TASK if spec.get("workflow") else spec["task"]
        encrypted = self._json(stored, "s", id, "payload", task)
        if encrypted is None:
            return None
        spec["payload"] = msgspec.Raw(encrypted.encode())
        return msgspec.json.encode(spec).decode()


def _schedule_of(text: str) -> UUID | None:
    """Return the id of the schedule that an encrypted payload is bound to, if it is one's."""
    bound_to = token_of(text).split(".")[2] if is_encrypted(text) else ""
    return UUID(bound_to[1:]) if bound_to.startswith("s") else None
