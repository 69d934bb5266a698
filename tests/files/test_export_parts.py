"""Exports that go on where they were interrupted (files/export_parts.py)."""

from __future__ import annotations

import gzip
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from rota import ConfigError
from rota.files import export_parts
from rota.files.export_parts import Request, check_same, export_in_parts, find_begun
from rota.lib.row_files import whole_file


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
    since, until = request_of.since, request_of.until
    begun = replace(request_of, asked=(since, until), namespace="default")
    hour = timedelta(hours=1)
    for other, says in [
        (replace(begun, task="charge"), "of task any, this one of charge"),
        (replace(begun, namespace="billing"), "of namespace default, this one of billing"),
        (replace(begun, asked=(since - hour, until)), r"begins at .* give the same period"),
        (replace(begun, asked=(since, until - hour)), r"ends at .* give the same period"),
        (replace(begun, asked=(since, until + hour)), r"ends at .* give the same period"),
    ]:
        with pytest.raises(ConfigError, match=says):
            check_same(other, begun, path)
    # Relative moments, such as -1d, are those of the export that was begun.
    later = replace(begun, since=since + hour, until=until + hour, asked=(None, None))
    assert check_same(later, begun, path) == begun
    path.with_name("jobs.jsonl.part.json").write_text("{")
    with pytest.raises(ConfigError, match=r"can't go on .* begin anew"):
        find_begun(path)
    with pytest.raises(ConfigError, match="no folder"):
        await export_in_parts(app.history, request_of, tmp_path / "nowhere" / "jobs.jsonl")
    with pytest.raises(ConfigError, match=r"'\.' is not the name of a file"):
        find_begun(Path("."))


async def test_two_exports_do_not_write_the_same_file(sandbox, greeted, request_of, tmp_path):
    app, path = sandbox.app, tmp_path / "jobs.jsonl"

    class History:
        """Another export begins while this one is under way."""

        async def jobs(self, *period, **chosen):
            with pytest.raises(ConfigError, match="another export is writing"):
                await export_in_parts(app.history, request_of, path)
            async for job in app.history.jobs(*period, **chosen):
                yield job

    assert await export_in_parts(History(), request_of, path) == 25
    assert read(path) == greeted


async def test_a_part_that_lost_its_end_is_written_anew(
    sandbox, greeted, request_of, tmp_path, monkeypatch
):
    path = tmp_path / "jobs.jsonl"
    dies_at(monkeypatch, "write", 3)
    with pytest.raises(Died):
        await export_in_parts(sandbox.app.history, request_of, path)
    monkeypatch.undo()
    os.truncate(tmp_path / "jobs.jsonl.part", 10)
    begun = find_begun(path)
    assert begun is not None
    assert await export_in_parts(sandbox.app.history, begun, path) == 25
    assert read(path) == greeted


async def test_a_device_is_not_replaced_by_a_file(app, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"), whole_file(pipe):
        pass
    assert pipe.is_fifo()
