"""`rota queues apply` and `export`: settings of queues in YAML files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import run

FILE = """\
queues:
  imports:
    concurrency: 40
    concurrency_per_key: 3
    rate: 20/s
    rate_burst: 5
    max_depth: 10000
  reports:
    policy: fair
    max_run_time: 2h
    weights: {acme: 5, "": 0.5}
"""


@pytest.fixture
def file(tmp_path: Path, environ: dict[str, str]) -> Path:
    path = tmp_path / "queues.yaml"
    path.write_text(FILE)
    return path


def settings(name: str) -> dict[str, object]:
    return next(one for one in run("queues", "list", "--json").json if one["name"] == name)


def test_a_file_is_applied_once_and_then_changes_nothing(file: Path):
    planned = run("queues", "apply", str(file), "--dry-run", "--json").json
    assert [change["action"] for change in planned["changes"]] == ["create", "create"]
    assert not planned["applied"]
    assert run("queues", "list", "--json").json == []
    assert run("queues", "apply", str(file), "--yes").code == 0
    imports = settings("imports")
    assert (imports["concurrency"], imports["concurrency_per_key"], imports["max_depth"]) == (
        40, 3, 10_000,
    )  # fmt: skip
    assert (imports["rate_count"], imports["rate_burst"]) == (20, 5)
    assert (settings("reports")["policy"], settings("reports")["max_run_time"]) == ("fair", 7200)
    shares = run("queues", "shares", "reports", "--json").json
    assert {one["key"]: one["weight"] for one in shares} == {"acme": 5, "": 0.5}
    again = run("queues", "apply", str(file), "--yes", "--json").json
    assert [change["action"] for change in again["changes"]] == ["unchanged", "unchanged"]


def test_what_a_file_leaves_out_goes_back_to_its_default(file: Path):
    run("queues", "apply", str(file), "--yes")
    file.write_text("queues: {imports: {concurrency: 7}, reports: {policy: fair}}")
    shown = run("queues", "apply", str(file), "--yes").out
    assert "concurrency: 40 → 7" in shown
    assert "rate: 20/s → (default)" in shown
    assert "weights.acme: 5.0 → (default)" in shown
    imports = settings("imports")
    assert (imports["concurrency"], imports["rate_count"], imports["max_depth"]) == (7, None, None)
    assert run("queues", "shares", "reports", "--json").json == []


def test_prune_takes_away_the_settings_of_other_queues(file: Path):
    run("queues", "apply", str(file), "--yes")
    file.write_text("queues: {imports: {concurrency: 40}}")
    kept = run("queues", "apply", str(file), "--yes", "--json").json["changes"]
    assert [change["name"] for change in kept] == ["imports"]
    pruned = run("queues", "apply", str(file), "--prune", "--yes", "--json").json["changes"]
    assert [(change["name"], change["action"]) for change in pruned] == [
        ("imports", "unchanged"), ("reports", "update"),
    ]  # fmt: skip
    assert (settings("reports")["policy"], settings("reports")["max_run_time"]) == (
        "priority",
        None,
    )


def test_an_export_is_applied_without_a_change(file: Path):
    run("queues", "apply", str(file), "--yes")
    exported = run("queues", "export").out
    file.write_text(exported)
    again = run("queues", "apply", str(file), "--prune", "--yes", "--json").json
    assert [change["action"] for change in again["changes"]] == ["unchanged", "unchanged"]
    assert run("queues", "export", "import").code != 0


def test_all_errors_are_reported_with_their_lines_and_nothing_is_changed(file: Path):
    file.write_text(
        """\
queues:
  good: {concurrency: 3}
  imports:
    concurrency: 0
    rate: 5/fortnight
    max_depth: many
    polcy: fair
  reports:
    policy: lifo
    weights: {acme: -1}
    rate_burst: 3
  "a b": {}
  late: {max_run_time: 0s, rate: 1/day, rate_burst: 1000000}
"""
    )
    answer = run("queues", "apply", str(file), "--yes")
    assert answer.code != 0
    for place, field in (
        ("4:18", "queues.imports.concurrency"), ("5:11", "queues.imports.rate"),
        ("6:16", "queues.imports.max_depth"), ("7:5", "queues.imports.polcy"),
        ("9:13", "queues.reports.policy"), ("10:21", "queues.reports.weights.acme"),
        ("10:14", "queues.reports.weights"), ("11:17", "queues.reports.rate_burst"),
        ("12:3", "queues.a b"), ("13:24", "queues.late.max_run_time"),
        ("13:53", "queues.late.rate_burst"),
    ):  # fmt: skip
        assert f"{file.name}:{place}: {field}" in answer.err, (place, field, answer.err)
    assert run("queues", "list", "--json").json == []


def test_several_settings_of_a_command_are_one_change_or_none(environ: dict[str, str]):
    refused = run("queues", "set", "q", "--max-run-time", "1h", "--rate", "often")
    assert refused.code != 0
    assert run("queues", "list", "--json").json == []
    assert run("queues", "set", "q", "--max-run-time", "1h", "--rate", "5/s").code == 0
    entries = run("audit", "--json").json
    assert [entry["after"] for entry in entries if entry["subject"] == "queue q"] == [
        {
            "policy": "priority",
            "history": "all",
            "max_run_time": 3600.0,
            "rate": "5/s",
            "rate_burst": 1,
        }
    ]
