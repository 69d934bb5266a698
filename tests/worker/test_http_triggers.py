"""Signed messages over HTTP: server/api/inboxes.py, worker/sources/inbox.py, core/deliveries.py."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from typing import Any

import httpx
import pytest

from rota import App
from rota.core.deliveries import Refused, check_delivery, kept_headers
from rota.errors import ConfigError
from rota.operations.triggers import make_trigger
from rota.signing import sign_message
from rota.store.database import Database
from rota.worker.sources import SourceUnavailable
from tests.support.brokers import reader, ticks
from tests.support.encrypted import OLD as OLD_KEY
from tests.support.encrypted import encrypt
from tests.support.sandboxes import isolated
from tests.support.server_fixtures import LiveServer, serving

SECRET = "a secret of some length"
OLD = "the secret before this one"


class Sender:
    """Sends signed messages to the trigger `take`."""

    def __init__(self, sandbox: Any, live: LiveServer, client: httpx.AsyncClient) -> None:
        self.sandbox, self.live, self.client = sandbox, live, client

    async def now(self) -> int:
        database = (await self.sandbox.app.store()).database
        schema = self.sandbox.app.settings.schema
        async with database.connection() as connection:
            return int(await connection.fetchval(f"select extract(epoch from {schema}.now())"))

    async def post(self, body: Any, delivery: str, secret: str = SECRET, late: int = 0) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        signature = sign_message(secret, delivery, raw, await self.now() - late)
        headers = {"Rota-Signature": signature, "Rota-Delivery": delivery}
        return await self.client.post("/v1/triggers/take/messages", content=raw, headers=headers)


def declare(sandbox: Any, source: str = "http:rota", **settings: Any) -> None:
    async def take(order: int) -> int:
        return order

    sandbox.app.on(source, **{"secret": SECRET, **settings})(take)


@pytest.fixture
async def sandbox(database_url):
    async with isolated(App(database_url=database_url, node_name="test", port=0)) as sandbox:
        yield sandbox


@pytest.fixture
async def sender(sandbox, hot):
    async with serving(sandbox.app) as live:
        yield Sender(sandbox, live, await live.client(None))


async def orders(sandbox) -> list[int]:
    return sorted(job.payload["order"] for job in await sandbox.jobs())


async def test_a_signed_message_becomes_one_job_however_often_it_is_sent(sandbox, hot, sender):
    declare(sandbox)
    one = await reader(sandbox, hot)
    await one.tick()
    answers = await asyncio.gather(*(sender.post({"order": 1}, "first") for _ in range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert sorted(answer.json()["repeated"] for answer in answers) == [False, *[True] * 7]
    await sender.post({"order": 2}, "second")
    await ticks(one, 2)
    assert (await sender.post({"order": 1}, "first")).json() == {
        "delivery": "first", "repeated": True,
    }  # fmt: skip
    await one.tick()
    assert await orders(sandbox) == [1, 2]
    jobs = await sandbox.jobs()
    assert {job.headers["trigger"] for job in jobs} == {"take"}
    assert (await sandbox.app.triggers.get("take")).source == "http:"
    await one.leave()


async def test_what_is_not_signed_or_old_or_elsewhere_is_refused_alike(sandbox, hot, sender):
    declare(sandbox)
    one = await reader(sandbox, hot)
    await one.tick()
    good = await sender.post({"order": 1}, "good")
    assert good.status_code == 202
    answers = [
        await sender.post({"order": 2}, "wrong", secret="another secret altogether"),
        await sender.post({"order": 2}, "late", late=301),
        await sender.post({"order": 2}, "early", late=-301),
        await sender.post({"order": 2}, ""),
        await sender.client.post("/v1/triggers/take/messages", json={"order": 2}),
        await sender.client.post("/v1/triggers/nothing/messages", json={"order": 2}),
        await sender.client.post("/v1/triggers/take/messages?namespace=other", json={"order": 2}),
    ]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.json()["detail"] for answer in answers}) == 1
    await ticks(one, 1)
    assert await orders(sandbox) == [1]
    await one.leave()


async def test_the_id_is_signed_so_that_a_captured_request_is_no_second_message(
    sandbox, hot, sender
):
    declare(sandbox)
    one = await reader(sandbox, hot)
    await one.tick()
    raw, at = b'{"order": 1}', await sender.now()
    for delivery in ("real", "forged"):
        headers = {
            "Rota-Signature": sign_message(SECRET, "real", raw, at),
            "Rota-Delivery": delivery,
        }
        answer = await sender.client.post(
            "/v1/triggers/take/messages", content=raw, headers=headers
        )
        assert answer.status_code == (202 if delivery == "real" else 404)
    await one.leave()


async def test_two_secrets_are_good_while_one_is_changed(sandbox, hot, sender):
    declare(sandbox, secret=[SECRET, OLD])
    one = await reader(sandbox, hot)
    await one.tick()
    assert (await sender.post({"order": 1}, "new")).status_code == 202
    assert (await sender.post({"order": 2}, "old", secret=OLD)).status_code == 202
    await one.leave()
    spec = make_trigger("http:rota", "take", None, SECRET)
    sandbox.app.triggers.declared["take"] = spec
    other = await reader(sandbox, hot)
    await ticks(other, 2)
    assert (await sender.post({"order": 3}, "old2", secret=OLD)).status_code == 404
    assert (await sender.post({"order": 3}, "new2")).status_code == 202
    await other.leave()


async def test_messages_wait_while_paused_and_a_rewind_reads_them_again(sandbox, hot, sender):
    declare(sandbox)
    one = await reader(sandbox, hot)
    await one.tick()
    await sandbox.app.triggers.pause("take")
    for number in range(3):
        await sender.post({"order": number}, f"m{number}")
    one._lag_at = 0.0
    await one.tick()
    assert await orders(sandbox) == []
    assert (await sandbox.app.triggers.get("take")).lag == 3
    await sandbox.app.triggers.resume("take")
    await ticks(one, 3)
    await sandbox.app.triggers.rewind("take", "2")
    await ticks(one, 4)
    assert await orders(sandbox) == [0, 1, 2, 2]
    await sandbox.app.triggers.rewind("take", "yesterday")
    with pytest.raises(SourceUnavailable, match="yesterday"):
        await one.tick()
    await one.leave()


async def test_what_was_taken_before_the_first_read_is_read(sandbox, hot, sender):
    """Also by a trigger that starts with what is new: 202 is a promise."""
    declare(sandbox, start="new")
    one = await reader(sandbox, hot)
    await one.tick()
    await sender.post({"order": 1}, "a")
    await hot.fetch("declare_trigger", "default", "take", "take", "elsewhere", None)
    await hot.fetch("declare_trigger", "default", "take", "take", "http:", None)  # begins anew
    await ticks(one, 1)
    assert await orders(sandbox) == [1]
    await one.leave()


async def prune(one: Any, position: str) -> None:
    one._source._prune_at = 0.0
    await one._source.lag(position)


async def test_messages_are_kept_for_a_week_after_they_were_read_and_until_they_are(
    sandbox, hot, sender
):
    """However long before that they came: a rewind and a repeated delivery need them."""
    declare(sandbox)
    one = await reader(sandbox, hot)
    await one.tick()
    await sandbox.app.triggers.pause("take")
    await sender.post({"order": 1}, "late")
    await prune(one, "0")
    await sandbox.advance(days=8)
    await prune(one, "0")
    await sandbox.app.triggers.resume("take")
    await ticks(one, 1)
    await prune(one, "1")
    await sandbox.advance(days=6)
    await prune(one, "1")
    assert (await sender.post({"order": 1}, "late")).json()["repeated"]
    await sender.post({"order": 2}, "unread")
    for _ in range(2):
        await sandbox.advance(days=8)
        await prune(one, "1")
    left = await hot.fetch("read_inbox", "default", "take", 0, 10, 1000)
    assert [row["delivery"] for row in left] == ["unread"]
    await one.leave()


async def test_as_many_messages_are_removed_as_can_come(sandbox, hot, sender):
    declare(sandbox)
    one = await reader(sandbox, hot)
    await one.tick()
    async with hot.connection() as connection:
        await connection.execute(
            f"insert into {hot.schema}.inbox_message (namespace, name, number, id, delivery, body, "
            "sealed, headers) select 'default', 'take', n, gen_random_uuid(), n, 'x', false, '{}' "
            "from generate_series(1, 3500) as n"
        )
    await prune(one, "3500")
    await sandbox.advance(days=8)
    await prune(one, "3500")
    assert await hot.fetch("read_inbox", "default", "take", 0, 10, 1000) == []
    await one.leave()


async def test_large_messages_are_read_in_small_batches(sandbox, hot, sender):
    """A batch is held in memory: 5000 messages of 1 MiB would not fit."""
    declare(sandbox, batch=5000)
    one = await reader(sandbox, hot)
    await one.tick()
    for number in range(40):
        body = json.dumps({"order": number, "rest": "x" * 900_000}).encode()
        assert (await sender.post(body, f"m{number}")).status_code == 202
    read = await one._source.read(None, 5000, 1.0)
    assert 1 <= sum(len(message.body) for message in read.messages) <= 17_000_000
    assert read.messages[0].position == "1"
    rest = await one._source.read(read.position, 5000, 1.0)
    assert int(rest.messages[0].position) == int(read.position) + 1
    await one.leave()


async def test_poison_is_a_dead_letter_and_headers_reach_the_filter(sandbox, hot, sender):
    seen = []
    declare(sandbox, where=lambda message: seen.append(message) or True)
    one = await reader(sandbox, hot)
    await one.tick()
    assert (await sender.post(b"\xff no json", "bad")).status_code == 202
    status = await ticks(one, 1)
    assert (status.jobs, status.dead) == (0, 1)
    assert seen[0].headers["delivery"] == "bad"
    assert seen[0].topic == "take"
    await one.leave()


async def test_a_body_has_a_limit_and_no_body_is_read_without_a_signature(sandbox, hot, sender):
    declare(sandbox)
    one = await reader(sandbox, hot)
    await one.tick()
    assert (await sender.post(b"x" * 1_048_577, "large")).status_code == 413
    assert (await sender.post(b'"' + b"x" * 900_000 + b'"', "fits")).status_code == 202
    await one.leave()


async def test_an_encrypted_namespace_stores_no_body_in_the_clear(database_url):
    app = App(database_url=database_url, encryption_keys=OLD_KEY, port=0)
    async with isolated(app) as sandbox:
        await encrypt(sandbox.app)
        settings = sandbox.app.settings
        hot = Database(settings.database_url or "", settings, hot=True)
        await hot.open()
        async with serving(sandbox.app) as live:
            declare(sandbox)
            one = await reader(sandbox, hot)
            await one.tick()
            sender = Sender(sandbox, live, await live.client(None))
            assert (await sender.post({"order": 4711}, "a")).status_code == 202
            [row] = await hot.fetch("read_inbox", "default", "take", 0, 10, 1000)
            assert row["sealed"]
            assert b"4711" not in row["body"]
            await ticks(one, 1)
            assert await orders(sandbox) == [4711]
            await one.leave()
        await hot.close()


async def test_a_removed_trigger_takes_no_messages_and_forgets_those_it_had(sandbox, hot, sender):
    declare(sandbox)
    one = await reader(sandbox, hot)
    await one.tick()
    await sender.post({"order": 1}, "a")
    await sandbox.app.triggers.remove("take")
    assert (await sender.post({"order": 1}, "b")).status_code == 404
    await one.tick()  # declares it again
    await one.tick()
    await one.tick()
    assert (await sender.post({"order": 3}, "a")).status_code == 202
    await ticks(one, 1)
    assert await orders(sandbox) == [3]
    await one.leave()


def stripe(body: bytes, at: int, secret: str = SECRET) -> str:
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={'0' * 64},v1={digest},v0=old"


def test_the_form_of_stripe():
    body = b'{"id": "evt_1", "type": "charge.succeeded"}'
    given = {"stripe-signature": stripe(body, 1000)}
    assert check_delivery("stripe", [OLD, SECRET], given, body, 1200.0) == "evt_1"
    with pytest.raises(Refused, match="seconds old"):
        check_delivery("stripe", [SECRET], given, body, 1301.0)
    with pytest.raises(Refused, match="not made with"):
        check_delivery("stripe", [SECRET], given, body + b" ", 1000.0)
    with pytest.raises(Refused, match="field id"):
        check_delivery("stripe", [SECRET], {"stripe-signature": stripe(b"[]", 1000)}, b"[]", 1000.0)


def test_the_form_of_github_with_the_example_of_its_documentation():
    secret, body = "It's a Secret to Everybody", b"Hello, World!"
    digest = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    given = {"x-hub-signature-256": f"sha256={digest}", "x-github-delivery": "72d3162e"}
    assert check_delivery("github", [secret], given, body, 0.0) == "72d3162e"
    with pytest.raises(Refused, match="not made with"):
        check_delivery("github", [SECRET], given, body, 0.0)
    with pytest.raises(Refused, match="X-GitHub-Delivery"):
        check_delivery("github", [secret], {**given, "x-github-delivery": ""}, body, 0.0)


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "t=,v1=",
        "v1=" + "0" * 64,
        "t=1000",
        "t=1000,v1=",
        "t=²,v1=0",
        "t=" + "9" * 40,
        "=,=,",
        "é",
    ],
)
def test_a_signature_that_makes_no_sense_is_refused(signature):
    given = {"rota-signature": signature, "rota-delivery": "a"}
    with pytest.raises(Refused):
        check_delivery("rota", [SECRET], given, b"{}", 1000.0)


def test_signatures_and_keys_are_not_kept():
    given = {"x-github-event": "push", "x-hub-signature-256": "s", "authorization": "b",
             "x-api-key": "k", "content-type": "application/json", "cookie": "c",
             "x-forwarded-for": "1.2.3.4"}  # fmt: skip
    assert kept_headers(given) == {"x-github-event": "push", "content-type": "application/json"}


def test_a_secret_is_not_shown():
    assert SECRET not in repr(make_trigger("http:rota", "take", None, SECRET))


@pytest.mark.parametrize(
    ("source", "settings", "says"),
    [
        ("http:paypal", {"secret": SECRET}, "http:rota, http:github"),
        ("http:rota", {}, "needs secret"),
        ("http:rota", {"secret": "short"}, "needs secret"),
        ("http:rota", {"secret": [SECRET, ""]}, "needs secret"),
        ("redis://localhost/x", {"secret": SECRET}, "password is in its address"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(source, settings, says):
    with pytest.raises(ConfigError, match=says):

        @App().on(source, **settings)
        async def take(order: int) -> None: ...
