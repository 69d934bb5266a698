"""Clients of the proofs: one that was not answered asks again, under the same ids, until it knows."""

from __future__ import annotations

import random
from pathlib import Path

from proof import workload
from proof.history import History, Recorder
from proof.nemesis import client as nemesis
from rota import App
from rota.store.bulk import BulkStore


async def test_a_client_that_repeats_is_told_of_jobs_that_are_stored(
    app: App, tmp_path: Path
) -> None:
    store = BulkStore((await app.store()).database)
    client = workload.Client(store, Recorder(tmp_path, "clients"), random.Random(1))
    jobs = client.make(2, "plain")
    await client.submit(jobs[:1], "single")
    answers = await client._repeat(jobs)
    assert [answer.id for answer in answers] == [job.id for job in jobs]
    assert len(await app.jobs.list()) == 2


async def test_a_client_of_the_nemesis_that_repeats_writes_down_the_answer(
    app: App, tmp_path: Path
) -> None:
    store = BulkStore((await app.store()).database)
    client = nemesis.Client(store, Recorder(tmp_path, "clients"), random.Random(1))
    jobs = workload.Client(store, Recorder(tmp_path, "others"), random.Random(1)).make(2, "plain")
    await client._repeat(jobs)
    told = History(tmp_path).submissions()
    assert {line.job for line in told if line.answer == "acknowledged"} == {
        str(job.id) for job in jobs
    }
