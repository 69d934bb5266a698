"""Notices in the formats of Slack, PagerDuty and Teams, and by e-mail, to servers on the loopback."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from aiosmtpd.controller import Controller

from rota import App, ConfigError, JobFailed
from rota.node import Node
from rota.operations.notices import body_of, mail, pagerduty, severity_of, teams
from rota.signing import SIGNATURE_HEADER
from tests.support.receiver import Receiver

EVENT: dict[str, Any] = {
    "id": 7, "at": "2027-01-31T09:00:00Z", "namespace": "default", "kind": "dead_lettered",
    "task": "charge", "job_id": "0198c0de-0000-7000-8000-000000000001",
    "detail": {"attempt": 5, "error": "ValueError", "message": "<!channel> *no* [x](http://y)"},
}  # fmt: skip


class Mailbox:
    """A mail server of the test, which may refuse."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.refuse = ""

    async def handle_RCPT(  # noqa: N802 - aiosmtpd's name
        self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
    ) -> str:
        if self.refuse:
            return self.refuse
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        message = message_from_bytes(envelope.content, policy=policy.default)
        self.messages.append((envelope.mail_from, envelope.rcpt_tos, message))
        return "250 OK"


@pytest.fixture
def mailbox() -> Iterator[tuple[Mailbox, str]]:
    box = Mailbox()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    controller = Controller(box, hostname="127.0.0.1", port=port, ready_timeout=60)
    controller.start()
    yield box, f"smtp://127.0.0.1:{port}"
    controller.stop()


def test_pagerduty_gets_an_event_of_its_api():
    body = pagerduty(EVENT, "k" * 32)
    assert (body["routing_key"], body["event_action"]) == ("k" * 32, "trigger")
    assert body["dedup_key"] == "rota/default/dead_lettered/task charge"
    payload = body["payload"]
    assert {"summary", "source", "severity"} <= set(payload)  # which it requires
    assert payload["severity"] == "error"
    assert "charge has failed for good at attempt 5" in payload["summary"]
    long = {**EVENT, "detail": {"message": "x" * 5000, "queue": "q" * 500}}
    assert len(pagerduty(long, "k")["payload"]["summary"]) <= 1024
    assert len(pagerduty(long, "k")["dedup_key"]) <= 255
    assert severity_of({"kind": "node_dead"}) == "critical"


def test_teams_gets_a_card_in_which_what_users_wrote_is_text():
    message = teams(EVENT)
    assert message["type"] == "message"
    [attachment] = message["attachments"]
    assert attachment["contentType"] == "application/vnd.microsoft.card.adaptive"
    card = attachment["content"]
    assert (card["type"], card["version"]) == ("AdaptiveCard", "1.4")
    assert r"\[x\]\(http://y\)" in card["body"][0]["text"]
    assert {"title": "Kind", "value": r"dead\_lettered"} in card["body"][1]["facts"]


def test_a_header_of_a_message_cannot_smuggle_another():
    event = {**EVENT, "task": "charge\r\nBcc: everybody@example.com"}
    message = mail(event, "rota@example.com", "ops@example.com", UUID(int=1))
    assert message["Bcc"] is None
    assert "\n" not in message["Subject"]
    assert json.loads(message.get_content().split("\n\n", 1)[1])["kind"] == "dead_lettered"
    assert json.loads(body_of("json", EVENT, "s")) == EVENT


@pytest.mark.parametrize(
    ("url", "form", "secret", "field"),
    [
        ("mailto:ops", "email", None, "url"), ("https://x.example.com", "email", None, "url"),
        ("mailto:a@b.example\nBcc: c@d", "email", None, "url"),
        ("mailto:ops@example.com", "json", None, "format"),
        ("https://events.pagerduty.com/v2/enqueue", "pagerduty", None, "secret"),
        ("https://x.example.com", "pager", None, "format"),
    ],
)  # fmt: skip
async def test_a_notice_that_cannot_work_is_refused_and_named(
    app: App, url: str, form: Any, secret: str | None, field: str
):
    with pytest.raises(ConfigError) as refused:
        await app.webhooks.add(url, form=form, secret=secret)
    assert list(refused.value.fields) == [field]


@pytest.mark.parametrize("form", ["slack", "pagerduty", "teams"])
async def test_a_notice_arrives_in_its_format(
    make_app: Callable[..., App], receiver: Receiver, form: Any
):
    app = make_app(heartbeat=0.5)
    await app.webhooks.allow("127.0.0.1")
    made = await app.webhooks.add(receiver.url, form=form, secret="k" * 32, kinds=["missed"])
    async with Node(app).running():
        await (await app.webhooks.test(made.id)).result(60)
    [request] = receiver.received
    body = json.loads(request.body)
    shown = {"slack": "text", "pagerduty": "payload", "teams": "attachments"}[form]
    assert "This is a test" in json.dumps(body[shown])
    assert (SIGNATURE_HEADER.lower() in request.headers) == (form != "pagerduty")


async def test_an_event_is_sent_by_mail(make_app: Callable[..., App], mailbox: tuple[Mailbox, str]):
    box, url = mailbox
    app = make_app(heartbeat=0.5, smtp_url=url, smtp_from="rota@example.com")
    # Of a kind that doesn't happen here: on a busy machine there are others.
    made = await app.webhooks.add("mailto:ops@example.com", form="email", kinds=["missed"])
    async with Node(app).running():
        await (await app.webhooks.test(made.id)).result(60)
        [(sender, recipients, message)] = box.messages
        assert (sender, recipients) == ("rota@example.com", ["ops@example.com"])
        assert message["Subject"] == "[default] This is a test: webhooks of Rota arrive here."
        assert message["Auto-Submitted"] == "auto-generated"
        box.refuse = "550 nobody here"
        job = await app.webhooks.test(made.id)
        with pytest.raises(JobFailed, match="refused the recipient"):
            await job.result(60)
    assert (await app.webhooks.get(made.id)).failures == 1
    assert len(box.messages) == 1


async def test_the_mail_server_may_be_in_a_file_that_is_read_for_each_message(
    make_app: Callable[..., App], mailbox: tuple[Mailbox, str], tmp_path: Path
):
    box, url = mailbox
    file = tmp_path / "smtp"
    file.write_text("smtp://")
    app = make_app(heartbeat=0.5, smtp_url_file=file, smtp_from="rota@example.com")
    made = await app.webhooks.add("mailto:ops@example.com", form="email", kinds=["missed"])
    async with Node(app).running():
        job = await app.webhooks.test(made.id)
        with pytest.raises(JobFailed, match=r"smtp_url_file .* has must look like"):
            await job.result(60)
        file.write_text(f"{url}\n")
        await (await app.webhooks.test(made.id)).result(60)
    assert len(box.messages) == 1


async def test_a_worker_without_a_mail_server_says_so(make_app: Callable[..., App]):
    app = make_app(heartbeat=0.5)
    made = await app.webhooks.add("mailto:ops@example.com", form="email")
    async with Node(app).running():
        job = await app.webhooks.test(made.id)
        with pytest.raises(JobFailed, match="ROTA_SMTP_URL"):
            await job.result(60)


@pytest.mark.parametrize(
    "url", ["mail.example.com", "https://mail.example.com", "smtp://", "smtp://a:b"]
)
def test_an_smtp_url_that_names_no_server_is_refused_at_once(url: str):
    with pytest.raises(ConfigError, match="smtp_url must look like"):
        App(smtp_url=url)
