"""Changes in the field names that two systems for logs expect.

`ecs`: the Elastic Common Schema. `cim`: the models Change and Authentication of Splunk's Common
Information Model. What has no field there is kept under `rota`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Any, Literal, TypeAlias

import msgspec

from rota.core.administration import AuditEntry

AuditFormat = Literal["json", "ecs", "cim"]
Document: TypeAlias = dict[str, Any]

ECS_VERSION = "8.11.0"

_MADE = frozenset({"add", "allow", "create", "declare", "import", "put", "save", "set", "submit"})
_GONE = frozenset({
    "delete", "disallow", "discard", "end", "erase", "remove", "retire", "revoke", "unlimit",
})  # fmt: skip
_STOPS = frozenset({"cancel", "drain", "pause", "stop"})
_STARTS = frozenset({"resume", "retry", "trigger", "undrain"})
# Of accounts and what they may do.
_ACCESS = frozenset({"grant", "role", "session", "token", "user"})


def written(entry: AuditEntry, form: AuditFormat, installation: str) -> bytes:
    """Return a change as a line of JSON."""
    document: Any = entry if form == "json" else _FORMS[form](entry, installation)
    return msgspec.json.encode(document)


def to_ecs(entry: AuditEntry, installation: str) -> Document:
    kind, _name = _subject_of(entry)
    document: Document = {
        "@timestamp": _utc(entry.at),
        "message": f"{entry.actor}: {entry.action} {entry.subject}",
        "ecs.version": ECS_VERSION,
        "event.kind": "event",
        "event.category": [_category(entry, kind)],
        "event.type": [_type(entry)],
        "event.action": entry.action,
        "event.outcome": "success",
        "event.id": str(entry.id),
        "event.module": "rota",
        "event.dataset": "rota.audit",
        "service.name": "rota",
        "service.type": "rota",
        "service.id": installation,
        "user.name": entry.actor,
        "related.user": [entry.actor],
    }
    if entry.address:
        document["source.address"] = entry.address
        if _is_ip(entry.address):
            document["source.ip"] = entry.address
            document["related.ip"] = [entry.address]
    if entry.request_id:
        document["http.request.id"] = entry.request_id
    return {**document, "rota": _rest(entry)}


def to_cim(entry: AuditEntry, installation: str) -> Document:
    kind, name = _subject_of(entry)
    common = {
        "time": _utc(entry.at),
        "dest": installation,
        "src": entry.address or entry.actor.partition("@")[2] or "unknown",
        "user": entry.actor,
        "vendor_product": "Rota",
        "rota": {"id": entry.id, "action": entry.action, **_rest(entry)},
    }
    if entry.action in ("login", "logout"):
        return {**common, "model": "Authentication", "action": "success", "app": "rota",
                "signature": entry.action, "session_id": name}  # fmt: skip
    return {
        **common,
        "model": "Change",
        "action": _cim_action(entry, kind),
        "change_type": "AAA" if kind in _ACCESS else kind,
        "command": f"{entry.interface or 'rota'} {entry.action}",
        "dvc": installation,
        "object": name,
        "object_id": name,
        "object_category": kind,
        "object_attrs": ",".join(_changed(entry)) or "unknown",
        "status": "success",
    }


_FORMS: Mapping[str, Callable[[AuditEntry, str], Document]] = {"ecs": to_ecs, "cim": to_cim}


def _subject_of(entry: AuditEntry) -> tuple[str, str]:
    """Return the class of what was changed, and its name: of 'queue mail', or of a class alone."""
    kind, _, name = entry.subject.partition(" ")
    return kind, name or kind


def _category(entry: AuditEntry, kind: str) -> str:
    if entry.action in ("login", "logout"):
        return "authentication"
    return "iam" if kind in _ACCESS else "configuration"


def _type(entry: AuditEntry) -> str:
    if entry.action in ("login", "logout"):
        return "start" if entry.action == "login" else "end"
    if entry.action in _GONE:
        return "deletion"
    return "creation" if _is_new(entry) else "change"


def _cim_action(entry: AuditEntry, kind: str) -> str:
    if entry.action in _GONE:
        return "deleted"
    if entry.action == "grant" or (kind == "role" and not _is_new(entry)):
        return "acl_modified"
    if _is_new(entry):
        return "created"
    if entry.action in _STOPS:
        return "stopped"
    return "started" if entry.action in _STARTS else "modified"


def _is_new(entry: AuditEntry) -> bool:
    return entry.action in _MADE and entry.before is None


def _changed(entry: AuditEntry) -> list[str]:
    """Return the names of the fields that differ."""
    before = entry.before if isinstance(entry.before, dict) else {}
    after = entry.after if isinstance(entry.after, dict) else {}
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def _rest(entry: AuditEntry) -> Document:
    # As texts: fields of any shape, under one name, make indexes that refuse later documents.
    found = {
        "namespace": entry.namespace, "subject": entry.subject, "via": entry.via,
        "interface": entry.interface, "before": _text(entry.before), "after": _text(entry.after),
    }  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def _text(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()


def _utc(moment: datetime) -> str:
    at = moment.astimezone(UTC).isoformat(timespec="milliseconds")
    return at.removesuffix("+00:00") + "Z"


def _is_ip(address: str) -> bool:
    try:
        ip_address(address)
    except ValueError:
        return False
    return True
