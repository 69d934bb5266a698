"""Random graphs with random failures end in the states that a model of the rules gives."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rota import App, Retry
from rota.core.workflow.graph import Graph
from rota.core.workflow.model import Definition, Rule, StepDefinition
from rota.testing import Sandbox

GRAPHS_PER_SEED = 6


def random_steps(dice: random.Random) -> list[StepDefinition]:
    steps: list[StepDefinition] = []
    for number in range(dice.randint(2, 14)):
        before = dice.sample([step.name for step in steps], dice.randint(0, min(len(steps), 4)))
        rule = dice.choice([rule.label for rule in Rule])
        if not before and rule.startswith("one_"):
            rule = "all_succeeded"
        tolerate = dice.choice([0, 0, 1, 0.5]) if rule == "all_succeeded" else 0
        steps.append(
            StepDefinition(
                name=f"s{number}", task="act", arguments={"name": f"s{number}"}, after=before,
                rule=rule,  # type: ignore[arg-type]
                tolerate=tolerate, optional=dice.random() < 0.15, max_attempts=1,
                when=dice.choice([None, None, None, "input.open", "not input.open"]),
            )
        )  # fmt: skip
    return steps


def expected(graph: Graph, broken: set[str], opened: bool) -> dict[str, str]:
    """The states of all steps, by the rules as docs/guide/workflows.md states them.

    Steps with a `one_` rule may start before all others have ended, and then what those do doesn't
    matter: so the order of ends makes no difference.
    """
    states: dict[str, str] = {}
    for name in graph.order:
        step, before = graph.steps[name], graph.predecessors[name]
        failed = sum(
            states[each] in ("failed", "upstream_failed")
            and (not graph.steps[each].optional or step.rule.startswith("one_"))
            for each in before
        )
        skipped = sum(states[each] == "skipped" for each in before)
        succeeded = len(before) - failed - skipped
        tolerated = step.tolerate if step.tolerate >= 1 else int(step.tolerate * len(before))
        met = {
            "all_succeeded": failed <= tolerated and skipped == 0,
            "all_ended": True,
            "always": True,
            "one_succeeded": succeeded > 0,
            "one_failed": failed > 0,
        }[step.rule]
        if not met:
            by_skips = step.rule == "one_failed" or failed <= tolerated
            states[name] = "skipped" if by_skips else "upstream_failed"
        elif step.when is not None and opened != (step.when == "input.open"):
            states[name] = "skipped"
        else:
            states[name] = "failed" if name in broken else "succeeded"
    return states


def repeated(graph: Graph, states: dict[str, str]) -> set[str]:
    """The steps that a resume repeats, as docs/guide/workflows.md states it: what failed, and what the
    steps before it that stay would not have let start."""
    again: set[str] = set()
    for name in graph.order:
        step = graph.steps[name]
        stay = [states[each] for each in graph.predecessors[name] if each not in again]
        starts = {
            "one_succeeded": "succeeded" in stay,
            "one_failed": "failed" in stay or "upstream_failed" in stay,
        }.get(step.rule, False)
        waits = len(stay) < len(graph.predecessors[name]) and not starts
        if waits or (states[name] in ("failed", "upstream_failed") and not step.optional):
            again.add(name)
    return again


@pytest.mark.parametrize("seed", range(10))
async def test_random_graphs_end_as_the_rules_say(sandbox: Sandbox, seed: int) -> None:
    dice = random.Random(seed)
    app = sandbox.app
    ran: list[str] = []
    broken: set[str] = set()

    @app.task(retry=Retry(max_attempts=1))
    async def act(name: str) -> str:
        ran.append(name)
        if name in broken:
            raise ValueError(name)
        return name

    for number in range(GRAPHS_PER_SEED):
        graph = Graph(Definition(name=f"g{number}", steps=random_steps(dice)))
        await app.workflows.put(graph)
        broken = {name for name in graph.order if dice.random() < 0.3}
        opened = dice.random() < 0.5
        reads = any(step.when for step in graph.definition.steps)
        given = {"open": opened} if reads else {}
        run = await app.runs.start(f"g{number}", given)
        ran.clear()
        await sandbox.run_due()
        await check(app, run.id, graph, expected(graph, broken, opened), ran)
        if (await run.status()).state != "failed":
            continue
        before = {step.name: step.state for step in await run.steps()}
        again = repeated(graph, before)
        broken = {name for name in broken if dice.random() < 0.3}
        ran.clear()
        await run.resume()
        await sandbox.run_due()
        stays_failed = {n for n, state in before.items() if state == "failed" and n not in again}
        states = expected(graph, broken | stays_failed, opened)
        await check(app, run.id, graph, states, ran, again)


async def check(
    app: App, run: Any, graph: Graph, states: dict[str, str], ran: list[str],
    again: set[str] | None = None,
) -> None:  # fmt: skip
    """`again`: the steps that a resume repeats; without it the run is in its first round."""
    found = {step.name: step.state for step in await app.runs.steps(run)}
    assert found == states, graph.definition
    assert sorted(ran) == sorted(
        n
        for n, state in states.items()
        if state in ("succeeded", "failed") and (again is None or n in again)
    )
    status = await app.runs.get(run)
    bad = any(
        state in ("failed", "upstream_failed") and not graph.steps[name].optional
        for name, state in states.items()
    )
    assert status.state == ("failed" if bad else "succeeded")
    assert status.ended_steps == len(states)
