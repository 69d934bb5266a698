"""Memory of child processes and programs: limits, replaced children (lib/memory.py, lib/cgroups.py)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

import msgspec
import pytest

from proof.waiting import eventually
from rota import App, Node
from rota.commands import enable_commands
from rota.config import Settings
from rota.errors import ConfigError
from rota.lib.cgroups import Group, open_groups
from rota.model import Outcome, OutcomeKind
from rota.runtime.work import Work
from rota.worker.runners.base import NodeParts
from rota.worker.runners.process import OUT_OF_MEMORY, ProcessRunner, child_max_bytes
from rota.worker.runners.reference import AppReference
from tests.support import memory_tasks

REFERENCE = AppReference(memory_tasks.__name__, None, "app")
SHAPED = "default/default+memory=256"


class Children:
    """A runner, and the outcomes of what it ran."""

    def __init__(self, size: int = 1, **settings: Any) -> None:
        self.outcomes: dict[Work, Outcome] = {}
        parts = NodeParts(Settings(**settings), self._done, self)  # type: ignore[arg-type]
        self.runner = ProcessRunner(REFERENCE, size, parts)

    async def __aenter__(self) -> Self:
        await self.runner.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runner.stop()

    def _done(self, work: Work, outcome: Outcome) -> None:
        self.outcomes[work] = outcome

    def start(self, task: str, lane: str = "default/default", **arguments: Any) -> Work:
        payload = msgspec.json.encode(arguments)
        work = Work(uuid4(), task, payload, 1, 1, 1, lane=lane)
        self.runner.run(work)
        return work

    async def run(self, task: str, lane: str = "default/default", **arguments: Any) -> Outcome:
        work = self.start(task, lane, **arguments)
        await eventually(lambda: work in self.outcomes, 30)
        return self.outcomes[work]

    async def pid(self) -> int:
        result = (await self.run("pid")).result
        assert result is not None
        return int(result)


async def test_a_job_over_its_memory_fails_by_name_and_its_child_is_replaced():
    async with Children() as children:
        before = await children.pid()
        outcome = await children.run("fill", SHAPED, megabytes=2000)
        assert outcome.kind is OutcomeKind.RAISED
        assert outcome.failure is not None
        assert outcome.failure.type == OUT_OF_MEMORY
        assert "it asked for 256MB of memory" in outcome.failure.message
        assert "MB when it asked for more" in outcome.failure.message
        assert "builtins.MemoryError" in outcome.failure.lineage
        assert await children.pid() != before


async def test_what_waits_inside_a_child_that_is_replaced_goes_to_the_next():
    async with Children() as children:
        await children.run("pid", seconds=0)  # known to be short: works are given ahead
        work = children.start("fill", SHAPED, megabytes=2000)
        behind = [children.start("pid") for _ in range(20)]
        await eventually(lambda: len(children.outcomes) == 22, 30)
        assert children.outcomes[work].failure.type == OUT_OF_MEMORY
        assert {children.outcomes[each].kind for each in behind} == {OutcomeKind.SUCCEEDED}


async def test_a_job_within_its_memory_and_jobs_without_a_limit_are_left_alone():
    async with Children() as children:
        before = await children.pid()
        assert (await children.run("fill", SHAPED, megabytes=30)).kind is OutcomeKind.SUCCEEDED
        assert (await children.run("swallow", SHAPED, megabytes=2000)).result == b'"swallowed"'
        assert (await children.run("free", megabytes=600)).kind is OutcomeKind.SUCCEEDED
        assert await children.pid() == before


async def test_none_turns_the_limits_off():
    async with Children(memory_limits="none") as children:
        assert (await children.run("fill", SHAPED, megabytes=600)).kind is OutcomeKind.SUCCEEDED


async def test_children_are_replaced_after_a_number_of_jobs_and_never_in_the_middle_of_one():
    async with Children(size=2, child_max_jobs=3) as children:
        works = [children.start("pid", seconds=0.01) for _ in range(30)]
        await eventually(lambda: len(children.outcomes) == 30, 60)
        kinds = {children.outcomes[work].kind for work in works}
        assert kinds == {OutcomeKind.SUCCEEDED}
        pids = [children.outcomes[work].result for work in works]
        assert max(pids.count(pid) for pid in pids) <= 3


async def test_a_child_that_a_job_has_left_large_is_replaced():
    async with Children(child_max_memory="200MB") as children:
        before = await children.pid()
        assert await children.pid() == before
        await children.run("keep", megabytes=300)
        assert await children.pid() != before


def test_a_size_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="memory 'big' is no size"):
        child_max_bytes(Settings(child_max_memory="big"))


def test_groups_are_made_only_where_the_node_is_alone_in_a_delegated_one(tmp_path: Path):
    def base(name: str, controllers: str, procs: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "cgroup.controllers").write_text(controllers)
        (folder / "cgroup.procs").write_text(procs)
        (folder / "cgroup.subtree_control").write_text("")
        return folder

    me = str(os.getpid())
    assert open_groups(base("without", "cpu io", me)) is None
    assert open_groups(base("shared", "cpu memory", f"1\n{me}")) is None
    assert open_groups(tmp_path / "nothing") is None
    own = base("own", "cpu memory", me)
    groups = open_groups(own)
    assert groups is not None
    assert (own / "rota-node" / "cgroup.procs").read_text() == me
    assert (own / "cgroup.subtree_control").read_text() == "+memory"
    group = groups.make()
    assert group is not None
    assert group.folder.parent == own


def test_a_group_tells_whether_the_system_has_killed_for_memory(tmp_path: Path):
    group = Group(tmp_path / "child")
    assert not group.was_over()
    assert group.peak() is None
    (group.folder / "memory.events").write_text("low 0\noom 1\noom_kill 1\n")
    (group.folder / "memory.peak").write_text("268435456\n")
    assert group.was_over()
    assert group.peak() == 268435456


async def test_a_program_over_its_memory_fails_by_name(make_app: Callable[..., App]):
    app = make_app()
    enable_commands(app)
    node = Node(app, ["worker"], resources={"memory": "8GB"})
    await node.start()
    try:
        grow = "import sys; x = bytearray(int(sys.argv[1]) << 20); print(len(x))"
        argv = ["/usr/bin/env", "python3", "-c", grow]
        over = await app.submit(
            "rota.command", {"argv": [*argv, "2000"]}, resources={"memory": "512MB"}
        )
        within = await app.submit(
            "rota.command", {"argv": [*argv, "10"]}, resources={"memory": "512MB"}
        )
        await eventually(lambda: _ended(app, over.id, within.id), 30)
        failed = await app.jobs.get(over.id)
        assert failed.error is not None
        assert failed.error.type == OUT_OF_MEMORY
        assert "it asked for 512MB of memory" in failed.error.message
        assert (await app.jobs.get(within.id)).state == "succeeded"
        missing = await app.submit(
            "rota.command", {"argv": ["no-such-program"]}, resources={"memory": "512MB"}
        )
        await eventually(lambda: _ended(app, missing.id), 30)
        error = (await app.jobs.get(missing.id)).error
        assert error is not None
        assert "there is no such program on this worker" in error.message
    finally:
        await node.stop()


async def _ended(app: App, *ids: Any) -> bool:
    jobs = await asyncio.gather(*(app.jobs.get(id) for id in ids))
    return all(job.state in ("succeeded", "failed", "scheduled") and job.attempt for job in jobs)
