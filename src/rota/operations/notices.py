"""Events in the formats of those who are told: Slack, PagerDuty, Microsoft Teams, e-mail.

What users wrote (names of tasks, messages of errors) is data in all of them, and must not become a
mention, a link or a header.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.message import EmailMessage
from typing import Any
from uuid import UUID

import msgspec

from rota.errors import ConfigError
from rota.operations.event_text import sentence, slack

FORMATS = ("json", "slack", "pagerduty", "teams", "email")
_ADDRESS = re.compile(r"[^@\s<>,;:\"()\[\]\\]{1,64}@[A-Za-z0-9.-]{1,190}")
_CRITICAL = frozenset({"node_dead"})
_ERRORS = frozenset({
    "dead_lettered", "deadline_missed", "missed", "set_aside", "run_failed", "run_parked",
})  # fmt: skip
_MOST_SUMMARY = 1024  # characters of a summary that PagerDuty takes
_MOST_SUBJECT = 200


def check_target(form: str, url: str, secret: str | None) -> None:
    """Refuse what a format can't work with: an address that is none, a key that is missing."""
    if form not in FORMATS:
        raise ConfigError(f"format {form!r} is not one of: {', '.join(FORMATS)}", field="format")
    if form == "email":
        recipient_of(url)
    elif url.startswith("mailto:"):
        raise ConfigError("mailto: goes with the format email", field="format")
    if form == "pagerduty" and not secret:
        raise ConfigError(
            "PagerDuty needs the integration key of your service (Events API v2): give it as the secret",
            field="secret",
        )


def recipient_of(url: str) -> str:
    address = url.removeprefix("mailto:")
    if not url.startswith("mailto:") or not _ADDRESS.fullmatch(address):
        raise ConfigError(
            f"{url!r} is not an address for e-mail: write mailto:ops@example.com", field="url"
        )
    return address


def body_of(form: str, event: Mapping[str, Any], secret: str) -> bytes:
    """Return the body of a delivery by HTTP."""
    match form:
        case "slack":
            return msgspec.json.encode(slack(event))
        case "pagerduty":
            return msgspec.json.encode(pagerduty(event, secret))
        case "teams":
            return msgspec.json.encode(teams(event))
        case _:
            return msgspec.json.encode(event)


def severity_of(event: Mapping[str, Any]) -> str:
    """Return critical, error, warning or info."""
    kind = event.get("kind")
    if kind in _CRITICAL:
        return "critical"
    if kind in _ERRORS:
        return "error"
    return "info" if kind == "test" else "warning"


def subject_of(event: Mapping[str, Any]) -> str:
    """Return what an event is about: events of the same kind and subject are one incident."""
    detail = event.get("detail") or {}
    for name in ("schedule", "queue", "name", "run"):
        if found := detail.get(name):
            return f"{name} {found}"
    task = event.get("task")
    return f"task {task}" if task else "installation"


def pagerduty(event: Mapping[str, Any], routing_key: str) -> dict[str, Any]:
    """Return an event of PagerDuty's Events API v2."""
    namespace, kind, subject = event.get("namespace"), event.get("kind"), subject_of(event)
    payload = {
        "summary": f"[{namespace}] {sentence(event)}"[:_MOST_SUMMARY],
        "source": f"rota/{namespace}",
        "severity": severity_of(event),
        "component": subject,
        "group": namespace,
        "class": kind,
        "custom_details": {"job_id": event.get("job_id"), **(event.get("detail") or {})},
    }
    if at := event.get("at"):
        payload["timestamp"] = at
    return {
        "routing_key": routing_key, "event_action": "trigger", "payload": payload,
        # At most 255 characters; the same for what belongs to one incident.
        "dedup_key": f"rota/{namespace}/{kind}/{subject}"[:255],
    }  # fmt: skip


def teams(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with an Adaptive Card, as webhooks of Teams' workflows take it."""
    facts = [("Namespace", event.get("namespace")), ("Kind", event.get("kind")),
             ("Job", event.get("job_id")), ("At", event.get("at"))]  # fmt: skip
    color = {"critical": "attention", "error": "attention", "warning": "warning"}
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [
            {"type": "TextBlock", "text": _plain(sentence(event))[:3000], "wrap": True,
             "weight": "bolder", "color": color.get(severity_of(event), "default")},
            {"type": "FactSet", "facts": [
                {"title": title, "value": _plain(str(value))} for title, value in facts if value
            ]},
        ],
    }  # fmt: skip
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def _plain(text: str) -> str:
    """Keep Markdown of what users wrote from being one: cards show links and emphasis."""
    return re.sub(r"([\\`*_\[\]()<>#])", r"\\\1", text)


def mail(event: Mapping[str, Any], sender: str, recipient: str, delivery: UUID) -> EmailMessage:
    """Return a message. Two of the same id are the same delivery, sent twice."""
    text = sentence(event)
    message = EmailMessage()
    message["From"], message["To"] = sender, recipient
    subject = " ".join(f"[{event.get('namespace')}] {text}".split())
    message["Subject"] = subject[:_MOST_SUBJECT]
    message["Message-ID"] = f"<{delivery}@rota.invalid>"
    message["Auto-Submitted"] = "auto-generated"  # nobody's absence notice answers it
    message["Rota-Event"] = str(event.get("kind"))
    shown = json.dumps(dict(event), indent=2, default=str, ensure_ascii=False)
    message.set_content(f"{text}\n\n{shown}\n")
    return message
