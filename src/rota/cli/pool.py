"""`rota pool`: run as many workers on this machine as the load needs."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli import logs
from rota.cli.options import argument, duration, option
from rota.cli.session import Session
from rota.lib.redaction import secrets_of


def pool(
    session: Session,
    reference: Annotated[str, argument("MODULE:APP", "The app to run.")],
    name: Annotated[
        str | None, option("Take queues, capabilities and drain target from a pool of this name.")
    ] = None,
    least: Annotated[int, option("Workers that run even without jobs.", "--min", min=0)] = 0,
    most: Annotated[int, option("Workers that run at a time.", "--max", min=1, max=1000)] = 8,
    slots: Annotated[int, option("Jobs that one worker runs at a time.", min=1)] = 8,
    queue: Annotated[
        list[str] | None, option("Only run jobs of this queue. Repeatable. (default: all)")
    ] = None,
    capability: Annotated[
        list[str] | None, option("Capability of the workers, such as gpu. Repeatable.")
    ] = None,
    drain_target: Annotated[
        float, duration("Time within which what waits should be worked off.")
    ] = 60.0,
    log_level: Annotated[
        logs.LogLevel | None, option("Level of Rota's own log records. (default: info)")
    ] = None,
    log_format: Annotated[logs.LogFormat, option("Log format.")] = "pretty",
) -> None:
    """Run workers on this machine, as many as the load needs, until SIGTERM or Ctrl-C."""
    from rota.cli.supervisor import Plan, Supervisor

    if least > most:
        raise typer.BadParameter(f"{least} is more than --max {most}", param_hint="--min")
    log_fields = logs.configure(log_level, "json" if session.screen.structured else log_format)
    app = session.load(reference)
    log_fields.redactor.learn(secrets_of(app.settings))
    queues, capabilities = queue or [], capability or []

    async def run() -> None:
        plan = Plan(
            reference=reference, least=least, most=most, slots=slots, queues=queues,
            capabilities=capabilities, drain_target=drain_target,
        )  # fmt: skip
        if name is not None:
            pool = await app.pools.get(name)
            plan = Plan(
                reference=reference, least=least, most=most, slots=slots,
                queues=queues or pool.queues, capabilities=capabilities or pool.capabilities,
                drain_target=pool.drain_target,
            )  # fmt: skip
        await Supervisor(app, plan).run()

    session.run(run())
