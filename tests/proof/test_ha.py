"""Rota on a Patroni cluster of three that is broken under load; and how its cost is counted."""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import msgspec
import pytest

from proof.ha import cluster, trial
from proof.ha.__main__ import show
from proof.ha.figures import available_seconds, longest_gap, read_figures
from proof.history import OK, Beat, Fault, Meta, Recorder, Submission, write_meta


def test_a_second_is_available_when_a_submit_was_accepted_in_it() -> None:
    assert available_seconds([10.1, 10.9, 12.0, 14.5], started=10.0, ended=14.2) == {0, 2}


def test_a_gap_is_counted_from_the_accepted_submit_before_a_fault_to_the_one_after() -> None:
    moments = [1.0, 2.0, 9.0, 10.0, 30.0]
    assert longest_gap(moments, first=3.0, last=9.5) == 7.0
    assert longest_gap(moments, first=9.2, last=9.5) == 1.0


def test_the_figures_of_a_history(tmp_path: Path) -> None:
    clients, journal = Recorder(tmp_path, "clients"), Recorder(tmp_path, "journal-worker-1")
    for number, at in enumerate((100.5, 101.5, 105.5)):
        clients.write(Submission(at, f"j{number}", "plain", "acknowledged"))
    for at, event, job, task in (
        (100.6, "start", "j0", "plain"), (100.7, "end", "j0", "plain"), (105.0, "start", "j0", "plain"),
        (101.0, "start", "m", "at_most"), (105.1, "start", "m", "at_most"),
        (102.2, "start", "s1", "tick"), (105.8, "start", "s2", "tick"),
    ):  # fmt: skip
        journal.write(Beat(at, event, job, task, 1, 1, "worker-1", outcome=OK))  # type: ignore[arg-type]
    Recorder(tmp_path, "faults").write(Fault(101.6, 105.9, "machine lost", "m1", "3.10"))
    dumps: dict[str, list[dict[str, object]]] = {
        "job": [{"id": "j0"}, {"id": "j2"}],
        "occurrence": [
            {"due_at": 1102.0, "job_id": "s1"}, {"due_at": 1103.0, "job_id": "s2"},
            {"due_at": 1104.0, "job_id": None}, {"due_at": 1200.0, "job_id": None},
        ],
        "app_effect": [{"job": "e"}, {"job": "e"}],
    }  # fmt: skip
    for name, rows in dumps.items():
        lines = (msgspec.json.encode(row) + b"\n" for row in rows)
        (tmp_path / f"db-{name}.jsonl").write_bytes(b"".join(lines))
    write_meta(tmp_path, Meta("sweep", {}, [], 100.0, 106.0, 107.0, 1000.0, 3.0, 3))
    found = read_figures(tmp_path, 100.0, 106.0)
    assert (found.accepted, found.lost, found.run_again) == (3, 1, 1)
    assert (found.at_most_once_twice, found.effects_doubled) == (1, 1)
    assert (found.seconds, found.available, found.due, found.punctual) == (6, 3, 3, 1)
    [cost] = found.costs
    assert (cost.led_after, cost.silent, cost.lost, cost.run_again) == (3.1, 4.0, 1, 1)
    assert "| machine lost | 3.1 s | 4.0 s |" in show(found, synchronous=False)


@pytest.mark.proof
@pytest.mark.timeout(600)
async def test_synchronous_replication_loses_nothing_when_the_leader_is_lost_or_cut_off() -> None:
    """The small version of `make ha`."""
    if reason := cluster.missing():
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="rota-ha-"))
    folder.chmod(0o711)
    began = time.monotonic()
    faults = ["machine lost", "cut off from its peers"]
    figures, broken = await trial.run(folder, faults, synchronous=True, rate=40, seconds=3)
    print(show(figures, synchronous=True), f"in {time.monotonic() - began:.0f} s")
    assert broken == []
    assert (figures.lost, figures.at_most_once_twice, figures.effects_doubled) == (0, 0, 0)
    assert [cost.kind for cost in figures.costs] == faults
    shutil.rmtree(folder)
