"""Programs that measure growth, many nodes and long load: their pure parts, a small run of each."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import pytest

from bench import growth, growth_probes, many_nodes, soak
from bench.growth import Row, missed, rows_of
from bench.growth_filling import NoRoom, Stored, check_room
from bench.growth_probes import COMMANDS, Probe, routes
from bench.growth_reading import Cost, names_of, normal
from bench.svg import lines

ROOT = Path(__file__).parents[2]


def row(small: Cost, large: Cost, name: str = "nothing known", kind: str = "statement") -> Row:
    return Row(Probe(kind, name), small, large)


# -- growth


def test_a_statement_that_reads_twice_as_much_is_missed() -> None:
    grown = row(Cost(calls=10, pages=1_000), Cost(calls=10, pages=2_000))
    assert not grown.allowed
    assert len(missed([grown])) == 1
    assert row(Cost(calls=10, pages=1_000), Cost(calls=20, pages=2_000)).allowed


def test_a_level_of_an_index_more_is_allowed() -> None:
    assert row(Cost(calls=10, pages=30), Cost(calls=10, pages=40)).flat


def test_a_claim_of_more_jobs_is_judged_by_the_job() -> None:
    small, large = Cost(calls=10, rows=100, pages=1_000), Cost(calls=10, rows=300, pages=3_000)
    assert row(small, large).ratio == pytest.approx(1.0)


def test_a_bound_holds_up_to_its_number_of_pages() -> None:
    small = Cost(calls=1, pages=100)
    assert row(small, Cost(calls=1, pages=60_000), "/v1/jobs?task=a", "route").allowed
    assert not row(small, Cost(calls=1, pages=600_000), "/v1/jobs?task=a", "route").allowed


def test_what_was_measured_at_one_size_only_is_no_row() -> None:
    both, once = Probe("page", "/"), Probe("page", "/jobs")
    assert [one.probe for one in rows_of({both: Cost(), once: Cost()}, {both: Cost()})] == [both]


def test_a_disk_without_room_is_refused(tmp_path: Path) -> None:
    check_room(Stored.of(100, 10), tmp_path)
    with pytest.raises(NoRoom, match="choose smaller sizes"):
        check_room(Stored.of(10**13, 10), tmp_path)


def test_statements_are_known_by_the_queries_they_are_from() -> None:
    text = (
        "-- What isn't theirs.\nselect a from b where c = $1 and d = 'x' -- a remark\n  and e > -1"
    )
    names = names_of({"one": f"{text} and extract(epoch from f) > 0;\n"})
    shown = "select a  from b where c = $1 and d = $2 and e > $3 and extract($4 from f) > $5"
    assert names[normal(shown)] == "one"


def test_every_list_of_the_api_has_an_address() -> None:
    addresses = routes()
    assert {"/v1/jobs", "/v1/schedules/s7", "/v1/queues"} <= set(addresses)
    assert not [one for one in addresses if ":str}" in one or ":uuid}" in one]
    assert len(COMMANDS) == len(set(COMMANDS))


def test_a_table_says_why_a_row_may_grow() -> None:
    small, large = Cost(calls=1, pages=100), Cost(calls=1, pages=3_000)
    rows = [row(small, large, "/v1/jobs?task=a", "route"), row(small, large, "/v1/else", "route")]
    text = "\n".join(growth.table(rows, "route"))
    assert "20,000 jobs" in text
    assert "**grows**" in text


@pytest.mark.proof
def test_a_small_run_measures_both_sizes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth_probes, "routes", lambda: ["/v1/queues", "/v1/schedules/s7"])
    file = tmp_path / "figures.json"
    given = ["--jobs", "2000", "--schedules", "100", "--quick-ground", "--only", "route"]
    growth.main([*given, "--save", str(file)])
    _, rows = json.loads(file.read_text())
    assert {one[0][1] for one in rows} == {"/v1/queues", "/v1/schedules/s7"}
    assert "| `/v1/queues` |" in capsys.readouterr().out
    assert growth.main(["--read", str(file)]) in (0, 1)


# -- many nodes


def phase(jobs: int = 0, **calls: int) -> many_nodes.Phase:
    return many_nodes.Phase(10.0, Counter(calls), 1.0, 50, jobs)


def test_only_heartbeats_may_grow_with_the_nodes() -> None:
    few = many_nodes.Figures(10, 1, phase(heartbeat=20, lanes=40), phase(1_000, claim=10))
    many = many_nodes.Figures(100, 1, phase(heartbeat=200, lanes=40), phase(1_000, claim=10))
    assert many_nodes.grown([few, many]) == []
    chatty = many_nodes.Figures(100, 1, phase(heartbeat=200, lanes=400), phase(1_000, claim=10))
    [told] = many_nodes.grown([few, chatty])
    assert "other statements a second" in told
    greedy = many_nodes.Figures(100, 1, phase(heartbeat=200, lanes=40), phase(1_000, claim=99))
    [told] = many_nodes.grown([few, greedy])
    assert "claims per 1,000 jobs" in told


def test_nodes_are_shared_out_among_processes() -> None:
    assert [many_nodes.share(10, 3, part) for part in range(3)] == [4, 3, 3]


@pytest.mark.proof
def test_a_few_nodes_are_measured() -> None:
    done = run("bench.many_nodes", "--quick")
    assert "4 workers, 1 schedulers" in done.stdout
    assert "idle: heartbeats a second" in done.stdout


# -- soak


def samples(**grows: float) -> list[soak.Sample]:
    """An hour, of which some figures grow by so much a sample."""
    return [
        soak.Sample(
            at=60.0 * n, memory={"worker 1": 50 + grows.get("memory", 0) * n},
            tables=100 + grows.get("tables", 0) * n, indexes=20, kept=n / 10, dead_rows=1_000,
            ended=1_000 * n, xid=100 * n, lag=0.1,
        )
        for n in range(60)
    ]  # fmt: skip


def test_what_stays_is_flat_and_what_grows_is_not() -> None:
    assert all(one.flat for one in soak.verdicts(samples()))
    leaking = {one.name: one.flat for one in soak.verdicts(samples(memory=1.0))}
    assert not leaking["memory of the worker 1"]
    assert leaking["tables of what is not kept"]
    assert not {one.name: one.flat for one in soak.verdicts(samples(tables=3.0))}[
        "tables of what is not kept"
    ]


def test_transaction_ids_are_told_by_the_job() -> None:
    whole = soak.rates(samples())
    assert whole.xids_per_job == pytest.approx(0.1)
    assert whole.days_to_freeze == pytest.approx(200e6 / (0.1 * whole.per_second) / 86_400)
    assert "A job used 0.100 transaction ids" in soak.body(samples())


def test_graphs_of_a_soak_are_well_formed(tmp_path: Path) -> None:
    soak.draw(samples(), tmp_path)
    for path in tmp_path.glob("*.svg"):
        ElementTree.parse(path)
    assert len(list(tmp_path.glob("*.svg"))) == 3
    ElementTree.fromstring(lines("nothing", "s", {"none": []}))


@pytest.mark.proof
def test_a_short_soak_runs_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "samples.json"
    done = run(
        "bench.soak", "--minutes", "0.2", "--every", "1", "--backlog", "500", "--save", str(file)
    )
    assert "transaction ids" in done.stdout
    taken = json.loads(file.read_text())
    assert taken[-1]["ended"] > taken[0]["ended"]
    assert set(taken[0]["memory"]) == {"scheduler", "worker 1", "worker 2", "client"}


def run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run it; flat or not, which a busy machine may decide, it must end by itself."""
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr[-2000:]
    assert "Traceback" not in done.stderr, done.stderr[-2000:]
    return done
