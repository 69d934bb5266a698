"""Real nodes in real processes, for tests that kill them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proof.waiting import eventually
from tests.support.places import ROOT

_NODE = """
import asyncio, logging, sys
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(name)s %(message)s")
import tests.support.fault_tasks
from rota.node import Node
asyncio.run(Node(tests.support.fault_tasks.app, roles=sys.argv[1].split(",")).run())
"""


class Cluster:
    """Starts nodes on one database and schema, and leaves none behind."""

    def __init__(self, folder: Path, url: str, schema: str, **settings: Any) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.journal.touch()
        given = {"database_url": url, "schema": schema, **settings}
        self._environment = {
            **os.environ,
            **{f"ROTA_{name.upper()}": str(value) for name, value in given.items()},
            "FAULT_JOURNAL": str(self.journal),
            "PYTHONPATH": str(ROOT),
        }
        self.nodes: list[subprocess.Popen[bytes]] = []

    def start(self, *roles: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"node-{len(self.nodes)}.log").open("wb")
        node = subprocess.Popen(
            [sys.executable, "-c", _NODE, ",".join(roles)],
            env=self._environment, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        log.close()
        self.nodes.append(node)
        return node

    def entries(self, kind: str) -> list[tuple[int, int, int]]:
        """(number, token, pid) of each beginning of a job of this kind."""
        lines = [line.split() for line in self.journal.read_text().splitlines()]
        return [(int(n), int(token), int(pid)) for k, n, token, pid in lines if k == kind]

    def stop(self) -> None:
        for node in self.nodes:
            if node.poll() is None:
                node.send_signal(signal.SIGCONT)
                node.kill()
            node.wait()

    def logs(self) -> str:
        return "\n".join(file.read_text() for file in sorted(self.folder.glob("node-*.log")))


async def all_ended(app: Any, ids: Sequence[Any]) -> dict[Any, Any]:
    """The jobs by id, when none of them has anything left to do."""
    store = await app.store()
    final = {"succeeded", "failed", "cancelled", "skipped"}

    async def ask() -> dict[Any, Any]:
        jobs = await store.get_jobs(app.settings.namespace, ids)
        done = len(jobs) == len(ids) and all(job.state in final for job in jobs)
        return {job.id: job for job in jobs} if done else {}

    return await eventually(ask, 90, "the end of all jobs")
