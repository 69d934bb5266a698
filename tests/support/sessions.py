"""Logs in to a server as a browser does, as far as HTTP goes."""

from __future__ import annotations

import re
from typing import Any

import httpx

from tests.support.server_fixtures import LiveServer


async def log_in(server: LiveServer, **given: Any) -> tuple[httpx.AsyncClient, str]:
    """A browser with a session, and its CSRF token."""
    link = await server.link(**given)
    browser = await server.client(None)
    answer = await browser.post("/login/link", json={"link": link})
    assert answer.status_code == 200, answer.text
    return browser, answer.json()["csrf"]


async def enter(server: LiveServer, role: str = "admin", namespace: str = "*") -> httpx.AsyncClient:
    """A browser with a session, as far as HTTP goes."""
    link = await server.link(role=role, namespace=namespace)
    browser = await server.client(None)
    browser.headers["Accept"] = "text/html"
    assert (await browser.post("/login/link", json={"link": link})).status_code == 200
    return browser


def csrf_of(page: httpx.Response) -> str:
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page.text)
    assert found, "there is no form on this page"
    return found[1]
