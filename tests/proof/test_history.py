"""Histories can be read while they are being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.history import Beat, History, Recorder

_BEAT = Beat(1.0, "start", "job-1", "plain", 1, 1, "w1")


def test_a_line_that_is_still_being_written_is_not_read_yet(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, "journal-w1")
    recorder.write(_BEAT)
    file = tmp_path / "journal-w1.jsonl"
    whole = file.read_bytes()
    for length in range(1, len(whole)):
        file.write_bytes(whole + whole[:length])
        assert History(tmp_path).beats() == [_BEAT]
    file.write_bytes(whole + whole)
    assert History(tmp_path).beats() == [_BEAT, _BEAT]


def test_a_complete_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "journal-w1.jsonl").write_bytes(b'{"at": 1.0,\n')
    with pytest.raises(ValueError, match=r"journal-w1\.jsonl, line 1: "):
        History(tmp_path).beats()
