"""Log-in with OpenID Connect, against a provider of our own that lies when it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from joserfc import jwk

from rota import App, ConfigError
from rota.lib.ids import new_id
from rota.server.identity.oidc import OpenIDConnect
from tests.support.api import query
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET, Provider, providing
from tests.support.server_fixtures import LiveServer, serving


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with providing() as running:
        yield running


@pytest.fixture
async def server(make_app: Callable[..., App], provider: Provider) -> AsyncIterator[LiveServer]:
    app = make_app(port=0, oidc_issuer=provider.issuer, oidc_client_id=CLIENT_ID,
                   oidc_client_secret=CLIENT_SECRET)  # fmt: skip
    async with serving(app) as live:
        await know(live, "ada@example.org")
        yield live


async def know(server: LiveServer, name: str) -> None:
    person = await server.context.identity.put_user(new_id(), name, None)
    await server.context.identity.put_membership(person, "default", "operator")


async def begin(server: LiveServer) -> tuple[httpx.AsyncClient, str]:
    """A browser that was at the provider, and the address that it is sent back to."""
    browser = await server.client(None)
    away = await browser.get("/login/oidc")
    assert away.status_code == 302
    async with httpx.AsyncClient(timeout=60) as outside:
        back = await outside.get(away.headers["location"])
    assert back.status_code == 302
    return browser, back.headers["location"]


async def log_in(server: LiveServer) -> tuple[httpx.AsyncClient, httpx.Response]:
    browser, back = await begin(server)
    return browser, await browser.get(back)


async def test_who_is_known_is_let_in(server: LiveServer, provider: Provider):
    assert "/login/oidc" in (await (await server.client(None)).get("/login")).text
    browser, answer = await log_in(server)
    assert (answer.status_code, answer.headers["location"]) == (302, "/")
    me = (await browser.get("/v1/session")).json()
    assert (me["name"], me["role"]) == ("ada@example.org", "operator")
    assert provider.exchanged == 1
    [row] = await query(server, "select issuer, subject from {}.user_account")
    assert tuple(row) == (provider.issuer, "user-1")


async def test_a_person_is_recognised_by_the_providers_id_after_that(server, provider: Provider):
    await log_in(server)
    provider.claims["email"] = "married@example.org"
    browser, answer = await log_in(server)
    assert answer.status_code == 302
    assert (await browser.get("/v1/session")).json()["name"] == "ada@example.org"


async def test_the_same_address_with_another_id_is_another_person(server, provider: Provider):
    await log_in(server)
    provider.claims["sub"] = "user-2"
    _, answer = await log_in(server)
    assert answer.status_code == 403


@pytest.mark.parametrize("claims", [
    {"email": "eve@example.org"}, {"email_verified": False}, {"email_verified": "true"},
    {"email": None},
])  # fmt: skip
async def test_who_is_not_known_or_not_vouched_for_is_not(server, provider: Provider, claims):
    provider.claims.update(claims)
    browser, answer = await log_in(server)
    assert answer.status_code == 403
    assert "rota users add" in answer.json()["detail"]
    assert (await browser.get("/v1/session")).status_code == 401


@pytest.mark.parametrize("spoilt", [
    {"nonce": "another"}, {"aud": "another"}, {"iss": "https://evil.example"}, {"exp": 1},
    {"aud": [CLIENT_ID, "another"]}, {"sub": None},
], ids=str)  # fmt: skip
async def test_an_id_token_that_is_not_for_this_log_in_is_refused(server, provider, spoilt: Any):
    provider.spoilt = spoilt
    browser, answer = await log_in(server)
    assert answer.status_code == 403
    assert not await query(server, "select from {}.session")
    assert (await browser.get("/v1/session")).status_code == 401


async def test_an_id_token_signed_by_somebody_else_is_refused(server, provider: Provider):
    provider.signs_with = jwk.ECKey.generate_key("P-256", {"kid": "one"})
    _, answer = await log_in(server)
    assert answer.status_code == 403


async def test_a_log_in_belongs_to_the_browser_that_began_it(server: LiveServer):
    """Else somebody could log a victim's browser in to an account of their own."""
    _, back = await begin(server)
    victim = await server.client(None)
    answer = await victim.get(back)
    assert (answer.status_code, answer.json()["code"]) == (403, "csrf")
    assert not await query(server, "select from {}.session")


async def test_a_log_in_can_not_be_replayed(server: LiveServer):
    browser, back = await begin(server)
    state = browser.cookies.get("rota_oidc")
    assert (await browser.get(back)).status_code == 302
    again = await server.client(None)
    answer = await again.get(back, headers={"Cookie": f"rota_oidc={state}"})
    assert (answer.status_code, answer.json()["code"]) == (403, "csrf")


async def test_another_code_than_that_of_this_log_in_does_not_fit_its_verifier(server, provider):
    _, stolen = await begin(server)
    browser, back = await begin(server)
    swapped = httpx.URL(back).copy_set_param("code", httpx.URL(stolen).params["code"])
    assert (await browser.get(swapped)).status_code == 403
    assert provider.exchanged == 0


async def test_a_refusal_of_the_provider_is_told(server: LiveServer):
    browser = await server.client(None)
    answer = await browser.get("/login/oidc/callback?error=access_denied&state=x")
    assert answer.status_code == 403


async def test_a_provider_that_is_away_is_503(make_app):
    app = make_app(port=0, oidc_issuer="http://127.0.0.1:9", oidc_client_id="x",
                   oidc_client_secret="y")  # fmt: skip
    async with serving(app) as live:
        assert (await (await live.client(None)).get("/login/oidc")).status_code == 503


async def test_half_a_configuration_is_refused(make_app):
    app = make_app(port=0, oidc_issuer="https://id.example")
    with pytest.raises(ConfigError, match="oidc_client_id and oidc_client_secret"):
        OpenIDConnect(app.settings, None)  # type: ignore[arg-type]
