"""Workflows as files: YAML that is applied and exported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from rota import App, ConfigError
from rota.cli import cli
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, StepDefinition
from rota.files.workflow_changes import difference
from rota.files.yaml_nodes import Source
from rota.files.yaml_workflows import (
    FIELDS,
    STEP_FIELDS,
    fields_of,
    read_workflows,
    write_workflows,
)
from rota.lib import failpoints
from rota.node import Node
from rota.testing import Sandbox
from tests.support.places import ROOT
from tests.support.sandboxes import isolated

EVERYTHING = """\
workflow: orders
description: The orders of a day.
deadline: 2h
retention: 30d
result: publish
steps:
  extract:
    task: extract
    arguments: {day: {$input: day}, limit: {$input: limit, optional: true}, own: {$value: {$step: 1}}}
    queue: etl
    needs: [gpu]
    resources: {memory: 2GB, gpu: 1}
    near: model7
    near_patience: 5s
    priority: 5
    max_attempts: 3
    timeout: 15m
    guarantee: at_most_once
  audit: {workflow: audits, arguments: {day: {$input: day}}, optional: true}
  publish:
    task: publish
    arguments: {count: {$step: extract, path: [rows, 0]}, words: [NO, 1e3, 2026-01-01, null, true]}
    after: [extract, audit]
    when: extract.count > 0
    tolerate: 0.5
  cleanup: {task: cleanup, after: publish, rule: always}
  parts: {map: load, over: extract, item: row, size: 1000, at_once: 20, tolerate: 1%}
  singly: {map: load, over: {$input: limit, optional: true}, each: job}
"""


def read(text: str, name: str = "orders.yaml") -> dict[str, Definition]:
    wanted = read_workflows([Source(name, text.encode())])
    return {name: graph.definition for name, graph in wanted.graphs.items()}


def complaints(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text)
    return [line.removeprefix("orders.yaml:") for line in str(caught.value).split("\n")]


# -- reading


def test_a_file_can_say_everything_that_a_workflow_can_be() -> None:
    definition = read(EVERYTHING)["orders"]
    assert (definition.deadline, definition.retention) == (7200, 30 * 86400)
    assert {*FIELDS} == {*Definition.__struct_fields__} - {"name", "code_version"}
    assert {*STEP_FIELDS} == {*StepDefinition.__struct_fields__} - {"name"}
    steps = {step.name: step for step in definition.steps}
    set_somewhere = {
        field for step in steps.values() for field in msgspec.to_builtins(step) if field != "name"
    }
    assert set_somewhere == {*STEP_FIELDS}
    assert steps["publish"].arguments["words"] == ["NO", 1000.0, "2026-01-01", None, True]
    assert (steps["cleanup"].after, steps["extract"].timeout) == (("publish",), 900)
    assert Graph(definition).predecessors["publish"] == ["extract", "audit"]


def test_maps_are_read_and_their_errors_have_places() -> None:
    steps = {step.name: step for step in read(EVERYTHING)["orders"].steps}
    assert (steps["parts"].over, steps["parts"].tolerate) == ({"$step": "extract"}, 0.01)
    text = """\
workflow: wrong
steps:
  a: {map: load, over: 5}
  b: {map: load, over: nowhere}
  c: {map: load, over: [1], size: 0}
  d: {map: load, over: [1], each: member}
  e: {map: load, over: [1], tolerate: 200%}
  f: {task: load, size: 5}
  g: {map: load}
"""
    assert [line.split(" ", 1)[0] for line in complaints(text)] == [
        "3:24:", "4:24:", "5:35:", "6:35:", "7:39:", "8:25:", "9:3:"
    ]  # fmt: skip


def test_what_is_written_reads_as_the_same() -> None:
    definition = read(EVERYTHING)["orders"]
    odd = [
        "1e3",
        "0x1f",
        "true",
        "NO",
        "null",
        "~",
        "2026-01-01",
        "12:30",
        "<<",
        "=",
        " a ",
        "",
        "ä\n\tb",
        "1_000",
    ]
    steps = (
        *definition.steps,
        StepDefinition(name="123", task="t", arguments={"odd": odd, "n": 1e20}),
    )
    odd_one = msgspec.structs.replace(definition, steps=steps, name="odd")
    for definitions in ([definition], [odd_one], [definition, odd_one]):
        again = read(write_workflows(definitions))
        assert [fields_of(again[each.name]) for each in definitions] == [
            fields_of(each) for each in definitions
        ]


def test_everything_that_is_wrong_is_said_at_once_with_its_line_and_field() -> None:
    text = """\
workflows:
  orders:
    deadline: soon
    result: nothing
    stesp: {}
    steps:
      a: {task: a, rule: sometimes, tolerate: many, optional: perhaps}
      b: {tsak: b}
      c: {task: c, workflow: d}
      d: {task: d, after: [a, nowhere], when: "a.count >", priority: 9999}
      e: {task: e, arguments: {x: {$stpe: a}, y: {$step: a, extra: 1}, z: {$step: gone}}}
      f: {task: f, needs: [a], timeout: long}
      g: {task: rota.webhook}
      h: [1]
      i: {task: i, arguments: 7, guarantee: never}
      j: {task: j, arguments: {x: {$step: a, path: rows}}}
  empty: {}
  bad name: {steps: {a: {task: a}}}
  cycle:
    steps:
      a: {task: a, after: b}
      b: {task: b, after: a}
  one: {steps: {a: {task: a, rule: one_failed}}, result: b}
"""
    expected = """\
3:15: workflows.orders.deadline: 'soon' is not a duration; write 90, 90s, 15m, 1h30m or 2d
5:5: workflows.orders.stesp: is not known here; did you mean steps?
7:26: workflows.orders.steps.a.rule: 'sometimes' is none of all_succeeded, all_ended, one_succeeded, \
one_failed, always
7:47: workflows.orders.steps.a.tolerate: must be a number, not "many"
7:63: workflows.orders.steps.a.optional: must be true or false, not "perhaps"
8:7: workflows.orders.steps.b: name a task or a workflow to run, or a task to map
8:11: workflows.orders.steps.b.tsak: is not known here; did you mean task?
10:70: workflows.orders.steps.d.priority: priority must be a whole number from -1000 to 1000, not 9999
11:36: workflows.orders.steps.e.arguments.x.$stpe: is not known here; did you mean $step?
11:61: workflows.orders.steps.e.arguments.y.extra: a reference has only $step, path; write \
{$value: {...}} for an object of your own
12:41: workflows.orders.steps.f.timeout: 'long' is not a duration; write 90, 90s, 15m, 1h30m or 2d
14:10: workflows.orders.steps.h: must be a mapping, with lines such as `name: value`
15:31: workflows.orders.steps.i.arguments: must be a mapping of argument names and values
15:45: workflows.orders.steps.i.guarantee: 'never' is none of at_least_once, at_most_once, exactly_once
16:52: workflows.orders.steps.j.arguments.x.path: must be a list of keys and positions: [rows, 0]
17:3: workflows.empty: steps is missing: a mapping of steps by their names
18:3: workflows.bad name: workflow 'bad name' is not a usable name: use 1 to 100 letters, digits, \
'_', '.', ':' or '-', starting with a letter, digit or '_'
19:3: workflows.cycle: its steps wait for each other in a cycle: a -> b -> a
23:36: workflows.one.steps.a.rule: the rule one_failed can never be met: it comes after no step
23:58: workflows.one.result: its result is that of 'b', which is no step
"""
    assert complaints(text) == expected.splitlines()


def test_every_wrong_field_of_a_graph_is_reported() -> None:
    text = """\
workflow: orders
result: nothing
steps:
  a: {task: a}
  d: {task: d, after: [a, nowhere], when: "a.count >"}
  e: {task: e, arguments: {z: [{$step: gone}]}, when: other > 1}
  f: {task: f, needs: [a]}
  g: {task: rota.webhook}
"""
    assert (
        complaints(text)
        == """\
2:9: result: its result is that of 'nothing', which is no step
5:23: steps.d.after: there is no step 'nowhere'; known: a, d, e, f, g
5:43: steps.d.when: the condition 'a.count >', column 10: it ends where something should follow
6:27: steps.e.arguments: there is no step 'gone'; known: a, d, e, f, g
6:55: steps.e.when: the condition 'other > 1' names 'other', which is neither a step nor `input`
7:23: steps.f.needs: 'a' is a step, and needs lists capabilities of workers: write after: [a]
8:13: steps.g.task: task 'rota.webhook' is internal: Rota submits its jobs itself
""".splitlines()
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("steps: {a: {task: a}}", "1:1: has no name: begin the file with `workflow: NAME`"),
        ("workflow: [a]\nsteps: {a: {task: a}}", "1:11: workflow: must be a text, not a list"),
        ("workflow: a", "1:1: steps is missing: a mapping of steps by their names"),
        ("workflow: a\nworkflows: {}\nsteps: {a: {task: a}}",
         "2:12: workflows: a file has either `workflow` or `workflows`"),
        ("workflow: a\nsteps: {}", "2:8: steps: it has no steps"),
    ],
)  # fmt: skip
def test_a_broken_file_is_refused_with_its_place(text: str, complaint: str) -> None:
    assert complaints(text) == [complaint]


def test_a_name_in_two_files_is_refused() -> None:
    sources = [Source(name, b"workflow: a\nsteps: {a: {task: a}}") for name in ("x.yaml", "y.yaml")]
    with pytest.raises(ConfigError, match=r"y.yaml:1:1: is also in x.yaml:1:1"):
        read_workflows(sources)


# -- applying


@pytest.fixture
def app(database_url: str) -> App:
    app = App(database_url=database_url, node_name="test")

    @app.task
    async def extract(day: str) -> dict[str, int]:
        return {"count": len(day)}

    @app.task
    async def publish(count: int) -> int:
        return count * 2

    @app.task
    async def cleanup() -> None: ...

    return app


@pytest.fixture
async def sandbox(app: App) -> AsyncIterator[Sandbox]:
    async with isolated(app) as sandbox:
        yield sandbox


Rota = Callable[..., Any]


@pytest.fixture
def rota_cli(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Rota:
    settings = sandbox.app.settings
    for name in ("database_url", "schema", "namespace"):
        monkeypatch.setenv(f"ROTA_{name.upper()}", str(getattr(settings, name)))
    monkeypatch.chdir(tmp_path)

    async def run(*arguments: str, stdin: str | None = None, code: int = 0) -> Any:
        result = await asyncio.to_thread(
            CliRunner().invoke, cli, ["workflows", *arguments], input=stdin
        )
        assert result.exit_code == code, result.output
        return result

    return run


SMALL = """\
workflow: orders
steps:
  extract: {task: extract, arguments: {day: {$input: day}}}
  publish: {task: publish, arguments: {count: {$step: extract, path: [count]}}}
"""


async def test_apply_shows_the_difference_stores_a_version_and_then_changes_nothing(
    sandbox: Sandbox, rota_cli: Rota, tmp_path: Path
) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(SMALL)
    shown = (await rota_cli("apply", "orders.yaml", "--dry-run")).stdout
    assert "+ create workflow orders" in shown
    assert "1 to create" in shown
    assert await sandbox.app.workflows.list() == []
    assert "1 created" in (await rota_cli("apply", "orders.yaml", "--yes")).stdout
    run = await sandbox.app.runs.start("orders", {"day": "monday"})
    await sandbox.run_due()
    assert await run.result(1) == 12
    assert "1 unchanged" in (await rota_cli("apply", "orders.yaml", "--yes")).stdout
    file.write_text(SMALL.replace("path: [count]}}}", "path: [count]}}, timeout: 30s}"))
    shown = (await rota_cli("apply", "orders.yaml", "--yes")).stdout
    assert "    steps.publish.timeout: (default) → 30s" in shown
    file.write_text(SMALL)  # back again: the newest version is what the file says
    await rota_cli("apply", "orders.yaml", "--yes")
    info = await sandbox.app.workflows.get("orders")
    assert (info.version, info.source) == (3, "file")


async def test_prune_retires_only_what_came_from_files(
    app: App, sandbox: Sandbox, rota_cli: Rota, tmp_path: Path
) -> None:
    coded = app.workflow("coded")
    coded.step(app.tasks["cleanup"])
    await app.workflows.declare()
    (tmp_path / "one.yaml").write_text(SMALL)
    (tmp_path / "two.yaml").write_text("workflow: two\nsteps: {cleanup: {task: cleanup}}\n")
    await rota_cli("apply", "one.yaml", "two.yaml", "--yes")
    shown = (await rota_cli("apply", "one.yaml", "--prune", "--yes")).stdout
    assert "- retire workflow two" in shown
    retired = {each.name: each.retired_at is not None for each in await app.workflows.list()}
    assert retired == {"coded": False, "orders": False, "two": True}
    shown = (await rota_cli("apply", "two.yaml", "--yes")).stdout
    assert "    retired: true → (default)" in shown
    info = await app.workflows.get("two")
    assert (info.retired_at, info.version) == (None, 1)


async def test_what_the_files_cannot_know_is_checked_against_the_database(
    app: App, sandbox: Sandbox, rota_cli: Rota, tmp_path: Path
) -> None:
    async with Node(app, roles=("worker",)).running():
        await _check_against_the_database(app, rota_cli, tmp_path)


async def _check_against_the_database(app: App, rota_cli: Rota, tmp_path: Path) -> None:
    coded = app.workflow("coded")
    coded.step(app.tasks["cleanup"])
    await app.workflows.declare()

    async def refused(text: str) -> str:
        (tmp_path / "w.yaml").write_text(text)
        answer = await rota_cli("apply", "w.yaml", "--yes", code=1)
        return str(answer.stderr)

    assert "w.yaml:1:1: workflow coded: is declared in code" in await refused(
        "workflow: coded\nsteps: {a: {task: cleanup}}"
    )
    assert "w.yaml:2:9: workflow a, step a: no workflow is named 'b', here or in the database" in (
        await refused("workflow: a\nsteps: {a: {workflow: b}}")
    )
    text = "workflows:\n  a: {steps: {s: {workflow: b}}}\n  b: {steps: {t: {workflow: a}}}\n"
    assert "w.yaml:2:15: workflow a, step s: the workflow is a step of itself: a -> b -> a" in (
        await refused(text)
    )
    assert (
        "w.yaml:2:9: workflow a, step a: task 'extract' takes no argument 'dya'"
        in await refused(
            "workflow: a\nsteps: {a: {task: extract, arguments: {dya: {$input: day}}}}"
        )
    )
    assert "argument 'count': expected integer, got string" in await refused(
        "workflow: a\nsteps: {a: {task: publish, arguments: {count: x}}}"
    )
    assert [each.name for each in await app.workflows.list()] == ["coded"]
    text = "workflow: a\nsteps: {a: {task: unknown}, b: {workflow: coded}}"
    answer = await rota_cli("apply", "-", "--yes", "--json", stdin=text)
    said = json.loads(answer.stdout)
    assert "no node has registered a task named 'unknown'" in said["warnings"][0]
    assert said["changes"][0]["action"] == "create"


async def test_all_are_applied_or_none(sandbox: Sandbox, rota_cli: Rota) -> None:
    graphs = [Graph(each) for each in read(
        "workflows:\n  a: {steps: {a: {task: cleanup}}}\n  b: {steps: {b: {task: cleanup}}}\n"
    ).values()]  # fmt: skip
    with failpoints.armed_with("put_workflows:before_commit=error@1"), pytest.raises(Exception):  # noqa: B017, PT011
        await sandbox.app.workflows.put_all(graphs)
    assert await sandbox.app.workflows.list() == []
    await sandbox.app.workflows.put_all(graphs)
    await sandbox.app.workflows.put_all(graphs)
    assert [(each.name, each.version) for each in await sandbox.app.workflows.list()] == [
        ("a", 1), ("b", 1),
    ]  # fmt: skip


async def test_what_is_exported_is_unchanged_when_it_is_applied(
    app: App, sandbox: Sandbox, rota_cli: Rota
) -> None:
    await rota_cli("apply", "-", "--yes", stdin=SMALL)
    await rota_cli(
        "apply",
        "-",
        "--yes",
        stdin="workflow: two\ndeadline: 90m\nsteps: {cleanup: {task: cleanup}}",
    )
    exported = (await rota_cli("export")).stdout
    assert "2 unchanged" in (await rota_cli("apply", "-", "--yes", stdin=exported)).stdout
    only = (await rota_cli("export", "two")).stdout
    assert only.startswith("workflow: two\ndeadline: 1h30m\nsteps:\n")
    flow = app.workflow("coded")
    flow.step(app.tasks["publish"], flow.step(app.tasks["extract"])["count"])
    await app.workflows.declare()
    text = (await rota_cli("export", "coded")).stdout
    assert difference(await app.workflows.list(), {"coded": Graph(read(text)["coded"])})[
        0
    ].action == ("unchanged")


def test_the_files_that_the_guide_shows_are_good() -> None:
    page = (ROOT / "docs/guide/workflow-files.md").read_text()
    shown = [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]
    assert shown
    for text in shown:
        assert read(text)


def test_a_patience_needs_a_label_to_be_patient_for() -> None:
    text = "workflow: w\nsteps:\n  a: {task: t, near_patience: 5s}\n"
    assert complaints(text) == ["3:31: steps.a.near_patience: near_patience needs near"]


def test_an_option_that_is_wrong_is_reported_once_and_where_it_is() -> None:
    (found,) = complaints("workflow: w\nsteps:\n  a: {task: t, queue: 'a b'}\n")
    assert found.startswith("3:23: steps.a.queue: queue 'a b' is not a usable name")
