"""Runs commands of `rota` in the test's process, and follows those that run in their own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
import typer
from typer.testing import CliRunner

from rota.cli import cli
from tests.support.places import ROTA, SUPPORT


@pytest.fixture(scope="module")
def schema(database_url: str) -> Iterator[dict[str, str]]:
    """The environment that names it."""
    environ = {
        "ROTA_DATABASE_URL": database_url, "ROTA_SCHEMA": f"cli_{uuid4().hex[:8]}",
        "ROTA_PROCESSES": "1",  # each of them imports the app, before the node is up
    }  # fmt: skip
    subprocess.run([ROTA, "migrate"], env={**os.environ, **environ}, check=True)
    yield environ
    asyncio.run(drop_schema(environ))


async def drop_schema(environ: dict[str, str]) -> None:
    connection = await asyncpg.connect(environ["ROTA_DATABASE_URL"])
    await connection.execute(f"drop schema {environ['ROTA_SCHEMA']} cascade")
    await connection.close()


@pytest.fixture
def environ(schema: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    environ = {**schema, "ROTA_NAMESPACE": f"n{uuid4().hex[:8]}"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(SUPPORT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return environ


ROOT: Any = typer.main.get_command(cli)


def commands(command: Any = ROOT, path: str = "") -> Iterator[tuple[str, Any]]:
    """All commands by their path, groups included."""
    yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, f"{path} {name}".strip())


class Answer:
    """What a command said, and how it ended."""

    def __init__(self, result: Any) -> None:
        self.code: int = result.exit_code
        self.out: str = result.stdout
        self.err: str = result.stderr
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> dict[str, str]:
        """The one JSON error; nothing else may be on standard error."""
        document = json.loads(self.err)
        assert set(document) == {"error"}
        return document["error"]


def run(*arguments: str, stdin: str | None = None) -> Answer:
    return Answer(CliRunner().invoke(cli, list(arguments), input=stdin))


def submit(*arguments: str) -> str:
    answer = run("jobs", "submit", *arguments, "--json")
    assert answer.code == 0, answer.err
    job_id: str = answer.json["id"]
    return job_id


def told(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def stop(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGINT)
    with process.stdout or open(os.devnull):
        if process.stdout is not None:
            process.stdout.read()
    return process.wait(timeout=60)
