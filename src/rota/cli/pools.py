"""`rota pools`: list pools of workers, and set how many slots they may have."""

from __future__ import annotations

from typing import Annotated

import typer

from rota.cli.options import Yes, argument, duration, option
from rota.cli.session import Session, callback, command
from rota.core.durations import format_duration

Name = Annotated[str, argument("NAME", "Name of the pool.")]

group = typer.Typer(help="List pools of workers, and set how many slots they may have.")


@callback(group)
@command(group, "list")
def list_pools(session: Session) -> None:
    """List pools: what they serve, and how many slots they should have."""
    pools = session.run(session.app.pools.list())
    numbers = ("slots", "needed", "workers", "runnable", "running", "min", "max")
    session.screen.listing(
        pools, "No pools. Create one: rota pools set NAME --max-slots 64",
        ("pool", "queues", *numbers, "drain target"),
        (
            (
                pool.name, ", ".join(pool.queues) or "all", f"{pool.slots:,}", f"{pool.needed:,.1f}",
                f"{pool.workers:,}", f"{pool.runnable:,}", f"{pool.running:,}",
                f"{pool.min_slots:,}", f"{pool.max_slots:,}", format_duration(pool.drain_target),
            )
            for pool in pools
        ),
        right=numbers,
    )  # fmt: skip


@command(group, "show")
def show(session: Session, name: Name) -> None:
    """Show a pool, and the load of each queue that it serves."""
    pool = session.run(session.app.pools.get(name))
    if session.screen.structured:
        session.screen.document(pool)
        return
    session.screen.say(
        f"{pool.name}: {pool.slots:,} slots, {pool.workers:,} workers; the load keeps "
        f"{pool.needed:,.1f} slots busy"
    )
    session.screen.listing(
        pool.loads, "None of its queues has jobs.",
        ("queue", "runnable", "running", "arrivals/s", "run time"),
        (
            (
                load.queue, f"{load.runnable:,}", f"{load.running:,}", f"{load.arrivals:,.2f}",
                format_duration(load.run_time),
            )
            for load in pool.loads
        ),
        right=("runnable", "running", "arrivals/s", "run time"),
    )  # fmt: skip


@command(group, "set")
def set_pool(
    session: Session,
    name: Name,
    max_slots: Annotated[int, option("Jobs that its workers may run at a time.", min=1)],
    min_slots: Annotated[int, option("Slots that it has when nothing is to be done.", min=0)] = 0,
    queue: Annotated[
        list[str] | None, option("Queue that it serves. Repeatable. (default: all)")
    ] = None,
    capability: Annotated[
        list[str] | None, option("Capability of its workers, such as gpu. Repeatable.")
    ] = None,
    slots_per_worker: Annotated[int, option("Slots of one worker.", min=1)] = 1,
    drain_target: Annotated[
        float, duration("Time within which what waits should be worked off.")
    ] = 60.0,
) -> None:
    """Create a pool of workers, or change it."""
    pool = session.run(
        session.app.pools.put(
            name, max_slots=max_slots, min_slots=min_slots, queues=queue or [],
            capabilities=capability or [], slots_per_worker=slots_per_worker,
            drain_target=drain_target,
        )
    )  # fmt: skip
    session.screen.answer(pool, f"{name}: {pool.slots:,} slots now, at most {max_slots:,}")


@command(group, "delete")
def delete(session: Session, name: Name, yes: Yes = False) -> None:
    """Delete a pool. Its workers stay."""
    session.confirm(f"Delete pool {name}?", yes)
    pool = session.run(session.app.pools.delete(name))
    session.screen.answer(pool, f"deleted pool {name}")
