"""Nothing secret gets into a node's own output, whatever goes wrong around it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from proof.waiting import eventually
from rota import App
from rota.config import Settings
from rota.lib.redaction import Redactor, secrets_of
from tests.support.cluster import all_ended
from tests.support.places import ROOT, ROTA

KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
IN_URL, IN_PAYLOAD, IN_HEADER, IN_KEY = (
    f"canary-{n}-5ecr3t" for n in ("url", "pay", "head", "key")
)


def with_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    user = parts.username or "postgres"
    return urlunsplit(parts._replace(netloc=f"{user}:{IN_URL}@{host}"))


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("to postgresql://u:pw%40x@h:5432/d now", "to postgresql://u:***@h:5432/d now"),
        ("postgres://u:a@b@h/d", "postgres://u:***@h/d"),
        ("postgresql://h/d?user=u&password=pw&x=1", "postgresql://h/d?user=u&password=***&x=1"),
        ("token rota_abcdefgh_" + "x" * 43, "token rota_abcdefgh_***"),
        ("{'Authorization': 'Bearer abc.def'}", "{'Authorization': 'Bearer ***'}"),
        (f"known: {KEY}!", "known: ***!"),
        ("http://127.0.0.1:8400/x at 12:30", "http://127.0.0.1:8400/x at 12:30"),
        ("a://b/c,postgres://rota:rota@rota/rota", "a://b/c,postgres://rota:***@rota/rota"),
        ("host=h user=rota password=rota dbname=rota", "host=h user=rota password=*** dbname=rota"),
        ("PGPASSWORD='a b' psql", "PGPASSWORD=*** psql"),
        ("{'password': 'rota', 'user': 'rota'}", "{'password': ***, 'user': 'rota'}"),
        ('{"oidc_client_secret": "rota"}', '{"oidc_client_secret": ***}'),
    ],
)
def test_what_is_or_looks_like_a_secret_is_hidden(text: str, clean: str) -> None:
    redactor = Redactor()
    redactor.learn(["rota", KEY])
    assert redactor.clean(text) == clean


@pytest.mark.parametrize(
    "text",
    [
        "rota.node: node rota-1 is up: `rota migrate` creates the schema rota",
        "fencing token=17, the password must have at least 10 characters: run `rota users`",
        "password: wrong, secret ballot, hunter2",
    ],
)
def test_a_password_that_is_a_word_is_left_where_it_is_one(text: str) -> None:
    redactor = Redactor()
    redactor.learn(secrets_of(Settings(database_url="postgresql://rota:rota@h/d")))
    redactor.learn(["hunter2", "password", "secret"])
    assert redactor.clean(text) == text


@pytest.mark.parametrize(
    "piece", ["ab://:", "ab://u", "://", "a@", "password=", "password='", 'secret: "', "x:" * 8 + "//",
              "authorization: bearer ", "rota_abcdefgh_x", "?token=", "password ", "id_token\t"],
)  # fmt: skip
def test_the_cost_of_redaction_grows_with_the_text_and_no_faster(piece: str) -> None:
    redactor = Redactor()
    redactor.learn([KEY])

    def cost_of(size: int) -> float:
        text = piece * (size // len(piece))
        found = []
        for _ in range(5):
            begun = time.thread_time()
            redactor.clean(text)
            found.append(time.thread_time() - begun)
        return min(found)

    # Eight times the size: eight times the work, where scanning again makes it 64.
    assert cost_of(64_000) < 24 * cost_of(8_000)


def test_settings_dont_show_their_secrets() -> None:
    settings = Settings(
        database_url="postgresql://me:canary-1@db/x", encryption_keys="main:canary-2,old:canary-3",
        oidc_client_secret="canary-4", namespace="shop",
    )  # fmt: skip
    assert "canary" not in repr(settings)
    assert "namespace='shop'" in repr(settings)
    assert {f"canary-{number}" for number in (1, 2, 3, 4)} <= secrets_of(settings)


def test_the_settings_secrets_are_known_in_both_spellings() -> None:
    settings = Settings(
        database_url="postgresql://u:p%40ss-word@h/d", oidc_client_secret="oidc-one"
    )
    assert secrets_of(settings) == {"p%40ss-word", "p@ss-word", "oidc-one"}


@pytest.fixture
def start(database_url: str, make_app: Callable[..., App], tmp_path: Path):
    """`rota start` in a process of its own; its whole output, standard error and output together."""
    started: list[subprocess.Popen[bytes]] = []

    def start(url: str, form: str) -> tuple[subprocess.Popen[bytes], Path]:
        settings = make_app().settings
        output = tmp_path / f"output-{len(started)}"
        environment = {
            **os.environ, "ROTA_DATABASE_URL": url, "ROTA_SCHEMA": settings.schema,
            "ROTA_HEARTBEAT": "0.5", "ROTA_PROCESSES": "1", "ROTA_METRICS_PORT": "0",
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        with output.open("wb") as file:
            node = subprocess.Popen(
                [
                    ROTA, "start", "tests.support.canary_tasks:app",
                    "--role", "worker", "--role", "scheduler",
                    "--log-level", "debug", "--log-format", form,
                ],
                env=environment, stdout=file, stderr=file, cwd=ROOT, start_new_session=True,
            )  # fmt: skip
        started.append(node)
        return node, output

    yield start
    for node in started:
        if node.poll() is None:
            node.kill()
        node.wait()


@pytest.mark.parametrize("form", ["json", "pretty"])
async def test_a_failing_cluster_says_nothing_secret(
    start, make_app: Callable[..., App], database_url: str, form: str
) -> None:
    app = make_app()
    node, output = start(with_password(database_url), form)
    handles = [
        await app.submit(
            task, {"secret": IN_PAYLOAD}, headers={"authorization": IN_HEADER},
            key=f"{IN_KEY}-{task}", max_attempts=2 if task == "fail" else 1,
            timeout=0.2 if task == "hang" else None,
        )
        for task in ("fail", "crash", "hang", "return_it")
    ]  # fmt: skip
    jobs = await all_ended(app, [handle.id for handle in handles])
    assert sorted(job.state for job in jobs.values()) == ["failed"] * 3 + ["succeeded"]
    # The database throws everybody out, again and again: the errors are logged with their traces.
    store = await app.store()
    for _ in range(3):
        async with store.database.connection() as connection:
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name like 'rota %' and pid <> pg_backend_pid()"
                f" and query ~ '{app.settings.schema}'"
            )
        await asyncio.sleep(0.3)
    node.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(node.wait, 60) == 0
    said = output.read_text()
    assert "is up" in said
    for canary in (IN_URL, IN_PAYLOAD, IN_HEADER, IN_KEY):
        assert canary not in said
    if form == "json":
        _check_json(said, jobs)
    else:
        assert f"shop: about to fail [job={handles[0].id} attempt=1 task=fail]" in said


def _check_json(said: str, jobs: object) -> None:
    lines = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    by_handler = [line for line in lines if line["message"] == "about to fail"]
    assert [line["attempt"] for line in by_handler] == [1, 2]
    assert {line["task"] for line in by_handler} == {"fail"}
    assert len({line["node"] for line in by_handler}) == 1
    assert {"time", "level", "logger"} <= set(lines[0])


async def test_a_url_that_doesnt_work_is_not_shown(start) -> None:
    node, output = start(f"postgresql://nobody:{IN_URL}@127.0.0.1:1/none", "pretty")
    await eventually(lambda: "can't start yet" in output.read_text())
    node.send_signal(signal.SIGTERM)
    await asyncio.to_thread(node.wait, 60)
    assert IN_URL not in output.read_text()
