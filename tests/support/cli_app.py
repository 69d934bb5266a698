"""The app that the tests of the command line run."""

import asyncio

from rota import App, Context, Fatal, Retry

app = App()


@app.task
async def greet(name: str, ctx: Context) -> str:
    ctx.progress(1, 2, "looking up")
    return f"hello {name}"


@app.task(queue="sums", guarantee="at_most_once")
def add(a: int, b: int = 0) -> int:
    return a + b


@app.task(retry=Retry(max_attempts=1))
async def explode(message: str = "boom") -> None:
    raise ValueError(message)


@app.task
async def refuse() -> None:
    raise Fatal("never")


@app.task
async def wait_for_ever() -> None:
    print("waiting", flush=True)
    await asyncio.Event().wait()
