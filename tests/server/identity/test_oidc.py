"""Log-in with OpenID Connect, against a provider of our own that lies when it is told to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwk

from rota import App, ConfigError
from rota.core.groups import parse_groups
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


async def test_a_secret_in_a_file_is_read_at_each_login(
    make_app: Callable[..., App], provider: Provider, tmp_path: Path
):
    file = tmp_path / "secret"
    file.write_text("of last month")
    app = make_app(port=0, oidc_issuer=provider.issuer, oidc_client_id=CLIENT_ID,
                   oidc_client_secret_file=file)  # fmt: skip
    async with serving(app) as live:
        await know(live, "ada@example.org")
        assert (await log_in(live))[1].status_code == 403
        file.write_text(f"{CLIENT_SECRET}\n")
        assert (await log_in(live))[1].status_code == 302
        file.unlink()
        assert (await log_in(live))[1].status_code == 403


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
        OpenIDConnect(app.settings, None, None)  # type: ignore[arg-type]


# -- groups

GROUPS = '{"sre": "operator", "platform": "admin@*", "cn=pay,dc=x": ["viewer", "operator@billing"]}'


@pytest.fixture
async def grouped(make_app: Callable[..., App], provider: Provider) -> AsyncIterator[LiveServer]:
    app = make_app(port=0, oidc_issuer=provider.issuer, oidc_client_id=CLIENT_ID,
                   oidc_client_secret=CLIENT_SECRET, oidc_groups=GROUPS)  # fmt: skip
    async with serving(app) as live:
        yield live


async def roles_of(server: LiveServer, name: str) -> dict[str, str] | None:
    users = await server.context.installation.users.list(None)
    return next((dict(user.memberships) for user in users if user.name == name), None)


async def test_who_is_in_a_group_is_added_with_its_role(grouped: LiveServer, provider: Provider):
    provider.claims["groups"] = ["sre", "cn=pay,dc=x", "others"]
    browser, answer = await log_in(grouped)
    assert answer.status_code == 302
    me = (await browser.get("/v1/session")).json()
    assert (me["name"], me["role"]) == ("ada@example.org", "operator")
    assert await roles_of(grouped, "ada@example.org") == {
        "default": "operator", "billing": "operator",
    }  # fmt: skip
    [entry] = await query(
        grouped, "select actor, via, before, after from {}.audit where action = 'map'"
    )
    assert (entry["actor"], entry["via"]) == ("ada@example.org", "oidc")


async def test_roles_follow_the_groups_at_each_login(grouped: LiveServer, provider: Provider):
    await know(grouped, "ada@example.org")  # by hand, as operator
    provider.claims["groups"] = ["platform"]
    browser, _ = await log_in(grouped)
    assert await roles_of(grouped, "ada@example.org") == {"*": "admin"}
    assert (await browser.get("/v1/tokens")).status_code == 200
    provider.claims["groups"] = "cn=pay,dc=x"  # a single one is no list
    await log_in(grouped)
    assert await roles_of(grouped, "ada@example.org") == {
        "billing": "operator", "default": "viewer",
    }  # fmt: skip
    assert (await browser.get("/v1/tokens")).status_code == 403  # the session of before
    await log_in(grouped)
    changes = await query(grouped, "select id from {}.audit where action = 'map'")
    assert len(changes) == 2  # the last login changed nothing


@pytest.mark.parametrize("groups", [[], ["others"], None, {"sre": True}, [["sre"]], 7, "SRE"])
async def test_who_is_in_none_of_the_groups_is_refused_and_has_no_role(
    grouped: LiveServer, provider: Provider, groups: Any
):
    await know(grouped, "ada@example.org")
    provider.claims["groups"] = groups
    _, answer = await log_in(grouped)
    assert answer.status_code == 403
    assert await roles_of(grouped, "ada@example.org") == {}


@pytest.mark.parametrize(
    "claims",
    [
        {"email_verified": False},
        {"email": None},
        {"email_verified": "true"},
        {"email": ["ada@example.org"]},
        {"email": "a\x00b@example.org"},
        {"email": "a" * 201},
    ],
)
async def test_who_is_not_vouched_for_is_not_added(
    grouped: LiveServer, provider: Provider, claims: dict[str, Any]
):
    provider.claims |= {"groups": ["platform"], **claims}
    _, answer = await log_in(grouped)
    assert answer.status_code == 403
    assert await grouped.context.installation.users.list(None) == []


async def test_the_address_of_another_person_gives_nobody_their_account(
    grouped: LiveServer, provider: Provider
):
    provider.claims["groups"] = ["sre"]
    await log_in(grouped)
    provider.claims |= {"sub": "user-2", "groups": ["platform"]}
    _, answer = await log_in(grouped)
    assert answer.status_code == 403
    assert await roles_of(grouped, "ada@example.org") == {"default": "operator"}


@pytest.mark.parametrize(
    "wrong", ["sre=operator", '["sre"]', '{"sre": "worker"}', '{"sre": "my boss"}',
              '{"sre": "admin@no space"}', '{"sre": 1}'],
)  # fmt: skip
def test_groups_that_can_not_be_read_are_refused(wrong: str):
    with pytest.raises(ConfigError) as refused:
        parse_groups(wrong, "default")
    assert [*refused.value.fields] == ["oidc_groups"]


async def test_a_subject_that_is_none_is_refused(grouped: LiveServer, provider: Provider):
    """The provider's answers are data: they are checked, and break nothing."""
    for subject in (7, "", None, ["user-1"], "a\0b", "x" * 1_000):
        provider.claims |= {"sub": subject, "groups": ["sre"]}
        _, answer = await log_in(grouped)
        assert answer.status_code == 403, subject
    assert await grouped.context.installation.users.list(None) == []
