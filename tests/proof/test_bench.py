"""The parts of the benchmarks that can be wrong without anybody noticing: counting, ratios, plots."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from bench import goals, report
from bench.ground import Records
from bench.lags import _cron_figures
from bench.peers import common
from bench.peers.catalogue import PEERS
from bench.svg import Bar, bars, figure
from bench.workloads import WORKLOADS


def test_a_record_is_read_once_by_whoever_reads_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_RECORDS", str(tmp_path))
    note, records = common.Recorder("started"), Records(tmp_path, "started")
    for number in (0, 7):
        note(number)
    assert records.read() == 2
    note(7)
    assert records.read() == 3
    assert set(records.firsts()) == {0, 7}
    assert records.twice() == 1
    assert records.processes == 1


def test_half_a_record_waits_for_its_other_half(tmp_path: Path) -> None:
    whole = struct.pack("<Id", 5, 1.0)
    path = tmp_path / "started-1"
    path.write_bytes(whole + whole[:7])
    records = Records(tmp_path, "started")
    assert records.read() == 1
    path.write_bytes(whole + whole)
    assert records.read() == 2


def test_jobs_of_a_second_come_as_a_hundred_moments() -> None:
    given = list(common.batches({"count": 250, "first": 10, "due": 100.0, "spread": 1.0}))
    assert [number for _, numbers in given for number in numbers] == list(range(10, 260))
    assert given[0][0] == 100.0
    assert given[-1][0] == pytest.approx(100.99)


def test_ticks_that_are_missing_or_doubled_are_counted() -> None:
    class Given:
        seen = ((0, 100.1), (1, 100.2), (0, 101.1), (0, 101.3))

        def read(self) -> int:
            return len(self.seen)

    figures = _cron_figures(Given(), [100, 101], 1.0, 2)
    assert figures["missing"] == 1
    assert figures["twice"] == 1
    assert figures["jobs"] == 4


def test_a_plot_is_well_formed_and_says_its_figures() -> None:
    rows = [
        Bar("Rota & co", 12_345.0, 12_000.0, 13_000.0, ours=True),
        Bar("<other>", 3.0, 2.0, 4.0),
    ]
    for log in (False, True):
        drawn = ElementTree.fromstring(bars("No-ops", "jobs/s", rows, log=log))
        text = " ".join(drawn.itertext())
        assert "12,300 jobs/s" in text
        assert "<other>" in text
        assert drawn.get("role") == "img"


def test_figures_have_three_digits() -> None:
    assert [figure(value) for value in (0, 0.01234, 4.567, 123.4, 98_765.0)] == [
        "0", "0.0123", "4.57", "123", "98,800",
    ]  # fmt: skip


def test_goals_are_judged_by_the_medians_of_one_run() -> None:
    known: dict[tuple[str, str, str], float] = {
        ("noop_async", "rota", "rate"): 50_000.0,
        ("noop_async", "graphile-worker", "rate"): 40_000.0,
        ("noop_async", "pgqueuer", "rate"): 25_000.0,
        ("held", "rota", "rate"): 45_000.0,
    }
    rows = goals.judge(lambda *key: known.get(key), ["rota", "graphile-worker", "pgqueuer"])
    verdicts = {row.goal: row.verdict for row in rows}
    assert verdicts["No-op jobs: at least 1 of graphile-worker"] == "reached"
    assert verdicts["No-op jobs: at least 2.5 of pgqueuer"].startswith("**not reached**: workers")
    assert verdicts["With a transaction held open, of without: at least 0.8"] == "reached"
    assert len(rows) == 3


def test_a_page_tells_what_was_measured_and_why_the_rest_was_not(tmp_path: Path) -> None:
    cell = {"rate": 100.0, "jobs": 50.0, "ran": 49.0, "twice": 2.0}
    found: dict[str, Any] = {
        "about": {"date": "2026-01-01", "rounds": 3, "processor": "x", "cores": 2, "memory_gb": 4,
                  "system": "Linux", "python": "3.11", "load": "0.1", "settings": {"fsync": "on"}},
        "peers": {"rota": {"version": "1"}, "pgqueuer": {"version": "2"}, "awa": {"missing": "no|way"}},
        "cells": {"noop_async": {"rota": [cell, cell]}},
        "reasons": {"noop_async": {"pgqueuer": "it fell over"}},
    }  # fmt: skip
    report.write(found, tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert "4 ran twice; 2 did not run in time" in page
    assert "it fell over" in page
    assert "was left out: no/way" in page
    assert (tmp_path / "images/bench/noop_async.svg").exists()


def test_every_peer_has_an_adapter_that_says_how_it_was_tuned() -> None:
    names = {workload.name for workload in WORKLOADS}
    for peer in PEERS:
        assert len(peer.tuning()) > 80, peer.name
        assert set(peer.cannot) <= names
        assert set(peer.limits) <= names
        assert all("=" in package or "@" in package for package in peer.packages)
