"""Runs that are stopped, paused, resumed and retried, also together with their sub-workflows."""

from __future__ import annotations

import pytest

from rota import App
from rota.errors import NotFound, StoreUnavailable, SubmitError
from rota.lib import failpoints
from rota.testing import Sandbox
from tests.support.shop import Shop, ended, states

# -- cancel and deadline


async def test_a_paused_run_that_is_cancelled_runs_what_always_runs(
    sandbox: Sandbox, shop: Shop
) -> None:
    """The step before has ended during the pause: nothing else would look at the one after it."""
    flow = sandbox.app.workflow("paused")
    shop.add(flow, "cleanup", after=shop.add(flow, "a"), rule="always")
    run = await flow.start()
    await run.pause()
    await sandbox.run_due()
    await run.cancel()
    assert (await ended(sandbox, run)).state == "cancelled"
    assert shop.ran == ["a", "cleanup"]


async def test_a_sub_workflow_that_always_runs_does_so_after_the_deadline(
    sandbox: Sandbox, shop: Shop
) -> None:
    inner = sandbox.app.workflow("inner")
    shop.add(inner, "x")
    outer = sandbox.app.workflow("outer", deadline="1h")
    outer.step(inner, after=shop.add(outer, "a"), rule="always")
    await sandbox.app.queues.pause("default")
    run = await outer.start()
    await sandbox.advance(hours=2)
    await sandbox.run_due()
    await sandbox.app.queues.resume("default")
    assert (await ended(sandbox, run)).state == "failed"
    assert shop.ran == ["x"]
    assert (await states(run))["inner"] == "succeeded"


@pytest.mark.parametrize("point", ["stop_run:before_commit", "stop_run:after_commit"])
async def test_cancel_reaches_sub_workflows_after_a_crash(
    sandbox: Sandbox, shop: Shop, point: str
) -> None:
    inner = sandbox.app.workflow("inner")
    shop.add(inner, "x")
    outer = sandbox.app.workflow("outer")
    outer.step(inner)
    shop.add(outer, "a")
    run = await outer.start()
    await sandbox.app.queues.pause("default")
    await sandbox.run_due()
    with failpoints.armed_with(f"{point}=error@1"), pytest.raises(StoreUnavailable):
        await run.cancel()
    await sandbox.run_due()
    assert {each.state for each in await sandbox.app.runs.list()} == {"cancelled"}


# -- resume and retry


async def test_an_optional_step_that_was_cancelled_runs_after_a_resume(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("optional")
    shop.add(flow, "a")
    shop.add(flow, "b", optional=True)
    run = await flow.start()
    await run.cancel()
    await sandbox.run_due()
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert sorted(shop.ran) == ["a", "b"]


@pytest.mark.parametrize("first", ["has ended", "still runs"])
async def test_a_sub_workflow_that_was_resumed_by_hand_is_not_run_twice(
    sandbox: Sandbox, shop: Shop, first: str
) -> None:
    inner = sandbox.app.workflow("inner")
    shop.add(inner, "y", after=shop.add(inner, "x"))
    outer = sandbox.app.workflow("outer")
    shop.add(outer, "z", after=outer.step(inner))
    shop.broken = {"y"}
    run = await outer.start()
    await sandbox.run_due()
    [child] = await sandbox.app.runs.list(workflow="inner")
    shop.broken, shop.ran = set(), []
    await sandbox.app.runs.resume(child.id)
    if first == "has ended":
        await sandbox.run_due()
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["y", "z"]


async def test_a_sub_workflow_that_failed_starts_anew_with_another_input(
    sandbox: Sandbox, shop: Shop
) -> None:
    app, called = sandbox.app, 0

    @app.task
    async def number() -> int:
        nonlocal called
        called += 1
        return called

    inner = app.workflow("inner")
    shop.add(inner, "y", after=inner.step(shop.double))
    outer = app.workflow("outer")
    outer.step(inner, number=outer.step(number))
    shop.broken = {"y"}
    run = await outer.start()
    await sandbox.run_due()
    shop.broken, shop.ran = set(), []
    await run.retry("number")
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["double 2", "y"]


async def test_a_sub_workflow_that_succeeded_runs_again_when_it_is_retried(
    sandbox: Sandbox, shop: Shop
) -> None:
    inner = sandbox.app.workflow("inner")
    shop.add(inner, "x")
    outer = sandbox.app.workflow("outer")
    outer.step(inner)
    run = await outer.start()
    await sandbox.run_due()
    await run.retry("inner")
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["x", "x"]


async def test_five_levels_fail_are_cancelled_and_resumed_together(
    sandbox: Sandbox, shop: Shop
) -> None:
    app = sandbox.app
    flow = app.workflow("w0")
    shop.add(flow, "y", after=shop.add(flow, "x"))
    for level in range(1, 6):
        inner, flow = flow, app.workflow(f"w{level}")
        shop.add(flow, f"after{level}", after=flow.step(inner, name="inner"))
    shop.broken = {"y"}
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "failed"
    shop.broken = set()
    await app.queues.pause("default")
    await run.resume()
    await sandbox.run_due()
    await run.cancel()
    assert (await ended(sandbox, run)).state == "cancelled"
    await app.queues.resume("default")
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["x", "y", "y", *(f"after{level}" for level in range(1, 6))]
    assert [each.state for each in await app.runs.list()] == ["succeeded"] * 6


async def test_the_hidden_end_is_no_step(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("hidden")
    shop.add(flow, "a")
    run = await flow.start()
    await sandbox.run_due()
    for act in (run.retry("(end)"), run.skip("(end)"), sandbox.app.runs.step(run.id, "(end)")):
        with pytest.raises(NotFound, match="no step"):
            await act


async def test_nothing_is_told_of_a_run_of_another_namespace(sandbox: Sandbox, shop: Shop) -> None:
    """Not even which steps it has."""
    flow = sandbox.app.workflow("mine")
    shop.add(flow, "a")
    run = await flow.start()
    runs = App(sandbox.app.settings.replace(namespace="other")).runs
    acts = [act(run.id) for act in (runs.get, runs.steps, runs.result, runs.cancel, runs.resume)]
    acts += [act(run.id, name) for act in (runs.step, runs.retry, runs.skip) for name in "ax"]
    for act in acts:
        with pytest.raises(NotFound, match=f"there is no run {run.id}"):
            await act
    assert (await ended(sandbox, run)).state == "succeeded"


# -- retired workflows


async def test_a_retired_workflow_stays_retired_in_its_next_version(
    sandbox: Sandbox, shop: Shop
) -> None:
    app = sandbox.app
    old = app.workflow("old")
    shop.add(old, "a")
    await app.workflows.put(old.graph)
    await app.workflows.retire("old")
    del app.workflows.declared["old"]
    new = app.workflow("old")
    shop.add(new, "b")
    with pytest.raises(SubmitError, match="workflow 'old' is retired"):
        await new.start()
    await app.workflows.retire("old", retired=False)
    assert (await ended(sandbox, await new.start())).state == "succeeded"


async def test_a_step_whose_workflow_is_retired_fails(sandbox: Sandbox, shop: Shop) -> None:
    app = sandbox.app
    inner = app.workflow("inner")
    shop.add(inner, "x")
    outer = app.workflow("outer")
    outer.step(inner, after=shop.add(outer, "a"))
    run = await outer.start()
    await app.workflows.retire("inner")
    assert (await ended(sandbox, run)).state == "failed"
    step = await app.runs.step(run.id, "inner")
    assert (step.state, step.error["message"]) == ("failed", "workflow 'inner' is retired")
    await app.workflows.retire("inner", retired=False)
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["a", "x"]
