"""Stores the schedules that code declares: `@app.cron`.

Protocol. Under a lock per (namespace, application): read which sets were declared before, decide
(`rota.core.declarations`), and if this set is the one to be, make what is new or differs, delete what
the application declared and no longer does, and note that set as in force. All of it is one transaction,
that of the lock: dying anywhere leaves the set that was in force before, and the next start does the
same again. Whoever loses its connection has lost its lock, and can't write any more either.

Schedules belong to the application that declared them (`app`). One application never touches another's,
unless both declare the same name: the last one has it. Two services whose modules have the same name
(`main`) would be one application: so a set under such a name that shares neither a schedule nor a task
with the one in force isn't stored, and an error is logged that asks for `app_name`.

An application that declares none at all is more likely to have forgotten an import than to mean it: its
schedules stay, as orphans.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from rota.core.declarations import Declaration, Verdict, are_related, decide
from rota.core.time.schedule import ScheduleSpec
from rota.store.schedules import ScheduleStore

if TYPE_CHECKING:
    from rota.operations.schedules import Schedules

log = logging.getLogger("rota.schedules")

_HOW = "`rota schedules declare MODULE:APP` puts it into force"


async def declare(
    schedules: Schedules, store: ScheduleStore, app: str, release: str, *, named: bool, force: bool
) -> Verdict:
    """Store the declared schedules, unless a newer set is in force; see the module.

    `named`: the application's name was given, and isn't just that of its module.
    """
    specs = list(schedules.declared.values())
    namespace = store.database.settings.namespace
    digest = await _digest(store, specs)
    async with store.database.shared_transaction("declare_schedules") as connection:
        await store.lock_declarations(connection, namespace, app)
        history = await store.declarations(connection, namespace, app)
        if not specs and not history:
            return "apply"
        verdict: Verdict = "apply" if force else decide(digest, release, history)
        if verdict != "apply":
            _log_left_alone(verdict, app, release, history[0])
            return verdict
        owned = await store.declared_by(namespace, app)
        declared = [(spec.name, spec.job_task) for spec in specs]
        if not (named or force or are_related(declared, owned.items())):
            log.error(
                "the schedules that this code declares (%s) were not stored: %s is also the name of an "
                "application with other schedules (%s). Set app_name (ROTA_APP_NAME) of one of them; "
                "or, if these are to replace those, %s", ", ".join(sorted(schedules.declared)), app,
                ", ".join(owned), _HOW,
            )  # fmt: skip
            return "other_application"
        gone = sorted(set(owned) - set(schedules.declared))
        if not specs and not force:
            await store.disown(connection, namespace, app)
            for name in gone:
                log.warning(
                    "schedule %s is an orphan: application %s declares no schedules any more. Delete "
                    "it, or import the module that declares it", name, app,
                )  # fmt: skip
        else:
            made = await schedules.put_all(specs, delete=gone, source="code", within=connection)
            before = await store.adopt(connection, namespace, app, list(schedules.declared))
            _log_applied(specs, made, gone, before, app, release)
        await store.note_declaration(connection, namespace, app, digest, release)
    return verdict


def _log_applied(
    specs: Sequence[ScheduleSpec], made: Sequence[str], gone: Sequence[str],
    before: Sequence[tuple[str, str | None]], app: str, release: str,
) -> None:  # fmt: skip
    by = f"application {app}" + (f", release {release}" if release else "")
    for spec, change in zip(specs, made, strict=True):
        if change != "unchanged":
            log.info("schedule %s was %s, as the code of %s declares it", spec.name, change, by)
    for name in gone:
        log.warning("schedule %s was deleted: the code of %s no longer declares it", name, by)
    for name, other in before:
        if other is not None:
            log.warning("schedule %s of application %s is declared by %s now", name, other, by)


def _log_left_alone(verdict: Verdict, app: str, release: str, current: Declaration) -> None:
    since = f"{current.declared_at:%Y-%m-%d %H:%M:%S} UTC"
    if verdict == "older_release":
        log.warning(
            "schedules are left as release %s of %s has declared them at %s: this node's release is %s. "
            "If it is a rollback, %s", current.release, app, since, release, _HOW,
        )  # fmt: skip
    else:
        log.warning(
            "schedules are left as another release of %s has declared them at %s: what this node's code "
            "declares was in force before, and was superseded. If it is meant again, %s; with the "
            "setting `release` a newer release is recognised", app, since, _HOW,
        )  # fmt: skip


async def _digest(store: ScheduleStore, specs: Sequence[ScheduleSpec]) -> str:
    encryption = await store.database.known_encryption()
    shown: list[Any] = []
    for spec in sorted(specs, key=lambda spec: spec.name):
        # What is encrypted must not be guessed from a digest.
        hidden = encryption.required and bool(spec.payload)
        payload = encryption.fingerprint(spec) if hidden else spec.payload
        shown.append(msgspec.structs.replace(spec, payload=payload))
    return hashlib.sha256(msgspec.json.encode(shown)).hexdigest()
