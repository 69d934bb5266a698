"""What a resumed run repeats: what failed, and what the steps that stay would not have started."""

from __future__ import annotations

from rota.run_handle import RunHandle
from rota.testing import Sandbox
from rota.workflow import Workflow
from tests.support.shop import Shop, ended, states


async def _resumed(sandbox: Sandbox, shop: Shop, flow: Workflow, *broken: str) -> RunHandle:
    """Run it with broken steps, then resume it with all of them mended."""
    shop.broken = {*broken}
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "failed"
    shop.broken, shop.ran = set(), []
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    return run


async def test_a_failure_handler_and_what_came_after_it_are_taken_back(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("handler")
    charge = shop.add(flow, "charge")
    handler = shop.add(flow, "handler", after=charge, rule="one_failed")
    shop.add(flow, "after-handler", after=handler)
    run = await _resumed(sandbox, shop, flow, "charge")
    assert shop.ran == ["charge"]
    assert await states(run) == {
        "charge": "succeeded", "handler": "skipped", "after-handler": "skipped"
    }  # fmt: skip


async def test_a_join_that_all_ended_is_repeated_and_what_follows_from_it(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("join")
    a, b = shop.add(flow, "a"), shop.add(flow, "b")
    join = shop.add(flow, "join", after=[a, b], rule="all_ended")
    shop.add(flow, "report", after=join)
    shop.add(flow, "beside", after=a)
    await _resumed(sandbox, shop, flow, "b")
    assert shop.ran == ["b", "join", "report"]


async def test_a_join_that_tolerated_a_failure_is_repeated(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("tolerant")
    parts = [shop.add(flow, name) for name in "abc"]
    shop.add(flow, "join", after=parts, tolerate=1)
    await _resumed(sandbox, shop, flow, "b")
    assert shop.ran == ["b", "join"]


async def test_a_join_of_one_success_stays_with_a_success_that_stays(
    sandbox: Sandbox, shop: Shop
) -> None:
    """A payment that one answer was enough for is not made twice."""
    flow = sandbox.app.workflow("first")
    mirrors = [shop.add(flow, "a"), shop.add(flow, "b")]
    pay = shop.add(flow, "pay", after=mirrors, rule="one_succeeded")
    shop.add(flow, "thank", after=pay)
    await _resumed(sandbox, shop, flow, "b")
    assert shop.ran == ["b"]


async def test_a_join_of_one_success_is_repeated_with_all_its_successes(
    sandbox: Sandbox, shop: Shop
) -> None:
    """The one success before it came from a failure, and is taken back."""
    flow = sandbox.app.workflow("taken-back")
    charge = shop.add(flow, "charge")
    handler = shop.add(flow, "handler", after=charge, rule="one_failed")
    shop.add(flow, "join", after=[charge, handler], rule="one_succeeded")
    await _resumed(sandbox, shop, flow, "charge")
    assert shop.ran == ["charge", "join"]


async def test_a_handler_stays_with_an_optional_failure_that_stays(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("optional")
    extra = shop.add(flow, "extra", optional=True)
    shop.add(flow, "handler", after=[extra, shop.add(flow, "a")], rule="one_failed")
    run = await _resumed(sandbox, shop, flow, "extra", "a")
    assert shop.ran == ["a"]
    assert (await states(run))["extra"] == "failed"


async def test_what_was_skipped_by_hand_stays_and_what_succeeded_after_it(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("by-hand")
    a = shop.add(flow, "a")
    b = shop.add(flow, "b", after=a)
    shop.add(flow, "c", after=b)
    shop.broken = {"a"}
    run = await flow.start()
    assert (await ended(sandbox, run)).state == "failed"
    await run.skip("b", result="mine")
    assert (await ended(sandbox, run)).state == "failed"
    assert shop.ran == ["a", "c"]
    shop.broken, shop.ran = set(), []
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["a"]
    assert ((await sandbox.app.runs.step(run.id, "b")).note or "").startswith("skipped by ")


async def test_what_followed_from_a_success_stays_also_after_a_cancel(
    sandbox: Sandbox, shop: Shop
) -> None:
    flow = sandbox.app.workflow("cancelled")
    a = shop.add(flow, "a")
    shop.add(flow, "b", after=shop.add(flow, "c", after=a, queue="held"))
    shop.add(flow, "cleanup", after=a, rule="always")
    await sandbox.app.queues.pause("held")
    run = await flow.start()
    await sandbox.run_due()
    await run.cancel()
    assert (await ended(sandbox, run)).state == "cancelled"
    assert shop.ran == ["a", "cleanup"]
    await sandbox.app.queues.resume("held")
    await run.resume()
    assert (await ended(sandbox, run)).state == "succeeded"
    assert shop.ran == ["a", "cleanup", "c", "b"]
