"""Tokens, links, sessions and passwords: what lets somebody in, and what no longer does."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from rota.lib.ids import hash_secret, new_id
from rota.lib.passwords import hash_password
from rota.server.identity.credentials import CACHED_SECONDS, Tokens
from tests.support.api import query
from tests.support.server_fixtures import LiveServer, serving
from tests.support.sessions import log_in

PASSWORD = "correct horse battery"


# -- tokens


async def test_a_token_is_shown_once_and_stored_hashed(server: LiveServer):
    client = await server.client("admin")
    answer = await client.post("/v1/tokens", json={"name": "ci", "role": "operator"})
    assert answer.status_code == 201
    token, info = answer.json()["token"], answer.json()["info"]
    assert token.startswith(f"rota_{info['prefix']}_")
    assert len(token.split("_", 2)[2]) == 43  # 256 bits
    [row] = await query(server, "select t.*::text as everything, t.hash from {}.api_token as t "
                                "where prefix = $1", info["prefix"])  # fmt: skip
    assert row["hash"] == hash_secret(token)
    assert token.split("_", 2)[2] not in row["everything"]
    listed = (await client.get("/v1/tokens")).text
    assert info["prefix"] in listed
    assert token.split("_", 2)[2] not in listed


async def test_a_token_works_until_it_expires(server: LiveServer):
    soon = datetime.now(UTC) + timedelta(hours=1)
    good = await server.client("viewer", expires_at=soon)
    assert (await good.get("/v1/session")).status_code == 200
    over = await server.client("viewer", expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert (await over.get("/v1/session")).status_code == 401


async def test_a_token_that_expires_at_infinity_is_good(server: LiveServer):
    client = await server.client("viewer")
    await query(server, "update {}.api_token set expires_at = 'infinity'")
    assert (await client.get("/v1/session")).status_code == 200


async def test_a_token_is_believed_no_longer_than_it_is_good(server: LiveServer):
    now = [0.0]
    tokens = Tokens(server.context.identity, clock=lambda: now[0])
    token = await server.token("viewer", expires_at=datetime.now(UTC) + timedelta(seconds=2))
    assert await tokens.identify(token) is not None
    await query(server, "update {}.api_token set expires_at = now() - interval '1 second'")
    now[0] = 2.1
    assert await tokens.identify(token) is None


async def test_a_revoked_token_is_refused_within_five_seconds_by_every_server(server: LiveServer):
    assert CACHED_SECONDS <= 5.0
    now = [100.0]
    elsewhere = Tokens(server.context.identity, clock=lambda: now[0])
    token = await server.token("viewer")
    assert await elsewhere.identify(token) is not None
    prefix = token.split("_")[1]
    await server.context.identity.revoke_token(prefix, "default")
    now[0] += 4.9
    assert await elsewhere.identify(token) is not None  # it is a memory, and this is its cost
    now[0] = 100.0 + 5.0
    assert await elsewhere.identify(token) is None


async def test_where_it_is_revoked_a_token_is_refused_at_once(server: LiveServer):
    admin = await server.client("admin")
    token = await server.token("viewer")
    headers = {"Authorization": f"Bearer {token}"}
    anyone = await server.client(None)
    assert (await anyone.get("/v1/session", headers=headers)).status_code == 200
    answer = await admin.delete(f"/v1/tokens/{token.split('_')[1]}")
    assert answer.json()["revoked_at"] is not None
    assert (await anyone.get("/v1/session", headers=headers)).status_code == 401


async def test_when_a_token_was_last_used_is_written_later(server: LiveServer):
    token = await server.token("viewer")
    client = await server.client(None)
    await client.get("/v1/session", headers={"Authorization": f"Bearer {token}"})
    find = "select last_used_at from {}.api_token where prefix = $1"
    prefix = token.split("_")[1]
    assert (await query(server, find, prefix))[0][0] is None
    await server.context.tokens.save_uses()
    assert (await query(server, find, prefix))[0][0] is not None


async def test_a_token_of_another_namespace_cannot_be_seen_or_revoked(server: LiveServer):
    other = await server.token("viewer", "other")
    prefix = other.split("_")[1]
    client = await server.client("admin", "acme")
    assert prefix not in (await client.get("/v1/tokens")).text
    missing = await client.delete("/v1/tokens/abcdefgh")
    theirs = await client.delete(f"/v1/tokens/{prefix}")
    assert theirs.status_code == missing.status_code == 404
    assert theirs.json()["detail"].replace(prefix, "") == missing.json()["detail"].replace(
        "abcdefgh", ""
    )
    good = await server.client(None)
    asked = await good.get("/v1/session", headers={"Authorization": f"Bearer {other}"})
    assert asked.status_code == 200


async def test_nobody_can_make_a_token_that_reaches_further(server: LiveServer):
    here = await server.client("admin", "acme")
    wider = {"name": "x", "role": "admin", "everywhere": True}
    assert (await here.post("/v1/tokens", json=wider)).status_code == 403
    scoped = await server.client("admin", "acme", scopes=["tokens", "jobs:read"])
    for scopes in ([], ["jobs:write"], ["jobs"], ["schedules"]):
        made = {"name": "x", "role": "viewer", "scopes": scopes}
        assert (await scoped.post("/v1/tokens", json=made)).status_code == 403, scopes
    narrow = {"name": "x", "role": "viewer", "scopes": ["jobs:read"]}
    assert (await scoped.post("/v1/tokens", json=narrow)).status_code == 201


async def test_tokens_come_in_pages(server: LiveServer):
    client = await server.client("admin")
    for number in range(5):
        await server.token("viewer", name=f"n{number}")
    seen, cursor = [], None
    while True:
        params = {"limit": 2, **({"cursor": cursor} if cursor else {})}
        page = (await client.get("/v1/tokens", params=params)).json()
        seen += [token["name"] for token in page["items"]]
        if (cursor := page["next"]) is None:
            break
    assert len(seen) == len(set(seen)) == 6
    for made_up in ("x", "AAAA", "gaRub3Bl", "!" * 400):
        assert (await client.get("/v1/tokens", params={"cursor": made_up})).status_code == 400


# -- one-time links and sessions


async def test_a_link_makes_a_session_with_a_safe_cookie(server: LiveServer):
    link = await server.link(role="viewer")
    browser = await server.client(None)
    answer = await browser.post("/login/link", json={"link": link})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    me = (await browser.get("/v1/session")).json()
    assert (me["kind"], me["role"], me["namespaces"]) == ("session", "viewer", {"*": "viewer"})
    secret = browser.cookies["rota_session"]
    [row] = await query(server, "select s::text as everything from {}.session as s")
    assert secret not in row["everything"]
    assert link not in str(await query(server, "select l::text from {}.login_link as l"))


async def test_behind_tls_the_cookie_is_for_this_host_and_tls_alone(make_app):
    async with serving(make_app(port=0, public_url="https://rota.example.org")) as server:
        link = await server.link()
        browser = await server.client(None)
        answer = await browser.post("/login/link", json={"link": link})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-rota_session=")
        assert "Secure" in cookie
        assert "Path=/" in cookie
        assert "Domain" not in cookie


async def test_a_link_used_twice_at_once_makes_one_session(make_app):
    app = make_app(port=0)
    async with serving(app) as one, serving(app) as two:
        browsers = [await server.client(None) for server in (one, two) for _ in range(8)]
        link = await one.link()
        answers = await asyncio.gather(
            *(browser.post("/login/link", json={"link": link}) for browser in browsers)
        )
        assert sorted(a.status_code for a in answers) == [200] + [401] * 15
        assert len(await query(one, "select from {}.session")) == 1


async def test_a_link_is_good_for_a_while_only(server: LiveServer):
    link = await server.link()
    await query(server, "update {}.login_link set expires_at = now() - interval '1 second'")
    browser = await server.client(None)
    assert (await browser.post("/login/link", json={"link": link})).status_code == 401


async def test_looking_at_the_page_uses_nothing_up_and_its_policy_is_strict(server: LiveServer):
    browser = await server.client(None)
    page = await browser.get("/login")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in page.text  # nothing inline: the policy would refuse it
    assert "style=" not in page.text
    assert (await browser.get("/", headers={"Accept": "text/html"})).headers["location"] == "/login"


async def test_a_change_by_cookie_needs_the_sessions_csrf_token(server: LiveServer):
    browser, csrf = await log_in(server)
    made = {"name": "x", "role": "viewer"}
    assert (await browser.post("/v1/tokens", json=made)).json()["code"] == "csrf"
    _, others = await log_in(server)
    for wrong in ("", "x", others):
        answer = await browser.post("/v1/tokens", json=made, headers={"X-Rota-CSRF": wrong})
        assert answer.status_code == 403
    good = {"X-Rota-CSRF": csrf}
    for foreign in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        answer = await browser.post("/v1/tokens", json=made, headers={**good, **foreign})
        assert answer.json()["code"] == "csrf"
    own = {**good, "Origin": server.url, "Sec-Fetch-Site": "same-origin"}
    assert (await browser.post("/v1/tokens", json=made, headers=own)).status_code == 201
    assert (await browser.get("/v1/session")).json()["csrf"] == csrf
    assert len(await query(server, "select from {}.api_token")) == 1


async def test_another_site_cannot_log_a_browser_in(server: LiveServer):
    link = await server.link()
    browser = await server.client(None)
    foreign = {"Origin": "https://evil.example"}
    for path, body in (("link", {"link": link}), ("password", {"name": "a", "password": "b"})):
        answer = await browser.post(f"/login/{path}", json=body, headers=foreign)
        assert answer.status_code == 403
    assert not await query(server, "select from {}.session")


async def test_after_logging_out_the_cookie_is_worthless(server: LiveServer):
    browser, csrf = await log_in(server)
    secret = browser.cookies["rota_session"]
    assert (await browser.post("/logout")).status_code == 403  # another site's form
    assert (await browser.post("/logout", headers={"X-Rota-CSRF": csrf})).status_code == 200
    kept = await server.client(None)
    kept.cookies["rota_session"] = secret
    assert (await kept.get("/v1/session")).status_code == 401


async def test_a_session_ends_with_its_time_and_with_its_person(server: LiveServer):
    store = server.context.identity
    person = await store.put_user(new_id(), "ada@example.org", None)
    await store.put_membership(person, "default", "operator")
    browser, _ = await log_in(server, user="Ada@example.org")
    assert (await browser.get("/v1/session")).json()["namespaces"] == {"default": "operator"}
    await store.put_membership(person, "acme", "viewer")
    server.context.sessions.cache.clear()
    assert "acme" in (await browser.get("/v1/session")).json()["namespaces"]
    await store.remove_user("ada@example.org")
    server.context.sessions.cache.clear()
    assert (await browser.get("/v1/session")).status_code == 401


# -- passwords


async def add_ada(server: LiveServer) -> None:
    store = server.context.identity
    person = await store.put_user(new_id(), "ada", hash_password(PASSWORD))
    await store.put_membership(person, "default", "operator")


async def log_in_by_password(server: LiveServer, name: str, password: str) -> httpx.Response:
    browser = await server.client(None)
    return await browser.post("/login/password", json={"name": name, "password": password})


async def test_a_password_lets_in_whom_it_belongs_to(server: LiveServer):
    await add_ada(server)
    assert (await log_in_by_password(server, "ADA", PASSWORD)).json()["name"] == "ada"
    [row] = await query(server, "select password_hash from {}.user_account")
    assert row[0].startswith("$argon2id$")


async def test_a_wrong_password_and_a_name_that_nobody_has_look_the_same(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
):
    await add_ada(server)
    store = server.context.identity
    await store.put_user(new_id(), "without", None)
    worked: list[str] = []
    from rota.server.identity import passwords

    verify = passwords.verify_password
    monkeypatch.setattr(
        passwords,
        "verify_password",
        lambda stored, given: worked.append(stored) or verify(stored, given),
    )
    answers = [await log_in_by_password(server, name, "wrong password")
               for name in ("ada", "nobody", "without")]  # fmt: skip
    bodies = [{**a.json(), "request_id": ""} for a in answers]
    assert bodies[0] == bodies[1] == bodies[2]
    # The same work was done for each: that of one argon2id with the same parameters.
    assert len(worked) == 3
    assert len({stored.rsplit("$", 2)[0] for stored in worked}) == 1


async def test_guessing_is_throttled_across_servers_and_restarts(make_app):
    app = make_app(port=0)
    async with serving(app) as one:
        await add_ada(one)
        statuses = [(await log_in_by_password(one, "ada", "wrong")).status_code for _ in range(5)]
        assert statuses == [401] * 5
        refused = await log_in_by_password(one, "ada", PASSWORD)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
    async with serving(app) as two:
        assert (await log_in_by_password(two, "ada", PASSWORD)).status_code == 429
        await query(two, "update {}.login_failure set blocked_until = now()")
        assert (await log_in_by_password(two, "ada", PASSWORD)).status_code == 200
        assert (await log_in_by_password(two, "ada", "wrong")).status_code == 401  # counted afresh


async def test_many_guesses_at_once_are_counted_one_by_one(server: LiveServer):
    await add_ada(server)
    answers = await asyncio.gather(
        *(log_in_by_password(server, "ada", f"guess {n}") for n in range(12))
    )
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [401] * 5 + [429] * 7


async def test_guessing_many_names_from_one_address_is_throttled(server: LiveServer):
    statuses = [(await log_in_by_password(server, f"name{n}", "wrong")).status_code
                for n in range(22)]  # fmt: skip
    assert statuses == [401] * 20 + [429] * 2


async def test_many_who_know_their_passwords_may_come_from_one_address(server: LiveServer):
    await add_ada(server)
    statuses = [(await log_in_by_password(server, "ada", PASSWORD)).status_code
                for _ in range(22)]  # fmt: skip
    assert statuses == [200] * 22


async def test_log_ins_are_in_the_audit_log(server: LiveServer):
    await log_in(server)
    [row] = await query(server, "select action, actor, via, address from {}.audit")
    assert tuple(row) == ("login", "link", "link", "127.0.0.1")
