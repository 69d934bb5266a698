"""Roles of an installation: what they permit, and that nobody gets more by them than they had."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from rota import App, ConfigError
from rota.core.access import Identity, Principal
from rota.core.roles import ADMIN, BUILT_IN, PERMISSIONS, Role, beyond, check_permissions, expand
from rota.errors import Conflict
from rota.lib.ids import new_id
from rota.server.identity.credentials import CACHED_SECONDS_OF_OWN_ROLES
from rota.server.policy import permission_of, route_table
from tests.support.server_fixtures import LiveServer, serving
from tests.support.sessions import csrf_of, enter

LIMIT = {"max_run_time": 60}
LEVELS = ["viewer", "operator", "admin"]


async def define(server: LiveServer, name: str, *permissions: str, **limits: Any) -> None:
    admin = await server.client("admin", "*")
    body = {"permissions": permissions, **limits}
    answer = await admin.put(f"/v1/roles/{name}", json=body)
    assert answer.status_code == 200, answer.text


# -- one mechanism


async def test_built_in_roles_may_use_the_routes_that_name_them_and_no_others(server: LiveServer):
    """Built-in roles are sets of permissions like all others: those of the routes."""
    used = set()
    for route in route_table(server.server.asgi):
        if route.policy.role is None:
            continue
        permission = permission_of(route.policy, route.method, route.path)
        used.add(permission)
        for name, role in BUILT_IN.items():
            least = route.policy.role
            may = name == least or (
                name in LEVELS and least in LEVELS and LEVELS.index(name) > LEVELS.index(least)
            )
            assert (permission in role.permissions) == may, (route.method, route.path, name)
    assert {*PERMISSIONS, "workers:write"} >= used
    # Those that no route needs are reads that belong to a noun with other verbs.
    assert all(each.endswith((":read", ":write")) for each in PERMISSIONS - used)


async def test_a_role_permits_what_it_names_and_nothing_else(server: LiveServer):
    await server.app.submit("x", {}, queue="mail")
    await define(server, "keeper", "queues:write", "jobs:read")
    client = await server.client("keeper")
    assert (await client.put("/v1/queues/mail", json=LIMIT)).status_code == 200
    assert (await client.get("/v1/jobs")).status_code == 200
    me = (await client.get("/v1/session")).json()
    assert (me["role"], me["namespaces"]) == ("keeper", {"default": "keeper"})
    for method, path in [("GET", "/v1/queues"), ("POST", "/v1/jobs"), ("GET", "/v1/schedules"),
                         ("GET", "/v1/tokens"), ("GET", "/v1/audit"), ("GET", "/v1/roles")]:  # fmt: skip
        answer = await client.request(method, path, json={} if method == "POST" else None)
        assert answer.status_code == 403, (path, answer.text)
    said = (await client.get("/v1/queues")).json()["detail"]
    assert said == (
        "this needs the role viewer in namespace 'default', or another with queues:read; yours is keeper"
    )


async def test_several_roles_are_added_up(server: LiveServer):
    await server.app.submit("x", {}, queue="mail")
    await define(server, "keeper", "queues")
    client = await server.client("viewer,keeper")
    assert (await client.get("/v1/schedules")).status_code == 200
    assert (await client.put("/v1/queues/mail", json=LIMIT)).status_code == 200
    assert (await client.post("/v1/jobs", json={"task": "x"})).status_code == 403


async def test_a_role_holds_in_its_namespaces_alone(server: LiveServer):
    await define(server, "billing-keeper", "queues", "namespaces:read", namespaces=["billing"])
    client = await server.client("billing-keeper", "*")
    assert (await client.get("/v1/queues")).status_code == 200  # there, although it named none
    other = await client.get("/v1/queues", headers={"X-Rota-Namespace": "acme"})
    assert other.status_code == 403
    nowhere = await server.client("billing-keeper", "acme")
    assert (await nowhere.get("/v1/queues")).status_code == 403


async def test_a_role_for_tasks_and_queues_submits_those_jobs(server: LiveServer):
    await define(server, "mailer", "jobs:submit", "jobs:read", tasks=["mail.*"], queues=["bulk"])
    client = await server.client("mailer")
    jobs = [
        ({"task": "mail.send", "queue": "bulk"}, 201), ({"task": "mail.send"}, 403),
        ({"task": "refund", "queue": "bulk"}, 403), ({"task": "mail.x", "queue": "a"}, 403),
    ]  # fmt: skip
    for job, status in jobs:
        answer = await client.post("/v1/jobs", json=job)
        assert answer.status_code == status, (job, answer.text)
    assert answer.json()["detail"] == (
        "your roles permit no job of mail.x in queue a; they permit mailer: task mail.*, queue bulk"
    )
    bulk = await client.post("/v1/jobs:bulk", content=b'{"task": "refund", "queue": "bulk"}')
    assert (bulk.json()["stored"], bulk.json()["refused"]) == (0, 1)


# -- bad input


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"permissions": ["queue:write"]}, "do you mean 'queues:write'"),
        ({"permissions": ["queues:wirte"]}, "do you mean 'queues:write'"),
        ({"permissions": ["audit:write"]}, "Of audit there are audit:read"),
        ({"permissions": ["workers:write"]}, "only the built-in role worker may run jobs"),
        ({"permissions": []}, "permissions"),
        ({"permissions": ["*"]}, "there is no permission"),
        ({"permissions": ["jobs"], "tasks": ["mail.*"]}, "jobs:write would reach further"),
        ({"permissions": ["jobs:read"], "queues": ["a"]}, "can't submit: add jobs:submit"),
        ({"permissions": ["jobs"], "namespaces": ["no good"]}, "namespaces"),
        ({"permissions": ["jobs:submit"], "tasks": ["no good"]}, "tasks"),
        ({"permissions": ["jobs"], "surprise": 1}, "surprise"),
        ({"permissions": ["jobs"], "description": "a\0b"}, ""),
    ],
)
async def test_a_bad_definition_is_refused_with_what_is_wrong(
    server: LiveServer, wrong: dict[str, Any], said: str
):
    admin = await server.client("admin", "*")
    answer = await admin.put("/v1/roles/x", json=wrong)
    assert answer.status_code in (400, 422), answer.text
    assert said in answer.text
    assert [r["name"] for r in (await admin.get("/v1/roles")).json()["items"]] == [*BUILT_IN]


async def test_built_in_roles_are_listed_and_cannot_be_changed(server: LiveServer):
    admin = await server.client("admin", "*")
    for name in BUILT_IN:
        answer = await admin.put(f"/v1/roles/{name}", json={"permissions": ["jobs"]})
        assert answer.status_code == 422, answer.text
        assert "is built in" in answer.json()["detail"]
        assert (await admin.delete(f"/v1/roles/{name}")).status_code == 422
        assert (await admin.get(f"/v1/roles/{name}")).json()["built_in"] is True


async def test_a_role_that_does_not_exist_is_named_with_the_nearest(server: LiveServer):
    admin = await server.client("admin", "*")
    await define(server, "mailer", "jobs:submit")
    answer = await admin.post("/v1/tokens", json={"name": "x", "role": "mailr"})
    assert answer.status_code == 422
    assert "do you mean 'mailer'" in answer.json()["detail"]
    answer = await admin.post("/v1/users", json={"name": "x", "role": "oprator"})
    assert "do you mean 'operator'" in answer.json()["detail"]
    for role in ("a b", "", "viewer,", ",".join(f"r{n}" for n in range(30))):
        answer = await admin.post("/v1/tokens", json={"name": "x", "role": role})
        assert answer.status_code in (400, 422), (role, answer.text)


async def test_a_role_in_use_is_not_deleted(server: LiveServer):
    admin = await server.client("admin", "*")
    await define(server, "keeper", "queues")
    made = await admin.post("/v1/tokens", json={"name": "x", "role": "keeper,viewer"})
    prefix = made.json()["info"]["prefix"]
    await admin.post("/v1/users", json={"name": "ada", "role": "keeper"})
    link = await server.link(role="keeper", namespace="default")
    refused = await admin.delete("/v1/roles/keeper")
    assert refused.status_code == 409
    assert refused.json()["detail"].startswith(
        f"role 'keeper' is in use by a login link, token {prefix}, user ada: "
    )
    browser = await server.client(None)
    await browser.post("/login/link", json={"link": link})
    await admin.delete(f"/v1/tokens/{prefix}")
    await admin.delete("/v1/users/ada")
    assert "session" in (await admin.delete("/v1/roles/keeper")).json()["detail"]
    await admin.post("/v1/sessions:end-links")
    assert (await admin.delete("/v1/roles/keeper")).status_code == 200
    assert (await admin.delete("/v1/roles/keeper")).status_code == 404


# -- effects on what lives


async def test_a_change_has_effect_on_living_tokens_within_a_second(make_app: Callable[..., App]):
    app = make_app(port=0)
    async with serving(app) as one, serving(app) as two:
        await define(one, "keeper", "queues")
        client = await two.client("keeper")
        clock = [0.0]
        two.context.tokens.cache._clock = lambda: clock[0]
        assert (await client.get("/v1/queues")).status_code == 200
        await define(one, "keeper", "jobs:read")  # by another server
        clock[0] += CACHED_SECONDS_OF_OWN_ROLES
        assert (await client.get("/v1/queues")).status_code == 403
        assert (await client.get("/v1/jobs")).status_code == 200
    assert CACHED_SECONDS_OF_OWN_ROLES < 1


async def test_a_role_that_was_deleted_behind_our_back_permits_nothing(server: LiveServer):
    await define(server, "keeper", "queues")
    client = await server.client("keeper")
    async with (await server.app.store()).database.connection() as connection:
        await connection.execute(f"delete from {server.app.settings.schema}.access_role")
    server.context.forget_access()
    assert (await client.get("/v1/queues")).status_code == 403


async def test_a_role_is_not_deleted_while_it_is_given(server: LiveServer):
    """Whichever is first: the other finds it given, or gone."""
    await define(server, "keeper", "queues")
    installation = server.context.installation
    for _ in range(5):
        given, deleted = await asyncio.gather(
            installation.tokens.create("x", namespace="default", role="keeper"),
            installation.roles.delete("keeper"), return_exceptions=True,
        )  # fmt: skip
        if isinstance(given, ConfigError):
            assert not isinstance(deleted, BaseException)
            await define(server, "keeper", "queues")
        else:
            assert isinstance(deleted, Conflict), (given, deleted)
            await installation.tokens.revoke(given.info.prefix)


# -- nobody gets more than they have


@pytest.fixture
async def manager(server: LiveServer) -> httpx.AsyncClient:
    """Somebody who gives access in all namespaces, and may otherwise only look at jobs."""
    await define(server, "manager", "roles", "users", "tokens", "jobs:read")
    return await server.client("manager", "*")


async def test_nobody_defines_a_role_that_permits_more_than_they_may(manager: httpx.AsyncClient):
    assert (
        await manager.put("/v1/roles/a", json={"permissions": ["jobs:read"]})
    ).status_code == 200
    for permissions in (["jobs"], ["queues:read"], ["jobs:read", "audit:read"], ["jobs:submit"]):
        answer = await manager.put("/v1/roles/b", json={"permissions": permissions})
        assert answer.status_code == 403, answer.text
        assert "nobody can give more than they have" in answer.json()["detail"]
    # Their own role, which they have.
    more = {"permissions": ["roles", "users", "tokens", "jobs"]}
    assert (await manager.put("/v1/roles/manager", json=more)).status_code == 403


async def test_nobody_changes_a_role_that_permits_more_than_they_may(
    server: LiveServer, manager: httpx.AsyncClient
):
    await define(server, "keeper", "queues")
    less = {"permissions": ["jobs:read"]}
    assert (await manager.put("/v1/roles/keeper", json=less)).status_code == 403
    assert (await manager.delete("/v1/roles/keeper")).status_code == 403


async def test_nobody_gives_a_token_or_user_more_than_they_have(
    server: LiveServer, manager: httpx.AsyncClient
):
    await define(server, "keeper", "queues")
    for role in ("viewer", "operator", "admin", "worker", "keeper", "manager,keeper"):
        token = await manager.post("/v1/tokens", json={"name": "x", "role": role})
        assert token.status_code == 403, (role, token.text)
        if role != "worker":
            user = await manager.post("/v1/users", json={"name": "x", "role": role})
            assert user.status_code == 403, (role, user.text)
    assert (
        await manager.post("/v1/tokens", json={"name": "x", "role": "manager"})
    ).status_code == 201
    assert (
        await manager.post("/v1/users", json={"name": "x", "role": "manager"})
    ).status_code == 200


async def test_nobody_takes_over_the_account_of_who_may_do_more(
    server: LiveServer, manager: httpx.AsyncClient
):
    """Also not of who may do more later: a password that one knows is good for roles to come."""
    boss = await server.client("admin", "*")
    await boss.post("/v1/users", json={"name": "boss", "role": "admin", "everywhere": True})
    body = {"name": "boss", "role": "manager"}
    assert (await manager.post("/v1/users", json=body)).status_code == 403
    assert (await manager.delete("/v1/users/boss")).status_code == 403
    own = {"name": "puppet", "role": "manager", "password": "correct horse battery"}
    assert (await manager.post("/v1/users", json=own)).status_code == 403
    browser = await enter(server, role="manager")
    csrf = csrf_of(await browser.get("/users"))
    for name in ("boss", "puppet"):
        await manager.post("/v1/users", json={"name": "puppet", "role": "manager"})
        answer = await browser.post("/users/link", data={"csrf": csrf, "name": name})
        assert answer.status_code == 403, answer.text
    users = {user["name"]: user for user in (await boss.get("/v1/users")).json()["items"]}
    assert users["boss"]["memberships"] == {"*": "admin"}
    assert not users["puppet"]["has_password"]


async def test_who_has_it_in_one_namespace_gives_it_in_no_other(server: LiveServer):
    await define(server, "manager", "roles", "users", "tokens", "jobs:read")
    here = await server.client("manager", "acme")
    assert (await here.post("/v1/tokens", json={"name": "x", "role": "manager"})).status_code == 201
    body = {"name": "x", "role": "manager", "everywhere": True}
    assert (await here.post("/v1/tokens", json=body)).status_code == 403
    role = {"permissions": ["jobs:read"]}
    assert (await here.put("/v1/roles/a", json=role)).status_code == 403
    assert (await here.post("/v1/users", json={"name": "x", "role": "manager"})).status_code == 403
    # More here than everywhere is not everywhere.
    both = Principal(
        identity=identity_with({"*": ["viewer"], "acme": ["admin"]}),
        namespace="acme", roles=(BUILT_IN["admin"], BUILT_IN["viewer"]),
    )  # fmt: skip
    assert not both.everywhere


def identity_with(roles: dict[str, list[str]]) -> Identity:
    memberships = {where: tuple(BUILT_IN[name] for name in names) for where, names in roles.items()}
    return Identity(id=new_id(), name="x", kind="session", memberships=memberships)


async def test_a_limit_of_a_role_is_not_shed_by_giving_it_on(server: LiveServer):
    await define(server, "seller", "jobs:submit", tasks=["mail.*"])
    await define(server, "giver", "tokens", "roles")
    client = await server.client("seller,giver", "*")
    wider = {"permissions": ["jobs:submit"]}
    assert (await client.put("/v1/roles/x", json=wider)).status_code == 403
    other = {**wider, "tasks": ["mail.*", "refund"]}
    assert (await client.put("/v1/roles/x", json=other)).status_code == 403
    same = {**wider, "tasks": ["mail.a*"], "queues": ["bulk"]}
    assert (await client.put("/v1/roles/x", json=same)).status_code == 200


async def test_a_scoped_token_defines_no_role_beyond_its_scopes(server: LiveServer):
    client = await server.client("admin", "*", scopes=["roles", "jobs:read"])
    ok = {"permissions": ["jobs:read", "roles"]}
    assert (await client.put("/v1/roles/x", json=ok)).status_code == 200
    assert (await client.put("/v1/roles/x", json={"permissions": ["jobs"]})).status_code == 403


def test_what_reaches_further_is_found():
    def role(*permissions: str, **limits: tuple[str, ...]) -> Role:
        return Role(name="x", permissions=frozenset(permissions), **limits)

    submit = "jobs:submit"
    assert beyond([ADMIN], [ADMIN]) == []
    assert beyond([role("a:read", "b:read")], [role("a:read"), role("b:read")]) == []
    assert beyond([role(submit)], [role(submit, tasks=("a*",))]) == [submit]
    assert beyond([role(submit, tasks=("ab*",))], [role(submit, tasks=("a*",))]) == []
    assert beyond([role(submit, tasks=("a*",))], [role(submit, tasks=("ab*",))]) == [submit]
    # Two halves are no whole: a task of the one in a queue of the other.
    halves = [role(submit, tasks=("a",), queues=("x",)), role(submit, tasks=("b",), queues=("y",))]
    assert beyond([role(submit, tasks=("a",), queues=("y",))], halves) == [submit]
    assert beyond([role(submit, tasks=("b",), queues=("y",))], halves) == []


def test_permissions_of_a_newer_release_permit_nothing():
    assert "jobs:teleport" not in expand(["jobs:teleport", "moons"])
    assert expand(["jobs"]) >= {"jobs:read", "jobs:write", "jobs:submit"}
    assert check_permissions(["queues", "jobs:read", "queues"]) == ["jobs:read", "queues"]


# -- the page


async def test_roles_are_defined_changed_and_deleted_on_their_page(server: LiveServer):
    browser = await enter(server)
    csrf = csrf_of(await browser.get("/roles"))
    said = {"csrf": csrf, "name": "keeper", "permission": ["queues:write", "queues:read"],
            "description": "keeps <queues>"}  # fmt: skip
    assert (await browser.post("/roles", data=said)).status_code == 303
    page = (await browser.get("/roles")).text
    assert "keeps &lt;queues&gt;" in page
    assert 'value="queues:write" checked' in (await browser.get("/roles?edit=keeper")).text
    wrong = await browser.post("/roles", data={**said, "tasks": "mail.*"})
    assert wrong.status_code == 422
    assert "would reach further" in wrong.text
    assert 'value="keeper"' in wrong.text  # what was written is still there
    assert (await browser.get("/roles?edit=admin")).status_code == 404
    asked = await browser.post("/roles/remove", data={"csrf": csrf, "name": "keeper"})
    assert "Delete role keeper?" in asked.text
    gone = {"csrf": csrf, "name": "keeper", "sure": "yes"}
    assert (await browser.post("/roles/remove", data=gone)).status_code == 303
    assert (await browser.get("/v1/roles/keeper")).status_code == 404


async def test_a_page_shows_the_buttons_that_a_role_permits(server: LiveServer):
    await define(server, "keeper", "queues", "root:read")
    admin = await server.client("admin")
    await admin.post("/v1/jobs", json={"task": "x", "queue": "mail"})
    assert (await admin.post("/v1/queues/mail/pause")).status_code == 200
    browser = await enter(server, role="keeper", namespace="default")
    assert 'action="/queues/mail/resume' in (await browser.get("/queues")).text
    assert (await browser.get("/jobs")).status_code == 403
    looker = await enter(server, role="viewer", namespace="default")
    assert 'action="/queues/mail/resume' not in (await looker.get("/queues")).text
