"""Requests whose address others chose don't reach our own network, however it is written."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from ipaddress import ip_address
from typing import Any

import pytest

from rota.lib.net.guard import ForbiddenAddress, check_url, is_public
from rota.lib.net.post import RequestFailed, post
from tests.support.addresses import FORBIDDEN
from tests.support.receiver import Receiver

UNREADABLE = [
    "ftp://8.8.8.8/",
    "file:///etc/passwd",
    "gopher://8.8.8.8/",
    "//8.8.8.8/",
    "8.8.8.8",
    "http://",
    "http://user:secret@8.8.8.8/",
    "http://8.8.8.8@127.0.0.1/",
    "http://@8.8.8.8/",
    "http://8.8.8.8%2f@127.0.0.1/",
    "http://8.8.8.8#@127.0.0.1/\t",
    "http://8.8.8.8\\@127.0.0.1/",
    "http://8.8.8.8 /",
    "http://8.8.8.8/\r\nHost: evil",
    "http://8.8.8.8:0/",
    "http://8.8.8.8:99999/",
    "http://[::1/",
    "http://\uff11\uff12\uff17.0.0.1/",
    "http://8.8.8.8/" + "x" * 2000,
]


@pytest.mark.parametrize("url", FORBIDDEN)
async def test_addresses_that_are_not_public_are_refused(url: str) -> None:
    with pytest.raises(ForbiddenAddress):
        await check_url(url)


@pytest.mark.parametrize("url", UNREADABLE)
async def test_urls_that_could_be_read_in_two_ways_are_refused(url: str) -> None:
    with pytest.raises(ForbiddenAddress):
        await check_url(url, allowed=["0.0.0.0/0", "::/0"])


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_public_addresses_are_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    ("url", "entry"),
    [
        ("http://127.0.0.1:8080/", "127.0.0.1"),
        ("http://127.0.0.1:8080/", "127.0.0.0/8"),
        ("http://[::ffff:127.0.0.1]/", "127.0.0.0/8"),
        ("http://localhost:8080/", "LOCALHOST"),
        ("http://localhost:8080/", "localhost:8080"),
    ],
)
async def test_what_is_allowed_may_be_gone_to(url: str, entry: str) -> None:
    assert (await check_url(url, [entry])).port in (80, 8080)


@pytest.mark.parametrize("entry", ["localhost:9", "10.0.0.0/8", "example.com", "::/0"])
async def test_other_allowances_dont_help(entry: str) -> None:
    with pytest.raises(ForbiddenAddress):
        await check_url("http://127.0.0.1:8080/", [entry])


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """What a name resolves to, one answer after the other."""
    answers: list[list[str]] = []

    async def getaddrinfo(_self: Any, host: str, port: int, **_: Any) -> list[Any]:
        addresses = answers.pop(0)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in addresses]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    return answers


async def test_one_bad_address_condemns_the_name(resolver: list[list[str]]) -> None:
    resolver.append(["8.8.8.8", "10.0.0.1"])
    with pytest.raises(ForbiddenAddress, match=r"10\.0\.0\.1"):
        await check_url("http://two-faced.example/")


async def test_a_name_that_changes_its_mind_is_asked_once(
    resolver: list[list[str]], receiver: Receiver
) -> None:
    """Rebinding: the second answer would be another one, and is never asked for."""
    resolver.append(["127.0.0.1"])
    resolver.append(["10.255.255.1"])
    target = await check_url(f"http://rebinding.example:{receiver.port}/x?y=1", ["127.0.0.1"])
    answer = await post(target, b"{}", {})
    assert answer.status == 204
    assert len(resolver) == 1
    assert receiver.received[0].path == "/x?y=1"
    assert receiver.received[0].headers["host"] == f"rebinding.example:{receiver.port}"


async def test_redirects_are_not_followed(receiver: Receiver) -> None:
    receiver.answers.append((302, {"location": receiver.url}))
    target = await check_url(receiver.url, ["127.0.0.1"])
    assert (await post(target, b"{}", {})).status == 302
    assert len(receiver.received) == 1


async def test_a_header_cannot_smuggle_another(receiver: Receiver) -> None:
    target = await check_url(receiver.url, ["127.0.0.1"])
    with pytest.raises(RequestFailed, match="can't be sent"):
        await post(target, b"{}", {"Rota-Event": "x\r\nEvil: 1"})


@pytest.mark.parametrize(
    "answer", [b"nonsense\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"", b"x" * 50_000]
)
async def test_nonsense_is_no_answer(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            with contextlib.suppress(ConnectionError):  # whoever has read enough may be gone
                await writer.drain()
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        target = await check_url(f"http://127.0.0.1:{port}/", ["127.0.0.1"])
        with pytest.raises(RequestFailed):
            await post(target, b"{}", {})


async def test_silence_is_not_waited_for_long() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:  # also when the test has ended
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        target = await check_url(f"http://127.0.0.1:{port}/", ["127.0.0.1"])
        with pytest.raises(RequestFailed, match="did not answer within"):
            await post(target, b"{}", {}, timeout=0.2)
