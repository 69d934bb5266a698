"""Calls that a type checker must refuse: each line with `# wrong`, and no other.

tests/test_typing.py gives this file to mypy and to pyright, beside the small project that it uses.
"""

# ruff: noqa: F841, B018

from __future__ import annotations

from project import Receipt, app, count, greet, pay, refund, resize

from rota import JobHandle, RunHandle, Task, chain
from rota.client import AsyncClient, Client
from rota.testing import Sandbox, SyncSandbox


async def submitting() -> None:
    await greet.submit("Ada", times=2)
    await greet.submit(1)  # wrong: a name is a text
    await greet.submit()  # wrong: the name is missing
    await greet.submit("x", tmies=2)  # wrong: a slip in a name
    greet.submit_sync(1)  # wrong
    await greet.options(delay=1).submit(1)  # wrong
    greet.options(delay=1).submit_sync(1)  # wrong
    await greet.options(share="x").submit("x")  # wrong: no such option
    await refund.submit("seven")  # wrong: the context is not counted
    await pay.submit("seven")  # wrong
    greet.s(times="twice")  # wrong
    resize.si("a.png")  # wrong: the width is missing


async def results() -> None:
    text: str = await (await greet.submit("x")).result()
    number: int = await (await greet.submit("x")).result()  # wrong: it returns a text
    other: int = greet.submit_sync("x").result_sync()  # wrong
    receipt: Receipt = await (await resize.submit("x", 1)).result()  # wrong
    several: list[JobHandle[int]] = await greet.submit_many(["x"])  # wrong
    task: Task[[int], str] = refund  # wrong: it returns a receipt
    chained: int = await (await chain(greet.s("a"), greet.s()).start()).result()  # wrong


async def following(job: JobHandle[str], run: RunHandle) -> None:
    state: str = (await job.follow(10)).state
    job.follow_sync("soon")  # wrong: seconds are a number
    steps: str = (await run.follow()).steps  # wrong: a number, or None
    async for seen in job.watch():
        seen.stat  # wrong: a slip in a name


async def calling() -> None:
    await refund(7)  # wrong: called directly, it needs a context
    count(3)  # wrong


async def clients() -> None:
    Client().jobs.submit(1)  # wrong
    Client().jobs.submit("x", quue="y")  # wrong: a slip in a name
    accepted: int = Client().jobs.submit("x")  # wrong
    awaited: int = await AsyncClient().jobs.submit("x")  # wrong
    await AsyncClient().jobs.list(tsak="x").__anext__()  # wrong: a slip in a name
    await Client().jobs.submit("x")  # wrong: nothing to await


async def maps() -> None:
    await app.map(greet, over=["a"], times=2)
    await app.map("greet", over=["a"])  # wrong: a task, not its name
    await app.map(greet)  # wrong: over what?


async def tests(sandbox: Sandbox, plain: SyncSandbox) -> None:
    ran: int = len(await sandbox.run_due())
    plain.advance(hours="one")  # wrong
    await plain.run_due()  # wrong: nothing to await
    sandbox.run_due(rais_errors=True)  # wrong: a slip in a name
