"""`rota audit export`: cli/audit.py."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from rota import App
from tests.support.command_line import run


def make_changes(number: int) -> None:
    async def change() -> None:
        async with App() as app:
            for each in range(number):
                await app.queues.pause(f"q{each}")

    asyncio.run(change())


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_change_is_in_the_export_once_however_many_pages(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rota.cli.audit._PAGE", 2)
    make_changes(5)
    file = tmp_path / "audit.jsonl"
    done = run("audit", "export", str(file), "--from", "-1h")
    assert done.code == 0
    written = lines(file.read_text())
    assert written == run("audit", "--json").json
    assert done.out == f"{len(written)} changes written to {file}.\n"
    paused = [entry["subject"] for entry in written if entry["action"] == "pause"]
    assert paused == [f"queue q{n}" for n in (4, 3, 2, 1, 0)]
    assert file.stat().st_mode & 0o077 == 0
    structured = run("audit", "export", str(file), "--from", "-1h", "--json")
    assert structured.json == {"file": str(file), "changes": len(written)}


def test_an_export_is_compressed_by_its_name_and_filtered(
    environ: dict[str, str], tmp_path: Path
) -> None:
    make_changes(2)
    file = tmp_path / "audit.jsonl.gz"
    given = ("--from", "-1h", "--subject", "queue q1")
    assert run("audit", "export", str(file), *given).code == 0
    [entry] = lines(gzip.decompress(file.read_bytes()).decode())
    assert (entry["action"], entry["subject"]) == ("pause", "queue q1")
    assert run("audit", "export", str(file), "--from", "-2h", "--to", "-1h").code == 0
    assert gzip.decompress(file.read_bytes()) == b""


def test_an_export_that_can_not_be_written_leaves_nothing_and_says_why(
    environ: dict[str, str], tmp_path: Path
) -> None:
    done = run("audit", "export", str(tmp_path / "no" / "audit.jsonl"), "--from", "-1h")
    assert done.code == 1
    assert "there is no folder" in done.err
    assert run("audit", "export", str(tmp_path / "x.jsonl")).code == 2  # without --from
    assert list(tmp_path.iterdir()) == []
