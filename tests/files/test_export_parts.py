"""Exports that go on where they were interrupted (files/export_parts.py)."""

from __future__ import annotations

import gzip
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from rota import ConfigError
from rota.files import export_parts
from rota.files.export_parts import Request, check_same, export_in_parts, find_begun


@pytest.fixture
async def greeted(sandbox):
    @sandbox.app.task
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    ids = [str((await greet.submit(str(n))).id) for n in range(25)]
    await sandbox.run_due()
    return ids


@pytest.fixture
def request_of(sandbox):
    now = sandbox.now()
    return Request(now - timedelta(days=1), now + timedelta(days=1))


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    monkeypatch.setattr(export_parts, "_STEP", 1_000)  # a few jobs
    monkeypatch.setattr("rota.operations.history._PAGE", 7)


def read(path: Path) -> list[str]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return [json.loads(line)["id"] for line in file]


class Died(Exception):
    pass


def dies_at(monkeypatch, name: str, call: int) -> None:
    """Die at the n-th call of this function of the system, as a killed process would."""
    real, calls = getattr(os, name), [0]

    def counted(*arguments: object) -> object:
        calls[0] += 1
        if calls[0] == call:
            raise Died
        return real(*arguments)

    monkeypatch.setattr(os, name, counted)


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz"])
async def test_whenever_it_dies_the_next_run_ends_with_the_same_file(
    sandbox, greeted, request_of, tmp_path, ending
):
    app = sandbox.app
    whole = tmp_path / f"whole.{ending}"
    assert await export_in_parts(app.history, request_of, whole) == 25
    assert read(whole) == greeted
    assert {one.name for one in tmp_path.iterdir()} == {whole.name}
    died = 0
    for name in ("write", "fsync", "replace", "unlink"):
        for call in range(1, 60):
            path = tmp_path / f"{name}{call}.{ending}"
            with pytest.MonkeyPatch.context() as patch:
                dies_at(patch, name, call)
                try:
                    await export_in_parts(app.history, request_of, path)
                except Died:
                    died += 1
                else:
                    break
            begun = find_begun(path)
            if path.exists():  # all is in it, and only the request is left to be removed
                assert read(path) == greeted
            again = begun or request_of
            assert await export_in_parts(app.history, again, path) == 25
            assert read(path) == greeted
            assert find_begun(path) is None
    assert died > 20


async def test_jobs_that_are_on_the_disk_are_not_read_again(
    sandbox, greeted, request_of, tmp_path, monkeypatch
):
    app = sandbox.app
    path = tmp_path / "jobs.jsonl"
    dies_at(monkeypatch, "write", 3)
    with pytest.raises(Died):
        await export_in_parts(app.history, request_of, path)
    monkeypatch.undo()
    begun = find_begun(path)
    assert begun is not None
    assert 0 < begun.jobs < 25
    assert str(begun.after) == greeted[begun.jobs - 1]


async def test_another_request_is_refused(app, greeted, request_of, tmp_path):
    path = tmp_path / "jobs.jsonl"
    with pytest.raises(ConfigError, match="of task charge, this one of any"):
        check_same(
            request_of,
            Request(request_of.since, request_of.until, task="charge"),
            path,
            with_end=False,
        )
    shorter = Request(request_of.since, request_of.since)
    with pytest.raises(ConfigError, match=r"ends at .* give the same period"):
        check_same(shorter, request_of, path, with_end=True)
    path.with_name("jobs.jsonl.part.json").write_text("{")
    with pytest.raises(ConfigError, match=r"can't go on .* begin anew"):
        find_begun(path)
    with pytest.raises(ConfigError, match="no folder"):
        await export_in_parts(app.history, request_of, tmp_path / "nowhere" / "jobs.jsonl")
