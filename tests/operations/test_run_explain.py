"""What a run and its steps wait for, said in a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from rota import DurableContext, Retry
from rota.errors import NotFound
from rota.testing import Sandbox
from tests.support.shop import Shop


async def why(run: Any, step: str | None = None) -> tuple[str, str]:
    explanation = await run.explain(step)
    return explanation.code, explanation.sentence.replace(str(run.id), "RUN")


async def test_a_step_names_the_steps_that_it_waits_for(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("waits", deadline="2h")
    first = [shop.add(flow, name) for name in ("a", "b", "c", "d")]
    shop.add(flow, "last", after=first, rule="all_ended")
    run = await flow.start()
    code, sentence = await why(run, "last")
    assert code == "waiting_for_steps"
    assert sentence == (
        "It waits, by its rule all_ended, for steps 'a' (running), 'b' (running), 'c' (running) and "
        "1 other; 0 of the 4 before it have ended."
    )
    code, sentence = await why(run)
    assert code == "no_worker"  # what the job of the first step waits for
    assert sentence.startswith(
        "0 of 5 steps have ended, 4 under way. Step 'a': No worker is alive;"
    )
    assert "Its deadline is at" in sentence
    with pytest.raises(NotFound):
        await run.explain("none")


async def test_a_function_names_what_it_waits_for(sandbox: Sandbox, shop: Shop) -> None:
    app = sandbox.app

    @app.durable
    async def sleeper(ctx: DurableContext) -> None:
        await ctx.sleep("2h")

    @app.durable
    async def approval(ctx: DurableContext, key: str | None = None) -> None:
        await ctx.wait("approved", key=key, timeout="3d")

    @app.durable
    async def caller(ctx: DurableContext, count: int) -> None:
        await ctx.gather(*(ctx.call(sleeper) for _ in range(count)))

    async def tried() -> None:
        raise ConnectionError

    @app.durable
    async def trying(ctx: DurableContext) -> None:
        retry = Retry(base=600, jitter=0, max_attempts=3)
        await ctx.options(retry=retry, name="charge").step(tried)

    slept, own, keyed = await sleeper.start(), await approval.start(), await approval.start("o'1")
    one, many, again = await caller.start(1), await caller.start(5), await trying.start()
    assert (await why(slept))[0] == "no_worker"  # not begun yet
    await sandbox.run_due()
    code, sentence = await why(slept)
    assert code == "sleeping"
    assert "Step 'sleeper': It waits, without a worker, for the end of its sleep at 2" in sentence
    assert sentence.startswith("0 of 1 step has ended, 1 under way.")
    assert "(in 2 h)" in sentence
    code, sentence = await why(own)
    assert code == "waiting_for_signal"
    assert "for signal 'approved' to this run, until 2" in sentence
    assert "(in 3 d)" in sentence
    assert sentence.endswith("`rota runs send RUN approved` sends it.")
    sentence = (await why(keyed, "approval"))[1]
    assert "for signal 'approved' with key \"o'1\", until 2" in sentence
    assert sentence.endswith("""`rota signals send approved 'o'"'"'1'` sends it.""")
    code, sentence = await why(one)
    assert code == "sleeping"
    assert "for run 0" in sentence
    assert "('sleeper'). 0 of 1 step" in sentence
    code, sentence = await why(many)
    assert code == "suspended"
    assert sentence.endswith(", and for 2 others. `rota runs history RUN` lists them.")
    assert "for try 2 of step 'charge' at 2" in (await why(again))[1]


async def test_pauses_and_what_nobody_decides_about(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("paused")
    shop.add(flow, "b", after=shop.add(flow, "a"), when="a == 'x'")
    run = await flow.start()
    await run.pause()
    await sandbox.run_due()
    code, sentence = await why(run, "b")
    assert code == "run_paused"
    assert sentence.endswith("`rota runs resume RUN` resumes it.")
    assert (await why(run))[0] == "run_paused"
    await run.resume()
    code, sentence = await why(run, "b")
    assert code == "no_scheduler"
    assert "no live node has the scheduler role" in sentence
    await sandbox.run_due()
    code, sentence = await why(run, "b")
    assert (code, sentence.partition(": ")[2]) == (
        "skipped", "its condition \"a == 'x'\" did not hold.",
    )  # fmt: skip


async def test_ends_say_why_and_what_to_do(sandbox: Sandbox, shop: Shop) -> None:
    flow = sandbox.app.workflow("ends")
    after = shop.add(flow, "b", after=shop.add(flow, "a"))
    shop.add(flow, "never", after=after, rule="one_failed")
    shop.add(flow, "mend", after="a", rule="one_failed")
    shop.add(flow, "unmended", after="mend", optional=True)
    shop.broken = {"a"}
    run = await flow.start()
    await sandbox.run_due()
    code, sentence = await why(run, "a")
    assert (code, sentence.partition(": ")[2]) == (
        "failed", "a is broken. `rota runs resume RUN` continues from there.",
    )  # fmt: skip
    code, sentence = await why(run, "b")
    assert code == "upstream_failed"
    assert sentence == (
        "It did not run: its rule all_succeeded can't be met after step 'a' (failed). "
        "`rota runs resume RUN` runs what failed again, and then this."
    )
    assert (await why(run, "mend"))[0] == "succeeded"
    code, sentence = await why(run)
    assert code == "failed"
    assert "step a failed. `rota runs resume RUN` continues from the steps" in sentence
    shop.broken = set()
    await run.resume()
    await sandbox.run_due()
    assert (await why(run))[0] == "succeeded"
    code, sentence = await why(run, "never")
    assert sentence.endswith("none of the steps before it failed.")


async def test_a_queue_that_is_paused_and_a_run_inside_a_run(sandbox: Sandbox, shop: Shop) -> None:
    inner = sandbox.app.workflow("inner")
    shop.add(inner, "deep", queue="slow")
    outer = sandbox.app.workflow("outer")
    outer.step(inner)
    await sandbox.app.queues.pause("slow")
    run = await outer.start()
    await sandbox.run_due()
    code, sentence = await why(run, "inner")
    assert code == "queue_paused"
    assert "It runs workflow 'inner' as run " in sentence
    assert "Step 'deep': Queue 'slow' has been paused since" in sentence
    await run.cancel()
    assert (await why(run))[0] in ("cancelling", "cancelled")
    await sandbox.run_due()
    assert (await why(run))[0] == "cancelled"
    assert (await why(run, "inner"))[0] == "cancelled"
