"""Commands on a server: the same output as on its database, profiles, and what is refused."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from rota import App
from rota.cli import profiles
from rota.cli.remote import RemoteApp
from rota.client import AsyncClient
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.operations.installation import Installation
from rota.server.serving import Server
from rota.store.search import JobFilter
from tests.support.api import fail_jobs
from tests.support.command_line import commands, run

# What each command that reads is called with; `{name}` is filled in from the world below.
READS: dict[str, list[str]] = {
    "jobs list": [], "jobs dead": [], "jobs show": ["{job}"], "jobs explain": ["{job}"],
    "jobs logs": ["{failed}"],
    "history export": ["-", "--from", "-1d", "--to", "+1d"], "queues list": [], "queues limits": [],
    "pools list": [], "pools show": ["all"], "queues shares": ["default"], "tasks list": [],
    "tasks show": ["nothing"], "tasks stats": ["broken"], "events": [], "nodes list": ["--all"],
    "webhooks deliveries": ["{webhook}"],
    "shards": [], "endpoints list": [], "endpoints show": ["push"], "webhooks list": [],
    "users list": [],
    "roles list": [], "roles show": ["admin"], "roles permissions": [],
    "sessions list": [], "tokens list": [], "namespaces list": [],
    "audit list": [], "audit export": ["-", "--from", "-1d", "--to", "+1d"],
    "doctor": [], "schedules list": [], "schedules show": ["nightly"],
    "schedules occurrences": ["nightly"], "schedules audit": [], "schedules lint": [],
    "schedules preview": ["nightly", "--after", "2027-01-31T09:00+01:00"],
    "schedules forecast": ["--slots", "4", "--days", "2"], "workflows list": [],
    "workflows show": ["flow"], "workflows export": [], "queues export": [], "runs list": [],
    "runs show": ["{run}"],
    "runs explain": ["{run}"], "runs history": ["{run}"], "runs members": ["{mapped}", "parts"],
    "signals list": [], "jobs watch": ["{failed}"], "jobs changes": [], "alerts list": [],
    "maintenance list": [], "triggers list": [], "triggers show": ["orders"], "sinks list": [],
    "sinks show": ["out"],
}  # fmt: skip
MORE = [
    "jobs list --state failed --limit 1", "jobs list --task greet --tag red",
    "jobs dead --list", "jobs dead --task broken", "jobs logs {failed} --attempt 1",
    "tokens list --all-namespaces --revoked", "audit --all-namespaces --interface cli",
    "schedules list --tag daily", "runs show {run} --limit 1", "runs list --state running",
]  # fmt: skip
# Commands that change something, or that need the database or nothing at all.
CHANGES = {
    "jobs submit", "jobs cancel", "jobs retry", "jobs discard", "queues pause", "queues resume",
    "queues set", "queues weight", "queues apply", "pools set", "pools delete",
    "maintenance set", "maintenance delete", "schedules create",
    "schedules pause", "schedules resume",
    "schedules trigger",
    "schedules delete", "schedules backfill", "schedules apply", "schedules import",
    "workflows start", "workflows retire", "workflows apply", "runs cancel", "runs pause",
    "runs resume", "runs retry", "runs retry-members", "runs skip", "runs send", "signals send",
    "endpoints add", "endpoints change", "endpoints remove", "webhooks add", "webhooks remove",
    "webhooks pause", "webhooks resume", "webhooks test", "webhooks allow", "webhooks disallow",
    "users add", "users remove", "roles set", "roles delete",
    "sessions end", "tokens create", "tokens revoke",
    "namespaces limit", "namespaces unlimit", "namespaces encrypt", "namespaces decrypt",
    "login", "profiles use", "profiles remove", "nodes drain", "nodes undrain", "nodes stop",
    "webhooks redeliver", "jobs undo", "queues undo", "alerts acknowledge", "alerts silence",
    "alerts restore", "triggers pause", "triggers resume", "triggers rewind", "triggers remove",
    "sinks pause", "sinks resume", "sinks rewind", "sinks remove",
}  # fmt: skip
ELSEWHERE = {
    "dev": "runs a node", "start": "runs a node", "pool": "runs nodes", "migrate": "changes the schema",
    "recover": "adopts a database",
    **dict.fromkeys(("persons list", "persons show", "persons erase"), "need the encryption keys"),
    "grants": "changes the rights of database roles", "encrypt": "reads values with keys",
    "history partitions": "is about the whole database",
    "persons list": "needs the database", "persons show": "needs the database",
    "persons erase": "needs the database",
    "schedules declare": "compares with the database what code declares",
    "workflows check-replay": "has a test of its own", "profiles list": "reads a file",
    "runs watch": "waits for the end of a run",
    "completion": "reads nothing", "version": "reads nothing",
}  # fmt: skip


def test_every_command_is_known_here():
    leaves = {path for path, each in commands() if not hasattr(each, "commands")}
    assert leaves == {*READS, *CHANGES, *ELSEWHERE}


class Remote:
    """A server in a thread of its own, on the schema of the commands."""

    def __init__(self) -> None:
        self.url = ""
        self._ready, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = App(port=0)
        server = Server(app)
        await server.start()
        self.url = server.url
        self._ready.set()
        await self._stop.wait()
        await server.stop()
        await app.close()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)


async def fill() -> dict[str, str]:
    app = App()
    names: dict[str, str] = {}
    names["job"] = str((await app.submit("greet", {"name": "Ada"}, tags=["red"])).id)
    names["failed"] = str((await app.submit("broken", {"n": 1})).id)
    await fail_jobs(app, [names["failed"]], "no paper")
    await app.schedule("nightly", "greet", cron="0 3 * * *", tags=["daily"], payload={"name": "B"})
    await app.schedule("gone", "greet", every="1h", exclude=[], description="every hour")
    await app.schedules.trigger("nightly")
    await app.endpoints.add("push", "https://example.org/push")
    names["webhook"] = str((await app.webhooks.add("https://example.org/hook")).webhook.id)
    await app.queues.pause("default")
    await app.pools.put("all", max_slots=8)
    await app.maintenance.put("move", time="2h", kinds=["missed"], note="to the new rack")
    await app.submit("unwanted", {}, delay=3600)
    done = await app.jobs.change_matching("cancel", JobFilter(task="unwanted"))
    names["bulk"] = str(done.bulk)
    await app.queues.pause("held")
    [paused] = await app.rota.audit.list(app.settings.namespace, limit=1)
    names["entry"] = str(paused.id)
    source = ("orders", "charge", "redis://localhost:6379/orders")
    database = (await app.store()).database
    await database.fetch("declare_trigger", app.settings.namespace, *source, None)
    await database.fetch(
        "declare_sink", app.settings.namespace, "out", "redis://localhost/out", None
    )
    steps = [StepDefinition(name="first", task="greet"), StepDefinition(name="second", task="greet",
             after=["first"]), StepDefinition(name="parts", map="greet", over=[1, 2])]  # fmt: skip
    await app.workflows.put_all([Graph(Definition(name="flow", steps=steps))])
    names["run"] = str((await app.runs.start("flow", {})).id)
    names["mapped"] = names["run"]
    await app.signals.send("paid", "order-1", {"sum": 1})
    installation = Installation(app.connector)
    space = app.settings.namespace
    await installation.users.add(f"ada-{space}", role="operator", namespace=space)
    made = await installation.tokens.create("ops", namespace=space, role="admin", everywhere=True)
    names["token"] = made.token
    await app.close()
    return names


@pytest.fixture
def world(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[dict[str, str]]:
    monkeypatch.setenv("ROTA_CONFIG", str(tmp_path / "config.toml"))
    names = asyncio.run(fill())
    with Remote() as server:
        yield {**names, "url": server.url}


def both(world: dict[str, str], monkeypatch: Any, *command: str) -> tuple[Any, Any]:
    """Run a command on the database, and on the server without the database's address."""
    here = run(*command)
    with monkeypatch.context() as patched:
        patched.delenv("ROTA_DATABASE_URL")
        patched.delenv("ROTA_SCHEMA")
        patched.setenv("ROTA_TOKEN", world["token"])
        there = run(*command, "--server", world["url"])
    return here, there


# What moves between two looks: ages, when the token was used last, periods that end now, what the
# check-up counts, and since when a queue is late, which follows from an age.
MOVING = {"heartbeat_age", "last_used_at", "lag", "cursor", "first", "says", "latest_at"}


def still(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: still(each) for key, each in value.items() if key not in MOVING}
    if isinstance(value, str):
        return re.sub(r"late by [^,]+", "late by some time", value)  # of an alert
    return [still(each) for each in value] if isinstance(value, list) else value


def test_every_read_has_the_same_output_on_a_server(world, monkeypatch: pytest.MonkeyPatch):
    commands = [[*path.split(), *arguments] for path, arguments in READS.items()]
    for command in [*commands, *(each.split() for each in MORE)]:
        filled = [part.format(**world) for part in command]
        for _ in range(5):  # what says how long something lasts may change between the two
            here, there = both(world, monkeypatch, *filled, "--json")
            if here.out == there.out:
                break
        if here.code == 1 and here.err:  # it is refused in the same words
            assert there.error["message"] == here.error["message"], filled
            continue
        assert (here.code, here.err) == (there.code, there.err), (filled, here.err, there.err)
        if "logs" in filled or filled[1:3] == ["export", "-"]:  # a document in each line
            assert here.out == there.out, filled
        else:
            assert still(here.json) == still(there.json), filled
            assert list(_keys(here.json)) == list(_keys(there.json)), filled


def _keys(value: Any) -> Iterator[str]:
    """The names of fields in their order, which is a part of the output."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from _keys(each)
    elif isinstance(value, list):
        for each in value:
            yield from _keys(each)


def test_tables_are_the_same_too(world, monkeypatch: pytest.MonkeyPatch):
    for command in ("endpoints list", "workflows list", "schedules lint", "webhooks list", "shards",
                    "signals list", "users list", "namespaces list", "workflows export"):  # fmt: skip
        here, there = both(world, monkeypatch, *command.split())
        assert here.out == there.out, command


# -- changes


@pytest.fixture
def there(world: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Only the server is named."""
    monkeypatch.delenv("ROTA_DATABASE_URL")
    monkeypatch.setenv("ROTA_SERVER", world["url"])
    monkeypatch.setenv("ROTA_TOKEN", world["token"])
    return world


def test_changes_are_made_through_the_server(there: dict[str, str], tmp_path: Path):
    """In an order in which each has something to change."""
    flow = tmp_path / "flow.yaml"
    flow.write_text("workflows:\n  filed:\n    steps:\n      only: {task: greet}\n")
    plan = tmp_path / "plan.yaml"
    plan.write_text("schedules:\n  hourly: {task: greet, every: 1h}\n")
    queues = tmp_path / "queues.yaml"
    queues.write_text("queues: {mail: {policy: fair, rate: 5/s, weights: {acme: 5}}}")
    crontab = tmp_path / "crontab"
    crontab.write_text("0 4 * * * /bin/true\n")
    changes = """
        jobs submit greet {} --delay 1h --key once --tag blue
        queues resume default | queues pause mail --new | queues set mail --max-run-time 5m
        queues set mail --concurrency 3 | queues apply QUEUES --yes
        schedules create noon --task greet --cron @daily | schedules pause noon --for 2h
        schedules resume noon | schedules trigger noon | schedules delete noon --yes
        schedules backfill nightly --from -3d --to -1d --yes
        schedules apply PLAN --yes | schedules import CRONTAB --yes
        workflows apply FLOW --yes | workflows start filed --key flow-once
        workflows retire filed | workflows retire filed --undo
        runs pause RUN | runs resume RUN | runs skip RUN second | runs cancel RUN
        signals send paid order-2 1 --once a
        jobs retry FAILED | jobs cancel FAILED
        endpoints add pull https://example.org/pull | endpoints change pull --timeout 5
        endpoints remove pull --yes
        webhooks add https://example.org/more
        users add eve --role viewer | users remove eve --yes
        roles set mailer --permission queues --in acme | roles delete mailer --yes
        tokens create ci --expires 1d
        namespaces limit acme --max-jobs 5 | namespaces unlimit acme --yes
        sessions end --links --yes
        alerts acknowledge queue-paused:held --note later | alerts silence queue-paused:held --for 2h
        alerts restore queue-paused:held | queues undo held ENTRY | jobs undo BULK
        triggers pause orders | triggers resume orders | triggers rewind orders --yes
        triggers remove orders --yes
        sinks pause out | sinks resume out | sinks rewind out --yes | sinks remove out --yes
    """
    names = {"RUN": there["run"], "FAILED": there["failed"], "ENTRY": there["entry"],
             "BULK": there["bulk"], "PLAN": str(plan), "CRONTAB": str(crontab),
             "FLOW": str(flow), "QUEUES": str(queues)}  # fmt: skip
    for line in changes.strip().splitlines():
        for text in line.split("|"):
            command = [names.get(part, part) for part in text.split()]
            answer = run(*command, "--json")
            assert answer.code == 0, (command, answer.err)
    listed = run("schedules", "list", "--json").json
    assert {(each["name"], each["source"]) for each in listed} >= {
        ("hourly", "file"), ("nightly", "api")}  # fmt: skip
    actors = {entry["interface"] for entry in run("audit", "--json").json}
    assert "rest" in actors


def test_dead_letters_are_retried_and_discarded_by_filter(there: dict[str, str]):
    assert run("jobs", "retry", "--failed", "--task", "broken", "--yes", "--json").json == {
        "retried": [there["failed"]]
    }
    none = run("jobs", "discard", "--failed", "--task", "nothing", "--yes")
    assert none.code == 1
    assert "No failed job has task 'nothing'" in none.err


def test_errors_of_a_server_are_those_of_the_library(world, monkeypatch: pytest.MonkeyPatch):
    for command in ("jobs show 00000000-0000-0000-0000-000000000000", "schedules show nothing",
                    "jobs watch 00000000-0000-0000-0000-000000000000",
                    "queues pause nothing", "workflows start nothing"):  # fmt: skip
        here, there = both(world, monkeypatch, *command.split(), "--json")
        assert here.code == there.code == 1
        assert here.error["type"] == there.error["type"], command
        assert here.error["message"] == there.error["message"], command


def test_what_needs_the_database_says_so(there: dict[str, str]):
    for command in ("migrate", "encrypt", "grants shop", "start shop:app"):
        answer = run(*command.split(), "--server", there["url"])
        assert answer.code == 1
        assert "works on a database, not on a server" in answer.err, answer.err
    refused = run("webhooks", "allow", "10.0.0.1")
    assert refused.code == 1
    assert "webhooks allow: servers don't offer this" in refused.err
    both_given = run("jobs", "list", "--server", there["url"], "--database-url", "postgresql://x/y")
    assert both_given.code == 2


# -- profiles and tokens


def test_logging_in_makes_a_profile_that_only_its_owner_can_read(there, monkeypatch, tmp_path):
    monkeypatch.delenv("ROTA_TOKEN")
    monkeypatch.delenv("ROTA_SERVER")
    monkeypatch.delenv("ROTA_NAMESPACE")
    monkeypatch.setattr(profiles, "_keyring", lambda: None)
    refused = run("login", "--server", there["url"], stdin="rota_wrong\n")
    assert refused.code == 1
    assert not profiles.config_path().exists()
    answer = run(
        "login", "--server", there["url"], "--profile", "shop", stdin=f"{there['token']}\n"
    )
    assert answer.code == 0, answer.err
    assert "admin of all namespaces" in answer.out
    assert there["token"] not in answer.out + answer.err
    path = profiles.config_path()
    assert path.stat().st_mode & 0o777 == 0o600
    assert there["token"] not in run("profiles", "list", "--json").out
    assert run("queues", "list", "--json").code == 0  # by the current profile
    path.chmod(0o640)
    open_file = run("queues", "list")
    assert open_file.code == 1
    assert f"chmod 600 {path}" in open_file.err
    path.chmod(0o600)
    assert run("profiles", "use", "other").code == 1
    assert run("profiles", "remove", "shop", "--yes").code == 0
    assert there["token"] not in path.read_text()


def test_the_token_of_a_profile_is_only_sent_to_its_server(there, monkeypatch):
    monkeypatch.delenv("ROTA_TOKEN")
    monkeypatch.setattr(profiles, "_keyring", lambda: None)
    assert run("login", "--server", there["url"], stdin=f"{there['token']}\n").code == 0
    assert run("queues", "list", "--server", there["url"]).code == 0
    elsewhere = run("queues", "list", "--server", "https://127.0.0.1:1")
    assert elsewhere.code == 1
    assert "no token for https://127.0.0.1:1" in elsewhere.err


def test_a_token_is_not_sent_in_clear_text(there, monkeypatch):
    answer = run("queues", "list", "--server", "http://rota.example.org")
    assert answer.code == 1
    assert "is not encrypted" in answer.err
    answer = run("queues", "list", "--server", "http://127.0.0.1.example.org")
    assert "is not encrypted" in answer.err
    for wrong in ("http://[::1", "http://rota.example.org:99999"):
        assert "is not an address" in run("queues", "list", "--server", wrong).err
    answer = run("login", "--server", "http://rota.example.org", stdin="rota_x\n")
    assert "--insecure" in answer.err


def test_a_keyring_holds_the_token_where_there_is_one(there, monkeypatch):
    monkeypatch.delenv("ROTA_TOKEN")
    ring = Ring()
    monkeypatch.setattr(profiles, "_keyring", lambda: ring)
    assert run("login", "--server", there["url"], stdin=f"{there['token']}\n").code == 0
    assert ring.kept == {("rota", there["url"].split("//")[1].replace(":", "-")): there["token"]}
    assert there["token"] not in profiles.config_path().read_text()
    assert run("queues", "list").code == 0
    monkeypatch.setattr(profiles, "_keyring", lambda: None)
    lost = run("queues", "list")
    assert "keyring that can't be read here" in lost.err


class Ring:
    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def set_password(self, service: str, name: str, token: str) -> None:
        self.kept[service, name] = token

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))


def test_a_file_that_is_cut_off_while_it_is_written_stays_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("ROTA_CONFIG", str(tmp_path / "new" / "config.toml"))
    first = profiles.Profiles(
        current="a", profiles={"a": profiles.Profile("https://a", 't"\n\x7f')}
    )
    profiles.write_profiles(first)
    assert profiles.read_profiles() == first

    def full(self: Path, target: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        profiles.write_profiles(profiles.Profiles())
    assert profiles.read_profiles() == first
    assert os.listdir(tmp_path / "new") == ["config.toml"]


# -- signatures


# Verbs that commands use, and that are the client's as they are.
PASSED_ON = {
    "jobs": "explain retry discard",
    "queues": "list resume set_weight shares limits undo",
    "nodes": "drain undrain stop",
    "pools": "list get put delete",
    "endpoints": "list get remove",
    "triggers": "get pause resume rewind remove",
    "sinks": "get pause resume rewind remove",
    "webhooks": "remove pause resume deliveries",
    "alerts": "list acknowledge silence restore",
    "bulk": "get undo",
    "workflows": "list get",
    "runs": "get explain cancel pause resume retry retry_members skip send",
    "signals": "send",
    "schedules": "get latest resume trigger pause delete forecast backfill",
    "namespaces": "set_limits remove_limits set_encrypted",
    "users": "remove",
    "roles": "get set delete",
}


def test_remote_verbs_take_no_more_than_the_operations():
    """What a command passes is defined by the operations: a remote verb may leave some of it out."""
    app = App(database_url="postgresql://nowhere/none")
    remote = RemoteApp(AsyncClient("http://127.0.0.1:1", "rota_x"), None)
    installation = Installation(app.connector)
    nouns = {
        name: (getattr(remote, name), getattr(app, name))
        for name in ("jobs", "dead", "registry", "queues", "nodes", "schedules", "events", "webhooks",
                     "workflows", "runs", "signals", "endpoints", "pools", "triggers", "sinks", "alerts",
                     "bulk")
    } | {
        name: (getattr(remote.installation, name), getattr(installation, name))
        for name in ("tokens", "users", "roles", "sessions", "namespaces", "audit")
    }  # fmt: skip
    for name, (there, here) in nouns.items():
        own = {verb for verb in vars(type(there)) if not verb.startswith("_")}
        clients = set(PASSED_ON.get(name, "").split())
        assert not own & clients
        for verb in own | clients:
            known = inspect.signature(getattr(here, verb)).parameters
            any_name = any(each.kind is each.VAR_KEYWORD for each in known.values())
            for each in inspect.signature(getattr(there, verb)).parameters.values():
                if verb in clients and each.default is not each.empty:
                    continue  # the client may have options of its own
                assert each.name in known or any_name or each.kind is each.VAR_KEYWORD, (
                    f"{name}.{verb}({each.name})"
                )
