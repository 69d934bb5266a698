"""The parts of the benchmarks that can be wrong without anybody noticing: counting, ratios, plots."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from bench import cluster, compare, goals, load, plan, precision, report, sections
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


def test_a_record_that_is_written_after_its_neighbour_is_neither_lost_nor_doubles_it(
    tmp_path: Path,
) -> None:
    path, first, second = (
        tmp_path / "started-1",
        struct.pack("<Id", 5, 1.0),
        struct.pack("<Id", 6, 2.0),
    )
    records = Records(tmp_path, "started")
    path.write_bytes(bytes(12) + second)  # two threads, of which the second was quicker
    records.read()
    path.write_bytes(first + second)
    assert records.read() == 2
    assert [number for number, _ in records.seen] == [4, 5]


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


def _found() -> dict[str, Any]:
    cell = {"rate": 100.0, "jobs": 50.0, "ran": 49.0, "twice": 2.0, "earliest": -812.0}
    run = {"load": 0.1, "seconds": 30.0, "date": "2026-01-01", "commit": "abc1234"}
    return {
        "about": {"date": "2026-01-01", "rounds": 3, "processor": "x", "cores": 2, "memory_gb": 4,
                  "system": "Linux", "python": "3.11", "commit": "abc1234", "settings": {"fsync": "on"}},
        "peers": {"rota": {"version": "1"}, "pgqueuer": {"version": "2"}, "awa": {"missing": "no|way"},
                  "river": {"version": "3"}},
        "cells": {"noop_async": {
            "rota": [cell, {**cell, "rate": 90.0}, {**cell, "rate": 120.0}],
            "river": [{**cell, "rate": 400.0}] * 3, "postgres": [{"rate": 900.0, "jobs": 9.0}] * 3}},
        "runs": {"noop_async": {"rota": run, "river": run, "postgres": run}},
        "ways": {"noop_async": {"two connections": 900.0, "one connection": 500.0}},
        "reasons": {"noop_async": {"pgqueuer": "it fell over"}},
    }  # fmt: skip


def _page(found: dict[str, Any], tmp_path: Path) -> str:
    report.write(found, tmp_path)
    return (tmp_path / "benchmarks.md").read_text()


def test_a_page_tells_what_was_measured_and_why_the_rest_was_not(tmp_path: Path) -> None:
    page = _page(_found(), tmp_path)
    assert "6 ran twice; started up to 812 ms early; 3 did not run in time" in page
    assert "it fell over" in page
    assert "was left out: no/way" in page
    assert (tmp_path / "images/bench/noop_async.svg").exists()


def test_rows_are_sorted_by_their_figure_and_show_the_lowest_and_the_highest(
    tmp_path: Path,
) -> None:
    page = _page(_found(), tmp_path)
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")]
    assert [row for row in rows if row in {"PostgreSQL's limit", "River", "Rota"}] == [
        "PostgreSQL's limit", "River", "Rota",
    ]  # fmt: skip
    assert "| Rota | 100 | 90 to 120 |" in page
    assert "two connections: 900; one connection: 500" in page


def test_what_is_slower_than_rota_is_not_called_a_limit(tmp_path: Path) -> None:
    found = _found()
    found["cells"]["noop_async"]["postgres"] = [{"rate": 80.0, "jobs": 9.0}] * 3
    page = _page(found, tmp_path)
    assert "| PostgreSQL's limit |" not in page
    assert "| bare statements |" in page


def test_a_page_names_the_commit_the_load_and_what_is_not_settled(tmp_path: Path) -> None:
    page = _page(_found(), tmp_path)
    assert "commit abc1234; others used at most 0.10 processors" in page
    assert "What is not settled" not in page
    found = _found()
    found["runs"]["noop_async"]["river"] = {
        "load": 1.8, "seconds": 1.0, "date": "2026-01-01", "commit": "def5678",
    }  # fmt: skip
    found["cells"]["noop_async"]["postgres"] = [{"rate": 900.0, "jobs": 9.0}]
    page = _page(found, tmp_path)
    assert (
        "- No-op jobs, coroutines: one round; others used up to 1.8 processors; "
        "its rows are of several commits." in page
    )


def test_what_was_measured_before_runs_were_noted_is_shown_as_not_settled(tmp_path: Path) -> None:
    found = {**_found(), "runs": {}}
    del found["about"]["commit"]
    page = _page(found, tmp_path)
    assert "- No-op jobs, coroutines: the load was not recorded." in page
    assert "commit not recorded" in page


def test_parts_that_others_write_stay_on_the_page(tmp_path: Path) -> None:
    sections.put("## Something of another", "Its text.", tmp_path)
    page = _page(_found(), tmp_path)
    assert page == _page(_found(), tmp_path)
    assert page.count("## Something of another\n\nIts text.\n") == 1
    assert page.startswith("# Benchmarks")


def test_a_busy_machine_is_waited_for_and_then_refused() -> None:
    readings, clock = iter([2.0, 1.0, 0.1]), iter(range(100))
    waited = load.wait_until_idle(read=lambda: next(readings), now=lambda: float(next(clock)))
    assert waited == 0.1
    with pytest.raises(load.Busy, match=r"others use 1\.5 processors"):
        load.wait_until_idle(read=lambda: 1.5, now=lambda: float(next(clock)), patience=3)
    assert load.wait_until_idle(force=True, read=lambda: 1.5) == 1.5


def test_ticks_of_idle_processors_and_of_waiting_for_disks_are_not_use() -> None:
    assert load.busy_ticks("cpu  10 20 30 4000 500 1 2 3 0 0\ncpu0 1 2 3\n") == 66


def test_a_run_keeps_the_worst_load_and_the_longest_round() -> None:
    about = {"date": "2026-01-01", "commit": "abc"}
    once = compare.run_noted(None, 0.2, 10.0, about)
    assert compare.run_noted(once, 0.1, 20.0, about) == {**about, "load": 0.2, "seconds": 20.0}


def test_a_part_that_is_measured_again_replaces_only_its_cells() -> None:
    new = {**_found(), "cells": {"noop_async": {"rota": [{"rate": 1.0}]}},
           "runs": {"noop_async": {"rota": {"load": 0.0}}}, "reasons": {}}  # fmt: skip
    merged = compare._merged(_found(), new)
    assert merged["cells"]["noop_async"]["rota"] == [{"rate": 1.0}]
    assert merged["runs"]["noop_async"]["rota"] == {"load": 0.0}
    assert len(merged["cells"]["noop_async"]["river"]) == 3


def test_a_plan_is_made_from_what_rounds_took() -> None:
    noop = next(each for each in WORKLOADS if each.name == "noop_async")
    assert plan.seconds(_found(), noop, "rota") == (30.0 + plan._BEFORE, True)
    assert plan.seconds(_found(), noop, "pgqueuer")[1] is False


def test_a_herd_is_to_start_in_half_the_time_of_the_best_peer_and_a_million_to_be_accounted_for() -> (
    None
):
    known: dict[tuple[str, str, str], float] = {
        ("herd", "rota", "p99"): 600.0, ("herd", "river", "p99"): 1_000.0,
        ("herd", "asynq", "p99"): 100.0, ("herd", "asynq", "earliest"): -800.0,
        ("million", "rota", "unaccounted"): 0.0, ("million", "rota", "twice"): 1.0,
    }  # fmt: skip
    rows = {
        row.goal: row
        for row in goals.judge(lambda *key: known.get(key), ["rota", "river", "asynq"])
    }
    lag = next(row for goal, row in rows.items() if goal.startswith("Lag p99 of 100,000"))
    assert lag.seen == "600.0 ms; river 1,000.0 ms"  # asynq starts jobs early
    assert not lag.reached
    accounted = next(row for goal, row in rows.items() if goal.startswith("A million"))
    assert accounted.seen == "0 missing, 1 started twice"
    assert not accounted.reached


def test_a_rate_bends_where_more_nodes_give_less_than_half_of_their_share() -> None:
    assert cluster.bend({1: 10.0, 2: 18.0, 4: 20.0}) == 4
    assert cluster.bend({1: 10.0, 2: 20.0, 4: 40.0}) is None


def test_what_a_rate_takes_follows_from_what_a_job_costs() -> None:
    costs = cluster.Costs(store_us=20.0, submit_us=5.0, worker_us=15.0, wal_bytes=500.0)
    assert cluster.needs(100_000, costs) == cluster.Needs(1, 5.0, 3.0, 50.0)
    assert cluster.needs(1_000_000, costs) == cluster.Needs(10, 5.0, 30.0, 50.0)


_ABOUT = {"date": "2026-01-01", "commit": "abc", "cores": 2, "processor": "x",
          "settings": {"server_version": "18"}}  # fmt: skip


def test_the_part_about_clusters_says_what_was_measured_and_what_was_computed() -> None:
    figures = {"rate": 40_000.0, "store_cpu_us": 20.0, "worker_cpu_us": 15.0, "submit_cpu_us": 5.0,
               "wal_bytes": 500.0}  # fmt: skip
    nodes = {str(nodes): [figures, {**figures, "rate": 41_000.0}] for nodes in cluster.NODES}
    text = " ".join(
        cluster.body({"about": _ABOUT, "rounds": 2, "load": 0.1, "nodes": nodes}).split()
    )
    assert "| 2 | 40,500 | 40,000 to 41,000 |" in text
    assert "bends at 2 nodes" in text
    assert "was not measured" in text
    assert "| 1,000,000 | 10 | 5 | 50 | 30 |" in text


def test_the_part_about_precision_has_jobs_beside_bare_timers() -> None:
    figures = {"p50": 2.0, "p99": 9.0, "last": 12.0, "timer_p50": 0.5, "timer_p99": 1.0,
               "timer_last": 2.0, "earliest": 0.3, "rate": 0.0, "beside": 0.0}  # fmt: skip
    busy = {**figures, "p50": 4.0, "beside": 9_000.0}
    text = precision.body(
        {
            "about": _ABOUT,
            "rounds": 2,
            "load": 0.1,
            "idle": [figures] * 2,
            "half": [busy, figures | {"p50": 6.0}],
        }
    )
    assert "| idle | jobs of Rota | 2 (2 to 2) | 9 (9 to 9) | 12 (12 to 12) |" in text
    assert "4,500 jobs/s | jobs of Rota | 5 (4 to 6)" in text
    assert "The earliest start was 0.3 ms after its moment" in text


def test_every_peer_has_an_adapter_that_says_how_it_was_tuned() -> None:
    names = {workload.name for workload in WORKLOADS}
    for peer in PEERS:
        assert len(peer.tuning()) > 80, peer.name
        assert set(peer.cannot) <= names
        assert set(peer.limits) <= names
        assert all("=" in package or "@" in package for package in peer.packages)
