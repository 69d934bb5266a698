"""The commands about access, and the server as the command line starts it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from tests.support.command_line import run, stop, told
from tests.support.places import ROTA, SUPPORT


@pytest.mark.usefixtures("environ")
class TestTokens:
    def test_a_token_is_made_listed_and_revoked(self):
        made = run("tokens", "create", "ci", "--role", "operator", "--expires", "90d",
                   "--scope", "jobs", "--json").json  # fmt: skip
        prefix = made["info"]["prefix"]
        assert made["token"].startswith(f"rota_{prefix}_")
        assert made["info"]["scopes"] == ["jobs"]
        listed = run("tokens", "list")
        assert prefix in listed.out
        assert made["token"] not in listed.out
        assert run("tokens").out == listed.out
        assert "revoked" in run("tokens", "revoke", f"rota_{prefix}_...", "--yes").out
        assert prefix not in run("tokens", "list").out
        assert prefix in run("tokens", "list", "--revoked").out

    def test_the_token_alone_is_on_standard_output(self):
        answer = run("tokens", "create", "ci")
        assert len(answer.out.strip().splitlines()) == 1
        assert answer.out.startswith("rota_")

    def test_mistakes_are_explained(self):
        assert run("tokens", "create", "x", "--role", "king", "--json").code == 1
        assert run("tokens", "create", "x", "--scope", "a b", "--json").code == 1
        assert run("tokens", "revoke", "nosuchthing", "--json", "--yes").error["type"] == "NotFound"


@pytest.mark.usefixtures("environ")
class TestNamespacesAndPeople:
    def test_limits_are_set_and_taken_away(self):
        assert run("namespaces", "limit", "acme", "--max-jobs", "5").code == 0
        [acme] = [n for n in run("namespaces", "list", "--json").json if n["name"] == "acme"]
        assert acme["limits"]["max_jobs"] == 5
        assert run("namespaces", "unlimit", "acme", "--yes").code == 0
        assert run("namespaces", "unlimit", "acme", "--json", "--yes").error["type"] == "NotFound"

    def test_a_person_is_added_and_removed(self):
        added = run("users", "add", "ada@example.org", "--role", "operator", "--password",
                    stdin="correct horse battery\n")  # fmt: skip
        assert added.code == 0, added.err
        [ada] = [p for p in run("users", "--json").json if p["name"] == "ada@example.org"]
        assert ada["has_password"]
        assert list(ada["memberships"].values()) == ["operator"]
        assert run("login", "--as", "ada@example.org").out.startswith(
            "http://127.0.0.1:8400/login#"
        )
        assert run("users", "remove", "ada@example.org", "--yes").code == 0
        assert run("login", "--as", "ada@example.org", "--json").error["type"] == "NotFound"

    def test_short_passwords_and_workers_are_refused(self):
        short = run("users", "add", "x", "--password", "--json", stdin="short\n")
        assert short.error["fields"]["password"]
        assert run("users", "add", "x", "--role", "worker", "--json").code == 1
        assert run("login", "--role", "worker", "--json").code == 1


@contextlib.contextmanager
def running_dev(schema: dict[str, str]) -> Iterator[dict[str, str]]:
    """What it says when it is up."""
    process = subprocess.Popen(
        [ROTA, "dev", "cli_app:app", "--json"], cwd=SUPPORT, text=True,
        env={**os.environ, **schema}, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield next(told(process))
    finally:
        assert stop(process) == 0


@pytest.fixture(scope="module")
def dev(schema: dict[str, str]) -> Iterator[dict[str, str]]:
    with running_dev(schema) as up:
        yield up


def test_dev_serves_and_prints_a_link_that_lets_in_once(dev: dict[str, str]):
    secret = dev["login"].partition("#")[2]
    with httpx.Client(base_url=dev["server"], timeout=60) as browser:
        assert browser.get("/readyz").json()["ready"]
        assert browser.post("/login/link", json={"link": secret}).status_code == 200
        me = browser.get("/v1/session").json()
        assert (me["role"], me["namespaces"]) == ("admin", {"*": "admin"})
        assert browser.post("/login/link", json={"link": secret}).status_code == 401


def test_two_devs_side_by_side_find_ports_of_their_own(dev: dict[str, str], schema: dict[str, str]):
    with running_dev(schema) as other:
        assert other["server"] != dev["server"]
        for up in (dev, other):
            assert httpx.get(f"{up['server']}/healthz", timeout=60).status_code == 200


def test_start_refuses_to_be_public_without_protection(schema: dict[str, str]):
    done = subprocess.run(
        [ROTA, "start", "cli_app:app", "--role", "server", "--host", "0.0.0.0", "--port", "0"],
        cwd=SUPPORT, env={**os.environ, **schema}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "--insecure-public" in done.stderr


def test_other_commands_start_without_the_server():
    """Its import costs more than most commands take."""
    code = "import sys, rota.cli; sys.exit('litestar' in sys.modules or 'uvicorn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.usefixtures("environ")
class TestEncryption:
    def test_a_namespace_is_encrypted_counted_and_rotated(self, monkeypatch, environ):
        space = environ["ROTA_NAMESPACE"]
        old, new = (run("encrypt", "--new-key", name, "--json").json["key"] for name in ("a", "b"))
        assert old.startswith("a:")
        assert old != run("encrypt", "--new-key", "a").out.strip()
        run("jobs", "submit", "plain", '{"n": 1}', "--json")
        assert run("encrypt", "--json").json == [{"key": None, "values": 1}]

        monkeypatch.setenv("ROTA_ENCRYPTION_KEYS", old)
        assert "encrypted within" in run("namespaces", "encrypt", space).out
        assert "encrypted 1 rows" in run("encrypt", "--rotate").out
        assert run("encrypt", "--json").json == [{"key": "a", "values": 1}]

        monkeypatch.setenv("ROTA_ENCRYPTION_KEYS", f"{new},{old}")
        assert run("encrypt", "--rotate", "--json").json == {"encrypted": 1, "left": 0}
        assert run("encrypt", "--json").json == [{"key": "b", "values": 1}]
        assert "no longer encrypted" in run("namespaces", "decrypt", space).out

    def test_without_a_key_a_namespace_is_not_encrypted(self):
        refused = run("namespaces", "encrypt", "default", "--json")
        assert refused.code == 1
        assert refused.error["type"] == "KeyMissing"
