"""Tasks for the steps of workflows, and how their runs went."""

from __future__ import annotations

from typing import Any

from rota import App
from rota.model import Retry, Run
from rota.run_handle import RunHandle
from rota.testing import Sandbox
from rota.workflow import Workflow


class Shop:
    """Tasks that record what ran, and fail when told to."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.ran: list[str] = []
        self.broken: set[str] = set()
        once = Retry(max_attempts=1)

        @app.task(retry=once)
        async def work(name: str) -> str:
            self.ran.append(name)
            if name in self.broken:
                raise ValueError(f"{name} is broken")
            return name

        @app.task(retry=once)
        async def count(day: str, by: int = 1) -> dict[str, Any]:
            self.ran.append(f"count {day}")
            return {"count": by, "day": day}

        @app.task(retry=once)
        async def double(number: int) -> int:
            self.ran.append(f"double {number}")
            return number * 2

        self.work, self.count, self.double = work, count, double

    def add(self, flow: Workflow, name: str, **options: Any) -> Any:
        return flow.step(self.work, name, name=name, **options)


async def states(run: RunHandle) -> dict[str, str]:
    return {step.name: step.state for step in await run.steps()}


async def ended(sandbox: Sandbox, run: RunHandle) -> Run:
    await sandbox.run_due()
    return await run.status()
