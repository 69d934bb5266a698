"""The tasks that are measured."""

from __future__ import annotations

from rota import App

app = App()


@app.task
async def noop() -> None:
    pass


@app.task
async def punctual() -> None:
    pass


@app.task
def plain() -> None:
    pass


@app.task
async def member(number: int) -> None:
    pass
