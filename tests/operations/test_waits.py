"""Waiting for jobs and runs: how long, and what a timeout of nothing means."""

from __future__ import annotations

import pytest

from rota.testing import Sandbox


async def test_a_wait_of_no_seconds_looks_once(sandbox: Sandbox) -> None:
    @sandbox.app.task
    async def double(n: int) -> int:
        return 2 * n

    flow = sandbox.app.workflow("doubling")
    flow.step(double, 2, name="twice")
    job, run = await double.submit(21), await flow.start()
    with pytest.raises(TimeoutError, match=f"job {job.id} .* ready"):
        await job.wait(0)
    with pytest.raises(TimeoutError, match=f"run {run.id} has not ended"):
        await run.wait(0)
    await sandbox.run_due()
    assert (await job.result(0), (await run.wait(0)).state) == (42, "succeeded")
