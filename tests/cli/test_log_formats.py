"""Logs and audit records for Elasticsearch and Splunk: cli/logs.py and core/audit_formats.py."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rota import App
from rota.cli.logs import EcsFormatter, LogFields
from rota.core.administration import AuditEntry
from rota.core.audit_formats import to_cim, to_ecs
from rota.lib.ids import new_id
from tests.support import log_conventions as known
from tests.support.command_line import run

CHANGES = [
    ("pause", "queue mail", {"paused": False}, {"paused": True}),
    ("put", "maintenance move", None, {"name": "move"}),
    ("put", "maintenance move", {"name": "move"}, {"name": "move", "note": "x"}),
    ("create", "token ab12cd34", None, {"role": "viewer"}),
    ("revoke", "token ab12cd34", {"role": "viewer"}, None),
    ("set", "role mailer", {"permissions": []}, {"permissions": ["jobs:read"]}),
    ("grant", "role rota_worker", None, {"purpose": "worker"}),
    ("login", f"session {new_id()}", None, None),
    ("logout", f"session {new_id()}", None, None),
    ("resume", "schedule nightly", None, None),
    ("erase", f"person {new_id()}", None, None),
    ("migrate", "schema", None, ["0001_jobs"]),
]


def entry(change: tuple[str, str, Any, Any], address: str | None = "192.0.2.7") -> AuditEntry:
    action, subject, before, after = change
    return AuditEntry(
        id=7, at=datetime(2030, 1, 2, 3, 4, 5, 600_000, UTC), namespace="default", actor="ada@db1",
        via="token ab12cd34", action=action, subject=subject, before=before, after=after,
        request_id="r-1", address=address, interface="rest",
    )  # fmt: skip


def check_ecs(document: dict[str, Any]) -> None:
    assert document.keys() >= known.ECS_REQUIRED
    kinds: dict[str, Any] = {"array": list, "long": int, "object": dict}
    for name, value in document.items():
        if name != "rota":
            assert isinstance(value, kinds.get(known.ECS[name], str)), name
    assert datetime.fromisoformat(document["@timestamp"]).tzinfo is not None
    for value in document.get("labels", {}).values():
        assert isinstance(value, str)
    if "source.ip" in document:
        ipaddress.ip_address(document["source.ip"])
    for category in document.get("event.category", []):
        assert set(document["event.type"]) <= known.ECS_TYPES[category]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{change[0]}-{change[1][:8]}")
def test_a_change_is_in_the_fields_of_both(change: tuple[str, str, Any, Any]) -> None:
    check_ecs(to_ecs(entry(change), "production"))
    cim = to_cim(entry(change), "production")
    if cim["model"] == "Authentication":
        assert cim.keys() >= known.CIM_AUTHENTICATION
        assert cim["action"] in known.CIM_AUTHENTICATION_ACTIONS
    else:
        assert cim.keys() >= known.CIM_CHANGE
        assert cim["action"] in known.CIM_ACTIONS
        assert cim["status"] in known.CIM_STATUS
    assert all(cim.values())


def test_what_happened_is_told_apart() -> None:
    told = [(to_ecs(entry(each), "p")["event.type"], to_cim(entry(each), "p")["action"])
            for each in CHANGES]  # fmt: skip
    assert told == [
        (["change"], "stopped"), (["creation"], "created"), (["change"], "modified"),
        (["creation"], "created"), (["deletion"], "deleted"), (["change"], "acl_modified"),
        (["change"], "acl_modified"), (["start"], "success"), (["end"], "success"),
        (["change"], "started"), (["deletion"], "deleted"), (["change"], "modified"),
    ]  # fmt: skip
    assert to_cim(entry(CHANGES[5]), "p")["object_attrs"] == "permissions"
    assert to_cim(entry(CHANGES[0], None), "p")["src"] == "db1"
    assert "source.ip" not in to_ecs(entry(CHANGES[0], "a unix socket"), "p")


def test_an_export_can_be_in_either_format(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def change() -> None:
        async with App() as app:
            await app.queues.pause("mail")

    asyncio.run(change())
    monkeypatch.setenv("ROTA_INSTALLATION", "production")
    file = tmp_path / "audit"
    for form in ("ecs", "cim", "json"):
        given = ("--from", "-1h", "--format", form, "--action", "pause")
        assert run("audit", "export", str(file), *given).code == 0
        [line] = map(json.loads, file.read_text().splitlines())
        if form == "ecs":
            check_ecs(line)
            assert (line["event.action"], line["service.id"]) == ("pause", "production")
        elif form == "cim":
            assert (line["dest"], line["object"], line["object_category"]) == (
                "production", "mail", "queue")  # fmt: skip
        else:
            assert line["subject"] == "queue mail"


def test_a_log_record_is_in_the_fields_of_the_common_schema() -> None:
    fields = LogFields()
    node = new_id()
    fields.node = lambda: node
    fields.redactor.learn({"swordfish-4711-of-the-payroll"})
    formatter = EcsFormatter(fields)
    plain = logging.LogRecord("rota.node", logging.INFO, "f", 1, "node %s", ("up",), None)
    document = json.loads(formatter.format(plain))
    check_ecs(document)
    assert (document["log.level"], document["service.node.name"]) == ("info", str(node))
    try:
        raise ValueError("the key of it is swordfish-4711-of-the-payroll")
    except ValueError:
        failed = logging.LogRecord("rota.jobs", 40, "f", 1, "it failed", (), sys.exc_info())
    text = formatter.format(failed)
    check_ecs(json.loads(text))
    assert json.loads(text)["error.type"] == "builtins.ValueError"
    assert "Traceback" in json.loads(text)["error.stack_trace"]
    assert "swordfish" not in text
